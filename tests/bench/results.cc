// What rows compute, and what they must compute.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/element.h"
#include "ir/text/text.h"
#include "tests/bench/bench.h"

namespace opwire::bench {
namespace {

void MustAgree(const Array& got, const Array& want, double tolerance) {
  if (got.dtype() != want.dtype() || got.shape() != want.shape())
    throw RowError(fmt::format("expected {}[{}], got {}[{}]", DTypeName(want.dtype()),
                               fmt::join(want.shape(), ", "), DTypeName(got.dtype()),
                               fmt::join(got.shape(), ", ")));
  const bool floats = kFloats.Has(want.dtype());
  const auto each = static_cast<size_t>(DTypeBytes(want.dtype()));
  const auto value = [each](const Array& a, int64_t i) {
    return ElementValue(a.dtype(), a.bytes().data() + static_cast<size_t>(i) * each);
  };
  double largest = 0;
  for (int64_t i = 0; i < want.elements(); ++i)
    largest = std::max(largest, std::fabs(value(want, i)));
  if (floats && (largest == 0 || !std::isfinite(largest)))
    throw RowError(
        fmt::format("expected a largest magnitude that tells something, got {}", largest));
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double x = value(got, i), y = value(want, i);
    if (std::fabs(x - y) <= (floats ? tolerance * largest : 0)) continue;
    throw RowError(fmt::format(
        "wrong result: element {}: expected {}, got {}, of magnitudes up to {}", i, y, x, largest));
  }
}

}  // namespace

void Digest::Add(double value) {
  sum_ += std::fabs(value) * static_cast<double>(1 + count_ % 7);
  ++count_;
}

double Digest::Take() {
  const double digest = count_ > 0 ? sum_ / static_cast<double>(count_) : 0;
  *this = {};
  return digest;
}

Digest& DigestOfChecks() {
  static thread_local Digest digest;
  return digest;
}

void MustAgree(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance) {
  if (got.size() != want.size())
    throw RowError(fmt::format("expected {} results, got {}", want.size(), got.size()));
  for (const Array& array : want) {
    const auto each = static_cast<size_t>(DTypeBytes(array.dtype()));
    for (size_t at = 0; at < array.bytes().size(); at += each)
      DigestOfChecks().Add(ElementValue(array.dtype(), array.bytes().data() + at));
  }
  for (size_t i = 0; i < got.size(); ++i) MustAgree(got[i], want[i], tolerance);
}

void MustFall(std::span<const Array> losses) {
  double sums[2] = {};
  const size_t half = losses.size() / 2;
  for (size_t i = 0; i < 2 * half; ++i) {
    const double loss = ElementValue(losses[i].dtype(), losses[i].bytes().data());
    if (!std::isfinite(loss)) throw RowError(fmt::format("loss {} is {}", i, loss));
    sums[i / half] += loss;
  }
  if (half == 0 || sums[1] >= sums[0])
    throw RowError(fmt::format("the loss of {} steps does not fall", losses.size()));
}

std::vector<Arg> Put(Session& session, const std::vector<Arg>& args) {
  std::vector<Arg> out;
  for (const Arg& arg : args) {
    const auto* const array = std::get_if<ArrayView>(&arg.value());
    out.push_back(array ? Arg(Must(session.Put(*array))) : arg);
  }
  return out;
}

std::vector<Array> ResultsOf(const Program& program, const std::vector<Arg>& args) {
  std::vector<Array> results, emitted;
  RunOptions options;
  options.wants.assign(program.module().functions[0].results.size(), Want::kInline);
  options.on_emit = [&](std::string_view, const Array& value) { emitted.push_back(value); };
  RunResult run = Must(program.Run(args, options));
  for (RunResult::Output& output : run.outputs) results.push_back(std::move(output.array).value());
  results.insert(results.end(), emitted.begin(), emitted.end());
  return results;
}

ReferenceExecutor::ReferenceExecutor(const Setup& setup)
    : name_([] {
        static int count = 0;
        return fmt::format("bench-reference{}", count++);
      }()),
      child_({setup.build + "/bin/opwire-executor", "--device", "cpu", "--name", name_, "--prefer",
              "reference", "--no-fusion", "--log-level", "error"}) {}

std::vector<Array> ByReference(const Setup& setup, Module module, const std::vector<Arg>& args) {
  const ReferenceExecutor executor(setup);
  Session session = executor.Open();
  for (Function& f : module.functions) {
    for (Node& node : f.nodes) node.pin.clear();
  }
  const Program program = Must(session.Load(std::move(module), {.passes = std::nullopt}));
  return ResultsOf(program, Put(session, args));
}

ProgramOperands::ProgramOperands(Session& session, const std::string& text,
                                 const std::map<std::string, double>& numbers)
    : session_(session),
      numbers_(numbers),
      parameters_(ParametersOf(Must(Parse(text, "program")))) {
  for (const Array& value : Values()) args_.emplace_back(Must(session.Put(value.view())));
}

std::vector<ProgramOperands::Parameter> ProgramOperands::ParametersOf(const Module& module) {
  std::vector<Parameter> parameters;
  for (const Param& p : module.functions[0].params) {
    Parameter& parameter = parameters.emplace_back(Parameter{p.name, p.type.dtype, {}});
    for (const Dim d : p.type.shape) parameter.shape.push_back(module.dims.ConstantValue(d));
  }
  return parameters;
}

std::vector<Array> ProgramOperands::Values() const {
  std::vector<Array> values;
  for (const Parameter& p : parameters_) {
    const auto number = numbers_.find(p.name);
    Array& value = values.emplace_back(number == numbers_.end()
                                           ? Array::Random(p.dtype, p.shape, values.size() + 1)
                                           : Array(p.dtype, p.shape));
    if (number == numbers_.end()) continue;
    const uint64_t bits = ElementBits(p.dtype, number->second);
    const auto each = static_cast<size_t>(DTypeBytes(p.dtype));
    for (size_t at = 0; at < value.bytes().size(); at += each)
      std::memcpy(value.bytes().data() + at, &bits, each);
  }
  return values;
}

Timed ProgramOperands::Runs(const Setup& setup, const std::string& text, int times,
                            double tolerance) const {
  const Module module = Must(Parse(text, "program"));
  if (ParametersOf(module) != parameters_)
    throw RowError("programs with the same operands have other parameters");
  const Program program = Must(session_.Load(text));
  return {[this, program, times] {
            std::vector<double> ms;
            for (int i = 0; i < times; ++i)
              ms.push_back(static_cast<double>(Must(program.Run(args_)).run_ns) / 1e6);
            return Percentile(ms, 0.5);
          },
          [this, program] { return ResultsOf(program, args_); },
          [this, &setup, module] {
            const std::vector<Array> values = Values();
            return ByReference(setup, module, {values.begin(), values.end()});
          },
          tolerance};
}

}  // namespace opwire::bench
