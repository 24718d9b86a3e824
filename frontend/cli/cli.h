// What the commands of `opwire` share: options, output, exit codes.
#ifndef OPWIRE_FRONTEND_CLI_CLI_H_
#define OPWIRE_FRONTEND_CLI_CLI_H_

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "frontend/cpp/client.h"
#include "frontend/cpp/placement.h"

namespace opwire::cli {

enum ExitCode : int { kDone = 0, kRunFailed = 1, kUsage = 2, kNothingReachable = 3, kRefused = 4 };

struct Common {
  std::vector<std::string> registries;
  std::string device;
  bool json = false;
  int exit_code = kDone;  // set by the command that ran
};

// Prints "opwire: MESSAGE" and a line on what to do next to standard error; as an object with --json. Gives the exit code: UNAVAILABLE
// is 3, refusals (permission, quota, version) are 4, bad arguments 2, all else 1.
int Report(const Common& common, const Status& status);
// What a user should do about this error; empty where the message says it.
std::string NextStep(const Status& status);

// Columns as wide as their widest cell; the header in capitals.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string HumanBytes(int64_t bytes);   // "1.5 GiB"
std::string HumanNanos(int64_t nanos);   // "12.3 us"

StatusOr<Client> Connect(const Common& common);
// An unnamed session on an executor that the common options allow.
StatusOr<Session> OpenAny(const Common& common, Client& client, const Module* program = nullptr);

// Each adds its command to the app and sets common.exit_code when it ran.
void AddDevices(CLI::App& app, Common& common);
void AddOps(CLI::App& app, Common& common);
void AddExplain(CLI::App& app, Common& common);
void AddReport(CLI::App& app, Common& common);
void AddSessions(CLI::App& app, Common& common);
void AddRun(CLI::App& app, Common& common);
void AddUp(CLI::App& app, Common& common);

}  // namespace opwire::cli

#endif  // OPWIRE_FRONTEND_CLI_CLI_H_
