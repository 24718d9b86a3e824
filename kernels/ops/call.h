// How kernels read a call: operands, attributes, shapes and indices. Not for files built for an
// instruction set.
#ifndef OPWIRE_KERNELS_OPS_CALL_H_
#define OPWIRE_KERNELS_OPS_CALL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "ir/base/dtype.h"
#include "kernels/abi.h"

namespace opwire::ops {

// Operand i of the row; for a list its first element.
inline const opw_tensor& Operand(const opw_call* c, int i) { return c->operands[c->starts[i]]; }
inline int64_t ListSize(const opw_call* c, int i) { return c->starts[i + 1] - c->starts[i]; }
inline bool Absent(const opw_tensor& t) { return t.dtype == 0; }
inline DType TypeOf(const opw_tensor& t) { return static_cast<DType>(t.dtype); }
inline int64_t BytesOf(const opw_tensor& t) { return t.elements * DTypeBytes(TypeOf(t)); }
inline std::string_view Text(const opw_attr& a) {
  return {a.value.bytes, static_cast<size_t>(a.count)};
}

inline int Axis(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

// The 0-d or flat element of an index operand, read exactly once, whatever its type.
inline int64_t LoadIndex(const opw_tensor& t, int64_t offset) {
  return TypeOf(t) == DType::kI64
             ? __atomic_load_n(static_cast<const int64_t*>(t.data) + offset, __ATOMIC_RELAXED)
             : __atomic_load_n(static_cast<const int32_t*>(t.data) + offset, __ATOMIC_RELAXED);
}

// The same for a loop over an index operand: calls f(pointer to its type).
template <typename F>
decltype(auto) VisitIndex(const opw_tensor& t, const F& f) {
  return TypeOf(t) == DType::kI64 ? f(static_cast<const int64_t*>(t.data))
                                  : f(static_cast<const int32_t*>(t.data));
}

// `value` in [-extent, extent) as a position in [0, extent); -1 for all others.
inline int64_t WrapIndex(int64_t value, int64_t extent) {
  const uint64_t wrapped =
      static_cast<uint64_t>(value) + (value < 0 ? static_cast<uint64_t>(extent) : 0);
  return wrapped < static_cast<uint64_t>(extent) ? static_cast<int64_t>(wrapped) : -1;
}

// Calls f(begin, end) over the ranges of [0, n).
template <typename F>
void ParallelFor(const opw_call* c, int64_t n, int64_t grain, const F& f) {
  c->runtime->parallel_for(
      c->runtime, n, grain,
      [](void* context, int64_t begin, int64_t end) {
        (*static_cast<const F*>(context))(begin, end);
      },
      const_cast<F*>(&f));
}

// Whether the run was stopped: then a single requested range does not begin. For loops inside a
// range that may take milliseconds.
inline bool Stopped(const opw_call* c) {
  bool began = false;
  ParallelFor(c, 1, 1, [&](int64_t, int64_t) { began = true; });
  return !began;
}

// A position in a shape, in row-major order from a flat start, with its offset in up to kTensors
// tensors. Axes are the shape's; a stride of 0 repeats.
template <int kTensors>
class Walk {
 public:
  Walk(int rank, const int64_t* shape) : rank_(rank), shape_(shape) {
    std::fill_n(&strides_[0][0], kTensors * OPW_MAX_RANK, 0);
  }

  void SetStride(int tensor, int axis, int64_t stride) { strides_[tensor][axis] = stride; }
  // The tensor's shape is broadcast to this one by NumPy's rule.
  void SetBroadcast(int tensor, const opw_tensor& t) {
    const int shift = rank_ - t.rank;
    for (int a = 0; a < t.rank; ++a)
      strides_[tensor][a + shift] = t.shape[a] == 1 ? 0 : t.strides[a];
  }

  // REQUIRES: every extent is > 0.
  void Start(int64_t flat) {
    for (int t = 0; t < kTensors; ++t) offsets_[t] = 0;
    for (int a = rank_ - 1; a >= 0; --a) {
      index_[a] = flat % shape_[a];
      flat /= shape_[a];
      for (int t = 0; t < kTensors; ++t) offsets_[t] += index_[a] * strides_[t][a];
    }
  }
  void Next() {
    for (int a = rank_ - 1; a >= 0; --a) {
      for (int t = 0; t < kTensors; ++t) offsets_[t] += strides_[t][a];
      if (++index_[a] < shape_[a]) return;
      for (int t = 0; t < kTensors; ++t) offsets_[t] -= shape_[a] * strides_[t][a];
      index_[a] = 0;
    }
  }
  int64_t offset(int tensor) const { return offsets_[tensor]; }
  int64_t index(int axis) const { return index_[axis]; }

 private:
  int rank_;
  const int64_t* shape_;
  int64_t strides_[kTensors][OPW_MAX_RANK];
  int64_t offsets_[kTensors] = {};
  int64_t index_[OPW_MAX_RANK] = {};
};

// The offset of a row-major flat position.
inline int64_t OffsetOf(const opw_tensor& t, int64_t flat) {
  if (t.contiguous) return flat;
  int64_t offset = 0;
  for (int a = t.rank - 1; a >= 0; --a) {
    offset += flat % t.shape[a] * t.strides[a];
    flat /= t.shape[a];
  }
  return offset;
}

// Elements of a range of reference work: a stop word is then read within milliseconds. A loop over
// more elements inside one range calls Stopped at this interval.
inline constexpr int64_t kReferenceGrain = 16384;
inline bool StoppedAt(const opw_call* c, int64_t i) {
  return i % kReferenceGrain == kReferenceGrain - 1 && Stopped(c);
}

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_CALL_H_
