// In compiled units, in place of kernels/ops/simd/intrinsics.h: those instructions that our headers
// use, by builtins of g++ 12, whose own header costs more than half of a unit's compilation. Other
// compilers take theirs.
#if !defined(__GNUC__) || defined(__clang__) || __GNUC__ != 12
#include <immintrin.h>
#else
#include <stdint.h>

typedef float __m256 __attribute__((vector_size(32), may_alias));
typedef double __m256d __attribute__((vector_size(32), may_alias));
typedef long long __m128i __attribute__((vector_size(16), may_alias));
typedef long long __m256i __attribute__((vector_size(32), may_alias));
typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef char opw_v64qi __attribute__((vector_size(64)));
typedef short opw_v8hi __attribute__((vector_size(16)));
typedef short opw_v16hi __attribute__((vector_size(32)));
typedef short opw_v32hi __attribute__((vector_size(64)));
typedef int opw_v8si __attribute__((vector_size(32)));
typedef int opw_v16si __attribute__((vector_size(64)));
typedef uint8_t __mmask8;
typedef uint16_t __mmask16;
typedef uint32_t __mmask32;

#define _MM_FROUND_TO_NEAREST_INT 0
#define _MM_FROUND_TO_NEG_INF 1
#define _MM_FROUND_TO_POS_INF 2
#define _MM_FROUND_TO_ZERO 3
#define _MM_FROUND_CUR_DIRECTION 4
#define _MM_FROUND_NO_EXC 8

#ifdef __AVX512F__
#define OPW_MASKED(NAME, BUILTIN, V, E, M)                                          \
  inline __m512i _mm512_maskz_loadu_##NAME(M mask, const void* p) {                 \
    return (__m512i)__builtin_ia32_load##BUILTIN##512_mask((const E*)p, V{}, mask); \
  }                                                                                 \
  inline void _mm512_mask_storeu_##NAME(void* p, M mask, __m512i v) {               \
    __builtin_ia32_store##BUILTIN##512_mask((E*)p, (V)v, mask);                     \
  }
OPW_MASKED(epi8, dquqi, opw_v64qi, char, uint64_t)
OPW_MASKED(epi16, dquhi, opw_v32hi, short, __mmask32)
OPW_MASKED(epi32, dqusi, opw_v16si, int, __mmask16)
OPW_MASKED(epi64, dqudi, __m512i, long long, __mmask8)
#undef OPW_MASKED
inline __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void* p) {
  return (__m256i)__builtin_ia32_loaddquhi256_mask((const short*)p, opw_v16hi{}, mask);
}
inline void _mm256_mask_storeu_epi16(void* p, __mmask16 mask, __m256i v) {
  __builtin_ia32_storedquhi256_mask((short*)p, (opw_v16hi)v, mask);
}
inline __m512 _mm512_cvtph_ps(__m256i v) {
  return __builtin_ia32_vcvtph2ps512_mask((opw_v16hi)v, __m512{}, 0xffff, _MM_FROUND_CUR_DIRECTION);
}
#define _mm512_cvtps_ph(V, MODE) \
  ((__m256i)__builtin_ia32_vcvtps2ph512_mask(V, MODE, opw_v16hi{}, -1))
#define OPW_WIDE(SUFFIX, V, M)                                                                  \
  inline V _mm512_fmadd_##SUFFIX(V a, V b, V c) {                                               \
    return __builtin_ia32_vfmadd##SUFFIX##512_mask(a, b, c, (M)-1, _MM_FROUND_CUR_DIRECTION);   \
  }                                                                                             \
  inline V _mm512_sqrt_##SUFFIX(V a) {                                                          \
    return __builtin_ia32_sqrt##SUFFIX##512_mask(a, V{}, (M)-1, _MM_FROUND_CUR_DIRECTION);      \
  }                                                                                             \
  inline V _mm512_scalef_##SUFFIX(V a, V b) {                                                   \
    return __builtin_ia32_scalef##SUFFIX##512_mask(a, b, V{}, (M)-1, _MM_FROUND_CUR_DIRECTION); \
  }
#define OPW_WIDE_ORDER(SUFFIX, V, M)                                                         \
  inline V _mm512_mask_add_##SUFFIX(V rest, M mask, V a, V b) {                              \
    return __builtin_ia32_add##SUFFIX##512_mask(a, b, rest, mask, _MM_FROUND_CUR_DIRECTION); \
  }
