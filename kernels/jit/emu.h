// The built-ins of CUDA's and HIP's compilers for GPU code that a C++ compiler builds to run on the
// CPU. Units of the emulator include it first, as <opwire/emu.h>. OPW_EMU is the number of lanes of
// a wave. No system header is included, as most would take longer to read than a unit.
#ifndef OPWIRE_EMU_H_
#define OPWIRE_EMU_H_

#include <opwire/emu_machine.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __shared__ static __attribute__((used))  // written by the emulator too
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

using size_t = decltype(sizeof(0));
using cudaStream_t = void*;

// ---- The unit and its kernels

// In .data: .bss is the block's shared memory, whose bounds the linker defines.
__attribute__((section(".data"))) static opw_emu::Machine opw_emu_machine;
extern "C" __attribute__((visibility("hidden"))) unsigned char __bss_start[], _end[];

// The compiler appends this to a unit.
#define OPW_EMU_UNIT(NAME)                                                      \
  extern "C" __attribute__((visibility("default"))) opw_emu::Unit opw_emu_unit; \
  opw_emu::Unit opw_emu_unit = {NAME, &opw_emu_machine, __bss_start, _end, OPW_EMU};

namespace opw_emu {

template <int... kIndex>
struct Indices {};
template <int kCount, int... kIndex>
struct CountedTo {
  using Type = typename CountedTo<kCount - 1, kCount - 1, kIndex...>::Type;
};
template <int... kIndex>
struct CountedTo<0, kIndex...> {
  using Type = Indices<kIndex...>;
};

template <auto kFunction, typename F>
struct Signature;
template <auto kFunction, typename... P>
struct Signature<kFunction, void (*)(P...)> {
  static constexpr int kCount = sizeof...(P);
  static constexpr unsigned kBytes[sizeof...(P) + 1] = {sizeof(P)...};
  template <int... kIndex>
  static void Unpack(void** params, Indices<kIndex...>) {
    kFunction(*static_cast<P*>(params[kIndex])...);
  }
  static void Call(void** params) { Unpack(params, typename CountedTo<kCount>::Type()); }
};
constexpr int First(int threads, ...) { return threads; }

}  // namespace opw_emu

// The launch bounds follow the name, as in __launch_bounds__.
#define OPW_EMU_KERNEL(NAME, ...)                                                              \
  extern "C" __attribute__((visibility("default"))) opw_emu::Kernel opw_emu_kernel_##NAME;     \
  opw_emu::Kernel opw_emu_kernel_##NAME = {opw_emu::Signature<&NAME, decltype(&NAME)>::Call,   \
                                           opw_emu::First(__VA_ARGS__),                        \
                                           opw_emu::Signature<&NAME, decltype(&NAME)>::kCount, \
                                           opw_emu::Signature<&NAME, decltype(&NAME)>::kBytes};

// ---- Position of a thread, and waiting

#define threadIdx (opw_emu_machine.thread)
#define blockIdx (opw_emu_machine.block)
#define blockDim (opw_emu_machine.block_dim)
#define gridDim (opw_emu_machine.grid_dim)
static constexpr int warpSize = OPW_EMU;
using dim3 = opw_emu::Dim3;

inline void __syncthreads() { (void)opw_emu_machine.barrier(0); }
inline int __syncthreads_count(int predicate) { return opw_emu_machine.barrier(predicate); }
inline int __syncthreads_or(int predicate) { return opw_emu_machine.barrier(predicate) != 0; }
inline int __syncthreads_and(int predicate) { return opw_emu_machine.barrier(!predicate) == 0; }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() {
  opw_emu_machine.fault("a trap", "", 0, 0);
  __builtin_unreachable();
}

