// opwire run: a program's file, arrays in, arrays out.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "frontend/cli/cli.h"
#include "frontend/cli/elements.h"
#include "frontend/cli/facts.h"
#include "frontend/cli/held_signals.h"
#include "ir/ops/names.h"
#include "ir/verify/verify.h"

namespace opwire::cli {
namespace {

constexpr int64_t kMostRandomBytes = int64_t{1} << 34;

std::string TypeOf(const Module& m, const Param& p) {
  return p.mode == ParamMode::kDim ? "dimension " + m.dims.ToString(p.dim)
                                   : ToString(p.type, m.dims);
}

nlohmann::ordered_json FactsOf(const char* key, std::string_view name, const Array& value) {
  return {{key, name},
          {"dtype", DTypeName(value.dtype())},
          {"shape", value.shape()},
          {"summary", Summary(value)}};
}

struct Signature {
  const Module& module;
  const Function& function;
  ValueTypes types;

  explicit Signature(const Module& m)
      : module(m), function(m.functions[0]), types(m.functions[0]) {}

  std::string TypeOfResult(const Result& r) const {
    return opwire::ToString(*types.types[static_cast<size_t>(r.value)], module.dims);
  }

  std::string ToText() const {
    std::string out = fmt::format("@{}(", function.name);
    for (const Param& p : function.params) {
      out += fmt::format("\n  {}{}: {}", p.mode == ParamMode::kInout ? "inout " : "", p.name,
                         TypeOf(module, p));
    }
    out += "\n) -> (";
    for (const Result& r : function.results)
      out += fmt::format("\n  {}: {}", r.name, TypeOfResult(r));
    return out + "\n)\n";
  }

