// Programs as a person writes them, after the passes, against PyTorch's compiler.
#include <fmt/format.h>

#include <algorithm>

#include "ir/passes/pipeline.h"
#include "ir/text/text.h"
#include "kernels/ops/gpu/fused.h"
#include "tests/bench/gpu/gpu.h"
#include "tests/fused/row_examples.h"

namespace opwire::bench {
namespace {

struct Written {
  std::string name, text, python;  // python: what baseline.py calls it
  std::vector<int64_t> shape;      // in the form that baseline.py expects
  double operations;
};

std::vector<Written> Programs(bool small) {
  const int64_t m = small ? 64 : 8192, n = small ? 32 : 4096;
  const std::string block = fmt::format(
      "program @block(%x: bf16[{0}, {1}], %w: bf16[{1}, {1}], %b: bf16[{1}], %residual: bf16[{0}, "
      "{1}], %scale: bf16[{1}], %shift: bf16[{1}]) -> (y: bf16[{0}, {1}]) {{"
      " %0 = permute(%w) {{dims = [1, 0]}} %1 = matmul(%x, %0) %2 = add(%1, %b) %3 = gelu(%2) %4 = "
      "add(%3, %residual) %5 = layer_norm(%4, %scale, %shift) return %5 }}",
      m, n);
  return {{fmt::format("written_gelu_add_layer_norm_{}_{}x{}", m, n, n),
           block,
           "gelu_add_layer_norm",
           {m, n, n},
           2.0 * static_cast<double>(m) * static_cast<double>(n * n)}};
}

// Returns one subject per node. Each has operands of its own, so that the cache holds no results of
// the node before.
StatusOr<std::vector<std::unique_ptr<Subject>>> SubjectsOf(Gpu& gpu, const std::string& text) {
  OPWIRE_ASSIGN_OR_RETURN(Module m, Parse(text, "written.opw"));
  OPWIRE_RETURN_IF_ERROR(RunPasses(m).status());
  const Function& f = m.functions[0];
  const ValueTypes values(f);
  std::vector<std::unique_ptr<Subject>> subjects;
  for (const Node& node : f.nodes) {
    std::vector<TensorSpec> operands;
    for (const ValueId v : node.operands) {
      if (v == kAbsent) {
        operands.push_back({DType::kInvalid, {}});
        continue;
      }
      const TensorType& t = *values.types[static_cast<size_t>(v)];
      operands.push_back({t.dtype, {}});
      for (const Dim d : t.shape) operands.back().shape.push_back(m.dims.ConstantValue(d));
    }
    OPWIRE_ASSIGN_OR_RETURN(std::unique_ptr<Subject> subject,
                            Subject::OfOp(gpu, node.op, std::move(operands), node.attrs));
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

Status Measure(Gpu& gpu, Baseline& baseline, const Written& w, std::vector<Row>& rows) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<Subject>> subjects,
                          SubjectsOf(gpu, w.text));
  const auto launch = [&](int i) -> Status {
    for (const auto& s : subjects) OPWIRE_RETURN_IF_ERROR(s->Launch(i));
    return absl::OkStatus();
  };
  std::string variants;
  int sets = 1;
  int64_t bytes = 0;
  for (const auto& s : subjects) {
    variants += (variants.empty() ? "" : ", ") + s->variant();
    sets = std::max(sets, s->sets());
    bytes += s->bytes();
  }
  const auto check = [&]() -> Status {
    for (const auto& s : subjects) OPWIRE_RETURN_IF_ERROR(s->Check());
    return absl::OkStatus();
  };
  std::vector<Side> sides = {{variants, SecondsOf(gpu, launch, sets), check}};
  const bool compares = baseline.there();
  if (compares)
    sides.push_back(baseline.For(
        {.row = w.name, .op = w.python, .dtype = DType::kBF16, .shape = w.shape, .bytes = bytes}));
  std::vector<Series> series = TakeTurns(gpu, sides);
  if (compares) series.back().name = baseline.NameOf(w.name);
  rows.push_back(RateRow(w.name, "TFLOP/s", 1e-12 * w.operations, series[0],
                         compares ? &series.back() : nullptr, compares ? 1 : 0));
  return absl::OkStatus();
}

// Row reductions and the ops on their results, in one kernel. The baseline is the op that they
// spell out, with the same operands.
StatusOr<std::unique_ptr<Subject>> FusedSubjectOf(Gpu& gpu, const fused::RowExample& example,
                                                  std::vector<TensorSpec> operands) {
  const std::shared_ptr<gpu::Code> code(std::shared_ptr<void>(),
                                        &gpu.code());  // which outlives the subjects
  std::shared_ptr<const opw_kernel> kernel = gpu::MakeFuser(code)->GetRows(example.rows);
  if (!kernel) return Internal("{} is no kernel", example.name);
  opw_attr epsilon{};
  epsilon.kind = OPW_ATTR_FLOAT;
  epsilon.value.f = 1e-5;
  const std::vector<TensorSpec> results = {operands[0]};
  return Subject::OfGroup(gpu, std::move(kernel), std::move(operands), results, {epsilon},
                          ReferenceOf(gpu, std::string(example.name), {}));
}

Status MeasureRows(Gpu& gpu, Baseline& baseline, const fused::RowExample& example,
                   std::vector<int64_t> shape, const std::string& name, std::vector<Row>& rows) {
  std::vector<TensorSpec> operands;
  for (const bool whole : example.whole)
    operands.push_back({DType::kBF16, whole ? shape : std::vector<int64_t>{shape.back()}});
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> written,
                          FusedSubjectOf(gpu, example, operands));
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> op,
                          Subject::OfOp(gpu, example.name, operands, {}));
  std::vector<Side> sides = {SideOf(gpu, *written), SideOf(gpu, *op)};
  sides[1].name = example.name;
  const int64_t bytes = op->bytes();
  const bool compares = baseline.there();
  if (compares)
    sides.push_back(baseline.For({.row = name,
                                  .op = std::string(example.name),
                                  .dtype = DType::kBF16,
                                  .shape = std::move(shape),
                                  .bytes = bytes}));
  std::vector<Series> series = TakeTurns(gpu, sides);
  const double terabytes = static_cast<double>(bytes) / 1e12;
  rows.push_back(RateRow(name, "TB/s", terabytes, series[0], &series[1], 0));
  if (!compares) return absl::OkStatus();
  series[2].name = baseline.NameOf(name);
  rows.push_back(RateRow(name + "_torch", "TB/s", terabytes, series[0], &series[2], kOfPyTorch));
  return absl::OkStatus();
}

}  // namespace

void WrittenRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows) {
  for (const Written& w : Programs(gpu.options().small)) {
    if (!gpu.Selected(w.name)) continue;
    gpu.Begin(w.name);
    if (const Status s = Measure(gpu, baseline, w, rows); !s.ok())
      rows.push_back(FailedRow(w.name, s));
  }
  const std::vector<std::vector<int64_t>> shapes =
      gpu.options().small
          ? std::vector<std::vector<int64_t>>{{32, 64}}
          : std::vector<std::vector<int64_t>>{{65536, 512}, {16384, 8192}, {4096, 32768}};
  for (const fused::RowExample& example : fused::RowExamples(DType::kBF16)) {
    if (example.name != "softmax" && example.name != "layer_norm") continue;
    for (const std::vector<int64_t>& shape : shapes) {
      const std::string name = fmt::format("written_{}_{}x{}", example.name, shape[0], shape[1]);
      if (!gpu.Selected(name)) continue;
      gpu.Begin(name);
      if (const Status s = MeasureRows(gpu, baseline, example, shape, name, rows); !s.ok())
        rows.push_back(FailedRow(name, s));
    }
  }
}

}  // namespace opwire::bench
