// Whole systems, measured by the host's clock: from the start of a process to an answer, one small
// run, tensors in and out.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "ir/text/text.h"
#include "tests/bench/gpu/executors.h"
#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

constexpr double kOfCopy =
    0.85;  // share of the device's own copy speed that a transfer in or out must reach

// ---- Start

// Returns the seconds until a fresh executor has answered its first run.
StatusOr<double> StartOnce(Gpu& gpu, const Setup& setup, const std::string& cache) {
  static int count = 0;
  const std::string name = fmt::format("start{}", count++);
  const Environment environment("OPWIRE_CACHE", cache);
  const double begun = Seconds();
  Child executor(ExecutorCommand(gpu, setup, name, "on"));
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(name));
  OPWIRE_ASSIGN_OR_RETURN(const Program program, session.Load(kAdd));
  const Array x = Array::Random(DType::kF32, {16}, 1);
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<Array> sum, program.Call({x, x}));
  const double seconds = Seconds() - begun;
  Array twice = x;
  for (float& v : twice.values<float>()) v *= 2;
  OPWIRE_RETURN_IF_ERROR(Attempt([&] { MustAgree(sum, {twice}, 0); }));
  return seconds;
}

// Returns the seconds until a fresh executor has compiled all kernels that it compiles ahead.
StatusOr<double> AheadOnce(Gpu& gpu, const Setup& setup, const std::string& cache) {
  constexpr double kLongest = 300;  // seconds
  static int count = 0;
  const std::string name = fmt::format("ahead{}", count++);
  const Environment environment("OPWIRE_CACHE", cache);
  const double begun = Seconds();
  Child executor(ExecutorCommand(gpu, setup, name, "on"));
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(name));
  while (Seconds() - begun < kLongest) {
    OPWIRE_ASSIGN_OR_RETURN(const std::string facts, session.Info("toolchains"));
    const nlohmann::json ahead = nlohmann::json::parse(facts).at("ahead");
    if (ahead.at("state") == "ready") return Seconds() - begun;
    if (ahead.at("state") != "compiling")
      return Internal("{}: {}", ahead.at("state").get<std::string>(),
                      ahead.at("reason").get<std::string>());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return DeadlineExceeded("not all kernels are there after {:g} s", kLongest);
}

void Start(Gpu& gpu, const Setup& setup, std::vector<Row>& rows) {
  gpu.Begin("start_call");
  const auto warm = [&] { return StartOnce(gpu, setup, setup.directory + "/warm"); };
  const auto cold = [&]() -> StatusOr<double> {
    const std::string cache = setup.directory + "/cold";
    std::filesystem::remove_all(cache);
    return StartOnce(gpu, setup, cache);
  };
  const auto bare = [&]() -> StatusOr<double> {
    const double begun = Seconds();
    Child child({"/proc/self/exe", "--bare", gpu.options().device});
    if (!child.Wait()) return Internal("it failed");
    return Seconds() - begun;
  };
  const auto ahead = [&]() -> StatusOr<double> {
    const std::string cache = setup.directory + "/cold-ahead";
    std::filesystem::remove_all(cache);
    return AheadOnce(gpu, setup, cache);
  };
  if (const auto first = warm(); !first.ok())
    return rows.push_back(FailedRow("start_call", first.status()));
  if (!gpu.options().small) {  // where compiling all of them takes most of a minute
    if (const auto all = AheadOnce(gpu, setup, setup.directory + "/warm"); !all.ok())
      return rows.push_back(FailedRow("start_call", all.status()));
  }
  const auto checked = [] { return absl::OkStatus(); };  // by StartOnce
  const std::vector<Series> series =
      TakeTurns(gpu, {{"warm", warm, checked},
                      {"cold", cold, checked},
                      {"a process that binds the device and ends", bare}});
  rows.push_back(TimeRow("start_call", "s", 1, series[0], &series[2]));
  rows.push_back(TimeRow("start_cold_call", "s", 1, series[1], &series[2]));
  rows.push_back(TimeRow("ahead_cold_call", "s", 1, TakeTurns(gpu, {{"cold", ahead}})[0], nullptr));
}

// ---- One small run

