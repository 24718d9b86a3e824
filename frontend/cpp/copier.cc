// The threads of a copier, and their work.
#include "frontend/cpp/copier.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "ir/base/cpu_quota.h"

namespace opwire::client {
namespace {

constexpr size_t kLarge =
    64 << 20;  // in total: larger copies would evict all other data from the caches
constexpr size_t kWorthSharing = 1 << 20;
constexpr unsigned kMostThreads =
    4;  // for the copy, including the caller: more only compete for the memory
constexpr size_t kPage = 4096;

// Copies with stores that do not first read the overwritten memory. memcpy does so too, but only in
// single calls of a cache's size.
void Stream(uint8_t* to, const uint8_t* from, size_t bytes) {
  constexpr size_t kLine = 64;
  const size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kLine),
               lines = (bytes - head) / kLine, tail = head + lines * kLine;
  std::memcpy(to, from, head);
  for (size_t at = head; at < tail; at += kLine) {
    const auto* const in = reinterpret_cast<const __m128i*>(from + at);
    auto* const out = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                  d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();
  std::memcpy(to + tail, from + tail, bytes - tail);
}

}  // namespace

Copier::Copier(size_t bytes) : large_(bytes >= kLarge) {
  if (!large_) return;
  const unsigned threads = std::min(kMostThreads, static_cast<unsigned>(UsableThreads()));
  helpers_.reserve(threads);
  try {
    while (helpers_.size() + 1 < threads)
      helpers_.emplace_back(&Copier::Help, this, helpers_.size());
  } catch (const std::system_error&) {
    // No more threads are available: the existing ones do the work.
  }
}

Copier::~Copier() {
  to_ = nullptr;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Copier::Copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  if (!large_ || bytes < kWorthSharing) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  to_ = to;
  from_ = from;
  bytes_ = bytes;
  busy_.store(static_cast<uint32_t>(helpers_.size()));
  round_.fetch_add(1);
  round_.notify_all();
  CopyPart(helpers_.size());
  for (uint32_t busy = busy_.load(); busy > 0; busy = busy_.load()) busy_.wait(busy);
}

// Parts are whole pages, so that one thread touches each page of new memory.
void Copier::CopyPart(size_t number) const {
  const size_t parts = helpers_.size() + 1, part = (bytes_ / parts + kPage - 1) / kPage * kPage;
  const size_t begin = std::min(number * part, bytes_),
               end = number + 1 == parts ? bytes_ : std::min(begin + part, bytes_);
  Stream(to_ + begin, from_ + begin, end - begin);
}

void Copier::Help(size_t number) {
  for (uint32_t seen = 0;; ++seen) {
    round_.wait(seen);
    if (!to_) return;
    CopyPart(number);
    if (busy_.fetch_sub(1) == 1) busy_.notify_one();
  }
}

}  // namespace opwire::client
