// Non-temporal stores by the instructions that every x86-64 has.
#include "kernels/ops/stream.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>

namespace opwire::ops {

void StreamCopy(void* to, const void* from, int64_t bytes) {
  constexpr int64_t kLine = 64;
  char* y = static_cast<char*>(to);
  const char* x = static_cast<const char*>(from);
  const int64_t head = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(y) & (kLine - 1));
  std::memcpy(y, x, head);
  int64_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (int64_t i = 0; i < kLine; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(y + at + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + at + i)));
    }
  }
  std::memcpy(y + at, x + at, bytes - at);
  _mm_sfence();
}

}  // namespace opwire::ops
