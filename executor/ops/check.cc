// Calls between guard pages, comparison, and speed.
#include "executor/ops/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include "executor/ops/cases.h"
#include "executor/ops/guarded.h"
#include "executor/plan/instance.h"
#include "executor/plan/reference.h"
#include "ir/base/element.h"
#include "ir/program/builder.h"
#include "kernels/select/key_types.h"

namespace opwire::ops {
namespace {

using jit::OpCase;
using jit::OpManifest;

constexpr int64_t kMaxCaseBytes = int64_t{64} << 20;
constexpr int64_t kBenchElements = int64_t{1} << 22;

double ToleranceOf(const OpManifest& op, DType dtype) {
  if (const auto it = op.tolerance.find(dtype); it != op.tolerance.end()) return it->second;
  switch (dtype) {
    case DType::kF64: return 1e-11;
    case DType::kF32: return 1e-5;
    case DType::kF16: return 4e-3;
    case DType::kBF16: return 2e-2;
    case DType::kF8E4M3: return 0.15;
    case DType::kF8E5M2: return 0.3;
    default: return 0;
  }
}

// One case of one combination of types: the op as a program of one node, bound to sizes.
struct Bound {
  std::string what;  // "f32 M=3 N=17"
  std::map<std::string, int64_t> extents;
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  std::shared_ptr<Program> program;
  std::unique_ptr<Instance> instance;
  const Step& step() const { return instance->steps()[0]; }
};

class Checker {
 public:
  Checker(const OpManifest& op, const jit::OpVariantSpec& variant, const opw_kernel& kernel, Device& device, const CheckOptions& options)
      : op_(op), variant_(variant), kernel_(kernel), device_(device), options_(options), random_(options.seed), faults_(options.report) {}

  StatusOr<CheckReport> Run(std::shared_ptr<const KernelSet> builtin) {
    OPWIRE_RETURN_IF_ERROR(Prepare(std::move(builtin)));
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<TypeBinding> bindings, TypeBindings(op_.row));
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<OpCase> cases, CasesOf(op_, options_.thorough));
    for (const TypeBinding& types : bindings) {
      worst_ = 0;
      DType shown = DType::kInvalid;
      for (const OpCase& c : cases) {
        OPWIRE_ASSIGN_OR_RETURN(std::optional<Bound> bound, Bind(types, c, variant_.name));
        if (!bound) continue;
        shown = static_cast<DType>(bound->step().call.results[0].dtype);
        OPWIRE_RETURN_IF_ERROR(CheckCase(*bound, Values::kOrdinary));
        if (!options_.thorough) continue;
        OPWIRE_RETURN_IF_ERROR(CheckCase(*bound, Values::kSpecial));
        if (HasIndices()) OPWIRE_RETURN_IF_ERROR(CheckCase(*bound, Values::kHostileIndices));
      }
      if (shown != DType::kInvalid) report_.worst.push_back(fmt::format("{}: {:.2g} of {:.2g} allowed", Describe(types), worst_, ToleranceOf(op_, shown)));
      if (options_.measure && shown != DType::kInvalid) OPWIRE_RETURN_IF_ERROR(Measure(types));
    }
    if (report_.cases == 0) {
      return FailedPrecondition("{}@{}: its supports refused every case; the last for: {}", op_.name(), variant_.name, last_refusal_);
    }
    return std::move(report_);
  }

 private:
  Status Prepare(std::shared_ptr<const KernelSet> builtin) {
    const bool says = (kernel_.flags & OPW_DETERMINISTIC) != 0;
    if (variant_.deterministic && !says) return FailedPrecondition("{}@{}: the manifest calls it deterministic, its flags lack OPW_DETERMINISTIC", op_.name(), variant_.name);
    OPWIRE_ASSIGN_OR_RETURN(reference_, ReferenceProgram::Make(op_.declaration, op_.row, op_.reference, "reference", builtin));
    auto wide = ReferenceProgram::Make(op_.declaration, op_.row, op_.reference, "reference", builtin, ReferenceProgram::When::kNow, /*wide=*/true);
    if (wide.ok()) wide_ = *std::move(wide);  // else judged by the program as it is: it may insist on its types
    OPWIRE_ASSIGN_OR_RETURN(auto ops, ExtendCatalogue({op_.row}));
    auto set = std::make_shared<KernelSet>();
    set->variants = VariantTable(*ops);
    set->ops = std::move(ops);
    const DTypeSet all = KeyTypesOf(op_.row);
    set->variants.Add({op_.name(), variant_.name, Tier::kProduction, 0, all, "", op_.folder, kernel_});
    set->variants.Add({op_.name(), "reference", Tier::kReference, 0, all, "", op_.folder, reference_->kernel()});
    set_ = std::move(set);
    return absl::OkStatus();
  }

