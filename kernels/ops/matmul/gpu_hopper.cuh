// Matrix products on Hopper's tensor cores with their epilogue: for activations that libraries
// leave to a separate pass.
#include "kernels/ops/gpu/hopper.cuh"
#include "kernels/ops/matmul/gpu_activation.cuh"
#include "kernels/ops/matmul/gpu_params.h"

namespace opw::matmul {

// Rows and terms of a block's tile, and stages in flight; gpu_hopper.cc uses the same numbers.
inline constexpr int kHopperRows = 128, kHopperTerms = 64, kHopperStages = 4;
inline constexpr u32 kHopperRowBytes = 128;

// The tiles of a cluster: two blocks' rows, one below the other. Tiles run down in groups of 8, and
// the groups follow each other to the right, so that concurrent tiles share what they read.
template <int kColumns>
struct HopperTiles {
  i64 down, right;
  OPW_DEVICE explicit HopperTiles(const HopperParams& p)
      : down((p.m + 2 * kHopperRows - 1) / (2 * kHopperRows)),
        right((p.n + kColumns - 1) / kColumns) {}
  OPW_DEVICE i64 Count() const { return down * right; }
  // Sets the first row of block `rank` and the first column.
  OPW_DEVICE void At(i64 tile, u32 rank, i64& row, i64& column) const {
    constexpr i64 kRun = 8;
    const i64 run = tile / (kRun * right), in_run = tile % (kRun * right);
    const i64 rows = down - run * kRun < kRun ? down - run * kRun : kRun;
    row = (run * kRun + in_run % rows) * 2 * kHopperRows + rank * kHopperRows;
    column = in_run / rows * kColumns;
  }
};

// Transposes the words of four neighbouring lanes with four words each: lane i gets word i of each,
// in the order of the lanes.
OPW_DEVICE void TurnFour(u32 (&words)[4]) {
  const int lane = Lane();
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
#pragma unroll
    for (int low = 0; low < 4; ++low) {
      if ((low & bit) != 0) continue;
      const bool upper = (lane & bit) != 0;
      const u32 theirs = ShuffleXor(upper ? words[low] : words[low + bit], bit);
      if (upper)
        words[low] = theirs;
      else
        words[low + bit] = theirs;
    }
  }
}

// The rounded sums of a warpgroup's 64 rows, which wait for the epilogue while the next sums are
// computed: pairs of sums of MultiplyTiles. A part is 8 neighbouring columns of a row for each
// thread. Its other inputs are loaded while the part before gets its epilogue.
template <typename T, int kColumns, typename Finish>
struct HopperRounded {
  static constexpr int kParts = kColumns / 16;  // of 32 columns of every second 8 rows
  u32 words[kColumns / 4];
  i64 row, column;  // position of the thread's own sums
  typename Finish::Held held;

  OPW_DEVICE i64 RowOf(int part) const { return row + 8 * (part % 2); }
  OPW_DEVICE i64 ColumnOf(int part) const { return column + 8 * (part / 2 * 4 + Lane() % 4); }
  OPW_DEVICE bool IsThere(const HopperParams& p, int part) const {
    return RowOf(part) < p.m && ColumnOf(part) < p.n;
  }

  OPW_DEVICE void Take(const HopperParams& p, const Finish& finish,
                       const float (&sums)[kColumns / 2], i64 at_row, i64 at_column) {
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) words[i] = RoundPair<T>(sums[2 * i], sums[2 * i + 1]);
    row = at_row + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + Lane() / 4;
    column = at_column;
    if (IsThere(p, 0)) finish.Begin(RowOf(0), ColumnOf(0), held);
  }

  OPW_DEVICE void Store(const HopperParams& p, const Finish& finish, int part) {
    u32 own[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) own[e] = words[2 * (part / 2 * 4 + e) + part % 2];
    TurnFour(own);
    if (IsThere(p, part)) finish.End(RowOf(part), ColumnOf(part), own, held);
    if (part + 1 < kParts && IsThere(p, part + 1))
      finish.Begin(RowOf(part + 1), ColumnOf(part + 1), held);
  }
};

// An epilogue of a bias and an activation.
template <typename T, int kActivation>
struct HopperActivation {
  const HopperParams& p;
  struct Held {
    Quad bias;
  };
  OPW_DEVICE void Begin(i64, i64 column, Held& held) const {
    if (p.bias != nullptr)
      held.bias = *reinterpret_cast<const Quad*>(static_cast<const T*>(p.bias) + column);
  }
  OPW_DEVICE void End(i64 row, i64 column, const u32 (&sums)[4], const Held& held) const {
    const u32 bias[4] = {held.bias.x, held.bias.y, held.bias.z, held.bias.w};
    u32 out[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float low = Load(T{static_cast<u16>(sums[e] & 0xffff)}),
            high = Load(T{static_cast<u16>(sums[e] >> 16)});
      if (p.bias != nullptr) {
        low += Load(T{static_cast<u16>(bias[e] & 0xffff)});
        high += Load(T{static_cast<u16>(bias[e] >> 16)});
      }
      out[e] = RoundPair<T>(ActivateNarrow<kActivation>(low), ActivateNarrow<kActivation>(high));
    }
    StoreWhole(static_cast<T*>(p.z) + row * p.z_m + column, Quad{out[0], out[1], out[2], out[3]});
  }
};

