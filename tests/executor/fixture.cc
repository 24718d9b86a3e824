// The harness of the executor's tests.
#include "tests/executor/fixture.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "executor/plan/instance.h"
#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "kernels/device/host_device.h"
#include "kernels/fused/fuser.h"
#include "tests/ir/random_program.h"

namespace opwire::executor {

Nanos CoreTest::now_ = 0;

Status FakeShell::Send(PeerId peer, Bytes head, Bytes bulk) {
  if (deaf.contains(peer)) return ResourceExhausted("the peer does not read its messages");
  if (discard) return absl::OkStatus();
  // What no carrier takes must never be sent.
  EXPECT_LE(head.size(), kMaxFrameBytes);
  EXPECT_LE(bulk.size(), kMaxFrameBytes);
  sent.push_back({peer, std::string(reinterpret_cast<const char*>(head.data()), head.size()),
                  std::string(reinterpret_cast<const char*>(bulk.data()), bulk.size()), false});
  return absl::OkStatus();
}

std::vector<float> Answer::Floats(size_t result) const {
  const fb::RunReplyT* r = reply.body.AsRunReply();
  if (!r || result >= r->results.size() || r->results[result].offset() < 0) {
    ADD_FAILURE() << "result " << result << " is not inline: " << status;
    return {};
  }
  std::vector<float> out(r->results[result].size() / sizeof(float));
  if (!out.empty())
    std::memcpy(out.data(), r->payload.data() + r->results[result].offset(),
                out.size() * sizeof(float));
  return out;
}

std::vector<float> Answer::BulkFloats() const {
  std::vector<float> out(bulk.size() / sizeof(float));
  std::memcpy(out.data(), bulk.data(), out.size() * sizeof(float));
  return out;
}

RunOf& RunOf::Scalar(float value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return Bind(1, static_cast<uint8_t>(DType::kF32), 0, 0, bits, 0);
}

RunOf& RunOf::Array(const std::vector<float>& values, const std::vector<int64_t>& shape) {
  const size_t at = run.payload.size(), bytes = values.size() * sizeof(float);
  run.payload.resize(at + bytes);
  if (bytes) std::memcpy(run.payload.data() + at, values.data(), bytes);
  run.shapes.insert(run.shapes.end(), shape.begin(), shape.end());
  return Bind(3, static_cast<uint8_t>(DType::kF32), static_cast<uint8_t>(shape.size()), 0, at,
              bytes);
}

CoreTest::CoreTest() {
  EXPECT_GE(sodium_init(), 0);
  const char* const spec = std::getenv("OPWIRE_TEST_DEVICE");
  auto device = OpenDevice(spec ? spec : "cpu", {});
  EXPECT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  variants_ = BuildVariantTable(*device_, {.worker = OPWIRE_EXECUTOR});
  options_.executor_id = "e1";
  options_.incarnation = 7;
  options_.run_endpoint = "ipc:///nowhere";
  options_.clock = &Clock;
  Restart();
}

CoreTest::~CoreTest() { core_.reset(); }

void CoreTest::Restart() {
  core_.reset();
  shell_ = FakeShell();
  core_ = std::make_unique<Core>(
      options_, *device_,
      std::make_shared<KernelSet>(KernelSet{.fuser = fuser_, .variants = variants_}), nullptr,
      shell_);
}

void CoreTest::UseHost(int64_t memory_bytes) {
  core_.reset();
  variants_ = VariantTable();
  device_ = std::make_unique<HostDevice>(
      DeviceInfo{.kind = "cpu", .memory_bytes = memory_bytes, .compute_units = 1},
      std::vector<int>());
  variants_ = BuildVariantTable(*device_);
}

Answer CoreTest::TryHello(fb::HelloT hello, const std::string& principal) {
  if (hello.major == 0) hello.major = kProtocolMajor;
  return Control(std::move(hello), principal);
}

Client CoreTest::Hello(const std::string& name, const std::string& principal,
                       uint64_t memory_bytes) {
  fb::HelloT hello;
  hello.session = name;
  hello.client = "test";
  hello.memory_bytes = memory_bytes;
  const Answer a = TryHello(std::move(hello), principal);
  EXPECT_TRUE(a.ok()) << a.status;
  Client c;
  const fb::HelloReplyT* reply = a.reply.body.AsHelloReply();
  if (!reply) return c;
  c.peer = next_peer_++;
  c.token = reply->token;
  c.attachment = reply->attachment;
  c.session = reply->session;
  Attach(c);
  return c;
}

void CoreTest::Attach(const Client& c) {
  fb::AttachT attach;
  attach.token = c.token;
  attach.attachment = c.attachment;
  const std::string head = EncodeRequest(0, std::move(attach));
  core_->OnMessage(now_, c.peer, AsBytes(head), {});
  const Answer a = Take(c.peer, 0);
  EXPECT_TRUE(a.ok()) << a.status;
}

uint64_t CoreTest::Send(Client& c, fb::RequestT request, const std::string& bulk) {
  const uint64_t seq = c.next_seq++;
  SendAs(c, seq, std::move(request), bulk);
  return seq;
}

void CoreTest::SendAs(const Client& c, uint64_t seq, fb::RequestT request,
                      const std::string& bulk) {
  request.seq = seq;
  const std::string head = EncodeRequest(request);
  core_->OnMessage(now_, c.peer, AsBytes(head), AsBytes(bulk));
}

bool CoreTest::WorkOnce() {
  if (!core_->HasWork()) return false;
  core_->Work(Clock());
  return true;
}

void CoreTest::FinishJobs() {
  while (!shell_.jobs.empty()) {
    FakeShell::Job job = std::move(shell_.jobs.front());
    shell_.jobs.pop_front();
    job.work();
    core_->OnJobDone(now_, job.done);
  }
}

void CoreTest::WorkAll() {
  for (int i = 0; core_->HasWork() || !shell_.jobs.empty(); ++i) {
    ASSERT_LT(i, 100'000) << "the core never comes to rest";
    WorkOnce();
    FinishJobs();
  }
}

Answer CoreTest::Take(PeerId peer, uint64_t seq) {
  for (auto it = shell_.sent.begin(); it != shell_.sent.end(); ++it) {
    if (it->peer != peer) continue;
    AlignedBytes memory;
    auto reply = DecodeReply(AsBytes(it->head), memory);
    if (!reply.ok()) {
      ADD_FAILURE() << reply.status();
      return {};
    }
    if ((*reply)->seq() != seq || !(*reply)->last()) continue;
    Answer a;
    a.came = true;
    a.status = StatusOf(**reply);
    (*reply)->UnPackTo(&a.reply);
    a.bulk = it->bulk;
    shell_.sent.erase(it);
    return a;
  }
  return {};
}

Answer CoreTest::Load(Client& c, uint32_t slot, const std::string& text) {
  auto module = Parse(text, "test.opw");
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok()) return {};
  fb::PutProgramT put;
  put.slot = slot;
  return Ask(c, std::move(put), Serialise(*module));
}

Answer CoreTest::Alloc(Client& c, uint64_t counter, DType dtype, std::vector<int64_t> shape) {
  fb::PutT put;
  put.id = IdPtr(c, counter);
  put.type = std::make_unique<fb::TensorTypeT>();
  put.type->dtype = static_cast<uint8_t>(dtype);
  put.type->shape = std::move(shape);
  return Ask(c, std::move(put));
}

Answer CoreTest::FillAndSeal(Client& c, uint64_t counter, uint64_t ticket,
                             const std::string& bytes) {
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    const Status s = core_->transfers().Write(
        ticket, at, AsBytes(bytes).subspan(at, std::min(kChunkBytes, bytes.size() - at)));
    EXPECT_TRUE(s.ok()) << s;
  }
  fb::SealT seal;
  seal.id = IdPtr(c, counter);
  return Ask(c, std::move(seal));
}