  bool HasIndices() const {
    return std::ranges::any_of(op_.row.operands, [](const OperandSpec& o) { return o.domain != Domain::kAny; });
  }

  static std::string Describe(const TypeBinding& types) {
    std::string out;
    for (const auto& [name, dtype] : types) out += fmt::format("{}{}", out.empty() ? "" : " ", DTypeName(dtype));
    return out.empty() ? "-" : out;
  }

  // Nothing where the sizes or types contradict what the op takes, or the kernel refuses them.
  StatusOr<std::optional<Bound>> Bind(const TypeBinding& types, const OpCase& c, const std::string& pin) {
    Bound b;
    b.what = Describe(types);
    b.extents = c.extents;
    for (const auto& [name, value] : c.extents) b.what += fmt::format(" {}={}", name, value);
    if (!c.leading.empty()) b.what += fmt::format(" ...={}", ShapeToString(c.leading));
    auto shapes = OperandShapes(op_.declaration, c.extents, c.leading, c.attrs);
    if (!shapes.ok()) return shapes.status();
    b.shapes = *std::move(shapes);
    ModuleBuilder m(*set_->ops);
    FunctionBuilder f = m.Function("check");
    std::vector<Value> operands;
    for (size_t i = 0; i < op_.row.operands.size(); ++i) {
      b.dtypes.push_back(TypeIn(types, op_.row.operands[i].type));
      operands.push_back(f.In("p" + std::to_string(i), b.dtypes.back(), {b.shapes[i].begin(), b.shapes[i].end()}));
    }
    std::vector<AttrArg> attrs;
    for (const NamedAttr& a : c.attrs) {
      attrs.emplace_back(a.name, a.value);
      b.what += fmt::format(" {}", a.name);
    }
    for (const auto& [name, dtype] : types) {
      if (op_.row.FindAttr(name) >= 0) attrs.emplace_back(name, AttrValue(dtype));
    }
    for (const AttrSpec& a : op_.row.attrs) {
      const bool given = std::ranges::any_of(attrs, [&](const AttrArg& have) { return have.name == a.name; });
      if (!given && !a.fallback) return FailedPrecondition("{}: attribute {} has no default: \"tests\" must name its values", op_.name(), a.name);
    }
    const std::vector<Value> results = f.Ops(op_.name(), operands, attrs);
    f.Pin(pin);
    for (size_t r = 0; r < results.size(); ++r) f.Return("r" + std::to_string(r), results[r]);
    auto module = m.Finish();
    if (absl::IsInvalidArgument(module.status())) return std::optional<Bound>();  // a size that the signature excludes
    if (!module.ok()) return module.status();
    OPWIRE_ASSIGN_OR_RETURN(b.program, PrepareProgram(Serialise(*module), set_, ExecutorLimits()));
    FaultReporter::Watched watched(faults_, fmt::format("{}, {}: in supports or prepare", Label(), b.what), {});
    auto instance = Instance::Build(*b.program, 0, {}, {.runtime = device_.runtime()});
    if (absl::IsUnimplemented(instance.status()) || absl::IsFailedPrecondition(instance.status())) {
      ++report_.refused;
      last_refusal_ = MessageOf(instance.status());
      return std::optional<Bound>();
    }
    if (!instance.ok()) return instance.status();
    b.instance = *std::move(instance);
    return std::optional<Bound>(std::move(b));
  }

  std::string Label() const { return fmt::format("{}@{}", op_.name(), variant_.name); }

  std::vector<uint8_t> Fill(const Bound& b, size_t operand, Values values) {
    const bool index = op_.row.operands[operand].domain != Domain::kAny;
    return RandomOperand(b.dtypes[operand], b.shapes[operand], index ? std::optional(IndexExtent(b, operand)) : std::nullopt, values, random_);
  }

  // The extent that an index operand's values are positions in.
  int64_t IndexExtent(const Bound& b, size_t operand) const {
    for (const auto& [name, extent] : op_.declaration.indices) {
      if (name == op_.row.operands[operand].name) return b.extents.at(extent);
    }
    return 0;
  }

