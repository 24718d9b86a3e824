// Tiles: oneDNN's product into the workspace, then what finishes it.
#include "kernels/fused/product_kernel.h"

#include <algorithm>
#include <array>

#include "kernels/fused/driver.inc.h"
#include "kernels/ops/call.h"
#include "kernels/ops/map_all.h"
#include "kernels/ops/matmul/few.h"
#include "kernels/ops/matmul/onednn_product.h"
#include "kernels/ops/matmul/pieces.h"

namespace opwire::fused {
namespace {

constexpr int64_t kCached =
    int64_t{1}
    << 20;  // bytes of sums: so many are still in the caches when another kernel reads them
constexpr int64_t kTile = int64_t{1} << 20;  // of a tile

}  // namespace

struct ProductKernel::State {
  // Tiles of one size.
  struct Tiles {
    std::unique_ptr<ops::matmul::OneDnnProduct> product;  // null: there are none
    void* finish = nullptr;                               // a Layout
  };
  int64_t rows, columns;  // of a tile
  Tiles tiles[2][2];  // all but the last, and the last one where it has fewer rows; then columns
  int64_t sum_bytes = 0;  // in the workspace, in front of oneDNN's own

  State(int64_t tile_rows, int64_t tile_columns) : rows(tile_rows), columns(tile_columns) {}
  State(const State&) = delete;
  ~State() {
    for (const auto& of_rows : tiles) {
      for (const Tiles& t : of_rows) ReleaseLayout(t.finish);
    }
  }
};

namespace {

// What finishes a tile, as the call of an elementwise kernel.
struct TileCall {
  std::array<opw_tensor, kMaxInputs> operands;
  std::array<opw_tensor, kMaxOutputs> results;
  const std::array<int64_t, 2> shape, strides;  // the tile's, and those of the whole
  const int64_t one = 1;
  opw_call call;

  // Of rows from `row` on, columns from `column` on. `by_row`: of the operands behind the weights.
  TileCall(const opw_call* c, float* sums, int64_t row, int64_t rows, int64_t column,
           int64_t columns, int64_t all_columns, const std::vector<bool>& by_row, int outputs)
      : shape{rows, columns},
        strides{all_columns, 1},
        call(*c),
        own_{columns, 1},
        offset_(row * all_columns + column) {
    operands[0] = {.data = sums,
                   .shape = shape.data(),
                   .strides = own_.data(),
                   .elements = rows * columns,
                   .dtype = OPW_F32,
                   .encoding = 0,
                   .rank = 2,
                   .contiguous = 1,
                   .packed = 0};
    for (size_t i = 0; i < by_row.size(); ++i)
      operands[i + 1] = by_row[i] ? Part(c->operands[i + 2]) : Columns(c->operands[i + 2], column);
    for (int o = 0; o < outputs; ++o) results[static_cast<size_t>(o)] = Part(c->results[o]);
    call.operands = operands.data();
    call.results = results.data();
  }
  TileCall(const TileCall&) = delete;

 private:
  static void* At(const opw_tensor& t, int64_t offset) {
    return t.data == nullptr ? nullptr : static_cast<char*>(t.data) + offset * kBytesOf[t.dtype];
  }
  opw_tensor Part(const opw_tensor& t) const {
    return {.data = At(t, offset_),
            .shape = shape.data(),
            .strides = strides.data(),
            .elements = shape[0] * shape[1],
            .dtype = t.dtype,
            .encoding = 0,
            .rank = 2,
            .contiguous = strides[0] == shape[1],
            .packed = 0};
  }
  opw_tensor Columns(const opw_tensor& t, int64_t column) const {
    return {.data = At(t, column),
            .shape = &shape[1],
            .strides = &one,
            .elements = shape[1],
            .dtype = t.dtype,
            .encoding = 0,
            .rank = 1,
            .contiguous = 1,
            .packed = 0};
  }

