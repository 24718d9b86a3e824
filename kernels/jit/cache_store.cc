// An entry is added and removed by one rename of its folder. Files that are not yet or no longer
// part of an entry are in private directories.
#include "kernels/jit/cache_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "kernels/jit/cache_record.h"
#include "kernels/jit/digest.h"

namespace opwire::jit {
namespace {

namespace fs = std::filesystem;

constexpr int kInstallTries = 8;

OwnedFd OpenDirectory(const std::string& path) {
  return OwnedFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

bool IsKey(const std::string& name) {
  return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// A directory whose lock is free has lost its owner. Owners make and lock their directories while
// they hold the folder's lock, so none is between the two steps here.
void RemoveLeftovers(const std::string& folder) {
  const OwnedFd all = OpenDirectory(folder);
  if (all.get() < 0 || flock(all.get(), LOCK_EX | LOCK_NB) != 0) return;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const OwnedFd fd = OpenDirectory(entry.path());
    if (fd.get() < 0 || flock(fd.get(), LOCK_EX | LOCK_NB) == 0) RemoveTree(entry.path());
  }
}

}  // namespace

PrivateDirectory::~PrivateDirectory() {
  if (!path_.empty()) RemoveTree(path_);
}

Status CacheStore::Prepare() {
  for (const char* folder : {"", "/objects", "/headers", "/locks", "/tmp"})
    OPWIRE_RETURN_IF_ERROR(MakeDirectory(root_ + folder));
  RemoveLeftovers(root_ + "/tmp");
  return MakePrivate().status();
}

StatusOr<PrivateDirectory> CacheStore::MakePrivate() {
  const std::string folder = root_ + "/tmp";
  const OwnedFd all = OpenDirectory(folder);
  if (all.get() < 0 || flock(all.get(), LOCK_SH) != 0)
    return FileError(folder, "cannot be locked", errno);
  while (true) {
    const std::string path = fmt::format("{}/{}.{}", folder, getpid(), next_private_++);
    if (mkdir(path.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;  // left by an earlier process with this number
      return FileError(path, "cannot be made", errno);
    }
    OwnedFd lock = OpenDirectory(path);
    if (lock.get() < 0 || flock(lock.get(), LOCK_EX) != 0)
      return FileError(path, "cannot be locked", errno);
    return PrivateDirectory(path, std::move(lock));
  }
}

std::optional<CacheEntry> CacheStore::Find(const UnitKey& unit) {
  const auto text = ReadFile(HeadersPath(unit.unit));
  if (!text.ok()) return std::nullopt;
  auto headers = ParseHeaders(*text);
  if (!headers) return std::nullopt;
  bool changed = false;
  headers = Refresh(*std::move(headers), changed);
  if (!headers) return std::nullopt;
  std::optional<CacheEntry> entry = Read(KeyOf(unit, *headers));
  if (!entry) return std::nullopt;
  if (changed) (void)WriteList(unit.unit, *headers);  // otherwise they are read again the next time
  utimensat(AT_FDCWD, EntryPath(entry->key).c_str(), nullptr, 0);
  return entry;
}

std::optional<CacheEntry> CacheStore::Read(const std::string& key) {
  const std::string path = EntryPath(key);
  struct stat s;
  if (stat(path.c_str(), &s) != 0) return std::nullopt;
  auto text = ReadFile(path + "/record.json");
  std::optional<CacheRecord> record = text.ok() ? ParseRecord(*text) : std::nullopt;
  if (record) record->entry.object = path + "/object";
  if (!record || record->entry.key != key ||
      !CheckObject(key, record->sha256, record->entry.bytes).ok()) {
    (void)Remove(key);
    return std::nullopt;
  }
  record->entry.used_at = s.st_mtim.tv_sec;
  return std::move(record->entry);
}

Status CacheStore::CheckObject(const std::string& key, const std::string& sha256, int64_t bytes) {
  const std::string path = EntryPath(key) + "/object";
  const std::optional<FileStamp> stamp = StampOf(path);
  if (!stamp || stamp->bytes != bytes) return DataLoss("{}: expected {} bytes", path, bytes);
  {
    std::lock_guard lock(mutex_);
    const auto it = verified_.find(key);
    if (it != verified_.end() && it->second == *stamp) return absl::OkStatus();
  }
  OPWIRE_ASSIGN_OR_RETURN(const std::string found, Sha256OfFile(path));
  if (found != sha256) return DataLoss("{}: its bytes are not those that were built", path);
  std::lock_guard lock(mutex_);
  verified_[key] = *stamp;
  return absl::OkStatus();
}

// Not synced: after a crash the file may be invalid, and is then written again.
Status CacheStore::WriteList(const std::string& unit, const std::vector<Header>& headers) {
  OPWIRE_ASSIGN_OR_RETURN(const PrivateDirectory directory, MakePrivate());
  const std::string path = directory.path() + "/list";
  OPWIRE_RETURN_IF_ERROR(WriteFile(path, WriteHeaders(headers), /*sync=*/false));
  if (rename(path.c_str(), HeadersPath(unit).c_str()) != 0)
    return FileError(HeadersPath(unit), "cannot be replaced", errno);
  return absl::OkStatus();
}

StatusOr<CacheEntry> CacheStore::Publish(const UnitKey& unit, const std::vector<Header>& headers,
                                         const std::string& object, CacheEntry entry) {
  OPWIRE_ASSIGN_OR_RETURN(const PrivateDirectory directory, MakePrivate());
  const std::string folder = directory.path() + "/entry";
  OPWIRE_RETURN_IF_ERROR(MakeDirectory(folder));
  if (rename(object.c_str(), (folder + "/object").c_str()) != 0)
    return FileError(object, "cannot be moved", errno);
  OPWIRE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(folder + "/object"));
  entry.key = KeyOf(unit, headers);
  entry.bytes = static_cast<int64_t>(bytes.size());
  entry.built_at = entry.used_at = RealTimeNs() / 1'000'000'000;
  OPWIRE_RETURN_IF_ERROR(WriteFile(folder + "/record.json",
                                   WriteRecord({entry, unit.unit, Sha256(bytes)}), /*sync=*/true));
  OPWIRE_RETURN_IF_ERROR(SyncPath(folder + "/object"));
  OPWIRE_RETURN_IF_ERROR(SyncPath(folder));
  OPWIRE_RETURN_IF_ERROR(Install(directory, folder, entry.key));
  OPWIRE_RETURN_IF_ERROR(WriteList(unit.unit, headers));
  entry.object = EntryPath(entry.key) + "/object";
  return entry;
}

Status CacheStore::Install(const PrivateDirectory& from, const std::string& entry,
                           const std::string& key) {
  const std::string to = EntryPath(key);
  for (int i = 0; i < kInstallTries; ++i) {
    if (rename(entry.c_str(), to.c_str()) == 0) return SyncPath(root_ + "/objects");
    if (errno != EEXIST && errno != ENOTEMPTY) break;
    // The target exists: an entry of another unit with equal contents, or one that was found
    // corrupt.
    (void)rename(to.c_str(), fmt::format("{}/old{}", from.path(), i).c_str());
  }
  return FileError(to, "cannot be published", errno);
}

Status CacheStore::SetVerdict(const std::string& key, const Verdict& verdict) {
  const std::string path = EntryPath(key);
  const OwnedFd lock = OpenDirectory(path);
  if (!IsKey(key) || lock.get() < 0) return NotFound("{}: no such entry in {}", key, root_);
  if (flock(lock.get(), LOCK_EX) != 0) return FileError(path, "cannot be locked", errno);
  OPWIRE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path + "/record.json"));
  std::optional<CacheRecord> record = ParseRecord(text);
  if (!record) return DataLoss("{}: its record cannot be read", path);
  record->entry.verdict = verdict;
  OPWIRE_RETURN_IF_ERROR(WriteFile(path + "/record.new", WriteRecord(*record), /*sync=*/true));
  if (rename((path + "/record.new").c_str(), (path + "/record.json").c_str()) != 0)
    return FileError(path, "cannot be changed", errno);
  return absl::OkStatus();
}

