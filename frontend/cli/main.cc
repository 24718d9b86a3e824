// opwire: the command line.
#include "frontend/cli/cli.h"

int main(int argc, char** argv) {
  using namespace opwire::cli;
  CLI::App app(
      "Runs IR programs on accelerators in other processes.\n\nExample:\n  opwire up\n  opwire devices\n  opwire run mlp.opw --in x=digits.npy --out "
      "y=probs.npy\n\nExit codes: 0 done, 1 the run failed, 2 usage, 3 nothing reachable, 4 refused.",
      "opwire");
  Common common;
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--registry", common.registries, "A registry to ask; may be given again (default: OPWIRE_REGISTRY, else your own)");
  app.add_option("--on", common.device, "Only on this device or executor: cpu, cuda:1, an id");
  app.add_flag("--json", common.json, "Print JSON");
  AddUp(app, common);
  AddDevices(app, common);
  AddOps(app, common);
  AddExplain(app, common);
  AddReport(app, common);
  AddRun(app, common);
  AddSessions(app, common);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kDone : kUsage;
  }
  return common.exit_code;
}
