// opwire: the command line. The only file that uses CLI11.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <system_error>

#include "frontend/cli/cli.h"
#include "ir/ops/names.h"

namespace {

using namespace opwire::cli;

// A command: one line for the list, examples for its own help.
CLI::App* Command(CLI::App& app, const std::string& name, const std::string& does,
                  const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, does);
  command->footer("Examples:\n" + examples +
                  "\nOptions of every command, before or after its name: --registry, --on, --json; "
                  "see opwire --help.");
  return command;
}

// Returns the error of the command line, in our words rather than the parser's.
opwire::Status UsageOf(const CLI::App& app, const CLI::ParseError& e) {
  const auto chosen = app.get_subcommands();
  if (!chosen.empty()) {
    return WithNext(Usage("opwire {}: {}", chosen[0]->get_name(), e.what()),
                    fmt::format("opwire {} --help", chosen[0]->get_name()));
  }
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  for (const std::string& word : app.remaining()) {
    if (word.starts_with("-")) continue;
    const std::string nearest =
        opwire::DidYouMean(opwire::NearestNames(word, {names.begin(), names.end()}));
    return WithNext(
        Usage("no command '{}'{}", opwire::Clip(word),
              nearest.empty() ? fmt::format("; expected {}", fmt::join(names, ", ")) : nearest),
        "opwire --help");
  }
  return WithNext(Usage("{}", e.what()), "opwire --help");
}

constexpr const char* kNoPasses = "Run the program as it is written";

