// Strips of rows: oneDNN's product into the workspace, then what finishes it.
#include "kernels/fused/product_kernel.h"

#include <algorithm>
#include <array>

#include "kernels/fused/driver.inc.h"
#include "kernels/ops/call.h"
#include "kernels/ops/matmul/few.h"
#include "kernels/ops/matmul/onednn_product.h"
#include "kernels/ops/matmul/pieces.h"
#include "kernels/ops/whole.h"

namespace opwire::fused {
namespace {

constexpr int64_t kCached = int64_t{256} << 10;  // bytes of sums: so many are still in the caches when another kernel reads them
constexpr int64_t kStrip = int64_t{2} << 20;   // of a strip, where that is high enough for oneDNN

}  // namespace

struct ProductKernel::State {
  // Strips of one height.
  struct Strips {
    int64_t rows = 0;  // 0: there are none
    std::unique_ptr<ops::OneDnnProduct> product;
    void* finish = nullptr;  // a Layout
  };
  std::array<Strips, 2> strips;  // all but the last, and the last one where it is lower
  int64_t sum_bytes = 0;         // in the workspace, in front of oneDNN's own

  State() = default;
  State(const State&) = delete;
  ~State() {
    for (const Strips& s : strips) ReleaseLayout(s.finish);
  }
};

namespace {

// What finishes a strip, as the call of an elementwise kernel. Shapes are those of a strip, as many rows from `row` on.
struct StripCall {
  std::array<opw_tensor, kMaxInputs> operands;
  std::array<opw_tensor, kMaxOutputs> results;
  const std::array<int64_t, 2> shape, strides;
  opw_call call;

  // `read`: the operands behind the weights.
  StripCall(const opw_call* c, float* sums, int64_t row, int64_t rows, int64_t columns, const std::vector<bool>& by_row, int outputs) : shape{rows, columns}, strides{columns, 1}, call(*c) {
    operands[0] = Tensor(sums, OPW_F32);
    for (size_t i = 0; i < by_row.size(); ++i) operands[i + 1] = by_row[i] ? Part(c->operands[i + 2], row) : c->operands[i + 2];
    for (int o = 0; o < outputs; ++o) results[static_cast<size_t>(o)] = Part(c->results[o], row);
    call.operands = operands.data();
    call.results = results.data();
  }
  StripCall(const StripCall&) = delete;

