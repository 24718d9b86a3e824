// opwire run: a program's file, arrays in, arrays out.
#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "frontend/cli/cli.h"
#include "ir/base/float.h"
#include "ir/text/text.h"
#include "ir/verify/verify.h"

namespace opwire::cli {
namespace {

using nlohmann::json;

struct RunArgs {
  std::string file;
  std::vector<std::string> in, out, dims;
  int repeat = 1;
  double deadline_ms = 0;
};

StatusOr<std::map<std::string, std::string>> Pairs(const std::vector<std::string>& list, std::string_view flag) {
  std::map<std::string, std::string> out;
  for (const std::string& s : list) {
    const size_t eq = s.find('=');
    if (eq == std::string::npos || eq == 0) return InvalidArgument("{} {}: expected NAME=VALUE", flag, s);
    if (!out.emplace(s.substr(0, eq), s.substr(eq + 1)).second) return InvalidArgument("{} {}: given twice", flag, s.substr(0, eq));
  }
  return out;
}

std::string SignatureOf(const Module& m, const Function& f, const ValueTypes& types) {
  std::string out = fmt::format("@{}(", f.name);
  for (size_t i = 0; i < f.params.size(); ++i) {
    const Param& p = f.params[i];
    out += fmt::format("{}\n  {}{}: {}", i ? "," : "", p.mode == ParamMode::kInout ? "inout " : "", p.name,
                       p.mode == ParamMode::kDim ? "dimension" : ToString(p.type, m.dims));
  }
  out += "\n) -> (";
  for (size_t i = 0; i < f.results.size(); ++i) {
    out += fmt::format("{}\n  {}: {}", i ? "," : "", f.results[i].name, ToString(*types.types[static_cast<size_t>(f.results[i].value)], m.dims));
  }
  return out + "\n)";
}

StatusOr<int64_t> Number(std::string_view text, std::string_view what) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return InvalidArgument("{}: expected a number, got '{}'", what, text);
  return n;
}

double ElementOf(const Array& a, int64_t i) {
  switch (a.dtype()) {
    case DType::kF64: return a.values<double>()[i];
    case DType::kF32: return a.values<float>()[i];
    case DType::kF16: return F16ToFloat(a.values<uint16_t>()[i]);
    case DType::kBF16: return BF16ToFloat(a.values<uint16_t>()[i]);
    case DType::kF8E4M3: return F8E4M3ToFloat(a.bytes()[i]);
    case DType::kF8E5M2: return F8E5M2ToFloat(a.bytes()[i]);
    case DType::kI64: return static_cast<double>(a.values<int64_t>()[i]);
    case DType::kI32: return a.values<int32_t>()[i];
    case DType::kI16: return a.values<int16_t>()[i];
    case DType::kI8: return a.values<int8_t>()[i];
    case DType::kU64: return static_cast<double>(a.values<uint64_t>()[i]);
    case DType::kU32: return a.values<uint32_t>()[i];
    case DType::kU16: return a.values<uint16_t>()[i];
    default: return a.bytes()[i];
  }
}

// The first elements and the extremes, on one line.
std::string Summary(const Array& a) {
  const int64_t n = a.elements();
  std::string out = fmt::format("{}{}", DTypeName(a.dtype()), ShapeToString(a.shape()));
  if (n == 0) return out;
  double low = ElementOf(a, 0), high = low, sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double v = ElementOf(a, i);
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
  }
  out += " =";
  for (int64_t i = 0; i < std::min<int64_t>(n, 6); ++i) out += fmt::format(" {:.6g}", ElementOf(a, i));
  if (n > 6) out += fmt::format(" ...  min {:.6g} max {:.6g} mean {:.6g}", low, high, sum / static_cast<double>(n));
  return out;
}