  nlohmann::ordered_json ToJson() const {
    nlohmann::ordered_json params = json::array(), results = json::array();
    for (const Param& p : function.params) {
      const char* mode = p.mode == ParamMode::kInout ? "inout"
                         : p.mode == ParamMode::kDim ? "dim"
                                                     : "in";
      params.push_back({{"name", p.name}, {"mode", mode}, {"type", TypeOf(module, p)}});
    }
    for (const Result& r : function.results)
      results.push_back({{"name", r.name}, {"type", TypeOfResult(r)}});
    return {{"program", function.name}, {"parameters", params}, {"results", results}};
  }
};

struct Input {
  enum class Kind { kArray, kScalar, kDim, kRandom, kTensor };
  Kind kind = Kind::kArray;
  Array array;         // kArray, kScalar; kRandom once its shape is known
  int64_t number = 0;  // kDim: the value; kRandom: the seed
  std::string name;    // kTensor
  Tensor tensor;       // once it is on the executor
};

// Reads the parts of an input that need no executor.
StatusOr<Input> ReadInput(const Module& m, const Param& p, const std::string& value) {
  Input in;
  if (p.mode == ParamMode::kDim) {
    in.kind = Input::Kind::kDim;
    OPWIRE_ASSIGN_OR_RETURN(in.number, Number(value, "--in " + p.name));
  } else if (value == "random" || value.starts_with("random:")) {
    in.kind = Input::Kind::kRandom;
    if (value.size() > 7) {
      OPWIRE_ASSIGN_OR_RETURN(in.number,
                              Number(std::string_view(value).substr(7), "--in " + p.name));
    }
  } else if (value.starts_with("@")) {
    in.kind = Input::Kind::kTensor;
    in.name = value.substr(1);
  } else if (p.type.rank() == 0 && !value.ends_with(".npy")) {
    in.kind = Input::Kind::kScalar;
    auto scalar = ScalarArray(p.type.dtype, value);
    if (!scalar.ok())
      return Usage("--in {}: {}; or FILE.npy, random:SEED or @TENSOR", p.name,
                   MessageOf(scalar.status()));
    in.array = *std::move(scalar);
  } else {
    auto array = Array::ReadNpy(value);
    if (!array.ok())
      return absl::IsNotFound(array.status())
                 ? Usage("--in {}: {}", p.name, MessageOf(array.status()))
                 : array.status();
    in.array = *std::move(array);
    const bool fits = in.array.dtype() == p.type.dtype &&
                      static_cast<int>(in.array.shape().size()) == p.type.rank();
    bool equal = fits;
    for (size_t a = 0; fits && a < in.array.shape().size(); ++a) {
      const Dim d = p.type.shape[a];
      equal = equal && (!m.dims.IsConstant(d) || m.dims.ConstantValue(d) == in.array.shape()[a]);
    }
    if (!equal) {
      return InvalidArgument("--in {}: expected {}, got {}{} from {}", p.name,
                             ToString(p.type, m.dims), DTypeName(in.array.dtype()),
                             ShapeToString(in.array.shape()), value);
    }
  }
  return in;
}

// Returns the value of each symbol of the program for random inputs: from --dim, else from the
// other inputs. Else it is the lowest valid value above zero.
StatusOr<std::vector<int64_t>> SymbolsOf(const Module& m, const Function& f,
                                         const std::vector<Input>& inputs, const Pairs& dims) {
  std::vector<int64_t> out;
  for (size_t s = 0; s < m.dims.symbols().size(); ++s) {
    const DimSymbol& symbol = m.dims.symbols()[s];
    int64_t value = std::max({symbol.lower, symbol.multiple, int64_t{1}});
    const auto is_symbol = [&](Dim d) {
      return m.dims.node(d).kind == DimKind::kSymbol &&
             static_cast<size_t>(m.dims.node(d).value) == s;
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Param& p = f.params[i];
      if (inputs[i].kind == Input::Kind::kDim && is_symbol(p.dim)) value = inputs[i].number;
      const std::vector<int64_t>* shape =
          inputs[i].kind == Input::Kind::kArray    ? &inputs[i].array.shape()
          : inputs[i].kind == Input::Kind::kTensor ? &inputs[i].tensor.shape()
                                                   : nullptr;
      for (size_t a = 0; shape && a < std::min(shape->size(), p.type.shape.size()); ++a) {
        if (is_symbol(p.type.shape[a])) value = (*shape)[a];
      }
    }
    if (const auto given = dims.find(symbol.name); given != dims.end()) {
      OPWIRE_ASSIGN_OR_RETURN(value, Number(given->second, "--dim " + symbol.name));
    }
    if (Status status = m.dims.CheckSymbol(s, value); !status.ok()) return AsUsage(status);
    out.push_back(value);
  }
  return out;
}

Status MakeRandom(const Param& p, const DimValues& values, Input& in) {
  std::vector<int64_t> shape;
  for (Dim d : p.type.shape) {
    OPWIRE_ASSIGN_OR_RETURN(const int64_t extent, values.Get(d));
    shape.push_back(extent);
  }
  const auto bytes = TensorBytes(p.type.dtype, Encoding::kDense, shape);
  if (!bytes || *bytes > kMostRandomBytes) {
    return ResourceExhausted("--in {}: a random {}{} is too large", p.name, DTypeName(p.type.dtype),
                             ShapeToString(shape));
  }
  in.array = Array::Random(p.type.dtype, std::move(shape), static_cast<uint64_t>(in.number));
  return absl::OkStatus();
}

StatusOr<Session> OpenFor(const Common& common, const RunArgs& args, const Module& m,
                          Client& client, bool needs_tensors) {
  SessionOptions options;
  options.device = common.device;
  options.name = args.session;
  if (!args.memory.empty()) {
    OPWIRE_ASSIGN_OR_RETURN(options.memory_bytes, BytesOf(args.memory));
  }
  options.program = &m;
  if (!needs_tensors) OPWIRE_RETURN_IF_ERROR(client.StartIfNone(common.device));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<ExecutorFacts> executors, Executors(common, client));
  if (!args.session.empty()) {
    OPWIRE_ASSIGN_OR_RETURN(const std::string holder, HolderOf(executors, args.session));
    if (!holder.empty()) options.device = holder;
    if (holder.empty() && needs_tensors) {
      return WithNext(NotFound("lost session: no executor holds a session '{}'; it was ended, its "
                               "time to live passed, or its "
                               "executor was restarted",
                               args.session),
                      "make its tensors anew, from files: --in NAME=FILE.npy");
    }
  }
  return client.Open(options);
}

// Finds or puts the tensors of the inputs on the executor, in the order of the parameters.
Status Place(const Module& m, const Function& f, const Pairs& dims, Session& session,
             const std::string& name, std::vector<Input>& inputs) {
  for (Input& in : inputs) {
    if (in.kind != Input::Kind::kTensor) continue;
    auto tensor = session.Find(in.name);
    if (absl::IsNotFound(tensor.status())) {
      OPWIRE_ASSIGN_OR_RETURN(const std::vector<TensorFacts> all, session.List());
      std::vector<std::string> names;
      for (const TensorFacts& t : all) names.push_back(t.name.empty() ? t.id : t.name);
      std::sort(names.begin(), names.end());
      return NotFound(
          "session '{}' on {} has no tensor '{}'; it has {}", name, session.executor(), in.name,
          names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", ")));
    }
    if (!tensor.ok()) return tensor.status();
    in.tensor = *std::move(tensor);
  }
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<int64_t> symbols, SymbolsOf(m, f, inputs, dims));
  const DimValues values(m.dims, symbols);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Input& in = inputs[i];
    const Param& p = f.params[i];
    if (in.kind == Input::Kind::kRandom) OPWIRE_RETURN_IF_ERROR(MakeRandom(p, values, in));
    if (in.kind == Input::Kind::kDim || in.kind == Input::Kind::kTensor ||
        (in.kind == Input::Kind::kScalar && p.mode != ParamMode::kInout))
      continue;
    OPWIRE_ASSIGN_OR_RETURN(in.tensor, session.Put(in.array.view()));
  }
  return absl::OkStatus();
}