Answer CoreTest::PutTyped(Client& c, uint64_t counter, DType dtype, std::vector<int64_t> shape,
                          const std::string& bytes) {
  fb::PutT put;
  put.id = IdPtr(c, counter);
  put.type = std::make_unique<fb::TensorTypeT>();
  put.type->dtype = static_cast<uint8_t>(dtype);
  put.type->shape = std::move(shape);
  put.bytes_follow = true;
  return Ask(c, std::move(put), bytes);
}

Answer CoreTest::Put(Client& c, uint64_t counter, const std::vector<float>& values,
                     std::vector<int64_t> shape) {
  if (shape == std::vector<int64_t>{-1}) shape = {static_cast<int64_t>(values.size())};
  return PutTyped(
      c, counter, DType::kF32, std::move(shape),
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

Answer CoreTest::Cancel(const Client& c, uint64_t seq) {
  fb::CancelT cancel;
  cancel.token = c.token;
  cancel.attachment = c.attachment;
  cancel.seq = seq;
  return Control(std::move(cancel));
}

Answer CoreTest::Get(Client& c, uint64_t counter) {
  fb::GetT get;
  get.id = IdPtr(c, counter);
  return Ask(c, std::move(get));
}

std::string CoreTest::Fetched(const fb::TensorReplyT& large) {
  std::string out;
  Status s;
  while (s.ok() && out.size() < large.info->bytes)
    s = core_->transfers().Read(large.ticket, out.size(),
                                std::min<uint64_t>(kChunkBytes, large.info->bytes - out.size()),
                                out);
  EXPECT_TRUE(s.ok()) << s;
  return out;
}

Answer CoreTest::Free(Client& c, std::vector<uint64_t> counters) {
  fb::RequestT r;
  for (uint64_t n : counters) r.frees.push_back(Id(c, n));
  r.body.Set(fb::FlushT());
  const uint64_t seq = Send(c, std::move(r));
  WorkAll();
  return Take(c.peer, seq);
}

std::string CoreTest::Info(const std::string& topic, const std::string& principal) {
  fb::InfoT info;
  info.topic = topic;
  const Answer a = Control(std::move(info), principal);
  EXPECT_TRUE(a.ok()) << a.status;
  return a.ok() ? a.reply.body.AsInfoReply()->json : "{}";
}

int64_t CoreTest::InUse() {
  int64_t bytes = 0;
  for (const char* principal : {"uid:1", "uid:2"}) {
    for (const auto& s : nlohmann::json::parse(Info("sessions", principal)))
      bytes += s["bytes"].get<int64_t>() - s["program_bytes"].get<int64_t>();
  }
  return bytes;
}

std::vector<int64_t> RandomSymbols(const DimTable& dims, std::mt19937_64& random) {
  std::vector<int64_t> symbols;
  for (const DimSymbol& s : dims.symbols()) {
    const int64_t most = std::min<int64_t>(s.upper, kRandomSymbolUpper),
                  low = (s.lower + s.multiple - 1) / s.multiple;
    symbols.push_back(
        (low + static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(
                                                   most / s.multiple - low + 1, 1)))) *
        s.multiple);
  }
  return symbols;
}

