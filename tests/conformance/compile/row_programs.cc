// Row programs and calls of them.
#include "tests/conformance/compile/row_programs.h"

#include <fmt/format.h>

#include <deque>
#include <vector>

#include "ir/ops/catalogue.h"
#include "kernels/fused/row_program.h"
#include "kernels/ops/gpu/fused.h"
#include "kernels/select/failure.h"

namespace opwire::conformance {
namespace {

using fused::FoldKind;
using fused::RowProgram;
using Extents = std::vector<int64_t>;
constexpr auto kElements = RowProgram::kElements;

// Of each form. The last four are no whole vectors.
const Extents kShapes[] = {{4096, 64}, {4096, 512}, {4096, 2048}, {4096, 8192}, {4096, 32768}, {64, 131072}, {4096, 33}, {4097, 1001}, {4097, 5003}, {3, 131073}};

struct Program {
  std::string_view name;
  RowProgram rows;
  std::vector<bool> whole;  // by operand: of the rows' shape, not of one row's
};

class Builder {
 public:
  Builder(std::string_view name, DType type) : out_{name, {}, {}}, type_(type) {}

  int Whole() { return Input(true); }
  int OneRow() { return Input(false); }
  int Argument() { return out_.rows.AddArgument(type_); }
  int Op(const char* op, std::vector<int> operands) { return out_.rows.Append(*Catalogue().Find(op), operands, {}, type_).value(); }
  int Fold(FoldKind kind, int value) { return out_.rows.Fold(kind, value); }
  Program Done(int value, RowProgram::Place place) {
    out_.rows.AddOutput(value, place);
    return std::move(out_);
  }

 private:
  int Input(bool whole) {
    out_.whole.push_back(whole);
    return out_.rows.AddInput(type_, kElements);
  }

  Program out_;
  const DType type_;
};

std::vector<Program> ProgramsOf(DType type) {
  std::vector<Program> out;
  {
    Builder b("softmax", type);
    const int x = b.Whole(), e = b.Op("exp", {b.Op("sub", {x, b.Fold(FoldKind::kMax, x)})});
    out.push_back(b.Done(b.Op("div", {e, b.Fold(FoldKind::kSum, e)}), kElements));
  }
  {
    Builder b("softmax_backward", type);
    const int dy = b.Whole(), y = b.Whole(), sum = b.Fold(FoldKind::kSum, b.Op("mul", {dy, y}));
    out.push_back(b.Done(b.Op("mul", {y, b.Op("sub", {dy, sum})}), kElements));
  }
  {
    Builder b("layer_norm", type);
    const int x = b.Whole(), w = b.OneRow(), shift = b.OneRow(), d = b.Op("sub", {x, b.Fold(FoldKind::kMean, x)});
    const int scale = b.Op("rsqrt", {b.Op("add", {b.Fold(FoldKind::kMean, b.Op("mul", {d, d})), b.Argument()})});
    out.push_back(b.Done(b.Op("add", {b.Op("mul", {b.Op("mul", {d, scale}), w}), shift}), kElements));
  }
  {
    Builder b("loss", type);
    const int x = b.Whole(), t = b.Whole(), d = b.Op("sub", {x, b.Fold(FoldKind::kMax, x)});
    const int log = b.Op("log", {b.Fold(FoldKind::kSum, b.Op("exp", {d}))});
    out.push_back(b.Done(b.Op("neg", {b.Fold(FoldKind::kSum, b.Op("mul", {b.Op("sub", {d, log}), t}))}), RowProgram::kShort));
  }
  {
    Builder b("functions", type);
    const int x = b.Whole(), y = b.Whole(), h = b.Op("tanh", {b.Op("add", {x, y})}), most = b.Fold(FoldKind::kMax, h);
    const int s = b.Op("sigmoid", {b.Op("sub", {h, most})}), mean = b.Fold(FoldKind::kMean, b.Op("mul", {s, h}));
    out.push_back(b.Done(b.Op("gelu", {b.Op("sub", {b.Op("mul", {s, y}), mean})}), kElements));
  }
  return out;
}

opw_tensor Dense(DType type, const Extents& shape, std::deque<Extents>& kept) {
  Extents strides(shape.size());
  int64_t elements = 1;
  for (size_t a = shape.size(); a-- > 0; elements *= shape[a]) strides[a] = elements;
  const Extents& own = kept.emplace_back(shape);
  const Extents& steps = kept.emplace_back(std::move(strides));
  return {nullptr, own.data(), steps.data(), elements, static_cast<uint8_t>(type), 0, static_cast<uint8_t>(shape.size()), true};
}

Status PlanOne(const opw_kernel& kernel, const Program& program, DType type, const Extents& shape) {
  std::deque<Extents> kept;
  std::vector<opw_tensor> operands;
  std::vector<uint32_t> starts = {0};
  for (const bool whole : program.whole) {
    operands.push_back(Dense(type, whole ? shape : Extents{shape.back()}, kept));
    starts.push_back(static_cast<uint32_t>(operands.size()));
  }
  const opw_tensor result = Dense(type, program.rows.result_places()[0] == kElements ? shape : Extents{shape[0]}, kept);
  opw_attr argument{};
  argument.kind = OPW_ATTR_FLOAT;
  argument.value.f = 1e-5;
  opw_call call{};
  call.operands = operands.data();
  call.starts = starts.data();
  call.results = &result;
  call.attrs = &argument;
  call.context = kernel.context;
  if (kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) return TakeFailure();
  kernel.release(call.state);
  return absl::OkStatus();
}

}  // namespace

Status PlanRowPrograms(const std::shared_ptr<gpu::Code>& code, DTypeSet types, const std::function<void(std::string)>& name) {
  const std::shared_ptr<fused::Fuser> fuser = gpu::MakeFuser(code);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    if (!types.Has(type)) continue;
    for (const Program& program : ProgramsOf(type)) {
      const std::shared_ptr<const opw_kernel> kernel = fuser->GetRows(program.rows);
      if (!kernel) return Internal("{} of {} is no kernel", program.name, DTypeName(type));
      for (const Extents& shape : kShapes) {
        name(fmt::format("{} {}[{}, {}]", program.name, DTypeName(type), shape[0], shape[1]));
        OPWIRE_RETURN_IF_ERROR(PlanOne(*kernel, program, type, shape));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace opwire::conformance
