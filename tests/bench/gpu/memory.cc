// Ops that move memory: against a copy or a reading of as many bytes, and against PyTorch.
#include <fmt/format.h>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

constexpr double kMeanOfCeiling = 0.95;

struct Extents {
  int64_t rows, columns;
};

struct MemoryOp {
  const char* name;
  const char* op;         // of the catalogue; swiglu: a program
  int matrices, vectors;  // operands: of the whole shape, of a row's
  std::vector<NamedAttr> attrs;
  bool reads;  // the result is small: it is compared with reading
  DType dtype = DType::kBF16;
};

const std::vector<MemoryOp>& Ops() {
  static const std::vector<MemoryOp> ops = {
      {"add", "add", 2, 0, {}, false},
      {"gelu", "gelu", 1, 0, {}, false},
      {"swiglu", "", 2, 0, {}, false},
      {"rms_norm", "rms_norm", 1, 1, {}, false},
      {"softmax", "softmax", 1, 0, {}, false},
      {"layer_norm", "layer_norm", 1, 2, {}, false},
      {"adamw", "adamw", 4, 0, {}, false, DType::kF32},
      {"transpose", "permute", 1, 0, {{"dims", Ints{1, 0}}}, false},
      {"sum_rows", "sum", 1, 0, {{"dims", Ints{1}}}, true},
      {"sum_columns", "sum", 1, 0, {{"dims", Ints{0}}}, true},
  };
  return ops;
}

// silu(x) * y.
StatusOr<fused::ScalarProgram> Swiglu() {
  fused::ScalarProgram p;
  const int x = p.AddInput(DType::kBF16), y = p.AddInput(DType::kBF16);
  OPWIRE_ASSIGN_OR_RETURN(const int gate,
                          p.Append(*Catalogue().Find("silu"), {{x}}, {}, DType::kBF16));
  OPWIRE_ASSIGN_OR_RETURN(const int z,
                          p.Append(*Catalogue().Find("mul"), {{gate, y}}, {}, DType::kBF16));
  p.AddOutput(z);
  return p;
}

StatusOr<std::unique_ptr<Subject>> MakeSubject(Gpu& gpu, const MemoryOp& op, const Extents& e) {
  std::vector<TensorSpec> operands(static_cast<size_t>(op.matrices),
                                   {op.dtype, {e.rows, e.columns}});
  operands.resize(static_cast<size_t>(op.matrices + op.vectors), {op.dtype, {e.columns}});
  if (std::string_view(op.op) ==
      "adamw") {  // lists of one: parameters, gradients, their means and their squares'; then rate,
                  // step, scale and whether to skip
    operands[3].fill = Fill::kSquares;
    for (const DType type : {DType::kF32, DType::kI64, DType::kF32})
      operands.push_back({type, {}, Fill::kOnes});
    operands.push_back({DType::kBool, {}, Fill::kZeros});
    return Subject::OfOp(gpu, op.op, std::move(operands), op.attrs, std::vector<uint32_t>(8, 1));
  }
  if (*op.op) return Subject::OfOp(gpu, op.op, std::move(operands), op.attrs);
  OPWIRE_ASSIGN_OR_RETURN(const fused::ScalarProgram program, Swiglu());
  const auto reference = [&gpu](const Operands& in) -> StatusOr<conformance::Expected> {
    OPWIRE_ASSIGN_OR_RETURN(const conformance::Expected gate,
                            ReferenceOf(gpu, "silu", {})({in[0]}));
    return ReferenceOf(gpu, "mul", {})({gate.results[0].tensor, in[1]});
  };
  return Subject::OfProgram(gpu, op.name, program, std::move(operands), reference);
}

struct Ratios {
  std::vector<double> ceiling, pytorch;
  void Take(const Row& row, std::vector<double>& to) const {
    if (row.baseline > 0) to.push_back(RatioOf(row));
  }
};

