// Tensors as .npy files inside the operator's --data directory, a subdirectory a principal.
#ifndef OPWIRE_EXECUTOR_SERVE_FILES_H_
#define OPWIRE_EXECUTOR_SERVE_FILES_H_

#include <span>
#include <string>

#include "ir/base/npy.h"
#include "ir/wire/message.h"

namespace opwire {

// Paths are relative, opened beneath the principal's directory without following links. Written to a temporary name and renamed.
// PERMISSION_DENIED for a path that leads out, NOT_FOUND, RESOURCE_EXHAUSTED when the disk is full.
Status SaveNpy(const std::string& directory, const std::string& principal, const std::string& path, DType dtype,
               std::span<const int64_t> shape, Bytes bytes);

struct LoadedNpy {
  NpyHeader header;
  std::string bytes;
};
// At most `max_bytes` of elements.
StatusOr<LoadedNpy> LoadNpy(const std::string& directory, const std::string& principal, const std::string& path, int64_t max_bytes);

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_SERVE_FILES_H_
