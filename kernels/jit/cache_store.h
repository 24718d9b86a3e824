// One directory of the cache's layout (cache.h). Its parts are safe to call from any thread and
// beside other processes.
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

// A directory of one owner, removed with it; while the owner lives its lock is held, so that others
// can tell.
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
  // Makes the folders and removes what dead processes left. PERMISSION_DENIED or RESOURCE_EXHAUSTED
  // where it cannot be written.
  Status Prepare();

  // The entry of the unit with its headers as they are now. One that is not as its record says is
  // removed.
  std::optional<CacheEntry> Find(const UnitKey& unit);
  std::optional<CacheEntry> Read(const std::string& key);

  StatusOr<PrivateDirectory> MakePrivate();
  // Moves `object` in, under the key of these headers; `entry` gives what the record says beside.
  // What stood there before goes.
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
