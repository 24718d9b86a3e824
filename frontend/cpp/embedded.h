// Executors of this user, started if no registry runs: a registry and an executor under a
// supervisor (`opwire up`) that outlives the client and ends when it is unused.
#ifndef OPWIRE_FRONTEND_CPP_EMBEDDED_H_
#define OPWIRE_FRONTEND_CPP_EMBEDDED_H_

#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace opwire::client {

// It ends after this time without a session.
inline constexpr int kEmbeddedIdleSeconds = 60;

// The supervisor of a registry at this ipc endpoint holds this file's lock (flock), also while its
// registry is being restarted.
std::string SupervisorLock(const std::string& registry);

// Waits, for at most five seconds, until a process listens at an ipc endpoint that is supervised
// but has no listener. Returns false at once if it is not supervised.
bool ComesBack(const std::string& registry);

// Starts them for `registry`, an ipc endpoint, and returns true once they are registered. Returns
// false if a process listens there or supervises it. Of several callers one starts them, and the
// others wait for it. `device` as SessionOptions::device: a kind that an executor can bind, else
// "auto" decides. The program is $OPWIRE_PROGRAM, else `opwire` in the folder of this process's
// program, else the PATH's. UNAVAILABLE with its output.
StatusOr<bool> StartEmbedded(const std::string& registry, std::string_view device);

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_EMBEDDED_H_
