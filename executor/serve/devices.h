// `opwire-executor devices`: what this machine has, and whether an executor can bind it. `opwire
// devices --here` runs it.
#ifndef OPWIRE_EXECUTOR_SERVE_DEVICES_H_
#define OPWIRE_EXECUTOR_SERVE_DEVICES_H_

namespace opwire::executor {

// Prints every device with the reason, as a table or as JSON. Binds none. The exit code: 0.
int ShowDevices(bool as_json);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_DEVICES_H_
