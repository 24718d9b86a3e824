// Runs a loop over shapes and strides. All decisions that depend on shapes are made in `prepare`:
// for a small contiguous call `run` is one call of the loop.
#include "kernels/ops/elementwise/plan.h"

#include <cstring>
#include <memory>
#include <numeric>

#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/stream.h"

namespace opwire::ops::elementwise {
namespace {

constexpr int kMaxOperands = 3;
constexpr int kResult = kMaxOperands;  // the result's index, after the operands
constexpr int64_t kGrain = 16384;      // elements per range: about 10 us of memory traffic
constexpr int64_t kBlock = 512;        // elements that are packed, or computed apart, at once
constexpr int64_t kShortRow = 32;      // rows shorter than this are packed into blocks,
constexpr int64_t kShortBesideRepeated =
    256;  // and rows shorter than this if blocks of repeated operands are made once

// The fields that a small call reads come first: in a long program each call reads this cache line.
struct Plan {
  int (*run)(const Plan&, const opw_call*);
  ElementwiseLoop loop;
  int operands;
  unsigned repeated;  // flat, by rows and periodic: operands that are one element for all
  int64_t elements;
  int slot[kMaxOperands];           // the call's operand for the loop's operand i
  int64_t bytes[kMaxOperands + 1];  // per element
  // The result's axes if they could not be merged into one; in elements.
  int rank;
  int64_t shape[OPW_MAX_RANK];
  int64_t strides[kMaxOperands + 1][OPW_MAX_RANK];
  // For RunPeriodic: bits of operands without gaps, in the order of the elements. The others,
  // except the repeated ones, repeat after `period` elements, which divide `block`.
  unsigned dense;
  int64_t period[kMaxOperands];
  int64_t block, grain;
};

void Raise(const opw_call* c, uint32_t flags) {
  if (flags != 0) c->runtime->raise(c->runtime, flags);
}

void Call(const Plan& p, const opw_call* c, const int64_t (&offsets)[kMaxOperands + 1], int64_t n) {
  const void* in[kMaxOperands];
  for (int i = 0; i < p.operands; ++i) {
    in[i] = static_cast<const char*>(c->operands[p.slot[i]].data) + offsets[i] * p.bytes[i];
  }
  Raise(c, p.loop(static_cast<char*>(c->results[0].data) + offsets[kResult] * p.bytes[kResult], in,
                  n, p.repeated));
}

int RunEmpty(const Plan&, const opw_call*) { return OPW_OK; }

int RunSmall(const Plan& p, const opw_call* c) {
  const void* in[kMaxOperands];
  for (int i = 0; i < p.operands; ++i) in[i] = c->operands[p.slot[i]].data;
  Raise(c, p.loop(c->results[0].data, in, p.elements, p.repeated));
  return OPW_OK;
}

// Computes elements [begin, end) in a block in the first-level cache, and stores them from there
// with non-temporal stores.
void StreamRange(const Plan& p, const opw_call* c, int64_t begin, int64_t end) {
  alignas(64) char block[kBlock * 8];
  const int64_t bytes = p.bytes[kResult];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    const void* in[kMaxOperands];
    for (int i = 0; i < p.operands; ++i) {
      in[i] = static_cast<const char*>(c->operands[p.slot[i]].data) +
              ((p.repeated >> i & 1) != 0 ? 0 : at * p.bytes[i]);
    }
    Raise(c, p.loop(block, in, n, p.repeated));
    StreamCopy(static_cast<char*>(c->results[0].data) + at * bytes, block, n * bytes);
  }
}

int RunFlat(const Plan& p, const opw_call* c) {
  const bool stream = p.elements * p.bytes[kResult] >= kStreamBytes &&
                      c->results[0].data != c->operands[p.slot[0]].data;
  ParallelFor(c, p.elements, kGrain, [&](int64_t begin, int64_t end) {
    if (stream) return StreamRange(p, c, begin, end);
    int64_t offsets[kMaxOperands + 1];
    for (int i = 0; i < p.operands; ++i) offsets[i] = (p.repeated >> i & 1) != 0 ? 0 : begin;
    offsets[kResult] = begin;
    Call(p, c, offsets, end - begin);
  });
  return OPW_OK;
}

// One call of the loop per row, or per part of a long row.
int RunRows(const Plan& p, const opw_call* c) {
  const int64_t extent = p.shape[p.rank - 1], part = std::min(extent, kGrain),
                parts = (extent - 1) / part + 1;
  const int64_t rows = p.elements / extent;
  ParallelFor(c, rows * parts, std::max<int64_t>(1, kGrain / part),
              [&](int64_t begin, int64_t end) {
                Walk<kMaxOperands + 1> walk(p.rank - 1, p.shape);
                for (int t = 0; t <= kMaxOperands; ++t) {
                  for (int a = 0; a < p.rank - 1; ++a) walk.SetStride(t, a, p.strides[t][a]);
                }
                walk.Start(begin / parts);
                for (int64_t unit = begin; unit < end; ++unit) {
                  const int64_t first = unit % parts * part;
                  int64_t offsets[kMaxOperands + 1];
                  for (int t = 0; t <= kMaxOperands; ++t)
                    offsets[t] = walk.offset(t) + first * p.strides[t][p.rank - 1];
                  Call(p, c, offsets, std::min(part, extent - first));
                  if (unit % parts == parts - 1) walk.Next();
                }
              });
  return OPW_OK;
}

// Gathers the first `n` elements of the loop's operand t, in the order of the result's shape.
void Gather(const Plan& p, const opw_call* c, int t, int64_t n, char* to) {
  Walk<1> walk(p.rank, p.shape);
  for (int a = 0; a < p.rank; ++a) walk.SetStride(0, a, p.strides[t][a]);
  walk.Start(0);
  VisitBits(p.bytes[t], [&](auto tag) {
    using U = typename decltype(tag)::Type;
    const U* const from = static_cast<const U*>(c->operands[p.slot[t]].data);
    for (int64_t i = 0; i < n; ++i, walk.Next()) reinterpret_cast<U*>(to)[i] = from[walk.offset(0)];
  });
}

// A dense result, with operands that are dense too, or that repeat after a few elements. One block
// of each repeating operand is used for a whole range.
int RunPeriodic(const Plan& p, const opw_call* c) {
  ParallelFor(c, p.elements, p.grain, [&](int64_t begin, int64_t end) {
    alignas(64) char blocks[kMaxOperands][kBlock * 8];
    for (int t = 0; t < p.operands; ++t) {
      if (((p.dense | p.repeated) >> t & 1) != 0) continue;
      const int64_t bytes = std::min(p.block, p.elements) * p.bytes[t];
      Gather(p, c, t, p.period[t], blocks[t]);
      for (int64_t held = p.period[t] * p.bytes[t]; held < bytes; held *= 2)
        std::memcpy(blocks[t] + held, blocks[t], static_cast<size_t>(std::min(held, bytes - held)));
    }
    for (int64_t at = begin; at < end; at += p.block) {
      const void* in[kMaxOperands];
      for (int t = 0; t < p.operands; ++t) {
        const char* const data = static_cast<const char*>(c->operands[p.slot[t]].data);
        in[t] = (p.repeated >> t & 1) != 0 ? data
                : (p.dense >> t & 1) != 0  ? data + at * p.bytes[t]
                                           : blocks[t];
      }
      Raise(c, p.loop(static_cast<char*>(c->results[0].data) + at * p.bytes[kResult], in,
                      std::min(p.block, end - at), p.repeated));
    }
  });
  return OPW_OK;
}

// For any strides: operands are packed into blocks, results unpacked.
int RunPacked(const Plan& p, const opw_call* c) {
  ParallelFor(c, p.elements, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) char blocks[kMaxOperands + 1][kBlock * 8];
    int64_t offsets[kMaxOperands + 1][kBlock];
    const void* in[kMaxOperands];
    for (int i = 0; i < p.operands; ++i) in[i] = blocks[i];
    Walk<kMaxOperands + 1> walk(p.rank, p.shape);
    for (int t = 0; t <= kMaxOperands; ++t) {
      for (int a = 0; a < p.rank; ++a) walk.SetStride(t, a, p.strides[t][a]);
    }
    walk.Start(begin);
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = std::min(kBlock, end - at);
      for (int64_t i = 0; i < n; ++i, walk.Next()) {
        for (int t = 0; t <= kMaxOperands; ++t) offsets[t][i] = walk.offset(t);
      }
      for (int t = 0; t < p.operands; ++t) {
        VisitBits(p.bytes[t], [&](auto tag) {
          using U = typename decltype(tag)::Type;
          const U* const from = static_cast<const U*>(c->operands[p.slot[t]].data);
          for (int64_t i = 0; i < n; ++i) reinterpret_cast<U*>(blocks[t])[i] = from[offsets[t][i]];
        });
      }
      Raise(c, p.loop(blocks[kResult], in, n, 0));
      VisitBits(p.bytes[kResult], [&](auto tag) {
        using U = typename decltype(tag)::Type;
        U* const to = static_cast<U*>(c->results[0].data);
        for (int64_t i = 0; i < n; ++i)
          to[offsets[kResult][i]] = reinterpret_cast<const U*>(blocks[kResult])[i];
      });
    }
  });
  return OPW_OK;
}