Status RoundTrip(Gpu& gpu, const Setup& setup, const std::string& executor,
                 std::vector<Row>& rows) {
  gpu.Begin("roundtrip_call");
  constexpr int64_t kFloats = 16;
  const int times = gpu.options().small ? 10 : 1000;
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(executor));
  OPWIRE_ASSIGN_OR_RETURN(const Program program, session.Load(kAdd));
  const Array x = Array::Random(DType::kF32, {kFloats}, 1);
  OPWIRE_ASSIGN_OR_RETURN(const Tensor on_device, session.Put(x.view()));
  RunOptions options;
  options.wants = {Want::kInline};
  OPWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subject> add,
      Subject::OfOp(gpu, "add", {{DType::kF32, {kFloats}}, {DType::kF32, {kFloats}}}, {}));
  OPWIRE_ASSIGN_OR_RETURN(const Buffer host,
                          Buffer::Allocate(gpu.device(), kFloats * 4, MemoryKind::kPinnedHost));
  const auto median = [times](const std::function<Status()>& once) -> StatusOr<double> {
    std::vector<double> seconds;
    for (int i = 0; i < times; ++i) {
      const double begun = Seconds();
      OPWIRE_RETURN_IF_ERROR(once());
      seconds.push_back(Seconds() - begun);
    }
    return Percentile(std::move(seconds), 0.5);
  };
  const auto ours = [&] {
    return median([&] { return program.Run({on_device, on_device}, options).status(); });
  };
  const auto bare = [&] {
    return median([&]() -> Status {
      OPWIRE_RETURN_IF_ERROR(add->Launch(0));
      OPWIRE_RETURN_IF_ERROR(gpu.device().Copy(host.data(), add->result(0), kFloats * 4, 0));
      return gpu.device().Synchronize();
    });
  };
  OPWIRE_RETURN_IF_ERROR(ours().status());
  OPWIRE_RETURN_IF_ERROR(bare().status());
  const auto check = [&] {
    return Attempt([&] {
      const Array a = Array::Random(DType::kF32, {kFloats}, 1);
      MustAgree(ResultsOf(program, {on_device, on_device}),
                ByReference(setup, Must(Parse(kAdd, "add")), {a, a}), 0);
    });
  };
  const auto check_bare = [&]() -> Status {
    OPWIRE_RETURN_IF_ERROR(add->Launch(1));  // the set that is not measured
    return add->Check();
  };
  const std::vector<Series> series = TakeTurns(
      gpu, {{"ours", ours, check}, {"launch, copy, synchronise in one process", bare, check_bare}});
  rows.push_back(TimeRow("roundtrip_call", "us", 1e6, series[0], &series[1]));
  return absl::OkStatus();
}

// ---- Many small ops

constexpr int64_t kElements = 1024;
struct Sums {
  int ops, rebound;
};

// Returns a program of sums. Each sum adds a parameter to the previous one: the first `rebound`
// sums add a parameter of their own, the others add %x. Nodes that are pinned run one by one.
std::string SumsText(const Sums& sums) {
  std::string text = fmt::format("program @sums(%x: f32[{}]", kElements);
  for (int i = 0; i < sums.rebound; ++i) text += fmt::format(", %p{}: f32[{}]", i, kElements);
  text += fmt::format(") -> (y: f32[{}]) {{\n", kElements);
  for (int i = 0; i < sums.ops; ++i) {
    const std::string before = i == 0 ? "x" : std::to_string(i - 1),
                      with = i < sums.rebound ? fmt::format("p{}", i) : "x";
    text += fmt::format("  %{} = add@gpu(%{}, %{})\n", i, before, with);
  }
  return text + fmt::format("  return %{}\n}}\n", sums.ops - 1);
}

