// What kernels of columns call beside the primitives and the reductions: accesses of a few
// elements, in one where they are aligned for it.
#include "kernels/fused/gpu_rows.cuh"
#include "kernels/ops/reduce/gpu.cuh"

namespace opw {

template <int kItems, bool kAligned, typename T>
OPW_DEVICE Wide<T, kItems> LoadColumns(const T* p) {
  if constexpr (kAligned)
    return LoadItems<kItems>(p);
  else
    return GatherItems<kItems>(p, 1);
}
// What rounds to elements of T on its way, or elements as they are.
template <typename T, int kItems, bool kAligned>
OPW_DEVICE void StoreColumns(T* p, const float (&v)[kItems]) {
  if constexpr (kAligned)
    StoreRounded<T, kItems>(p, v);
  else
    ScatterItems<T, kItems>(p, 1, v);
}
template <typename T, int kItems, bool kAligned>
OPW_DEVICE void StoreColumns(T* p, const Vector<T, kItems>& v) {
  if constexpr (kAligned)
    StoreVector<T, kItems>(p, v);
  else
    ScatterItems<T, kItems>(p, 1, v);
}

}  // namespace opw
