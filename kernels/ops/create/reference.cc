// Ops that make values from attributes, from a few scalars, or from a random key.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/create/create.h"
#include "kernels/ops/create/random.h"
#include "kernels/ops/families.h"

namespace opwire::ops::create {
namespace {

// Stores value(i) as element i of the result for all i.
template <typename T, typename F>
void Fill(const opw_call* c, const F& value) {
  const opw_tensor& y = c->results[0];
  ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) Store<T>(y.data, OffsetOf(y, i), value(i));
  });
}

int Zeros(const opw_call* c) {
  VisitType(TypeOf(c->results[0]),
            [&](auto tag) { Fill<typename decltype(tag)::Type>(c, [](int64_t) { return 0.0f; }); });
  return OPW_OK;
}

int Full(const opw_call* c) {
  const double value = c->attrs[1].value.f;
  VisitType(TypeOf(c->results[0]), [&](auto tag) {
    Fill<typename decltype(tag)::Type>(c, [=](int64_t) { return value; });
  });
  return OPW_OK;
}

int Values(const opw_call* c) {
  const double* const values = c->attrs[0].value.floats;
  VisitType(TypeOf(c->results[0]), [&](auto tag) {
    Fill<typename decltype(tag)::Type>(c, [=](int64_t i) { return values[i]; });
  });
  return OPW_OK;
}

const char* ConstantSupports(const opw_call* c) {
  return c->attrs[1].count == BytesOf(c->results[0])
             ? nullptr
             : "the value's bytes are not as many as the type's";
}

int Constant(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  const char* const bytes = c->attrs[1].value.bytes;
  VisitBits(DTypeBytes(TypeOf(y)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {  // the blob may have any address
        std::memcpy(static_cast<U*>(y.data) + OffsetOf(y, i), bytes + i * sizeof(U), sizeof(U));
      }
    });
  });
  return OPW_OK;
}

// Floats below f64 are computed in f64, so that the only rounding is the last.
int Arange(const opw_call* c) {
  VisitType(TypeOf(c->results[0]), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = std::conditional_t<std::is_floating_point_v<ComputeOf<T>>, double, ComputeOf<T>>;
    const C start = Load<T>(Operand(c, 0).data, 0), step = Load<T>(Operand(c, 1).data, 0);
    Fill<T>(c, [=](int64_t i) { return Plus<C>(start, Times<C>(static_cast<C>(i), step)); });
  });
  return OPW_OK;
}

portable::RandomKey KeyOf(const opw_call* c, int operand, int site) {
  const opw_tensor& key = Operand(c, operand);
  return {Load<uint64_t>(key.data, 0),
          Load<uint64_t>(key.data, key.strides[0]) + static_cast<uint64_t>(c->attrs[site].value.i)};
}

template <typename C>
void UniformBlock(const portable::RandomKey& key, int64_t first, C* u) {
  if constexpr (std::is_same_v<C, double>)
    portable::Uniform53(key, first, u);
  else
    portable::Uniform24(key, first, u);
}
template <typename C>
void NormalBlock(const portable::RandomKey& key, int64_t first, C* z) {
  if constexpr (std::is_same_v<C, double>)
    portable::Normal53(key, first, z);
  else
    portable::Normal24(key, first, z);
}

// Stores value(i, random) for all elements i, with `block` filling random values of the computing
// type of T.
template <typename T, typename Block, typename F>
void FillRandom(const opw_call* c, const portable::RandomKey& key, const Block& block,
                const F& value) {
  static_assert(kReferenceGrain % portable::kRandomBlock == 0);
  const opw_tensor& y = c->results[0];
  ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
    ComputeOf<T> random[portable::kRandomBlock];
    for (int64_t i = begin; i < end; ++i) {
      if (i % portable::kRandomBlock == 0) block(key, i, random);
      Store<T>(y.data, OffsetOf(y, i), value(i, random[i % portable::kRandomBlock]));
    }
  });
}

// Calls f with the row's floating type.
template <typename F>
int VisitFloats(DType t, const F& f) {
  VisitType(t, [&](auto tag) {
    if constexpr (std::is_floating_point_v<ComputeOf<typename decltype(tag)::Type>>) f(tag);
  });
  return OPW_OK;
}

int Uniform(const opw_call* c) {
  return VisitFloats(TypeOf(c->results[0]), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    const C low = Load<T>(Operand(c, 1).data, 0), high = Load<T>(Operand(c, 2).data, 0);
    FillRandom<T>(c, KeyOf(c, 0, 1), UniformBlock<C>,
                  [=](int64_t, C u) { return low + u * (high - low); });
  });
}

int Normal(const opw_call* c) {
  return VisitFloats(TypeOf(c->results[0]), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    const C mean = Load<T>(Operand(c, 1).data, 0), std = Load<T>(Operand(c, 2).data, 0);
    FillRandom<T>(c, KeyOf(c, 0, 1), NormalBlock<C>, [=](int64_t, C z) { return mean + std * z; });
  });
}

int Dropout(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  return VisitFloats(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = ComputeOf<T>;
    const C p = Load<float>(Operand(c, 1).data, 0);
    const C keep = C{1} - p;
    FillRandom<T>(c, KeyOf(c, 2, 0), UniformBlock<C>, [&](int64_t i, C u) {
      return u >= p ? Load<T>(x.data, OffsetOf(x, i)) / keep : C{0};
    });
  });
}

}  // namespace

void AddCreateReference(VariantTable& table) {
  const auto add = [&](const char* op, int (*run)(const opw_call*),
                       const char* (*supports)(const opw_call*) = nullptr, uint32_t flags = 0) {
    AddReference(table, op,
                 {OPW_ABI_VERSION, OPW_DETERMINISTIC | flags, supports, nullptr, nullptr, run});
  };
  add("zeros", Zeros);
  add("full", Full);
  add("values", Values);
  add("constant", Constant, ConstantSupports);
  add("arange", Arange);
  add("uniform", Uniform);
  add("normal", Normal);
  add("dropout", Dropout, nullptr, OPW_INPLACE);
}

}  // namespace opwire::ops::create
