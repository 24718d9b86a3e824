// Random values as functions of (key, site, element), a block of elements at a time, with equal
// bits on every device.
//
// Philox 4x32-10: the key is key[0]; the 128-bit counter has the element's group in its low half
// and key[1] + site in its high half.
//   24 bits: element i is lane i % 4 of group i / 4; u = (lane >> 8) * 2^-24.
//   53 bits (f64): element i is lanes 2 * (i % 2) and the next of group i / 2; u = (first << 32 |
//       second) >> 11, times 2^-53.
// Box-Muller makes a normal pair of elements 2j, 2j + 1 from u1 = 1 - u(2j) and u2 = u(2j + 1).
// With r = sqrt(-2 ln u1) the pair is r cos(2 pi u2), r sin(2 pi u2). It is computed in f64 by the
// polynomials below, with only exactly rounded operations.
#ifndef OPWIRE_KERNELS_OPS_CREATE_RANDOM_H_
#define OPWIRE_KERNELS_OPS_CREATE_RANDOM_H_

#include <stdint.h>

#include "kernels/ops/isa_namespace.h"

namespace opwire::ops::create::OPWIRE_ISA {
using namespace ops::OPWIRE_ISA;

struct RandomKey {
  uint64_t key;   // key[0]
  uint64_t high;  // key[1] + site
};

// Elements of a block; blocks start at multiples of it.
inline constexpr int kRandomBlock = 256;

namespace random {

// Lanes of counters first .. first + kCounters - 1, lane by lane.
template <int kCounters>
inline void Philox(const RandomKey& key, uint64_t first, uint32_t (&lanes)[4][kCounters]) {
  for (int i = 0; i < kCounters; ++i) {
    lanes[0][i] = static_cast<uint32_t>(first + i);
    lanes[1][i] = static_cast<uint32_t>((first + i) >> 32);
    lanes[2][i] = static_cast<uint32_t>(key.high);
    lanes[3][i] = static_cast<uint32_t>(key.high >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key.key), k1 = static_cast<uint32_t>(key.key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    for (int i = 0; i < kCounters; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * lanes[0][i],
                     p1 = uint64_t{0xCD9E8D57u} * lanes[2][i];
      const uint32_t l0 = static_cast<uint32_t>(p1 >> 32) ^ lanes[1][i] ^ k0;
      const uint32_t l2 = static_cast<uint32_t>(p0 >> 32) ^ lanes[3][i] ^ k1;
      lanes[0][i] = l0;
      lanes[1][i] = static_cast<uint32_t>(p1);
      lanes[2][i] = l2;
      lanes[3][i] = static_cast<uint32_t>(p0);
    }
  }
}

inline unsigned long long BitsOf(double v) { return __builtin_bit_cast(unsigned long long, v); }
inline double DoubleOf(unsigned long long bits) { return __builtin_bit_cast(double, bits); }
inline double Floor(double v) { return __builtin_floor(v); }
#define OPWIRE_FUNCTION inline
#include "kernels/ops/create/normal.inc.h"
#undef OPWIRE_FUNCTION

inline void BoxMuller(double* u) {
  for (int i = 0; i < kRandomBlock; i += 2) {
    const double r = __builtin_sqrt(-2.0 * Log(1.0 - u[i]));
    double cosine, sine;
    CosSin(u[i + 1], &cosine, &sine);
    u[i] = r * cosine;
    u[i + 1] = r * sine;
  }
}

}  // namespace random

// u of elements first .. first + kRandomBlock - 1. REQUIRES: first is a multiple of kRandomBlock.
inline void Uniform24(const RandomKey& key, int64_t first, float* u) {
  uint32_t lanes[4][kRandomBlock / 4];
  random::Philox(key, static_cast<uint64_t>(first) / 4, lanes);
  for (int i = 0; i < kRandomBlock; ++i)
    u[i] = static_cast<float>(static_cast<int32_t>(lanes[i % 4][i / 4] >> 8)) * 0x1p-24f;
}

inline void Uniform53(const RandomKey& key, int64_t first, double* u) {
  uint32_t lanes[4][kRandomBlock / 2];
  random::Philox(key, static_cast<uint64_t>(first) / 2, lanes);
  for (int i = 0; i < kRandomBlock; ++i) {
    const int lane = 2 * (i % 2);
    const uint64_t bits = static_cast<uint64_t>(lanes[lane][i / 2]) << 32 | lanes[lane + 1][i / 2];
    u[i] = static_cast<double>(static_cast<int64_t>(bits >> 11)) * 0x1p-53;
  }
}

inline void Normal24(const RandomKey& key, int64_t first, float* z) {
  float u[kRandomBlock];
  double pairs[kRandomBlock];
  Uniform24(key, first, u);
  for (int i = 0; i < kRandomBlock; ++i) pairs[i] = static_cast<double>(u[i]);
  random::BoxMuller(pairs);
  for (int i = 0; i < kRandomBlock; ++i) z[i] = static_cast<float>(pairs[i]);
}

inline void Normal53(const RandomKey& key, int64_t first, double* z) {
  Uniform53(key, first, z);
  random::BoxMuller(z);
}

}  // namespace opwire::ops::create::OPWIRE_ISA

#endif  // OPWIRE_KERNELS_OPS_CREATE_RANDOM_H_
