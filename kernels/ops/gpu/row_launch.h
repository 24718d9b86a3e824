// How kernels over rows are launched: the form for a row's length.
#ifndef OPWIRE_KERNELS_OPS_GPU_ROW_LAUNCH_H_
#define OPWIRE_KERNELS_OPS_GPU_ROW_LAUNCH_H_

#include <numeric>

#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu {

// For a row that its group of threads holds in registers (OnChip in rows.cuh).
struct OnChipForm {
  int lanes = 0;    // of a warp, or 0: a block, or -n: a cluster of n blocks
  int vectors = 0;  // of 16 bytes per thread; 0: the row is too long for this form
  int threads = 0;  // per block

  int cluster() const { return lanes < 0 ? -lanes : 1; }
};
// For short rows two vectors per lane and small blocks: about 32 KiB in flight on each
// multiprocessor suffice, and more make memory slower. A warp holds up to 4 KiB, a block 64 KiB:
// two of the largest blocks share a multiprocessor. `heavy`: a row needs much work in addition to
// its bytes, which is shared by more vectors per thread. `most`: most vectors per thread.
inline OnChipForm OnChipFormOf(int64_t extent, int64_t bytes_each, bool heavy = false,
                               int most = 8) {
  const int64_t vectors = extent * bytes_each / 16;
  constexpr OnChipForm kLight[] = {{8, 1, 128},  {8, 2, 128},  {16, 2, 128},
                                   {32, 2, 128}, {32, 4, 128}, {32, 8, 256}};
  constexpr OnChipForm kHeavy[] = {{8, 1, 256},  {8, 2, 256},  {8, 4, 256},
                                   {16, 4, 256}, {32, 4, 256}, {32, 8, 256}};
  for (const OnChipForm& form : heavy ? kHeavy : kLight) {
    if (form.vectors <= most && vectors <= form.lanes * form.vectors) return form;
  }
  if (!heavy && most >= 3 && vectors <= 256 * 3)
    return {0, 3, static_cast<int>((vectors + 191) / 192 * 64)};
  if (vectors <= 512 * most)
    return {
        0, most,
        static_cast<int>((vectors + 64 * most - 1) / (64 * most) * 64)};  // whole warps of 32 or 64
  return {};
}
// The same with clusters. Their blocks hold 32 KiB each, or with the most blocks up to twice as
// much. They are used if the device has clusters and the rows fill it.
inline OnChipForm OnChipFormOf(const Call& call, int64_t rows, int64_t extent, int64_t bytes_each) {
  const OnChipForm alone = OnChipFormOf(extent, bytes_each);
  if (alone.vectors > 0) return alone;
  const int64_t vectors = extent * bytes_each / 16;
  int blocks = 2;
  while (blocks < call.code.cluster_blocks() && vectors > int64_t{blocks} * 256 * 8) blocks *= 2;
  if (blocks > call.code.cluster_blocks() || vectors > int64_t{blocks} * 512 * 8 ||
      rows * blocks < 2 * call.multiprocessors())
    return alone;
  return {-blocks, 8, static_cast<int>((vectors + blocks * 512 - 1) / (blocks * 512) * 64)};
}
// For a row that its block, or its cluster's blocks, hold in shared memory (Held in rows.cuh).
struct HeldForm {
  int lanes = 0;    // 0: a block, or -n: a cluster of n blocks
  int threads = 0;  // per block; 0: the row is too short or too long for this form
  int vectors = 0;  // of 16 bytes, most per thread; 0: more than are unrolled
  int shared = 0;   // bytes per block

  int cluster() const { return lanes < 0 ? -lanes : 1; }
};
// For rows that are too long for a warp's registers. Rows that are not whole vectors use it only if
// they are also too long for a block's registers, where edges cost less. A block holds a row of up
// to 64 KiB. If the rows fill the device it holds up to 112 KiB, so that two blocks share a
// multiprocessor. Longer rows use clusters whose blocks hold up to 64 KiB each, if such rows fill
// the device. `each`: most vectors per thread, unless a block would need more than `threads`
// threads. With fewer vectors a row is finished sooner, but a thread does more work per row.
inline HeldForm HeldFormOf(const Call& call, int64_t rows, int64_t extent, int64_t bytes_each,
                           int each = 3, int threads = 1024) {
  const int64_t vectors = extent * bytes_each / 16,
                most = rows < call.multiprocessors() ? 64 << 10 : 112 << 10;
  const int64_t room = std::min<int64_t>(most, call.code.device().shared_bytes() / 2) / 16;
  if (extent * bytes_each % 16 == 0 ? vectors <= 32 * 8
                                    : OnChipFormOf(extent, bytes_each).vectors > 0)
    return {};
  HeldForm form{.threads = 128};
  while (form.threads < threads && vectors > int64_t{each} * form.threads) form.threads *= 2;
  if (vectors > room) {
    int blocks = 2;
    while (blocks < call.code.cluster_blocks() && vectors > int64_t{blocks} * 512 * 8) blocks *= 2;
    if (blocks > call.code.cluster_blocks() || vectors > int64_t{blocks} * 512 * 8 ||
        rows * blocks < 2 * call.multiprocessors())
      return {};
    form.lanes = -blocks;
    form.threads = 512;
  }
  const int64_t at_once = int64_t{form.threads} * form.cluster();
  const int turns = static_cast<int>((vectors + at_once - 1) / at_once);
  if (turns <= 4) form.vectors = turns;
  form.shared = turns * form.threads * 16;
  return form;
}

