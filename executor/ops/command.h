// `opwire-executor build` and `opwire-executor cache`: what `opwire build` and `opwire cache` run.
#ifndef OPWIRE_EXECUTOR_OPS_COMMAND_H_
#define OPWIRE_EXECUTOR_OPS_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

namespace opwire::executor {

struct BuildFlags {
  std::vector<std::string> directories;  // each an op's folder, or a folder of such
  bool all = false;                      // for older processors too, and into the folder
  bool quick = false;                    // a small case of each type, and no measurement
  bool json = false;
  uint64_t seed = 1;
  std::string device =
      "cpu";          // where kernels are checked and measured; those for others are compiled only
  std::string cache;  // its directory; empty: the user's own
};

struct CacheFlags {
  std::string directory;  // empty: the user's own
  bool json = false;
  int64_t bytes = 0;  // that may stay
};

// They print what they do. The exit code: 0 done, 1 something failed, 2 usage.
int BuildOps(const BuildFlags& flags);
int ShowCache(const CacheFlags& flags);
int PruneCache(const CacheFlags& flags);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_COMMAND_H_
