// The host thread: control socket, registry links, timers, watchdog. It never runs a kernel, so it
// can answer meanwhile.
#ifndef OPWIRE_EXECUTOR_SERVE_HOST_THREAD_H_
#define OPWIRE_EXECUTOR_SERVE_HOST_THREAD_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "executor/serve/device_thread.h"
#include "executor/serve/mailbox.h"
#include "ir/wire/zmq_channel.h"
#include "registry/client/announcer.h"

namespace opwire::executor {

struct HostOptions {
  std::vector<std::string> registries;
  fb::ExecutorInfoT info;      // for the registries
  std::vector<uint8_t> claim;  // of the name, for the registries
  bool share = false;
  Nanos drain_timeout = 10 * kSecond;
  Nanos kernel_timeout = 0;  // 0: none
  int ring_listener = -1;    // a listening Unix socket; -1: none
  int max_rings = 0;
};

class HostThread {
 public:
  // Exit codes of opwire-executor.
  enum : int { kDrained = 0, kDeviceFault = 4, kRegistryRefused = 5 };

  HostThread(HostOptions options, ZmqContext& context, std::unique_ptr<Router> control,
             CrashRecord* crash);
  ~HostThread();

  // Device thread: the reply of a control peer.
  void SendControl(PeerId peer, std::string reply);
  // Device thread: logs a line. At most ten per second; the next line has the number of the others.
  void NoteFailedRun(FailedRun failed);
  // Any thread: registries get these ops afterwards.
  void SetOps(std::shared_ptr<const KernelSet> kernels);
  // Runs on the calling thread until a signal has drained the executor. The device thread was told
  // to stop by then.
  int Run(DeviceThread& device, int signal_fd);

 private:
  // Short at first: an executor and its registry are often started together.
  static constexpr Nanos kFirstBackoff = 50 * kMillisecond;
  // If another executor has the name. Longer than the time after which a registry drops an executor
  // that ended silently.
  static constexpr Nanos kNamePatience = 5 * kSecond;
  struct Link {
    std::string registry;
    Announcer announcer;
    std::unique_ptr<Dealer> dealer;
    Nanos retry_at = 0;
    Nanos backoff = kFirstBackoff;
    Status refusal;
  };

  void OnControl(DeviceThread& device, const Incoming& message);
  void OnTick(DeviceThread& device, Nanos now);
  void Disconnect(Link& link, Nanos now, const std::string& why);
  void Announce(DeviceThread& device, Link& link, Nanos now);
  void Hear(Link& link, Nanos now);
  fb::LoadInfoT LoadOf(DeviceThread& device, Nanos now) const;
  void Watch(DeviceThread& device, Nanos now);
  bool Drained(DeviceThread& device, Nanos now);

  HostOptions options_;
  ZmqContext& context_;
  std::unique_ptr<Router> control_;
  const bool keyed_;  // every peer has a key
  CrashRecord* const crash_;
  Mailbox mailbox_;
  const int alarm_;  // a timer: rings when a run's deadline may have passed
  std::vector<Link> links_;
  struct Peer {
    std::string principal;
    bool served = false;  // false: of another user, and this executor is not shared
    Role role = Role::kExecute;
    int unanswered = 0;  // requests that the device thread has not answered yet
    int refused = 0;
    std::shared_ptr<std::atomic<bool>> gone;  // the client no longer waits for answers
  };
  Peer PeerOf(const Incoming& message) const;

  absl::flat_hash_map<PeerId, Peer> peers_;
  AlignedBytes decode_;
  Nanos drain_until_ = 0;  // 0: not draining
  bool idle_ = false;      // the device thread's last report while draining
  bool served_ = false;    // a registry knew it, or there was a session
  bool refused_ = false;   // by a registry
  Nanos begun_ = 0;
  // Used by the device thread, for lines about failed runs.
  Nanos second_ = 0;  // the end of the present second
  int lines_ = 0;     // in it
  uint64_t left_out_ = 0;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_HOST_THREAD_H_
