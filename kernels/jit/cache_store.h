// One directory of the cache's layout (cache.h). All functions may be called on any thread, and
// while other processes use the directory.
#ifndef OPWIRE_KERNELS_JIT_CACHE_STORE_H_
#define OPWIRE_KERNELS_JIT_CACHE_STORE_H_

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/base/owned_fd.h"
#include "ir/base/status.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/cache_key.h"

namespace opwire::jit {

// A directory with one owner, removed with it. While the owner lives it holds the lock, by which
// other processes know that it is in use.
class PrivateDirectory {
 public:
  PrivateDirectory(std::string path, OwnedFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  ~PrivateDirectory();
  PrivateDirectory(PrivateDirectory&& o) noexcept
      : path_(std::exchange(o.path_, {})), lock_(std::move(o.lock_)) {}

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  OwnedFd lock_;
};

class CacheStore {
 public:
  explicit CacheStore(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  // Makes the folders and removes the files of dead processes. PERMISSION_DENIED or
  // RESOURCE_EXHAUSTED if the directory cannot be written.
  Status Prepare();

  // Returns the entry of the unit with its headers as they are now. An entry that differs from its
  // record is removed.
  std::optional<CacheEntry> Find(const UnitKey& unit);
  std::optional<CacheEntry> Read(const std::string& key);

  StatusOr<PrivateDirectory> MakePrivate();
  // Moves `object` in, under the key of these headers. `entry` has the other fields of the record.
  // An existing entry of this key is replaced.
  StatusOr<CacheEntry> Publish(const UnitKey& unit, const std::vector<Header>& headers,
                               const std::string& object, CacheEntry entry);
  Status SetVerdict(const std::string& key, const Verdict& verdict);

  std::vector<CacheEntry> List();
  // As BuildCache::Prune; the entry of `keep` stays.
  StatusOr<int> Prune(int64_t bytes, const std::string& keep);

  std::string LockPath(const std::string& unit) const { return root_ + "/locks/" + unit; }

 private:
  std::string EntryPath(const std::string& key) const { return root_ + "/objects/" + key; }
  std::string HeadersPath(const std::string& unit) const { return root_ + "/headers/" + unit; }
  std::vector<std::string> Keys() const;
  Status CheckObject(const std::string& key, const std::string& sha256, int64_t bytes);
  Status WriteList(const std::string& unit, const std::vector<Header>& headers);
  Status Install(const PrivateDirectory& from, const std::string& entry, const std::string& key);
  Status Remove(const std::string& key);
  void Forget(const std::string& unit);

  const std::string root_;
  std::atomic<int> next_private_{0};
  std::mutex mutex_;
  std::unordered_map<std::string, FileStamp>
      verified_;  // objects whose bytes this process has compared with the record
};

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_CACHE_STORE_H_