// The extents of a parameter of random contents: constants and --dim values.
StatusOr<std::vector<int64_t>> ShapeFor(const Module& m, const Param& p, const std::map<std::string, std::string>& dims) {
  std::vector<int64_t> symbols;
  for (const DimSymbol& s : m.dims.symbols()) {
    const auto given = dims.find(s.name);
    int64_t value = std::max<int64_t>(s.lower, s.multiple);
    if (given != dims.end()) {
      OPWIRE_ASSIGN_OR_RETURN(value, Number(given->second, "--dim " + s.name));
    }
    symbols.push_back(value);
  }
  const DimValues values(m.dims, symbols);
  std::vector<int64_t> shape;
  for (Dim d : p.type.shape) {
    OPWIRE_ASSIGN_OR_RETURN(const int64_t extent, values.Get(d));
    shape.push_back(extent);
  }
  return shape;
}

struct Input {
  Array array;
  std::optional<double> scalar;
  std::optional<int64_t> dim;
};

StatusOr<Input> ReadInput(const Module& m, const Param& p, const std::string& value, const std::map<std::string, std::string>& dims) {
  Input in;
  if (p.mode == ParamMode::kDim) {
    OPWIRE_ASSIGN_OR_RETURN(in.dim, Number(value, "--in " + p.name));
    return in;
  }
  if (value.starts_with("random:") || value == "random") {
    uint64_t seed = 0;
    if (value.size() > 7) {
      OPWIRE_ASSIGN_OR_RETURN(const int64_t n, Number(std::string_view(value).substr(7), "--in " + p.name));
      seed = static_cast<uint64_t>(n);
    }
    OPWIRE_ASSIGN_OR_RETURN(std::vector<int64_t> shape, ShapeFor(m, p, dims));
    const auto bytes = TensorBytes(p.type.dtype, Encoding::kDense, shape);
    if (!bytes || *bytes > int64_t{1} << 34) return ResourceExhausted("--in {}: a random {}{} is too large", p.name, DTypeName(p.type.dtype), ShapeToString(shape));
    in.array = Array::Random(p.type.dtype, std::move(shape), seed);
    return in;
  }
  if (p.type.rank() == 0 && !value.ends_with(".npy")) {
    char* end = nullptr;
    in.scalar = std::strtod(value.c_str(), &end);
    if (value.empty() || *end) return InvalidArgument("--in {}: expected a number, a .npy file or random:SEED, got '{}'", p.name, value);
    return in;
  }
  OPWIRE_ASSIGN_OR_RETURN(in.array, Array::ReadNpy(value));
  if (in.array.dtype() != p.type.dtype) {
    return InvalidArgument("--in {}: expected {}, {} holds {}{}", p.name, ToString(p.type, m.dims), value, DTypeName(in.array.dtype()),
                           ShapeToString(in.array.shape()));
  }
  return in;
}

