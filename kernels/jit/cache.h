// The user's cache of what was built: objects under the SHA-256 of all that they were made of. Safe
// under concurrent processes, and under their death at any point.
//
//   OPWIRE_ASSIGN_OR_RETURN(auto cache, BuildCache::Open({}));
//   // found, or built by this or another process
//   OPWIRE_ASSIGN_OR_RETURN(CacheEntry e, cache->Get(*toolchain, request));
//
// Layout below the directory (0700):
//   objects/KEY/{object,record.json}   published by one rename of a directory that was filled and
//                                      synced under tmp/
//   headers/UNIT                       which headers the unit KEY-without-headers was made of, so
//                                      that KEY can be computed
//   locks/UNIT                         flock(2): one process builds, the others wait for its
//                                      result, errors included
//   tmp/PID.N                          private, removed by the next process when its owner is gone
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

// What came of the first run of an object, in a child process.
struct Verdict {
  bool tried = false;
  std::string failure;  // empty: it ran well
  int deaths = 0;       // of executors while it ran; from two on it is quarantined
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
  double seconds = 0;  // that the compilation took
  bool built = false;  // by this call
  Verdict verdict;
};

class BuildCache {
 public:
  struct Options {
    std::string
        directory;  // empty: OPWIRE_CACHE, else $XDG_CACHE_HOME/opwire, else ~/.cache/opwire
    int64_t max_bytes = int64_t{2} << 30;  // of objects; the least lately used go first
    double wait_seconds = 300;             // for another process that builds the same
  };

  // Makes the directory where it is missing. FAILED_PRECONDITION where it belongs to another user
  // or others may write it. One that cannot be written is used as far as it can be read: what is
  // built then lies in a temporary directory of this process, and `warning` says so.
  static StatusOr<std::unique_ptr<BuildCache>> Open(Options options);
  virtual ~BuildCache() = default;

  // The object of the request. A corrupt entry is removed and built again. Errors are the
  // toolchain's, whichever process met them; a failure is not kept: who asks later builds again.
  virtual StatusOr<CacheEntry> Get(Toolchain& toolchain, const CompileRequest& request) = 0;
  // The same without building; none: it is not there.
  virtual std::optional<CacheEntry> Find(Toolchain& toolchain, const CompileRequest& request) = 0;

  // Notes the verdict in the entry's record.
  virtual Status SetVerdict(const std::string& key, const Verdict& verdict) = 0;

  // The latest used first; unreadable entries are left out.
  virtual std::vector<CacheEntry> List() = 0;
  // Removes the least lately used until at most `bytes` are left; how many went. Entries that are
  // being read stay readable.
  virtual StatusOr<int> Prune(int64_t bytes) = 0;

  virtual const std::string& directory() const = 0;
  virtual const std::string& warning() const = 0;  // empty: none
};

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_CACHE_H_
