// How kernels over rows are launched: which form a row's length takes.
#ifndef OPWIRE_KERNELS_OPS_GPU_ROWS_H_
#define OPWIRE_KERNELS_OPS_GPU_ROWS_H_

#include <numeric>

#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu {

// Of a row that its group of threads holds in registers (OnChip in rows.cuh).
struct OnChipForm {
  int lanes = 0;    // of a warp, or 0: a block, or -n: a cluster of n blocks
  int vectors = 0;  // of 16 bytes a thread; 0: the row is too long for this form
  int threads = 0;  // a block

  int cluster() const { return lanes < 0 ? -lanes : 1; }
};
// Of short rows two vectors a lane and small blocks: some 32 KiB on their way in each
// multiprocessor suffice, and memory gives less where more are. A warp holds up to 4 KiB, a block
// 64 KiB: then two of the largest share a multiprocessor. `heavy`: a row takes much work beside its
// bytes, which more vectors a thread share. `most`: vectors a thread at the most.
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
// The same with clusters of blocks that hold 32 KiB each, or with the most blocks up to twice as
// much, where the device has them and the rows fill it.
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
// Of a row that its block, or its cluster's blocks, hold in shared memory (Held in rows.cuh).
struct HeldForm {
  int lanes = 0;    // 0: a block, or -n: a cluster of n blocks
  int threads = 0;  // a block; 0: the row is too short or too long for this form
  int vectors = 0;  // of 16 bytes a thread at the most; 0: more than are unrolled
  int shared = 0;   // bytes a block

  int cluster() const { return lanes < 0 ? -lanes : 1; }
};
// Of rows that are too long for a warp's registers, and, where they are not whole vectors, for a
// block's, which has their edges at less cost. Up to 64 KiB a block has a row, and up to 112, so
// that two of them share a multiprocessor, where the rows fill the device; longer ones have
// clusters of blocks that hold up to 64 KiB each, where such rows fill it. `each`: vectors a thread
// at the most, as far as blocks of `threads` go: the fewer, the sooner a row is through, and the
// more a thread does for its row alone.
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

// Of rows that are no whole vectors, which blocks walk by the rows that are aligned alike, two at a
// time in registers (WalkedRows in norm/gpu.cuh): what all rows share, `operands` of a row's
// length, is brought into a row's places once a block, and not by two shifted loads for each vector
// of each row.
struct WalkedForm {
  int vectors = 0;     // of 16 bytes a thread
  int threads = 0;     // a block; 0: another form is better
  int resident = 0;    // blocks a multiprocessor
  int shared = 0;      // bytes a block
  int64_t blocks = 0;  // a multiple of the rows after which they are aligned alike again
};
inline WalkedForm WalkedFormOf(const Call& call, int64_t rows, int64_t extent, int64_t bytes_each,
                               int operands) {
  constexpr int kVectors = 3, kLeast = 32 * 8, kMost = kVectors * 448, kThreads = 896,
                kTurns = 3;  // 72 registers a thread
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

// What a form's kernel is compiled for: so many threads a block, and blocks a multiprocessor that
// leave 64 registers a thread, of f64 128.
inline int ThreadLimit(const OnChipForm& form) {
  return form.lanes > 0 ? form.threads : form.threads <= 256 ? 256 : 512;
}
// The longest rows of a warp take 80 registers: three blocks; the shortest 48, unless `more` than a
// row is on its way.
inline int BlockTarget(const OnChipForm& form, int64_t bytes_each, bool more = false) {
  int blocks = form.threads > 256 ? 2 : form.lanes == 32 && form.vectors == 8 ? 3 : 4;
  if (form.lanes == 0 && form.vectors == 3 && !more) blocks = 6;
  if (form.lanes > 0 && form.threads == 128) blocks = form.vectors > 2 ? 7 : more ? 8 : 10;
  return blocks / (bytes_each == 8 ? 2 : 1);
}
// So many registers a thread, but 32 where a block has 1024, so that two of those share a
// multiprocessor; of f64 twice as many.
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

// Of columns, 32 neighbours a block: more threads a column where there are few of them. Kernels are
// compiled for 1024.
inline Grid ColumnGrid(int64_t columns, int64_t extent, int multiprocessors) {
  const int threads = columns < int64_t{64} * multiprocessors && extent > 256 ? 1024 : 256;
  return {.blocks = std::min<int64_t>(BlocksFor(columns, 32), INT32_MAX), .threads = threads};
}

inline constexpr int kStreamedThreads = 1024;
// Of a row that is read in turns: once for what it folds to, and perhaps again.
struct StreamedForm {
  int threads = 1024;  // a block; kernels are compiled for kStreamedThreads
  int64_t blocks = 1;  // that walk the rows
  int64_t chunks =
      1;  // a row; more than 1: one block each, and what they fold to meets in the workspace
  int64_t chunk = 0;  // elements of each but the last
};
// As few threads as fill a multiprocessor, so that the caches still hold its rows when they are
// read again: two rows where it can hold two.
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

#endif  // OPWIRE_KERNELS_OPS_GPU_ROWS_H_