// Sets the result's axes with all tensors' strides. Drops extents of 1, and merges neighbours if
// every tensor allows it.
void SetAxes(const opw_call* c, Plan* p) {
  const opw_tensor& y = c->results[0];
  p->rank = 0;
  for (int a = 0; a < y.rank; ++a) {
    if (y.shape[a] == 1) continue;
    int64_t strides[kMaxOperands + 1] = {};
    for (int i = 0; i < p->operands; ++i) {
      const opw_tensor& x = c->operands[p->slot[i]];
      const int axis = a - (y.rank - x.rank);
      strides[i] = axis < 0 || x.shape[axis] == 1 ? 0 : x.strides[axis];
    }
    strides[kResult] = y.strides[a];
    bool merges = p->rank > 0;
    for (int t = 0; t <= kMaxOperands; ++t)
      merges = merges && p->strides[t][p->rank - 1] == strides[t] * y.shape[a];
    if (merges)
      p->shape[p->rank - 1] *= y.shape[a];
    else
      p->shape[p->rank++] = y.shape[a];
    for (int t = 0; t <= kMaxOperands; ++t) p->strides[t][p->rank - 1] = strides[t];
  }
}

// Whether RunPeriodic supports the call; sets the fields that it reads.
bool SetPeriods(Plan* p) {
  const auto is_dense = [&](int t) {
    int64_t below = 1;
    for (int a = p->rank; a-- > 0; below *= p->shape[a]) {
      if (p->strides[t][a] != below) return false;
    }
    return true;
  };
  if (!is_dense(kResult)) return false;
  unsigned repeated = 0, dense = 0;
  int64_t common = 1;
  for (int t = 0; t < p->operands; ++t) {
    int64_t below = 1, period = 1;
    for (int a = p->rank; a-- > 0; below *= p->shape[a]) {
      if (p->strides[t][a] != 0) period = below * p->shape[a];
    }
    p->period[t] = period;
    if (period == 1)
      repeated |= 1u << t;
    else if (is_dense(t))
      dense |= 1u << t;
    else if (period > kBlock || (common = std::lcm(common, period)) > kBlock)
      return false;
  }
  p->repeated = repeated;
  p->dense = dense;
  p->block = kBlock / common * common;
  p->grain = kGrain / p->block * p->block;
  return true;
}

}  // namespace

