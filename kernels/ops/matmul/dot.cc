// matmul of a row and a column, alone or in batches. Long ones are summed in parts of fixed size,
// so results do not depend on the number of threads.
#include <new>

#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"
#include "kernels/ops/matmul/shapes.h"
#include "kernels/ops/matmul/small.h"
#include "kernels/ops/rows.h"

namespace opwire::ops {
namespace {

constexpr int64_t kPart = 65536;  // terms of a partial sum

struct State {
  const MatmulLoops* loops;
  MatmulShapes shapes;
  int64_t parts;       // of a product; 1: none are stored
  int64_t part_bytes;  // of a partial sum
};

constexpr char kRestriction[] = "for one row and one column";

const char* Supports(const opw_call* c) {
  const MatmulShapes s(c);
  if (s.m != 1 || s.n != 1) return kRestriction;
  if (s.k > 1 && (s.x_k != 1 || s.y_k != 1)) return "needs a contiguous row and column";
  return nullptr;
}

template <const MatmulLoops& (*kLoops)()>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const MatmulShapes shapes(c);
  const int64_t parts = std::max<int64_t>(1, (shapes.k + kPart - 1) / kPart);
  const int64_t part_bytes = Operand(c, 0).dtype == OPW_F64 ? 8 : 4;
  State* const s = new (std::nothrow) State{&kLoops(), shapes, parts, part_bytes};
  if (s == nullptr) return OPW_FAILED;
  *workspace_bytes = parts == 1 ? 0 : shapes.Batches() * parts * part_bytes;
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
  const auto walk_from = [&](int64_t product) {
    Walk<3> walk(p.batch_rank, p.batch);
    for (int a = 0; a < p.batch_rank; ++a) {
      walk.SetStride(0, a, p.z_batch[a]);
      walk.SetStride(1, a, p.x_batch[a]);
      walk.SetStride(2, a, p.y_batch[a]);
    }
    walk.Start(product);
    return walk;
  };
  ParallelFor(c, p.Batches() * s.parts, RowsPerRange(std::min(p.k, kPart)),
              [&](int64_t begin, int64_t end) {
                auto walk = walk_from(begin / s.parts);
                for (int64_t unit = begin; unit < end; ++unit) {
                  const int64_t part = unit % s.parts, first = part * kPart;
                  loop(whole ? At(z, walk.offset(0)) : sums + unit * s.part_bytes,
                       At(x, walk.offset(1) + first), At(y, walk.offset(2) + first),
                       std::min(kPart, p.k - first));
                  if (part == s.parts - 1) walk.Next();
                }
              });
  if (whole) return OPW_OK;
  ParallelFor(c, p.Batches(), RowsPerRange(s.parts), [&](int64_t begin, int64_t end) {
    auto walk = walk_from(begin);
    for (int64_t i = begin; i < end; ++i, walk.Next())
      s.loops->dot_end[z.dtype](At(z, walk.offset(0)), sums + i * s.parts * s.part_bytes, s.parts);
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

}  // namespace opwire::ops