OPW_WIDE_ORDER(ps, __m512, __mmask16)
OPW_WIDE_ORDER(pd, __m512d, __mmask8)
#undef OPW_WIDE_ORDER
#define _CMP_UNORD_Q 3
#define _mm512_range_ps(A, B, MODE)                                            \
  ((__m512)__builtin_ia32_rangeps512_mask(A, B, MODE, __m512{}, (__mmask16)-1, \
                                          _MM_FROUND_CUR_DIRECTION))
#define _mm512_range_pd(A, B, MODE)                                             \
  ((__m512d)__builtin_ia32_rangepd512_mask(A, B, MODE, __m512d{}, (__mmask8)-1, \
                                           _MM_FROUND_CUR_DIRECTION))
#define _mm512_fixupimm_ps(A, B, TABLE, IMM)                                               \
  ((__m512)__builtin_ia32_fixupimmps512_mask(A, B, (opw_v16si)(TABLE), IMM, (__mmask16)-1, \
                                             _MM_FROUND_CUR_DIRECTION))
#define _mm512_fixupimm_pd(A, B, TABLE, IMM)                                             \
  ((__m512d)__builtin_ia32_fixupimmpd512_mask(A, B, (__m512i)(TABLE), IMM, (__mmask8)-1, \
                                              _MM_FROUND_CUR_DIRECTION))
#define _mm512_cmp_ps_mask(A, B, HOW) \
  ((__mmask16)__builtin_ia32_cmpps512_mask(A, B, HOW, (__mmask16)-1, _MM_FROUND_CUR_DIRECTION))
#define _mm512_cmp_pd_mask(A, B, HOW) \
  ((__mmask8)__builtin_ia32_cmppd512_mask(A, B, HOW, (__mmask8)-1, _MM_FROUND_CUR_DIRECTION))
OPW_WIDE(ps, __m512, __mmask16)
OPW_WIDE(pd, __m512d, __mmask8)
#undef OPW_WIDE
#define _mm512_roundscale_ps(V, MODE)                                       \
  ((__m512)__builtin_ia32_rndscaleps_mask(V, MODE, __m512{}, (__mmask16)-1, \
                                          _MM_FROUND_CUR_DIRECTION))
#define _mm512_roundscale_pd(V, MODE)                                        \
  ((__m512d)__builtin_ia32_rndscalepd_mask(V, MODE, __m512d{}, (__mmask8)-1, \
                                           _MM_FROUND_CUR_DIRECTION))
#else
inline __m256i _mm256_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h) {
  return (__m256i)opw_v8si{a, b, c, d, e, f, g, h};
}
inline __m256i _mm256_set1_epi32(int a) { return (__m256i)(a - opw_v8si{}); }
inline __m256i _mm256_cmpgt_epi32(__m256i a, __m256i b) {
  return (__m256i)((opw_v8si)a > (opw_v8si)b);
}
inline __m256i _mm256_maskload_epi32(const int* p, __m256i mask) {
  return (__m256i)__builtin_ia32_maskloadd256((const opw_v8si*)p, (opw_v8si)mask);
}
inline void _mm256_maskstore_epi32(int* p, __m256i mask, __m256i v) {
  __builtin_ia32_maskstored256((opw_v8si*)p, (opw_v8si)mask, (opw_v8si)v);
}
inline __m256 _mm256_cvtph_ps(__m128i v) { return __builtin_ia32_vcvtph2ps256((opw_v8hi)v); }
#define _mm256_cvtps_ph(V, MODE) ((__m128i)__builtin_ia32_vcvtps2ph256(V, MODE))
inline __m256 _mm256_fmadd_ps(__m256 a, __m256 b, __m256 c) {
  return __builtin_ia32_vfmaddps256(a, b, c);
}
inline __m256d _mm256_fmadd_pd(__m256d a, __m256d b, __m256d c) {
  return __builtin_ia32_vfmaddpd256(a, b, c);
}
inline __m256 _mm256_sqrt_ps(__m256 a) { return __builtin_ia32_sqrtps256(a); }
inline __m256d _mm256_sqrt_pd(__m256d a) { return __builtin_ia32_sqrtpd256(a); }
#define _mm256_round_ps(V, MODE) ((__m256)__builtin_ia32_roundps256(V, MODE))
#define _mm256_round_pd(V, MODE) ((__m256d)__builtin_ia32_roundpd256(V, MODE))
#endif
#endif