// Measures a run of them with the same tensors as before, and with tensors that change from run to
// run.
Status Replays(Gpu& gpu, const Setup& setup, const std::string& executor, std::vector<Row>& rows) {
  gpu.Begin("replay_1000_call");
  const int runs = gpu.options().small ? 2 : 50;
  const Sums sums = gpu.options().small ? Sums{20, 4} : Sums{1000, 100};
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(executor));
  OPWIRE_ASSIGN_OR_RETURN(const Program program, session.Load(SumsText(sums)));
  // Binding 0 or 1: each has its own tensors, except for %x.
  const auto values = [&](uint64_t binding) {
    std::vector<Array> out = {Array::Random(DType::kF32, {kElements}, 1)};
    for (int i = 0; i < sums.rebound; ++i)
      out.push_back(Array::Random(DType::kF32, {kElements}, 2 * out.size() + binding));
    return out;
  };
  std::vector<Arg> bindings[2];
  for (const int b : {0, 1}) {
    for (const Array& array : values(static_cast<uint64_t>(b))) {
      if (b == 1 && bindings[1].empty()) {
        bindings[1].push_back(bindings[0][0]);
        continue;
      }
      OPWIRE_ASSIGN_OR_RETURN(Tensor t, session.Put(array.view()));
      bindings[b].emplace_back(std::move(t));
    }
  }
  RunOptions options;
  options.wants = {Want::kNothing};
  const auto of = [&, runs](int sets) {
    return [&, runs, sets]() -> StatusOr<double> {
      const double begun = Seconds();
      for (int i = 0; i < runs; ++i)
        OPWIRE_RETURN_IF_ERROR(program.Run(bindings[i % sets], options).status());
      return (Seconds() - begun) / runs / sums.ops;
    };
  };
  OPWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subject> add,
      Subject::OfOp(gpu, "add", {{DType::kF32, {kElements}}, {DType::kF32, {kElements}}}, {}));
  const Measurement bare = SecondsOf(
      gpu, [&](int i) { return add->Launch(i); }, sums.ops);
  for (const int sets : {1, 2}) OPWIRE_RETURN_IF_ERROR(of(sets)().status());
  const auto check = [&](uint64_t binding) {
    return [&, binding] {
      return Attempt([&] {
        const std::vector<Array> fresh = values(binding);
        MustAgree(
            ResultsOf(program, bindings[binding]),
            ByReference(setup, Must(Parse(SumsText(sums), "sums")), {fresh.begin(), fresh.end()}),
            0);
      });
    };
  };
  const std::vector<Series> series =
      TakeTurns(gpu, {{"ours", of(1), check(0)},
                      {"with other tensors in each run", of(2), check(1)},
                      {"a graph of as many launches", bare, [&] { return add->Check(); }}});
  rows.push_back(TimeRow("replay_1000_call", "ns/op", 1e9, series[0], &series[2], 1.05));
  rows.push_back(TimeRow("replay_rebound_call", "ns/op", 1e9, series[1], &series[2], 1.3));
  return absl::OkStatus();
}

// ---- A loop whose end only the device knows

constexpr int kIterations = 10'000;
// Negates until a count reaches its limit.
constexpr std::string_view kWhile = R"(
program @loop(%limit: f32[], %x: f32[1024]) -> (count: f32[]) {
  %0 = full() {value = 0.0, dtype = f32, shape = []}
  %y, %t = while([%x, %0], [%limit]) calls(@below, @step) {max_trips = 1000000}
  return %t
}
function @below(%y: f32[1024], %t: f32[], %limit: f32[]) -> (again: bool[]) {
  %0 = lt(%t, %limit)
  return %0
}
function @step(inout %y: f32[1024], %t: f32[], %limit: f32[]) -> (y: f32[1024], t: f32[]) {
  %0 = neg(%y)
  %one = full() {value = 1.0, dtype = f32, shape = []}
  %1 = add(%t, %one)
  return %0, %1
})";

