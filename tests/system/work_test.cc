// Successful use, over each carrier; sessions that meet and sessions that do not; the programs'
// exit codes.
#include <sys/mount.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>

#include "tests/system/processes.h"

namespace opwire::client {
namespace {

struct Carrier {
  const char* name;
  bool ring;
  std::vector<std::string> flags;
  friend void PrintTo(const Carrier& c, std::ostream* out) { *out << c.name; }
};

class CarrierTest : public SystemTest, public ::testing::WithParamInterface<Carrier> {
 protected:
  // Opens a session over the carrier, of an executor of its own.
  StatusOr<Session> Open() {
    StartRegistry();
    StartExecutor("e1", GetParam().flags);
    client_.emplace(Connect());
    return client_->Open(CarrierOptions());
  }
  static SessionOptions CarrierOptions() {
    SessionOptions options;
    options.ring = GetParam().ring;
    return options;
  }

 private:
  std::optional<Client> client_;
};

// Two clients share a tensor of a third one, which then writes, frees and ends.
TEST_P(CarrierTest, SessionsShareTensors) {
  ASSERT_OK_AND(Session unnamed, Open());
  Client owner_client = Connect("owner"), client = Connect("other");
  SessionOptions options = CarrierOptions();
  options.name = "model";
  ASSERT_OK_AND(Session model, owner_client.Open(options));
  options.name = "notebook";
  ASSERT_OK_AND(Session notebook, client.Open(options));
  const Array large = Array::Random(DType::kF32, {3'000'000}, 5);  // read in pieces
  ASSERT_OK_AND(Tensor w, model.Put(large.view(), "w"));
  ASSERT_OK_AND(const std::string to_all, model.Grant(w));
  ASSERT_OK_AND(const std::string to_notebook,
                model.Grant(w, {.session = "notebook", .name = "mine"}));
  EXPECT_EQ(to_all.size(), 32u);
  ASSERT_OK_AND(Tensor taken, notebook.Take("model", "mine"));
  ASSERT_OK_AND(Tensor also, unnamed.Take(to_all));
  EXPECT_EQ(unnamed.Take(to_notebook).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(unnamed.Take("model", "mine").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unnamed.Take(std::string(32, '0')).status().code(), absl::StatusCode::kNotFound);
  for (const char* bad : {"", "0123", "0123456789abcdef0123456789abcdeg"})
    EXPECT_EQ(unnamed.Take(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  // Writes are visible only to the session that makes them.
  constexpr const char* kZero =
      "program @zero(inout %w: f32[?n]) -> (w: f32[?n]) { %0 = zeros() {shape = [?n]} %1 = mul(%w, "
      "%0) return %1 }";
  ASSERT_OK_AND(Program zero, model.Load(kZero));
  ASSERT_TRUE(zero.Run({w}).ok());
  ASSERT_TRUE(model.Close(/*free=*/true).ok());
  const auto holds = [&](Session& session, const Tensor& t, float times) {
    auto got = session.Fetch(t);
    if (!got.ok()) return testing::AssertionFailure() << got.status();
    for (size_t i = 0; i < 3'000'000; ++i) {
      if (got->values<float>()[i] != times * large.values<float>()[i])
        return testing::AssertionFailure() << "element " << i << " is " << got->values<float>()[i];
    }
    return testing::AssertionSuccess();
  };
  EXPECT_TRUE(holds(notebook, taken, 1));
  EXPECT_TRUE(holds(unnamed, also, 1));
  ASSERT_OK_AND(Program zero_here, notebook.Load(kZero));
  ASSERT_TRUE(zero_here.Run({taken}).ok());
  EXPECT_TRUE(holds(notebook, taken, 0));
  EXPECT_TRUE(holds(unnamed, also, 1));
  ASSERT_OK_AND(const TensorView view, unnamed.View(also));
  EXPECT_EQ(view.values<float>()[2'999'999], large.values<float>()[2'999'999]);
  ASSERT_OK_AND(Program twice, unnamed.Load(kTwice));
  ASSERT_OK_AND(const RunResult doubled, twice.Run({also}));
  EXPECT_TRUE(holds(unnamed, doubled.outputs[0].tensor, 2));
}

TEST_P(CarrierTest, RunsTensorsAndLargeTransfers) {
  ASSERT_OK_AND(Session session, Open());
  EXPECT_EQ(session.on_ring(), std::string_view(GetParam().name) == "ring");
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  ASSERT_OK_AND(const auto y, twice.Call({Values({1, 2, 3})}));
  EXPECT_EQ(ToFloats(y.at(0)), (Floats{2, 4, 6}));
  // Two million elements: more than any message holds.
  const Array large = Array::Random(DType::kF32, {2'000'000}, 5);
  ASSERT_OK_AND(Tensor t, session.Put(large.view(), "large"));
  ASSERT_OK_AND(const RunResult doubled, twice.Run({t}));
  ASSERT_OK_AND(const Array back, session.Fetch(doubled.outputs[0].tensor));
  for (int64_t i = 0; i < large.elements(); ++i)
    ASSERT_EQ(back.values<float>()[static_cast<size_t>(i)],
              2 * large.values<float>()[static_cast<size_t>(i)]);
  ASSERT_OK_AND(Tensor found, session.Find("large"));
  EXPECT_EQ(found.shape(), large.shape());
  // Many in flight, in order.
  std::vector<PendingRun> pending;
  for (int i = 0; i < 500; ++i) {
    RunOptions inline_result;
    inline_result.wants = {Want::kInline};
    ASSERT_OK_AND(PendingRun run, twice.Start({Values({static_cast<float>(i)})}, inline_result));
    pending.push_back(std::move(run));
  }
  for (int i = 0; i < 500; ++i) {
    ASSERT_OK_AND(const RunResult r, pending[static_cast<size_t>(i)].Wait());
    ASSERT_EQ(ToFloats(*r.outputs[0].array), Floats{static_cast<float>(2 * i)});
  }
  // As much as the credit allows before the client reads the first reply: more than any carrier
  // holds.
  ASSERT_OK_AND(Tensor part, session.Put(Array::Random(DType::kF32, {16'000}, 6).view()));
  pending.clear();
  for (int i = 0; i < 250; ++i) {
    RunOptions inline_result;
    inline_result.wants = {Want::kInline};
    ASSERT_OK_AND(PendingRun run, twice.Start({part}, inline_result));
    pending.push_back(std::move(run));
  }
  Eventually([] { return false; }, 200 * kMillisecond);
  for (PendingRun& run : pending) {
    ASSERT_OK_AND(const RunResult r, run.Wait());
    ASSERT_EQ(r.outputs[0].array->elements(), 16'000);
  }
  const Status wrong = twice.Call({Values({1}), Values({2})}).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(twice.Call({Values({1})}).ok());
  ASSERT_OK(session.Close());
}

TEST_P(CarrierTest, PassesRunUnlessTheyShallNot) {
  ASSERT_OK_AND(Session session, Open());
  constexpr std::string_view kText =
      "program @layer(%x: f32[4, 8], %w: f32[3, 8], %b: f32[3]) -> (y: f32[4, 3]) {\n"
      "  %0 = permute(%w) {dims = [1, 0]}\n  %1 = matmul(%x, %0)\n  %2 = add(%1, %b)\n  %3 = "
      "relu(%2)\n  %4 = exp(%x)\n  return %3\n}\n";
  const auto ops_of = [](const Program& p) {
    std::vector<std::string> ops;
    for (const Node& node : p.module().functions[0].nodes) ops.push_back(node.op);
    return ops;
  };
  ASSERT_OK_AND(Program usual, session.Load(kText));
  EXPECT_EQ(ops_of(usual), (std::vector<std::string>{"linear"}));
  ASSERT_OK_AND(Program exact, session.Load(kText, "layer", {.passes = Accuracy::kExact}));
  EXPECT_EQ(ops_of(exact), (std::vector<std::string>{"permute", "matmul", "add", "relu"}));
  ASSERT_OK_AND(Program as_written, session.Load(kText, "layer", {.passes = std::nullopt}));
  EXPECT_EQ(ops_of(as_written),
            (std::vector<std::string>{"permute", "matmul", "add", "relu", "exp"}));
  const Array x = Array::Random(DType::kF32, {4, 8}, 1), w = Array::Random(DType::kF32, {3, 8}, 2),
              b = Array::Random(DType::kF32, {3}, 3);
  std::vector<Floats> results;
  for (Program* const program : {&usual, &exact, &as_written}) {
    RunOptions options;
    options.profile = true;
    options.wants = {Want::kInline};
    ASSERT_OK_AND(PendingRun run, program->Start({x.view(), w.view(), b.view()}, options));
    ASSERT_OK_AND(const RunResult result, run.Wait());
    for (const StepCost& step : result.profile)
      EXPECT_LT(step.node, static_cast<int64_t>(ops_of(*program).size()));
    results.push_back(ToFloats(*result.outputs[0].array));
  }
  EXPECT_EQ(results[1], results[2]);
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_NEAR(results[0][i], results[2][i], 1e-5);
}

TEST_P(CarrierTest, EmittedValuesComeInOrderToWhoeverReads) {
  ASSERT_OK_AND(Session session, Open());
  ASSERT_OK_AND(Program count, session.Load(R"(
program @count(%n: i64[], %x: f32[2048]) -> (x: f32[2048]) {
  %0 = repeat(%n, [%x], []) calls(@step)
  return %0
}
function @step(%iteration: i64[], inout %x: f32[2048]) -> (x: f32[2048]) {
  %0 = full() {value = 1.0}
  %1 = add(%x, %0)
  emit(%1) {name = "x"}
  emit(%iteration) {name = "iteration"}
  return %1
})"));
  constexpr int kIterations = 1500;  // 12 MB: more than any carrier holds
  const Array zeros(DType::kF32, {2048});
  int iterations = 0, others = 0, wrong = 0;
  RunOptions first, second;
  first.on_emit = [&](std::string_view name, const Array& value) {
    if (name == "iteration")
      wrong += value.values<int64_t>()[0] != iterations++;
    else
      wrong += value.elements() != 2048 ||
               value.values<float>()[2047] != static_cast<float>(iterations + 1);
  };
  second.on_emit = [&](std::string_view, const Array&) { ++others; };
  ASSERT_OK_AND(PendingRun one, count.Start({int64_t{kIterations}, zeros}, first));
  ASSERT_OK_AND(PendingRun two, count.Start({int64_t{5}, zeros}, second));
  // The client does not read for a while; others are served.
  Eventually([] { return false; }, 200 * kMillisecond);
  Client neighbour = Connect("neighbour");
  ASSERT_OK_AND(Session other, neighbour.Open(CarrierOptions()));
  ASSERT_OK_AND(Program twice, other.Load(kTwice));
  EXPECT_TRUE(twice.Call({Values({1})}).ok());
  ASSERT_OK_AND(const RunResult r, one.Wait());
  EXPECT_EQ(iterations, kIterations);
  EXPECT_EQ(wrong, 0);
  ASSERT_OK_AND(const Array last, session.Fetch(r.outputs[0].tensor));
  EXPECT_EQ(last.values<float>()[0], static_cast<float>(kIterations));
  ASSERT_OK(two.Wait().status());
  EXPECT_EQ(others, 10);
  { ASSERT_OK_AND(PendingRun dropped, count.Start({int64_t{kIterations}, zeros}, first)); }
  ASSERT_OK_AND(const auto y, count.Call({int64_t{2}, zeros}));
  EXPECT_EQ(y.at(0).values<float>()[0], 2);
  EXPECT_EQ(iterations, kIterations) << "nobody waits for the one that was dropped";
  ASSERT_OK(session.Close());
}

INSTANTIATE_TEST_SUITE_P(
    Carriers, CarrierTest,
    ::testing::Values(Carrier{"ring", true, {}}, Carrier{"ipc", false, {}},
                      Carrier{"noring", true, {"--no-ring"}},
                      Carrier{"tcp", true, {"--listen", "tcp://127.0.0.1:*", "--insecure"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(SystemTest, NamedSessionsMeetAndUnnamedOnesDoNot) {
  StartRegistry();
  StartExecutor("e1");
  Client one = Connect("one"), two = Connect("two");
  SessionOptions named;
  named.name = "shared";
  ASSERT_OK_AND(Session a, one.Open(named));
  ASSERT_OK_AND(Session b, two.Open(named));
  ASSERT_OK_AND(Tensor w, a.Put(Values({1, 2}).view(), "w"));
  ASSERT_OK_AND(Tensor same, b.Find("w"));
  ASSERT_OK_AND(const Array seen, b.Fetch(same));
  EXPECT_EQ(ToFloats(seen), (Floats{1, 2}));
  ASSERT_OK_AND(Session c, one.Open());
  ASSERT_OK_AND(Session d, two.Open());
  ASSERT_OK_AND(Tensor own, c.Put(Values({3}).view(), "w"));
  EXPECT_EQ(d.Find("w").status().code(), absl::StatusCode::kNotFound);
  // After both clients end, the named session keeps its tensors.
  w.Leave();
  ASSERT_OK(a.Close());
  ASSERT_OK(b.Close());
  ASSERT_OK_AND(Session again, two.Open(named));
  EXPECT_TRUE(again.Find("w").ok());
}

TEST_F(SystemTest, CancelAndDeadlineReachAnEndlessLoop) {
  StartRegistry();
  StartExecutor("e1");
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Program endless, session.Load(R"(
program @endless(%x: f32[4]) -> (y: f32[4]) {
  %0 = while([%x], []) calls(@always, @step) {max_trips = 9223372036854775807}
  return %0
}
function @always(%x: f32[4]) -> (again: bool[]) {
  %0 = full() {value = 1.0, dtype = bool}
  return %0
}
function @step(inout %x: f32[4]) -> (x: f32[4]) {
  %0 = neg(%x)
  return %0
})"));
  ASSERT_OK_AND(PendingRun run, endless.Start({Values({1, 2, 3, 4})}));
  EXPECT_FALSE(run.Wait(50'000).ok());
  ASSERT_OK(run.Cancel());
  EXPECT_EQ(run.Wait().status().code(), absl::StatusCode::kCancelled);
  RunOptions deadline;
  deadline.deadline_us = 50'000;
  EXPECT_EQ(endless.Run({Values({1, 2, 3, 4})}, deadline).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SystemTest, CancelAndDeadlineReachARun) {
  StartRegistry();
  StartExecutor("e1");
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  std::string text =
      "program @long(%x: f32[256, 256]) -> (y: f32[256, 256]) {\n  %0 = matmul(%x, %x)\n";
  for (int i = 1; i < 20'000; ++i) text += fmt::format("  %{} = matmul(%{}, %x)\n", i, i - 1);
  ASSERT_OK_AND(Program longer, session.Load(text + "  return %19999\n}"));
  ASSERT_OK_AND(Tensor x, session.Put(Array::Random(DType::kF32, {256, 256}, 1).view()));
  ASSERT_OK_AND(PendingRun run, longer.Start({x}));
  EXPECT_FALSE(run.Wait(50'000).ok());
  ASSERT_OK(run.Cancel());
  EXPECT_EQ(run.Wait().status().code(), absl::StatusCode::kCancelled);
  RunOptions deadline;
  deadline.deadline_us = 50'000;
  EXPECT_EQ(longer.Run({x}, deadline).status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  EXPECT_TRUE(twice.Call({Values({1})}).ok());
}

TEST_F(SystemTest, ExitCodes) {
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--no-such-flag"})), 2);
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--limit-tensors", "0"})), 2);
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--limit-rank", "17"})), 2)
      << "no tensor has more than 16 dimensions";
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--limit-lease-seconds", "1000000000000"})), 2);
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--listen", "tcp://127.0.0.1:*"})), 2)
      << "tcp needs keys, or --insecure";
  const auto says = [&](pid_t pid, const std::string& what) {
    std::ifstream in(LogOf(pid));
    const std::string said{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--name", "a/b"})), 2);
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--name", "../e", "--listen", "tcp://127.0.0.1:*",
                        "--insecure"})),
            2);
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--name", "a\nb", "--listen", "tcp://127.0.0.1:*",
                        "--insecure"})),
            2);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/../e.crash"));
  const pid_t ipc = Start({OPWIRE_EXECUTOR, "--listen", "ipc://" + directory_ + "/e"});
  EXPECT_EQ(Wait(ipc), 2);
  says(ipc, "expected tcp://HOST:PORT");
  for (const char* cores : {"a", "1-0", "0,"})
    EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--cores", cores})), 2) << cores;
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--cores", "1000"})), 3)
      << "a list of cores that are not there";
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--cores", "0", "--device", "emu:0"})), 2)
      << "a device that has no threads on cores";
  const pid_t long_name = Start({OPWIRE_EXECUTOR, "--name", std::string(64, 'n')});
  EXPECT_EQ(Wait(long_name), 2);
  says(long_name, "take a shorter name, or set OPWIRE_RUNTIME_DIR");
  // What the command line holds reaches no terminal as it is.
  const std::string marks = "\x1b[31m\xc2\x9b\xe2\x80\xae";
  for (const std::vector<std::string>& argv : std::vector<std::vector<std::string>>{
           {OPWIRE_REGISTRY_PROGRAM, "--log-level", marks},
           {OPWIRE_REGISTRY_PROGRAM, "--listen", "tcp://" + marks + ":1", "--insecure"},
           {OPWIRE_REGISTRY_PROGRAM, "--" + marks},
           {OPWIRE_EXECUTOR, "--data", "/no/" + marks},
           {OPWIRE_EXECUTOR, "--ops", "/no/" + marks},
           {OPWIRE_EXECUTOR, "--registry", "tcp://" + marks + ":1"},
           {OPWIRE_EXECUTOR, "build", "/no/" + marks}}) {
    const pid_t pid = Start(argv);
    EXPECT_NE(Wait(pid), 0);
    says(pid, "\\x1b[31m");
    std::ifstream in(LogOf(pid));
    const std::string said{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(said.find_first_of("\x1b"), std::string::npos) << argv.back();
    EXPECT_EQ(said.find("\xc2\x9b"), std::string::npos) << argv.back();
  }
  const pid_t help = Start({OPWIRE_EXECUTOR, "--help"});
  EXPECT_EQ(Wait(help), 0);
  says(help, "1 cannot start");
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--registry", "nonsense"})), 2);
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--device", "cuda:7"})), 3);
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--help"})), 0);
  EXPECT_EQ(Wait(Start({OPWIRE_REGISTRY_PROGRAM, "--listen", "tcp://127.0.0.1:*"})), 2);
  EXPECT_EQ(Wait(Start({OPWIRE_REGISTRY_PROGRAM, "--beat-ms", "1"})), 2);
  const pid_t registry = StartRegistry(), executor = StartExecutor("e1");
  EXPECT_EQ(Wait(Start({OPWIRE_REGISTRY_PROGRAM})), 1) << "somebody listens there";
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--name", "e1"})), 1);
  Signal(executor, SIGTERM);
  EXPECT_EQ(Wait(executor), 0);
  EXPECT_FALSE(Registered().contains("e1")) << "it said goodbye";
  struct stat st;
  EXPECT_NE(stat((directory_ + "/e1.ctl").c_str(), &st), 0) << "its sockets are gone";
  Signal(registry, SIGTERM);
  EXPECT_EQ(Wait(registry), 0);
}

TEST_F(SystemTest, AnExecutorKeepsItsName) {
  StartRegistry();
  const std::string registry = "ipc://" + directory_ + "/registry",
                    elsewhere = directory_ + "/other";
  std::filesystem::create_directory(elsewhere);
  std::filesystem::permissions(elsewhere, std::filesystem::perms::owner_all);
  const pid_t first = StartExecutor("e1");
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  const auto said = [&](pid_t pid) {
    std::ifstream in(LogOf(pid));
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  // In the same runtime directory, over both carriers; then in another one, through the registry.
  const pid_t same = Start({OPWIRE_EXECUTOR, "--name", "e1"}),
              tcp = Start(
                  {OPWIRE_EXECUTOR, "--name", "e1", "--listen", "tcp://127.0.0.1:*", "--insecure"}),
              other = Start({"/usr/bin/env", "OPWIRE_RUNTIME_DIR=" + elsewhere, OPWIRE_EXECUTOR,
                             "--name", "e1", "--registry", registry});
  EXPECT_EQ(Wait(same), 1);
  EXPECT_NE(said(same).find(fmt::format("e1 runs already (process {})", first)), std::string::npos)
      << said(same);
  EXPECT_EQ(Wait(tcp), 1);
  EXPECT_EQ(Wait(other), 5);
  EXPECT_NE(said(other).find("an executor named e1 is alive"), std::string::npos) << said(other);
  EXPECT_TRUE(Alive(first));
  EXPECT_TRUE(twice.Call({Values({1})}).ok());
  // After a kill it comes back at once: the registry has not missed a beat yet.
  Kill(first);
  const Nanos begun = MonotonicNow();
  StartExecutor("e1");
  EXPECT_LT(MonotonicNow() - begun, 10 * kSecond);
}

// If a registry assigns its name to another executor while it serves, it does not end.
TEST_F(SystemTest, AnExecutorThatIsRefusedLaterServesOn) {
  const pid_t registry = StartRegistry(), executor = StartExecutor("e1");
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Program twice, session.Load(kTwice));
  // A forged executor registers first at a registry that has lost its state.
  Signal(executor, SIGSTOP);
  Kill(registry);
  StartRegistry();
  auto dealer = Dealer::Connect(context_, "ipc://" + directory_ + "/registry");
  ASSERT_TRUE(dealer.ok());
  const auto forge = [&] {
    fb::RegisterT body;
    body.info = std::make_unique<fb::ExecutorInfoT>();
    body.info->id = "e1";
    body.info->incarnation = UINT64_MAX;
    body.info->control_endpoint = "ipc:///nowhere";
    body.claim.assign(16, 1);
    (void)(*dealer)->Send(AsBytes(EncodeRequest(1, std::move(body))));
  };
  const auto log = [&] {
    std::ifstream in(LogOf(executor));
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  ASSERT_TRUE(Eventually([&] {
    forge();
    return Registered().contains("e1");
  }));
  Signal(executor, SIGCONT);
  ASSERT_TRUE(Eventually([&] {
    forge();
    return log().find("registry refused") != std::string::npos;
  }));
  EXPECT_TRUE(Alive(executor));
  EXPECT_TRUE(twice.Call({Values({1})}).ok());
  // When the forged one is silent, the name is the executor's again.
  EXPECT_TRUE(Eventually([&] {
    const auto all = Registered();
    return all.contains("e1") && all.at("e1") != UINT64_MAX;
  }));
}

TEST_F(SystemTest, FailedRunsAreLoggedOnce) {
  StartRegistry();
  const pid_t executor = StartExecutor("e1");
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(
      Program gathers,
      session.Load(
          "program @gathers(%x: f32[4], %i: i64[1]) -> (y: f32[1]) { %y = gather(%x, %i) {dim = 0} "
          "return %y }"));
  for (int64_t i = 9; i < 12; ++i)
    EXPECT_FALSE(gathers
                     .Call({Values({1, 2, 3, 4}),
                            Array::Of(DType::kI64, {1}, std::span<const int64_t>(&i, 1))})
                     .ok());
  const auto lines = [&] {
    std::ifstream in(LogOf(executor));
    int n = 0;
    for (std::string line; std::getline(in, line);) {
      if (line.find("run failed") == line.npos) continue;
      EXPECT_NE(line.find("@gathers"), line.npos) << line;
      ++n;
    }
    return n;
  };
  EXPECT_TRUE(Eventually([&] { return lines() == 3; })) << lines();
}

// Without room for the name's lock, and with room for it but not for the crash record.
TEST_F(SystemTest, AFullRuntimeDirectoryIsToldOf) {
  const std::string disk = directory_ + "/disk";
  std::filesystem::create_directory(disk);
  if (mount("opwire", disk.c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0)
    GTEST_SKIP() << "no right to mount a small disk";
  for (const uintmax_t room : {0, 4096}) {
    std::ofstream(disk + "/filler") << std::string(1 << 20, 'x');
    std::filesystem::resize_file(disk + "/filler", (64 << 10) - room);
    const pid_t pid =
        Start({"/usr/bin/env", "OPWIRE_RUNTIME_DIR=" + disk, OPWIRE_EXECUTOR, "--name", "e1"});
    EXPECT_EQ(Wait(pid), 1);
    std::ifstream in(LogOf(pid));
    const std::string said{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NE(said.find("bytes do not fit: No space left on device"), std::string::npos) << said;
    EXPECT_NE(said.find(room == 0 ? "e1.lock" : "e1.crash"), std::string::npos) << said;
  }
  umount2(disk.c_str(), MNT_DETACH);
}

TEST_F(SystemTest, ARegistryThatRefusesEndsTheExecutor) {
  StartRegistry();
  std::vector<std::string> argv = {OPWIRE_EXECUTOR, "--name", "many"};
  for (int i = 0; i < 65; ++i) argv.insert(argv.end(), {"--label", "l" + std::to_string(i)});
  EXPECT_EQ(Wait(Start(argv)), 5);
}

TEST_F(SystemTest, ACleanStopLeavesNoFiles) {
  StartRegistry();
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{}, {"--listen", "tcp://127.0.0.1:*", "--insecure"}}) {
    const pid_t executor = StartExecutor("e1", flags);
    EXPECT_TRUE(std::filesystem::exists(directory_ + "/e1.crash"));
    Signal(executor, SIGTERM);
    EXPECT_EQ(Wait(executor), 0);
    for (const char* suffix : {"crash", "ctl", "run", "ring", "lock"})
      EXPECT_FALSE(std::filesystem::exists(directory_ + "/e1." + suffix)) << suffix;
  }
}

TEST_F(SystemTest, DrainFinishesWhatRuns) {
  StartRegistry();
  const pid_t executor = StartExecutor("e1");
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open());
  ASSERT_OK_AND(Program heavy, session.Load(kHeavy));
  const Array x = Array::Random(DType::kF32, {256, 256}, 1);
  ASSERT_OK_AND(Tensor t, session.Put(x.view()));
  std::vector<PendingRun> runs;
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK_AND(PendingRun run, heavy.Start({t}));
    runs.push_back(std::move(run));
  }
  Signal(executor, SIGTERM);
  int done = 0;
  for (PendingRun& run : runs) done += run.Wait().ok();
  EXPECT_EQ(done, 50);
  EXPECT_EQ(Wait(executor), 0);
}

TEST_F(SystemTest, DrainTimesOutAndASecondSignalEndsAtOnce) {
  StartRegistry();
  for (const bool second : {false, true}) {
    const pid_t executor =
        StartExecutor(second ? "e2" : "e1", {"--drain-timeout", second ? "1000" : "0.2"});
    Client client = Connect();
    SessionOptions there;
    there.device = second ? "e2" : "e1";
    ASSERT_OK_AND(Session session, client.Open(there));
    std::string text =
        "program @long(%x: f32[256, 256]) -> (y: f32[256, 256]) {\n  %0 = matmul(%x, %x)\n";
    for (int i = 1; i < 20'000; ++i) text += fmt::format("  %{} = matmul(%{}, %x)\n", i, i - 1);
    ASSERT_OK_AND(Program longer, session.Load(text + "  return %19999\n}"));
    ASSERT_OK_AND(Tensor x, session.Put(Array::Random(DType::kF32, {256, 256}, 1).view()));
    ASSERT_OK_AND(PendingRun run, longer.Start({x}));
    EXPECT_FALSE(run.Wait(20'000).ok());
    Signal(executor, SIGTERM);
    if (second) {
      Eventually([] { return false; }, 200 * kMillisecond);
      EXPECT_TRUE(Alive(executor));
      Signal(executor, SIGTERM);
    }
    EXPECT_EQ(run.Wait().status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Wait(executor), 0);
  }
}

}  // namespace
}  // namespace opwire::client
