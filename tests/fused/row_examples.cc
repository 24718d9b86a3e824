// Writes them op by op.
#include "tests/fused/row_examples.h"

#include <optional>

#include "ir/ops/catalogue.h"

namespace opwire::fused {
namespace {

class ExampleWriter {
 public:
  ExampleWriter(std::string_view name, DType type) : out_{name, {}, {}}, type_(type) {}

  int Whole() { return Input(true); }
  int OneRow() { return Input(false); }
  int Argument() { return out_.rows.AddArgument(type_); }
  int Op(const char* op, std::vector<int> operands) {
    return out_.rows.Append(*Catalogue().Find(op), operands, {}, type_).value();
  }
  int Reduce(ReduceKind kind, int value) { return out_.rows.Reduce(kind, value); }
  RowExample Done(int value, RowProgram::Place place) {
    out_.rows.AddOutput(value, place);
    return std::move(out_);
  }

 private:
  int Input(bool whole) {
    out_.whole.push_back(whole);
    return out_.rows.AddInput(type_, RowProgram::kElements);
  }

  RowExample out_;
  const DType type_;
};

}  // namespace

std::vector<RowExample> RowExamples(DType type) {
  std::vector<RowExample> out;
  {
    ExampleWriter b("softmax", type);
    const int x = b.Whole(), e = b.Op("exp", {b.Op("sub", {x, b.Reduce(ReduceKind::kMax, x)})});
    out.push_back(b.Done(b.Op("div", {e, b.Reduce(ReduceKind::kSum, e)}), RowProgram::kElements));
  }
  {
    ExampleWriter b("softmax_backward", type);
    const int dy = b.Whole(), y = b.Whole(), sum = b.Reduce(ReduceKind::kSum, b.Op("mul", {dy, y}));
    out.push_back(b.Done(b.Op("mul", {y, b.Op("sub", {dy, sum})}), RowProgram::kElements));
  }
  {
    ExampleWriter b("layer_norm", type);
    const int x = b.Whole(), w = b.OneRow(), shift = b.OneRow(),
              d = b.Op("sub", {x, b.Reduce(ReduceKind::kMean, x)});
    const int scale = b.Op(
        "rsqrt", {b.Op("add", {b.Reduce(ReduceKind::kMean, b.Op("mul", {d, d})), b.Argument()})});
    out.push_back(b.Done(b.Op("add", {b.Op("mul", {b.Op("mul", {d, scale}), w}), shift}),
                         RowProgram::kElements));
  }
  {
    ExampleWriter b("loss", type);
    const int x = b.Whole(), t = b.Whole(), d = b.Op("sub", {x, b.Reduce(ReduceKind::kMax, x)});
    const int log = b.Op("log", {b.Reduce(ReduceKind::kSum, b.Op("exp", {d}))});
    out.push_back(
        b.Done(b.Op("neg", {b.Reduce(ReduceKind::kSum, b.Op("mul", {b.Op("sub", {d, log}), t}))}),
               RowProgram::kShort));
  }
  {
    ExampleWriter b("functions", type);
    const int x = b.Whole(), y = b.Whole(), h = b.Op("tanh", {b.Op("add", {x, y})}),
              most = b.Reduce(ReduceKind::kMax, h);
    const int s = b.Op("sigmoid", {b.Op("sub", {h, most})}),
              mean = b.Reduce(ReduceKind::kMean, b.Op("mul", {s, h}));
    out.push_back(
        b.Done(b.Op("gelu", {b.Op("sub", {b.Op("mul", {s, y}), mean})}), RowProgram::kElements));
  }
  return out;
}

std::vector<ColumnExample> ColumnExamples(DType type) {
  std::vector<ColumnExample> out;
  const auto begin = [&](std::string_view name) -> ColumnExample& {
    return out.emplace_back(ColumnExample{name, {}, {}});
  };
  const auto input = [&](ColumnExample& e, bool whole) {
    e.whole.push_back(whole);
    return e.columns.scalar.AddInput(type);
  };
  const auto op = [&](ColumnExample& e, const char* row, std::vector<int> operands, DType result) {
    return e.columns.scalar.Append(*Catalogue().Find(row), operands, {}, result).value();
  };
  const auto result = [&](ColumnExample& e, int value, std::optional<ReduceKind> reduction) {
    e.columns.scalar.AddOutput(value);
    e.columns.results.push_back(reduction);
  };
  {
    ColumnExample& e = begin("bias_gradient");
    const int y = input(e, true), g = input(e, true), zero = op(e, "sub", {y, y}, type);
    result(e, op(e, "where", {op(e, "gt", {y, zero}, DType::kBool), g, zero}, type),
           ReduceKind::kSum);
  }
  {
    ColumnExample& e = begin("norm_gradient");
    const int g = input(e, true), x = input(e, true);
    result(e, op(e, "mul", {g, x}, type), ReduceKind::kSum);
    result(e, g, ReduceKind::kSum);
  }
  {
    ColumnExample& e = begin("activation_gradient");
    const int x = input(e, true), g = input(e, true),
              d = op(e, "mul", {op(e, "sigmoid", {x}, type), g}, type);
    result(e, d, std::nullopt);
    result(e, d, ReduceKind::kSum);
  }
  {
    ColumnExample& e = begin("extremes");
    const int x = input(e, true), w = input(e, false),
              d = op(e, "tanh", {op(e, "sub", {x, w}, type)}, type);
    result(e, d, ReduceKind::kMax);
    result(e, d, ReduceKind::kMin);
    result(e, d, ReduceKind::kMean);
  }
  return out;
}

}  // namespace opwire::fused
