// rotary_embedding of dense tensors: the angles of each position once, then every row.
#include <cstring>
#include <vector>

#include "kernels/ops/families.h"
#include "kernels/ops/rotary/cpu_loops.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/rotary/shapes.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::rotary {
namespace {

int64_t AngleBytes(const opw_call* c) { return TypeOf(Operand(c, 0)) == DType::kF64 ? 8 : 4; }
// The number of a position's angles in the form for rows.
int64_t AnglesEach(const RotaryShapes& s) { return s.interleaved ? s.rotated : s.pairs; }

const char* Supports(const opw_call* c) {
  if (!AllDense(c, 1)) return "needs dense tensors";
  return RotaryShapes(c).depth <= kMaxStoppable ? nullptr : "a row this long could not be stopped";
}

// The state: frequencies in the computing type.
using Frequencies = std::vector<char>;
template <typename E>
void Fill(const RotaryShapes& s, Frequencies& bytes) {
  bytes.resize(static_cast<size_t>(AnglesEach(s)) * sizeof(E));
  E* const out = reinterpret_cast<E*>(bytes.data());
  for (int64_t i = 0; i < s.pairs; ++i) {
    const E f = static_cast<E>(s.Frequency(i));
    if (s.interleaved)
      out[2 * i] = -f, out[2 * i + 1] = f;
    else
      out[i] = f;
  }
}
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const RotaryShapes s(c);
  auto* const frequencies = new Frequencies;
  if (AngleBytes(c) == 8)
    Fill<double>(s, *frequencies);
  else
    Fill<float>(s, *frequencies);
  *state = frequencies;
  *workspace_bytes = s.angles * AnglesEach(s) * 2 * AngleBytes(c);
  return OPW_OK;
}
void Release(void* state) { delete static_cast<Frequencies*>(state); }

template <const RotaryLoops& (*kLoops)()>
int Run(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &p = Operand(c, 1), &y = c->results[0];
  if (x.elements == 0) return OPW_OK;
  const RotaryShapes s(c);
  const int64_t each = AnglesEach(s), bytes = each * AngleBytes(c);
  const void* const frequencies = static_cast<const Frequencies*>(c->state)->data();
  // Of each position its cosines, then its sines.
  const auto cosines = [&](int64_t angle) {
    return static_cast<char*>(c->workspace) + angle * 2 * bytes;
  };

  // The axes along which positions vary, and for all axes how many angles further the next row's
  // are.
  int64_t extents[OPW_MAX_RANK], strides[OPW_MAX_RANK], steps[OPW_MAX_RANK];
  int rank = 0;
  for (int a = 0; a < s.rank; ++a) {
    if (s.own[a]) extents[rank] = x.shape[a], strides[rank++] = s.positions[a];
  }
  for (int64_t a = s.rank - 1, step = 1; a >= 0; --a) {
    steps[a] = s.own[a] ? step : 0;
    if (s.own[a]) step *= x.shape[a];
  }
  const RotaryAngles angles = kLoops().angles[x.dtype];
  ParallelFor(c, s.angles, RowsPerRange(8 * each), [&](int64_t begin, int64_t end) {
    Walk<1> walk(rank, extents);
    for (int a = 0; a < rank; ++a) walk.SetStride(0, a, strides[a]);
    walk.Start(begin);
    for (int64_t i = begin; i < end; ++i, walk.Next())
      angles(cosines(i), cosines(i) + bytes, frequencies, s.PositionAt(p, walk.offset(0)), each);
  });

  const RotaryRow rotate = (s.interleaved ? kLoops().neighbours : kLoops().halves)[x.dtype];
  const size_t rest = static_cast<size_t>((s.depth - s.rotated) * DTypeBytes(TypeOf(x)));
  ParallelFor(c, s.rows, RowsPerRange(s.depth), [&](int64_t begin, int64_t end) {
    Walk<1> walk(s.rank, x.shape);
    for (int a = 0; a < s.rank; ++a) walk.SetStride(0, a, steps[a]);
    walk.Start(begin);
    for (int64_t r = begin; r < end; ++r, walk.Next()) {
      const char* const of_row = cosines(walk.offset(0));
      rotate(At(y, r * s.depth), At(x, r * s.depth), of_row, of_row + bytes, s.rotated);
      if (rest > 0)
        std::memmove(At(y, r * s.depth + s.rotated), At(x, r * s.depth + s.rotated), rest);
    }
  });
  return OPW_OK;
}

template <const RotaryLoops& (*kLoops)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  AddProduction(
      table, isa, "rotary_embedding", set, set, priority, kFloats,
      {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, Supports, Prepare, Release, Run<kLoops>});
}

}  // namespace

void AddRotaryFast(VariantTable& table, const Isa& isa) {
  Add<RotaryLoopsAvx512>(table, isa, "avx512", 2);
  Add<RotaryLoopsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::rotary
