// Reading tensors back, on a device whose memory is the host's and on one with memory of its own.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "kernels/jit/sanitized.h"
#include "tests/system/processes.h"

namespace opwire::client {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr const char* kIncrement =
    "program @increment(inout %x: f32[?n], %by: f32[?n]) -> (x: f32[?n]) { %0 = add(%x, %by) "
    "return %0 }";

Array Filled(int64_t floats, float value) {
  Array a = Array::Uninitialised(DType::kF32, {floats});
  std::fill(a.values<float>().begin(), a.values<float>().end(), value);
  return a;
}

bool Same(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

class ReadingTest : public SystemTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void Start() {
    StartRegistry();
    StartExecutor("e1", {}, GetParam());
  }
  bool host_memory() const { return std::string_view(GetParam()) == "cpu"; }
  // Returns the session's bytes as the executor counts them.
  static int64_t BytesOf(Session& session) {
    int64_t bytes = 0;
    const auto all = session.List();
    EXPECT_TRUE(all.ok()) << all.status();
    for (const TensorFacts& t : *all) bytes += t.bytes;
    return bytes;
  }
};

TEST_P(ReadingTest, ViewsStayAsTheyWere) {
  Start();
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Program increment, session.Load(kIncrement));
  for (const int64_t floats : {int64_t{0}, int64_t{3}, 16 * 1024 + int64_t{1}, 5 * kMiB}) {
    const Array x = Array::Random(DType::kF32, {floats}, 7), by = Filled(floats, 1);
    ASSERT_OK_AND(Tensor t, session.Put(x.view()));
    ASSERT_OK_AND(Tensor d, session.Put(by.view()));
    ASSERT_OK_AND(TensorView view, session.View(t));
    const TensorView copy = view;
    EXPECT_EQ(view.array().dtype, DType::kF32);
    EXPECT_EQ(view.array().shape, x.shape());
    EXPECT_EQ(view.bytes().size(), x.bytes().size());
    EXPECT_TRUE(Same(view.bytes(), x.bytes()));
    if (floats > 0) {
      ASSERT_OK(increment.Run({t, d}).status());
    }
    EXPECT_TRUE(Same(view.bytes(), x.bytes())) << "a run wrote the tensor";
    ASSERT_OK_AND(const Array now, session.Fetch(t));
    for (int64_t i = 0; i < floats; i += 1 + floats / 99)
      ASSERT_EQ(now.values<float>()[static_cast<size_t>(i)],
                view.values<float>()[static_cast<size_t>(i)] + 1);
    ASSERT_OK(session.Free(t));
    ASSERT_OK(session.Put(by.view()).status());
    EXPECT_TRUE(Same(view.bytes(), x.bytes())) << "others have the tensor's place";
    // It is an ordinary argument, and a copy of the view keeps the bytes.
    view = TensorView();
    ASSERT_OK_AND(const Tensor again, session.Put(copy.array()));
    ASSERT_OK_AND(const Array same, session.Fetch(again));
    EXPECT_TRUE(Same(same.bytes(), x.bytes()));
    EXPECT_TRUE(Same(copy.bytes(), x.bytes()));
  }
}

TEST_P(ReadingTest, FetchesOfASessionThatIsFull) {
  StartRegistry();
  StartExecutor("e1", {"--limit-tensors", "1"}, GetParam());
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  const Array x = Array::Random(DType::kF32, {5 * kMiB}, 7);
  ASSERT_OK_AND(const Tensor t, session.Put(x.view()));
  ASSERT_OK_AND(const Array back, session.Fetch(t));
  EXPECT_TRUE(Same(back.bytes(), x.bytes()));
}

// For any number of earlier views: the next message returns their memory.
TEST_P(ReadingTest, ViewsGiveTheirMemoryBack) {
  StartRegistry();
  StartExecutor("e1", {"--limit-transfers", "20"}, GetParam());
  Client client = Connect();
  SessionOptions options;
  options.memory_bytes = 48 * kMiB;
  ASSERT_OK_AND(Session session, client.Open(options));
  const Array x = Array::Random(DType::kF32, {4 * kMiB}, 7);
  ASSERT_OK_AND(Tensor t, session.Put(x.view()));
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK_AND(const TensorView view, session.View(t));
    ASSERT_TRUE(Same(view.bytes(), x.bytes())) << i;
  }
  std::vector<TensorView> all;
  Status status;
  while (all.size() < 1000 && status.ok()) {
    auto view = session.View(t);
    status = view.status();
    if (view.ok()) all.push_back(*std::move(view));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(all.size(), host_memory() ? 20u : 3u)
      << "the limit of transfers, or of the segment: " << status;
  for (const TensorView& view : all) EXPECT_TRUE(Same(view.bytes(), x.bytes()));
  all.clear();
  EXPECT_TRUE(session.View(t).ok());
}