void AddPassOptions(CLI::App& command, PassArgs& passes) {
  auto* const exact =
      command.add_flag("--exact", passes.exact, "Only passes that keep each bit of the results");
  command
      .add_flag("--fast-math", passes.fast_math,
                "Passes may also change signs of zeros, and what overflows on the way")
      ->excludes(exact);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs IR programs on accelerators in other processes.", "opwire");
  app.footer(
      "Examples:\n  opwire up\n  opwire devices\n  opwire run mlp.opw --in images=digits.npy --out "
      "probabilities=probs.npy\n\n"
      "Exit codes: 0 done, 1 the run failed, 2 usage, 3 nothing reachable, 4 refused.\n`opwire "
      "COMMAND --help` has examples of "
      "each.");
  app.get_formatter()->column_width(30);
  app.set_version_flag("--version", "opwire " OPWIRE_VERSION);
  Common common;
  std::function<opwire::Status()> chosen;
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--registry,--host", common.registries,
                 "A registry to ask, which may be given again, or ssh://HOST: yours on a host that "
                 "ssh reaches (default: OPWIRE_REGISTRY, else your own)")
      ->type_name("ADDRESS")
      ->allow_extra_args(false);
  app.add_option("--on", common.device,
                 "Only on this device or executor: cpu, cuda:1, an executor's id")
      ->type_name("DEVICE");
  app.add_flag("--json", common.json, "Print JSON, errors too");

  UpArgs up;
  CLI::App* command =
      Command(app, "up", "Start a registry and executors of your own, until Ctrl-C",
              "  opwire up\n  opwire up --device cpu --data ./tensors\n  opwire up --detach\n");
  command
      ->add_option("--device", up.devices,
                   "An executor for this device; may be given again (default: cpu)")
      ->type_name("DEVICE")
      ->allow_extra_args(false);
  command->add_option("--data", up.data, "Directory for save and load (default: none)")
      ->type_name("DIRECTORY");
  const auto hand_on = [&](const std::string& option, const std::string& does,
                           const std::string& type) {
    command
        ->add_option_function<std::vector<std::string>>(
            option,
            [&up, option](const std::vector<std::string>& values) {
              for (const std::string& v : values)
                up.executor.insert(up.executor.end(), {option, v});
            },
            does)
        ->type_name(type)
        ->allow_extra_args(false);
  };
  hand_on("--ops", "Folder of a user's op, or of such folders; may be given again (default: none)",
          "DIRECTORY");
  hand_on("--prefer", "A variant that comes first if it can run; may be given again", "OP@VARIANT");
  hand_on("--forbid", "A variant that is never run; may be given again", "OP@VARIANT");
  command->add_flag_callback(
      "--deterministic", [&up] { up.executor.push_back("--deterministic"); },
      "Only variants that give equal bits every time");
  command->add_flag("--detach", up.detach, "Return once they are ready, and leave them running");
  auto* const if_none = command->add_flag("--if-none", up.if_none,
                                          "Say where it is, and no more, where one runs already");
  command->add_flag("--where", up.where, "Say where one runs, and start none")->excludes(if_none);
  command
      ->add_option("--idle-timeout", up.idle_timeout_s,
                   "Stop when no session was open for this time (default: never)")
      ->check(CLI::Range(2, 86400).description(""))
      ->type_name("SECONDS");
  command->callback([&] { chosen = [&] { return Up(common, up); }; });

  bool here = false;
  command = Command(app, "devices", "Who is registered, and how busy; or what this machine has",
                    "  opwire devices\n  opwire devices --json\n  opwire devices --here\n");
  command->add_flag("--here", here, "What an executor could bind on this machine, and why not");
  command->callback([&] { chosen = [&] { return here ? DevicesHere(common) : Devices(common); }; });

  std::string op;
  command = Command(app, "ops", "The ops that an executor can run",
                    "  opwire ops\n  opwire ops matmul\n");
  command->add_option("op", op, "One op, with its attributes")->type_name("");
  command->callback([&] { chosen = [&] { return Ops(common, op); }; });

  ExplainArgs explain;
  command =
      Command(app, "explain",
              "Which variant runs an op, and why; how a program runs; or where a session would go",
              "  opwire explain matmul\n  opwire explain matmul f32\n  opwire explain mlp.opw "
              "--dim b=32\n  opwire explain --placement\n  opwire explain --placement mlp.opw\n");
  command
      ->add_option("op", explain.op,
                   "An op, or a program's file (with --placement: that, or nothing)")
      ->type_name("");
  command->add_option("dtype", explain.dtype, "An element type: f32, bf16, ...")->type_name("");
  command->add_option("--dim", explain.dims,
                      "NAME=SIZE: a size of the program (default: 64, or what is nearest)");
  command->add_flag("--placement", explain.placement, "Rank the executors for a session");
  AddPassOptions(*command, explain.passes);
  command->add_flag("--no-passes", explain.passes.none, kNoPasses)
      ->excludes(command->get_option("--exact"), command->get_option("--fast-math"));
  command->callback([&] {
    chosen = [&] {
      return explain.placement ? Placement(common, explain.op) : Explain(common, explain);
    };
  });

  Command(app, "report", "Every variant of every op: there, or why not",
          "  opwire report\n  opwire report --on cpu-0 --json\n")
      ->callback([&] { chosen = [&] { return ReportAll(common); }; });

  RunArgs run;
  command =
      Command(app, "run", "Run a program's file; without inputs, print its signature",
              "  opwire run mlp.opw\n  opwire run mlp.opw --in images=digits.npy --out "
              "probabilities=probs.npy\n"
              "  opwire run mlp.opw --in images=random:7 --dim b=32\n"
              "  opwire run step.opw --session train --in w=@w --in x=x.npy --out loss=@loss\n");
  command->add_option("file", run.file, "A program in text form (.opw)")->required()->type_name("");
  command
      ->add_option("--in", run.in,
                   "For each parameter: NAME=FILE.npy, NAME=random:SEED, NAME=NUMBER for a scalar "
                   "or dimension, or "
                   "NAME=@TENSOR for a tensor of the session")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--out", run.out,
          "For each result to keep: NAME=FILE.npy, or NAME=@TENSOR to leave it in the session")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_option("--dim", run.dims, "The value of a dimension ?NAME of random inputs")
      ->type_name("NAME=NUMBER")
      ->allow_extra_args(false);
  command
      ->add_option("--session", run.session,
                   "Run in the session of this name, which stays when the command ends; made where "
                   "there is none")
      ->type_name("NAME");
  command
      ->add_option("--memory", run.memory,
                   "The most that the session may hold: 4096, 64MiB, 2GiB (default: what the "
                   "executor allows)")
      ->type_name("BYTES");
  command->add_option("--repeat", run.repeat, "Runs; the shortest time is printed (default: 1)")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->type_name("N");
  command
      ->add_option("--deadline-ms", run.deadline_ms,
                   "Give up after this time (0, the default: never)")
      ->check(CLI::Range(0.0, 1e9).description(""))
      ->check([](const std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? "expected a number, got " + text
                                                              : std::string();
      })
      ->type_name("MS");
  command->add_flag("--profile", run.profile, "Print what each node took");
  AddPassOptions(*command, run.passes);
  command->add_flag("--no-passes", run.passes.none, kNoPasses)
      ->excludes(command->get_option("--exact"), command->get_option("--fast-math"));
  command->callback([&] { chosen = [&] { return Run(common, run); }; });

  OptArgs opt;
  command = Command(
      app, "opt", "Print a program after the passes, or what each of them did",
      "  opwire opt mlp.opw\n  opwire opt mlp.opw --stats --dim b=32\n  opwire opt mlp.opw --after "
      "simplify\n"
      "  opwire opt train.opw --grad w1,b1 --memory 2GiB\n  opwire opt mlp.opw --with ./my-pass\n");
  command->add_option("file", opt.file, "A program in text form (.opw)")->required()->type_name("");
  command->add_option("--after", opt.after, "End with this pass")->type_name("PASS");
  command->add_option("--skip", opt.skip, "Leave this pass out; may be given again")
      ->type_name("PASS")
      ->allow_extra_args(false);
  command
      ->add_option("--with", opt.with,
                   "A pass of your own: a program that reads a program's text and writes one; may "
                   "be given again")
      ->type_name("PROGRAM")
      ->allow_extra_args(false);
  command
      ->add_option("--grad", opt.grad,
                   "First add the loss's gradients by these parameters, as results grad.NAME")
      ->type_name("NAME,NAME")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--loss", opt.loss,
                   "The result to differentiate (default: the only float of rank 0)")
      ->type_name("NAME");
  command
      ->add_option("--memory", opt.memory,
                   "The most that values may take at one time: 64MiB, 2GiB; what takes more is "
                   "computed again where it is needed late")
      ->type_name("BYTES");
  command->add_flag(
      "--stats", opt.stats,
      "Print each pass's time, changes, and nodes, bytes moved and peak memory before and after");
  command->add_option("--dim", opt.dims, "The value of a dimension ?NAME for --stats (default: 64)")
      ->type_name("NAME=NUMBER")
      ->allow_extra_args(false);
  AddPassOptions(*command, opt.passes);
  command->callback([&] { chosen = [&] { return Opt(common, opt); }; });

  NewOpArgs new_op;
  command = Command(app, "new-op", "Write a folder with an op of your own, to be changed",
                    "  opwire new-op gelu_bias\n  opwire build gelu_bias\n");
  command->add_option("name", new_op.name, "Programs will call it user.NAME")
      ->required()
      ->type_name("");
  command->add_option("--dir", new_op.directory, "Where its folder goes (default: here)")
      ->type_name("DIRECTORY");
  command->callback([&] { chosen = [&] { return NewOp(common, new_op); }; });

  BuildArgs build;
  command = Command(app, "build",
                    "Build ops of your own, check them against their references, measure them",
                    "  opwire build gelu_bias\n  opwire build --on cuda:0 gelu_bias\n  opwire "
                    "build --all my_ops\n");
  command->add_option("directory", build.directories, "Folders of ops, or of such folders")
      ->required()
      ->type_name("");
  command->add_flag(
      "--all", build.all,
      "For older processors too; objects go into the folder, for machines without a compiler");
  command->add_flag("--quick", build.quick, "A small case of each type only, and no measurement");
  command->add_option("--seed", build.seed, "Of the inputs (default: 1)")->type_name("N");
  command->callback([&] { chosen = [&] { return Build(common, build); }; });

  CacheArgs cache;
  command =
      Command(app, "cache", "What was built: list it, or remove it",
              "  opwire cache list\n  opwire cache prune\n  opwire cache prune --bytes 1000000\n");
  command->require_subcommand(1);
  command->add_subcommand("list", "Every object, the latest used first")->callback([&] {
    chosen = [&] { return Cache(common, cache); };
  });
  CLI::App* prune = command->add_subcommand("prune", "Remove objects, the least lately used first");
  prune->add_option("--bytes", cache.bytes, "How much may stay (default: 0)")
      ->check(CLI::NonNegativeNumber.description(""))
      ->type_name("N");
  prune->callback([&] {
    cache.prune = true;
    chosen = [&] { return Cache(common, cache); };
  });

  Command(app, "keys", "Your public key for tcp, made if there is none",
          "  opwire keys\n  opwire keys --json\n")
      ->callback([&] { chosen = [&] { return Keys(common); }; });

  SessionsArgs sessions;
  command = Command(app, "sessions", "Your sessions and what they hold",
                    "  opwire sessions\n  opwire sessions --end train\n");
  command->add_option("--end", sessions.end, "End the session of this name; what it holds is freed")
      ->type_name("NAME");
  command->callback([&] { chosen = [&] { return Sessions(common, sessions); }; });

  GrantsArgs grants;
  command = Command(app, "grants", "What your sessions grant to others",
                    "  opwire grants\n  opwire grants --revoke 0123456789abcdef0123456789abcdef\n");
  command
      ->add_option("--revoke", grants.revoke,
                   "End the grant of this capability; who took the tensor keeps it")
      ->type_name("CAPABILITY");
  command->callback([&] { chosen = [&] { return Grants(common, grants); }; });

  if (argc == 1) {
    fmt::print(stderr, "{}", app.help());
    return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    for (int i = 1; i < argc; ++i)
      common.json = common.json || std::string_view(argv[i]) == "--json";
    return Fail(common, UsageOf(app, e));
  }
  opwire::Status status;
  try {
    status = chosen();
    // Printed text may still be in a buffer.
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw std::system_error(errno, std::generic_category());
  } catch (const std::system_error& e) {
    status = opwire::DataLoss("the output cannot be written: {}", e.code().message());
  } catch (const std::exception& e) {
    status = WithNext(
        opwire::Internal("an executor's answer is not what this release expects: {}", e.what()),
        "install the same release on both sides");
  }
  return Fail(common, status);
}