namespace opw_emu {

inline constexpr unsigned long long kAllLanes = OPW_EMU == 64 ? ~0ull : 0xffffffffull;
inline unsigned long long Meet(Meeting meeting, unsigned long long mask, unsigned long long value,
                               int source = 0) {
  return opw_emu_machine.meet(meeting, mask & kAllLanes, value, source);
}
inline int Lane() { return static_cast<int>(opw_emu_machine.lane); }
template <typename T>
inline T Shuffle(unsigned long long mask, T v, int source) {
  static_assert(sizeof(T) <= 8, "shuffles are of numbers of at most 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &v, sizeof v);
  bits = Meet(kShuffle, mask, bits, source);
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}
inline int Within(int lane, int width, int otherwise) {
  return lane / width == otherwise / width && lane >= 0 ? lane : otherwise;
}

}  // namespace opw_emu

template <typename T>
inline T __shfl_sync(unsigned long long mask, T v, int lane, int width = OPW_EMU) {
  return opw_emu::Shuffle(mask, v, opw_emu::Lane() / width * width + (lane & (width - 1)));
}
template <typename T>
inline T __shfl_xor_sync(unsigned long long mask, T v, int lanes, int width = OPW_EMU) {
  const int source = opw_emu::Lane() ^ lanes;
  return opw_emu::Shuffle(mask, v,
                          source / width > opw_emu::Lane() / width ? opw_emu::Lane() : source);
}
template <typename T>
inline T __shfl_up_sync(unsigned long long mask, T v, unsigned by, int width = OPW_EMU) {
  return opw_emu::Shuffle(
      mask, v, opw_emu::Within(opw_emu::Lane() - static_cast<int>(by), width, opw_emu::Lane()));
}
template <typename T>
inline T __shfl_down_sync(unsigned long long mask, T v, unsigned by, int width = OPW_EMU) {
  return opw_emu::Shuffle(
      mask, v, opw_emu::Within(opw_emu::Lane() + static_cast<int>(by), width, opw_emu::Lane()));
}
template <typename T>
inline T __shfl(T v, int lane, int width = OPW_EMU) {
  return __shfl_sync(~0ull, v, lane, width);
}
template <typename T>
inline T __shfl_xor(T v, int lanes, int width = OPW_EMU) {
  return __shfl_xor_sync(~0ull, v, lanes, width);
}
template <typename T>
inline T __shfl_up(T v, unsigned by, int width = OPW_EMU) {
  return __shfl_up_sync(~0ull, v, by, width);
}
template <typename T>
inline T __shfl_down(T v, unsigned by, int width = OPW_EMU) {
  return __shfl_down_sync(~0ull, v, by, width);
}

// As wide as the wave, as in HIP; CUDA's are the low half.
#if OPW_EMU == 64
using opw_emu_lanes = unsigned long long;
#else
using opw_emu_lanes = unsigned;
#endif
inline opw_emu_lanes __ballot_sync(unsigned long long mask, int predicate) {
  return static_cast<opw_emu_lanes>(opw_emu::Meet(opw_emu::kBallot, mask, predicate != 0));
}
inline opw_emu_lanes __ballot(int predicate) { return __ballot_sync(~0ull, predicate); }
inline int __any_sync(unsigned long long mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned long long mask, int predicate) {
  return __ballot_sync(mask, !predicate) == 0;
}
inline int __any(int predicate) { return __any_sync(~0ull, predicate); }
inline int __all(int predicate) { return __all_sync(~0ull, predicate); }
inline void __syncwarp(unsigned long long mask = ~0ull) {
  (void)opw_emu::Meet(opw_emu::kWaveBarrier, mask, 0);
}

// ---- Atomics: threads switch only when they wait

#define OPW_EMU_ATOMIC(NAME, RESULT)                \
  template <typename T, typename U>                 \
  inline T NAME(T* at, U operand) {                 \
    const T old = *at, v = static_cast<T>(operand); \
    *at = static_cast<T>(RESULT);                   \
    return old;                                     \
  }                                                 \
  template <typename T, typename U>                 \
  inline T NAME##_block(T* at, U operand) {         \
    return NAME(at, operand);                       \
  }                                                 \
  template <typename T, typename U>                 \
  inline T NAME##_system(T* at, U operand) {        \
    return NAME(at, operand);                       \
  }
