// A cached run takes no memory from the heap: operator new is counted while thousands go by.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/executor/fixture.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* Take(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(bytes ? bytes : 1)
                : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!p) throw std::bad_alloc();
  return p;
}
}  // namespace

void* operator new(std::size_t bytes) { return Take(bytes, 1); }
void* operator new[](std::size_t bytes) { return Take(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) {
  return Take(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return Take(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace opwire::executor {
namespace {

class AllocationTest : public CoreTest {
 protected:
  // How many allocations `runs` runs make, once caches are warm. Requests are written before.
  int64_t Count(Client& c, const RunOf& run, int runs) {
    std::vector<std::string> heads;
    for (int i = 0; i < 2 * runs; ++i) {
      fb::RequestT r;
      r.seq = c.next_seq++;
      r.acked = r.seq;
      r.body.Set(fb::RunT(run.run));
      heads.push_back(EncodeRequest(r));
    }
    shell_.discard = true;
    for (int i = 0; i < 2 * runs; ++i) {
      if (i == runs) {
        allocations = 0;
        counting = true;
      }
      core_->OnMessage(now_, c.peer, AsBytes(heads[static_cast<size_t>(i)]), {});
      while (core_->HasWork()) core_->Work(now_);
    }
    counting = false;
    shell_.discard = false;
    EXPECT_EQ(core_->load().failed.load(), 0u);
    return allocations;
  }
};

TEST_F(AllocationTest, TheCounterCounts) {
  counting = true;
  allocations = 0;
  delete new int;
  counting = false;
  EXPECT_EQ(allocations, 1);
}

TEST_F(AllocationTest, CachedRunsTakeNone) {
  Client c = Hello();
  ASSERT_TRUE(
      Load(
          c, 1,
          R"(program @step(%x: f32[?n], inout %w: f32[?n]) -> (y: f32[?n], w: f32[?n], z: f32[?n]) {
    %0 = mul(%x, %x)
    %1 = relu(%0)
    %2 = add(%w, %1)
    %3 = neg(%1)
    return %1, %2, %3
  })")
          .ok());
  ASSERT_TRUE(Put(c, 1, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(Put(c, 2, {0, 0, 0, 0}).ok());
  // Twice the window of replies, so that each of its entries is warm.
  EXPECT_EQ(Count(c, RunOf(1).Tensor(c, 1).Tensor(c, 2).Inline().None().None(), 1024), 0);
  EXPECT_EQ(Count(c, RunOf(1).Array({1, 2, 3, 4}).Tensor(c, 2).Inline().Inline().None(), 1024), 0);
}

TEST_F(AllocationTest, KeptResultsTakeNone) {
  Client c = Hello();
  ASSERT_TRUE(
      Load(c, 1,
           "program @f(%x: f32[?n], %s: f32[]) -> (y: f32[?n]) { %0 = mul(%x, %s) return %0 }")
          .ok());
  ASSERT_TRUE(Put(c, 1, {1, 2, 3, 4}).ok());
  EXPECT_EQ(Count(c, RunOf(1).Tensor(c, 1).Scalar(2).Keep(5), 1024), 0);
}

}  // namespace
}  // namespace opwire::executor