Status MeasureOne(Gpu& gpu, Baseline& baseline, const MemoryOp& op, const Extents& e,
                  const std::string& name, std::vector<Row>& rows, Ratios& ratios) {
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject, MakeSubject(gpu, op, e));
  const size_t first = rows.size();
  OPWIRE_RETURN_IF_ERROR(MeasureMoved(gpu, baseline, *subject,
                                      {.row = name,
                                       .op = op.name,
                                       .dtype = op.dtype,
                                       .shape = {e.rows, e.columns},
                                       .bytes = subject->bytes()},
                                      op.reads, op.reads ? kSumOfCeiling : kEachOfCeiling, rows));
  ratios.Take(rows[first], ratios.ceiling);
  if (rows.size() > first + 1) ratios.Take(rows.back(), ratios.pytorch);
  return absl::OkStatus();
}

}  // namespace

Status MeasureMoved(Gpu& gpu, Baseline& baseline, Subject& subject,
                    const Baseline::Request& request, bool reads, double target,
                    std::vector<Row>& rows) {
  std::vector<Side> sides = {SideOf(gpu, subject)};
  CopyCeiling copy;
  if (reads) {
    OPWIRE_ASSIGN_OR_RETURN(Measurement many, MakeReadCeiling(gpu, request.bytes, 8));
    OPWIRE_ASSIGN_OR_RETURN(Measurement once, MakeReadCeiling(gpu, request.bytes, 0));
    sides.push_back({"reading, 8 blocks a multiprocessor", std::move(many)});
    sides.push_back({"reading, a block for 16 KiB", std::move(once)});
  } else {
    OPWIRE_ASSIGN_OR_RETURN(copy, MakeCopyCeiling(gpu, request.bytes));
    sides.push_back(copy.kernel);
    sides.push_back({"copy by the driver", copy.driver});
  }
  const bool compares = baseline.there() && !request.op.empty();
  if (compares) sides.push_back(baseline.For(request));
  std::vector<Series> series = TakeTurns(gpu, sides);
  const double terabytes = static_cast<double>(request.bytes) / 1e12;
  const Series* const ceiling = Fastest({&series[1], &series[2]});
  rows.push_back(
      RateRow(request.row, "TB/s", terabytes, series[0], ceiling ? ceiling : &series[1], target));
  if (!compares) return absl::OkStatus();
  series[3].name = baseline.NameOf(request.row);
  rows.push_back(
      RateRow(request.row + "_torch", "TB/s", terabytes, series[0], &series[3], kOfPyTorch));
  return absl::OkStatus();
}

void MemoryRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows) {
  const std::vector<Extents> all =
      gpu.options().small
          ? std::vector<Extents>{{32, 64}, {17, 33}}
          : std::vector<Extents>{
                {65536, 512}, {16384, 8192}, {4096, 32768}, {1024, 131072}, {4097, 5003}};
  Ratios moves, sums;
  for (const MemoryOp& op : Ops()) {
    Ratios of_op;
    for (const Extents& e : all) {
      const std::string name = fmt::format("{}_{}x{}", op.name, e.rows, e.columns);
      if (!gpu.Selected(name)) continue;
      gpu.Begin(name);
      if (const Status s = MeasureOne(gpu, baseline, op, e, name, rows, of_op); !s.ok())
        rows.push_back(FailedRow(name, s));
    }
    AddMean(rows, fmt::format("{}_mean", op.name), of_op.ceiling, 0);
    AddMean(rows, fmt::format("{}_torch_mean", op.name), of_op.pytorch, 0);
    Ratios& total = op.reads ? sums : moves;
    total.ceiling.insert(total.ceiling.end(), of_op.ceiling.begin(), of_op.ceiling.end());
    total.pytorch.insert(total.pytorch.end(), of_op.pytorch.begin(), of_op.pytorch.end());
  }
  AddMean(rows, "memory_mean", moves.ceiling, kMeanOfCeiling);
  AddMean(rows, "memory_torch_mean", moves.pytorch, 0);
  AddMean(rows, "sums_mean", sums.ceiling, 0);
  AddMean(rows, "sums_torch_mean", sums.pytorch, 0);
}

}  // namespace opwire::bench
