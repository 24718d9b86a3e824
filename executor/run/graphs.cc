// Splits steps into segments and captures them, and loops that the device runs.
#include "executor/run/graphs.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "ir/wire/clock.h"

namespace opwire::executor {
namespace {

constexpr uint64_t kMostNanos = 1'000'000;  // of a segment, by the estimated cost of its steps
constexpr double kLoopNanos = 2'000'000;    // of iterations that the device runs without the host
constexpr Nanos kMostLoopNanos =
    8 * kMillisecond;  // the limit of one replay, however long an iteration takes
constexpr int64_t kFirstIterations = 16;          // if the time of one is not known
constexpr int64_t kFewestIterations = 4;          // a loop with fewer is not worth a capture
constexpr double kShortestIterationNanos = 1000;  // a lower bound for measured times
constexpr double kLongIterationNanos =
    500'000;                     // for longer iterations the time of the host does not matter
constexpr int kOftenPassed = 3;  // a branch that took only one way so far is probably predictable
constexpr int kLongRounds =
    3;  // after that many in a row the loop is slow; a single one may have been delayed

Status NotHere() { return Unimplemented("the device makes no such loop"); }

}  // namespace

Graphs::Graphs(Device& device, const Instance& instance, bool ran)
    : device_(device), instance_(instance) {
  uint64_t takes = 0;
  for (uint32_t i = 0; i < instance.steps().size(); ++i) {
    const Step& step = instance.steps()[i];
    const uint32_t cost = step.cost_ns;
    if (segments_.empty() || takes + cost > kMostNanos || !step.captures ||
        !segments_.back().captures) {
      segments_.push_back({i, i, step.captures, ran, std::nullopt});
      takes = 0;
    }
    takes += cost;
    segments_.back().end = i + 1;
    segment_of_.push_back(static_cast<uint32_t>(segments_.size() - 1));
  }
  if (!device.loops()) return;
  FindLoops();
  FindChoices();
}

Graphs::~Graphs() {
  for (const Segment& s : segments_) {
    if (s.graph) device_.DestroyGraph(*s.graph);
  }
  for (const Choice& c : choices_) {
    if (c.graph) device_.DestroyGraph(*c.graph);
  }
  for (const DeviceLoop& l : loops_) {
    if (l.graph) device_.DestroyGraph(*l.graph);
    if (l.state) device_.Free(l.state);
  }
  if (emitted_) device_.Free(emitted_);
}

bool Graphs::CallAll(const Segment& s, Call call) {
  bool called = true;
  for (uint32_t i = s.begin; i < s.end && called; ++i) called = call(i) == OPW_OK;
  return called;
}

Status Graphs::Run(uint32_t step, Call call) {
  Segment& s = segments_[SegmentAt(step)];
  if (s.graph && s.bindings == instance_.bindings()) return device_.Replay(*s.graph, 0);
  Status status = s.graph ? Update(s, call) : CaptureSegment(s, call);
  if (status.ok()) status = device_.Replay(*s.graph, 0);
  usable_ = status.ok();
  return status;
}

Status Graphs::CaptureSegment(Segment& s, Call call) {
  OPWIRE_RETURN_IF_ERROR(device_.BeginCapture(0));
  const bool called = CallAll(s, call);
  OPWIRE_ASSIGN_OR_RETURN(s.graph, device_.EndCapture(0));
  s.bindings = instance_.bindings();
  return called ? absl::OkStatus() : Internal("a step could not be captured");
}

Status Graphs::Update(Segment& s, Call call) {
  OPWIRE_RETURN_IF_ERROR(device_.BeginUpdate(*s.graph));
  const bool called = CallAll(s, call);
  if (device_.EndUpdate() && called) {
    s.bindings = instance_.bindings();
    return absl::OkStatus();
  }
  // An earlier graph may still run.
  OPWIRE_RETURN_IF_ERROR(device_.Synchronize());
  device_.DestroyGraph(*s.graph);
  s.graph.reset();
  return CaptureSegment(s, call);
}

StatusOr<void*> Graphs::PlaceForEmitted(int64_t bytes) {
  if (bytes > emitted_bytes_ || !emitted_) {
    if (emitted_) device_.Free(emitted_);
    emitted_ = nullptr;
    OPWIRE_ASSIGN_OR_RETURN(emitted_,
                            device_.Allocate(std::max<int64_t>(1, bytes), MemoryKind::kPinnedHost));
    emitted_bytes_ = bytes;
  }
  return emitted_;
}

// ---- Loops

void Graphs::FindLoops() {
  const std::span<const Step> steps = instance_.steps();
  for (uint32_t next = 0; next < steps.size(); ++next) {
    if (steps[next].kind != StepKind::kNext) continue;
    DeviceLoop loop{.head = steps[next].control().target, .next = next};
    const auto is_iteration = [&](const Step& s) {
      return s.kind == StepKind::kIteration && s.control().loop == steps[next].control().loop;
    };
    loop.iteration = static_cast<uint32_t>(
        std::find_if(steps.begin() + loop.head, steps.begin() + next, is_iteration) -
        steps.begin());
    int branches = 0;
    bool plain = IsPlain(loop.iteration + 1, next, branches);
    if (loop.iteration >
        loop.head) {  // of a while: its condition ends with the branch that leaves the loop
      const Step& leave = steps[loop.iteration - 1];
      loop.condition = leave.call.operands;
      plain = plain && leave.kind == StepKind::kBranch &&
              IsPlain(loop.head, loop.iteration - 1, branches);
    }
    if (plain && (loop.condition || branches > 0)) loops_.push_back(loop);
  }
}

bool Graphs::IsPlain(uint32_t begin, uint32_t end, int& branches) const {
  for (uint32_t i = begin; i < end; ++i) {
    const Step& s = instance_.steps()[i];
    const bool jumps = s.kind == StepKind::kBranch || s.kind == StepKind::kJump;
    branches += s.kind == StepKind::kBranch;
    if (jumps ? s.control().target > end : s.kind != StepKind::kCall || !s.captures) return false;
  }
  return true;
}

size_t Graphs::FindLoop(uint32_t iteration) const {
  return static_cast<size_t>(std::ranges::find(loops_, iteration, &DeviceLoop::iteration) -
                             loops_.begin());
}

// The first call of a kernel compiles and measures it, which is not possible in a capture.
bool Graphs::AllRan(uint32_t begin, uint32_t end) const {
  for (uint32_t i = begin; i < end; i = EndOf(i)) {
    if (instance_.steps()[i].kind == StepKind::kCall && !segments_[SegmentAt(i)].ran) return false;
  }
  return true;
}

bool Graphs::LoopsAt(const Cursor& cursor) const {
  const size_t found = FindLoop(cursor.at());
  if (found == loops_.size() || !usable_) return false;
  const DeviceLoop& loop = loops_[found];
  const Step& iteration = instance_.steps()[loop.iteration];
  return loop.usable && loop.long_rounds < kLongRounds &&
         cursor.IterationsAllowed(iteration) - cursor.IterationsDone(iteration) >=
             kFewestIterations &&
         AllRan(loop.head, loop.next);
}

Status Graphs::CaptureSteps(uint32_t begin, uint32_t end, Call call) {
  LoopCapture& loops = *device_.loops();
  for (uint32_t i = begin; i < end; ++i) {
    const Step& s = instance_.steps()[i];
    if (s.kind == StepKind::kCall) {
      if (call(i) != OPW_OK) return NotHere();
      continue;
    }
    // The target of a branch is its else part. A jump before it leads to the end of that part.
    const uint32_t otherwise = s.control().target,
                   behind = instance_.steps()[otherwise - 1].control().target;
    OPWIRE_RETURN_IF_ERROR(
        loops.BeginBranch(static_cast<const uint8_t*>(s.call.operands->data), otherwise < behind));
    OPWIRE_RETURN_IF_ERROR(CaptureSteps(i + 1, otherwise - 1, call));
    if (otherwise < behind) {
      OPWIRE_RETURN_IF_ERROR(loops.Else());
      OPWIRE_RETURN_IF_ERROR(CaptureSteps(otherwise, behind, call));
    }
    OPWIRE_RETURN_IF_ERROR(loops.EndBranch());
    i = behind - 1;
  }
  return absl::OkStatus();
}

Status Graphs::CaptureLoop(DeviceLoop& loop, Call call) {
  if (!loop.state) {
    OPWIRE_ASSIGN_OR_RETURN(void* const memory,
                            device_.Allocate(sizeof(LoopState), MemoryKind::kDevice));
    loop.state = static_cast<LoopState*>(memory);
  }
  if (loop.graph) {
    device_.DestroyGraph(*loop.graph);
    loop.graph.reset();
  }
  LoopCapture& loops = *device_.loops();
  const opw_tensor* const number = instance_.steps()[loop.iteration].call.results;
  OPWIRE_RETURN_IF_ERROR(loops.BeginLoop(
      {.state = loop.state,
       .number = number ? static_cast<int64_t*>(number->data) : nullptr,
       .condition = loop.condition ? static_cast<const uint8_t*>(loop.condition->data) : nullptr}));
  // In a graph an iteration begins after the kIteration step. A while's condition comes after its
  // iteration, because the iteration writes the condition's parameters.
  Status captured = CaptureSteps(loop.iteration + 1, loop.next, call);
  if (captured.ok() && loop.condition) {
    loops.Part();
    captured = CaptureSteps(loop.head, loop.iteration - 1, call);
  }
  if (!captured.ok()) {
    loops.AbandonLoop();
    return captured;
  }
  OPWIRE_ASSIGN_OR_RETURN(loop.graph, loops.EndLoop());
  loop.bindings = instance_.bindings();
  return absl::OkStatus();
}

// ---- Branches

void Graphs::FindChoices() {
  const std::span<const Step> steps = instance_.steps();
  for (uint32_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != StepKind::kBranch) continue;
    // An else part begins after a jump over it. The branch that leaves a while has none.
    const uint32_t otherwise = steps[i].control().target;
    if (otherwise <= i + 1 || otherwise > steps.size() ||
        steps[otherwise - 1].kind != StepKind::kJump)
      continue;
    const uint32_t end = steps[otherwise - 1].control().target;
    int branches = 0;
    uint64_t takes = 0;
    for (uint32_t k = i; k < end; ++k) takes += steps[k].cost_ns;
    if (takes > kMostNanos || !IsPlain(i, end, branches)) continue;
    choices_.push_back({i, end});
    i = end - 1;
  }
}

