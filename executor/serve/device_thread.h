// The device thread: owns the core, the run socket and the rings. It drains messages, works, and
// parks. A run needs no other thread.
#ifndef OPWIRE_EXECUTOR_SERVE_DEVICE_THREAD_H_
#define OPWIRE_EXECUTOR_SERVE_DEVICE_THREAD_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "executor/serve/core.h"
#include "executor/serve/mailbox.h"
#include "executor/serve/workers.h"
#include "ir/wire/zmq_channel.h"

namespace opwire::executor {

class DeviceThread : private Shell {
 public:
  // `send_control` is called on this thread with a control peer's reply.
  DeviceThread(CoreOptions options, std::unique_ptr<Router> router, Device& device,
               std::shared_ptr<const KernelSet> kernels, CrashRecord* crash,
               std::function<void(PeerId, std::string)> send_control);
  ~DeviceThread() override;

  // Runs the loop on the calling thread until Stop.
  void Run();
  // Any thread: `f` on the device thread.
  void Post(std::function<void()> f) { mailbox_.Post(std::move(f)); }
  // Device thread: leaves Run.
  void Stop() { stopped_ = true; }

  // A channel in addition to the run socket. Its peers have ids with kRingBit set.
  class Ring {
   public:
    virtual ~Ring() = default;
    // Passes waiting messages to the core, up to 64.
    virtual bool Drain(Core& core, Nanos now) = 0;
    virtual Status Send(Bytes head, Bytes bulk) = 0;
    virtual int fd() const = 0;
    // Prepares to park. Returns false if a message arrived meanwhile.
    virtual bool Park() = 0;
    virtual void Wake() = 0;
  };
  static constexpr PeerId kRingBit = PeerId{1} << 62;
  // Device thread.
  void AddRing(PeerId peer, std::unique_ptr<Ring> ring);
  void RemoveRing(PeerId peer, std::function<bool()> has_ended);

  Core& core() { return core_; }

 private:
  Status Send(PeerId peer, Bytes head, Bytes bulk) override;
  // The I/O thread wakes up once for all of them, and sends them with one system call.
  bool Gathers(PeerId peer) const override { return !(peer & kRingBit); }
  void SendControl(PeerId peer, std::string head) override { send_control_(peer, std::move(head)); }
  void Submit(std::function<void()> work, std::function<void()> done) override;
  void Drop(PeerId peer) override;
  bool Drain();
  void Park();
  void TakeGone();

  std::unique_ptr<Router> router_;
  std::function<void(PeerId, std::string)> send_control_;
  Mailbox mailbox_;
  Nanos slice_;
  absl::flat_hash_map<PeerId, std::unique_ptr<Ring>> rings_;
  std::vector<PeerId> dropped_rings_;
  std::vector<PeerId> gone_;
  std::vector<int> fds_;
  Nanos next_tick_ = 0;
  Nanos spin_until_ = 0;
  Nanos router_next_ = 0;     // when to check the run socket during ring traffic
  bool router_seen_ = false;  // by the last Drain
  bool stopped_ = false;
  // Last: its destructor ends sessions and still drops their connections.
  Core core_;
  std::unique_ptr<Workers> workers_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_DEVICE_THREAD_H_
