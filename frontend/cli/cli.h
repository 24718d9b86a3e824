// The commands of `opwire` as plain functions, and their common parts: options, output, errors,
// exit codes. main.cc declares their options.
#ifndef OPWIRE_FRONTEND_CLI_CLI_H_
#define OPWIRE_FRONTEND_CLI_CLI_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/cpp/client.h"
#include "frontend/cpp/placement.h"

namespace opwire::cli {
using namespace client;

enum ExitCode : int { kDone = 0, kRunFailed = 1, kUsage = 2, kNothingReachable = 3, kRefused = 4 };

// ---- Commands
// -------------------------------------------------------------------------------------------------

struct Common {
  std::vector<std::string> registries;
  std::string device;
  bool json = false;
};

// The changes that the passes may make to a program.
struct PassArgs {
  bool none = false, exact = false, fast_math = false;
  Accuracy accuracy() const {
    return exact ? Accuracy::kExact : fast_math ? Accuracy::kFast : Accuracy::kUsual;
  }
  LoadOptions load() const { return {.passes = none ? std::nullopt : std::optional(accuracy())}; }
};

struct ExplainArgs {
  std::string op, dtype;
  std::vector<std::string> dims;
  bool placement = false;
  PassArgs passes;
};

struct SessionsArgs {
  std::string end;  // ends the session of this name
};

struct GrantsArgs {
  std::string revoke;  // ends the grant of this capability
};

struct RunArgs {
  std::string file;
  std::vector<std::string> in, out, dims;
  std::string session;
  std::string memory;  // "64MiB"
  int repeat = 1;
  double deadline_ms = 0;
  bool profile = false;
  PassArgs passes;
};

struct UpArgs {
  std::vector<std::string> devices;
  std::string data;
  std::vector<std::string> executor;  // options passed to every executor
  bool detach = false;
  bool if_none = false;    // no error if one runs
  bool where = false;      // only prints where one runs
  int idle_timeout_s = 0;  // 0: stays
};

struct OptArgs {
  std::string file, after, loss, memory;
  std::vector<std::string> skip, with, dims, grad;
  bool stats = false;
  PassArgs passes;
};

struct NewOpArgs {
  std::string name, directory;
};

struct BuildArgs {
  std::vector<std::string> directories;
  bool all = false, quick = false;
  uint64_t seed = 1;
};

struct CacheArgs {
  bool prune = false;
  int64_t bytes = 0;  // that are kept
};

Status Devices(const Common& common);
Status DevicesHere(const Common& common);
// Prints this user's key pair for tcp. Creates it if there is none.
Status Keys(const Common& common);
Status Ops(const Common& common, const std::string& op);
Status Explain(const Common& common, const ExplainArgs& args);
Status Placement(const Common& common, const std::string& file);
Status ReportAll(const Common& common);
Status Sessions(const Common& common, const SessionsArgs& args);
Status Grants(const Common& common, const GrantsArgs& args);
Status Run(const Common& common, const RunArgs& args);
// Prints a program after the passes, or the changes of each pass.
Status Opt(const Common& common, const OptArgs& args);
Status Up(const Common& common, const UpArgs& args);
// Writes a folder with a working op, for the user to change.
Status NewOp(const Common& common, const NewOpArgs& args);
Status Build(const Common& common, const BuildArgs& args);
Status Cache(const Common& common, const CacheArgs& args);

// ---- Errors
// -------------------------------------------------------------------------------------------------

// The command line is wrong: exit code 2.
Status AsUsage(const Status& status);
template <typename... Args>
Status Usage(fmt::format_string<Args...> format, Args&&... args) {
  return AsUsage(absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...)));
}
// Returns the same error, with this text as the next step that Fail prints.
Status WithNext(Status status, std::string_view next);

// Prints "opwire: CODE: MESSAGE" and a line with the next step to standard error; as one object
// with --json. Returns the exit code: Usage is 2, UNAVAILABLE 3, refusals (permission, quota,
// memory, version) 4, all else 1.
int Fail(const Common& common, const Status& status);

// ---- Values of options
// -------------------------------------------------------------------------------------------------

// NAME=VALUE, each name once. `flag` is for messages.
using Pairs = std::map<std::string, std::string>;
// Returns the sizes that --dim NAME=SIZE sets for dimensions of a program.
StatusOr<std::vector<std::pair<std::string, int64_t>>> NamedSizes(
    const DimTable& dims, const std::vector<std::string>& list);
StatusOr<Pairs> PairsOf(const std::vector<std::string>& list, std::string_view flag);
// Checks that each name is one of `names`, the names of every `what` of the program.
Status CheckNames(const Pairs& given, std::string_view flag,
                  const std::vector<std::string_view>& names, std::string_view what);
StatusOr<int64_t> Number(std::string_view text, std::string_view what);

// ---- Output
// -------------------------------------------------------------------------------------------------

// A table whose columns are as wide as their widest cell; the header is in capitals.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

StatusOr<int64_t> BytesOf(std::string_view text);  // --memory: "4096", "64MiB", "2G"
std::string HumanBytes(int64_t bytes);             // "1.5 GiB"
std::string HumanCount(double count);              // "1.5 G"
std::string HumanNanos(int64_t nanos);             // "12.3 us"

// ---- Reaching executors
// -------------------------------------------------------------------------------------------------

StatusOr<Client> Connect(const Common& common);
// Returns the registered executors that --on allows. UNAVAILABLE, with the existing ones, if there
// is none.
StatusOr<std::vector<ExecutorFacts>> Executors(const Common& common, Client& client,
                                               bool with_ops = false);
// Returns facts as JSON ("report", "ops", "explain", "sessions", "grants"), from the control
// socket, without opening a session.
StatusOr<std::string> Ask(const ExecutorFacts& executor, std::string_view topic,
                          std::string_view argument = "", DType dtype = DType::kInvalid);
// Ends a grant of this user's on that executor. NOT_FOUND if no grant has this capability.
Status RevokeOn(const ExecutorFacts& executor, const std::vector<uint8_t>& capability);
// Returns the id of the executor that has this user's session of that name; empty: none has.
StatusOr<std::string> HolderOf(const std::vector<ExecutorFacts>& executors,
                               const std::string& session);

// Returns the path of a program that is installed in the same folder as this one; else its name,
// for the PATH.
std::string Locate(const std::string& program);

// Parses a program's file. If it names ops of users, uses the catalogue of the executors. Errors
// show the line that they name.
struct ProgramFile {
  std::shared_ptr<const OpCatalogue> ops;
  Module module;
};
StatusOr<ProgramFile> ReadProgram(const Common& common, const std::string& path);

}  // namespace opwire::cli

#endif  // OPWIRE_FRONTEND_CLI_CLI_H_
