// Whole systems: a noisy neighbour, start-up, idling.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/bench/bench.h"

namespace opwire::bench {
namespace {

// Throws RowError if `sum` is not x + x.
void MustBeTwice(const Array& x, const Array& sum) {
  Array twice = x;
  for (float& v : twice.values<float>()) v *= 2;
  MustAgree({sum}, {twice}, 0);
}

// Clients, each with one small run in flight; the p99 of what each waits, in microseconds.
double SmallClientsP99(std::vector<Session>& sessions, const std::vector<Program>& programs,
                       int rounds) {
  const Array x = Array::Random(DType::kF32, {16}, 1);
  RunOptions options;
  options.wants = {Want::kInline};
  std::vector<double> micros;
  for (int round = 0; round < rounds; ++round) {
    std::vector<PendingRun> flying;
    std::vector<double> begun;
    for (size_t i = 0; i < sessions.size(); ++i) {
      begun.push_back(Seconds());
      flying.push_back(Must(programs[i].Start({x, x}, options)));
    }
    for (size_t i = 0; i < sessions.size(); ++i) {
      const RunResult run = Must(flying[i].Wait());
      micros.push_back((Seconds() - begun[i]) * 1e6);
      if (round == 0) MustBeTwice(x, run.outputs.at(0).array.value());
    }
  }
  return Percentile(micros, 0.99);
}

// Endless runs of many mid-sized ops.
void Hog() {
  std::string text = "program @hog(%x: f32[262144]) -> (z: f32[262144]) {\n  %0 = add(%x, %x)\n";
  for (int i = 1; i < 400; ++i) text += fmt::format("  %{} = add(%{}, %x)\n", i, i - 1);
  text += "  return %399\n}\n";
  Session session = OpenOn("bench", true);
  const Program hog = Must(session.Load(text));
  const Tensor x = Must(session.Put(Array::Random(DType::kF32, {262144}, 5).view()));
  while (true) {
    PendingRun first = Must(hog.Start({x})), second = Must(hog.Start({x}));
    Must(first.Wait().status());
    Must(second.Wait().status());
  }
}

void Noisy(const Setup& setup, std::vector<Row>& rows) {
  std::vector<Session> sessions;
  std::vector<Program> programs;
  for (int i = 0; i < setup.Scaled(63, 3); ++i) {
    sessions.push_back(OpenOn("bench", false));
    programs.push_back(Must(sessions.back().Load(kAdd)));
  }
  const auto p99 = [&] { return SmallClientsP99(sessions, programs, setup.Scaled(60, 2)); };
  p99();
  const auto beside = [&] {
    Child hog(&Hog);
    usleep(300'000);
    const double micros = p99();
    if (!hog.Running()) throw RowError("the hog ended");
    return micros;
  };
  rows.push_back(Compare(setup, "noisy", "us p99", "the same without the hog", beside, p99));
  rows.back().checked = true;  // by SmallClientsP99
  rows.back().target = 2;
}

// Seconds from the start of `opwire up` to the first answered run.
double Startup(const Setup& setup) {
  static int count = 0;
  const std::string directory = fmt::format("{}/up{}", setup.directory, count++);
  const Environment environment("OPWIRE_RUNTIME_DIR", directory);
  const double begun = Seconds();
  Child up({setup.build + "/bin/opwire", "up"});
  Session session = OpenOn("cpu", true);
  const Program program = Must(session.Load(kAdd));
  const Array x = Array::Random(DType::kF32, {16}, 1);
  const std::vector<Array> sum = Must(program.Call({x, x}));
  const double seconds = Seconds() - begun;
  MustBeTwice(x, sum.at(0));
  return seconds;
}

}  // namespace

void SystemRows(const Setup& setup, std::vector<Row>& rows) {
  Measure("system", {"noisy"}, rows, [&] { Noisy(setup, rows); });
  Measure("system", {"startup"}, rows, [&] {
    rows.push_back(Compare(
        setup, "startup", "s", "", [&] { return Startup(setup); }, nullptr));
    rows.back().checked = true;  // by Startup
    rows.back().target = 0.3;
    rows.back().target_is_ratio = false;
  });
}

}  // namespace opwire::bench
