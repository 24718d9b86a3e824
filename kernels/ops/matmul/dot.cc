// matmul of contiguous rows and one contiguous column, alone or in batches: a dot product for each
// row. Long ones are summed in parts of fixed size, so results do not depend on the number of
// threads.
#include <new>

#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"
#include "kernels/ops/matmul/shapes.h"
#include "kernels/ops/matmul/small.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::matmul {
namespace {

constexpr int64_t kPart = 65536;            // terms of a partial sum
constexpr int64_t kRangeWork = 128 * 1024;  // multiplications a range

struct State {
  const MatmulLoops* loops;
  MatmulShapes shapes;
  int64_t parts;       // of a product; 1: none are stored
  int64_t part_bytes;  // of a partial sum
};

constexpr char kRestriction[] = "for contiguous rows and one contiguous column";

const char* Supports(const opw_call* c) {
  return IsDotProducts(MatmulShapes(c)) ? nullptr : kRestriction;
}

template <const MatmulLoops& (*kLoops)()>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const MatmulShapes shapes(c);
  const int64_t parts = std::max<int64_t>(1, (shapes.k + kPart - 1) / kPart);
  const int64_t part_bytes = Operand(c, 0).dtype == OPW_F64 ? 8 : 4;
  State* const s = new (std::nothrow) State{&kLoops(), shapes, parts, part_bytes};
  if (s == nullptr) return OPW_FAILED;
  *workspace_bytes = parts == 1 ? 0 : shapes.Batches() * shapes.m * parts * part_bytes;
  *state = s;
  return OPW_OK;
}
void Release(void* state) { delete static_cast<State*>(state); }

int Run(const opw_call* c) {
  const State& s = *static_cast<const State*>(c->state);
  const MatmulShapes& p = s.shapes;
  const opw_tensor &x = Operand(c, 0), &y = Operand(c, 1), &z = c->results[0];
  const bool whole = s.parts == 1;
  char* const sums = static_cast<char*>(c->workspace);
  const DotLoop loop = (whole ? s.loops->dot : s.loops->dot_part)[x.dtype];
  // Visits the products in [begin, end) with the offsets of result, row and column.
  const auto for_each = [&](int64_t begin, int64_t end, const auto& visit) {
    if (begin == end) return;
    Walk<3> walk = BatchWalk(p);
    walk.Start(begin / p.m);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % p.m;
      visit(i, walk.offset(0) + row * p.z_m, walk.offset(1) + row * p.x_m, walk.offset(2));
      if (row == p.m - 1) walk.Next();
    }
  };
  const int64_t products = p.Batches() * p.m;
  const int64_t terms = std::max<int64_t>(1, std::min(p.k, kPart));
  ParallelFor(c, products * s.parts, std::max<int64_t>(1, kRangeWork / terms),
              [&](int64_t begin, int64_t end) {
                for_each(begin / s.parts, (end - 1) / s.parts + 1,
                         [&](int64_t i, int64_t to, int64_t row, int64_t column) {
                           const int64_t first = std::max(begin, i * s.parts),
                                         last = std::min(end, (i + 1) * s.parts);
                           for (int64_t unit = first; unit < last; ++unit) {
                             const int64_t at = unit % s.parts * kPart;
                             loop(whole ? At(z, to) : sums + unit * s.part_bytes, At(x, row + at),
                                  At(y, column + at), std::min(kPart, p.k - at));
                           }
                         });
              });
  if (whole) return OPW_OK;
  ParallelFor(c, products, RowsPerRange(s.parts), [&](int64_t begin, int64_t end) {
    for_each(begin, end, [&](int64_t i, int64_t to, int64_t, int64_t) {
      s.loops->dot_end[z.dtype](At(z, to), sums + i * s.parts * s.part_bytes, s.parts);
    });
  });
  return OPW_OK;
}

}  // namespace

void AddMatmulDot(VariantTable& table, const Isa& isa) {
  const DTypeSet types = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  AddProduction(
      table, isa, "matmul", "dot_avx512", "avx512", 4, types,
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports, Prepare<MatmulLoopsAvx512>, Release, Run},
      kRestriction);
  AddProduction(
      table, isa, "matmul", "dot_avx2", "avx2", 3, types,
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports, Prepare<MatmulLoopsAvx2>, Release, Run},
      kRestriction);
}

}  // namespace opwire::ops::matmul
