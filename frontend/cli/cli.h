// The commands of `opwire` as plain functions, and what they share: options, output, errors, exit
// codes. main.cc declares their options.
#ifndef OPWIRE_FRONTEND_CLI_CLI_H_
#define OPWIRE_FRONTEND_CLI_CLI_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/cpp/client.h"
#include "frontend/cpp/placement.h"

namespace opwire::cli {

enum ExitCode : int { kDone = 0, kRunFailed = 1, kUsage = 2, kNothingReachable = 3, kRefused = 4 };

// ---- Commands
// -------------------------------------------------------------------------------------------------

struct Common {
  std::vector<std::string> registries;
  std::string device;
  bool json = false;
};

// What the passes may do to a program.
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
  std::vector<std::string> executor;  // options handed to every executor
  bool detach = false;
  bool if_none = false;    // no error where one runs
  bool where = false;      // only says where one runs
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
  int64_t bytes = 0;  // that may stay
};

Status Devices(const Common& common);
Status DevicesHere(const Common& common);
// This user's key pair for tcp, made where there is none.
Status Keys(const Common& common);
Status Ops(const Common& common, const std::string& op);
Status Explain(const Common& common, const ExplainArgs& args);
Status Placement(const Common& common, const std::string& file);
Status ReportAll(const Common& common);
Status Sessions(const Common& common, const SessionsArgs& args);
Status Grants(const Common& common, const GrantsArgs& args);
Status Run(const Common& common, const RunArgs& args);
// A program after the passes, or what each of them did.
Status Opt(const Common& common, const OptArgs& args);
Status Up(const Common& common, const UpArgs& args);
// A folder with a user's op that works, to be changed.
Status NewOp(const Common& common, const NewOpArgs& args);
Status Build(const Common& common, const BuildArgs& args);
Status Cache(const Common& common, const CacheArgs& args);

// ---- Errors
// -------------------------------------------------------------------------------------------------

// What was typed is wrong: exit code 2.
Status AsUsage(const Status& status);
template <typename... Args>
Status Usage(fmt::format_string<Args...> format, Args&&... args) {
  return AsUsage(absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...)));
}
// The same error with this in place of what Fail would say to do next.
Status WithNext(Status status, std::string_view next);

// Prints "opwire: CODE: MESSAGE" and a line on what to do next to standard error; as one object
// with --json. Gives the exit code: Usage is 2, UNAVAILABLE 3, refusals (permission, quota, memory,
// version) 4, all else 1.
int Fail(const Common& common, const Status& status);

// ---- Words of options
// -------------------------------------------------------------------------------------------------

// NAME=VALUE, each name once. `flag` is for messages.
using Pairs = std::map<std::string, std::string>;
// The sizes that --dim NAME=SIZE gives to dimensions of a program.
StatusOr<std::vector<std::pair<std::string, int64_t>>> NamedSizes(
    const DimTable& dims, const std::vector<std::string>& list);
StatusOr<Pairs> PairsOf(const std::vector<std::string>& list, std::string_view flag);
// Each is one of `names`, of which the program has a `what`.
Status CheckNames(const Pairs& given, std::string_view flag,
                  const std::vector<std::string_view>& names, std::string_view what);
StatusOr<int64_t> Number(std::string_view text, std::string_view what);

// ---- Output
// -------------------------------------------------------------------------------------------------

// Columns as wide as their widest cell; the header in capitals.
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
// As a JSON string, quotes included; bytes that are no UTF-8 become U+FFFD.
std::string Quote(std::string_view text);

// ---- Reaching executors
// -------------------------------------------------------------------------------------------------

StatusOr<Client> Connect(const Common& common);
// Those registered that --on allows. UNAVAILABLE, saying what there is, when there is none.
StatusOr<std::vector<ExecutorFacts>> Executors(const Common& common, Client& client,
                                               bool with_ops = false);
// Facts as JSON ("report", "ops", "explain", "sessions", "grants"), from the control socket,
// without opening a session.
StatusOr<std::string> Ask(const ExecutorFacts& executor, std::string_view topic,
                          std::string_view argument = "", DType dtype = DType::kInvalid);
// Ends a grant of this user's there. NOT_FOUND where none has this capability.
Status RevokeOn(const ExecutorFacts& executor, const std::vector<uint8_t>& capability);
// The id of the executor that holds this user's session of that name; empty: none does.
StatusOr<std::string> HolderOf(const std::vector<ExecutorFacts>& executors,
                               const std::string& session);

// The path of a program that is installed beside this one; else its name, for the PATH.
std::string Locate(const std::string& program);

// A program's file, parsed with the ops of users that executors here offer, where it names such.
// Errors show the line that they name.
struct ProgramFile {
  std::shared_ptr<const OpCatalogue> ops;
  Module module;
};
StatusOr<ProgramFile> ReadProgram(const Common& common, const std::string& path);

}  // namespace opwire::cli

#endif  // OPWIRE_FRONTEND_CLI_CLI_H_
