// Loops and branches that a device makes by itself: graphs whose nodes decide on the device what is
// done next, and how often.
//
//   device.Copy(state, &begin, sizeof begin, 0);                     // {.done = 3, .last = 40}
//   loops->BeginLoop({.state = state, .number = number, .condition = condition});
//     kernels of a trip ...
//     loops->BeginBranch(flag, true); kernels ...  loops->Otherwise(); kernels ...
//         loops->EndBranch();
//   auto graph = loops->EndLoop();
//   device.Replay(*graph, 0);  // trips 3 to 39, or as many as the condition holds
//
// All by one thread, on stream 0.
#ifndef OPWIRE_KERNELS_DEVICE_LOOP_CAPTURE_H_
#define OPWIRE_KERNELS_DEVICE_LOOP_CAPTURE_H_

#include <cstdint>

#include "ir/base/status.h"

namespace opwire {

// How far a loop has come; in the device's memory.
struct LoopState {
  int64_t done;    // trips; counted up at the end of each
  int64_t last;    // no trip begins once `done` is this or more
  uint64_t holds;  // whether the condition did behind the last trip; 1 without one
};

// Addresses in the device's memory.
struct LoopPlaces {
  LoopState* state;
  int64_t*
      number;  // gets the number of the trip that comes next, at the end of each; null: nobody asks
  const uint8_t* condition;  // a bool that a trip leaves: whether another may follow; null: it may
};

class LoopCapture {
 public:
  virtual ~LoopCapture() = default;

  // What is put on the stream between the two is one trip, and does not run. Replay of the graph
  // makes a trip at the least. A failure, of what is below too, ends the capture.
  virtual Status BeginLoop(const LoopPlaces& places) = 0;
  virtual StatusOr<uint32_t> EndLoop() = 0;
  // The same of what is done once, with branches in it.
  virtual Status BeginOnce() = 0;
  virtual StatusOr<uint32_t> EndOnce() = 0;
  // Instead of EndLoop or EndOnce: there is no graph.
  virtual void AbandonLoop() = 0;

  // While the loop runs: no more of its trips begin.
  virtual Status EndEarly(LoopState& state) = 0;

  // Within either: what follows is done, in a trip, only where the bool at `condition` is true
  // there, and behind Otherwise, which comes where `otherwise` says so, only where it was false.
  virtual Status BeginBranch(const uint8_t* condition, bool otherwise) = 0;
  virtual Status Otherwise() = 0;
  virtual Status EndBranch() = 0;
  // Within either: what comes before may write what kernels read early (GpuDevice::LaunchShape)
  // that follow, so these begin when all of it has ended.
  virtual void Part() = 0;
};

}  // namespace opwire

#endif  // OPWIRE_KERNELS_DEVICE_LOOP_CAPTURE_H_
