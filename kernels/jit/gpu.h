// The interface for GPU code, one source for CUDA and HIP. The RTC compilers see only this header,
// as <opwire/gpu.h>.
//
//   OPW_GLOBAL(256) twice(const opw::f16* x, opw::f16* y, opw::i64 n) {
//     for (opw::i64 i = opw::Index(); i < n; i += opw::Stride()) y[i] = opw::ToF16(2 *
//         opw::ToFloat(x[i]));
//   }
//
// Sums and products are not contracted to fma (use Fma for one), so equal sources round equally on
// all devices.
#ifndef OPWIRE_GPU_H_
#define OPWIRE_GPU_H_

#if defined(OPW_EMU)  // on the CPU: <opwire/emu.h> replaces the compiler's built-ins
#elif defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define OPW_HIP 1
#else
#define OPW_CUDA 1
#endif

// Lanes of a warp: 32, or 64 on AMD's GCN and CDNA.
#if defined(OPW_EMU)
#define OPW_WARP OPW_EMU
#elif defined(OPW_CUDA)
#define OPW_WARP 32
#elif defined(__AMDGCN_WAVEFRONT_SIZE)
#define OPW_WARP __AMDGCN_WAVEFRONT_SIZE
#elif defined(__AMDGCN_WAVEFRONT_SIZE__)
#define OPW_WARP __AMDGCN_WAVEFRONT_SIZE__
#else
#define OPW_WARP 64
#endif

#define OPW_DEVICE __device__ __forceinline__
// A kernel under its plain name, launched with at most `threads` threads per block.
#define OPW_GLOBAL(threads) extern "C" __global__ void __launch_bounds__(threads)
// Before a kernel's parameter that is a struct: it is read in place, without a copy.
#ifdef OPW_CUDA
#define OPW_PARAM const __grid_constant__
#else
#define OPW_PARAM const
#endif

namespace opw {

using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// ---- 16 bytes at once

template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T v[kSize];
};
struct alignas(16) Quad {
  u32 x, y, z, w;
};

// One access of 16 bytes. `p` is aligned to 16.
template <typename T>
OPW_DEVICE Pack<T> Load16(const T* p) {
  const Quad q = *reinterpret_cast<const Quad*>(p);
  Pack<T> out;
  memcpy(&out, &q, 16);
  return out;
}
template <typename T>
OPW_DEVICE void Store16(T* p, const Pack<T>& pack) {
  Quad q;
  memcpy(&q, &pack, 16);
  *reinterpret_cast<Quad*>(p) = q;
}

// One store of 16 bytes to global memory. Compilers split other stores if they see how the words
// are computed. `p` is aligned to 16.
OPW_DEVICE void StoreWhole(void* p, const Quad& q) {
#ifdef OPW_CUDA
  asm volatile(
      "{\n.reg .u64 to;\ncvta.to.global.u64 to, %0;\nst.global.v4.u32 [to], {%1, %2, %3, %4};\n}" ::
          "l"(p),
      "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w)
      : "memory");
#else
  *static_cast<Quad*>(p) = q;
#endif
}

