// rotary_embedding, one row after the other, with angles in f64.
#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/rotary/shapes.h"

namespace opwire::ops::rotary {
namespace {

int Rotary(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &y = c->results[0];
  const RotaryShapes s(c);
  if (x.elements == 0) return OPW_OK;
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      ParallelFor(
          c, s.rows, std::max<int64_t>(1, kReferenceGrain / s.depth),
          [&](int64_t begin, int64_t end) {
            Walk<3> walk(s.rank, x.shape);
            for (int a = 0; a < s.rank; ++a) {
              walk.SetStride(0, a, y.strides[a]);
              walk.SetStride(1, a, x.strides[a]);
              walk.SetStride(2, a, s.positions[a]);
            }
            walk.Start(begin);
            for (int64_t r = begin; r < end; ++r, walk.Next()) {
              const double position = s.PositionAt(Operand(c, 1), walk.offset(2));
              const auto in = [&](int64_t i) { return walk.offset(1) + i * x.strides[s.rank]; };
              const auto out = [&](int64_t i) { return walk.offset(0) + i * y.strides[s.rank]; };
              for (int64_t i = 0; i < s.pairs && !StoppedAt(c, i); ++i) {
                const int64_t first = s.interleaved ? 2 * i : i,
                              second = s.interleaved ? 2 * i + 1 : i + s.pairs;
                const double angle = position * s.Frequency(i), sine = std::sin(angle),
                             cosine = std::cos(angle);
                const double a = static_cast<double>(Load<T>(x.data, in(first))),
                             b = static_cast<double>(Load<T>(x.data, in(second)));
                Store<T>(y.data, out(first), a * cosine - b * sine);
                Store<T>(y.data, out(second), b * cosine + a * sine);
              }
              for (int64_t i = s.rotated; i < s.depth && !StoppedAt(c, i); ++i)
                static_cast<T*>(y.data)[out(i)] = static_cast<const T*>(x.data)[in(i)];
            }
          });
    }
  });
  return OPW_OK;
}

}  // namespace

void AddRotaryReference(VariantTable& table) {
  AddReference(
      table, "rotary_embedding",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, nullptr, nullptr, nullptr, Rotary});
}

}  // namespace opwire::ops::rotary
