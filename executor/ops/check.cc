// Calls between guard pages, and comparison.
#include "executor/ops/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "executor/ops/zoned_buffer.h"
#include "ir/base/element.h"
#include "kernels/select/failure.h"

namespace opwire::executor {
namespace {

using jit::OpCase;
using jit::OpManifest;

constexpr int64_t kMaxCaseBytes = int64_t{64} << 20;

double ToleranceOf(const OpManifest& op, DType dtype) {
  if (const auto it = op.tolerance.find(dtype); it != op.tolerance.end()) return it->second;
  switch (dtype) {
    case DType::kF64:
      return 1e-11;
    case DType::kF32:
      return 1e-5;
    case DType::kF16:
      return 4e-3;
    case DType::kBF16:
      return 2e-2;
    case DType::kF8E4M3:
      return 0.15;
    case DType::kF8E5M2:
      return 0.3;
    default:
      return 0;
  }
}

// As it is shown: the sign of a NaN depends on the addition that made it and says nothing.
double Shown(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

class Checker {
 public:
  Checker(OpUnderTrial trial, const CheckOptions& options)
      : trial_(std::move(trial)),
        op_(trial_.op()),
        options_(options),
        random_(options.seed),
        faults_(options.report) {}

  StatusOr<CheckReport> Run() {
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<TypeBinding> bindings, TypeBindings(op_.row));
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<OpCase> cases, CasesOf(op_, options_.thorough));
    for (const TypeBinding& types : bindings) {
      worst_ = 0;
      DType shown = DType::kInvalid;
      for (const OpCase& c : cases) {
        OPWIRE_ASSIGN_OR_RETURN(std::optional<BoundOp> bound,
                                trial_.Bind(types, c, trial_.variant().name, faults_));
        if (!bound) continue;
        shown = static_cast<DType>(bound->step().call.results[0].dtype);
        OPWIRE_RETURN_IF_ERROR(CheckCase(*bound, Values::kOrdinary));
        if (!options_.thorough) continue;
        OPWIRE_RETURN_IF_ERROR(CheckCase(*bound, Values::kSpecial));
        if (trial_.HasIndices()) OPWIRE_RETURN_IF_ERROR(CheckCase(*bound, Values::kHostileIndices));
      }
      if (shown != DType::kInvalid)
        report_.worst.push_back(fmt::format("{}: {:.2g} of {:.2g} allowed", Describe(types), worst_,
                                            ToleranceOf(op_, shown)));
      if (options_.measure && shown != DType::kInvalid) {
        OPWIRE_ASSIGN_OR_RETURN(std::optional<Measurement> m,
                                Measure(trial_, types, random_, faults_));
        if (m) report_.measurements.push_back(*std::move(m));
      }
    }
    if (report_.cases == 0) {
      return FailedPrecondition("{}: its supports refused every case; the last for: {}",
                                trial_.Label(), trial_.last_refusal());
    }
    report_.refused = trial_.refused();
    return std::move(report_);
  }

 private:
  Status CheckCase(BoundOp& b, Values values) {
    const opw_call& call = b.step().call;
    int64_t total = 0;
    for (size_t i = 0; i < b.shapes.size(); ++i)
      total += call.operands[i].elements * DTypeBytes(b.dtypes[i]);
    if (total > kMaxCaseBytes)
      return FailedPrecondition("{}: {}: a case takes at most {} bytes of operands", trial_.Label(),
                                b.what, kMaxCaseBytes);
    std::vector<std::vector<uint8_t>> inputs;
    for (size_t i = 0; i < b.shapes.size(); ++i)
      inputs.push_back(trial_.RandomInput(b, i, values, random_));
    const bool hostile = values == Values::kHostileIndices;
    std::string what = b.what + (values == Values::kSpecial ? ", with NaN and infinities"
                                 : hostile                  ? ", with indices out of their domain"
                                                            : "");
    std::vector<std::vector<uint8_t>> first;
    bool out_of_range = false;
    for (const Guard guard : {Guard::kBehind, Guard::kBefore}) {
      OPWIRE_ASSIGN_OR_RETURN(std::vector<std::vector<uint8_t>> got,
                              trial_.on_host()
                                  ? Call(b, inputs, guard, what, out_of_range)
                                  : CallOnDevice(b, inputs, guard, what, out_of_range));
      if (first.empty())
        first = std::move(got);
      else if (!hostile && (trial_.kernel().flags & OPW_DETERMINISTIC) && got != first)
        return Fail(what, "it calls itself deterministic, and two runs gave different bits");
    }
    ++report_.cases;
    bool any = false;
    for (size_t i = 0; i < b.shapes.size(); ++i)
      any |= op_.row.operands[i].domain != Domain::kAny && !inputs[i].empty();
    const bool empty_extent = trial_.HasIndices() && EveryIndexExtentEmpty(b);
    if (hostile || empty_extent) {
      if (any && !out_of_range && call.results[0].elements > 0)
        return Fail(what, "it did not call out_of_range");
      return absl::OkStatus();
    }
    if (out_of_range) return Fail(what, "it called out_of_range for indices within their domain");
    return Compare(b, inputs, first, what);
  }

