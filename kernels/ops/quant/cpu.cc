// quantize and dequantize of dense tensors: groups side by side, or of few long ones the parts.
#include "kernels/ops/families.h"
#include "kernels/ops/quant/cpu_loops.h"
#include "kernels/ops/quant/quant.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::quant {
namespace {

constexpr int64_t kPart = 65536;  // elements of a group that are worked on at once; an even number

// A group's parts, which are as many for all groups.
struct Parts {
  int64_t size, count;
  explicit Parts(const Groups& g)
      : size(std::clamp<int64_t>(g.size, 1, kPart)),
        count((std::max<int64_t>(g.size, 1) - 1) / size + 1) {}
  int64_t units(const Groups& g) const { return g.count * count; }
  int64_t grain() const { return RowsPerRange(size); }
};
// Part `unit` of all: its group, its first element there and how many it has.
struct Unit {
  int64_t group, first, n;
  Unit(const Groups& g, const Parts& p, int64_t unit)
      : group(unit / p.count),
        first(unit % p.count * p.size),
        n(std::min(p.size, g.size - first)) {}
};

void SetParams(const Groups& g, int64_t group, double scale, double offset) {
  const auto set = [&](auto* params) {
    params[group * g.each] = static_cast<std::remove_pointer_t<decltype(params)>>(scale);
    if (g.each == 2)
      params[group * g.each + 1] = static_cast<std::remove_pointer_t<decltype(params)>>(offset);
  };
  TypeOf(g.params) == DType::kF64 ? set(static_cast<double*>(g.params.data))
                                  : set(static_cast<float*>(g.params.data));
}

// factor and offset by value of the computing type, and 1 / factor.
struct Numbers {
  double factor, offset, scale;
  Numbers(const Groups& g, double least, double most) {
    const auto set = [&](auto zero) {
      using C = decltype(zero);
      const GroupNumbers<C> n(static_cast<C>(least), static_cast<C>(most), g.each == 1, g.bits);
      factor = static_cast<double>(n.factor);
      offset = static_cast<double>(n.offset);
      scale = static_cast<double>(1 / n.factor);
    };
    TypeOf(g.params) == DType::kF64 ? set(0.0) : set(0.0f);
  }
};

const char* SupportsQuantize(const opw_call* c) {
  return AllDense(c, 1, 2) ? nullptr : "needs dense tensors";
}
int PrepareQuantize(const opw_call* c, void**, int64_t* workspace_bytes) {
  const Groups g = Groups::OfQuantize(c);
  const Parts parts(g);
  *workspace_bytes =
      parts.count > 1 ? parts.units(g) * 2 * static_cast<int64_t>(sizeof(double)) : 0;
  return OPW_OK;
}

template <const QuantLoops& (*kLoops)()>
int Quantize(const opw_call* c) {
  const Groups g = Groups::OfQuantize(c);
  const Parts parts(g);
  const bool symmetric = g.each == 1;
  const RangeLoop range = kLoops().range[g.floats.dtype];
  const QuantizeLoop quantize = kLoops().quantize[g.floats.dtype];
  const auto x = [&](const Unit& u) { return At(g.floats, u.group * g.size + u.first); };
  const auto store = [&](const Unit& u, const Numbers& n) {
    quantize(static_cast<char*>(g.values.data) + g.Bytes(u.group * g.size + u.first), x(u), u.n,
             g.bits, n.factor, n.offset);
    if (u.first == 0) SetParams(g, u.group, n.scale, n.offset);
  };
  double* const ranges = static_cast<double*>(c->workspace);  // of the parts
  ParallelFor(c, parts.units(g), parts.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Unit u(g, parts, i);
      double least = 0, most = 0;
      if (u.n > 0) range(x(u), u.n, symmetric, &least, &most);
      if (parts.count == 1) {
        store(u, Numbers(g, least, most));
      } else {
        ranges[2 * i] = least;
        ranges[2 * i + 1] = most;
      }
    }
  });
  if (parts.count == 1) return OPW_OK;
  ParallelFor(c, parts.units(g), parts.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Unit u(g, parts, i);
      const double* const own = ranges + 2 * u.group * parts.count;
      double least = own[0], most = own[1];
      for (int64_t p = 1; p < parts.count; ++p) {
        if (own[2 * p] < least || own[2 * p] != own[2 * p]) least = own[2 * p];
        if (own[2 * p + 1] > most || own[2 * p + 1] != own[2 * p + 1]) most = own[2 * p + 1];
        if (most != most) break;
      }
      store(u, Numbers(g, least, most));
    }
  });
  return OPW_OK;
}

const char* SupportsDequantize(const opw_call* c) {
  const Groups g = Groups::OfDequantize(c);
  if (!AllDense(c, 2)) return "needs dense tensors";
  return (TypeOf(g.params) == DType::kF64) == (TypeOf(g.floats) == DType::kF64)
             ? nullptr
             : "needs params of the type that the result computes in";
}

template <const QuantLoops& (*kLoops)()>
int Dequantize(const opw_call* c) {
  const Groups g = Groups::OfDequantize(c);
  const Parts parts(g);
  const DequantizeLoop loop = kLoops().dequantize[g.floats.dtype];
  const auto param = [&](int64_t i) {
    return TypeOf(g.params) == DType::kF64
               ? static_cast<const double*>(g.params.data)[i]
               : static_cast<double>(static_cast<const float*>(g.params.data)[i]);
  };
  ParallelFor(c, parts.units(g), parts.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Unit u(g, parts, i);
      const int64_t at = u.group * g.size + u.first;
      const double offset = g.each == 2 ? param(2 * u.group + 1) : 0;
      loop(At(g.floats, at), static_cast<const char*>(g.values.data) + g.Bytes(at), u.n, g.bits,
           param(g.each * u.group), g.each == 2 ? &offset : nullptr);
    }
  });
  return OPW_OK;
}

template <const QuantLoops& (*kLoops)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  AddProduction(table, isa, "quantize", set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsQuantize, PrepareQuantize, nullptr,
                 Quantize<kLoops>});
  AddProduction(table, isa, "dequantize", set, set, priority, {DType::kI8, DType::kU8},
                {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsDequantize, nullptr, nullptr,
                 Dequantize<kLoops>});
}

}  // namespace

void AddQuantFast(VariantTable& table, const Isa& isa) {
  Add<QuantLoopsAvx512>(table, isa, "avx512", 2);
  Add<QuantLoopsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::quant