  Status CheckCase(Bound& b, Values values) {
    const opw_call& call = b.step().call;
    int64_t total = 0;
    for (size_t i = 0; i < b.shapes.size(); ++i) total += call.operands[i].elements * DTypeBytes(b.dtypes[i]);
    if (total > kMaxCaseBytes) return FailedPrecondition("{}: {}: a case takes at most {} bytes of operands", Label(), b.what, kMaxCaseBytes);
    std::vector<std::vector<uint8_t>> inputs;
    for (size_t i = 0; i < b.shapes.size(); ++i) inputs.push_back(Fill(b, i, values));
    const bool hostile = values == Values::kHostileIndices;
    std::string what = b.what + (values == Values::kSpecial ? ", with NaN and infinities" : hostile ? ", with indices out of their domain" : "");
    std::vector<std::vector<uint8_t>> first;
    bool out_of_range = false;
    for (const Guard guard : {Guard::kBehind, Guard::kBefore}) {
      OPWIRE_ASSIGN_OR_RETURN(std::vector<std::vector<uint8_t>> got, Call(b, inputs, guard, what, out_of_range));
      if (first.empty()) first = std::move(got);
      else if (!hostile && (kernel_.flags & OPW_DETERMINISTIC) && got != first) return Fail(what, "it calls itself deterministic, and two runs gave different bits");
    }
    ++report_.cases;
    bool any = false;
    for (size_t i = 0; i < b.shapes.size(); ++i) any |= op_.row.operands[i].domain != Domain::kAny && !inputs[i].empty();
    const bool empty_extent = HasIndices() && EveryIndexExtentEmpty(b);
    if (hostile || empty_extent) {
      if (any && !out_of_range && call.results[0].elements > 0) return Fail(what, "it did not call out_of_range");
      return absl::OkStatus();
    }
    if (out_of_range) return Fail(what, "it called out_of_range for indices within their domain");
    return Compare(b, inputs, first, what);
  }

  bool EveryIndexExtentEmpty(const Bound& b) const {
    for (size_t i = 0; i < op_.row.operands.size(); ++i) {
      if (op_.row.operands[i].domain != Domain::kAny && IndexExtent(b, i) != 0) return false;
    }
    return true;
  }

  Status Fail(const std::string& what, const std::string& how) const { return FailedPrecondition("{}, {}: {}", Label(), what, how); }

  // One run; the results' bytes.
  StatusOr<std::vector<std::vector<uint8_t>>> Call(Bound& b, const std::vector<std::vector<uint8_t>>& inputs, Guard guard, const std::string& what,
                                                   bool& out_of_range) {
    const Step& step = b.step();
    std::vector<GuardedBuffer> buffers;
    const auto add = [&](std::string name, int64_t bytes, int64_t alignment) -> Status {
      OPWIRE_ASSIGN_OR_RETURN(buffers.emplace_back(), GuardedBuffer::Make(std::move(name), bytes, alignment, guard));
      return absl::OkStatus();
    };
    const auto shape = [](const opw_tensor& t) { return fmt::format("({}{})", DTypeName(static_cast<DType>(t.dtype)), ShapeToString({t.shape, t.rank})); };
    for (size_t i = 0; i < inputs.size(); ++i) {
      OPWIRE_RETURN_IF_ERROR(add(fmt::format("operand {} {}", op_.row.operands[i].name, shape(step.call.operands[i])), static_cast<int64_t>(inputs[i].size()), DTypeBytes(b.dtypes[i])));
      if (!inputs[i].empty()) std::memcpy(buffers.back().data(), inputs[i].data(), inputs[i].size());
      buffers.back().Seal();
      b.instance->BindParam(static_cast<int>(i), buffers.back().data());
    }
    for (size_t r = 0; r < op_.row.results.size(); ++r) {
      const opw_tensor& t = step.call.results[r];
      const int64_t size = DTypeBytes(static_cast<DType>(t.dtype));
      OPWIRE_RETURN_IF_ERROR(add(fmt::format("result {} {}", op_.row.results[r].name, shape(t)), t.elements * size, size));
      b.instance->BindResult(static_cast<int>(r), buffers.back().data());
    }
    // The kernel's own workspace, not what a plan would give it as a part of more.
    opw_call call = step.call;
    OPWIRE_RETURN_IF_ERROR(add("the workspace", call.workspace_bytes, 64));
    call.workspace = buffers.back().data();
    std::vector<const GuardedBuffer*> watched_buffers;
    for (const GuardedBuffer& g : buffers) watched_buffers.push_back(&g);
    (void)device_.TakeFlags();
    int rc = 0;
    {
      FaultReporter::Watched watched(faults_, fmt::format("{}, {}", Label(), what), watched_buffers);
      rc = step.run(&call);
    }
    if (rc != OPW_OK) return Fail(what, fmt::format("it returned {}", rc));
    out_of_range |= device_.TakeFlags().out_of_range_operand >= 0;
    for (const GuardedBuffer& g : buffers) {
      if (const std::string overrun = g.Overrun(); !overrun.empty()) return Fail(what, overrun);
    }
    std::vector<std::vector<uint8_t>> results;
    for (size_t r = 0; r < op_.row.results.size(); ++r) {
      const auto bytes = buffers[inputs.size() + r].bytes();
      results.emplace_back(bytes.begin(), bytes.end());
    }
    return results;
  }