bool Graphs::DecidesAt(uint32_t step) {
  const auto found = std::ranges::lower_bound(choices_, step, {}, &Choice::begin);
  if (!usable_ || found == choices_.end() || found->begin != step || !found->usable) return false;
  return AllRan(found->begin, found->end) || ++found->passed > kOftenPassed;
}

StatusOr<uint32_t> Graphs::Decide(uint32_t step, Call call) {
  Choice& c = *std::ranges::lower_bound(choices_, step, {}, &Choice::begin);
  if (!c.graph || c.bindings != instance_.bindings()) {
    if (c.graph) {
      OPWIRE_RETURN_IF_ERROR(device_.Synchronize());  // it may still run
      device_.DestroyGraph(*c.graph);
      c.graph.reset();
    }
    LoopCapture& loops = *device_.loops();
    const auto capture = [&]() -> StatusOr<GraphId> {
      OPWIRE_RETURN_IF_ERROR(loops.BeginOnce());
      if (Status captured = CaptureSteps(c.begin, c.end, call); !captured.ok()) {
        loops.AbandonLoop();
        return captured;
      }
      return loops.EndOnce();
    };
    const StatusOr<GraphId> graph = capture();
    if (!graph.ok()) {
      c.usable = false;
      return NotHere();
    }
    c.graph = *graph;
    c.bindings = instance_.bindings();
  }
  OPWIRE_RETURN_IF_ERROR(device_.Replay(*c.graph, 0));
  return c.end;
}

