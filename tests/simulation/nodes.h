// A registry and executors for the simulated network: the real state machines in shells without
// sockets and threads.
#ifndef OPWIRE_TESTS_SIMULATION_NODES_H_
#define OPWIRE_TESTS_SIMULATION_NODES_H_

#include <memory>
#include <string>

#include "executor/serve/core.h"
#include "registry/client/announcer.h"
#include "registry/state/state.h"
#include "tests/simulation/network.h"

namespace opwire::sim {
using namespace executor;

inline const std::string kRegistry = "registry";

class RegistryNode : public Server {
 public:
  RegistryNode(Clock& clock, Network& network) : clock_(clock), network_(network) { Start(); }
  void Start() {
    state_ = std::make_unique<RegistryState>(++epoch_, clock_.now(), RegistryOptions{});
    network_.Listen(kRegistry, 0, this);
  }
  void Stop() {
    network_.Listen(kRegistry, 0, nullptr);
    state_.reset();
  }
  void OnMessage(PeerId peer, const std::string& head, const std::string&) override {
    if (state_) SendAll(state_->OnMessage(clock_.now(), peer, AsBytes(head)));
  }
  void OnGone(PeerId peer) override {
    if (state_) state_->OnPeerGone(peer);
  }
  void Tick() {
    if (state_) SendAll(state_->OnTick(clock_.now()));
  }
  RegistryState* state() { return state_.get(); }

 private:
  void SendAll(std::vector<Outgoing> out) {
    for (Outgoing& o : out) network_.SendToClient(o.peer, std::move(o.bytes));
  }
  Clock& clock_;
  Network& network_;
  std::unique_ptr<RegistryState> state_;
  uint64_t epoch_ = 0;
};

class ExecutorNode : public Shell {
 public:
  ExecutorNode(Clock& clock, Network& network, NodeId node, uint64_t seed, Device& device,
               const VariantTable& variants, Nanos (*time)())
      : clock_(clock),
        network_(network),
        node_(node),
        seed_(seed),
        device_(device),
        variants_(variants),
        time_(time),
        run_(*this),
        control_(*this) {
    Start();
  }
  ~ExecutorNode() override { core_.reset(); }

  std::string id() const { return "e" + std::to_string(node_); }
  uint64_t incarnation() const { return incarnation_; }
  Core* core() { return core_.get(); }

  void Start() {
    ++incarnation_;
    CoreOptions options;
    options.executor_id = id();
    options.incarnation = incarnation_;
    options.run_endpoint = id() + ".run";
    options.token_seed = (seed_ << 16) + static_cast<uint64_t>(node_) * 1000 + incarnation_;
    options.clock = time_;
    options.limits[LimitId::kCreditRequests] = 8;
    options.limits[LimitId::kLeaseSeconds] = 5;
    core_ = std::make_unique<Core>(options, device_,
                                   std::make_shared<KernelSet>(KernelSet{.variants = variants_}),
                                   nullptr, *this);
    fb::ExecutorInfoT info;
    info.id = id();
    info.incarnation = incarnation_;
    info.control_endpoint = id() + ".ctl";
    info.device = "cpu";
    announcer_ = std::make_unique<Announcer>(std::move(info),
                                             std::vector<uint8_t>(16, static_cast<uint8_t>(node_)));
    network_.Listen(id() + ".run", node_, &run_);
    network_.Listen(id() + ".ctl", node_, &control_);
  }
  // As kill -9.
  void Stop() {
    network_.Listen(id() + ".run", node_, nullptr);
    network_.Listen(id() + ".ctl", node_, nullptr);
    core_.reset();
    announcer_.reset();
    if (link_) network_.Close(std::exchange(link_, 0));
  }
  // Every hundredth of a second, and once a second for the core.
  void Tick() {
    if (!core_) return;
    const Nanos now = clock_.now();
    if (core_->HasReplies()) {
      core_->Flush(now);
      WorkSoon();
    }
    if (now >= next_tick_) {
      core_->OnTick(now);
      next_tick_ = now + kSecond;
    }
    if (!link_) {
      link_ = network_.Connect(node_, kRegistry,
                               {[this](ClientChannel::Message m) {
                                  if (announcer_)
                                    announcer_->OnReply(clock_.now(), AsBytes(m.head));
                                },
                                [this] { link_ = 0; }});
      announcer_->OnConnected(now);
    }
    if (auto out = announcer_->OnTick(now, {})) network_.SendToServer(link_, std::move(*out));
    if (announcer_->Silent(now)) network_.Close(std::exchange(link_, 0));
  }

 private:
  struct Door : Server {
    explicit Door(ExecutorNode& e) : e(e) {}
    ExecutorNode& e;
  };
  struct RunDoor : Door {
    using Door::Door;
    void OnMessage(PeerId peer, const std::string& head, const std::string& bulk) override {
      if (!e.core_) return;
      e.core_->OnMessage(e.clock_.now(), peer, AsBytes(head), AsBytes(bulk));
      e.WorkSoon();
    }
    void OnGone(PeerId peer) override {
      if (!e.core_) return;
      e.core_->OnPeerGone(e.clock_.now(), peer);
      e.WorkSoon();
    }
  };
  struct ControlDoor : Door {
    using Door::Door;
    void OnMessage(PeerId peer, const std::string& head, const std::string&) override {
      if (!e.core_) return;
      e.core_->OnControl(e.clock_.now(), peer, "sim", AsBytes(head));
      e.WorkSoon();
    }
    void OnGone(PeerId) override {}
  };

  Status Send(PeerId peer, Bytes head, Bytes bulk) override {
    if (network_.Full(peer)) return ResourceExhausted("the peer does not read its messages");
    const auto text = [](Bytes b) {
      return std::string(reinterpret_cast<const char*>(b.data()), b.size());
    };
    network_.SendToClient(peer, text(head), text(bulk));
    return absl::OkStatus();
  }
  bool Gathers(PeerId peer) const override { return peer % 2 == 0; }
  void SendControl(PeerId peer, std::string head) override {
    network_.SendToClient(peer, std::move(head));
  }
  void Submit(std::function<void()> work, std::function<void()> done) override {
    clock_.After(kMillisecond, [this, work = std::move(work), done = std::move(done),
                                incarnation = incarnation_] {
      if (!core_ || incarnation != incarnation_) return;
      work();
      core_->OnJobDone(clock_.now(), done);
      WorkSoon();
    });
  }
  void Drop(PeerId peer) override { network_.Drop(peer); }
  // One request at a time, so that messages come in between.
  void WorkSoon() {
    if (working_ || !core_->HasWork()) return;
    working_ = true;
    clock_.After(100 * kMicrosecond, [this, incarnation = incarnation_] {
      working_ = false;
      if (!core_) return;
      if (core_->HasWork()) core_->Work(clock_.now());
      WorkSoon();
    });
  }

  Clock& clock_;
  Network& network_;
  const NodeId node_;
  const uint64_t seed_;
  Device& device_;
  const VariantTable& variants_;
  Nanos (*const time_)();
  RunDoor run_;
  ControlDoor control_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<Announcer> announcer_;
  PeerId link_ = 0;
  Nanos next_tick_ = 0;
  uint64_t incarnation_ = 0;
  bool working_ = false;
};

}  // namespace opwire::sim

#endif  // OPWIRE_TESTS_SIMULATION_NODES_H_