std::vector<std::string> CacheStore::Keys() const {
  std::vector<std::string> keys;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root_ + "/objects", ignored)) {
    if (IsKey(entry.path().filename())) keys.push_back(entry.path().filename());
  }
  return keys;
}

std::vector<CacheEntry> CacheStore::List() {
  std::vector<CacheEntry> entries;
  for (const std::string& key : Keys()) {
    if (std::optional<CacheEntry> entry = Read(key)) entries.push_back(*std::move(entry));
  }
  return entries;
}

StatusOr<int> CacheStore::Prune(int64_t bytes, const std::string& keep) {
  struct Use {
    int64_t at, bytes;
    std::string key;
  };
  std::vector<Use> uses;
  int64_t total = 0;
  for (const std::string& key : Keys()) {
    const std::optional<FileStamp> entry = StampOf(EntryPath(key)),
                                   object = StampOf(EntryPath(key) + "/object");
    if (!entry) continue;
    uses.push_back({entry->modified_ns, object ? object->bytes : 0, key});
    total += uses.back().bytes;
  }
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.at < b.at; });
  int removed = 0;
  for (const Use& use : uses) {
    if (total <= bytes) break;
    if (use.key == keep) continue;
    OPWIRE_RETURN_IF_ERROR(Remove(use.key));
    total -= use.bytes;
    ++removed;
  }
  return removed;
}

Status CacheStore::Remove(const std::string& key) {
  const std::string path = EntryPath(key);
  const auto text = ReadFile(path + "/record.json");
  OPWIRE_ASSIGN_OR_RETURN(const PrivateDirectory directory, MakePrivate());
  if (rename(path.c_str(), (directory.path() + "/entry").c_str()) != 0 && errno != ENOENT)
    return FileError(path, "cannot be removed", errno);
  const std::optional<CacheRecord> record = text.ok() ? ParseRecord(*text) : std::nullopt;
  if (record && IsKey(record->unit)) Forget(record->unit);
  return absl::OkStatus();
}

// Removes the unit's list and lock, unless another process uses them. Without its list the unit is
// only built again.
void CacheStore::Forget(const std::string& unit) {
  const OwnedFd lock(open(LockPath(unit).c_str(), O_RDWR | O_CLOEXEC));
  if (lock.get() < 0 || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  unlink(HeadersPath(unit).c_str());
  unlink(LockPath(unit).c_str());
}

}  // namespace opwire::jit
