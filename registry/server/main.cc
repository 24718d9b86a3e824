// opwire-registry: lists every live executor, its ops and their costs.
#include <sodium.h>

#include <CLI/CLI.hpp>

#include "ir/ops/names.h"
#include "ir/ops/parse_exit.h"
#include "ir/wire/accept.h"
#include "ir/wire/descriptors.h"
#include "ir/wire/endpoint.h"
#include "ir/wire/log.h"
#include "ir/wire/signals.h"
#include "registry/server/server.h"

namespace {

int Fail(int code, const absl::Status& status) {
  fmt::print(stderr, "opwire-registry: {}\n", opwire::Printable(opwire::MessageOf(status)));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace opwire;
  TerminationSignals signals;
  CLI::App app(
      "Knows every live executor, what it can run and how busy it is.\n\nExample:\n  "
      "opwire-registry\n  opwire-registry --listen "
      "tcp://10.0.0.1:7000 --authorized keys.txt",
      "opwire-registry");
  app.set_version_flag("--version", "opwire-registry " OPWIRE_VERSION);
  std::string listen, authorized, level = "info";
  bool insecure = false, share = false;
  int64_t beat_ms = 1000;
  app.add_option(
      "--listen", listen,
      "Where to listen: ipc://PATH or tcp://HOST:PORT (default: the user's runtime directory)");
  app.add_option(
      "--authorized", authorized,
      "Over tcp: a file of keys that may come, lines of KEY NAME use|execute|admin (opwire keys)");
  app.add_flag("--insecure", insecure, "Over tcp: without encryption, for everybody");
  app.add_flag("--share", share, "Over ipc: serve other users, too");
  app.add_option("--beat-ms", beat_ms, "Milliseconds between an executor's heartbeats")
      ->check(CLI::Range(10, 60000))
      ->capture_default_str();
  app.add_option("--log-level", level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return ExitOfParse(app, e, 2);
  }
  if (sodium_init() < 0) return Fail(1, Internal("libsodium does not start"));
  SetLogLevel(level);
  SetLogSource("registry");
  if (listen.empty()) {
    auto endpoint = DefaultRegistryEndpoint();
    if (!endpoint.ok()) return Fail(1, endpoint.status());
    listen = *endpoint;
  }
  if (Status status = CheckEndpoint(listen); !status.ok()) return Fail(2, status);
  const auto budget = BudgetDescriptors(RaiseDescriptorLimit(), 0);
  if (!budget.ok()) return Fail(1, budget.status());
  BoundAcceptedDescriptors(budget->accepted);
  RegistryOptions options;
  options.max_connections = budget->connections;
  options.beat = beat_ms * kMillisecond;
  auto server = RegistryServer::Start(listen, options, insecure, authorized, share);
  if (!server.ok())
    return Fail(absl::IsFailedPrecondition(server.status()) ? 2 : 1, server.status());
  Log(LogLevel::kInfo, "listening", {{"endpoint", (*server)->endpoint()}});
  (*server)->Run(signals.fd());
  if (IsIpc(listen)) unlink(IpcPath(listen).c_str());  // so that it is not taken for a stale socket
  Log(LogLevel::kInfo, "stopped");
  return 0;
}
