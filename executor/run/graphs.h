// An instance's steps as graphs of the device. They are captured after they have run once, and
// replayed afterwards. Addresses that were bound again are updated in the graphs.
//
// Segments are at most about a millisecond long, so that a run can stop, or be suspended, between
// two of them. A step that cannot be captured is a segment of one step and is called.
//
// The device runs some loops without the host, if it can (loop_capture.h). These are loops in which
// the host would have to read a value from the device in every iteration: a `while`, and a `repeat`
// with an `if` in it. Their iterations must have no loops and no sent values. One replay runs some
// milliseconds of iterations. Other loops gain nothing by that. On an H200 an iteration that the
// device begins takes about 3 us, and an `if` in it 5 us. The host replays one graph after the
// other without a gap. An `if` of at most a few milliseconds, without loops and sent values, is one
// replay too, so that no thread waits to read its condition.
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

namespace opwire::executor {

class Graphs {
 public:
  // Calls a step's kernel. Returns OPW_OK or an error.
  using Call = absl::FunctionRef<int(uint32_t step)>;

  // REQUIRES: the device has graphs. Device and instance outlive this object. `ran`: all steps have
  // run before. If not, a segment is captured at its second run.
  Graphs(Device& device, const Instance& instance, bool ran);
  ~Graphs();
  Graphs(const Graphs&) = delete;

  // The step after the segment of `step`.
  uint32_t EndOf(uint32_t step) const { return segments_[SegmentAt(step)].end; }
  // Whether a segment begins there that can run as a whole.
  bool BeginsAt(uint32_t step) {
    Segment& s = segments_[SegmentAt(step)];
    return usable_ && s.captures && s.begin == step && std::exchange(s.ran, true);
  }
  // Puts that segment on the stream. If not OK, nothing was put there, and the caller must call the
  // step. It must call all later steps, too, unless only this one cannot be captured. REQUIRES:
  // BeginsAt(step).
  Status Run(uint32_t step, Call call);

  // Whether the cursor is at the kIteration step of a loop that the device can run, and enough
  // iterations are left.
  bool LoopsAt(const Cursor& cursor) const;
  // Runs some milliseconds of iterations on the device, waits for them, and moves the cursor. A
  // limit on time ends them early, however long an iteration takes. So does the device's stop word,
  // a few iterations after it is set. `pinned`: sizeof(LoopState) of host memory. UNIMPLEMENTED:
  // the device cannot run the loop. Then nothing was done, and LoopsAt is false afterwards. Any
  // other failure is the device's. REQUIRES: LoopsAt(cursor).
  Status Loop(Cursor& cursor, Call call, void* pinned);

  // Whether the device can decide the branch at this step without the host, and run the steps that
  // follow from it.
  bool DecidesAt(uint32_t step);
  // Puts the branch and its steps on the stream. Returns the step after them. UNIMPLEMENTED: the
  // device cannot run them. Then nothing was done, and DecidesAt is false afterwards. Any other
  // failure is the device's. REQUIRES: DecidesAt(step).
  StatusOr<uint32_t> Decide(uint32_t step, Call call);

  // Returns `bytes` of host memory for a value that the run emits. The place is always the same,
  // until a larger one is needed.
  StatusOr<void*> PlaceForEmitted(int64_t bytes);

 private:
  struct Segment {
    uint32_t begin, end;
    bool captures;
    bool ran;
    std::optional<GraphId> graph;
    uint64_t bindings = 0;  // the instance's bindings in the graph
  };
  struct DeviceLoop {
    uint32_t head, iteration,
        next;  // steps: the first of the condition, or `iteration`; kIteration; kNext
    const opw_tensor* condition;  // null: a repeat
    bool usable = true;
    double iteration_ns = 0;  // time of one iteration; 0: not known
    int long_rounds = 0;      // consecutive replays whose iterations were long
    std::optional<GraphId> graph;
    uint64_t bindings = 0;
    LoopState* state = nullptr;  // in the device's memory
  };

  // An `if` that is not part of another.
  struct Choice {
    uint32_t begin, end;  // steps: its branch, and the first after it
    bool usable = true;
    int passed = 0;  // how often the run came to it
    std::optional<GraphId> graph;
    uint64_t bindings = 0;
  };

  size_t SegmentAt(uint32_t step) const { return segment_of_[step]; }
  // By its kIteration step, the index in loops_. loops_.size(): the device does not run it.
  size_t FindLoop(uint32_t iteration) const;
  void FindLoops();
  void FindChoices();
  // Whether all of [begin, end) may be part of an iteration: calls that are captured, and branches.
  // Adds the number of branches to `branches`.
  bool IsPlain(uint32_t begin, uint32_t end, int& branches) const;
  bool AllRan(uint32_t begin, uint32_t end) const;  // of the calls in that range
  Status CaptureSegment(Segment& s, Call call);
  Status Update(Segment& s, Call call);
  Status CaptureLoop(DeviceLoop& loop, Call call);
  // Waits until the device has done all work on the stream, including the iterations of the loop
  // with this state.
  Status WaitForIterations(LoopState& state);
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

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_RUN_GRAPHS_H_
