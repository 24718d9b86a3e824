// Parts of matrix kernels for Hopper: barriers in shared memory, copies of tiles by the copy
// engine, products of tiles by four warps. Thin wrappers of PTX, for sm_90a only.
#ifndef OPWIRE_KERNELS_OPS_GPU_HOPPER_CUH_
#define OPWIRE_KERNELS_OPS_GPU_HOPPER_CUH_

#include "kernels/ops/gpu/rows.cuh"

namespace opw::hopper {

OPW_DEVICE u32 SharedAddress(const void* shared) {
  return static_cast<u32>(__cvta_generic_to_shared(shared));
}

// ---- Barriers: a phase ends when all threads have arrived and all expected bytes have been copied

struct Barrier {
  u64 state;
};
// Call on one thread, before other threads of the cluster use the barrier. PublishBarriers and a
// cluster barrier must follow first.
OPW_DEVICE void Start(Barrier& b, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(&b)), "r"(arrivals)
               : "memory");
}
OPW_DEVICE void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and makes the phase last until `bytes` bytes have been copied.
OPW_DEVICE void ArriveExpecting(Barrier& b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(&b)),
               "r"(bytes)
               : "memory");
}
// Arrives at the same barrier of block `rank` of the cluster. It orders products and copies, which
// have been waited for separately, but no stores: those would need a fence of all device memory
// each time.
OPW_DEVICE void ArriveIn(Barrier& b, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, "
      "%1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(SharedAddress(&b)),
      "r"(rank)
      : "memory");
}
// Waits until a phase of this parity has ended. A new barrier counts as if a phase of parity 1 had
// ended. Only the current phase and the one before it are distinguished.
OPW_DEVICE void WaitFor(Barrier& b, u32 parity) {
  u32 done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, "
        "0, p;\n}"
        : "=r"(done)
        : "r"(SharedAddress(&b)), "r"(parity)
        : "memory");
  }
}

// ---- Tiles, copied by one thread. Their rows have 128 bytes, swizzled as `map` defines; elements
// outside of the matrix are 0

// Copies the tile at (column, row) of the matrix to shared memory at `to`, 1024-byte aligned. Its
// bytes count for the barrier.
OPW_DEVICE void CopyTile(u32 to, const TileMap& map, int column, int row, Barrier& b) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(SharedAddress(&b))
      : "memory");
}
// The same for the blocks of the cluster whose bits are set, each at `to`, and for the barrier of
// each.
OPW_DEVICE void CopyTileTo(u16 blocks, u32 to, const TileMap& map, int column, int row,
                           Barrier& b) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(SharedAddress(&b)), "h"(blocks)
      : "memory");
}

// ---- Products by the four warps of a warpgroup

// Registers per thread, for all warps of a warpgroup: fewer, so that others can have more.
template <int kCount>
OPW_DEVICE void KeepRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
OPW_DEVICE void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Later products see registers and shared memory as they are now.
OPW_DEVICE void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Products since the previous call are one group.
OPW_DEVICE void EndProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until all groups except the last kGroups are done.
template <int kGroups>
OPW_DEVICE void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// Compilers move no use of `sums` across it.
template <int kCount>
OPW_DEVICE void Pin(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// The descriptor of a tile in shared memory for products. Its rows are 128 bytes, swizzled, and
// eight of them are 1024 bytes. Adding 2 moves it by 32 bytes along the rows.
OPW_DEVICE u64 TileAt(u32 shared) {
  return (u64{1} << 62) | (u64{1024 >> 4} << 32) | (u64{1} << 16) | ((shared & 0x3ffff) >> 4);
}

// sums += x y', for a tile x of 64 rows and a tile y of 2 kCount rows, with 16 terms each, f16 or
// bf16. Without `adds`, sums = x y'. Thread t has in sums[4 j + 2 h + e] the row t / 32 * 16 + t %
// 32 / 4 + 8 h and the column 8 j + t % 4 * 2 + e. The sums are valid after waiting for the
// products. kCount: 64, 96, 112 or 128.
template <typename T, int kCount>
OPW_DEVICE void MultiplyTiles(float (&sums)[kCount], u64 x, u64 y, bool adds);

#define OPW_FOUR(a, i) "+f"(a[i]), "+f"(a[i + 1]), "+f"(a[i + 2]), "+f"(a[i + 3])
#define OPW_SIXTEEN(a, i) \
  OPW_FOUR(a, i), OPW_FOUR(a, i + 4), OPW_FOUR(a, i + 8), OPW_FOUR(a, i + 12)
#define OPW_64(a) OPW_SIXTEEN(a, 0), OPW_SIXTEEN(a, 16), OPW_SIXTEEN(a, 32), OPW_SIXTEEN(a, 48)
#define OPW_96(a) OPW_64(a), OPW_SIXTEEN(a, 64), OPW_SIXTEEN(a, 80)
#define OPW_112(a) OPW_96(a), OPW_SIXTEEN(a, 96)
#define OPW_128(a) OPW_112(a), OPW_SIXTEEN(a, 112)
#define OPW_NAMES_64                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"             \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OPW_NAMES_96                                                                 \
  OPW_NAMES_64                                                                       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define OPW_NAMES_112                                                                        \
  OPW_NAMES_96                                                                               \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
  "%111"
#define OPW_NAMES_128                                                                      \
  OPW_NAMES_112                                                                            \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
  "%126, %127"
// x, y and `adds` come after the sums.
#define OPW_MULTIPLY(TYPE, NAME, COUNT, COLUMNS, X, Y, ADDS)                                 \
  template <>                                                                                \
  OPW_DEVICE void MultiplyTiles<TYPE, COUNT>(float(&sums)[COUNT], u64 x, u64 y, bool adds) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADDS                                    \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." NAME "." NAME  \
                 " {" OPW_NAMES_##COUNT "}, " X ", " Y ", p, 1, 1, 0, 0;\n}"                 \
                 : OPW_##COUNT(sums)                                                         \
                 : "l"(x), "l"(y), "r"(static_cast<u32>(adds)));                             \
  }
#define OPW_MULTIPLY_ALL(TYPE, NAME)                           \
  OPW_MULTIPLY(TYPE, NAME, 64, "128", "%64", "%65", "%66")     \
  OPW_MULTIPLY(TYPE, NAME, 96, "192", "%96", "%97", "%98")     \
  OPW_MULTIPLY(TYPE, NAME, 112, "224", "%112", "%113", "%114") \
  OPW_MULTIPLY(TYPE, NAME, 128, "256", "%128", "%129", "%130")
OPW_MULTIPLY_ALL(bf16, "bf16")
OPW_MULTIPLY_ALL(f16, "f16")
#undef OPW_MULTIPLY_ALL
#undef OPW_MULTIPLY
#undef OPW_NAMES_128
#undef OPW_NAMES_112
#undef OPW_NAMES_96
#undef OPW_NAMES_64
#undef OPW_128
#undef OPW_112
#undef OPW_96
#undef OPW_64
#undef OPW_SIXTEEN
#undef OPW_FOUR

}  // namespace opw::hopper

#endif  // OPWIRE_KERNELS_OPS_GPU_HOPPER_CUH_
