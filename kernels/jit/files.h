// Operations on whole files, with errors that name them.
#ifndef OPWIRE_KERNELS_JIT_FILES_H_
#define OPWIRE_KERNELS_JIT_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace opwire::jit {

// The error for an errno: RESOURCE_EXHAUSTED for a full disk and for too many open files,
// NOT_FOUND, PERMISSION_DENIED (also for a file system that is read-only), else INTERNAL.
Status FileError(const std::string& path, const char* what, int error);

// Checks a regular file, or a folder, that no other user can have put there or changed: it belongs
// to this user or root, and others may not write it. NOT_FOUND, PERMISSION_DENIED (also for a
// symbolic link), INVALID_ARGUMENT if it is another kind of file.
Status CheckOwner(const std::string& path, bool folder);

// Also NOT_FOUND if it is not a regular file.
StatusOr<std::string> ReadFile(const std::string& path);
// Makes or replaces the file, mode 0600; `sync`: its bytes are on the disk when this returns.
Status WriteFile(const std::string& path, std::string_view bytes, bool sync);
// Writes the changes of the file, or of the directory, to the disk.
Status SyncPath(const std::string& path);
// Makes one directory, mode 0700; no error if it exists.
Status MakeDirectory(const std::string& path);
// Removes the whole tree. Files that cannot be removed stay.
void RemoveTree(const std::string& path);

// Facts by which a file is recognised as unchanged since it was read.
struct FileStamp {
  int64_t bytes = 0, modified_ns = 0, changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
// nullopt if there is no such file.
std::optional<FileStamp> StampOf(const std::string& path);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_FILES_H_
