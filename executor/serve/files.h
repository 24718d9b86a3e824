// Tensors as .npy files inside the operator's --data directory, a subdirectory a principal.
#ifndef OPWIRE_EXECUTOR_SERVE_FILES_H_
#define OPWIRE_EXECUTOR_SERVE_FILES_H_

#include <span>
#include <string>

#include "ir/base/npy.h"
#include "ir/base/owned_fd.h"
#include "ir/wire/message.h"

namespace opwire {

// Paths are relative, opened beneath the principal's directory without following links. Written to a temporary name and renamed.
// PERMISSION_DENIED for a path that leads out, NOT_FOUND, RESOURCE_EXHAUSTED when the disk is full.
Status SaveNpy(const std::string& directory, const std::string& principal, const std::string& path, DType dtype,
               std::span<const int64_t> shape, Bytes bytes);

// A file whose header was read.
struct NpyFile {
  std::string path;
  OwnedFd fd;
  NpyHeader header;
};
StatusOr<NpyFile> OpenNpy(const std::string& directory, const std::string& principal, const std::string& path);
// Its elements, header.data_bytes of them.
Status ReadNpy(const NpyFile& file, uint8_t* into);

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_SERVE_FILES_H_
