// Ops that only move elements, one element at a time.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/shape/shape.h"
#include "kernels/ops/shape/slice_bounds.h"

namespace opwire::ops::shape {
namespace {

// Copies `n` elements walked by `to` (tensor 0 of the walk) from `from` (tensor 1).
void CopyWalk(const opw_call* c, const Walk<2>& walk, int64_t n, void* to, const void* from,
              int64_t bytes) {
  VisitBits(bytes, [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, n, kReferenceGrain, [&](int64_t begin, int64_t end) {
      Walk<2> w = walk;
      w.Start(begin);
      for (int64_t i = begin; i < end; ++i, w.Next()) {
        static_cast<U*>(to)[w.offset(0)] = static_cast<const U*>(from)[w.offset(1)];
      }
    });
  });
}

int Reshape(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  VisitBits(DTypeBytes(TypeOf(x)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        static_cast<U*>(y.data)[OffsetOf(y, i)] = static_cast<const U*>(x.data)[OffsetOf(x, i)];
      }
    });
  });
  return OPW_OK;
}

int Permute(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  Walk<2> walk(y.rank, y.shape);
  walk.SetBroadcast(0, y);
  for (int a = 0; a < y.rank; ++a)
    walk.SetStride(1, a, x.strides[Axis(c->attrs[0].value.ints[a], y.rank)]);
  CopyWalk(c, walk, y.elements, y.data, x.data, DTypeBytes(TypeOf(x)));
  return OPW_OK;
}

int Expand(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  Walk<2> walk(y.rank, y.shape);
  walk.SetBroadcast(0, y);
  walk.SetBroadcast(1, x);
  CopyWalk(c, walk, y.elements, y.data, x.data, DTypeBytes(TypeOf(x)));
  return OPW_OK;
}

int Cat(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  const int64_t bytes = DTypeBytes(TypeOf(y));
  const int dim = Axis(c->attrs[0].value.i, y.rank);
  int64_t at = 0;  // along dim
  for (int64_t i = 0; i < ListSize(c, 0); ++i) {
    const opw_tensor& x = c->operands[c->starts[0] + i];
    Walk<2> walk(x.rank, x.shape);
    for (int a = 0; a < x.rank; ++a) {
      walk.SetStride(0, a, y.strides[a]);
      walk.SetStride(1, a, x.strides[a]);
    }
    CopyWalk(c, walk, x.elements, static_cast<char*>(y.data) + at * y.strides[dim] * bytes, x.data,
             bytes);
    at += x.shape[dim];
  }
  return OPW_OK;
}

int Tile(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const int shift = y.rank - x.rank;
  VisitBits(DTypeBytes(TypeOf(x)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      Walk<1> walk(y.rank, y.shape);
      walk.SetBroadcast(0, y);
      walk.Start(begin);
      for (int64_t i = begin; i < end; ++i, walk.Next()) {
        int64_t from = 0;
        for (int a = 0; a < x.rank; ++a) from += walk.index(a + shift) % x.shape[a] * x.strides[a];
        static_cast<U*>(y.data)[walk.offset(0)] = static_cast<const U*>(x.data)[from];
      }
    });
  });
  return OPW_OK;
}

int Slice(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  const int dim = Axis(c->attrs[0].value.i, x.rank);
  const int64_t step = c->attrs[2].value.i, extent = x.shape[dim];
  const int64_t start = LoadIndex(Operand(c, 1), 0);
  const int64_t first = WrapIndex(start, extent);
  if (y.elements == 0) return OPW_OK;
  VisitBits(DTypeBytes(TypeOf(x)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      Walk<2> walk(y.rank, y.shape);
      walk.SetBroadcast(0, y);
      for (int a = 0; a < y.rank; ++a) walk.SetStride(1, a, a == dim ? 0 : x.strides[a]);
      walk.Start(begin);
      bool outside = false;
      for (int64_t i = begin; i < end; ++i, walk.Next()) {
        int64_t moved, at;
        const bool inside = first >= 0 && !__builtin_mul_overflow(walk.index(dim), step, &moved) &&
                            !__builtin_add_overflow(first, moved, &at) &&
                            static_cast<uint64_t>(at) < static_cast<uint64_t>(extent);
        static_cast<U*>(y.data)[walk.offset(0)] =
            inside ? static_cast<const U*>(x.data)[walk.offset(1) + at * x.strides[dim]] : U{0};
        outside |= !inside;
      }
      if (outside) c->runtime->out_of_range(c->runtime, 1, 0);
    });
  });
  return OPW_OK;
}

int UpdateSlice(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& v = Operand(c, 1);
  const opw_tensor& y = c->results[0];
  const SliceBounds bounds(c);
  const bool sets = bounds.Check(c);
  if (y.elements == 0) return OPW_OK;
  VisitBits(DTypeBytes(TypeOf(x)), [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      Walk<2> walk(y.rank, y.shape);
      walk.SetBroadcast(0, y);
      for (int a = 0; a < y.rank; ++a) walk.SetStride(1, a, x.strides[a]);
      walk.Start(begin);
      for (int64_t i = begin; i < end; ++i, walk.Next()) {
        bool inside = sets;
        int64_t from = 0;
        for (int a = 0; a < y.rank && inside; ++a) {
          const int64_t past = walk.index(a) - bounds.first[a], at = past / bounds.step[a];
          inside = past >= 0 && past % bounds.step[a] == 0 && at < v.shape[a];
          from += at * v.strides[a];
        }
        static_cast<U*>(y.data)[walk.offset(0)] =
            inside ? static_cast<const U*>(v.data)[from]
                   : static_cast<const U*>(x.data)[walk.offset(1)];
      }
    });
  });
  return OPW_OK;
}

}  // namespace

void AddMoveReference(VariantTable& table) {
  const auto add = [&](const char* op, int (*run)(const opw_call*), uint32_t more = 0) {
    AddReference(table, op,
                 {OPW_ABI_VERSION, OPW_DETERMINISTIC | more, nullptr, nullptr, nullptr, run});
  };
  add("reshape", Reshape);
  add("recompute", Reshape);
  add("permute", Permute);
  add("expand", Expand);
  add("cat", Cat);
  add("tile", Tile);
  add("slice", Slice);
  add("slice_update", UpdateSlice, OPW_INPLACE);
}

}  // namespace opwire::ops::shape
