// The ops of users: folders are read, built, tried, loaded, offered, and watched for edits. Makes
// the sets of kernels for sessions, and so also steers the choice of all variants.
//
//   OPWIRE_ASSIGN_OR_RETURN(auto ops, UserOps::Start(options, BuildVariantTable(*device), [&](auto
//       set) { device_thread.Post(...); }));
//   Core core(..., ops->current(), ...);
//
// An op is offered at once, by its reference program, until its own code is built. Every change
// makes a new set with a new epoch, for the sessions that begin afterwards. A broken edit changes
// only the report.
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

namespace opwire::executor {

struct UserOpsOptions {
  std::vector<std::string> directories;  // each an op's folder, or a folder of such
  std::string worker =
      "/proc/self/exe";  // the program that compiles and tries in processes of its own
  jit::BuildCache::Options cache;
  int threads = 2;      // the number of builders
  double seconds = 60;  // of wall time, for a compilation and for a trial
  Steering steering;
  std::string
      context;       // the base of measured costs: device, its driver and libraries, this release
  std::string died;  // "op@variant" in which the previous executor faulted; empty: it did not fault
  bool died_of_time = false;  // because it did not return, which counts against users' kernels only
  Device* device = nullptr;   // a GPU, which outlives all; null: a cpu
};

class UserOps {
 public:
  // Called on any thread of UserOps; not after its destructor.
  using Publish = std::function<void(std::shared_ptr<const KernelSet>)>;

  // Reads the folders and loads cached objects. Builds all others in the background. A folder that
  // cannot be used is in the report and in the log, with the reason. A directory without an op is
  // watched for one. NOT_FOUND if a directory does not exist, INVALID_ARGUMENT if the steering
  // names an unknown op or variant.
  static StatusOr<std::unique_ptr<UserOps>> Start(UserOpsOptions options, KernelSet builtin,
                                                  Publish publish);
  // Stops running builds.
  virtual ~UserOps() = default;

  virtual std::shared_ptr<const KernelSet> current() const = 0;
  // Whether no build is waiting or running and all changes are offered.
  virtual bool Settled() const = 0;
  // Toolchains, cache and folders, as JSON, for the report: {"toolchains": [...], "cache": {...},
  // "folders": [...]}. Looks for toolchains, which takes up to a second. Any thread.
  virtual std::string Facts() = 0;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_USER_OPS_H_
