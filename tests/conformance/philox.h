// Philox 4x32-10 as Salmon et al. (2011) give it, one counter at a time.
#ifndef OPWIRE_TESTS_CONFORMANCE_PHILOX_H_
#define OPWIRE_TESTS_CONFORMANCE_PHILOX_H_

#include <array>
#include <cstdint>

namespace opwire::conformance {

inline std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  std::array<uint32_t, 4> x = {
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (uint32_t round = 0; round < 10; ++round) {
    const uint32_t k0 = static_cast<uint32_t>(key) + round * 0x9E3779B9u,
                   k1 = static_cast<uint32_t>(key >> 32) + round * 0xBB67AE85u;
    const uint64_t a = uint64_t{0xD2511F53u} * x[0], b = uint64_t{0xCD9E8D57u} * x[2];
    x = {static_cast<uint32_t>(b >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(a)};
  }
  return x;
}

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_PHILOX_H_