// Copies 16 bytes from global to shared memory, both aligned to 16, while the thread continues. It
// may read them once it has waited for all its copies.
OPW_DEVICE void CopyAsync16(void* shared, const void* global) {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<u32>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#else
  *static_cast<Quad*>(shared) = *static_cast<const Quad*>(global);
#endif
}
OPW_DEVICE void WaitForCopies() {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// ---- Earlier work on the same stream

// Lets the next kernel begin when the device has room, and waits until all earlier work is done and
// visible. GpuDevice::LaunchShape::overlaps launches a kernel early. Before this call such a kernel
// may only compute, request memory that it will read (Prefetch), and read memory that no earlier
// work writes (reads_early).
OPW_DEVICE void AwaitPrevious() {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
}
// Requests memory into the cache that all multiprocessors share. Writes to it meanwhile are
// allowed.
OPW_DEVICE void Prefetch(const void* p) {
#ifdef OPW_CUDA
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

// ---- 16-bit floats: storage only, arithmetic is in float

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

OPW_DEVICE u32 BitsOf(float v) { return __float_as_uint(v); }
OPW_DEVICE float FloatOf(u32 bits) { return __uint_as_float(bits); }

// Exact.
OPW_DEVICE float ToFloat(float v) { return v; }
OPW_DEVICE float ToFloat(bf16 v) { return FloatOf(static_cast<u32>(v.bits) << 16); }
OPW_DEVICE float ToFloat(f16 v) {
#ifdef OPW_CUDA
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(v.bits));
  return out;
#elif defined(OPW_EMU)
  return opw_emu::HalfToFloat(v.bits);
#else
  _Float16 half;
  memcpy(&half, &v.bits, 2);
  return static_cast<float>(half);
#endif
}

// To nearest, ties to even. Values that are too large become an infinity; a NaN stays a NaN.
OPW_DEVICE bf16 ToBF16(float v) {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 800
  bf16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(v));
  return out;
#else
  const u32 bits = BitsOf(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<u16>(bits >> 16 | 0x40)};
  return {static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
#endif
}
OPW_DEVICE f16 ToF16(float v) {
  f16 out;
#ifdef OPW_CUDA
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(v));
#elif defined(OPW_EMU)
  out.bits = opw_emu::FloatToHalf(v);
#else
  const _Float16 half = static_cast<_Float16>(v);
  memcpy(&out.bits, &half, 2);
#endif
  return out;
}
// Two at a time, the first in the low half: the same values, with one instruction if the device has
// it.
OPW_DEVICE u32 ToBF16Pair(float low, float high) {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 800
  u32 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  return ToBF16(low).bits | static_cast<u32>(ToBF16(high).bits) << 16;
#endif
}
OPW_DEVICE u32 ToF16Pair(float low, float high) {
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 800
  u32 out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  return ToF16(low).bits | static_cast<u32>(ToF16(high).bits) << 16;
#endif
}
// For code that works with all three types.
OPW_DEVICE void FromFloat(float v, float& out) { out = v; }
OPW_DEVICE void FromFloat(float v, f16& out) { out = ToF16(v); }
OPW_DEVICE void FromFloat(float v, bf16& out) { out = ToBF16(v); }

// Returns the same bits, hidden from the compiler: it computes from them again instead of keeping
// earlier results.
OPW_DEVICE u32 Opaque(u32 v) {
#ifdef OPW_CUDA
  asm volatile("" : "+r"(v));
#else
  asm volatile("" : "+v"(v));
#endif
  return v;
}

// ---- Position of a thread, along x, in 64 bits

OPW_DEVICE i64 Index() { return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; }
OPW_DEVICE i64 Stride() { return static_cast<i64>(gridDim.x) * blockDim.x; }
OPW_DEVICE int Lane() { return static_cast<int>(threadIdx.x) & (OPW_WARP - 1); }
OPW_DEVICE int Warp() { return static_cast<int>(threadIdx.x) / OPW_WARP; }

// ---- Shuffles and reductions, of 4- and 8-byte numbers. All lanes of the warp take part; a block
// is one-dimensional and has whole warps.

template <typename T>
OPW_DEVICE T ShuffleXor(T v, int mask) {
#ifdef OPW_CUDA
  return __shfl_xor_sync(0xffffffffu, v, mask);
#else
  return __shfl_xor(v, mask, OPW_WARP);
#endif
}
template <typename T>
OPW_DEVICE T ShuffleFrom(T v, int lane) {
#ifdef OPW_CUDA
  return __shfl_sync(0xffffffffu, v, lane);
#else
  return __shfl(v, lane, OPW_WARP);
#endif
}
// From the lane `by` below; the first `by` lanes get their own value.
template <typename T>
OPW_DEVICE T ShuffleUp(T v, int by) {
#ifdef OPW_CUDA
  return __shfl_up_sync(0xffffffffu, v, by);
#else
  return __shfl_up(v, by, OPW_WARP);
#endif
}

// One bit for each lane of the warp: whether its predicate holds.
OPW_DEVICE u64 Ballot(bool predicate) {
#ifdef OPW_CUDA
  return __ballot_sync(0xffffffffu, predicate);
#else
  return __ballot(predicate);
#endif
}

