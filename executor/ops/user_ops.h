// The ops of users: folders read, built, tried, loaded, offered, and watched for edits. Also what
// steers the choice of all variants: the sets of kernels that sessions work with are made here.
//
//   OPWIRE_ASSIGN_OR_RETURN(auto ops, UserOps::Start(options, BuildVariantTable(*device), [&](auto
//       set) { device_thread.Post(...); }));
//   Core core(..., ops->current(), ...);
//
// An op is offered at once: by its reference program, until its own code is built. Every change
// makes a new set with a new epoch, for the sessions that begin from then on. An edit that is
// broken changes nothing but what the report says.
#ifndef OPWIRE_EXECUTOR_OPS_USER_OPS_H_
#define OPWIRE_EXECUTOR_OPS_USER_OPS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "kernels/device/device.h"
#include "kernels/jit/cache.h"
#include "kernels/select/variant.h"

namespace opwire::ops {

struct UserOpsOptions {
  std::vector<std::string> directories;  // each an op's folder, or a folder of such
  std::string worker =
      "/proc/self/exe";  // the program that compiles and tries in processes of its own
  jit::BuildCache::Options cache;
  int threads = 2;      // that build
  double seconds = 60;  // of wall time, for a compilation and for a trial
  Steering steering;
  std::string
      context;  // what measured costs depend on: device, its driver and libraries, this release
  std::string
      died;  // "op@variant" in which the executor before this one faulted; empty: it did not
  bool died_of_time = false;  // because it did not return, which counts against users' kernels only
  Device* device = nullptr;   // a GPU, which outlives all; null: a cpu
};

class UserOps {
 public:
  // Any thread of UserOps'; not after its destructor.
  using Publish = std::function<void(std::shared_ptr<const KernelSet>)>;

  // Reads the folders and loads what the cache has; all else is built behind. A folder that cannot
  // be used is in the report with its reason, and in the log; a directory without an op is watched
  // for one. NOT_FOUND where there is no such directory, INVALID_ARGUMENT where the steering names
  // what nobody has.
  static StatusOr<std::unique_ptr<UserOps>> Start(UserOpsOptions options, KernelSet builtin,
                                                  Publish publish);
  // Ends what is being built.
  virtual ~UserOps() = default;

  virtual std::shared_ptr<const KernelSet> current() const = 0;
  // Nothing waits to be built.
  virtual bool Settled() const = 0;
  // Toolchains, cache and folders, as JSON, for the report: {"toolchains": [...], "cache": {...},
  // "folders": [...]}. Looks for toolchains, which takes up to a second. Any thread.
  virtual std::string Facts() = 0;
};

}  // namespace opwire::ops

#endif  // OPWIRE_EXECUTOR_OPS_USER_OPS_H_