  bool EveryIndexExtentEmpty(const BoundOp& b) const {
    for (size_t i = 0; i < op_.row.operands.size(); ++i) {
      if (op_.row.operands[i].domain != Domain::kAny && trial_.IndexExtent(b, i) != 0) return false;
    }
    return true;
  }

  Status Fail(const std::string& what, const std::string& how) const {
    return FailedPrecondition("{}, {}: {}", trial_.Label(), what, how);
  }

  std::string NameOf(const char* kind, const std::string& name, const opw_tensor& t) const {
    return fmt::format("{} {} ({}{})", kind, name, DTypeName(static_cast<DType>(t.dtype)),
                       ShapeToString({t.shape, t.rank}));
  }

  // One run; the results' bytes.
  StatusOr<std::vector<std::vector<uint8_t>>> Call(BoundOp& b,
                                                   const std::vector<std::vector<uint8_t>>& inputs,
                                                   Guard guard, const std::string& what,
                                                   bool& out_of_range) {
    const Step& step = b.step();
    std::vector<GuardedBuffer> buffers;
    const auto add = [&](std::string name, int64_t bytes, int64_t alignment) -> Status {
      OPWIRE_ASSIGN_OR_RETURN(buffers.emplace_back(),
                              GuardedBuffer::Make(std::move(name), bytes, alignment, guard));
      return absl::OkStatus();
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      OPWIRE_RETURN_IF_ERROR(add(NameOf("operand", op_.row.operands[i].name, step.call.operands[i]),
                                 static_cast<int64_t>(inputs[i].size()), DTypeBytes(b.dtypes[i])));
      if (!inputs[i].empty())
        std::memcpy(buffers.back().data(), inputs[i].data(), inputs[i].size());
      buffers.back().Seal();
      b.instance->BindParam(static_cast<int>(i), buffers.back().data());
    }
    for (size_t r = 0; r < op_.row.results.size(); ++r) {
      const opw_tensor& t = step.call.results[r];
      const int64_t size = DTypeBytes(static_cast<DType>(t.dtype));
      OPWIRE_RETURN_IF_ERROR(
          add(NameOf("result", op_.row.results[r].name, t), t.elements * size, size));
      b.instance->BindResult(static_cast<int>(r), buffers.back().data());
    }
    // The kernel's own workspace, not what a plan would give it as a part of more.
    opw_call call = step.call;
    OPWIRE_RETURN_IF_ERROR(add("the workspace", call.workspace_bytes, 64));
    call.workspace = buffers.back().data();
    std::vector<const GuardedBuffer*> watched_buffers;
    for (const GuardedBuffer& g : buffers) watched_buffers.push_back(&g);
    (void)trial_.device().TakeFlags();
    int rc = 0;
    {
      FaultReporter::Watched watched(faults_, fmt::format("{}, {}", trial_.Label(), what),
                                     watched_buffers);
      rc = step.run(&call);
    }
    if (rc != OPW_OK) return Fail(what, fmt::format("it returned {}", rc));
    out_of_range |= trial_.device().TakeFlags().out_of_range_operand >= 0;
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

  // The same where the host does not reach the memory.
  StatusOr<std::vector<std::vector<uint8_t>>> CallOnDevice(
      BoundOp& b, const std::vector<std::vector<uint8_t>>& inputs, Guard guard,
      const std::string& what, bool& out_of_range) {
    Device& device = trial_.device();
    const Step& step = b.step();
    std::vector<ZonedBuffer> buffers;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const opw_tensor& t = step.call.operands[i];
      OPWIRE_ASSIGN_OR_RETURN(
          ZonedBuffer buffer,
          ZonedBuffer::Make(device, NameOf("operand", op_.row.operands[i].name, t),
                            static_cast<int64_t>(inputs[i].size()), DTypeBytes(b.dtypes[i]),
                            guard));
      OPWIRE_RETURN_IF_ERROR(buffer.Fill(inputs[i]));
      b.instance->BindParam(static_cast<int>(i), buffer.data());
      buffers.push_back(std::move(buffer));
    }
    for (size_t r = 0; r < op_.row.results.size(); ++r) {
      const opw_tensor& t = step.call.results[r];
      const int64_t size = DTypeBytes(static_cast<DType>(t.dtype));
      OPWIRE_ASSIGN_OR_RETURN(
          ZonedBuffer buffer,
          ZonedBuffer::Make(device, NameOf("result", op_.row.results[r].name, t), t.elements * size,
                            size, guard));
      b.instance->BindResult(static_cast<int>(r), buffer.data());
      buffers.push_back(std::move(buffer));
    }
    opw_call call = step.call;
    OPWIRE_ASSIGN_OR_RETURN(
        const ZonedBuffer workspace,
        ZonedBuffer::Make(device, "the workspace", call.workspace_bytes, 64, guard));
    call.workspace = workspace.data();
    (void)device.TakeFlags();
    device.NoteStep(0);
    (void)TakeFailure();
    const int rc = step.run(&call);
    if (rc != OPW_OK) return Fail(what, fmt::format("it failed: {}", MessageOf(TakeFailure())));
    if (Status s = device.Synchronize(); !s.ok()) return Fail(what, MessageOf(s));
    out_of_range |= device.TakeFlags().out_of_range_operand >= 0;
    std::vector<std::vector<uint8_t>> results;
    for (size_t i = 0; i < buffers.size(); ++i) {
      auto bytes = buffers[i].Read();
      if (!bytes.ok()) return Fail(what, MessageOf(bytes.status()));
      if (i >= inputs.size())
        results.push_back(*std::move(bytes));
      else if (*bytes != inputs[i])
        return Fail(what, fmt::format("it wrote {}", buffers[i].name()));
    }
    if (const auto beside = workspace.Read(); !beside.ok())
      return Fail(what, MessageOf(beside.status()));
    return results;
  }

