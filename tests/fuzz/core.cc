// A real core behind a shell that records its messages. The input decides the clients' messages:
// runs, tensors and programs whose fields fit each other most of the time, on both sockets, in
// order or not. Connections end, do not read, and come back. Workers finish early, late or after
// their session. The kernels touch every byte of their operands and results. They fail, raise
// flags, meet bad values or are cancelled as the input says.
//
// The test checks these rules for every input. Each accepted request is answered exactly once while
// its client can receive the answer. The control socket answers each message once. No message
// exceeds its frame. After all sessions have ended, the executor counts the same memory as at the
// start.
#include "executor/serve/core.h"

#include <fuzzer/FuzzedDataProvider.h>
#include <sodium.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>

#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "kernels/device/host_device.h"

namespace opwire::executor {
namespace {

[[noreturn]] void Broken(const char* what) {
  std::fprintf(stderr, "core: %s\n", what);
  std::abort();
}
void Check(bool holds, const char* what) {
  if (!holds) Broken(what);
}

constexpr const char* kPrograms[] = {
    "program @neg(%x: f32[?n]) -> (y: f32[?n]) { %0 = neg(%x) return %0 }",
    "program @acc(inout %w: f32[4], %x: f32[4]) -> (w: f32[4], y: f32[4]) { %0 = add(%w, %x) %1 = "
    "mul(%0, %x) return %0, %1 }",
    "program @two(inout %a: f32[?n], inout %b: f32[?n]) -> (a: f32[?n], b: f32[?n]) { %0 = neg(%a) "
    "%1 = neg(%b) return %1, %0 }",
    "program @look(%t: f32[?v, 2], %i: i64[?n], %s: f32[]) -> (y: f32[?n, 2]) { %0 = embedding(%t, "
    "%i) %1 = mul(%0, %s) return %1 }",
    "program @wide(dim %n: ?n) -> (y: f32[?n, 1024], z: i8[?n]) { %0 = zeros() {shape = [?n, "
    "1024]} %1 = zeros() {shape = [?n], dtype = i8} "
    "return %0, %1 }",
    "program @div(%x: i32[?n], %y: i32[?n], inout %w: i32[?n]) -> (w: i32[?n], q: i32[?n]) { %0 = "
    "div(%x, %y) %1 = add(%w, %0) "
    "return %1, %0 }",
    "program @views(%x: f32[?a, ?b]) -> (y: f32[?a*?b], z: f32[?b, ?a], x: f32[?a, ?b]) { %0 = "
    "reshape(%x) {shape = [?a*?b]} "
    "%1 = permute(%x) {dims = [1, 0]} return %0, %1, %x }",
    "program @slow(%x: f32[96, 96], inout %w: f32[96, 96]) -> (w: f32[96, 96], y: f32[96, 96]) { "
    "%0 = matmul(%x, %x) %1 = matmul(%0, %x) "
    "%2 = add(%w, %1) %3 = matmul(%2, %x) %4 = matmul(%3, %x) return %2, %4 }",
};
constexpr uint32_t kProgramCount = std::size(kPrograms);
constexpr PeerId kControl = 1'000'000;

Nanos now = 0;
Nanos step = kMicrosecond;
Nanos Clock() { return now += step; }

// The side effect of a kernel in addition to its work; the present input decides it.
enum class Mishap : uint8_t { kNone, kFails, kRaises, kBadValue, kCancelled };
Mishap NextMishap();

int64_t BytesOf(const opw_tensor& t) {
  return t.elements * DTypeBytes(static_cast<DType>(t.dtype));
}

// A kernel for any op of `kOperands` operands: reads all, then writes all.
template <int kOperands>
int RunAny(const opw_call* c) {
  const Mishap mishap = NextMishap();
  if (mishap == Mishap::kFails) return OPW_FAILED;
  if (mishap == Mishap::kRaises) c->runtime->raise(c->runtime, OPW_FLAG_DIVIDE);
  if (mishap == Mishap::kBadValue && kOperands > 0)
    c->runtime->out_of_range(c->runtime, kOperands - 1, 0);
  uint8_t sum = 0;
  for (uint32_t i = 0; i < c->starts[kOperands]; ++i) {
    const opw_tensor& t = c->operands[i];
    for (int64_t b = 0; b < BytesOf(t); ++b)
      sum = static_cast<uint8_t>(sum + static_cast<const uint8_t*>(t.data)[b]);
  }
  const opw_tensor& result = c->results[0];
  if (BytesOf(result) > 0) std::memset(result.data, sum, static_cast<size_t>(BytesOf(result)));
  return OPW_OK;
}

// Parts that all inputs share.
struct Fixed {
  HostDevice device{{.kind = "cpu", .memory_bytes = 16 << 20, .compute_units = 1}, {}};
  VariantTable variants;
  std::vector<Module> modules;
  std::vector<std::string> bytes;
  Fixed() {
    Check(sodium_init() >= 0, "no libsodium");
    Add<0>("zeros", OPW_CONTIGUOUS);
    Add<1>("neg", OPW_CONTIGUOUS | OPW_INPLACE);
    Add<1>("reshape", OPW_CONTIGUOUS);
    Add<1>("permute", OPW_CONTIGUOUS);
    Add<2>("add", OPW_CONTIGUOUS | OPW_INPLACE);
    Add<2>("mul", OPW_CONTIGUOUS | OPW_INPLACE);
    Add<2>("div", OPW_CONTIGUOUS);
    Add<2>("matmul", OPW_CONTIGUOUS);
    Add<2>("embedding", OPW_CONTIGUOUS);
    for (const char* text : kPrograms) {
      auto module = Parse(text, "fuzz.opw");
      if (!module.ok()) Broken(MessageOf(module.status()).c_str());
      bytes.push_back(Serialise(*module));
      modules.push_back(*std::move(module));
    }
  }
  template <int kOperands>
  void Add(const char* op, uint32_t flags) {
    variants.Add({op,
                  "any",
                  Tier::kReference,
                  0,
                  kAll,
                  "",
                  "fuzz",
                  {OPW_ABI_VERSION, flags, nullptr, nullptr, nullptr, RunAny<kOperands>}});
  }
};
Fixed& TheFixed() {
  static Fixed* const fixed = new Fixed;
  return *fixed;
}

struct Sent {
  std::string head, bulk;
};

struct Client {
  std::string principal;
  std::vector<uint8_t> token;
  uint32_t attachment = 0;
  PeerId peer = 0;  // 0: not connected
  uint64_t next_seq = 1;
  std::map<uint64_t, Sent> unanswered;
};

class World : public Shell {
 public:
  World(const uint8_t* data, size_t size) : f_(TheFixed()), in_(data, size) {
    options_.executor_id = "fuzz";
    options_.incarnation = 1;
    options_.run_endpoint = "nowhere";
    options_.token_seed = 1;
    options_.clock = &Clock;
    options_.no_arena = in_.ConsumeBool();
    const std::pair<LimitId, int64_t> limits[] = {
        {LimitId::kSessions, 4},
        {LimitId::kSessionsPerPrincipal, 3},
        {LimitId::kAttachments, 2},
        {LimitId::kTensors, 18},
        {LimitId::kPrograms, 9},
        {LimitId::kInstances, 2},
        {LimitId::kTransfers, 2},
        {LimitId::kBatchRuns, 3},
        {LimitId::kLeaseSeconds, 3},
        {LimitId::kCreditRequests, 8},
        {LimitId::kCreditBytes, 256 << 10},
        {LimitId::kSessionTtlSeconds, 9},
    };
    for (const auto& [id, value] : limits) options_.limits[id] = value;
    now = 0;
    step = in_.ConsumeBool() ? kMicrosecond : kMillisecond;
    core_ = std::make_unique<Core>(options_, f_.device,
                                   std::make_shared<KernelSet>(KernelSet{.variants = f_.variants}),
                                   nullptr, *this);
    free_before_ = core_->load().free_memory;
  }

