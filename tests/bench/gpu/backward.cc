// Memory traffic of a training step of a small transformer besides its matmuls: gradients of its
// norms, of its table of tokens, and of its biases.
#include <fmt/format.h>

#include <random>

#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

struct Step {
  int64_t tokens, width, vocabulary;
};

Status MeasureNorm(Gpu& gpu, Baseline& baseline, const Step& s, bool layer, const std::string& name,
                   std::vector<Row>& rows) {
  const std::string op = layer ? "layer_norm_backward" : "rms_norm_backward";
  const TensorSpec x{DType::kBF16, {s.tokens, s.width}};
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Subject> subject,
                          Subject::OfOp(gpu, op, {x, x, {DType::kBF16, {s.width}}}, {}));
  return MeasureMoved(gpu, baseline, *subject,
                      {.row = name,
                       .op = layer ? op : "",
                       .dtype = DType::kBF16,
                       .shape = {s.tokens, s.width},
                       .bytes = subject->bytes(),
                       .compiled = false},
                      false, kEachOfCeiling, rows);
}

// Returns random tokens: characters of a text, so that a few tokens are most of them, or any
// tokens.
std::vector<int32_t> Tokens(const Step& s, bool text) {
  constexpr std::string_view kText =
      "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
      "must be in want of a wife. However little known the feelings or views of such a "
      "man may be on his first entering a neighbourhood, this truth is so well fixed in the minds "
      "of the surrounding families; \"What is his name?\" - (1813), Chapter 1.\n";
  std::mt19937 random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(s.tokens));
  for (int32_t& t : tokens)
    t = static_cast<int32_t>((text ? static_cast<int64_t>(kText[random() % kText.size()])
                                   : static_cast<int64_t>(random())) %
                             s.vocabulary);
  return tokens;
}

Status MeasureTable(Gpu& gpu, Baseline& baseline, const Step& s, bool text, const std::string& name,
                    std::vector<Row>& rows) {
  const std::vector<int32_t> tokens = Tokens(s, text);
  OPWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subject> subject,
      Subject::OfOp(gpu, "embedding_backward",
                    {{DType::kBF16, {s.tokens, s.width}}, {DType::kI32, {s.tokens}, Fill::kZeros}},
                    {{"rows", s.vocabulary}}));
  OPWIRE_RETURN_IF_ERROR(subject->SetOperand(1, tokens.data()));
  return MeasureMoved(gpu, baseline, *subject,
                      {.row = name,
                       .op = text ? "embedding_backward_text" : "embedding_backward_uniform",
                       .dtype = DType::kBF16,
                       .shape = {s.tokens, s.width, s.vocabulary},
                       .bytes = subject->bytes(),
                       .compiled = false},
                      false, 0, rows);
}

Status MeasureBias(Gpu& gpu, Baseline& baseline, int64_t tokens, int64_t width,
                   const std::string& name, std::vector<Row>& rows) {
  OPWIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subject> subject,
      Subject::OfOp(gpu, "sum", {{DType::kBF16, {tokens, width}}}, {{"dims", Ints{0}}}));
  return MeasureMoved(gpu, baseline, *subject,
                      {.row = name,
                       .op = "sum_columns",
                       .dtype = DType::kBF16,
                       .shape = {tokens, width},
                       .bytes = subject->bytes()},
                      true, kSumOfCeiling, rows);
}

}  // namespace

void BackwardRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows) {
  const Step s = gpu.options().small ? Step{100, 64, 300}
                                     : Step{16384, 768, 50304};  // GPT-2's, of 16 sequences
  const auto measure = [&](const std::string& name, const auto& f) {
    if (!gpu.Selected(name)) return;
    gpu.Begin(name);
    if (const Status failed = f(name); !failed.ok()) rows.push_back(FailedRow(name, failed));
  };
  for (const bool layer : {true, false}) {
    measure(
        fmt::format("{}_norm_backward_{}x{}", layer ? "layer" : "rms", s.tokens, s.width),
        [&](const std::string& name) { return MeasureNorm(gpu, baseline, s, layer, name, rows); });
  }
  for (const bool text : {true, false}) {
    measure(
        fmt::format("embedding_backward_{}x{}_{}", s.vocabulary, s.width,
                    text ? "text" : "uniform"),
        [&](const std::string& name) { return MeasureTable(gpu, baseline, s, text, name, rows); });
  }
  for (const int64_t width : {s.width, 3 * s.width, 4 * s.width}) {
    measure(fmt::format("sum_columns_{}x{}", s.tokens, width), [&](const std::string& name) {
      return MeasureBias(gpu, baseline, s.tokens, width, name, rows);
    });
  }
}

}  // namespace opwire::bench
