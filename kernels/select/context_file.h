// Files of the cache whose contents are true for one context only: device, its driver and
// libraries, this release.
#ifndef OPWIRE_KERNELS_SELECT_CONTEXT_FILE_H_
#define OPWIRE_KERNELS_SELECT_CONTEXT_FILE_H_

#include <string>
#include <string_view>

#include "ir/base/owned_fd.h"

namespace opwire {

// "choices-8f3c...": `kind` and a hash of the context.
std::string ContextFileName(std::string_view kind, std::string_view context);

// Opens `path` for reading and appending. Creates it with mode 0600 if it does not exist. If it
// cannot be written, opens it for reading only. Negative if it cannot be opened at all.
OwnedFd OpenToAppend(const std::string& path);

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_CONTEXT_FILE_H_
