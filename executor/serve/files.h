// Tensors in files inside the operator's --data directory, a subdirectory a principal: .npy files,
// and for loading those in GGUF and safetensors files, too.
#ifndef OPWIRE_EXECUTOR_SERVE_FILES_H_
#define OPWIRE_EXECUTOR_SERVE_FILES_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/owned_fd.h"
#include "ir/files/tensor_file.h"
#include "ir/wire/message.h"

namespace opwire::executor {

// Paths are relative, opened beneath the principal's directory without following links. Written to
// a temporary name and renamed. PERMISSION_DENIED for a path that leads out, NOT_FOUND,
// RESOURCE_EXHAUSTED when the disk is full.
Status SaveNpy(const std::string& directory, const std::string& principal, const std::string& path,
               DType dtype, std::span<const int64_t> shape, Bytes bytes);

// What the headers of files with many tensors say, kept for the files that were opened last, as
// long as they stay as they were. Any thread.
class FileHeaders {
 public:
  using Tensors = std::shared_ptr<const std::vector<FileTensor>>;
  // Which file it is, and in what state.
  struct Identity {
    uint64_t device, inode;
    int64_t bytes, changed_ns;
    bool operator==(const Identity&) const = default;
  };
  Tensors Find(const Identity& file);
  void Keep(const Identity& file, Tensors tensors);

 private:
  static constexpr size_t kKept = 4;
  std::mutex mutex_;
  std::vector<std::pair<Identity, Tensors>> kept_;  // the oldest first
};

// A tensor in an open file, whose header was read.
struct OpenedTensor {
  std::string path;
  OwnedFd fd;
  FileTensor tensor;
  int64_t file_bytes = 0;
};
// `name` is that of a tensor in a file of GGUF or safetensors; empty there, it is the beginning of
// the file as bytes, up to the first tensor. A file of NPY has no names. KindOfFile tells which.
// INVALID_ARGUMENT for a broken file, with the byte, and for one of another kind. NOT_FOUND if it
// has no such tensor.
StatusOr<OpenedTensor> OpenTensor(const std::string& directory, const std::string& principal,
                                  const std::string& path, const std::string& name,
                                  FileHeaders& headers);
// `bytes` of its tensor.bytes bytes, from `at` on. INVALID_ARGUMENT where the file has become
// shorter.
Status ReadTensor(const OpenedTensor& opened, int64_t at, int64_t bytes, uint8_t* into);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_FILES_H_