OPW_EMU_ATOMIC(atomicAdd, old + v)
OPW_EMU_ATOMIC(atomicSub, old - v)
OPW_EMU_ATOMIC(atomicMin, v < old ? v : old)
OPW_EMU_ATOMIC(atomicMax, v > old ? v : old)
OPW_EMU_ATOMIC(atomicAnd, old& v)
OPW_EMU_ATOMIC(atomicOr, old | v)
OPW_EMU_ATOMIC(atomicXor, old ^ v)
OPW_EMU_ATOMIC(atomicExch, v)
OPW_EMU_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
OPW_EMU_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef OPW_EMU_ATOMIC
template <typename T, typename U, typename V>
inline T atomicCAS(T* at, U expected, V desired) {
  const T old = *at;
  if (old == static_cast<T>(expected)) *at = static_cast<T>(desired);
  return old;
}

// ---- Memory

#define memcpy __builtin_memcpy
#define memset __builtin_memset
template <typename T>
inline T __ldg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcs(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldlu(const T* p) {
  return *p;
}
template <typename T>
inline void __stcs(T* p, T v) {
  *p = v;
}
template <typename T>
inline void __stcg(T* p, T v) {
  *p = v;
}
template <typename T>
inline void __stwt(T* p, T v) {
  *p = v;
}

#define OPW_EMU_VECTOR(NAME, T, BYTES2, BYTES4)              \
  struct __attribute__((aligned(BYTES2))) NAME##2 {          \
    T x, y;                                                  \
  };                                                         \
  struct NAME##3 {                                           \
    T x, y, z;                                               \
  };                                                         \
  struct __attribute__((aligned(BYTES4))) NAME##4 {          \
    T x, y, z, w;                                            \
  };                                                         \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
OPW_EMU_VECTOR(char, signed char, 2, 4)
OPW_EMU_VECTOR(uchar, unsigned char, 2, 4)
OPW_EMU_VECTOR(short, short, 4, 8)
OPW_EMU_VECTOR(ushort, unsigned short, 4, 8)
OPW_EMU_VECTOR(int, int, 8, 16)
OPW_EMU_VECTOR(uint, unsigned, 8, 16)
OPW_EMU_VECTOR(longlong, long long, 16, 16)
OPW_EMU_VECTOR(ulonglong, unsigned long long, 16, 16)
OPW_EMU_VECTOR(float, float, 8, 16)
OPW_EMU_VECTOR(double, double, 16, 16)
#undef OPW_EMU_VECTOR

// ---- Bits

template <typename To, typename From>
inline To opw_emu_bits(From v) {
  static_assert(sizeof(To) == sizeof(From), "bits of one size");
  To out;
  __builtin_memcpy(&out, &v, sizeof out);
  return out;
}
inline unsigned __float_as_uint(float v) { return opw_emu_bits<unsigned>(v); }
inline int __float_as_int(float v) { return opw_emu_bits<int>(v); }
inline float __uint_as_float(unsigned v) { return opw_emu_bits<float>(v); }
inline float __int_as_float(int v) { return opw_emu_bits<float>(v); }
inline long long __double_as_longlong(double v) { return opw_emu_bits<long long>(v); }
inline double __longlong_as_double(long long v) { return opw_emu_bits<double>(v); }
inline int __double2hiint(double v) { return static_cast<int>(__double_as_longlong(v) >> 32); }
inline int __double2loint(double v) { return static_cast<int>(__double_as_longlong(v)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(
      static_cast<long long>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                             static_cast<unsigned>(low)));
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
inline int __clzll(long long v) {
  return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v));
}
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline unsigned __brev(unsigned v) {
  v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
  v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
  v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(v);
}
inline unsigned long long __brevll(unsigned long long v) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(v))) << 32 |
         __brev(static_cast<unsigned>(v >> 32));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = select >> (4 * i) & 0xf,
                   byte = static_cast<unsigned>(bytes >> (8 * (pick & 7))) & 0xff;
    out |= (pick & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
  }
  return out;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (by & 31) >>
                               32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (by & 31));
}

// ---- Numbers: the C library's functions, which are exact or off by an ulp

#define OPW_EMU_MATH1(NAME)                \
  extern "C" double NAME(double) noexcept; \
  extern "C" float NAME##f(float) noexcept;
#define OPW_EMU_MATH2(NAME)                        \
  extern "C" double NAME(double, double) noexcept; \
  extern "C" float NAME##f(float, float) noexcept;