// For all lanes of the warp: none continues before the others arrive, and compilers move no memory
// access across it.
OPW_DEVICE void WarpBarrier() {
#ifdef OPW_CUDA
  __syncwarp();
#endif
}

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// For floats a NaN if one operand is NaN.
struct Max {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

// Every lane gets the same bits, in every run: the order is fixed.
template <typename T, typename Op>
OPW_DEVICE T WarpReduce(T v, Op op) {
  for (int mask = OPW_WARP / 2; mask > 0; mask /= 2) v = op(v, ShuffleXor(v, mask));
  return ShuffleFrom(v, 0);
}
// Every thread of the block gets the result. `identity` leaves the other operand of `op` unchanged.
template <typename T, typename Op>
OPW_DEVICE T BlockReduce(T v, Op op, T identity) {
  __shared__ T warps[1024 / OPW_WARP];
  v = WarpReduce(v, op);
  __syncthreads();  // an earlier reduction may still be read
  if (Lane() == 0) warps[Warp()] = v;
  __syncthreads();
  return WarpReduce(Lane() < static_cast<int>(blockDim.x) / OPW_WARP ? warps[Lane()] : identity,
                    op);
}

// ---- Products of tiles, by warps of 32

#if !defined(OPW_HIP) && OPW_WARP == 32
// All lanes of a warp compute d += a b together: a has 16 x 16, b 16 x 8 and d 16 x 8 elements.
// Sums are in f32; elements of a and b, f16 or bf16, come in pairs, the first in the low half. Let
// g = lane / 4 and t = lane % 4 for each lane. Of `a` it has row g in words 0 and 2, and row g + 8
// in the others. Words 0 and 1 are of columns 2t and 2t + 1, words 2 and 3 of the columns 8
// further. Of `b` it has column g: in word 0 rows 2t and 2t + 1, in word 1 the rows 8 further. Of
// `d` it has row g in elements 0 and 1, and row g + 8 in the others, at columns 2t and 2t + 1 of
// the tile. This is the layout of mma.m16n8k16 of PTX, for sm_80 and up.
template <typename T>
OPW_DEVICE void MultiplyTile(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]);
#ifdef OPW_CUDA
template <>
OPW_DEVICE void MultiplyTile<bf16>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
OPW_DEVICE void MultiplyTile<f16>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
template <typename T>
OPW_DEVICE void MultiplyTile(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  const auto value = [](u32 word, int half) {
    return ToFloat(T{static_cast<u16>(word >> (16 * half))});
  };
  const int g = Lane() / 4, t = Lane() % 4;
  for (int at = 0; at < 4; ++at) {
    u32 rows[4], columns[2][2];
    for (int w = 0; w < 4; ++w) rows[w] = ShuffleFrom(a[w], g * 4 + at);
    for (int w = 0; w < 4; ++w)
      columns[w / 2][w % 2] = ShuffleFrom(b[w % 2], (2 * t + w / 2) * 4 + at);
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 4; ++k)
        d[i] += value(rows[i / 2 + k / 2 * 2], k % 2) * value(columns[i % 2][k / 2], k % 2);
    }
  }
}
#endif
#endif

// ---- Clusters: blocks that run together and read each other's shared memory. CUDA from sm_90 on,
// in kernels that are compiled for them (__cluster_dims__).

#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
// All threads of the cluster's blocks arrive, and wait for each other: afterwards they see earlier
// writes. Work between the two calls need not wait. A block may access another's memory only after
// both have arrived once. It may end only when no block will access its memory.
OPW_DEVICE void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
OPW_DEVICE void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
OPW_DEVICE void ClusterBarrier() {
  ClusterArrive();
  ClusterWait();
}
// The address in block `rank` of the cluster that corresponds to this block's `shared`.
template <typename T>
OPW_DEVICE T* InBlock(T* shared, int rank) {
  u64 out;
  asm("mapa.u64 %0, %1, %2;" : "=l"(out) : "l"(reinterpret_cast<u64>(shared)), "r"(rank));
  return reinterpret_cast<T*>(out);
}
#endif

// ---- Functions, by the compiler's own; float here, double by the same names