int PreparePlan(const opw_call* c, ElementwiseLoop loop, int operands, bool swap, void** state) {
  auto p = std::make_unique<Plan>();
  p->loop = loop;
  p->operands = operands;
  p->elements = c->results[0].elements;
  for (int i = 0; i < operands; ++i) {
    p->slot[i] = swap ? operands - 1 - i : i;
    p->bytes[i] = DTypeBytes(TypeOf(c->operands[p->slot[i]]));
  }
  p->bytes[kResult] = DTypeBytes(TypeOf(c->results[0]));
  SetAxes(c, p.get());
  // Along the last axis a tensor must be contiguous. An operand may also be one element.
  const int last = p->rank - 1;
  bool rows = p->rank == 0 || p->strides[kResult][last] == 1;
  for (int i = 0; i < operands; ++i) {
    const int64_t stride = p->rank == 0 ? 0 : p->strides[i][last];
    rows = rows && (stride == 0 || stride == 1);
    p->repeated |= stride == 0 ? 1u << i : 0u;
  }
  if (p->elements == 0)
    p->run = RunEmpty;
  else if (rows && p->rank <= 1)
    p->run = p->elements <= kGrain ? RunSmall : RunFlat;
  else if (p->shape[last] < kShortBesideRepeated && SetPeriods(p.get()))
    p->run = RunPeriodic;
  else if (rows && p->shape[last] >= kShortRow)
    p->run = RunRows;
  else
    p->run = RunPacked;
  *state = p.release();
  return OPW_OK;
}

void ReleasePlan(void* state) { delete static_cast<Plan*>(state); }

int RunPlan(const opw_call* c) {
  const Plan& p = *static_cast<const Plan*>(c->state);
  return p.run(p, c);
}

}  // namespace opwire::ops::elementwise
