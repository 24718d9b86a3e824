// Writes them op by op.
#include "tests/fused/row_examples.h"

#include "ir/ops/catalogue.h"

namespace opwire::fused {
namespace {

class ExampleWriter {
 public:
  ExampleWriter(std::string_view name, DType type) : out_{name, {}, {}}, type_(type) {}

  int Whole() { return Input(true); }
  int OneRow() { return Input(false); }
  int Argument() { return out_.rows.AddArgument(type_); }
  int Op(const char* op, std::vector<int> operands) { return out_.rows.Append(*Catalogue().Find(op), operands, {}, type_).value(); }
  int Fold(FoldKind kind, int value) { return out_.rows.Fold(kind, value); }
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
    const int x = b.Whole(), e = b.Op("exp", {b.Op("sub", {x, b.Fold(FoldKind::kMax, x)})});
    out.push_back(b.Done(b.Op("div", {e, b.Fold(FoldKind::kSum, e)}), RowProgram::kElements));
  }
  {
    ExampleWriter b("softmax_backward", type);
    const int dy = b.Whole(), y = b.Whole(), sum = b.Fold(FoldKind::kSum, b.Op("mul", {dy, y}));
    out.push_back(b.Done(b.Op("mul", {y, b.Op("sub", {dy, sum})}), RowProgram::kElements));
  }
  {
    ExampleWriter b("layer_norm", type);
    const int x = b.Whole(), w = b.OneRow(), shift = b.OneRow(), d = b.Op("sub", {x, b.Fold(FoldKind::kMean, x)});
    const int scale = b.Op("rsqrt", {b.Op("add", {b.Fold(FoldKind::kMean, b.Op("mul", {d, d})), b.Argument()})});
    out.push_back(b.Done(b.Op("add", {b.Op("mul", {b.Op("mul", {d, scale}), w}), shift}), RowProgram::kElements));
  }
  {
    ExampleWriter b("loss", type);
    const int x = b.Whole(), t = b.Whole(), d = b.Op("sub", {x, b.Fold(FoldKind::kMax, x)});
    const int log = b.Op("log", {b.Fold(FoldKind::kSum, b.Op("exp", {d}))});
    out.push_back(b.Done(b.Op("neg", {b.Fold(FoldKind::kSum, b.Op("mul", {b.Op("sub", {d, log}), t}))}), RowProgram::kShort));
  }
  {
    ExampleWriter b("functions", type);
    const int x = b.Whole(), y = b.Whole(), h = b.Op("tanh", {b.Op("add", {x, y})}), most = b.Fold(FoldKind::kMax, h);
    const int s = b.Op("sigmoid", {b.Op("sub", {h, most})}), mean = b.Fold(FoldKind::kMean, b.Op("mul", {s, h}));
    out.push_back(b.Done(b.Op("gelu", {b.Op("sub", {b.Op("mul", {s, y}), mean})}), RowProgram::kElements));
  }
  return out;
}

}  // namespace opwire::fused