// Compares with a host that starts each iteration on its own: it launches kernels of the same
// sizes, and fetches the condition.
Status While(Gpu& gpu, const Setup&, const std::string& executor, std::vector<Row>& rows) {
  gpu.Begin("while_call");
  const int iterations = gpu.options().small ? 5 : kIterations;
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(executor));
  OPWIRE_ASSIGN_OR_RETURN(const Program program, session.Load(kWhile));
  OPWIRE_ASSIGN_OR_RETURN(const Tensor x,
                          session.Put(Array::Random(DType::kF32, {kElements}, 1).view()));
  RunOptions options;
  options.wants = {Want::kNothing};
  const auto ours = [&]() -> StatusOr<double> {
    const double begun = Seconds();
    OPWIRE_RETURN_IF_ERROR(program.Run({static_cast<float>(iterations), x}, options).status());
    return (Seconds() - begun) / iterations;
  };
  OPWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subject> add,
      Subject::OfOp(gpu, "add", {{DType::kF32, {kElements}}, {DType::kF32, {kElements}}}, {}));
  OPWIRE_ASSIGN_OR_RETURN(const Buffer host,
                          Buffer::Allocate(gpu.device(), 64, MemoryKind::kPinnedHost));
  const auto by_host = [&]() -> StatusOr<double> {
    const double begun = Seconds();
    for (int i = 0; i < iterations; ++i) {
      for (int kernel = 0; kernel < 3; ++kernel) OPWIRE_RETURN_IF_ERROR(add->Launch(0));
      OPWIRE_RETURN_IF_ERROR(gpu.device().Copy(host.data(), add->result(0), 1, 0));
      OPWIRE_RETURN_IF_ERROR(gpu.device().Synchronize());
    }
    return (Seconds() - begun) / iterations;
  };
  OPWIRE_RETURN_IF_ERROR(ours().status());
  OPWIRE_RETURN_IF_ERROR(by_host().status());
  const auto check = [&] {
    return Attempt([&] {
      const float limit = static_cast<float>(iterations);
      MustAgree(ResultsOf(program, {limit, x}), {Array::Of<float>(DType::kF32, {}, {{limit}})}, 0);
    });
  };
  const std::vector<Series> series = TakeTurns(
      gpu, {{"ours", ours, check}, {"three launches, a copy, a synchronisation", by_host}});
  rows.push_back(TimeRow("while_call", "us/iteration", 1e6, series[0], &series[1]));
  return absl::OkStatus();
}

// ---- Tensors in and out

Status Transfers(Gpu& gpu, const Setup&, const std::string& executor, std::vector<Row>& rows) {
  gpu.Begin("transfers_call");
  const int64_t bytes = gpu.options().small ? int64_t{1} << 18 : int64_t{1} << 30,
                floats = bytes / 4;
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenSession(executor, 4 * bytes));
  const Array source = Array::Random(DType::kF32, {floats}, 1);
  Array sink(DType::kF32, {floats});
  OPWIRE_ASSIGN_OR_RETURN(const Tensor there, session.Put(source.view()));
  OPWIRE_ASSIGN_OR_RETURN(const Buffer device, Buffer::Allocate(gpu.device(), bytes));
  OPWIRE_ASSIGN_OR_RETURN(const Buffer pinned,
                          Buffer::Allocate(gpu.device(), bytes, MemoryKind::kPinnedHost));
  std::memcpy(pinned.data(), source.bytes().data(), static_cast<size_t>(bytes));
  Array pageable = source;
  char* const foreign = reinterpret_cast<char*>(pageable.bytes().data());

  const auto put_segment = [&]() -> StatusOr<double> {
    const double begun = Seconds();
    OPWIRE_ASSIGN_OR_RETURN(const Writable w, session.Alloc(DType::kF32, {floats}));
    const double allocated = Seconds();
    std::memcpy(w.bytes.data(), source.bytes().data(),
                static_cast<size_t>(bytes));  // the client's own work
    const double filled = Seconds();
    OPWIRE_RETURN_IF_ERROR(session.Seal(w));
    return Seconds() - filled + allocated - begun;
  };
  const auto put_foreign = [&]() -> StatusOr<double> {
    const double begun = Seconds();
    OPWIRE_RETURN_IF_ERROR(session.Put(source.view()).status());
    return Seconds() - begun;
  };
  const auto get_segment = [&]() -> StatusOr<double> {
    const double begun = Seconds();
    OPWIRE_ASSIGN_OR_RETURN(const TensorView view, session.View(there));
    const double viewed = Seconds();
    if (std::memcmp(view.bytes().data(), source.bytes().data(), static_cast<size_t>(bytes)) != 0)
      return Internal("what is seen is not what was sent");
    return viewed - begun;
  };
  const auto get_foreign = [&]() -> StatusOr<double> {
    const double begun = Seconds();
    OPWIRE_RETURN_IF_ERROR(session.FetchInto(there, sink.bytes()));
    return Seconds() - begun;
  };
  const auto copy = [&](char* to, const char* from) {
    return [&gpu, bytes, to, from]() -> StatusOr<double> {
      const double begun = Seconds();
      OPWIRE_RETURN_IF_ERROR(gpu.device().Copy(to, from, bytes, 0));
      OPWIRE_RETURN_IF_ERROR(gpu.device().Synchronize());
      return Seconds() - begun;
    };
  };
  // The returned bytes are compared with the source, which is created again.
  const auto same = [floats](std::span<const uint8_t> bytes) -> Status {
    const Array sent = Array::Random(DType::kF32, {floats}, 1);
    return std::ranges::equal(bytes, sent.bytes())
               ? absl::OkStatus()
               : Internal("the bytes that came back are not those that were sent");
  };
  const auto fetched = [&](const Tensor& t) -> Status {
    OPWIRE_ASSIGN_OR_RETURN(const Array back, session.Fetch(t));
    return same(back.bytes());
  };
  const auto check_segment = [&]() -> Status {
    OPWIRE_ASSIGN_OR_RETURN(const Writable w, session.Alloc(DType::kF32, {floats}));
    std::memcpy(w.bytes.data(), source.bytes().data(), static_cast<size_t>(bytes));
    OPWIRE_RETURN_IF_ERROR(session.Seal(w));
    return fetched(w.tensor);
  };
  const auto check_foreign = [&]() -> Status {
    OPWIRE_ASSIGN_OR_RETURN(const Tensor t, session.Put(source.view()));
    return fetched(t);
  };
  const auto check_view = [&]() -> Status {
    OPWIRE_ASSIGN_OR_RETURN(const TensorView view, session.View(there));
    return same(view.bytes());
  };
  const std::vector<Side> sides = {
      {"put", put_segment, check_segment},
      {"put", put_foreign, check_foreign},
      {"get", get_segment, check_view},
      {"get", get_foreign, [&] { return same(sink.bytes()); }},
      {"a copy from pinned memory", copy(device.data(), pinned.data())},
      {"a copy from pageable memory", copy(device.data(), foreign)},
      {"a copy to pinned memory", copy(pinned.data(), device.data())},
      {"a copy to pageable memory", copy(foreign, device.data())}};
  for (const Side& s : sides) (void)s.measure();  // a failed measurement fails again in its turn
  const std::vector<Series> series = TakeTurns(gpu, sides);
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  rows.push_back(RateRow("put_segment_call", "GB/s", gigabytes, series[0], &series[4], kOfCopy));
  rows.push_back(RateRow("put_foreign_call", "GB/s", gigabytes, series[1], &series[5], kOfCopy));
  rows.push_back(RateRow("get_segment_call", "GB/s", gigabytes, series[2], &series[6], kOfCopy));
  rows.push_back(RateRow("get_foreign_call", "GB/s", gigabytes, series[3], &series[7], kOfCopy));
  if (std::memcmp(sink.bytes().data(), source.bytes().data(), static_cast<size_t>(bytes)) != 0)
    return Internal("what came back is not what was sent");
  return absl::OkStatus();
}

}  // namespace

