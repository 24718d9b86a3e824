// quantize and dequantize, group by group.
#include <cmath>

#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/quant/quant.h"

namespace opwire::ops::quant {
namespace {

// Groups of a range.
int64_t Grain(const Groups& g) {
  return std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, g.size));
}

int8_t* ByteAt(const opw_tensor& t, int64_t flat) {
  return static_cast<int8_t*>(t.data) + OffsetOf(t, flat);
}

template <typename T>
void QuantizeGroups(const opw_call* c, const Groups& g, bool symmetric) {
  using C = ComputeOf<T>;
  ParallelFor(c, g.count, Grain(g), [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const auto x = [&](int64_t i) {
        return Load<T>(g.floats.data, OffsetOf(g.floats, group * g.size + i));
      };
      C least = 0, most = 0;
      for (int64_t i = 0; i < g.size; ++i) {
        if (StoppedAt(c, i)) return;
        const C v = symmetric ? std::fabs(x(i)) : x(i);
        if (i == 0 || v < least || v != v) least = v;
        if (i == 0 || v > most || v != v) most = v;
        if (v != v) break;
      }
      const GroupNumbers<C> n(least, most, symmetric, g.bits);
      const C low = static_cast<C>(-(1 << (g.bits - 1))), high = -low - 1;
      for (int64_t i = 0; i < g.size; ++i) {
        if (StoppedAt(c, i)) return;
        const C v = std::nearbyint((x(i) - n.offset) * n.factor);
        const auto value = static_cast<int8_t>(v != v ? C(0) : std::fmin(std::fmax(v, low), high));
        const int64_t at = group * g.size + i;
        if (g.bits == 8)
          *ByteAt(g.values, at) = value;
        else if (at % 2 == 0)
          *ByteAt(g.values, at / 2) = static_cast<int8_t>(value & 15);
        else
          *ByteAt(g.values, at / 2) = static_cast<int8_t>(*ByteAt(g.values, at / 2) | value << 4);
      }
      Store<C>(g.params.data, OffsetOf(g.params, group * g.each), 1 / n.factor);
      if (!symmetric) Store<C>(g.params.data, OffsetOf(g.params, group * g.each + 1), n.offset);
    }
  });
}

int Quantize(const opw_call* c) {
  const Groups g = Groups::OfQuantize(c);
  VisitType(TypeOf(g.floats), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>)
      QuantizeGroups<T>(c, g, c->attrs[2].value.i != 0);
  });
  return OPW_OK;
}

template <typename T, typename C>
void DequantizeGroups(const opw_call* c, const Groups& g) {
  ParallelFor(c, g.count, Grain(g), [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const C scale = Load<C>(g.params.data, OffsetOf(g.params, group * g.each));
      const C offset =
          g.each == 2 ? Load<C>(g.params.data, OffsetOf(g.params, group * g.each + 1)) : C(0);
      for (int64_t i = 0; i < g.size; ++i) {
        if (StoppedAt(c, i)) return;
        const int64_t at = group * g.size + i;
        int value =
            g.bits == 8 ? *ByteAt(g.values, at) : *ByteAt(g.values, at / 2) >> at % 2 * 4 & 15;
        if (g.bits == 4 && value > 7) value -= 16;
        const C product = static_cast<C>(value) * scale;
        Store<T>(g.floats.data, OffsetOf(g.floats, at), g.each == 2 ? product + offset : product);
      }
    }
  });
}

int Dequantize(const opw_call* c) {
  const Groups g = Groups::OfDequantize(c);
  VisitType(TypeOf(g.floats), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>)
      TypeOf(g.params) == DType::kF64 ? DequantizeGroups<T, double>(c, g)
                                      : DequantizeGroups<T, float>(c, g);
  });
  return OPW_OK;
}

}  // namespace

void AddQuantReference(VariantTable& table) {
  AddReference(table, "quantize",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Quantize});
  AddReference(table, "dequantize",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Dequantize});
}

}  // namespace opwire::ops::quant
