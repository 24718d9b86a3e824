// Whole files, with errors that name them.
#ifndef OPWIRE_KERNELS_JIT_FILES_H_
#define OPWIRE_KERNELS_JIT_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace opwire::jit {

// The error that an errno means: RESOURCE_EXHAUSTED for a full disk and for no descriptors,
// NOT_FOUND, PERMISSION_DENIED (a file system that is read-only too), else INTERNAL.
Status FileError(const std::string& path, const char* what, int error);

// A regular file, or a folder, that nobody else can have put there or changed: it belongs to this
// user or root, others may not write it. NOT_FOUND, PERMISSION_DENIED (a symbolic link, too),
// INVALID_ARGUMENT where it is another kind of file.
Status CheckOwner(const std::string& path, bool folder);

// NOT_FOUND, too, where it is no regular file.
StatusOr<std::string> ReadFile(const std::string& path);
// Makes or replaces the file, mode 0600; `sync`: its bytes are on the disk when this returns.
Status WriteFile(const std::string& path, std::string_view bytes, bool sync);
// Brings what was written to the file, or into the directory, to the disk.
Status SyncPath(const std::string& path);
// Makes one directory, mode 0700; one that is there is as good.
Status MakeDirectory(const std::string& path);
// Removes all of it. What cannot be removed stays.
void RemoveTree(const std::string& path);

// What tells that a file is still the one that was read before.
struct FileStamp {
  int64_t bytes = 0, modified_ns = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
// None: there is no such file.
std::optional<FileStamp> StampOf(const std::string& path);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_FILES_H_