// A fetch takes no more of the segment than the pieces in transit.
TEST_P(ReadingTest, LargeFetchesPassThroughALittleMemory) {
  Start();
  Client client = Connect();
  for (const bool ring : {true, false}) {
    const Array x = Array::Random(DType::kF32, {(ring ? 9 : 18) * kMiB + 5}, 7);
    SessionOptions options;
    options.ring = ring;
    options.memory_bytes = ring ? 76 * kMiB : 0;
    ASSERT_OK_AND(Session session, client.Open(options));
    ASSERT_OK_AND(Tensor t, session.Put(x.view()));
    // With this view, the segment has no room for the tensor a second time.
    const StatusOr<TensorView> view = ring ? session.View(t) : TensorView();
    ASSERT_TRUE(view.ok()) << view.status();
    if (ring && !host_memory()) {
      EXPECT_EQ(session.View(t).status().code(), absl::StatusCode::kResourceExhausted);
    }
    for (int i = 0; i < 2; ++i) {
      std::vector<uint8_t> back(x.bytes().size());
      ASSERT_OK(session.FetchInto(t, back));
      ASSERT_TRUE(Same(back, x.bytes())) << "fetch " << i << (ring ? " by the ring" : " by chunks");
    }
    EXPECT_EQ(BytesOf(session), t.bytes()) << "nothing that served the fetch is left";
    std::vector<uint8_t> small(8);
    EXPECT_EQ(session.FetchInto(t, small).code(), absl::StatusCode::kInvalidArgument);
    ASSERT_OK(session.Free(t));
    EXPECT_EQ(session.Fetch(t).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(session.View(t).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(BytesOf(session), 0);
  }
}

// One client fetches while another writes. Each fetch shows one moment, though other requests come
// between the requests for its pieces.
TEST_P(ReadingTest, FetchesAreNeverTorn) {
  Start();
  Client one = Connect("one"), two = Connect("two");
  SessionOptions named;
  named.name = "shared";
  ASSERT_OK_AND(Session writes, one.Open(named));
  ASSERT_OK_AND(
      Program invert,
      writes.Load(
          "program @invert(inout %x: u8[?n]) -> (x: u8[?n]) { %0 = bitwise_not(%x) return %0 }"));
  ASSERT_OK_AND(Tensor w, writes.Put(Array(DType::kU8, {64 * kMiB}).view(), "w"));
  ASSERT_OK(invert.Run({w}).status());
  std::atomic<bool> stop{false};
  Status read;
  std::thread reader([&] {
    const auto look = [&]() -> Status {
      OPWIRE_ASSIGN_OR_RETURN(Session reads, two.Open(named));
      OPWIRE_ASSIGN_OR_RETURN(const Tensor t, reads.Find("w"));
      std::vector<uint8_t> fetched(static_cast<size_t>(t.bytes()));
      for (int i = 0; i < 2 * system_options.rounds; ++i) {
        OPWIRE_RETURN_IF_ERROR(reads.FetchInto(t, fetched));
        OPWIRE_ASSIGN_OR_RETURN(const TensorView view, reads.View(t));
        for (const std::span<const uint8_t> bytes :
             {std::span<const uint8_t>(fetched), view.bytes()}) {
          if (!Same(bytes.subspan(1), bytes.first(bytes.size() - 1))) return Internal("it is torn");
        }
      }
      return absl::OkStatus();
    };
    read = look();
    stop = true;
  });
  Status wrote;
  int runs = 0;
  for (; !stop && wrote.ok(); ++runs) wrote = invert.Run({w}).status();
  reader.join();
  EXPECT_TRUE(wrote.ok()) << wrote;
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_GT(runs, system_options.rounds) << "nothing was written meanwhile";
}

// Memory that a view points to stays valid.
TEST_P(ReadingTest, ViewsOutliveTheirSessionWithoutHarm) {
  StartRegistry();
  const pid_t executor = StartExecutor("e1", {}, GetParam());
  Client client = Connect();
  TensorView closed, killed;
  const Array x = Array::Random(DType::kF32, {kMiB}, 7);
  {
    ASSERT_OK_AND(Session session, client.Open());
    ASSERT_OK_AND(Tensor t, session.Put(x.view()));
    ASSERT_OK_AND(closed, session.View(t));
    ASSERT_OK(session.Close());
  }
  EXPECT_EQ(closed.bytes().size(), x.bytes().size());
  EXPECT_TRUE(Same(closed.bytes(), x.bytes()));
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Tensor t, session.Put(x.view()));
  ASSERT_OK_AND(killed, session.View(t));
  Kill(executor);
  EXPECT_EQ(session.View(t).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Same(killed.bytes(), x.bytes()));
}

// The sanitizers do not support the emulator's fibers.
const std::vector<const char*> kDevices =
    jit::kSanitized ? std::vector{"cpu"} : std::vector{"cpu", "emu:0"};
INSTANTIATE_TEST_SUITE_P(Devices, ReadingTest, ::testing::ValuesIn(kDevices),
                         [](const auto& info) { return std::string(info.param).substr(0, 3); });

}  // namespace
}  // namespace opwire::client
