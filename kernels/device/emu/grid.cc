// The scheduler. A fiber starts threads until one waits. A kernel whose threads never wait runs all
// of them on one fiber.
#include "kernels/device/emu/grid.h"

#include <fmt/format.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <boost/context/detail/fcontext.hpp>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace opwire::gpu::emu {
namespace {

namespace context = boost::context::detail;

constexpr size_t kPage = 4096;
constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kStackGuard = 1 << 20;  // below it
constexpr unsigned char kPoison = 0xff;  // initial bytes of shared memory: NaN as a float
constexpr unsigned char kCanary = 0xa5;
constexpr size_t kCanaryBytes =
    1024;  // on both sides of dynamic shared memory, which is aligned to as much

class Fiber {
 public:
  explicit Fiber(void (*body)(context::transfer_t)) : body_(body) {
    stack_ = static_cast<char*>(mmap(nullptr, kStackBytes + kStackGuard, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    mprotect(stack_, kStackGuard, PROT_NONE);
    Reset();
  }
  Fiber(const Fiber&) = delete;

  // Discards its present work.
  void Reset() {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack_ + kStackGuard, kStackBytes);
#endif
    context_ = context::make_fcontext(stack_ + kStackGuard + kStackBytes, kStackBytes, body_);
  }
  // Until it suspends.
  void Resume() { context_ = context::jump_fcontext(context_, nullptr).fctx; }

 private:
  void (*const body_)(context::transfer_t);
  char* stack_;
  context::fcontext_t context_;
};

// Of this process, reused: they are never freed.
struct Pool {
  std::deque<Fiber> fibers;
  std::vector<Fiber*> idle;
  char* shared = nullptr;  // dynamic shared memory ends before a guard page
};

// While one exists, a fault of this thread inside a kernel ends in `jump`. Other faults go to the
// previous handlers.
class CatchFaults {
 public:
  CatchFaults() {
    stack_t stack{};
    if (sigaltstack(nullptr, &stack) == 0 &&
        (stack.ss_flags & SS_DISABLE) != 0) {  // the fiber's own stack may be the full one
      static thread_local std::vector<char> memory(64 << 10);
      stack = {memory.data(), 0, memory.size()};
      sigaltstack(&stack, nullptr);
    }
    struct sigaction action {};
    action.sa_sigaction = Caught;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  ~CatchFaults() {
    for (int i = 0; i < 2; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  CatchFaults(const CatchFaults&) = delete;

  static inline sigjmp_buf jump;
  static inline thread_local bool in_kernel = false;
  static inline const void* address = nullptr;  // of the last fault

 private:
  static void Caught(int signal, siginfo_t* info, void*) {
    if (in_kernel) {
      in_kernel = false;
      address = info->si_addr;
      siglongjmp(jump, 1);
    }
    for (int i = 0; i < 2; ++i) {
      if (kSignals[i] == signal) sigaction(signal, &before_[i], nullptr);  // it comes again
    }
  }

  static constexpr int kSignals[] = {SIGSEGV, SIGBUS};
  static inline struct sigaction before_[2];
};

enum class State : uint8_t { kNew, kReady, kAtBarrier, kInWave, kEnded };

struct Thread {
  opw_emu::Dim3 index;
  State state;
  int source;
  unsigned long long value, result;
  Fiber* fiber;
};

// Lanes of a wave that wait for others.
struct Pending {
  int meeting;
  unsigned long long mask, arrived;
};

// "0-31, 40".
std::string Ranges(const std::vector<Thread>& threads, State state) {
  std::string out;
  for (size_t i = 0; i < threads.size(); ++i) {
    if (threads[i].state != state) continue;
    size_t last = i;
    while (last + 1 < threads.size() && threads[last + 1].state == state) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", i);
    if (last > i) out += fmt::format("-{}", last);
    i = last;
  }
  return out;
}

class Grid {
 public:
  Grid(const Launch& launch, Pool& pool)
      : launch_(launch), pool_(pool), machine_(*launch.unit->machine), wave_(launch.unit->wave) {}

  std::string Run() {
    if (std::string wrong = Prepare(); !wrong.empty()) return wrong;
    running_ = this;
    const CatchFaults faults;
    if (sigsetjmp(CatchFaults::jump, 0) == 0) {
      RunBlocks();
    } else {
      Note(fmt::format("thread {}: memory at {} is not the kernel's", current_,
                       CatchFaults::address));
      Abandon();
    }
    running_ = nullptr;
    return failure_;
  }

 private:
  void RunBlocks() {
    const uint64_t blocks = uint64_t{launch_.grid.x} * launch_.grid.y * launch_.grid.z;
    for (uint64_t i = 0; i < blocks && failure_.empty(); ++i) {
      const uint64_t b = blocks_.empty() ? (backward_ ? blocks - 1 - i : i) : blocks_[i];
      machine_.block = {static_cast<unsigned>(b % launch_.grid.x),
                        static_cast<unsigned>(b / launch_.grid.x % launch_.grid.y),
                        static_cast<unsigned>(b / launch_.grid.x / launch_.grid.y)};
      RunBlock();
    }
  }

  std::string Prepare() {
    const opw_emu::Dim3 block = launch_.block;
    threads_.resize(size_t{block.x} * block.y * block.z);
    for (unsigned i = 0; i < threads_.size(); ++i)
      threads_[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    pending_.resize((threads_.size() + wave_ - 1) / wave_);
    order_.resize(threads_.size());
    std::iota(order_.begin(), order_.end(), 0);
    if (std::string wrong = SetOrder(); !wrong.empty()) return wrong;

    machine_.block_dim = block;
    machine_.grid_dim = launch_.grid;
    machine_.barrier = [](int predicate) { return running_->Barrier(predicate); };
    machine_.meet = [](int meeting, unsigned long long mask, unsigned long long value, int source) {
      return running_->Meet(meeting, mask, value, source);
    };
    machine_.fault = [](const char* what, const char* file, unsigned line, long long value) {
      running_->Fault(what, file, line, value);
    };
    const size_t room = (kMaxShared + 2 * kCanaryBytes + kPage - 1) / kPage * kPage;
    if (!pool_.shared) {
      pool_.shared = static_cast<char*>(
          mmap(nullptr, room + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      mprotect(pool_.shared + room, kPage, PROT_NONE);
    }
    const size_t held = (launch_.shared_bytes + kCanaryBytes - 1) / kCanaryBytes * kCanaryBytes;
    machine_.dynamic_shared =
        reinterpret_cast<unsigned char*>(pool_.shared) + room - kCanaryBytes - held;
    unsigned char* const dynamic_end = machine_.dynamic_shared + launch_.shared_bytes;
    if (launch_.shared_bytes > 0) {
      AddCanary(machine_.dynamic_shared - kCanaryBytes, machine_.dynamic_shared);
      AddCanary(dynamic_end, reinterpret_cast<unsigned char*>(pool_.shared) + room);
    }
    // The rest of the page after the unit's variables is unused.
    unsigned char* const end = launch_.unit->shared_end;
    if (end > launch_.unit->shared)
      AddCanary(end, reinterpret_cast<unsigned char*>(
                         (reinterpret_cast<uintptr_t>(end) + kPage - 1) / kPage * kPage));
    return "";
  }

  std::string SetOrder() {
    const char* const setting = std::getenv("OPWIRE_EMU_ORDER");
    const std::string_view text = setting ? setting : "";
    if (text.empty() || text == "forward") return "";
    if (text == "backward") {
      backward_ = true;
      std::ranges::reverse(order_);
      return "";
    }
    uint64_t seed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc() || end != text.data() + text.size()) {
      return fmt::format("OPWIRE_EMU_ORDER: expected forward, backward or a number, got {}", text);
    }
    std::mt19937_64 random(seed);
    blocks_.resize(size_t{launch_.grid.x} * launch_.grid.y * launch_.grid.z);
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::ranges::shuffle(blocks_, random);
    std::ranges::shuffle(order_, random);
    return "";
  }

  void AddCanary(unsigned char* begin, unsigned char* end) {
    std::fill(begin, end, kCanary);
    canaries_.push_back({begin, end});
  }

  void RunBlock() {
    std::fill(launch_.unit->shared, launch_.unit->shared_end, kPoison);
    std::fill_n(machine_.dynamic_shared, launch_.shared_bytes, kPoison);
    for (Thread& t : threads_) t.state = State::kNew;
    next_ = ended_ = at_barrier_ = predicates_ = 0;
    while (ended_ < threads_.size() && failure_.empty()) {
      if (next_ < threads_.size()) {
        fiber_ = Idle();
      } else if (!ready_.empty()) {
        fiber_ = threads_[ready_.front()].fiber;
        ready_.pop_front();
      } else {
        NoteStuck();
        break;
      }
      CatchFaults::in_kernel = true;
      fiber_->Resume();
      CatchFaults::in_kernel = false;
    }
    for (const auto& [begin, end] : canaries_) {
      const auto* const at = std::find_if(begin, end, [](unsigned char c) { return c != kCanary; });
      if (at != end && failure_.empty())
        Note(fmt::format("shared memory was written {} bytes beyond its end", at - begin + 1));
    }
    if (!failure_.empty()) Abandon();
  }

  Fiber* Idle() {
    if (pool_.idle.empty()) pool_.idle.push_back(&pool_.fibers.emplace_back(Body));
    Fiber* const fiber = pool_.idle.back();
    pool_.idle.pop_back();
    return fiber;
  }

  // Discards all suspended threads.
  void Abandon() {
    ready_.clear();
    for (std::vector<Pending>& p : pending_) p.clear();
    pool_.idle.clear();
    for (Fiber& f : pool_.fibers) {
      f.Reset();
      pool_.idle.push_back(&f);
    }
  }

  void Note(const std::string& what) {
    const opw_emu::Dim3& b = machine_.block;
    failure_ = fmt::format("{}: block ({}, {}, {}): {}", launch_.unit->name, b.x, b.y, b.z, what);
  }

  void NoteStuck() {
    std::string what;
    const auto add = [&](State state, std::string_view how) {
      const std::string ranges = Ranges(threads_, state);
      if (!ranges.empty())
        what += fmt::format("{}threads {} {}", what.empty() ? "" : "; ", ranges, how);
    };
    add(State::kAtBarrier, "wait at a barrier");
    add(State::kInWave, "wait in an operation of their wave");
    add(State::kEnded, "have ended");
    Note("threads diverge: " + what);
  }

  // ---- On fibers

  static void Body(context::transfer_t scheduler) {
    scheduler_ = scheduler.fctx;
    for (;;) {
      running_->StartThreads();
      Suspend();
    }
  }

  // To the scheduler, until it resumes this fiber.
  static void Suspend() { scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx; }

  void StartThreads() {
    Fiber* const self = fiber_;
    while (next_ < threads_.size()) {
      const unsigned id = order_[next_++];
      threads_[id].fiber = self;
      Enter(id);
      launch_.kernel->call(launch_.params);
      threads_[current_].state = State::kEnded;
      ++ended_;
    }
    pool_.idle.push_back(self);
  }

  void Enter(unsigned id) {
    current_ = id;
    threads_[id].state = State::kReady;
    machine_.thread = threads_[id].index;
    machine_.lane = id % wave_;
  }

  void WaitAs(State state) {
    const unsigned id = current_;
    threads_[id].state = state;
    Suspend();
    Enter(id);
  }

  int Barrier(int predicate) {
    predicates_ += predicate != 0;
    if (++at_barrier_ == threads_.size()) {
      for (const unsigned id : order_) {
        threads_[id].result = predicates_;
        ready_.push_back(id);
      }
      at_barrier_ = predicates_ = 0;
    }
    const unsigned id = current_;
    WaitAs(State::kAtBarrier);
    return static_cast<int>(threads_[id].result);
  }

  unsigned long long Meet(int meeting, unsigned long long mask, unsigned long long value,
                          int source) {
    const unsigned id = current_, lane = id % wave_, first = id - lane;
    const size_t lanes = std::min<size_t>(wave_, threads_.size() - first);
    if (lanes < 64) mask &= (1ull << lanes) - 1;
    if ((mask >> lane & 1) == 0)
      Fault("a wave operation whose mask lacks the lane that calls it", "", 0, 0);
    Thread& self = threads_[id];
    self.value = value;
    self.source = source;
    std::vector<Pending>& pending = pending_[first / wave_];
    auto p = std::ranges::find_if(pending, [&](const Pending& other) {
      return other.meeting == meeting && other.mask == mask;
    });
    if (p == pending.end()) p = pending.insert(p, {meeting, mask, 0});
    p->arrived |= 1ull << lane;
    if (p->arrived != mask) {
      WaitAs(State::kInWave);
      return threads_[id].result;
    }
    pending.erase(p);
    unsigned long long ballot = 0;
    for (size_t i = 0; i < lanes; ++i)
      ballot |= (mask >> i & 1 & (threads_[first + i].value != 0)) << i;
    for (unsigned other = first; other < first + lanes; ++other) {
      if ((mask >> (other - first) & 1) == 0) continue;
      Thread& t = threads_[other];
      const bool there =
          t.source >= 0 && t.source < static_cast<int>(lanes) && (mask >> t.source & 1) != 0;
      t.result = meeting == opw_emu::kBallot ? ballot
                 : there ? threads_[first + static_cast<unsigned>(t.source)].value
                         : ~0ull;
      if (other != id) ready_.push_back(other);
    }
    return self.result;
  }

  void Fault(const char* what, const char* file, unsigned line, long long value) {
    Note(line > 0 ? fmt::format("thread {}: {} ({}:{}, {})", current_, what, file, line, value)
                  : fmt::format("thread {}: {}", current_, what));
    Suspend();  // for ever
  }

  const Launch& launch_;
  Pool& pool_;
  opw_emu::Machine& machine_;
  const unsigned wave_;
  bool backward_ = false;
  std::vector<uint32_t> blocks_;  // their order, if it is shuffled
  std::vector<unsigned> order_;   // of a block's threads
  std::vector<std::pair<unsigned char*, unsigned char*>> canaries_;
  std::vector<Thread> threads_;
  std::deque<unsigned> ready_;
  std::vector<std::vector<Pending>> pending_;  // by wave
  Fiber* fiber_ = nullptr;                     // that runs,
  unsigned current_ = 0;                       // and its thread
  size_t next_ = 0;                            // to be started, in order_
  size_t ended_ = 0, at_barrier_ = 0, predicates_ = 0;
  std::string failure_;

  static Grid* running_;
  static context::fcontext_t scheduler_;
};

Grid* Grid::running_ = nullptr;
context::fcontext_t Grid::scheduler_ = nullptr;

}  // namespace

std::string Run(const Launch& launch) {
  static std::mutex mutex;
  static Pool* const pool = new Pool;
  std::lock_guard lock(mutex);
  return Grid(launch, *pool).Run();
}

}  // namespace opwire::gpu::emu
