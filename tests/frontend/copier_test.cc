// Copies by several threads: every byte of the range, and no byte outside it.
#include "frontend/cpp/copier.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace opwire::client {
namespace {

TEST(Copier, EveryByteAndNoneBeside) {
  constexpr size_t kMiB = 1 << 20, kLargest = 3 * kMiB,
                   kMargin = 61;  // an unaligned number of bytes
  std::mt19937_64 random(1);
  std::vector<uint64_t> words((kLargest + 2 * kMargin) / sizeof(uint64_t) + 1);
  for (uint64_t& w : words) w = random();
  const auto* const from = reinterpret_cast<const uint8_t*>(words.data());
  const std::vector<uint8_t> blank(kLargest + 2 * kMargin, 7);
  std::vector<uint8_t> to;
  for (const size_t in_all : {kMiB, 64 * kMiB}) {
    Copier copier(in_all);
    for (const size_t bytes : {size_t{0}, size_t{1}, 4096 * 3 + size_t{5}, kMiB - 1, kMiB, kMiB + 1,
                               2 * kMiB + 4097, kLargest}) {
      to = blank;
      copier.Copy(to.data() + kMargin, from + 3, bytes);
      ASSERT_EQ(std::memcmp(to.data(), blank.data(), kMargin), 0) << bytes;
      ASSERT_EQ(std::memcmp(to.data() + kMargin, from + 3, bytes), 0) << bytes;
      ASSERT_EQ(std::memcmp(to.data() + kMargin + bytes, blank.data(), kMargin), 0) << bytes;
    }
  }
}

}  // namespace
}  // namespace opwire::client