void CallRows(Gpu& gpu, const Setup& setup, std::vector<Row>& rows) {
  struct Rows {
    std::vector<std::string_view> names;
    Status (*measure)(Gpu& gpu, const Setup& setup, const std::string& executor,
                      std::vector<Row>& rows);
  };
  const Rows of_an_executor[] = {
      {{"roundtrip_call"}, RoundTrip},
      {{"replay_1000_call", "replay_rebound_call"}, Replays},
      {{"while_call"}, While},
      {{"put_segment_call", "put_foreign_call", "get_segment_call", "get_foreign_call"},
       Transfers}};
  const auto selected = [&](const Rows& r) {
    return std::ranges::any_of(r.names, [&](std::string_view name) { return gpu.Selected(name); });
  };
  const bool starts = gpu.Selected("start_call") || gpu.Selected("ahead_cold_call"),
             others = std::ranges::any_of(of_an_executor, selected);
  if (!starts && !others) return;
  Child registry({setup.build + "/bin/opwire-registry", "--log-level", "error"});
  if (starts)
    Measure("calls", {"start_call", "start_cold_call", "ahead_cold_call"}, rows,
            [&] { Start(gpu, setup, rows); });
  if (!others) return;
  const std::string executor = "bench-gpu";
  Child child(ExecutorCommand(gpu, setup, executor, "off"));
  for (const Rows& r : of_an_executor) {
    if (!selected(r)) continue;
    Measure("calls", {r.names.begin(), r.names.end()}, rows,
            [&] { Must(r.measure(gpu, setup, executor, rows)); });
  }
}

}  // namespace opwire::bench
