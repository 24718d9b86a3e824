// The Python package: eager ops against PyTorch's, a compiled call against that of the C++ client,
// the start, and the examples' models against llama.cpp and onnxruntime.
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/bench/bench.h"

namespace opwire::bench {
namespace {

// What tests/bench/python.py prints.
double Measured(const Setup& setup, const std::string& python, const std::string& what) {
  return NumberFrom(fmt::format("{} " OPWIRE_SOURCE "/tests/bench/python.py {} {}", python, what,
                                setup.Scaled("full", "small")));
}

// The median of calls of one add of 16 floats on kept tensors, the result inline.
double CallMicros(Program& program, const Tensor& x, int calls) {
  RunOptions options;
  options.wants = {Want::kInline};
  std::vector<double> micros;
  for (int i = 0; i < calls; ++i) {
    const double begun = Seconds();
    Must(program.Run({x, x}, options).status());
    micros.push_back((Seconds() - begun) * 1e6);
  }
  return Percentile(micros, 0.5);
}

// What tests/bench/models.py prints: both sides of a row in one process, a row a line.
void ModelRows(const std::string& command, std::vector<Row>& rows) {
  std::istringstream lines(OutputOf(command));
  size_t came = 0;
  for (std::string line; std::getline(lines, line); ++came) {
    const nlohmann::json j = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!j.is_object()) throw RowError(fmt::format("expected a row, got {}", line));
    Row row;
    row.name = j.at("name");
    row.value = j.value("value", row.value);
    row.unit = j.value("unit", row.unit);
    row.baseline = j.value("baseline", row.baseline);
    row.baseline_name = j.value("baseline_name", row.baseline_name);
    row.target = j.value("target", row.target);
    row.target_is_ratio = j.value("target_is_ratio", row.target_is_ratio);
    row.higher_is_better = j.value("higher_is_better", row.higher_is_better);
    row.spread = j.value("spread", row.spread);
    row.note = j.value("note", row.note);
    rows.push_back(std::move(row));
  }
  if (came == 0) throw RowError("no row came from: " + command);
}

}  // namespace

void PythonRows(const Setup& setup, std::vector<Row>& rows) {
  const std::string interpreter = setup.build + "/venv/bin/python";
  if (!std::filesystem::exists(interpreter) ||
      !std::filesystem::exists(setup.build + "/python/opwire")) {
    for (const char* name : {"eager_dispatch", "jit_call", "import_connect", "models"})
      rows.push_back({.name = name, .note = "the Python package is not built"});
    return;
  }
  const std::string python =
      fmt::format("env PYTHONPATH={0}/python:$PYTHONPATH OPWIRE_PROGRAM={0}/bin/opwire {1}",
                  setup.build, interpreter);
  const bool torch = std::system("python3 -c 'import torch' 2>/dev/null") == 0;
  Measure("python", {"eager_dispatch"}, rows, [&] {
    rows.push_back(Compare(
        setup, "eager_dispatch", "us/op", "PyTorch, eager",
        [&] { return Measured(setup, python, "eager"); },
        torch ? std::function<double()>([&] { return Measured(setup, "python3", "torch"); })
              : nullptr));
    if (!torch) rows.back().note = "python3 has no torch";
    rows.back().target = 1;
    rows.back().checked = true;  // by python.py, as the next two
  });
  Measure("python", {"jit_call"}, rows, [&] {
    Session session = OpenOn("bench", true);
    Program add = Must(session.Load(kAdd));
    const Tensor x = Must(session.Put(Array::Random(DType::kF32, {16}, 1).view()));
    const int calls = setup.Scaled(3000, 5);
    CallMicros(add, x, calls);
    constexpr double kMore = 4;  // microseconds
    rows.push_back(Compare(
        setup, "jit_call", "us", "the C++ client's call, and 4 us",
        [&] { return Measured(setup, python, "jit"); },
        [&] { return CallMicros(add, x, calls) + kMore; }));
    rows.back().target = 1;
    rows.back().checked = true;
  });
  Measure("python", {"import_connect"}, rows, [&] {
    rows.push_back(Compare(
        setup, "import_connect", "s", "", [&] { return Measured(setup, python, "start"); },
        nullptr));
    rows.back().target = 0.5;
    rows.back().checked = true;
    rows.back().target_is_ratio = false;
  });
  const std::string models = fmt::format("{} " OPWIRE_SOURCE "/tests/bench/models.py rows {}",
                                         python, setup.Scaled("full", "small"));
  Measure("models of one thread", {}, rows,
          [&] { ModelRows(fmt::format("taskset -c 0 {} decode", models), rows); });
  Measure("models", {}, rows, [&] { ModelRows(models, rows); });
}

}  // namespace opwire::bench