  const std::array<int64_t, 2> own_;
  const int64_t offset_;
};

}  // namespace

StatusOr<std::unique_ptr<ProductKernel>> ProductKernel::Make(const ProductProgram& program,
                                                             std::function<void()> worth_it) {
  if (!program.IsEpilogue() || program.rows <= ops::matmul::kMostFewRows)
    return Unimplemented("no product of many rows");
  const ProductProgram::Section& section = program.sections[0];
  OPWIRE_RETURN_IF_ERROR(section.finish.Check());
  // In bf16 the f32 sums are twice what a product writes by itself, which took 5 to 30 % longer
  // where the caches hold that.
  if (program.type != DType::kF32)
    return Unimplemented("rows of {}, expected f32", DTypeName(program.type));
  if (program.rows * section.columns * 4 <= kCached)
    return Unimplemented("{} x {} sums, which stay in the caches", program.rows, section.columns);
  if (section.finish.inputs().size() > kMaxInputs || section.finish.outputs().size() > kMaxOutputs)
    return Unimplemented("more tensors than one kernel has");
  return std::unique_ptr<ProductKernel>(new ProductKernel(program, std::move(worth_it)));
}

ProductKernel::ProductKernel(const ProductProgram& program, std::function<void()> worth_it)
    : rows_(program.rows),
      terms_(program.terms),
      columns_(program.sections[0].columns),
      by_row_(program.sections[0].by_row),
      inputs_(static_cast<int>(program.sections[0].finish.inputs().size())),
      outputs_(static_cast<int>(program.sections[0].finish.outputs().size())),
      functions_({program.sections[0].finish}, std::move(worth_it)) {
  const ScalarProgram& finish = functions_.programs()[0];
  types_ = {OPW_F32, OPW_F32};
  for (size_t i = 1; i < finish.inputs().size(); ++i)
    types_.push_back(static_cast<uint8_t>(finish.inputs()[i]));
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
  const int64_t least = std::min(k.rows_, ops::matmul::MatmulPieces::kMinRows),
                width = std::min(k.columns_, kTile / (4 * least) / 64 * 64),
                height = std::min(k.rows_, std::max(least, kTile / (4 * width)));
  auto s = std::make_unique<State>(height, width);
  s->sum_bytes = ops::AlignedBytes(height * width * 4);
  const int64_t heights[] = {height, k.rows_ % height}, widths[] = {width, k.columns_ % width};
  int64_t scratch = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      if (heights[i] == 0 || widths[j] == 0) continue;
      State::Tiles& tiles = s->tiles[i][j];
      const ops::matmul::MatmulShapes shapes(heights[i], widths[j], k.terms_, k.terms_, 1, 1,
                                             k.terms_, widths[j]);
      tiles.product = ops::matmul::OneDnnProduct::Make(
          {.shapes = shapes, .type = OPW_F32, .result = OPW_F32}, threads);
      if (tiles.product == nullptr) return OPW_FAILED;
      scratch = std::max(scratch, tiles.product->scratch_bytes());
      const TileCall tile(c, nullptr, 0, heights[i], 0, widths[j], k.columns_, k.by_row_,
                          k.outputs_);
      if (PrepareLayout(&tile.call, k.inputs_, k.outputs_, &tiles.finish) != OPW_OK)
        return OPW_FAILED;
    }
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
  const float *const x = static_cast<const float*>(c->operands[0].data),
                     *const weight = static_cast<const float*>(c->operands[1].data);
  float* const sums = static_cast<float*>(c->workspace);
  for (int64_t row = 0; row < k.rows_; row += s.rows) {
    const int64_t rows = std::min(s.rows, k.rows_ - row);
    for (int64_t column = 0; column < k.columns_; column += s.columns) {
      if (row + column > 0 && ops::Stopped(c)) return OPW_OK;
      const int64_t columns = std::min(s.columns, k.columns_ - column);
      const State::Tiles& tiles = s.tiles[rows != s.rows][columns != s.columns];
      if (!tiles.product->Run(c, x + row * k.terms_, weight + column * k.terms_, nullptr, sums,
                              reinterpret_cast<char*>(sums) + s.sum_bytes))
        return OPW_FAILED;
      TileCall tile(c, sums, row, rows, column, columns, k.columns_, k.by_row_, k.outputs_);
      tile.call.state = tiles.finish;
      tile.call.context = now.context;
      if (const int code = RunLayout(&tile.call, now.run); code != OPW_OK) return code;
    }
  }
  k.functions_.Worked(k.rows_ * k.columns_);
  return OPW_OK;
}

opw_kernel ProductKernel::kernel() const {
  return {OPW_ABI_VERSION, 0, Supports, Prepare, Release, Run, this};
}

}  // namespace opwire::fused
