// Why a kernel failed, if it can say more than OPW_FAILED. The thread that ran the kernel notes it,
// and its caller on the same thread takes it.
#ifndef OPWIRE_KERNELS_SELECT_FAILURE_H_
#define OPWIRE_KERNELS_SELECT_FAILURE_H_

#include "ir/base/status.h"

namespace opwire {

void NoteFailure(Status why);
// The last status that was noted on this thread and not yet taken; OK if there is none.
Status TakeFailure();

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_FAILURE_H_
