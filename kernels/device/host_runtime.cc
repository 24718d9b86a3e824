// parallel_for over OpenMP, and the flags of a run. The calling thread does all work without
// OpenMP, and under ThreadSanitizer, which does not see how OpenMP's threads synchronise.
//
// All threads of a team end a region together. If another process keeps one of the team's cores
// busy, the thread there waits for its time slice, some milliseconds later, though no work is left.
// The calling thread itself may wait in the same way, for another thread that was woken on its
// core. Such regions are detected, and for a while the calling thread does all work.
#include "kernels/device/host_runtime.h"

#if defined(_OPENMP) && !defined(__SANITIZE_THREAD__)
#define OPWIRE_TEAM 1
#include <omp.h>
#endif
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace opwire {
namespace {

// The time between the first and the last thread's end may count as a wait for a time slice.
// It does if it is at least this long, and at least this many times as long as a range.
constexpr int64_t kTurnNanos = 500'000;
constexpr int64_t kTimesARange = 4;
// How long the caller then does all work: twice as long each time, and half as long again after
// this many times that period without such a wait.
constexpr int64_t kLeastAloneNanos = 10'000'000, kMostAloneNanos = 80'000'000, kTimesAlone = 4;
// If a region takes longer than this, the team does the rest even then: waiting for a time slice
// takes about as long.
constexpr int64_t kMostOfARegionNanos = 4'000'000;

thread_local int together = 0;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

HostRuntime::HostRuntime(int threads, std::vector<int> pinned) : pinned_(std::move(pinned)) {
  abi_version = OPW_ABI_VERSION;
  this->threads = threads;
  parallel_for = ParallelFor;
  out_of_range = OutOfRange;
  raise = Raise;
}

// libgomp keeps one team for each thread that opens regions, so a team is bound when that thread
// first needs one.
void HostRuntime::BindTeam() {
#ifdef OPWIRE_TEAM
  static thread_local const HostRuntime* bound = nullptr;
  if (pinned_.empty() || bound == this) return;
  bound = this;
#pragma omp parallel num_threads(threads)
  {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(pinned_[omp_get_thread_num() % pinned_.size()], &set);
    sched_setaffinity(0, sizeof(set), &set);  // a refusal costs speed, nothing else
  }
#endif
}

void HostRuntime::ParallelFor(opw_runtime* r, int64_t n, int64_t grain, opw_body body,
                              void* context) {
  HostRuntime* const self = static_cast<HostRuntime*>(r);
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  if (n <= grain) {
    if (self->stop_.load(std::memory_order_relaxed) == 0) body(context, 0, n);
    return;
  }
  const int64_t ranges = (n - 1) / grain + 1;
  const auto run = [&](int64_t i) {
    if (self->stop_.load(std::memory_order_relaxed) == 0)
      body(context, i * grain, std::min(n, (i + 1) * grain));
  };
  int64_t first = 0;  // the first range that is left
#ifdef OPWIRE_TEAM
  if (self->threads > 1) {
    int64_t begun = Now();
    if (begun < self->alone_until_ && together == 0) {
      const int64_t until = begun + kMostOfARegionNanos;
      while (first < ranges && begun < until) run(first++), begun = Now();
      if (first == ranges) return;
    }
    self->BindTeam();
    std::atomic<int64_t> next{first};
    int64_t a_range = std::numeric_limits<int64_t>::max(), earliest = a_range, latest = 0;
#pragma omp parallel num_threads(self->threads) reduction(min                                \
                                                          : a_range, earliest) reduction(max \
                                                                                         : latest)
    {
      int64_t did = 0;
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < ranges; ++did) run(i);
      earliest = latest = Now();
      if (did > 0) a_range = (latest - begun) / did;
    }
    self->NoteRegion(a_range, latest - earliest, latest);
    return;
  }
#endif
  while (first < ranges) run(first++);
}

HostRuntime::Together::Together() { ++together; }
HostRuntime::Together::~Together() { --together; }

void HostRuntime::NoteRegion(int64_t a_range, int64_t waited, int64_t now) {
  if (waited < kTurnNanos || waited / kTimesARange < a_range) {
    if (now - noted_ > kTimesAlone * alone_) alone_ /= 2, noted_ = now;
    return;
  }
  alone_ = std::clamp(2 * alone_, kLeastAloneNanos, kMostAloneNanos);
  alone_until_ = noted_ = now + alone_;
}

void HostRuntime::OutOfRange(opw_runtime* r, int operand, int64_t position) {
  HostRuntime* const self = static_cast<HostRuntime*>(r);
  const uint64_t key = uint64_t{self->step_.load(std::memory_order_relaxed)} << kStepShift |
                       static_cast<uint64_t>(position) << 8 | static_cast<uint8_t>(operand);
  uint64_t seen = self->out_of_range_.load(std::memory_order_relaxed);
  while (key < seen &&
         !self->out_of_range_.compare_exchange_weak(seen, key, std::memory_order_relaxed)) {
  }
}

void HostRuntime::Raise(opw_runtime* r, uint32_t flags) {
  static_cast<HostRuntime*>(r)->raised_.fetch_or(flags, std::memory_order_relaxed);
}

void SetOutOfRange(uint64_t key, RunFlags& flags) {
  flags.out_of_range_step = static_cast<uint32_t>(key >> kStepShift);
  flags.out_of_range_operand = static_cast<int>(key & 0xff);
  flags.out_of_range_position =
      static_cast<int64_t>(key << (64 - kStepShift) >> (64 - kStepShift + 8));
}

RunFlags HostRuntime::TakeFlags() {
  RunFlags flags;
  // Plain loads first: in the common case nothing is raised and no cache line is written.
  if (raised_.load(std::memory_order_relaxed) != 0)
    flags.raised = raised_.exchange(0, std::memory_order_relaxed);
  if (out_of_range_.load(std::memory_order_relaxed) != kNone) {
    const uint64_t key = out_of_range_.exchange(kNone, std::memory_order_relaxed);
    SetOutOfRange(key, flags);
  }
  return flags;
}

}  // namespace opwire
