// An instance's steps as graphs of the device: captured when they have run once, replayed from then
// on, with what was bound anew put into them.
//
// Steps lie in segments of about a millisecond at the most, so that a run can stop, or be put
// aside, between two of them. A step that cannot be captured is a segment by itself and is called.
//
// Loops whose way the host would have to read from the device in every trip are made by the device
// alone, where it can (loop_capture.h): a `while`, and a `repeat` with an `if` in it, without loops
// and values sent in their trips. Some milliseconds of trips are one replay. Other loops gain
// nothing by that: on an H200 a trip that the device begins by itself takes some 3 us, and an `if`
// there 5, where the host replays one graph after the other without a gap. An `if` of a few
// milliseconds at the most, without loops and values sent in it, is one replay too, so that nobody
// waits to read its condition.
#ifndef OPWIRE_EXECUTOR_RUN_GRAPHS_H_
#define OPWIRE_EXECUTOR_RUN_GRAPHS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "executor/plan/cursor.h"
#include "executor/plan/instance.h"
#include "kernels/device/device.h"

namespace opwire {

class Graphs {
 public:
  // Calls a step's kernel: OPW_OK, or else.
  using Call = absl::FunctionRef<int(uint32_t step)>;

  // Of a device that has graphs, which outlives this, as the instance does. `ran`: all steps have
  // run before; else a segment is captured when it comes round again.
  Graphs(Device& device, const Instance& instance, bool ran);
  ~Graphs();
  Graphs(const Graphs&) = delete;

  // The step after the segment that `step` is of.
  uint32_t EndOf(uint32_t step) const { return segments_[SegmentAt(step)].end; }
  // Whether a segment begins there that is to be run as a whole.
  bool BeginsAt(uint32_t step) {
    Segment& s = segments_[SegmentAt(step)];
    return usable_ && s.captures && s.begin == step && std::exchange(s.ran, true);
  }
  // Puts that segment on the stream. Not OK: nothing was put there, and the step is to be called;
  // all further ones too, but where only this one cannot be captured. REQUIRES: BeginsAt(step).
  Status Run(uint32_t step, Call call);

  // Whether the device may make the next trips of the loop whose trip step the cursor is at, and
  // there are enough of them.
  bool LoopsAt(const Cursor& cursor) const;
  // Has it make some milliseconds of them, waits for them, and moves the cursor on: whatever trips
  // take, and as soon as the device's stop word is set, no more begin after some more. `pinned`:
  // sizeof(LoopState) of host memory. UNIMPLEMENTED: it cannot after all, nothing was done, and it
  // is not asked again. Any other failure is the device's. REQUIRES: LoopsAt(cursor).
  Status Loop(Cursor& cursor, Call call, void* pinned);

  // Whether the device may decide the branch at this step by itself, and do what comes of it.
  bool DecidesAt(uint32_t step);
  // Puts that on the stream; the step behind it. UNIMPLEMENTED: it cannot after all, nothing was
  // done, and it is not asked again. Any other failure is the device's. REQUIRES: DecidesAt(step).
  StatusOr<uint32_t> Decide(uint32_t step, Call call);

  // So much of the host's memory for a value that the run emits: one place, which is the same as
  // long as none larger is asked for.
  StatusOr<void*> PlaceForEmitted(int64_t bytes);

 private:
  struct Segment {
    uint32_t begin, end;
    bool captures;
    bool ran;
    std::optional<GraphId> graph;
    uint64_t bindings = 0;  // of the instance, that the graph has
  };
  struct DeviceLoop {
    uint32_t head, trip, next;    // steps: the condition's first, or the trip; the trip; the last
    const opw_tensor* condition;  // null: a repeat
    bool usable = true;
    double trip_ns = 0;   // what one took; 0: not known
    int long_rounds = 0;  // in a row, whose trips were long
    std::optional<GraphId> graph;
    uint64_t bindings = 0;
    LoopState* state = nullptr;  // in the device's memory
  };

  // An `if` that is part of no other.
  struct Choice {
    uint32_t begin, end;  // steps: its branch, and what is behind it
    bool usable = true;
    int passed = 0;  // how often it was met
    std::optional<GraphId> graph;
    uint64_t bindings = 0;
  };

  size_t SegmentAt(uint32_t step) const { return segment_of_[step]; }
  // By its trip step, among loops_; their number: the device does not make it.
  size_t FindLoop(uint32_t trip) const;
  void FindLoops();
  void FindChoices();
  // Whether all of [begin, end) may be part of a trip: calls that are captured, and branches.
  // `branches` counts those.
  bool IsPlain(uint32_t begin, uint32_t end, int& branches) const;
  bool AllRan(uint32_t begin, uint32_t end) const;  // of the calls there
  Status CaptureSegment(Segment& s, Call call);
  Status Update(Segment& s, Call call);
  Status CaptureLoop(DeviceLoop& loop, Call call);
  // Until the device has done all that was put on the stream, the trips of the loop with this state
  // among it.
  Status WaitForTrips(LoopState& state);
  Status CaptureSteps(uint32_t begin, uint32_t end, Call call);
  bool CallAll(const Segment& s, Call call);

  Device& device_;
  const Instance& instance_;
  std::vector<Segment> segments_;
  std::vector<uint32_t> segment_of_;  // by step
  std::vector<DeviceLoop> loops_;
  std::vector<Choice> choices_;  // in the steps' order
  bool usable_ = true;
  void* emitted_ = nullptr;  // pinned
  int64_t emitted_bytes_ = 0;
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_RUN_GRAPHS_H_