  // Returns the side effect of the kernel that begins.
  Mishap Next() {
    if (Often()) return Mishap::kNone;
    const auto mishap = static_cast<Mishap>(Pick(5));
    if (mishap == Mishap::kCancelled) CancelRunning();
    return mishap;
  }

  void Run() {
    Hello("", 0);
    Prepare(clients_.front());
    for (int i = 0; i < 200 && in_.remaining_bytes() > 0; ++i) {
      Act();
      LoseTheDeaf();
    }
    End();
  }

  // ---- What the core asks
  // ---------------------------------------------------------------------------------------------------

  Status Send(PeerId peer, Bytes head, Bytes bulk) override {
    Check(head.size() <= kMaxFrameBytes && bulk.size() <= kMaxFrameBytes,
          "a reply is larger than a frame");
    Check(live_.contains(peer), "a reply to a connection that has ended");
    AlignedBytes memory;
    const auto reply = DecodeReply(head, memory);
    Check(reply.ok(), "a reply that does not decode");
    if (deaf_.contains(peer)) return ResourceExhausted("the peer does not read its messages");
    const uint64_t seq = (*reply)->seq();
    if (peer == at_once_peer_ && seq == at_once_seq_) {
      ++at_once_;
      at_once_code_ = static_cast<absl::StatusCode>((*reply)->code());
      if (!at_once_settles_) return absl::OkStatus();
    }
    Client* c = At(peer);
    Check(c != nullptr, "a reply to a connection that speaks for nobody");
    Check(c->unanswered.erase(seq) == 1, "a second reply, or one to a request that never was");
    if (const fb::TensorReply* t = (*reply)->body_as_TensorReply(); t && t->ticket())
      tickets_.push_back(t->ticket());
    return absl::OkStatus();
  }
  bool Gathers(PeerId peer) const override { return peer % 2 == 0; }
  void SendControl(PeerId peer, std::string head) override {
    Check(peer == kControl, "an answer to another peer than the one that asked");
    Check(head.size() <= kMaxFrameBytes, "an answer is larger than a frame");
    control_.push_back(std::move(head));
  }
  void Submit(std::function<void()> work, std::function<void()> done) override {
    jobs_.push_back({std::move(work), std::move(done), false});
  }
  void Drop(PeerId peer) override {
    Check(live_.erase(peer) == 1, "a connection dropped twice");
    if (Client* c = At(peer)) c->peer = 0;
  }

