// Copies of runs of contiguous bytes: the moves of dense tensors consist of them. Not for files
// built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_SHAPE_RUNS_H_
#define OPWIRE_KERNELS_OPS_SHAPE_RUNS_H_

#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/row_ranges.h"
#include "kernels/ops/stream.h"

namespace opwire::ops::shape {

// Bytes copied by one range: about 10 us of memory traffic.
inline constexpr int64_t kRangeBytes = 64 * 1024;

// Copies `runs` runs of `bytes` bytes. Run r goes to y + r * pitch and comes from from(r), or is
// zeros if that is null. Long runs are split. from(r) is called once for each part of a run, in
// order within a range.
template <typename From>
void CopyRuns(const opw_call* c, char* y, int64_t runs, int64_t bytes, int64_t pitch,
              const From& from) {
  constexpr int64_t kLong = 4096;  // runs of this many bytes or more may use non-temporal stores
  if (runs == 0 || bytes == 0) return;
  const bool stream = runs * bytes >= kStreamBytes && bytes >= kLong;
  if (bytes >= kRangeBytes) {
    const int64_t parts = (bytes - 1) / kRangeBytes + 1;
    ParallelFor(c, runs * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t r = i / parts, at = i % parts * kRangeBytes,
                      n = std::min(kRangeBytes, bytes - at);
        const char* const x = from(r);
        if (x == nullptr)
          std::memset(y + r * pitch + at, 0, n);
        else if (stream)
          StreamCopy(y + r * pitch + at, x + at, n);
        else
          std::memcpy(y + r * pitch + at, x + at, n);
      }
    });
    return;
  }
  const auto copy = [&](auto bytes_of_run) {
    ParallelFor(c, runs, std::max<int64_t>(1, kRangeBytes / bytes),
                [&, bytes_of_run](int64_t begin, int64_t end) {
                  for (int64_t r = begin; r < end; ++r) {
                    const char* const x = from(r);
                    if (x == nullptr)
                      std::memset(y + r * pitch, 0, bytes_of_run());
                    else if (stream)
                      StreamCopy(y + r * pitch, x, bytes_of_run());
                    else
                      std::memcpy(y + r * pitch, x, bytes_of_run());
                  }
                });
  };
  // Single elements are copied by one instruction.
  if (bytes <= 8 && (bytes & (bytes - 1)) == 0)
    VisitBits(bytes, [&](auto tag) {
      copy([] { return static_cast<int64_t>(sizeof(typename decltype(tag)::Type)); });
    });
  else
    copy([bytes] { return bytes; });
}

}  // namespace opwire::ops::shape

#endif  // OPWIRE_KERNELS_OPS_SHAPE_RUNS_H_
