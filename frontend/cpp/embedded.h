// Executors of this user's own where nothing runs: a registry and an executor under a supervisor
// (`opwire up`) that outlives the client and leaves when nobody uses it.
#ifndef OPWIRE_FRONTEND_CPP_EMBEDDED_H_
#define OPWIRE_FRONTEND_CPP_EMBEDDED_H_

#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace opwire {

// Without a session for this long it leaves.
inline constexpr int kEmbeddedIdleSeconds = 60;

// Whoever supervises a registry at this ipc endpoint holds this file's lock (flock), also while its
// registry is being restarted.
std::string SupervisorLock(const std::string& registry);

// Waits, for five seconds at the most, until somebody listens at an ipc endpoint where nobody does
// but that is supervised. False at once where it is not.
bool ComesBack(const std::string& registry);

// Starts them for `registry`, an ipc endpoint, and returns true once they are registered; false
// where somebody listens there, or supervises it: of several callers one starts them, and the
// others wait for it. `device` as SessionOptions::device: a kind that an executor can bind, else
// "auto" decides. The program is $OPWIRE_PROGRAM, else `opwire` beside this process's own, else the
// PATH's. UNAVAILABLE with what it said.
StatusOr<bool> StartEmbedded(const std::string& registry, std::string_view device);

}  // namespace opwire

#endif  // OPWIRE_FRONTEND_CPP_EMBEDDED_H_