 private:
  opw_tensor Tensor(void* data, uint8_t dtype) const { return {.data = data, .shape = shape.data(), .strides = strides.data(), .elements = shape[0] * shape[1], .dtype = dtype, .encoding = 0, .rank = 2, .contiguous = 1, .packed = 0}; }
  opw_tensor Part(const opw_tensor& whole, int64_t row) const {
    char* const data = static_cast<char*>(whole.data);
    return Tensor(data == nullptr ? nullptr : data + row * shape[1] * kBytesOf[whole.dtype], whole.dtype);
  }
};

}  // namespace

StatusOr<std::unique_ptr<ProductKernel>> ProductKernel::Make(const ProductProgram& program, std::function<void()> worth_it) {
  if (program.rows <= ops::kMostFewRows || program.sections.size() != 1 || program.sections[0].products != 1 || program.norm || program.sections[0].turn || program.sections[0].places > 0) {
    return Unimplemented("no product of many rows");
  }
  const ProductProgram::Section& section = program.sections[0];
  OPWIRE_RETURN_IF_ERROR(section.finish.Check());
  if (!ops::OneDnnIsNative(static_cast<uint8_t>(program.type))) return Unimplemented("rows of {}, which this processor does not multiply", DTypeName(program.type));
  if (program.rows * section.columns * 4 <= kCached) return Unimplemented("{} x {} sums, which stay in the caches", program.rows, section.columns);
  if (section.finish.inputs().size() > kMaxInputs || section.finish.outputs().size() > kMaxOutputs) return Unimplemented("more tensors than one kernel has");
  return std::unique_ptr<ProductKernel>(new ProductKernel(program, std::move(worth_it)));
}

ProductKernel::ProductKernel(const ProductProgram& program, std::function<void()> worth_it)
    : type_(program.type), rows_(program.rows), terms_(program.terms), columns_(program.sections[0].columns), by_row_(program.sections[0].by_row),
      inputs_(static_cast<int>(program.sections[0].finish.inputs().size())), outputs_(static_cast<int>(program.sections[0].finish.outputs().size())), functions_({program.sections[0].finish}, std::move(worth_it)) {
  const ScalarProgram& finish = functions_.programs()[0];
  types_ = {static_cast<uint8_t>(type_), static_cast<uint8_t>(type_)};
  for (size_t i = 1; i < finish.inputs().size(); ++i) types_.push_back(static_cast<uint8_t>(finish.inputs()[i]));
  for (int o = 0; o < outputs_; ++o) types_.push_back(static_cast<uint8_t>(finish.OutputType(o)));
}

const char* ProductKernel::Supports(const opw_call* c) {
  const ProductKernel& k = Of(c);
  const int operands = k.inputs_ + 1;
  if (const char* const why = SupportsTypes(c, operands, k.outputs_, k.types_.data())) return why;
  for (int i = 0; i < operands; ++i) {
    if (c->operands[i].contiguous == 0) return "an operand is not dense";
  }
  return nullptr;
}

int ProductKernel::Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const ProductKernel& k = Of(c);
  const int threads = ops::ThreadsOf(c);
  const int64_t height = std::min(k.rows_, std::max(ops::MatmulPieces::kMinRows, kStrip / (4 * k.columns_)));
  auto s = std::make_unique<State>();
  s->sum_bytes = ops::AlignedBytes(height * k.columns_ * 4);
  int64_t scratch = 0;
  const int64_t heights[] = {height, k.rows_ % height};
  for (size_t i = 0; i < 2; ++i) {
    if (heights[i] == 0) continue;
    State::Strips& strips = s->strips[i];
    strips.rows = heights[i];
    const ops::MatmulShapes shapes(strips.rows, k.columns_, k.terms_, k.terms_, 1, 1, k.terms_, k.columns_);
    strips.product = ops::OneDnnProduct::Make({.shapes = shapes, .type = static_cast<uint8_t>(k.type_), .result = OPW_F32}, threads);
    if (strips.product == nullptr) return OPW_FAILED;
    scratch = std::max(scratch, strips.product->scratch_bytes());
    const StripCall strip(c, nullptr, 0, strips.rows, k.columns_, k.by_row_, k.outputs_);
    if (PrepareLayout(&strip.call, k.inputs_, k.outputs_, &strips.finish) != OPW_OK) return OPW_FAILED;
  }
  *workspace_bytes = s->sum_bytes + scratch;
  *state = s.release();
  return OPW_OK;
}

void ProductKernel::Release(void* state) { delete static_cast<State*>(state); }

int ProductKernel::Run(const opw_call* c) {
  const ProductKernel& k = Of(c);
  const State& s = *static_cast<const State*>(c->state);
  const Functions::One now = k.functions_.Now()[0];
  const auto row_bytes = k.terms_ * DTypeBytes(k.type_);
  float* const sums = static_cast<float*>(c->workspace);
  for (int64_t row = 0; row < k.rows_; row += s.strips[0].rows) {
    if (row > 0 && ops::Stopped(c)) break;
    const State::Strips& strips = s.strips[k.rows_ - row < s.strips[0].rows];
    if (!strips.product->Run(c, static_cast<const char*>(c->operands[0].data) + row * row_bytes, c->operands[1].data, nullptr, sums, reinterpret_cast<char*>(sums) + s.sum_bytes)) return OPW_FAILED;
    StripCall strip(c, sums, row, strips.rows, k.columns_, k.by_row_, k.outputs_);
    strip.call.state = strips.finish;
    strip.call.context = now.context;
    if (const int code = RunLayout(&strip.call, now.run); code != OPW_OK) return code;
  }
  k.functions_.Worked(k.rows_ * k.columns_);
  return OPW_OK;
}

opw_kernel ProductKernel::kernel() const { return {OPW_ABI_VERSION, 0, Supports, Prepare, Release, Run, this}; }

}  // namespace opwire::fused