  // The reference's results as numbers, computed in f64 where that is possible.
  StatusOr<std::vector<std::vector<double>>> Reference(const Bound& b, const std::vector<std::vector<uint8_t>>& inputs) {
    // The same call, its floating tensors widened.
    opw_call call = b.step().call;
    std::vector<opw_tensor> operands(call.operands, call.operands + inputs.size()), results(call.results, call.results + op_.row.results.size());
    std::vector<std::vector<uint64_t>> memory;  // of 8 bytes, so that all is aligned
    const auto place = [&](opw_tensor& t) -> uint8_t* {
      memory.emplace_back(static_cast<size_t>(t.elements) + 8);
      t.data = memory.back().data();
      return static_cast<uint8_t*>(t.data);
    };
    const auto widens = [&](const std::string& type) { const DTypeSet* v = op_.row.Variable(type); return wide_ && v && (*v - kFloats).Empty(); };
    for (size_t i = 0; i < inputs.size(); ++i) {
      uint8_t* to = place(operands[i]);
      if (!widens(op_.row.operands[i].type)) {
        if (!inputs[i].empty()) std::memcpy(to, inputs[i].data(), inputs[i].size());
        continue;
      }
      operands[i].dtype = OPW_F64;
      for (int64_t e = 0; e < operands[i].elements; ++e) {
        const double value = ElementValue(b.dtypes[i], inputs[i].data() + e * DTypeBytes(b.dtypes[i]));
        std::memcpy(to + e * 8, &value, 8);
      }
    }
    for (size_t r = 0; r < results.size(); ++r) {
      place(results[r]);
      if (widens(op_.row.results[r].type)) results[r].dtype = OPW_F64;
    }
    call.operands = operands.data();
    call.results = results.data();
    OPWIRE_RETURN_IF_ERROR(RunReference((wide_ ? wide_ : reference_)->kernel(), call, b.what));
    std::vector<std::vector<double>> out;
    for (const opw_tensor& t : results) {
      const auto dtype = static_cast<DType>(t.dtype);
      std::vector<double>& values = out.emplace_back();
      for (int64_t e = 0; e < t.elements; ++e) values.push_back(ElementValue(dtype, static_cast<uint8_t*>(t.data) + e * DTypeBytes(dtype)));
    }
    return out;
  }

  Status RunReference(const opw_kernel& kernel, opw_call& call, const std::string& what) {
    call.context = kernel.context;
    call.runtime = device_.runtime();
    if (const char* why = kernel.supports(&call)) return FailedPrecondition("{}, {}: the reference refuses: {}", Label(), what, why);
    if (kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) {
      return FailedPrecondition("{}, {}: the reference's results have other shapes than the signature says", Label(), what);
    }
    std::vector<uint64_t> workspace(static_cast<size_t>(call.workspace_bytes) / 8 + 16);
    call.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    const int rc = kernel.run(&call);
    kernel.release(call.state);
    return rc == OPW_OK ? absl::OkStatus() : FailedPrecondition("{}, {}: the reference failed", Label(), what);
  }