// Checks that names for results are unused, or belong to their own tensors. A tensor that a failed
// run left unusable is replaced.
Status CheckKept(Session& session, const std::string& name, const Pairs& out,
                 const std::map<std::string, Tensor>& inouts) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<TensorFacts> all, session.List());
  for (const auto& [result, to] : out) {
    if (!to.starts_with("@")) continue;
    const auto held = std::find_if(all.begin(), all.end(),
                                   [&](const TensorFacts& t) { return t.name == to.substr(1); });
    const auto own = inouts.find(result);
    if (held == all.end() || (own != inouts.end() && own->second.id() == held->id)) continue;
    if (!held->usable) {
      OPWIRE_ASSIGN_OR_RETURN(const Tensor failed, session.Find(held->id));
      OPWIRE_RETURN_IF_ERROR(session.Free(failed));
      continue;
    }
    return WithNext(AlreadyExists("--out {}: session '{}' has a tensor '{}' already", result, name,
                                  to.substr(1)),
                    "keep the result under another name");
  }
  return absl::OkStatus();
}

// A node: its function, empty for that of the run, and its result's name as in `opwire opt`.
struct ProfiledNode {
  std::string function, value;
};

std::vector<ProfiledNode> NamesOf(const Module& module, const std::vector<StepCost>& profile) {
  const std::vector<ValueTypes> values(module.functions.begin(), module.functions.end());
  std::vector<ProfiledNode> out;
  for (const StepCost& c : profile) {
    const bool called = c.function >= 0 && c.function < static_cast<int>(module.functions.size());
    const size_t function = called ? static_cast<size_t>(c.function) : 0;
    const Function& f = module.functions[function];
    std::string node = "result";
    if (c.node >= 0 && c.node < static_cast<int>(f.nodes.size())) {
      const auto n = static_cast<size_t>(c.node);
      node = f.nodes[n].results.empty()
                 ? std::to_string(n)
                 : ValueName(f, static_cast<ValueId>(values[function].first_result[n]));
    }
    out.push_back({called ? f.name : "", std::move(node)});
  }
  return out;
}