#define OPW_UNARY(NAME, FLOAT, DOUBLE)                \
  OPW_DEVICE float NAME(float x) { return FLOAT(x); } \
  OPW_DEVICE double NAME(double x) { return DOUBLE(x); }
OPW_UNARY(Exp, expf, exp)
OPW_UNARY(Expm1, expm1f, expm1)
OPW_UNARY(Log, logf, log)
OPW_UNARY(Log1p, log1pf, log1p)
OPW_UNARY(Sqrt, sqrtf, sqrt)
OPW_UNARY(Tanh, tanhf, tanh)
OPW_UNARY(Erf, erff, erf)
OPW_UNARY(Floor, floorf, floor)
OPW_UNARY(Abs, fabsf, fabs)
#undef OPW_UNARY
OPW_DEVICE float Fma(float a, float b, float c) { return fmaf(a, b, c); }
OPW_DEVICE double Fma(double a, double b, double c) { return fma(a, b, c); }
// To 2 ulp below 2^40. Above, neighbouring floats are full turns apart, so an angle counts as 0.
// The compilers' own sincosf has branches, and an array on the stack for large angles.
OPW_DEVICE void SineAndCosine(float x, float& sine, float& cosine) {
#ifdef OPW_EMU
  sine = sinf(x), cosine = cosf(x);
#else
  // The remainder of quarters of a circle, in f64: pi / 2 in two parts. Then the polynomials of
  // Cephes (Moshier), within pi / 4 of 0.
  const double quarters = rint(static_cast<double>(x) * 0.63661977236758134);
  const float left =
      static_cast<float>(fma(quarters, -6.123233995736766e-17,
                             fma(quarters, -1.5707963267948966, static_cast<double>(x))));
  const bool known = fabsf(x) < 1.0995116e12f;
  const float r = known ? left : 0.0f * x, z = r * r;
  const float s =
      fmaf(r * z, fmaf(z, fmaf(z, -1.9515295891e-4f, 8.3321608736e-3f), -1.6666654611e-1f), r);
  const float c = fmaf(
      z * z, fmaf(z, fmaf(z, 2.443315711809948e-5f, -1.388731625493765e-3f), 4.166664568298827e-2f),
      fmaf(z, -0.5f, 1.0f));
  const int turn = known ? static_cast<int>(static_cast<long long>(quarters) & 3) : 0;
  const float a = (turn & 1) != 0 ? c : s, b = (turn & 1) != 0 ? s : c;
  sine = (turn & 2) != 0 ? -a : a;
  cosine = turn == 1 || turn == 2 ? -b : b;
#endif
}
OPW_DEVICE void SineAndCosine(double x, double& sine, double& cosine) {
#ifdef OPW_EMU
  sine = sin(x), cosine = cos(x);
#else
  sincos(x, &sine, &cosine);
#endif
}
// If one operand is NaN, the other one.
OPW_DEVICE float Larger(float a, float b) { return fmaxf(a, b); }
OPW_DEVICE double Larger(double a, double b) { return fmax(a, b); }
// 2^x to 2 ulp.
OPW_DEVICE float Exp2Near(float x) {
#ifdef OPW_CUDA
  float out;
  asm("ex2.approx.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return exp2f(x);
#endif
}
// 1 / x to 2 ulp; below 2^-126 x and the result count as 0.
OPW_DEVICE float RecipFast(float x) {
#ifdef OPW_CUDA
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return 1 / x;
#endif
}
// 1 / sqrt(x) to 2 ulp.
OPW_DEVICE float InverseSqrtFast(float x) {
#ifdef OPW_CUDA
  float out;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return rsqrtf(x);
#endif
}
// 2^x to 2 ulp; results below 2^-126 may become 0.
OPW_DEVICE float Exp2Fast(float x) {
#ifdef OPW_CUDA
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#elif defined(OPW_HIP) && __has_builtin(__builtin_amdgcn_exp2f)  // from LLVM 17 on
  return __builtin_amdgcn_exp2f(x);
#else
  return exp2f(x);
#endif
}

}  // namespace opw

#endif  // OPWIRE_GPU_H_