  Status Compare(const BoundOp& b, const std::vector<std::vector<uint8_t>>& inputs,
                 const std::vector<std::vector<uint8_t>>& got, const std::string& what) {
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> expected,
                            trial_.Reference(b, inputs));
    for (size_t r = 0; r < expected.size(); ++r) {
      const auto dtype = static_cast<DType>(b.step().call.results[r].dtype);
      const double tolerance = ToleranceOf(op_, dtype);
      for (size_t e = 0; e < expected[r].size(); ++e) {
        const double want = expected[r][e],
                     have = ElementValue(
                         dtype, got[r].data() + e * static_cast<size_t>(DTypeBytes(dtype)));
        if (std::isnan(want) && std::isnan(have)) continue;
        const uint64_t rounded_bits = ElementBits(dtype, want);
        const double rounded = ElementValue(dtype, &rounded_bits);
        if (have == rounded || (!IsFloat(dtype) && have == want)) continue;
        const double error = std::abs(have - want) / std::max(1.0, std::abs(want));
        if (error <= tolerance) {
          worst_ = std::max(worst_, error);
          continue;
        }
        return Fail(
            what, fmt::format("result {}[{}]: expected {:.9g}, got {:.9g}; the tolerance is {:.2g}",
                              op_.row.results[r].name, e, Shown(want), Shown(have), tolerance));
      }
    }
    return absl::OkStatus();
  }

  OpUnderTrial trial_;
  const OpManifest& op_;
  const CheckOptions options_;
  std::mt19937_64 random_;
  FaultReporter faults_;
  CheckReport report_;
  double worst_ = 0;  // error, of a combination of types
};

}  // namespace

StatusOr<CheckReport> CheckKernel(const jit::OpManifest& op, const jit::OpVariantSpec& variant,
                                  const opw_kernel& kernel, const TrialPlace& place,
                                  const CheckOptions& options) {
  OPWIRE_ASSIGN_OR_RETURN(OpUnderTrial trial, OpUnderTrial::Make(op, variant, kernel, place));
  return Checker(std::move(trial), options).Run();
}

}  // namespace opwire::executor
