// The values of the golden files. No two fields of a table are equal, so that none can take
// another's place.
#include "tests/ir/golden_values.h"

#include <gtest/gtest.h>

#include "ir/text/text.h"

namespace opwire::golden {
namespace {

using Ints = std::vector<int64_t>;

template <typename T>
std::unique_ptr<T> Box(T value) {
  return std::make_unique<T>(std::move(value));
}
template <typename T>
std::vector<std::unique_ptr<T>> List(T a, T b) {
  std::vector<std::unique_ptr<T>> list;
  list.push_back(Box(std::move(a)));
  list.push_back(Box(std::move(b)));
  return list;
}

std::unique_ptr<fb::TensorId> Id(uint64_t counter) {
  return std::make_unique<fb::TensorId>(3, 0, counter);
}
std::vector<uint8_t> Token() {
  std::vector<uint8_t> token;
  for (uint8_t i = 0; i < 16; ++i) token.push_back(static_cast<uint8_t>(0xa0 + i));
  return token;
}

fb::TensorTypeT Type(Ints shape) {
  fb::TensorTypeT t;
  t.dtype = 10;
  t.encoding = 3;
  t.shape = std::move(shape);
  return t;
}

fb::RunT Run(uint32_t slot) {
  fb::RunT r;
  r.slot = slot;
  r.function = 2;
  r.bindings = {fb::Binding(fb::BindingKind::Tensor, 1, 2, 0, 3, 4, 5),
                fb::Binding(fb::BindingKind::Scalar, 2, 0, 0, 0, 0x3f800000, 0),
                fb::Binding(fb::BindingKind::Dim, 0, 0, 0, 0, 128, 0),
                fb::Binding(fb::BindingKind::Inline, 5, 2, 0, 0, 16, 24)};
  r.results = {fb::ResultSlot(fb::ResultKind::NotWanted, 0, 0),
               fb::ResultSlot(fb::ResultKind::Inline, 0, 0),
               fb::ResultSlot(fb::ResultKind::Kept, 0, 77)};
  r.shapes = {3, 1, int64_t{1} << 40};
  r.payload = {9, 8, 7, 6, 5};
  r.deadline_us = 1'000'001;
  r.trace_id = 0x0123456789abcdef;
  r.waits = {fb::TimelinePoint(11, 12)};
  r.signals = {fb::TimelinePoint(13, 14), fb::TimelinePoint(15, 16)};
  r.group = 17;
  r.epoch = 18;
  r.group_order = 19;
  r.profile = true;
  return r;
}

fb::LoadInfoT Load(uint32_t sessions) {
  fb::LoadInfoT l;
  l.sessions = sessions;
  l.queued = 2;
  l.queued_ns = 3'000'000'000;
  l.runs = 4;
  l.free_memory = int64_t{5} << 32;
  l.busy_since_ms = 6;
  l.op = "softmax";
  return l;
}

fb::ExecutorInfoT Executor(const std::string& id) {
  fb::VariantEntryT variant;
  variant.name = "avx512";
  variant.tier = 2;
  variant.priority = -7;
  variant.dtypes = 0x00ff00ff;
  variant.cost_ns = 12.5;
  fb::VariantEntryT other;
  other.name = "reference";
  other.dtypes = 1;
  fb::OpEntryT op;
  op.name = "matmul";
  op.version = 2;
  op.dtypes = 0x0f;
  op.variants = List(variant, other);
  fb::OpEntryT bare;
  bare.name = "neg";
  fb::KeyValueT fact;
  fact.key = "onednn";
  fact.value = "3.1";
  fb::KeyValueT cores;
  cores.key = "cores";
  cores.value = "0-3";
  fb::ExecutorInfoT e;
  e.id = id;
  e.incarnation = 21;
  e.control_endpoint = "ipc:///run/x.ctl";
  e.device = "cpu";
  e.device_name = "a processor";
  e.arch = "x86-64 avx2";
  e.memory_bytes = int64_t{1} << 34;
  e.free_memory = int64_t{1} << 33;
  e.compute_units = 22;
  e.labels = {"fast", "lab"};
  e.facts = List(fact, cores);
  e.ops = List(op, bare);
  e.load = Box(Load(23));
  e.uid = 1000;
  e.insecure = true;
  return e;
}

fb::TensorInfoT Tensor(uint64_t counter) {
  fb::TensorInfoT t;
  t.id = Id(counter);
  t.type = Box(Type({2, 3}));
  t.name = "weights";
  t.bytes = 24;
  t.state = 2;
  t.offset = 4096;
  return t;
}

fb::RunReplyT Answer(uint32_t flags) {
  fb::StepCostT cost;
  cost.node = 1;
  cost.label = "matmul@onednn";
  cost.ns = 2;
  fb::StepCostT other;
  other.label = "copy@result";
  fb::RunReplyT r;
  r.results = {fb::ResultInfo(fb::ResultKind::Inline, 2, 2, 0, 16, 24),
               fb::ResultInfo(fb::ResultKind::Kept, 7, 0, 0, -1, 8)};
  r.shapes = {4, 5};
  r.payload = {1, 2, 3};
  r.flags = flags;
  r.queue_ns = 31;
  r.run_ns = 32;
  r.profile = List(cost, other);
  return r;
}

template <typename Envelope, typename Body>
void Add(std::vector<Envelope>& list, Body body) {
  Envelope e;
  e.seq = 1000 + list.size();
  e.body.Set(std::move(body));
  list.push_back(std::move(e));
}

constexpr const char* kVerified = R"(dim ?b in [1, 4096] multiple 8
dim ?n

program @main(%x: f32[?b, 4], inout %w: f32[4, 4], %i: i64[?b], dim %n: ?n, %q: i8:q8_0[8, 32]) -> (y: f32[?b, 8], w: f32[4, 4], r: f32[?n+1], q: i8:q8_0[8, 32]) {
  %0 = matmul@cpu.onednn(%x, %w) {transpose_y = true} loc("model.py:3 \"fc\"")
  %1 = cat([%0, %x]) {dim = -1}
  %2 = layer_norm(%1, _, _) {eps = 1e-05}
  %3 = embedding(%w, %i)
  %4 = full() {shape = [], value = -inf}
  %5 = constant() {type = f32[2, 1], value = #0}
  %6 = values() {value = [1.0, -0.0, nan, inf, 1e+300]}
  %7 = full() {shape = [?n+1], value = 0.1, dtype = f32}
  %8 = zeros() {shape = [4, 4]}
  %9 = zeros() {shape = [2*?b, min(4, ?b), (?b+?n)/2, ?b%3, max(0, ?n+-1), ?b/8*?n]}
  return %2, %8, %7, %q
}

function @helper(%x: f32[]) -> (y: f32[]) {
  %0 = neg(%x)
  return %0
}

blob 0 =
  "0000803f000000c0"
)";

}  // namespace

std::vector<fb::RequestT> Requests(int minor) {
  std::vector<fb::RequestT> all;
  fb::RequestT plain;  // a body is not needed
  plain.seq = 1;
  plain.frees = {*Id(41), *Id(42)};
  plain.acked = 43;
  all.push_back(std::move(plain));

  fb::HelloT hello;
  hello.major = 1, hello.minor = 7, hello.client = "a client", hello.session = "a session",
  hello.token = Token(), hello.ttl_s = 60;
  hello.memory_bytes = uint64_t{1} << 35;
  Add(all, std::move(hello));
  fb::ByeT bye;
  bye.token = Token(), bye.free = true;
  Add(all, std::move(bye));
  fb::CancelT cancel;
  cancel.token = Token(), cancel.attachment = 3, cancel.seq = 44;
  Add(all, std::move(cancel));
  fb::InfoT info;
  info.topic = "explain", info.argument = "matmul", info.dtype = 2, info.token = Token();
  Add(all, std::move(info));
  fb::WriteChunkT write;
  write.ticket = 45, write.offset = 46;
  Add(all, write);
  fb::ReadChunkT read;
  read.ticket = 47, read.offset = 48, read.size = 49;
  Add(all, read);
  fb::CloseTransferT close;
  close.ticket = 50;
  Add(all, close);
  fb::AttachT attach;
  attach.token = Token(), attach.attachment = 51;
  Add(all, std::move(attach));
  fb::PutProgramT program;
  program.slot = 52, program.bytes = Id(53);
  Add(all, std::move(program));
  fb::DropProgramT drop;
  drop.slot = 54;
  Add(all, drop);
  Add(all, Run(55));
  fb::BatchT batch;
  batch.runs = List(Run(56), Run(57));
  Add(all, std::move(batch));
  fb::PutT put;
  put.id = Id(58), put.type = Box(Type({59, 0})), put.bytes_follow = true, put.name = "bias";
  Add(all, std::move(put));
  fb::SealT seal;
  seal.id = Id(60);
  Add(all, std::move(seal));
  fb::GetT get;
  get.id = Id(61);
  Add(all, std::move(get));
  fb::RenameT rename;
  rename.id = Id(62), rename.name = "another";
  Add(all, std::move(rename));
  fb::CopyT copy;
  copy.from = Id(63), copy.to = Id(64);
  Add(all, std::move(copy));
  Add(all, fb::ListT());
  fb::PrintT print;
  print.id = Id(65), print.max_elements = 66;
  Add(all, std::move(print));
  fb::SaveT save;
  save.id = Id(67), save.path = "out/x.npy";
  Add(all, std::move(save));
  fb::LoadT load;
  load.id = Id(68), load.path = "in/x.npy";
  Add(all, std::move(load));
  Add(all, fb::FlushT());
  fb::RegisterT enter;
  enter.info = Box(Executor("cpu-0"));
  Add(all, std::move(enter));
  fb::HeartbeatT beat;
  beat.id = "cpu-1", beat.incarnation = 69, beat.load = Box(Load(70)), beat.draining = true,
  beat.died = {"@mlp: %0 matmul", "more"};
  Add(all, std::move(beat));
  fb::UnregisterT leave;
  leave.id = "cpu-2", leave.incarnation = 71;
  Add(all, std::move(leave));
  fb::QueryT query;
  query.device = "cpu", query.label = "fast", query.op = "add", query.dtype = 4,
  query.free_memory = 72, query.with_ops = true, query.after = "cpu-1";
  Add(all, std::move(query));
  fb::WatchT watch;
  watch.epoch = 73, watch.sequence = 74;
  Add(all, watch);
  if (minor >= 2) {
    fb::BatchT batch;
    batch.independent = true;
    Add(all, std::move(batch));
  }
  if (minor >= 3) {
    fb::LoadT load;
    load.id = Id(104), load.path = "in/model.gguf", load.tensor = "blk.0.attn_q.weight";
    Add(all, std::move(load));
    fb::GrantT grant;
    grant.id = Id(105), grant.session = "a notebook", grant.principal = "key:ada", grant.name = "w";
    Add(all, std::move(grant));
    fb::RevokeT revoke;
    revoke.capability = Token();
    Add(all, std::move(revoke));
    fb::TakeT take;
    take.id = Id(106), take.capability = Token(), take.session = "a model", take.name = "w";
    Add(all, std::move(take));
  }
  return all;
}

std::vector<fb::ReplyT> Replies(int minor) {
  std::vector<fb::ReplyT> all;
  fb::ReplyT failed;
  failed.seq = 1, failed.part = 81, failed.last = false, failed.code = 8,
  failed.message = "out of memory";
  failed.site = std::make_unique<fb::ErrorSiteT>();
  failed.site->program = "mlp", failed.site->node = 82, failed.site->op = "matmul",
  failed.site->location = "model.py:3";
  all.push_back(std::move(failed));

  Add(all, fb::DoneT());
  fb::HelloReplyT hello;
  hello.major = 1, hello.minor = 5, hello.executor = "cpu-0", hello.incarnation = 83,
  hello.session = 84, hello.token = Token();
  hello.attachment = 85, hello.run_endpoint = "ipc:///run/x.run", hello.ring_path = "/run/x.ring",
  hello.credit_requests = 86;
  hello.credit_bytes = 87, hello.limits = {fb::Limit(1, 16), fb::Limit(19, 64)},
  hello.next_seq = 88, hello.device = "cpu";
  Add(all, std::move(hello));
  fb::InfoReplyT info;
  info.json = "{\"a\": 1}";
  Add(all, std::move(info));
  Add(all, Answer(89));
  fb::BatchReplyT batch;
  batch.runs = List(Answer(90), Answer(91));
  Add(all, std::move(batch));
  fb::TensorReplyT tensor;
  tensor.info = Box(Tensor(92)), tensor.ticket = 93;
  Add(all, std::move(tensor));
  fb::ListReplyT list;
  list.tensors = List(Tensor(94), Tensor(95));
  Add(all, std::move(list));
  fb::TextReplyT text;
  text.text = "f32[1]\n[1]";
  Add(all, std::move(text));
  fb::ProgramReplyT program;
  program.cached = true, program.nodes = 96;
  Add(all, program);
  fb::BeatT beat;
  beat.epoch = 97, beat.beat_ms = 1000, beat.again = true;
  Add(all, beat);
  fb::QueryReplyT query;
  query.epoch = 98, query.sequence = 99, query.warming = true,
  query.executors = List(Executor("cpu-0"), Executor("cpu-1"));
  query.more = true;
  Add(all, std::move(query));
  fb::ChangeT change;
  change.epoch = 100, change.sequence = 101, change.joined = Box(Executor("cpu-3")),
  change.left = "cpu-4", change.reason = "silent";
  Add(all, std::move(change));
  if (minor >= 1) {
    fb::EmittedT emitted;
    emitted.name = "loss", emitted.payload = {1, 2, 3, 4};
    emitted.type = std::make_unique<fb::TensorTypeT>();
    emitted.type->dtype = 2, emitted.type->encoding = 0, emitted.type->shape = {1};
    Add(all, std::move(emitted));
  }
  if (minor >= 2) {
    fb::BatchReplyT independent;
    independent.runs = List(Answer(102), fb::RunReplyT());
    independent.runs[1]->failure = std::make_unique<fb::FailureT>();
    fb::FailureT& failure = *independent.runs[1]->failure;
    failure.code = 11, failure.message = "out of range",
    failure.site = std::make_unique<fb::ErrorSiteT>();
    failure.site->program = "take", failure.site->node = 103, failure.site->op = "index_select",
    failure.site->location = "train.py:3";
    Add(all, std::move(independent));
  }
  if (minor >= 3) {
    fb::GrantReplyT granted;
    granted.capability = Token();
    Add(all, std::move(granted));
    fb::TensorReplyT loaded;
    loaded.info = Box(Tensor(108)), loaded.file_bytes = 109;
    Add(all, std::move(loaded));
  }
  return all;
}

Module Verified(int) {
  auto m = Parse(kVerified, "golden.opw");
  EXPECT_TRUE(m.ok()) << m.status();
  return m.ok() ? *std::move(m) : Module();
}

Module Everything(int minor) {
  Module m = Verified(minor);
  m.features = {"one", "two"};
  const Dim b = *m.dims.Symbol("b", 1, 4096, 8), found = m.dims.FromValue(3, m.dims.Constant(128));
  Node node;
  node.op = "user.everything";
  node.version = 9;
  node.operands = {0, kAbsent, 1};
  node.segments = {1, 1, 1};
  node.attrs = {
      {"int", int64_t{-5}},
      {"float", 2.5},
      {"bool", true},
      {"string", std::string("a \"b\"\n")},
      {"dtype", DType::kBF16},
      {"dim", b},
      {"type", TensorType{.dtype = DType::kI8, .encoding = Encoding::kDense, .shape = {b, found}}},
      {"blob", BlobRef{0}},
      {"ints", Ints{1, -2, 3}},
      {"floats", Doubles{0.5, -0.0}},
      {"bools", Bools{true, false}},
      {"strings", Strings{"x", ""}},
      {"dtypes", DTypes{DType::kF64, DType::kBool}},
      {"dims", Dims{found, b}}};
  node.calls = {1, 0};
  node.results = {TensorType{.dtype = DType::kF16, .encoding = Encoding::kDense, .shape = {found}}};
  node.pin = "a.variant";
  node.location = "file.py:1";
  m.functions[0].nodes.push_back(std::move(node));
  return m;
}

}  // namespace opwire::golden
