// `opwire-executor build` and `opwire-executor cache`: what `opwire build` and `opwire cache` run.
#ifndef OPWIRE_EXECUTOR_OPS_COMMAND_H_
#define OPWIRE_EXECUTOR_OPS_COMMAND_H_

namespace opwire::ops {

// argv[1] is "build" or "cache". The exit code: 0 done, 1 something failed, 2 usage.
int CommandMain(int argc, char** argv);

}  // namespace opwire::ops

#endif  // OPWIRE_EXECUTOR_OPS_COMMAND_H_