// clang-format off
OPW_EMU_MATH1(exp) OPW_EMU_MATH1(exp2) OPW_EMU_MATH1(exp10) OPW_EMU_MATH1(expm1) OPW_EMU_MATH1(log)
OPW_EMU_MATH1(log2) OPW_EMU_MATH1(log10) OPW_EMU_MATH1(log1p) OPW_EMU_MATH1(sqrt)
OPW_EMU_MATH1(cbrt) OPW_EMU_MATH1(sin) OPW_EMU_MATH1(cos) OPW_EMU_MATH1(tan) OPW_EMU_MATH1(asin)
OPW_EMU_MATH1(acos) OPW_EMU_MATH1(atan) OPW_EMU_MATH1(sinh) OPW_EMU_MATH1(cosh) OPW_EMU_MATH1(tanh)
OPW_EMU_MATH1(asinh) OPW_EMU_MATH1(acosh) OPW_EMU_MATH1(atanh) OPW_EMU_MATH1(erf)
OPW_EMU_MATH1(erfc) OPW_EMU_MATH1(tgamma) OPW_EMU_MATH1(lgamma) OPW_EMU_MATH1(floor)
OPW_EMU_MATH1(ceil) OPW_EMU_MATH1(trunc) OPW_EMU_MATH1(round) OPW_EMU_MATH1(rint)
OPW_EMU_MATH1(nearbyint) OPW_EMU_MATH1(fabs) OPW_EMU_MATH2(pow) OPW_EMU_MATH2(fmod)
OPW_EMU_MATH2(remainder) OPW_EMU_MATH2(fmin) OPW_EMU_MATH2(fmax) OPW_EMU_MATH2(copysign)
OPW_EMU_MATH2(atan2) OPW_EMU_MATH2(hypot) OPW_EMU_MATH2(fdim) OPW_EMU_MATH2(nextafter)
// clang-format on
#undef OPW_EMU_MATH1
#undef OPW_EMU_MATH2
                                                    extern "C" double fma(double, double,
                                                                          double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
extern "C" double frexp(double, int*) noexcept;
extern "C" float frexpf(float, int*) noexcept;
inline float rsqrtf(float v) { return static_cast<float>(1 / sqrt(static_cast<double>(v))); }
inline double rsqrt(double v) { return 1 / sqrt(v); }
inline float __expf(float v) { return expf(v); }
inline float __exp10f(float v) { return exp10f(v); }
inline float __logf(float v) { return logf(v); }
inline float __log2f(float v) { return log2f(v); }
inline float __sinf(float v) { return sinf(v); }
inline float __cosf(float v) { return cosf(v); }
inline float __powf(float a, float b) { return powf(a, b); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float v) { return v > 0 ? (v < 1 ? v : 1.0f) : 0.0f; }
inline float normcdff(float v) { return 0.5f * erfcf(-v * 0.70710678f); }

// Rounded to nearest, and never contracted.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __double2float_rn(double v) { return static_cast<float>(v); }
// Toward zero.
inline float __double2float_rz(double v) {
  const float f = static_cast<float>(v);
  return fabs(static_cast<double>(f)) > fabs(v) ? __uint_as_float(__float_as_uint(f) - 1) : f;
}

template <typename To, typename From>
inline To opw_emu_to_integer(From v) {
  constexpr bool kSigned = static_cast<To>(-1) < 0;
  constexpr To kMax =
      static_cast<To>(kSigned ? ~0ull >> (65 - 8 * sizeof(To)) : ~0ull >> (64 - 8 * sizeof(To)));
  constexpr To kMin = kSigned ? static_cast<To>(-kMax - 1) : 0;
  const From beyond = static_cast<From>(1ull << (8 * sizeof(To) - 1)) * (kSigned ? 1 : 2);
  return v != v ? 0 : v >= beyond ? kMax : v <= static_cast<From>(kMin) ? kMin : static_cast<To>(v);
}
inline int __float2int_rn(float v) { return opw_emu_to_integer<int>(rintf(v)); }
inline int __float2int_rz(float v) { return opw_emu_to_integer<int>(v); }
inline int __float2int_rd(float v) { return opw_emu_to_integer<int>(floorf(v)); }
inline int __float2int_ru(float v) { return opw_emu_to_integer<int>(ceilf(v)); }
inline unsigned __float2uint_rn(float v) { return opw_emu_to_integer<unsigned>(rintf(v)); }
inline unsigned __float2uint_rz(float v) { return opw_emu_to_integer<unsigned>(v); }
inline long long __float2ll_rn(float v) { return opw_emu_to_integer<long long>(rintf(v)); }
inline long long __float2ll_rz(float v) { return opw_emu_to_integer<long long>(v); }
inline int __double2int_rn(double v) { return opw_emu_to_integer<int>(rint(v)); }
inline int __double2int_rz(double v) { return opw_emu_to_integer<int>(v); }
inline long long __double2ll_rn(double v) { return opw_emu_to_integer<long long>(rint(v)); }
inline long long __double2ll_rz(double v) { return opw_emu_to_integer<long long>(v); }
inline float __int2float_rn(int v) { return static_cast<float>(v); }
inline float __uint2float_rn(unsigned v) { return static_cast<float>(v); }

template <typename T>
inline bool isnan(T v) {
  return __builtin_isnan(v);
}
template <typename T>
inline bool isinf(T v) {
  return __builtin_isinf(v);
}
template <typename T>
inline bool isfinite(T v) {
  return __builtin_isfinite(v);
}
template <typename T>
inline bool signbit(T v) {
  return __builtin_signbit(v) != 0;
}
template <typename T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
inline T max(T a, T b) {
  return a < b ? b : a;
}
template <>
inline float min(float a, float b) {
  return fminf(a, b);
}
template <>
inline float max(float a, float b) {
  return fmaxf(a, b);
}
template <>
inline double min(double a, double b) {
  return fmin(a, b);
}
template <>
inline double max(double a, double b) {
  return fmax(a, b);
}
template <typename T>
inline T abs(T v) {
  return v < 0 ? -v : v;
}
template <>
inline float abs(float v) {
  return fabsf(v);
}
template <>
inline double abs(double v) {
  return fabs(v);
}

// ---- f16, by bits: not every compiler has the type

namespace opw_emu {

inline float HalfToFloat(unsigned short half) {
  const unsigned sign = static_cast<unsigned>(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude > 0x7c00) return __uint_as_float(sign | 0x7fc00000u | magnitude << 13);
  if (magnitude == 0x7c00) return __uint_as_float(sign | 0x7f800000u);
  // As a float with a smaller exponent bias: too small by 2^112, subnormals included.
  return __uint_as_float(__float_as_uint(__uint_as_float(magnitude << 13) * 0x1p112f) | sign);
}
// To nearest, ties to even.
inline unsigned short FloatToHalf(float v) {
  const unsigned bits = __float_as_uint(v), magnitude = bits & 0x7fffffffu,
                 sign = bits >> 16 & 0x8000;
  if (magnitude > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7fff);
  if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00);  // from 65520 on
  unsigned code;
  if (magnitude <
      0x38800000u) {  // below 2^-14 the addition aligns the last bits, so that the adder rounds
    code = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    code = ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112u << 10);
  }
  return static_cast<unsigned short>(sign | code);
}

}  // namespace opw_emu

// ---- Called by the compiler's own checks: an index beyond an array whose extent is known

struct opw_emu_check {
  const char* file;
  unsigned line, column;
};
extern "C" __attribute__((visibility("hidden"), weak)) void __ubsan_handle_out_of_bounds(
    opw_emu_check* at, void* index) {
  opw_emu_machine.fault("an index beyond an array", at->file, at->line,
                        static_cast<long long>(reinterpret_cast<size_t>(index)));
}
extern "C" __attribute__((visibility("hidden"), weak)) void __ubsan_handle_out_of_bounds_abort(
    opw_emu_check* at, void* index) {
  __ubsan_handle_out_of_bounds(at, index);
}
#define assert(condition) \
  ((condition) ? (void)0 : opw_emu_machine.fault("assert(" #condition ")", __FILE__, __LINE__, 0))

#endif  // OPWIRE_EMU_H_