  Status Compare(const Bound& b, const std::vector<std::vector<uint8_t>>& inputs, const std::vector<std::vector<uint8_t>>& got, const std::string& what) {
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> expected, Reference(b, inputs));
    for (size_t r = 0; r < expected.size(); ++r) {
      const auto dtype = static_cast<DType>(b.step().call.results[r].dtype);
      const double tolerance = ToleranceOf(op_, dtype);
      for (size_t e = 0; e < expected[r].size(); ++e) {
        const double want = expected[r][e], have = ElementValue(dtype, got[r].data() + e * static_cast<size_t>(DTypeBytes(dtype)));
        if (std::isnan(want) && std::isnan(have)) continue;
        const uint64_t rounded_bits = ElementBits(dtype, want);
        const double rounded = ElementValue(dtype, &rounded_bits);
        if (have == rounded || (!IsFloat(dtype) && have == want)) continue;
        const double error = std::abs(have - want) / std::max(1.0, std::abs(want));
        if (error <= tolerance) {
          worst_ = std::max(worst_, error);
          continue;
        }
        return Fail(what, fmt::format("result {}[{}]: expected {:.9g}, got {:.9g}; the tolerance is {:.2g}", op_.row.results[r].name, e, want, have, tolerance));
      }
    }
    return absl::OkStatus();
  }

  template <typename F>
  static double Median(const F& f) {
    std::vector<double> seconds;
    double total = 0;
    f();
    while (seconds.size() < 5 || (total < 0.1 && seconds.size() < 200)) {
      const auto begun = std::chrono::steady_clock::now();
      f();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
      total += seconds.back();
    }
    std::ranges::nth_element(seconds, seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2));
    return seconds[seconds.size() / 2];
  }

  Status Measure(const TypeBinding& types) {
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExtentNames(op_.declaration));
    OpCase c = op_.bench;
    if (c.extents.empty() && c.leading.empty()) {
      const auto each = static_cast<int64_t>(std::pow(static_cast<double>(kBenchElements), 1.0 / static_cast<double>(std::max<size_t>(names.size(), 1))));
      for (const std::string& name : names) {
        if (name == "...") c.leading = {each};
        else c.extents[name] = each;
      }
    }
    if (c.attrs.empty()) {
      OPWIRE_ASSIGN_OR_RETURN(const std::vector<OpCase> cases, CasesOf(op_, /*thorough=*/false));
      c.attrs = cases.back().attrs;
    }
    OPWIRE_ASSIGN_OR_RETURN(std::optional<Bound> own, Bind(types, c, variant_.name));
    OPWIRE_ASSIGN_OR_RETURN(std::optional<Bound> reference, Bind(types, c, "reference"));
    if (!own) return absl::OkStatus();
    Measurement m{.what = own->what};
    std::vector<std::vector<uint8_t>> inputs, outputs;
    for (size_t i = 0; i < own->shapes.size(); ++i) {
      inputs.push_back(Fill(*own, i, Values::kOrdinary));
      m.bytes += static_cast<int64_t>(inputs.back().size());
    }
    const auto run = [&](Bound& b) {
      std::vector<uint64_t> scratch(static_cast<size_t>(b.instance->scratch_bytes()) / 8 + 16);
      b.instance->BindScratch(reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64));
      for (size_t i = 0; i < inputs.size(); ++i) b.instance->BindParam(static_cast<int>(i), inputs[i].data());
      for (size_t r = 0; r < outputs.size(); ++r) b.instance->BindResult(static_cast<int>(r), outputs[r].data());
      return Median([&] { (void)b.step().run(&b.step().call); });
    };
    for (size_t r = 0; r < op_.row.results.size(); ++r) {
      const opw_tensor& t = own->step().call.results[r];
      outputs.emplace_back(static_cast<size_t>(t.elements * DTypeBytes(static_cast<DType>(t.dtype))));
      m.bytes += static_cast<int64_t>(outputs.back().size());
    }
    FaultReporter::Watched watched(faults_, fmt::format("{}, {}: while it was measured", Label(), m.what), {});
    m.seconds = run(*own);
    if (reference) m.reference_seconds = run(*reference);
    std::vector<uint8_t> from(static_cast<size_t>(m.bytes / 2), 1), to(from.size());
    struct Copy {
      uint8_t* to;
      const uint8_t* from;
    } copy{to.data(), from.data()};
    opw_runtime* const runtime = device_.runtime();
    m.copy_seconds = Median([&] {
      runtime->parallel_for(runtime, static_cast<int64_t>(from.size()), 1 << 18, [](void* context, int64_t begin, int64_t end) {
        const Copy& c = *static_cast<Copy*>(context);
        std::memcpy(c.to + begin, c.from + begin, static_cast<size_t>(end - begin));
      }, &copy);
    });
    report_.measurements.push_back(std::move(m));
    return absl::OkStatus();
  }

  const OpManifest& op_;
  const jit::OpVariantSpec& variant_;
  const opw_kernel& kernel_;
  Device& device_;
  const CheckOptions options_;
  std::mt19937_64 random_;
  FaultReporter faults_;
  std::shared_ptr<const ReferenceProgram> reference_, wide_;
  std::shared_ptr<const KernelSet> set_;
  CheckReport report_;
  double worst_ = 0;  // error, of a combination of types
  std::string last_refusal_;
};

}  // namespace

StatusOr<CheckReport> CheckKernel(const jit::OpManifest& op, const jit::OpVariantSpec& variant, const opw_kernel& kernel, Device& device,
                                  std::shared_ptr<const KernelSet> builtin, const CheckOptions& options) {
  return Checker(op, variant, kernel, device, options).Run(std::move(builtin));
}

}  // namespace opwire::ops