std::vector<std::string> CoreTest::Outcome(Client& c, const Module& m, uint64_t seed,
                                           const FillParam& fill) {
  std::mt19937_64 rng(seed);
  const Function& f = m.functions[0];
  const std::vector<int64_t> symbols = RandomSymbols(m.dims, rng);
  DimValues values(m.dims, symbols);
  fb::PutProgramT put;
  put.slot = 1;
  const Answer loaded = Ask(c, std::move(put), Serialise(m));
  EXPECT_TRUE(loaded.ok()) << loaded.status << "\n" << Print(m);
  RunOf run(1);
  std::vector<uint64_t> inouts;
  for (size_t i = 0; i < f.params.size(); ++i) {
    const Param& p = f.params[i];
    if (p.mode == ParamMode::kDim) {
      run.Dim(*values.Get(p.dim));
      continue;
    }
    std::vector<int64_t> shape;
    for (Dim d : p.type.shape) shape.push_back(*values.Get(d));
    std::string bytes(static_cast<size_t>(*TensorBytes(p.type.dtype, p.type.encoding, shape)),
                      '\0');
    if (fill) {
      fill(p, bytes, rng);
    } else {  // small numbers: what they mean depends on the type
      for (char& b : bytes)
        b = static_cast<char>(p.type.dtype == DType::kBool ? rng() % 2 : rng() % 64);
    }
    fb::PutT tensor;
    tensor.id = IdPtr(c, i + 1);
    tensor.type = std::make_unique<fb::TensorTypeT>();
    tensor.type->dtype = static_cast<uint8_t>(p.type.dtype);
    tensor.type->encoding = static_cast<uint8_t>(p.type.encoding);
    tensor.type->shape = shape;
    tensor.bytes_follow = bytes.size() <= kMaxFrameBytes;
    Answer a = Ask(c, std::move(tensor), bytes.size() <= kMaxFrameBytes ? bytes : "");
    if (a.ok() && bytes.size() > kMaxFrameBytes)
      a = FillAndSeal(c, i + 1, a.tensor().ticket, bytes);
    EXPECT_TRUE(a.ok()) << a.status;
    run.Tensor(c, i + 1);
    if (p.mode == ParamMode::kInout) inouts.push_back(i + 1);
  }
  std::vector<uint64_t> wanted = inouts;
  for (size_t r = 0; r < f.results.size(); ++r) {
    const bool replaces = std::any_of(f.params.begin(), f.params.end(), [&](const Param& p) {
      return p.mode == ParamMode::kInout && p.name == f.results[r].name;
    });
    if (replaces) {
      run.None();
    } else {
      run.Keep(1000 + r);
      wanted.push_back(1000 + r);
    }
  }
  const Answer a = Ask(c, run);
  std::vector<std::string> out = {a.status.ToString()};
  for (uint64_t counter : wanted) {
    const Answer got = Get(c, counter);
    out.push_back(!got.ok()                  ? got.status.ToString()
                  : got.tensor().ticket != 0 ? Fetched(got.tensor())
                                             : got.bulk);
  }
  return out;
}