// Clusters of two blocks of 384 threads. One thread of the first warpgroup copies tiles into a ring
// of stages; each block copies one half of y's tile for both blocks. The other warpgroups multiply
// 64 rows each. They store the result of one tile while the tensor cores compute the next. T: f16
// or bf16. Rows of x, y and z begin at multiples of 16 bytes, and n is a multiple of 8 elements.
// Dynamic shared memory: the stages, and 1024 bytes. The epilogue: finish.Begin(row, column, held)
// reads other inputs for 8 columns of a row. finish.End(row, column, sums, held) completes their
// sums, two in each word.
template <typename T, int kColumns, typename Finish>
OPW_DEVICE void HopperFinished(const HopperParams& p, const Finish& finish) {
  constexpr u32 kBytesOfX = kHopperRows * kHopperRowBytes, kBytesOfY = kColumns * kHopperRowBytes,
                kStageBytes = kBytesOfX + kBytesOfY;
  extern __shared__ Quad places[];
  __shared__ hopper::Barrier full[kHopperStages], empty[kHopperStages];
  const u32 stages = (hopper::SharedAddress(places) + 1023) & ~1023u;
  const u32 rank = blockIdx.x % 2;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kHopperStages; ++s) {
      hopper::Start(full[s], 1);
      hopper::Start(empty[s], 2 * 8);  // warps that multiply, from both blocks
    }
    hopper::PublishBarriers();
  }
  ClusterBarrier();

  const HopperTiles<kColumns> tiles(p);
  const i64 first = blockIdx.x / 2, clusters = gridDim.x / 2,
            steps = (p.k + kHopperTerms - 1) / kHopperTerms;
  int stage = 0;
  u32 parity = 0;
  const auto advance = [&] {
    if (++stage == kHopperStages) stage = 0, parity ^= 1;
  };
  if (warpgroup == 0) {
    hopper::KeepRegisters<40>();
    if (threadIdx.x == 0) {
      for (i64 tile = first; tile < tiles.Count(); tile += clusters) {
        i64 row, column;
        tiles.At(tile, rank, row, column);
        for (i64 step = 0; step < steps; ++step) {
          const u32 x = stages + static_cast<u32>(stage) * kStageBytes, y = x + kBytesOfX;
          hopper::WaitFor(empty[stage], parity ^ 1);
          hopper::ArriveExpecting(full[stage], kStageBytes);
          const int term = static_cast<int>(step * kHopperTerms);
          hopper::CopyTile(x, p.x, term, static_cast<int>(row), full[stage]);
          hopper::CopyTileTo(3, y + rank * (kBytesOfY / 2), p.y, term,
                             static_cast<int>(column + rank * (kColumns / 2)), full[stage]);
          advance();
        }
      }
    }
  } else {
    hopper::TakeRegisters<232>();
    float sums[kColumns / 2];
    HopperRounded<T, kColumns, Finish> before;
    bool waits = false;
    int multiplied = 0;
    const auto leave = [&] {
      if (Lane() < 2) hopper::ArriveIn(empty[multiplied], static_cast<u32>(Lane()));
    };
    const auto multiply = [&](i64 step) {
      const u32 x = stages + static_cast<u32>(stage) * kStageBytes;
      const u64 of_x = hopper::TileAt(x + static_cast<u32>(warpgroup - 1) * (kBytesOfX / 2)),
                of_y = hopper::TileAt(x + kBytesOfX);
      hopper::WaitFor(full[stage], parity);
      hopper::Pin(sums);
      hopper::BeginProducts();
#pragma unroll
      for (u32 l = 0; l < 4; ++l)
        hopper::MultiplyTiles<T>(sums, of_x + 2 * l, of_y + 2 * l, step > 0 || l > 0);
      hopper::EndProducts();
      hopper::Pin(sums);
      if (step > 0) {
        hopper::WaitForProducts<1>();
        leave();
      }
      multiplied = stage;
      advance();
    };
    for (i64 tile = first; tile < tiles.Count(); tile += clusters) {
      i64 step = 0;
#pragma unroll
      for (int part = 0; part < before.kParts; ++part) {
        if (step < steps) multiply(step++);
        if (waits) before.Store(p, finish, part);
      }
      while (step < steps) multiply(step++);
      hopper::WaitForProducts<0>();
      hopper::Pin(sums);
      leave();
      i64 row, column;
      tiles.At(tile, rank, row, column);
      before.Take(p, finish, sums, row + (warpgroup - 1) * 64, column);
      waits = true;
    }
    if (waits) {
#pragma unroll
      for (int part = 0; part < before.kParts; ++part) before.Store(p, finish, part);
    }
  }
  ClusterBarrier();  // no block ends while others copy to it or arrive in it
}

template <typename T, int kColumns, int kActivation>
OPW_DEVICE void HopperProduct(const HopperParams& p) {
  HopperFinished<T, kColumns>(p, HopperActivation<T, kActivation>{p});
}

}  // namespace opw::matmul