 private:
  struct Job {
    std::function<void()> work, done;
    bool worked;
  };

  Client* At(PeerId peer) {
    for (auto& c : clients_) {
      if (c.peer == peer) return &c;
    }
    return nullptr;
  }
  uint64_t Pick(uint64_t limit) { return in_.ConsumeIntegralInRange<uint64_t>(0, limit - 1); }
  bool Often() { return in_.ConsumeIntegral<uint8_t>() > 16; }
  template <typename T>
  T Any() {
    return in_.ConsumeIntegral<T>();
  }

  // ---- What happens
  // ---------------------------------------------------------------------------------------------------------

  void Act() {
    Client* c = clients_.empty() ? nullptr : &clients_[Pick(clients_.size())];
    switch (Pick(24)) {
      case 0:
        return Hello(Pick(2) ? "a" : "", static_cast<uint32_t>(Pick(3)));
      case 1:
        return c ? Bye(*c, Often() ? false : true) : void();
      case 2:
        return c ? Cancel(*c) : void();
      case 3:
        return Control();
      case 4:
        return c ? Attach(*c, Pick(8) == 0) : void();
      case 5:
        if (c && c->peer) Close(c->peer);
        return;
      case 6:
        if (c && c->peer) deaf_.insert(c->peer);
        return;
      case 7:
        return Tick(static_cast<Nanos>(Pick(5)) * kSecond);
      case 8:
        return Worker();
      case 9:
        return Strange();
      case 10:
        if (c && c->peer) SendWrongSeq(*c);
        return;
      case 11:
        return Settle();
      case 12:
      case 13:
      case 14:
        return Work(static_cast<int>(Pick(4)) + 1);
      default:
        if (c && c->peer) Ask(*c, Request(*c));
        if (Pick(2)) Settle();
        return;
    }
  }

  // Cancels as the host thread does for a Cancel, whatever runs.
  void CancelRunning() {
    for (const Client& c : clients_) {
      fb::CancelT cancel;
      cancel.token = c.token;
      for (const auto& [seq, sent] : c.unanswered) {
        cancel.seq = seq;
        flatbuffers::FlatBufferBuilder b;
        b.Finish(fb::Cancel::Pack(b, &cancel));
        const auto identity =
            core_->IdentityOf(*flatbuffers::GetRoot<fb::Cancel>(b.GetBufferPointer()));
        if (identity.ok()) core_->gate().Cancel(*identity);
      }
    }
  }