// For rows that are not whole vectors, held in registers (WalkedRows in norm/gpu.cuh). A block
// walks the rows with equal alignment, two at a time. The operands that all rows share, `operands`
// of a row's length, are shifted to a row's places once per block. Otherwise each vector of each
// row would need two shifted loads.
struct WalkedForm {
  int vectors = 0;     // of 16 bytes per thread
  int threads = 0;     // per block; 0: another form is better
  int resident = 0;    // blocks per multiprocessor
  int shared = 0;      // bytes per block
  int64_t blocks = 0;  // a multiple of the number of rows after which the alignment repeats
};
inline WalkedForm WalkedFormOf(const Call& call, int64_t rows, int64_t extent, int64_t bytes_each,
                               int operands) {
  constexpr int kVectors = 3, kLeast = 32 * 8, kMost = kVectors * 448, kTurns = 3,
                kThreads = 896;  // with 72 registers per thread
  const int64_t bytes = extent * bytes_each, vectors = (bytes + 15) / 16;
  if (bytes % 16 == 0 || operands == 0 || bytes_each > 4 || vectors <= kLeast || vectors > kMost)
    return {};
  const int64_t warp = call.code.warp(), held = kVectors * warp;  // whole warps
  WalkedForm form{.vectors = kVectors,
                  .threads = static_cast<int>((vectors + held - 1) / held * warp)};
  form.resident = kThreads / form.threads;
  form.shared = form.threads * kVectors * 16 * operands;
  const int64_t most = int64_t{call.multiprocessors()} * form.resident,
                period = 16 / std::gcd<int64_t>(16, bytes);
  int64_t turns = (rows + most - 1) / most;
  if (turns < kTurns || most < period) return {};
  for (;; ++turns) {
    form.blocks = ((rows + turns - 1) / turns + period - 1) / period * period;
    if (form.blocks <= most) return form;
  }
}

// The compiled limits of a form's kernel: threads per block, and blocks per multiprocessor that
// leave 64 registers per thread, or 128 for f64.
inline int ThreadLimit(const OnChipForm& form) {
  return form.lanes > 0 ? form.threads : form.threads <= 256 ? 256 : 512;
}
// The longest rows of a warp need 80 registers: three blocks. The shortest need 48, unless `more`
// than a row is loaded at a time.
inline int BlockTarget(const OnChipForm& form, int64_t bytes_each, bool more = false) {
  int blocks = form.threads > 256 ? 2 : form.lanes == 32 && form.vectors == 8 ? 3 : 4;
  if (form.lanes == 0 && form.vectors == 3 && !more) blocks = 6;
  if (form.lanes > 0 && form.threads == 128) blocks = form.vectors > 2 ? 7 : more ? 8 : 10;
  return blocks / (bytes_each == 8 ? 2 : 1);
}
// This many registers per thread, but 32 if a block has 1024 threads, so that two of those share a
// multiprocessor; twice as many for f64.
inline int HeldTarget(const HeldForm& form, int registers, int64_t bytes_each) {
  const int each = (form.threads == 1024 ? 32 : registers) * (bytes_each == 8 ? 2 : 1);
  return std::max(1, 65536 / each / form.threads);
}
inline int64_t BlocksOf(const HeldForm& form, int64_t rows) {
  return std::min<int64_t>(rows, INT32_MAX / form.cluster()) * form.cluster();
}
inline int64_t BlocksOf(const OnChipForm& form, int64_t rows) {
  const int64_t each = form.lanes <= 0 ? 1 : form.threads / form.lanes, blocks = form.cluster();
  return std::min<int64_t>((rows + each - 1) / each, INT32_MAX / blocks) * blocks;
}

// For columns, 32 neighbours per block, with more threads per column if there are few columns.
// Kernels are compiled for 1024 threads.
inline Grid ColumnGrid(int64_t columns, int64_t extent, int multiprocessors) {
  const int threads = columns < int64_t{64} * multiprocessors && extent > 256 ? 1024 : 256;
  return {.blocks = std::min<int64_t>(BlocksFor(columns, 32), INT32_MAX), .threads = threads};
}

inline constexpr int kStreamedThreads = 1024;
// For a row that is read in batches: once for its reduction, and perhaps again.
struct StreamedForm {
  int threads = 1024;  // per block; kernels are compiled for kStreamedThreads
  int64_t blocks = 1;  // that walk the rows
  int64_t chunks =
      1;  // per row; more than 1: one block each, and their partial results meet in the workspace
  int64_t chunk = 0;  // elements of each chunk except the last
};
// As few threads as fill a multiprocessor, so that the caches still hold its rows when they are
// read again: two rows if they fit.
inline StreamedForm StreamedFormOf(int64_t rows, int64_t extent, int64_t bytes_each,
                                   int multiprocessors) {
  constexpr int64_t kCached = 112 << 10, kLeastChunk = 32 << 10;  // bytes
  StreamedForm form{.chunk = extent};
  form.threads = extent * bytes_each <= kCached ? 512 : 1024;
  form.blocks = std::min<int64_t>(rows, int64_t{multiprocessors} * (1024 / form.threads));
  if (rows < multiprocessors) {
    const int64_t wanted =
        std::min((2 * multiprocessors + rows - 1) / rows, extent * bytes_each / kLeastChunk);
    if (wanted > 1) {
      form.chunk = ((extent + wanted - 1) / wanted + 63) / 64 * 64;
      form.chunks = (extent + form.chunk - 1) / form.chunk;
      form.threads = 512;
    }
  }
  return form;
}

}  // namespace opwire::gpu

#endif  // OPWIRE_KERNELS_OPS_GPU_ROW_LAUNCH_H_
