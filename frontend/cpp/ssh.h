// Executors of another host, through the system's ssh: whatever the user may do there by `ssh HOST`
// needs no open port and none of our keys.
//
// One ssh process holds the connection. It starts a registry and an executor there if none runs
// (`opwire up`), and forwards Unix sockets of this host to theirs. It ends with this process,
// however that ends: its input is a pipe from this process.
#ifndef OPWIRE_FRONTEND_CPP_SSH_H_
#define OPWIRE_FRONTEND_CPP_SSH_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "ir/base/owned_fd.h"
#include "ir/base/status.h"

namespace opwire::client {

inline bool IsSsh(std::string_view address) { return address.starts_with("ssh://"); }
// INVALID_ARGUMENT unless "ssh://[USER@]HOST[:PORT]", with a HOST that ssh knows.
Status CheckSsh(std::string_view address);

class SshHost {
 public:
  struct Options {
    bool start = true;                  // start a registry and an executor, if none runs
    std::function<bool()> interrupted;  // as in ClientOptions; may be empty
    std::function<void(std::string_view)>
        notice;  // called with one line about started processes; may be empty
  };
  // REQUIRES: CheckSsh(address). Opens no connection yet.
  SshHost(std::string address, Options options)
      : address_(std::move(address)), options_(std::move(options)) {}
  ~SshHost();
  SshHost(const SshHost&) = delete;

  // Returns the host's registry as an ipc endpoint on this host. Makes the connection if there is
  // none. UNAVAILABLE with the output of ssh, or of the other host's `opwire up`; CANCELLED.
  StatusOr<std::string> Registry();
  // The same for any ipc endpoint there; others are unchanged.
  StatusOr<std::string> Reach(const std::string& endpoint);
  // Ends the connection: the next use makes another.
  void Disconnect();
  // "ada@gpubox:22", as in the address.
  std::string_view name() const { return std::string_view(address_).substr(6); }

 private:
  Status Connect();
  void End();
  bool Alive();
  Status Open();
  StatusOr<std::string> Forward(const std::string& endpoint);
  // Starts ssh with these words after its own options, and its output in `out`. Returns the
  // process.
  StatusOr<pid_t> Spawn(const std::vector<std::string>& words, int in, int out) const;
  StatusOr<std::string> FirstLine(int from);
  std::string Said() const;
  Status Failed() const;

  const std::string address_;
  const Options options_;
  std::recursive_mutex mutex_;
  std::string directory_;  // of the sockets on this host; empty: there is no connection
  std::string registry_;   // on the other host
  std::map<std::string, std::string> forwarded_;  // endpoints on the other host and on this one
  OwnedFd in_;                                    // ssh's input
  pid_t ssh_ = -1;
  pid_t owner_ = -1;  // the process that started it: a forked process does not touch it
};

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_SSH_H_