  void Work(int slices) {
    for (int i = 0; i < slices && core_->HasWork(); ++i) core_->Work(Clock());
    core_->Flush(now);
  }
  // Works until no work is left, workers included.
  void Settle() {
    for (int i = 0; core_->HasWork() || !jobs_.empty(); ++i) {
      Check(i < 20'000, "the core never comes to rest");
      if (core_->HasWork()) core_->Work(Clock());
      core_->Flush(now);
      while (!jobs_.empty()) FinishJob(0);
    }
  }
  void FinishJob(size_t at) {
    Job job = std::move(jobs_[at]);
    jobs_.erase(jobs_.begin() + static_cast<ptrdiff_t>(at));
    if (!job.worked) job.work();
    core_->OnJobDone(now, job.done);
  }
  void Worker() {
    if (jobs_.empty()) return;
    const size_t at = Pick(jobs_.size());
    if (Pick(2)) return FinishJob(at);
    if (!jobs_[at].worked) jobs_[at].work();
    jobs_[at].worked = true;
  }
  void Tick(Nanos later) {
    now += later;
    core_->OnTick(now);
  }
  void Close(PeerId peer) {
    live_.erase(peer);
    if (Client* c = At(peer)) c->peer = 0;
    core_->OnPeerGone(now, peer);
  }
  // A carrier closes the connection of a client that does not read.
  void LoseTheDeaf() {
    deaf_.clear();
    core_->Flush(now);
  }

  // ---- The control socket
  // ---------------------------------------------------------------------------------------------------

  std::string AskControl(const std::string& principal, const std::string& head) {
    control_.clear();
    core_->OnControl(now, kControl, principal, AsBytes(head));
    Check(control_.size() == 1, "the control socket answers each message once");
    AlignedBytes memory;
    Check(DecodeReply(AsBytes(control_[0]), memory).ok(), "an answer that does not decode");
    return control_[0];
  }

  void Hello(const std::string& session, uint32_t principal) {
    fb::HelloT hello;
    hello.major = kProtocolMajor;
    hello.session = session;
    hello.memory_bytes = principal == 2 ? 1 << 16 : 0;
    hello.ttl_s = principal;
    Client c;
    c.principal = "uid:" + std::to_string(principal);
    AlignedBytes memory;
    const std::string answer = AskControl(c.principal, EncodeRequest(1, std::move(hello)));
    const auto reply = DecodeReply(AsBytes(answer), memory);
    const fb::HelloReply* r = (*reply)->body_as_HelloReply();
    if (!r) return;
    c.token.assign(r->token()->begin(), r->token()->end());
    c.attachment = r->attachment();
    clients_.push_back(std::move(c));
    Attach(clients_.back(), false);
  }

  void Bye(Client& c, bool free) {
    fb::ByeT bye;
    bye.token = c.token;
    bye.free = free;
    AskControl(c.principal, EncodeRequest(1, std::move(bye)));
  }

  void Cancel(Client& c) {
    fb::CancelT cancel;
    cancel.token = c.token;
    cancel.attachment = c.attachment;
    cancel.seq = c.unanswered.empty() ? Any<uint64_t>()
                                      : c.unanswered.begin()->first + Pick(c.unanswered.size() + 1);
    AskControl(c.principal, EncodeRequest(1, std::move(cancel)));
  }

  uint64_t AnyTicket() {
    return tickets_.empty() ? Any<uint64_t>() : tickets_[Pick(tickets_.size())];
  }

  void Control() {
    const std::string principal = "uid:" + std::to_string(Pick(3));
    switch (Pick(5)) {
      case 0: {
        fb::InfoT info;
        static constexpr const char* kTopics[] = {"report",  "sessions", "grants", "ops",
                                                  "explain", "stats",    "else"};
        info.topic = kTopics[Pick(std::size(kTopics))];
        info.argument = Pick(2) ? "matmul" : in_.ConsumeRandomLengthString(12);
        info.dtype = Any<uint8_t>();
        AskControl(principal, EncodeRequest(1, std::move(info)));
        return;
      }
      case 1: {
        fb::CloseTransferT close;
        close.ticket = AnyTicket();
        AskControl(principal, EncodeRequest(1, std::move(close)));
        return;
      }
      case 2: {
        // A client that lost its connection, or another principal with its token.
        fb::HelloT hello;
        hello.major = static_cast<uint16_t>(Pick(3));
        if (!clients_.empty()) hello.token = clients_[Pick(clients_.size())].token;
        if (!Often()) hello.token.push_back(1);
        if (hello.token.empty()) return;  // a session that no client would know of
        AskControl(principal, EncodeRequest(1, std::move(hello)));
        return;
      }
      case 3:
        AskControl(principal, EncodeRequest(Any<uint64_t>(), fb::FlushT()));
        return;
      default: {
        const std::string head = in_.ConsumeRandomLengthString(64);
        AlignedBytes memory;
        const auto request = DecodeRequest(AsBytes(head), memory);
        if (!request.ok() || !(*request)->body_as_Hello()) AskControl(principal, head);
      }
    }
  }

  // ---- The run socket
  // -------------------------------------------------------------------------------------------------------

  // Sends, and counts the replies with this number that come before other actions.
  void Deliver(PeerId peer, uint64_t seq, bool settles, Bytes head, Bytes bulk) {
    at_once_ = 0;
    at_once_peer_ = peer;
    at_once_seq_ = seq;
    at_once_settles_ = settles;
    core_->OnMessage(now, peer, head, bulk);
    // If sessions have work, an answer may be gathered with theirs.
    if (!settles && at_once_ == 0) core_->Flush(now);
    at_once_peer_ = 0;
  }

  // Attaches on a connection of its own, or on one that spoke for another client before.
  void Attach(Client& c, bool take_over) {
    PeerId peer = ++last_peer_;
    Client* before = nullptr;
    if (take_over) {
      before = &clients_[Pick(clients_.size())];
      if (before->peer && before != &c) peer = before->peer;
    }
    live_.insert(peer);
    fb::AttachT attach;
    attach.token = c.token;
    const std::string head = EncodeRequest(0, std::move(attach));
    Deliver(peer, 0, false, AsBytes(head), {});
    if (deaf_.contains(peer)) return;
    Check(at_once_ == 1, "an Attach is answered once, before anything else happens");
    if (at_once_code_ != absl::StatusCode::kOk) {
      // Its session has ended, and so have its requests in flight.
      c.unanswered.clear();
      return;
    }
    if (before && before->peer == peer) before->peer = 0;
    c.peer = peer;
    Replay(c);
  }

  // Sends requests without a reply again, oldest first: they are answered now, or later.
  void Replay(Client& c) {
    const auto again = c.unanswered;
    for (const auto& [seq, sent] : again) {
      if (!c.peer || deaf_.contains(c.peer)) return;
      Deliver(c.peer, seq, true, AsBytes(sent.head), AsBytes(sent.bulk));
      Check(at_once_ <= 1, "a retry is answered once");
    }
  }

  void Ask(Client& c, Sent sent) {
    AlignedBytes memory;
    const auto request = DecodeRequest(AsBytes(sent.head), memory);
    if (!request.ok()) {
      Deliver(c.peer, 0, false, AsBytes(sent.head), AsBytes(sent.bulk));
      Check(at_once_ == 1 || deaf_.contains(c.peer), "what is no request is refused once");
      return;
    }
    if ((*request)->body_as_Attach()) return;
    const uint64_t seq = (*request)->seq();
    if (seq != c.next_seq) return Repeat(c, seq, sent);
    ++c.next_seq;
    c.unanswered[seq] = sent;
    Deliver(c.peer, seq, true, AsBytes(sent.head), AsBytes(sent.bulk));
    Check(at_once_ <= 1, "a request is answered once");
  }

  // Sends a number that is not the next one.
  void Repeat(Client& c, uint64_t seq, const Sent& sent) {
    const bool waits = c.unanswered.contains(seq);
    Deliver(c.peer, seq, waits, AsBytes(sent.head), AsBytes(sent.bulk));
    if (deaf_.contains(c.peer)) return;
    if (waits)
      Check(at_once_ <= 1, "a retry is answered once");
    else
      Check(at_once_ == 1, "a number out of order is answered at once");
    if (seq > c.next_seq)
      Check(at_once_code_ == absl::StatusCode::kFailedPrecondition, "a gap is refused");
  }

  void SendWrongSeq(Client& c) {
    fb::RequestT r;
    r.seq = Pick(2) ? c.next_seq + 1 + Pick(100) : Pick(c.next_seq + 1);
    r.body.Set(fb::FlushT());
    if (r.seq != c.next_seq) Repeat(c, r.seq, {EncodeRequest(r), ""});
  }

  // Sends from a connection without an attachment.
  void Strange() {
    const PeerId peer = ++last_peer_;
    live_.insert(peer);
    const std::string head =
        Pick(2) ? EncodeRequest(Any<uint64_t>(), fb::ListT()) : in_.ConsumeRandomLengthString(100);
    AlignedBytes memory;
    if (const auto request = DecodeRequest(AsBytes(head), memory);
        request.ok() && (*request)->body_as_Attach())
      return;
    Deliver(peer, 0, false, AsBytes(head), {});
    Check(at_once_ == 1, "a stranger is told so");
    Close(peer);
  }

  // ---- Requests
  // -------------------------------------------------------------------------------------------------------------

  fb::TensorId Id(const Client& c) {
    const uint32_t attachment = Often() ? c.attachment : Any<uint8_t>();
    return fb::TensorId(attachment, 0, Often() ? Pick(16) : Any<uint64_t>());
  }
  std::unique_ptr<fb::TensorId> IdPtr(const Client& c) {
    return Often() ? std::make_unique<fb::TensorId>(Id(c)) : nullptr;
  }
  // Returns a shape for parameter `p`: its constants, and small values elsewhere.
  std::vector<int64_t> Shape(const Module& m, const Param& p) {
    std::vector<int64_t> shape;
    for (Dim d : p.type.shape) {
      const DimNode& n = m.dims.node(d);
      shape.push_back(n.kind == DimKind::kConstant ? n.value : static_cast<int64_t>(Pick(4)));
    }
    if (!Often()) shape.push_back(Any<int64_t>());
    return shape;
  }
  std::string Contents(int64_t bytes) {
    std::string s = in_.ConsumeBytesAsString(std::min<size_t>(static_cast<size_t>(bytes), 16));
    s.resize(static_cast<size_t>(bytes), '\0');
    return s;
  }

  // The tensor that parameter j of program i could be bound to has number 3 i + j, up to 16.
  static uint64_t Counter(uint32_t program, size_t param) { return (3 * program + param) % 16; }

  // Loads some of the programs, with tensors that they can be bound to.
  void Prepare(Client& c) {
    const auto which = Any<uint8_t>();
    for (uint32_t program = 0; program < kProgramCount; ++program) {
      if (which >> program & 1) continue;
      fb::PutProgramT put;
      put.slot = program;
      Ask(c, {EncodeRequest(c.next_seq, std::move(put)), f_.bytes[program]});
      const Module& m = f_.modules[program];
      for (size_t j = 0; j < m.functions[0].params.size(); ++j) {
        const Param& p = m.functions[0].params[j];
        if (p.mode == ParamMode::kDim) continue;
        fb::PutT tensor;
        tensor.id = std::make_unique<fb::TensorId>(c.attachment, 0, Counter(program, j));
        tensor.type = std::make_unique<fb::TensorTypeT>();
        tensor.type->dtype = static_cast<uint8_t>(p.type.dtype);
        for (Dim d : p.type.shape)
          tensor.type->shape.push_back(
              m.dims.node(d).kind == DimKind::kConstant ? m.dims.node(d).value : 2);
        tensor.bytes_follow = true;
        const int64_t bytes = *TensorBytes(p.type.dtype, Encoding::kDense, tensor.type->shape);
        Ask(c, {EncodeRequest(c.next_seq, std::move(tensor)),
                std::string(static_cast<size_t>(bytes), '\0')});
      }
      Settle();
    }
  }

  fb::RunT RunOf(const Client& c) {
    fb::RunT run;
    const auto program = static_cast<uint32_t>(Pick(kProgramCount));
    const Module& m = f_.modules[program];
    const Function& f = m.functions[0];
    run.slot = Often() ? program : Any<uint32_t>();
    run.function = Often() ? 0 : Any<uint8_t>();
    for (size_t j = 0; j < f.params.size(); ++j) {
      const Param& p = f.params[j];
      const auto dtype = static_cast<uint8_t>(p.type.dtype);
      const uint64_t kind = !Often()                      ? Any<uint8_t>()
                            : p.mode == ParamMode::kDim   ? 2
                            : p.mode == ParamMode::kInout ? 0
                            : p.type.shape.empty()        ? 1
                            : Pick(2)                     ? 3
                                                          : 0;
      if (kind == 3) {
        const std::vector<int64_t> shape = Shape(m, p);
        const int64_t bytes = TensorBytes(p.type.dtype, Encoding::kDense, shape).value_or(0);
        if (bytes > 40'000) continue;
        const std::string contents = Contents(bytes);
        run.bindings.emplace_back(fb::BindingKind::Inline, dtype,
                                  static_cast<uint8_t>(shape.size()), 0, 0,
                                  Often() ? run.payload.size() : Any<uint64_t>(),
                                  Often() ? contents.size() : Any<uint64_t>());
        run.payload.insert(run.payload.end(), contents.begin(), contents.end());
        run.shapes.insert(run.shapes.end(), shape.begin(), shape.end());
      } else {
        const uint64_t value = kind == 0 && Often()   ? Counter(program, j)
                               : kind == 2 && Often() ? Pick(40)
                                                      : Any<uint64_t>();
        run.bindings.emplace_back(static_cast<fb::BindingKind>(kind),
                                  Often() ? dtype : Any<uint8_t>(), 0, 0,
                                  Often() ? c.attachment : Any<uint32_t>(), value, 0);
      }
    }
    for (size_t r = 0; r < f.results.size(); ++r) {
      const bool replaced = std::any_of(f.params.begin(), f.params.end(), [&](const Param& p) {
        return p.name == f.results[r].name;
      });
      const uint64_t kind = !Often() ? Any<uint8_t>() : replaced ? Pick(2) : Pick(3);
      run.results.emplace_back(static_cast<fb::ResultKind>(kind), 0, Pick(16));
    }
    if (!Often()) run.deadline_us = Any<uint16_t>();
    if (!Often()) run.waits.emplace_back(1, 1);
    run.profile = !Often();
    return run;
  }

  Sent Request(const Client& c) {
    fb::RequestT r;
    Sent sent;
    r.seq = c.next_seq;
    r.acked = Often() && !c.unanswered.empty() ? c.unanswered.begin()->first : Any<uint16_t>();
    if (!Often()) r.frees.push_back(Id(c));
    if (!Often()) r.closes.push_back(AnyTicket());
    switch (Pick(31)) {
      case 28: {
        fb::GrantT grant;
        grant.id = IdPtr(c);
        if (!Often()) grant.session = in_.ConsumeRandomLengthString(2);
        if (!Often()) grant.principal = in_.ConsumeRandomLengthString(6);
        if (Often()) grant.name = "w";
        r.body.Set(std::move(grant));
        break;
      }
      case 29: {
        fb::TakeT take;
        take.id = IdPtr(c);
        take.session = in_.ConsumeRandomLengthString(2);
        take.name = "w";
        if (!Often()) take.capability.assign(Pick(20), Any<uint8_t>());
        r.body.Set(std::move(take));
        break;
      }
      case 30: {
        fb::RevokeT revoke;
        revoke.capability.assign(Pick(20), Any<uint8_t>());
        r.body.Set(std::move(revoke));
        break;
      }
      case 0: {
        fb::SealT seal;
        seal.id = IdPtr(c);
        r.body.Set(std::move(seal));
        break;
      }
      case 1: {
        fb::GetT get;
        get.id = IdPtr(c);
        if (!Often()) get.offset = Any<uint64_t>() >> Pick(64);
        if (!Often()) get.bytes = Any<uint64_t>() >> Pick(64);
        r.body.Set(std::move(get));
        break;
      }
      case 2: {
        fb::RenameT rename;
        rename.id = IdPtr(c);
        rename.name = in_.ConsumeRandomLengthString(8);
        r.body.Set(std::move(rename));
        break;
      }
      case 3: {
        fb::CopyT copy;
        copy.from = IdPtr(c);
        copy.to = IdPtr(c);
        r.body.Set(std::move(copy));
        break;
      }
      case 4:
        r.body.Set(fb::ListT());
        break;
      case 5: {
        fb::PrintT print;
        print.id = IdPtr(c);
        print.max_elements = Any<uint32_t>();
        r.body.Set(std::move(print));
        break;
      }
      case 6: {
        fb::SaveT save;
        save.id = IdPtr(c);
        save.path = "x.npy";
        r.body.Set(std::move(save));
        break;
      }
      case 7: {
        fb::LoadT load;
        load.id = IdPtr(c);
        load.path = "x.npy";
        r.body.Set(std::move(load));
        break;
      }
      case 8: {
        fb::DropProgramT drop;
        drop.slot = static_cast<uint32_t>(Pick(kProgramCount));
        r.body.Set(drop);
        break;
      }
      case 9:
        r.body.Set(fb::QueryT());
        break;
      case 10:
        break;  // no body
      case 11: {
        fb::PutProgramT put;
        put.slot = static_cast<uint32_t>(Pick(kProgramCount));
        put.bytes = std::make_unique<fb::TensorId>(Id(c));
        r.body.Set(std::move(put));
        break;
      }
      case 12: {
        // Bytes as a tensor, from which a program can be created.
        fb::PutT put;
        put.id = IdPtr(c);
        put.type = std::make_unique<fb::TensorTypeT>();
        put.type->dtype = Often() ? static_cast<uint8_t>(DType::kU8) : Any<uint8_t>();
        put.type->encoding = Often() ? 0 : Any<uint8_t>();
        sent.bulk = ProgramBytes(static_cast<uint32_t>(Pick(kProgramCount)));
        put.type->shape = {static_cast<int64_t>(sent.bulk.size())};
        put.bytes_follow = true;
        r.body.Set(std::move(put));
        break;
      }
      case 13: {
        fb::BatchT batch;
        for (uint64_t i = Pick(5); i > 0; --i)
          batch.runs.push_back(std::make_unique<fb::RunT>(RunOf(c)));
        r.body.Set(std::move(batch));
        break;
      }
      case 14:
      case 15:
      case 16:
      case 17: {
        const auto program = static_cast<uint32_t>(Pick(kProgramCount));
        fb::PutProgramT put;
        put.slot = program;
        sent.bulk = ProgramBytes(program);
        r.body.Set(std::move(put));
        break;
      }
      case 18:
      case 19:
      case 20:
      case 21: {
        const auto program = static_cast<uint32_t>(Pick(kProgramCount));
        const Module& m = f_.modules[program];
        const size_t param = Pick(m.functions[0].params.size());
        const Param& p = m.functions[0].params[param];
        fb::PutT put;
        put.id = std::make_unique<fb::TensorId>(c.attachment, 0, Counter(program, param));
        put.type = std::make_unique<fb::TensorTypeT>();
        put.type->dtype = static_cast<uint8_t>(p.type.dtype);
        put.type->shape = Shape(m, p);
        put.bytes_follow = Often();
        const int64_t bytes =
            TensorBytes(p.type.dtype, Encoding::kDense, put.type->shape).value_or(0);
        if (put.bytes_follow) sent.bulk = Contents(std::min<int64_t>(bytes, 1 << 16));
        r.body.Set(std::move(put));
        break;
      }
      default:
        r.body.Set(RunOf(c));
    }
    sent.head = EncodeRequest(r);
    // Sometimes the message is changed.
    for (uint64_t i = Often() ? 0 : Pick(4); i > 0; --i)
      sent.head[Pick(sent.head.size())] = static_cast<char>(Any<uint8_t>());
    return sent;
  }

  std::string ProgramBytes(uint32_t program) {
    std::string bytes = f_.bytes[program];
    for (uint64_t i = Often() ? 0 : Pick(4); i > 0; --i)
      bytes[Pick(bytes.size())] = static_cast<char>(Any<uint8_t>());
    return bytes;
  }

  // ---- The end
  // --------------------------------------------------------------------------------------------------------------

  void End() {
    deaf_.clear();
    for (Client& c : clients_) {
      if (!c.peer) Attach(c, false);
    }
    Settle();
    Check(core_->Idle(), "work is left");
    for (const Client& c : clients_)
      Check(c.unanswered.empty() || !c.peer, "a request was never answered");
    Check(core_->load().queued == 0, "requests are counted that are not there");
    for (Client& c : clients_) Bye(c, true);
    for (int i = 0; i < 2; ++i) Tick(100 * kSecond);
    Check(core_->load().sessions == 0, "a session outlived its clients and its time");
    Check(core_->load().free_memory == free_before_, "memory is counted that nobody holds");
    core_.reset();
  }

  Fixed& f_;
  FuzzedDataProvider in_;
  CoreOptions options_;
  std::unique_ptr<Core> core_;
  int64_t free_before_ = 0;
  std::deque<Client> clients_;
  std::set<PeerId> live_, deaf_;
  std::vector<std::string> control_;
  std::vector<Job> jobs_;
  std::vector<uint64_t> tickets_;
  PeerId last_peer_ = 0;
  // State of the message in delivery.
  PeerId at_once_peer_ = 0;
  uint64_t at_once_seq_ = 0;
  int at_once_ = 0;
  bool at_once_settles_ = false;  // its reply is that of a waiting request
  absl::StatusCode at_once_code_ = absl::StatusCode::kOk;
};

World* world = nullptr;
Mishap NextMishap() { return world->Next(); }

}  // namespace
}  // namespace opwire::executor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  opwire::executor::World w(data, size);
  opwire::executor::world = &w;
  w.Run();
  return 0;
}
