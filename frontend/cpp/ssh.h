// Executors of another host, by way of the system's ssh: what the user may do there by `ssh HOST`
// needs no open port and no keys of ours.
//
// One ssh process holds the connection. It starts a registry and an executor there where none runs
// (`opwire up`), and forwards Unix sockets of this host's to theirs. It ends with this process,
// however that ends: its input is a pipe from here.
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

namespace opwire {

inline bool IsSsh(std::string_view address) { return address.starts_with("ssh://"); }
// INVALID_ARGUMENT unless "ssh://[USER@]HOST[:PORT]", HOST being a name that ssh knows.
Status CheckSsh(std::string_view address);

class SshHost {
 public:
  struct Options {
    bool start = true;                  // a registry and an executor, where none runs
    std::function<bool()> interrupted;  // as ClientOptions has it; may be empty
    std::function<void(std::string_view)>
        notice;  // hears in one line what was started; may be empty
  };
  // REQUIRES: CheckSsh(address). Talks to nobody yet.
  SshHost(std::string address, Options options)
      : address_(std::move(address)), options_(std::move(options)) {}
  ~SshHost();
  SshHost(const SshHost&) = delete;

  // The host's registry as an ipc endpoint of this host's, with the connection made where there is
  // none. UNAVAILABLE with what ssh, or the other host's `opwire up`, said; CANCELLED.
  StatusOr<std::string> Registry();
  // The same of any ipc endpoint there; others as they are.
  StatusOr<std::string> Reach(const std::string& endpoint);
  // Ends the connection: the next use makes another.
  void Disconnect();
  // "ada@gpubox:22", as the address has it.
  std::string_view name() const { return std::string_view(address_).substr(6); }

 private:
  Status Connect();
  void End();
  bool Alive();
  Status Open();
  StatusOr<std::string> Forward(const std::string& endpoint);
  // Starts ssh with these words behind its own options, its output in `from`; the process.
  StatusOr<pid_t> Spawn(const std::vector<std::string>& words, int in, int out) const;
  StatusOr<std::string> FirstLine(int from);
  std::string Said() const;
  Status Failed() const;

  const std::string address_;
  const Options options_;
  std::recursive_mutex mutex_;
  std::string directory_;  // of the sockets here; empty: there is no connection
  std::string registry_;   // there
  std::map<std::string, std::string> forwarded_;  // endpoints there and here
  OwnedFd in_;                                    // ssh's input
  pid_t ssh_ = -1;
  pid_t owner_ = -1;  // the process that started it: one that was forked from it leaves it alone
};

}  // namespace opwire

#endif  // OPWIRE_FRONTEND_CPP_SSH_H_
