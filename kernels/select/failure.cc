// One status per thread.
#include "kernels/select/failure.h"

#include <utility>

namespace opwire {
namespace {

Status& Noted() {
  static thread_local Status status;
  return status;
}

}  // namespace

void NoteFailure(Status why) { Noted() = std::move(why); }

Status TakeFailure() { return std::exchange(Noted(), absl::OkStatus()); }

}  // namespace opwire
