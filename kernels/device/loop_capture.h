// Loops and branches that run on the device alone: nodes of graphs decide there which work is next,
// and how often it runs.
//
//   device.Copy(state, &begin, sizeof begin, 0);                     // {.done = 3, .last = 40}
//   loops->BeginLoop({.state = state, .number = number, .condition = condition});
//     kernels of an iteration ...
//     loops->BeginBranch(flag, true); kernels ...  loops->Else(); kernels ...
//         loops->EndBranch();
//   auto graph = loops->EndLoop();
//   device.Replay(*graph, 0);  // iterations 3 to 39, or while the condition holds
//
// All by one thread, on stream 0.
#ifndef OPWIRE_KERNELS_DEVICE_LOOP_CAPTURE_H_
#define OPWIRE_KERNELS_DEVICE_LOOP_CAPTURE_H_

#include <cstdint>

#include "ir/base/status.h"

namespace opwire {

// Progress of a loop; in the device's memory.
struct LoopState {
  int64_t done;    // iterations; incremented at the end of each
  int64_t last;    // no iteration begins once `done` is this or more
  uint64_t holds;  // value of the condition after the last iteration; 1 without a condition
};

// Addresses in the device's memory.
struct LoopPlaces {
  LoopState* state;
  int64_t*
      number;  // receives the number of the next iteration at the end of each; null: not written
  const uint8_t* condition;  // a bool that an iteration writes: another may follow; null: true
};

class LoopCapture {
 public:
  virtual ~LoopCapture() = default;

  // Work that is put on the stream between the two calls is one iteration, and does not run. Replay
  // of the graph runs at least one iteration. A failure, also of the functions below, ends the
  // capture.
  virtual Status BeginLoop(const LoopPlaces& places) = 0;
  virtual StatusOr<uint32_t> EndLoop() = 0;
  // The same for work that runs once, with branches in it.
  virtual Status BeginOnce() = 0;
  virtual StatusOr<uint32_t> EndOnce() = 0;
  // Call instead of EndLoop or EndOnce: no graph is made.
  virtual void AbandonLoop() = 0;

  // While the loop runs: no more iterations begin.
  virtual Status EndEarly(LoopState& state) = 0;

  // Within either capture. The following work runs, in an iteration, only if the bool at
  // `condition` is true at that point. Work after Otherwise runs only if it was false. Otherwise is
  // called if and only if `otherwise` is true.
  virtual Status BeginBranch(const uint8_t* condition, bool otherwise) = 0;
  virtual Status Else() = 0;
  virtual Status EndBranch() = 0;
  // Within either capture. Work before this call may write memory that later kernels read early
  // (GpuDevice::LaunchShape), so those kernels begin when all of that work has ended.
  virtual void Part() = 0;
};

}  // namespace opwire

#endif  // OPWIRE_KERNELS_DEVICE_LOOP_CAPTURE_H_
