// An instance's steps as graphs of the device: captured when they have run once, replayed from then on, with what was bound anew put into them.
//
// Steps lie in segments of some milliseconds at the most, so that a run can stop, or be put aside, between two of them. A step that cannot be captured is a
// segment by itself and is called.
#ifndef OPWIRE_EXECUTOR_RUN_GRAPHS_H_
#define OPWIRE_EXECUTOR_RUN_GRAPHS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "executor/plan/instance.h"
#include "kernels/device/device.h"

namespace opwire {

class Graphs {
 public:
  // Of a device that has graphs, which outlives this, as the instance does. `ran`: all steps have run before; else a segment is captured when it comes round
  // again.
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
  // Puts that segment on the stream. `call` calls a step's kernel. Not OK: nothing was put there, and the step is to be called; all further ones too,
  // but where only this one cannot be captured.
  // REQUIRES: BeginsAt(step).
  template <typename Call>
  Status Run(uint32_t step, const Call& call) {
    Segment& s = segments_[SegmentAt(step)];
    if (s.graph && s.bindings == instance_.bindings()) return device_.Replay(*s.graph, 0);
    Status status = s.graph ? Update(s, call) : Capture(s, call);
    if (status.ok()) status = device_.Replay(*s.graph, 0);
    usable_ = status.ok();
    return status;
  }

 private:
  struct Segment {
    uint32_t begin, end;
    bool captures;
    bool ran;
    std::optional<GraphId> graph;
    uint64_t bindings = 0;  // of the instance, that the graph has
  };

  size_t SegmentAt(uint32_t step) const { return segment_of_[step]; }
  template <typename Call>
  bool CallAll(const Segment& s, const Call& call) {
    bool called = true;
    for (uint32_t i = s.begin; i < s.end && called; ++i) called = call(i) == OPW_OK;
    return called;
  }
  template <typename Call>
  Status Capture(Segment& s, const Call& call) {
    OPWIRE_RETURN_IF_ERROR(device_.BeginCapture(0));
    const bool called = CallAll(s, call);
    OPWIRE_ASSIGN_OR_RETURN(s.graph, device_.EndCapture(0));
    s.bindings = instance_.bindings();
    return called ? absl::OkStatus() : Internal("a step could not be captured");
  }
  template <typename Call>
  Status Update(Segment& s, const Call& call) {
    OPWIRE_RETURN_IF_ERROR(device_.BeginUpdate(*s.graph));
    const bool called = CallAll(s, call);
    if (device_.EndUpdate() && called) {
      s.bindings = instance_.bindings();
      return absl::OkStatus();
    }
    // A graph before it may still run.
    OPWIRE_RETURN_IF_ERROR(device_.Synchronize());
    device_.DestroyGraph(*s.graph);
    s.graph.reset();
    return Capture(s, call);
  }

  Device& device_;
  const Instance& instance_;
  std::vector<Segment> segments_;
  std::vector<uint32_t> segment_of_;  // by step
  bool usable_ = true;
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_RUN_GRAPHS_H_