Status RunFile(const Common& common, const RunArgs& args) {
  std::ifstream file(args.file);
  if (!file) return NotFound("file {} cannot be read", args.file);
  std::stringstream text;
  text << file.rdbuf();
  OPWIRE_ASSIGN_OR_RETURN(Module module, Parse(text.str(), args.file));
  OPWIRE_RETURN_IF_ERROR(VerifyModule(module).status());
  const Function f = module.functions[0];
  const ValueTypes types(module.functions[0]);
  OPWIRE_ASSIGN_OR_RETURN(const auto in, Pairs(args.in, "--in"));
  OPWIRE_ASSIGN_OR_RETURN(const auto out, Pairs(args.out, "--out"));
  OPWIRE_ASSIGN_OR_RETURN(const auto dims, Pairs(args.dims, "--dim"));
  const std::string signature = SignatureOf(module, f, types);
  if (in.empty() && !f.params.empty()) {
    fmt::print("{}\n", signature);
    return absl::OkStatus();
  }
  for (const auto& [name, value] : in) {
    if (std::none_of(f.params.begin(), f.params.end(), [&](const Param& p) { return p.name == name; })) {
      return InvalidArgument("--in {}: no such parameter in {}", name, signature);
    }
  }
  for (const auto& [name, value] : out) {
    if (std::none_of(f.results.begin(), f.results.end(), [&](const Result& r) { return r.name == name; })) {
      return InvalidArgument("--out {}: no such result in {}", name, signature);
    }
  }
  std::vector<Input> inputs;
  for (const Param& p : f.params) {
    const auto given = in.find(p.name);
    if (given == in.end()) return InvalidArgument("parameter {} has no value: pass --in {}=FILE.npy or --in {}=random:SEED\n{}", p.name, p.name, p.name, signature);
    OPWIRE_ASSIGN_OR_RETURN(Input input, ReadInput(module, p, given->second, dims));
    inputs.push_back(std::move(input));
  }

  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenAny(common, client, &module));
  OPWIRE_ASSIGN_OR_RETURN(Program program, session.Load(module));
  std::vector<Arg> run_args;
  std::map<std::string, Tensor> inouts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Param& p = f.params[i];
    if (inputs[i].dim) {
      run_args.emplace_back(*inputs[i].dim);
    } else if (p.mode == ParamMode::kInout) {
      Array a = inputs[i].scalar ? Array(p.type.dtype, {}) : std::move(inputs[i].array);
      OPWIRE_ASSIGN_OR_RETURN(Tensor t, session.Put(a.view()));
      inouts.emplace(p.name, t);
      run_args.emplace_back(t);
    } else if (inputs[i].scalar) {
      run_args.emplace_back(*inputs[i].scalar);
    } else {
      run_args.emplace_back(inputs[i].array);
    }
  }
  RunOptions options;
  options.deadline_us = static_cast<int64_t>(args.deadline_ms * 1000);
  RunResult result;
  int64_t best = INT64_MAX;
  for (int i = 0; i < args.repeat; ++i) {
    OPWIRE_ASSIGN_OR_RETURN(result, program.Run(run_args, options));
    best = std::min(best, result.run_ns);
  }
  json printed = json::object();
  for (size_t r = 0; r < f.results.size(); ++r) {
    const std::string& name = f.results[r].name;
    const Tensor& t = inouts.contains(name) ? inouts.at(name) : result.outputs[r].tensor;
    OPWIRE_ASSIGN_OR_RETURN(const Array array, session.Fetch(t));
    if (const auto path = out.find(name); path != out.end()) OPWIRE_RETURN_IF_ERROR(array.WriteNpy(path->second));
    printed[name] = Summary(array);
  }
  if (common.json) {
    fmt::print("{}\n", json({{"executor", session.executor()}, {"run_ns", best}, {"divided_by_zero", result.divided_by_zero}, {"results", printed}}).dump(2));
    return absl::OkStatus();
  }
  for (const Result& r : f.results) fmt::print("{}: {}\n", r.name, printed[r.name].get<std::string>());
  fmt::print("ran on {} in {}{}\n", session.executor(), HumanNanos(best), result.divided_by_zero ? "; an integer was divided by zero" : "");
  return absl::OkStatus();
}

}  // namespace

void AddRun(CLI::App& app, Common& common) {
  CLI::App* command = app.add_subcommand("run",
                                         "Run a program's file; without inputs, print its signature\n\nExample:\n  opwire run mlp.opw\n  opwire run mlp.opw "
                                         "--in x=digits.npy --in w=random:7 --out y=probs.npy");
  auto args = std::make_shared<RunArgs>();
  command->add_option("file", args->file, "A program in text form (.opw)")->required();
  command->add_option("--in", args->in, "NAME=FILE.npy, NAME=random:SEED, or NAME=NUMBER for a scalar or dimension; once for each parameter");
  command->add_option("--out", args->out, "NAME=FILE.npy; once for each result to keep");
  command->add_option("--dim", args->dims, "NAME=NUMBER: the value of a dimension ?NAME for random inputs");
  command->add_option("--repeat", args->repeat, "Runs; the shortest time is printed")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  command->add_option("--deadline-ms", args->deadline_ms, "Give up after this time; 0: never")->check(CLI::Range(0.0, 1e9))->capture_default_str();
  command->callback([&common, args] {
    const Status status = RunFile(common, *args);
    common.exit_code = status.ok() ? kDone : Report(common, status);
  });
}

}  // namespace opwire::cli
