// sort, argsort and topk: a heap of the first elements so far, in the result's own memory.
#include "ir/scalar/scalar.h"
#include "kernels/ops/families.h"
#include "kernels/ops/sort/sort.h"

namespace opwire::ops::sort {
namespace {

// Whether `a` is smaller: a NaN is larger than all numbers.
template <typename C>
bool Smaller(C a, C b) {
  return a < b || (b != b && a == a);
}

// The positions of a slice's elements that come first in order, as a heap. Its top is the last one
// of them.
template <typename T>
class Heap {
 public:
  Heap(const T* x, int64_t stride, bool descending, int64_t* positions, int64_t positions_stride)
      : x_(x),
        stride_(stride),
        descending_(descending),
        positions_(positions),
        positions_stride_(positions_stride) {}

  int64_t& operator[](int64_t i) const { return positions_[i * positions_stride_]; }
  bool GoesBefore(int64_t a, int64_t b) const {
    const auto va = Load<T>(x_, a * stride_), vb = Load<T>(x_, b * stride_);
    if (Smaller(va, vb)) return !descending_;
    if (Smaller(vb, va)) return descending_;
    return a < b;
  }
  void Push(int64_t position) {
    int64_t at = size_++;
    for (; at > 0 && GoesBefore((*this)[(at - 1) / 2], position); at = (at - 1) / 2)
      (*this)[at] = (*this)[(at - 1) / 2];
    (*this)[at] = position;
  }
  void ReplaceTop(int64_t position) {
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < size_; at = child) {
      if (child + 1 < size_ && GoesBefore((*this)[child], (*this)[child + 1])) ++child;
      if (GoesBefore((*this)[child], position)) break;
      (*this)[at] = (*this)[child];
    }
    (*this)[at] = position;
  }
  // Leaves the positions in order.
  void Finish() {
    while (size_ > 1) {
      const int64_t top = (*this)[0], last = (*this)[--size_];
      ReplaceTop(last);
      (*this)[size_] = top;
    }
  }

 private:
  const T* const x_;
  const int64_t stride_;
  const bool descending_;
  int64_t* const positions_;
  const int64_t positions_stride_;
  int64_t size_ = 0;
};

template <SortOp kOp>
int Run(const opw_call* c) {
  const Ordering o(c, kOp);
  if (o.indices.elements == 0) return OPW_OK;
  int64_t shape[OPW_MAX_RANK];
  std::copy_n(o.x.shape, o.x.rank, shape);
  shape[o.dim] = 1;
  VisitType(TypeOf(o.x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ParallelFor(c, o.x.elements / o.extent, std::max<int64_t>(1, kReferenceGrain / o.extent),
                [&](int64_t begin, int64_t end) {
                  Walk<3> slices(o.x.rank, shape);
                  for (int a = 0; a < o.x.rank; ++a) {
                    slices.SetStride(0, a, o.x.strides[a]);
                    slices.SetStride(1, a, o.indices.strides[a]);
                    if (o.values != nullptr) slices.SetStride(2, a, o.values->strides[a]);
                  }
                  slices.Start(begin);
                  for (int64_t s = begin; s < end; ++s, slices.Next()) {
                    const T* const x = static_cast<const T*>(o.x.data) + slices.offset(0);
                    Heap<T> heap(x, o.x.strides[o.dim], o.descending,
                                 static_cast<int64_t*>(o.indices.data) + slices.offset(1),
                                 o.indices.strides[o.dim]);
                    for (int64_t i = 0; i < o.extent; ++i) {
                      if (StoppedAt(c, i)) return;
                      if (i < o.count)
                        heap.Push(i);
                      else if (heap.GoesBefore(i, heap[0]))
                        heap.ReplaceTop(i);
                    }
                    heap.Finish();
                    if (o.values == nullptr) continue;
                    T* const values = static_cast<T*>(o.values->data) + slices.offset(2);
                    for (int64_t i = 0; i < o.count; ++i)
                      values[i * o.values->strides[o.dim]] = x[heap[i] * o.x.strides[o.dim]];
                  }
                });
  });
  return OPW_OK;
}

}  // namespace

void AddSortReference(VariantTable& table) {
  AddReference(table, "sort",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Run<SortOp::kSort>});
  AddReference(
      table, "argsort",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Run<SortOp::kArgsort>});
  AddReference(table, "topk",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Run<SortOp::kTopk>});
}

}  // namespace opwire::ops::sort
