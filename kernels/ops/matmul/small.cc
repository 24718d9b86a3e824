// matmul by our own loops: f32 while all extents are small, f64 and 32- and 64-bit integers of any
// size.
#include "kernels/ops/matmul/small.h"

#include <new>

#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"
#include "kernels/ops/matmul/shapes.h"

namespace opwire::ops::matmul {
namespace {

constexpr int64_t kSmall = 64;  // f32 extents up to which this is faster than a library call
constexpr int64_t kRangeWork = 256 * 1024;  // multiplications a range

struct State {
  MatmulLoop loop;
  MatmulShapes shapes;
  int64_t rows_a_part, parts, bytes;
};

constexpr char kRestriction[] = "for f32 only where m, n and k are at most 64";
static_assert(kSmall == 64);

const char* Supports(const opw_call* c) {
  const MatmulShapes s(c);
  if (s.n > 1 && (s.y_n != 1 || s.z_n != 1))
    return "needs the columns of y and of the result to be contiguous";
  if (Operand(c, 0).dtype == OPW_F32 && (s.m > kSmall || s.n > kSmall || s.k > kSmall)) {
    return kRestriction;
  }
  return nullptr;
}

// The loop with the call's sizes.
int PrepareWith(const MatmulLoops& loops, const opw_call* c, void** state) {
  State* const s =
      new (std::nothrow) State{loops.by_type[Operand(c, 0).dtype], MatmulShapes(c), 0, 0, 0};
  if (s == nullptr) return OPW_FAILED;
  const int64_t row = std::max<int64_t>(1, s->shapes.n * s->shapes.k);
  s->rows_a_part = std::max<int64_t>(4, kRangeWork / row / 4 * 4);
  s->parts = (s->shapes.m + s->rows_a_part - 1) / s->rows_a_part;
  s->bytes = DTypeBytes(TypeOf(c->results[0]));
  *state = s;
  return OPW_OK;
}
int PrepareAvx2(const opw_call* c, void** state, int64_t*) {
  return PrepareWith(MatmulLoopsAvx2(), c, state);
}
int PrepareAvx512(const opw_call* c, void** state, int64_t*) {
  return PrepareWith(MatmulLoopsAvx512(), c, state);
}
void Release(void* state) { delete static_cast<State*>(state); }

int Run(const opw_call* c) {
  const State& s = *static_cast<const State*>(c->state);
  const MatmulShapes& p = s.shapes;
  char* const z = static_cast<char*>(c->results[0].data);
  const char* const x = static_cast<const char*>(Operand(c, 0).data);
  const char* const y = static_cast<const char*>(Operand(c, 1).data);
  if (p.batch_rank == 0 && s.parts == 1) {
    s.loop(z, x, y, p.m, p.n, p.k, p.x_m, p.x_k, p.y_k, p.z_m);
    return OPW_OK;
  }
  const int64_t grain = std::max<int64_t>(
      1, kRangeWork / std::max<int64_t>(1, p.n * p.k * std::min(p.m, s.rows_a_part)));
  ParallelFor(c, p.Batches() * s.parts, grain, [&](int64_t begin, int64_t end) {
    Walk<3> walk = BatchWalk(p);
    walk.Start(begin / s.parts);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit % s.parts * s.rows_a_part;
      s.loop(z + (walk.offset(0) + row * p.z_m) * s.bytes,
             x + (walk.offset(1) + row * p.x_m) * s.bytes, y + walk.offset(2) * s.bytes,
             std::min(s.rows_a_part, p.m - row), p.n, p.k, p.x_m, p.x_k, p.y_k, p.z_m);
      if (unit % s.parts == s.parts - 1) walk.Next();
    }
  });
  return OPW_OK;
}

}  // namespace

void AddMatmulSmall(VariantTable& table, const Isa& isa) {
  const DTypeSet types = {DType::kF64, DType::kF32, DType::kI64,
                          DType::kU64, DType::kI32, DType::kU32};
  AddProduction(table, isa, "matmul", "avx512", "avx512", 2, types,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports, PrepareAvx512, Release, Run},
                kRestriction);
  AddProduction(table, isa, "matmul", "avx2", "avx2", 1, types,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, Supports, PrepareAvx2, Release, Run},
                kRestriction);
}

}  // namespace opwire::ops::matmul
