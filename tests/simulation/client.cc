// The policy of the simulated client.
#include "tests/simulation/client.h"

#include <cstring>

#include "tests/simulation/nodes.h"

namespace opwire::sim {
namespace {

constexpr uint32_t kIncrementSlot = 1, kDoubleSlot = 2;
constexpr int kAttempts = 3;  // to resume after a broken connection

}  // namespace

ClientNode::ClientNode(Clock& clock, Network& network, NodeId node, uint64_t seed, int requests,
                       std::vector<std::string> programs)
    : clock_(clock),
      network_(network),
      node_(node),
      random_(seed),
      requests_(requests),
      programs_(std::move(programs)) {
  WaitThen(kMillisecond, &ClientNode::Ask);
}

std::string ClientNode::Describe() const {
  return fmt::format("client {}: phase {}, {} issued, {} open, {} sessions", node_,
                     static_cast<int>(phase_), issued_, open_.size(), sessions_);
}

void ClientNode::WaitThen(Nanos delay, void (ClientNode::*next)()) {
  phase_ = Phase::kWaiting;
  ++step_;
  clock_.After(delay, Guarded([this, next] { (this->*next)(); }));
}

void ClientNode::Ask() {
  phase_ = Phase::kAsking;
  ++step_;
  const PeerId registry =
      network_.Connect(node_, kRegistry,
                       {Guarded([this](ClientChannel::Message m) { OnExecutors(m); }),
                        Guarded([this] { WaitThen(100 * kMillisecond, &ClientNode::Ask); })});
  control_ = registry;
  network_.SendToServer(registry, EncodeRequest(1, fb::QueryT()));
  clock_.After(kSecond, Guarded([this] {
                 network_.Close(control_);
                 WaitThen(100 * kMillisecond, &ClientNode::Ask);
               }));
}

void ClientNode::OnExecutors(const ClientChannel::Message& m) {
  network_.Close(control_);
  AlignedBytes memory;
  auto reply = DecodeReply(AsBytes(m.head), memory);
  const fb::QueryReply* body = reply.ok() ? (*reply)->body_as_QueryReply() : nullptr;
  if (!body) return Complain("the registry answered something else");
  if (!body->executors() || body->executors()->size() == 0)
    return WaitThen(100 * kMillisecond, &ClientNode::Ask);
  executor_ = body->executors()
                  ->Get(static_cast<uint32_t>(random_() % body->executors()->size()))
                  ->id()
                  ->str();
  attempts_ = 0;
  Hello();
}

void ClientNode::Hello() {
  phase_ = Phase::kHello;
  ++step_;
  const auto failed = Guarded([this] {
    network_.Close(control_);
    // It asks a few times for a session that may still exist, and looks for a new one elsewhere.
    if (!token_.empty() && ++attempts_ < kAttempts)
      return WaitThen(200 * kMillisecond, &ClientNode::Hello);
    LoseSession(Unavailable("executor {} is gone", executor_));
  });
  control_ = network_.Connect(node_, executor_ + ".ctl",
                              {Guarded([this](ClientChannel::Message m) { OnHello(m); }), failed});
  fb::HelloT hello;
  hello.major = kProtocolMajor;
  hello.token = token_;
  network_.SendToServer(control_, EncodeRequest(1, std::move(hello)));
  clock_.After(kSecond, failed);
}

void ClientNode::OnHello(const ClientChannel::Message& m) {
  AlignedBytes memory;
  auto reply = DecodeReply(AsBytes(m.head), memory);
  if (!reply.ok()) return Complain("Hello was answered with bytes that are no reply");
  const Status status = StatusOf(**reply);
  network_.Close(control_);
  if (!status.ok()) return LoseSession(status);
  fb::HelloReplyT hello;
  (*reply)->body_as_HelloReply()->UnPackTo(&hello);
  if (token_.empty()) ++sessions_;
  token_ = hello.token;
  attachment_ = hello.attachment;
  flight_.SetCredit(hello.credit_requests, hello.credit_bytes);
  phase_ = Phase::kAttaching;
  ++step_;
  run_ = network_.Connect(
      node_, hello.run_endpoint,
      {[this, token = token_](ClientChannel::Message message) {
         if (token == token_ && (phase_ == Phase::kAttaching || phase_ == Phase::kReady))
           OnRun(message);
       },
       [this, token = token_] {
         if (token == token_ && (phase_ == Phase::kAttaching || phase_ == Phase::kReady)) OnLost();
       }});
  fb::AttachT attach;
  attach.token = token_;
  attach.attachment = attachment_;
  network_.SendToServer(run_, EncodeRequest(0, std::move(attach)));
  clock_.After(2 * kSecond, Guarded([this] { OnLost(); }));
}

void ClientNode::OnLost() {
  network_.Close(run_);
  attempts_ = 0;
  Hello();
}

void ClientNode::LoseSession(const Status& why) {
  flight_.FailAll(Unavailable("lost: {}", MessageOf(why)));
  Collect();
  if (!open_.empty()) Complain("a request outlived its session");
  flight_.Restart();
  token_.clear();
  counted_ = 0;
  WaitThen(100 * kMillisecond, &ClientNode::Ask);
}

void ClientNode::OnRun(const ClientChannel::Message& m) {
  if (phase_ == Phase::kAttaching) {
    AlignedBytes memory;
    auto reply = DecodeReply(AsBytes(m.head), memory);
    if (!reply.ok()) return Complain("bytes that are no reply");
    if ((*reply)->seq() != 0) return;  // of before; it will come again
    if (const Status status = StatusOf(**reply); !status.ok()) return LoseSession(status);
    phase_ = Phase::kReady;
    ++step_;
    for (const uint64_t ticket : flight_.Unanswered()) {
      const Flight::Again again = *flight_.Find(ticket);
      const auto text = [](Bytes b) {
        return std::string(reinterpret_cast<const char*>(b.data()), b.size());
      };
      network_.SendToServer(run_, text(again.head), text(again.bulk));
    }
    if (flight_.next_seq() == 1) {
      for (uint32_t slot : {kIncrementSlot, kDoubleSlot}) {
        fb::PutProgramT put;
        put.slot = slot;
        Send(Kind::kProgram, std::move(put), programs_[slot - 1]);
      }
      fb::PutT put;
      put.id = std::make_unique<fb::TensorId>(attachment_, 0, 1);
      put.type = std::make_unique<fb::TensorTypeT>();
      put.type->dtype = static_cast<uint8_t>(DType::kF32);
      put.type->shape = {1};
      put.bytes_follow = true;
      Send(Kind::kPut, std::move(put), std::string(4, '\0'));
    }
    return Issue();
  }
  Status stray;
  auto known = flight_.OnMessage(m, stray);
  if (!known.ok()) return Complain("bytes that are no reply");
  if (absl::IsAborted(stray)) return OnLost();  // "attach first"
  Collect();
}

template <typename BodyT>
void ClientNode::Send(Kind kind, BodyT body, const std::string& bulk, float argument,
                      bool may_stop) {
  fb::RequestT request;
  request.seq = flight_.next_seq();
  request.acked = flight_.acked();
  request.body.Set(std::move(body));
  const std::string head = EncodeRequest(request);
  const uint64_t ticket = flight_.Sent(AsBytes(head), AsBytes(bulk));
  open_[ticket] = {kind, argument, may_stop};
  network_.SendToServer(run_, head, bulk);
}

// Issues one more request, if there is credit, and the next one after a while.
void ClientNode::Issue() {
  if (issued_ == requests_) return;
  if (flight_.HasCredit(1000)) {
    ++issued_;
    const bool increment = random_() % 3 != 0, deadline = random_() % 10 == 0,
               cancel = random_() % 10 == 0;
    fb::RunT run;
    run.slot = increment ? kIncrementSlot : kDoubleSlot;
    float argument = 0;
    if (increment) {
      run.bindings.emplace_back(fb::BindingKind::Tensor, 0, 0, 0, attachment_, 1, 0);
    } else {
      argument = static_cast<float>(random_() % 1000);
      uint64_t bits = 0;
      std::memcpy(&bits, &argument, sizeof(argument));
      run.bindings.emplace_back(fb::BindingKind::Scalar, static_cast<uint8_t>(DType::kF32), 0, 0, 0,
                                bits, 0);
    }
    run.results.emplace_back(fb::ResultKind::Inline, 0, 0);
    if (deadline) run.deadline_us = 1 + random_() % 2000;
    const uint64_t seq = flight_.next_seq();
    Send(increment ? Kind::kIncrement : Kind::kDouble, std::move(run), "", argument,
         deadline || cancel);
    if (cancel) {
      fb::CancelT body;
      body.token = token_;
      body.attachment = attachment_;
      body.seq = seq;
      // No client waits for its answer.
      const PeerId control = network_.Connect(node_, executor_ + ".ctl", {});
      network_.SendToServer(control, EncodeRequest(1, std::move(body)));
      clock_.After(kSecond, [this, control] { network_.Close(control); });
    }
  }
  clock_.After(static_cast<Nanos>(random_() % static_cast<uint64_t>(100 * kMillisecond)),
               Guarded([this] { Issue(); }));
}

void ClientNode::Collect() {
  for (auto it = open_.begin(); it != open_.end();) {
    if (!flight_.Ended(it->first)) {
      ++it;
      continue;
    }
    Check(it->first, it->second, flight_.Take(it->first));
    it = open_.erase(it);
  }
}

void ClientNode::Check(uint64_t ticket, const Open& open, const StatusOr<Flight::Answer>& answer) {
  if (!answer.ok()) {
    ++failed_;
    if (!absl::IsUnavailable(answer.status()))
      Complain(fmt::format("request {} ended with {}", ticket, answer.status().ToString()));
    return;
  }
  if (const Status status = StatusOf(*answer->reply); !status.ok()) {
    ++failed_;
    const bool stopped = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
    if (!stopped || !open.may_stop)
      Complain(fmt::format("request {} ended with {}", ticket, status.ToString()));
    return;
  }
  ++succeeded_;
  if (open.kind == Kind::kProgram || open.kind == Kind::kPut) return;
  const fb::RunReply* run = answer->reply->body_as_RunReply();
  if (!run || !run->payload() || run->payload()->size() < 4)
    return Complain("a run's reply has no result");
  float value;
  std::memcpy(&value, run->payload()->data(), sizeof(value));
  const float expected = open.kind == Kind::kDouble ? 2 * open.argument : counted_ + 1;
  if (value != expected)
    Complain(fmt::format("request {} returned {}, expected {}", ticket, value, expected));
  if (open.kind == Kind::kIncrement) counted_ = value;
}

}  // namespace opwire::sim