void PrintProfile(const Module& module, const std::vector<StepCost>& profile) {
  if (profile.empty()) return;
  const std::vector<ProfiledNode> names = NamesOf(module, profile);
  Table table({"NODE", "OP@VARIANT", "TIME"});
  for (size_t i = 0; i < profile.size(); ++i) {
    table.Add({(names[i].function.empty() ? "" : "@" + names[i].function + " ") + names[i].value,
               profile[i].label, HumanNanos(profile[i].ns)});
  }
  fmt::print("{}", table.ToString());
}

// Ctrl-C stops the run and closes the session. Otherwise the executor would keep it for a client
// that lost its connection.
StatusOr<RunResult> WaitFor(PendingRun& run, Session& session) {
  const HeldSignals signals;
  while (!run.Ready(20'000)) {
    if (!signals.Came()) continue;
    (void)run.Cancel();
    (void)session.Close();
    return Cancelled("stopped by a signal");
  }
  return run.Wait();
}

}  // namespace

Status Run(const Common& common, const RunArgs& args) {
  OPWIRE_ASSIGN_OR_RETURN(ProgramFile file, ReadProgram(common, args.file));
  Module& module = file.module;
  OPWIRE_RETURN_IF_ERROR(VerifyModule(module, {}, *file.ops).status());
  const Signature signature(module);
  const Function& f = signature.function;
  OPWIRE_ASSIGN_OR_RETURN(const Pairs in, PairsOf(args.in, "--in"));
  OPWIRE_ASSIGN_OR_RETURN(const Pairs out, PairsOf(args.out, "--out"));
  OPWIRE_ASSIGN_OR_RETURN(const Pairs dims, PairsOf(args.dims, "--dim"));
  std::vector<std::string_view> params, results, symbols;
  for (const Param& p : f.params) params.push_back(p.name);
  for (const Result& r : f.results) results.push_back(r.name);
  for (const DimSymbol& s : module.dims.symbols()) symbols.push_back(s.name);
  OPWIRE_RETURN_IF_ERROR(CheckNames(in, "--in", params, "parameter"));
  OPWIRE_RETURN_IF_ERROR(CheckNames(out, "--out", results, "result"));
  OPWIRE_RETURN_IF_ERROR(CheckNames(dims, "--dim", symbols, "dimension"));
  if (in.empty() && out.empty() && !f.params.empty()) {
    if (common.json)
      PrintJsonLine(signature.ToJson());
    else
      fmt::print("{}", signature.ToText());
    return absl::OkStatus();
  }
  std::vector<Input> inputs;
  bool needs_tensors = false;
  for (const Param& p : f.params) {
    const auto given = in.find(p.name);
    if (given == in.end()) {
      return WithNext(
          Usage("parameter {}: {} has no value", p.name, TypeOf(module, p)),
          p.mode == ParamMode::kDim
              ? fmt::format("pass --in {}=NUMBER", p.name)
              : fmt::format("pass --in {}=FILE.npy or --in {}=random:SEED", p.name, p.name));
    }
    OPWIRE_ASSIGN_OR_RETURN(Input input, ReadInput(module, p, given->second));
    needs_tensors |= input.kind == Input::Kind::kTensor;
    inputs.push_back(std::move(input));
  }
  bool keeps = false;
  for (const auto& [name, value] : out) {
    const std::filesystem::path folder = std::filesystem::path(value).parent_path();
    std::error_code error;
    if (value == "@") return Usage("--out {}: expected a tensor's name after '@'", name);
    if (value.starts_with("@"))
      keeps = true;
    else if (std::filesystem::is_directory(value, error))
      return Usage("--out {}: {} is a directory", name, value);
    else if (!folder.empty() && !std::filesystem::is_directory(folder, error))
      return Usage("--out {}: there is no directory {}", name, folder.string());
  }
  if (args.session.empty() && (needs_tensors || keeps)) {
    return WithNext(Usage("@TENSOR: a tensor stays in a session with a name, and none is given"),
                    "pass --session NAME");
  }

  OPWIRE_ASSIGN_OR_RETURN(Client client, Connect(common));
  OPWIRE_ASSIGN_OR_RETURN(Session session, OpenFor(common, args, module, client, needs_tensors));
  OPWIRE_RETURN_IF_ERROR(Place(module, f, dims, session, args.session, inputs));
  OPWIRE_ASSIGN_OR_RETURN(Program program, session.Load(module, args.passes.load()));
  std::vector<Arg> run_args;
  std::map<std::string, Tensor> inouts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].kind == Input::Kind::kDim)
      run_args.emplace_back(inputs[i].number);
    else if (inputs[i].tensor.valid())
      run_args.emplace_back(inputs[i].tensor);
    else
      run_args.emplace_back(inputs[i].array);
    if (f.params[i].mode == ParamMode::kInout) inouts.emplace(f.params[i].name, inputs[i].tensor);
  }
  OPWIRE_RETURN_IF_ERROR(CheckKept(session, args.session, out, inouts));
  RunOptions options;
  options.deadline_us = static_cast<int64_t>(std::ceil(args.deadline_ms * 1000));
  options.profile = args.profile;
  options.on_emit = [&](std::string_view name, const Array& value) {
    if (common.json)
      PrintJsonLine(FactsOf("emitted", name, value));
    else
      fmt::print("{}: {}\n", name, Summary(value));
    std::fflush(stdout);
  };
  RunResult result;
  int64_t best = INT64_MAX;
  for (int i = 0; i < args.repeat; ++i) {
    result = {};
    OPWIRE_ASSIGN_OR_RETURN(PendingRun run, program.Start(run_args, options));
    OPWIRE_ASSIGN_OR_RETURN(result, WaitFor(run, session));
    best = std::min(best, result.run_ns);
  }

  nlohmann::ordered_json outputs = json::array();
  for (size_t r = 0; r < f.results.size(); ++r) {
    const std::string& name = f.results[r].name;
    Tensor t = inouts.contains(name) ? inouts.at(name) : result.outputs[r].tensor;
    OPWIRE_ASSIGN_OR_RETURN(const Array array, session.Fetch(t));
    if (const auto to = out.find(name); to != out.end()) {
      if (to->second.starts_with("@")) {
        OPWIRE_RETURN_IF_ERROR(session.Rename(t, to->second.substr(1)));
        t.Leave();
      } else {
        OPWIRE_RETURN_IF_ERROR(array.WriteNpy(to->second));
      }
    }
    if (common.json) {
      outputs.push_back(FactsOf("name", name, array));
    } else {
      fmt::print("{}: {}\n", name, Summary(array));
    }
  }
  if (!common.json) PrintProfile(program.module(), result.profile);
  if (common.json) {
    nlohmann::ordered_json steps = json::array();
    // The passes may have removed functions and nodes, so that numbers alone do not identify them.
    const std::vector<ProfiledNode> names = NamesOf(program.module(), result.profile);
    for (size_t i = 0; i < names.size(); ++i) {
      const StepCost& c = result.profile[i];
      steps.push_back({{"function", c.function},
                       {"function_name", names[i].function},
                       {"node", c.node},
                       {"value", names[i].value},
                       {"label", c.label},
                       {"ns", c.ns}});
    }
    PrintJsonLine({{"executor", session.executor()},
                   {"run_ns", best},
                   {"divided_by_zero", result.divided_by_zero},
                   {"results", outputs},
                   {"profile", steps}});
  } else {
    fmt::print("ran on {} in {}{}\n", session.executor(), HumanNanos(best),
               result.divided_by_zero ? "; an integer was divided by zero" : "");
  }
  if (args.session.empty()) return absl::OkStatus();
  // Tensors of this command that are not kept are freed with the next message. A named session
  // outlives the command, so send a message.
  result = {};
  inouts.clear();
  run_args.clear();
  inputs.clear();
  return session.List().status();
}

}  // namespace opwire::cli