namespace {

std::shared_ptr<const Program> ProgramOf(Device& device, const std::string& text, bool fuses) {
  auto set = std::make_shared<KernelSet>();
  set->variants = BuildVariantTable(device);
  if (fuses) set->fuser = BuildFuser(device);
  return PrepareProgram(Serialise(Parse(text, "t").value()), set, ExecutorLimits()).value();
}

}  // namespace

Schedule ScheduleOf(const std::string& text) {
  const std::unique_ptr<Device> device = OpenDevice("cpu", {}).value();
  return ProgramOf(*device, text, /*fuses=*/true)->plans[0].schedule;
}

std::vector<std::string> StepsOf(const std::string& text, std::vector<int64_t> symbols,
                                 bool fuses) {
  const std::unique_ptr<Device> device = OpenDevice("cpu", {}).value();
  const auto program = ProgramOf(*device, text, fuses);
  const auto instance =
      Instance::Build(*program, 0, std::move(symbols), {.runtime = device->runtime()}).value();
  std::vector<std::string> labels;
  for (uint32_t i = 0; i < instance->steps().size(); ++i) {
    const Step& step = instance->steps()[i];
    labels.push_back(LabelOf(step, program->kernels->variants));
    const FusedGroup* const group = instance->GroupAt(i);
    if (!group) continue;
    std::vector<std::string> ops;
    const size_t of_one = group->members > 1 ? group->first_nodes : group->nodes.size();
    for (const uint32_t n : std::span(group->nodes).first(of_one))
      ops.push_back(program->module.functions[instance->FunctionOf(step)].nodes[n].op);
    if (group->members > 1) labels.back() += fmt::format(" x{}", group->members);
    labels.back() += fmt::format("({})", fmt::join(ops, ", "));
  }
  return labels;
}

std::vector<std::string> WithoutVariants(std::vector<std::string> labels) {
  for (std::string& label : labels) label.resize(std::min(label.find('@'), label.size()));
  return labels;
}

}  // namespace opwire::executor
