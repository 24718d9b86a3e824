// Why a kernel failed, where it can say more than OPW_FAILED: noted by the thread that ran it, for
// who called it there.
#ifndef OPWIRE_KERNELS_SELECT_FAILURE_H_
#define OPWIRE_KERNELS_SELECT_FAILURE_H_

#include "ir/base/status.h"

namespace opwire {

void NoteFailure(Status why);
// The last one that was noted on this thread and not yet taken; OK: none was.
Status TakeFailure();

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_FAILURE_H_
