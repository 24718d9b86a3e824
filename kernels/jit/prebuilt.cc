// Prebuilt objects. Their records do not contain a compiler's identity: they must be found on
// machines without a compiler.
#include "kernels/jit/prebuilt.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "kernels/abi.h"
#include "kernels/jit/digest.h"
#include "kernels/jit/files.h"

namespace opwire::jit {
namespace {

constexpr size_t kMaxFiles = 4096;

std::string PathOf(const OpManifest& op, const OpVariantSpec& variant, const std::string& arch) {
  return fmt::format("{}/prebuilt/{}-{}.so", op.folder, variant.name, arch);
}

// All files of the folder that may be a part of an object, sorted by name. Manifests do not name
// every header.
StatusOr<std::vector<std::string>> FilesOf(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.starts_with('.') || (it.depth() == 0 && name == "prebuilt"))
      it.disable_recursion_pending();
    else if (it->is_regular_file(error))
      files.push_back(it->path().lexically_relative(folder));
    if (files.size() > kMaxFiles)
      return ResourceExhausted("{}: expected at most {} files", folder, kMaxFiles);
  }
  if (error) return NotFound("{}: {}", folder, error.message());
  std::ranges::sort(files);
  return files;
}

// The digest of all of them, and of the object's own bytes.
StatusOr<std::string> RecordOf(const OpManifest& op, const OpVariantSpec& variant,
                               const std::string& arch, const std::string& object) {
  Digest digest;
  digest.Add(int64_t{OPW_ABI_VERSION})
      .Add(std::string_view(op.digest))
      .Add(std::string_view(variant.name))
      .Add(std::string_view(arch));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesOf(op.folder));
  for (const std::string& name : files) {
    OPWIRE_ASSIGN_OR_RETURN(const std::string sha256, Sha256OfFile(op.folder + "/" + name));
    digest.Add(std::string_view(name)).Add(std::string_view(sha256));
  }
  OPWIRE_ASSIGN_OR_RETURN(const std::string bytes, Sha256OfFile(object));
  return digest.Add(std::string_view(bytes)).Hex() + "\n";
}

}  // namespace

std::vector<std::string> ArchsBelow(const std::string& arch) {
  constexpr std::string_view kPrefix = "x86-64-v";
  std::vector<std::string> out{arch};
  if (!arch.starts_with(kPrefix) || arch.size() != kPrefix.size() + 1) return out;
  for (char level = static_cast<char>(arch.back() - 1); level >= '2'; --level)
    out.push_back(std::string(kPrefix) + level);
  return out;
}

std::optional<std::string> FindPrebuilt(const OpManifest& op, const OpVariantSpec& variant,
                                        const std::string& arch) {
  for (const std::string& each : ArchsBelow(arch)) {
    const std::string path = PathOf(op, variant, each);
    if (!CheckOwner(path, /*folder=*/false).ok() ||
        !CheckOwner(path + ".sha256", /*folder=*/false).ok())
      continue;
    const auto said = ReadFile(path + ".sha256"), is = RecordOf(op, variant, each, path);
    if (said.ok() && is.ok() && *said == *is) return path;
  }
  return std::nullopt;
}

void ForgetPrebuilt(const std::string& object) { unlink((object + ".sha256").c_str()); }

Status StorePrebuilt(const OpManifest& op, const OpVariantSpec& variant, const std::string& arch,
                     const std::string& object) {
  OPWIRE_RETURN_IF_ERROR(MakeDirectory(op.folder + "/prebuilt"));
  const std::string path = PathOf(op, variant, arch);
  OPWIRE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(object));
  // The old record is removed first, the new one is written last: without its record an object does
  // not count.
  ForgetPrebuilt(path);
  OPWIRE_RETURN_IF_ERROR(WriteFile(path + ".new", bytes, /*sync=*/true));
  if (rename((path + ".new").c_str(), path.c_str()) != 0) return FileError(path, "rename", errno);
  OPWIRE_ASSIGN_OR_RETURN(const std::string record, RecordOf(op, variant, arch, path));
  return WriteFile(path + ".sha256", record, /*sync=*/true);
}

}  // namespace opwire::jit