// Iterations may take longer than earlier ones did.
Status Graphs::WaitForIterations(LoopState& state) {
  OPWIRE_ASSIGN_OR_RETURN(const EventId done, device_.Record(0));
  const Nanos begun = MonotonicNow();
  while (!device_.Done(done)) {
    if (device_.stop().load(std::memory_order_relaxed) == 0 &&
        MonotonicNow() - begun < kMostLoopNanos) {
      sched_yield();
      continue;
    }
    OPWIRE_RETURN_IF_ERROR(device_.loops()->EndEarly(state));
    break;
  }
  return device_.Synchronize();
}

Status Graphs::Loop(Cursor& cursor, Call call, void* pinned) {
  DeviceLoop& loop = loops_[FindLoop(cursor.at())];
  const Step& iteration = instance_.steps()[loop.iteration];
  if (!loop.graph || loop.bindings != instance_.bindings()) {
    if (const Status captured = CaptureLoop(loop, call); !captured.ok()) {
      loop.usable = false;
      return NotHere();
    }
    OPWIRE_RETURN_IF_ERROR(
        device_
            .Synchronize());  // so that the time of iterations excludes earlier work on the stream
  }
  const int64_t done = cursor.IterationsDone(iteration);
  const int64_t iterations =
      loop.iteration_ns > 0
          ? std::max<int64_t>(kFewestIterations, std::llround(kLoopNanos / loop.iteration_ns))
          : kFirstIterations;
  // The source is not pinned memory, so the device takes the state before it may change.
  const LoopState begin{done,
                        done + std::min(iterations, cursor.IterationsAllowed(iteration) - done), 1};
  OPWIRE_RETURN_IF_ERROR(device_.Copy(loop.state, &begin, sizeof begin, 0));
  if (iteration.call.results)
    OPWIRE_RETURN_IF_ERROR(
        device_.Copy(iteration.call.results->data, &begin.done, sizeof begin.done, 0));
  const Nanos begun = MonotonicNow();
  OPWIRE_RETURN_IF_ERROR(device_.Replay(*loop.graph, 0));
  OPWIRE_RETURN_IF_ERROR(device_.Copy(pinned, loop.state, sizeof(LoopState), 0));
  OPWIRE_RETURN_IF_ERROR(WaitForIterations(*loop.state));
  LoopState end;
  std::memcpy(&end, pinned, sizeof end);
  loop.iteration_ns = std::max(kShortestIterationNanos,
                               static_cast<double>(MonotonicNow() - begun) /
                                   static_cast<double>(std::max<int64_t>(1, end.done - done)));
  loop.long_rounds = loop.iteration_ns > kLongIterationNanos ? loop.long_rounds + 1 : 0;
  // If the condition of a while still holds, the next iteration follows. The kIteration step of a
  // repeat detects the last iteration.
  const bool leaves = loop.condition && end.holds == 0;
  cursor.SkipIterations(
      iteration, end.done,
      leaves ? instance_.steps()[loop.iteration - 1].control().target : loop.iteration,
      loop.next + 1);
  return absl::OkStatus();
}

}  // namespace opwire::executor
