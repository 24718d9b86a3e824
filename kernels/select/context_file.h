// Files of the cache that hold what is true for one context only: device, its driver and libraries,
// this release.
#ifndef OPWIRE_KERNELS_SELECT_CONTEXT_FILE_H_
#define OPWIRE_KERNELS_SELECT_CONTEXT_FILE_H_

#include <string>
#include <string_view>

#include "ir/base/owned_fd.h"

namespace opwire {

// "choices-8f3c...": `kind` and a hash of the context.
std::string ContextFileName(std::string_view kind, std::string_view context);

// `path` to be read and appended to, made where it is not there, mode 0600; where it cannot be
// written, to be read. Negative: neither.
OwnedFd OpenToAppend(const std::string& path);

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_CONTEXT_FILE_H_
