// Executes control steps on the host.
#include "executor/plan/cursor.h"

#include <algorithm>
#include <cstring>

namespace opwire::executor {
namespace {

template <typename T>
StatusOr<T> Read(const opw_tensor& from, Device* device, void* pinned) {
  if (device != nullptr) {
    OPWIRE_RETURN_IF_ERROR(device->Copy(pinned, from.data, sizeof(T), 0));
    OPWIRE_RETURN_IF_ERROR(device->Synchronize());
  }
  T value;
  std::memcpy(&value, device == nullptr ? from.data : pinned, sizeof value);
  return value;
}

}  // namespace

StatusOr<bool> Cursor::Follow(const Step& s, Device* device, void* pinned) {
  const ControlStep& c = s.control();
  begun_ = std::max(begun_, at_ + 1);
  uint32_t next = at_ + 1;
  bool reads = false;
  switch (s.kind) {
    case StepKind::kEnter: {
      Iterations& iterations = iterations_[c.loop];
      iterations = {0, c.max_trips};
      if (c.max_trips < 0) {
        OPWIRE_ASSIGN_OR_RETURN(iterations.most, Read<int64_t>(*s.call.operands, device, pinned));
        reads = true;
      }
      break;
    }
    case StepKind::kIteration: {
      const Iterations& iterations = iterations_[c.loop];
      if (iterations.done >= iterations.most) {
        if (c.max_trips >= 0)
          return OutOfRange("while: max_trips: the condition still holds after {} iterations",
                            c.max_trips);
        next = c.target;
      } else if (s.call.results != nullptr) {
        void* const to = s.call.results->data;
        // The source is not pinned memory, so the device takes the number before it may change.
        if (device == nullptr)
          std::memcpy(to, &iterations.done, sizeof iterations.done);
        else
          OPWIRE_RETURN_IF_ERROR(device->Copy(to, &iterations.done, sizeof iterations.done, 0));
      }
      break;
    }
    case StepKind::kNext:
      ++iterations_[c.loop].done;
      next = c.target;
      break;
    case StepKind::kBranch: {
      OPWIRE_ASSIGN_OR_RETURN(const uint8_t holds, Read<uint8_t>(*s.call.operands, device, pinned));
      reads = true;
      if (holds == 0) next = c.target;
      break;
    }
    case StepKind::kJump:
      next = c.target;
      break;
    case StepKind::kCall:
    case StepKind::kEmit:
      break;
  }
  at_ = next;
  return reads && device != nullptr;
}

}  // namespace opwire::executor
