// Time as the state machines see it: nanoseconds of a monotonic clock, handed in with every event,
// so that a simulation can own it.
#ifndef OPWIRE_IR_WIRE_CLOCK_H_
#define OPWIRE_IR_WIRE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace opwire {

using Nanos = int64_t;
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Nanos kNever = INT64_MAX;

inline Nanos MonotonicNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_CLOCK_H_
