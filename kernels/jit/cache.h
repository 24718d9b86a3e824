// The user's cache of built objects, stored under the SHA-256 of all their inputs. Safe under
// concurrent processes, and if they die at any point.
//
//   OPWIRE_ASSIGN_OR_RETURN(auto cache, BuildCache::Open({}));
//   // found, or built by this or another process
//   OPWIRE_ASSIGN_OR_RETURN(CacheEntry e, cache->Get(*toolchain, request));
//
// Layout below the directory (0700):
//   objects/KEY/{object,record.json}   published by one rename of a directory that was filled and
//                                      synced under tmp/
//   headers/UNIT                       the headers that the unit KEY-without-headers was made from,
//                                      so that KEY can be computed
//   locks/UNIT                         flock(2): one process builds, the others wait for its
//                                      result, errors included
//   tmp/PID.N                          private; if its owner has ended, the next process removes it
#ifndef OPWIRE_KERNELS_JIT_CACHE_H_
#define OPWIRE_KERNELS_JIT_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/jit/toolchain.h"

namespace opwire::jit {

// The result of the first run of an object, in a child process.
struct Verdict {
  bool tried = false;
  std::string failure;  // empty: it ran well
  int deaths = 0;       // of executors while it ran; from 2 deaths on it is quarantined
};

struct CacheEntry {
  std::string key;   // SHA-256, hex
  std::string name;  // CompileRequest::name
  std::string toolchain, version, arch;
  std::string
      object;  // its path; stays valid until pruned (an object that was opened stays usable)
  int64_t bytes = 0;
  int64_t built_at = 0;  // seconds since 1970
  int64_t used_at = 0;
  double seconds = 0;  // wall time of the compilation
  bool built = false;  // by this call
  Verdict verdict;
};

class BuildCache {
 public:
  struct Options {
    std::string
        directory;  // empty: OPWIRE_CACHE, else $XDG_CACHE_HOME/opwire, else ~/.cache/opwire
    int64_t max_bytes = int64_t{2} << 30;  // of objects; the least recently used are removed first
    double wait_seconds = 300;             // for another process that builds the same
  };

  // Makes the directory if it is missing. FAILED_PRECONDITION if it belongs to another user or
  // other users may write it. A directory that cannot be written is only read. Later builds then go
  // to a temporary directory of this process, and `warning` reports it.
  static StatusOr<std::unique_ptr<BuildCache>> Open(Options options);
  virtual ~BuildCache() = default;

  // Returns the object of the request. A corrupt entry is removed and built again. Errors are the
  // toolchain's, whichever process got them. A failure is not kept: a later call builds again.
  virtual StatusOr<CacheEntry> Get(Toolchain& toolchain, const CompileRequest& request) = 0;
  // The same without building; nullopt if there is no entry.
  virtual std::optional<CacheEntry> Find(Toolchain& toolchain, const CompileRequest& request) = 0;

  // Notes the verdict in the entry's record.
  virtual Status SetVerdict(const std::string& key, const Verdict& verdict) = 0;

  // The most recently used first; unreadable entries are left out.
  virtual std::vector<CacheEntry> List() = 0;
  // Removes the least recently used entries until at most `bytes` are left, and returns their
  // number. Entries that are being read stay readable.
  virtual StatusOr<int> Prune(int64_t bytes) = 0;

  virtual const std::string& directory() const = 0;
  virtual const std::string& warning() const = 0;  // empty: none
};

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_CACHE_H_
