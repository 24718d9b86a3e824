// Steps, norms and scaling of lists of dense tensors: all threads share the chunks of all tensors.
#include <algorithm>
#include <cmath>

#include "kernels/ops/elementwise/cpu_loops.h"
#include "kernels/ops/families.h"
#include "kernels/ops/optim/cpu_loops.h"
#include "kernels/ops/optim/optim.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::optim {
namespace {

// Chunks of a call's first list, and their number in a range of about 10 us.
struct Prepared {
  Chunks chunks;
  int64_t grain;
};

int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const opw_tensor* const tensors = &c->operands[c->starts[0]];
  int64_t elements = 0;
  for (int64_t t = 0; t < ListSize(c, 0); ++t) elements += tensors[t].elements;
  auto* const prepared = new Prepared{Chunks(tensors, ListSize(c, 0), kRowGrain), 1};
  prepared->grain =
      std::max<int64_t>(1, prepared->chunks.count() * kRowGrain / std::max<int64_t>(1, elements));
  *state = prepared;
  *workspace_bytes = prepared->chunks.count() * static_cast<int64_t>(sizeof(double));
  return OPW_OK;
}
int PrepareWithout(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const int rc = Prepare(c, state, workspace_bytes);
  *workspace_bytes = 0;
  return rc;
}
void Release(void* state) { delete static_cast<Prepared*>(state); }

// Calls body(tensor, first element, elements, chunk).
template <typename F>
void ForChunks(const opw_call* c, const F& body) {
  const auto& [chunks, grain] = *static_cast<const Prepared*>(c->state);
  const opw_tensor* const tensors = &c->operands[c->starts[0]];
  ParallelFor(c, chunks.count(), grain, [&](int64_t begin, int64_t end) {
    int64_t t = chunks.TensorOf(begin);
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      while (chunk >= chunks.first[static_cast<size_t>(t) + 1]) ++t;
      const int64_t at = (chunk - chunks.first[static_cast<size_t>(t)]) * chunks.size;
      body(t, at, std::min(chunks.size, tensors[t].elements - at), chunk);
    }
  });
}

const char* Supports(const opw_call* c, int lists, int64_t results) {
  bool dense = true;
  for (uint32_t i = 0; i < c->starts[lists]; ++i) dense = dense && c->operands[i].contiguous != 0;
  for (int64_t r = 0; r < results; ++r) dense = dense && c->results[r].contiguous != 0;
  return dense ? nullptr : "needs dense tensors";
}

// Copies the tensors of a place to the results. A result may share memory with any operand of its
// place, so all operands of some elements are read before any result is written.
void CopyPlace(const StepPlace& place, int states, int64_t at, int64_t n) {
  constexpr int64_t kBlock = 512;
  alignas(64) char held[1 + kMostStates][kBlock * sizeof(double)];
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t some = std::min(kBlock, n - done);
    const auto each = [&](const auto& copy) {
      for (int list = 0; list <= states; ++list) {
        const opw_tensor &from = *place.in[list == 0 ? 0 : 1 + list], &to = *place.out[list];
        if (to.data != from.data)
          copy(held[list], At(from, at + done), At(to, at + done),
               static_cast<size_t>(some * DTypeBytes(TypeOf(to))));
      }
    };
    each([](char* block, const void* from, void*, size_t bytes) {
      std::memcpy(block, from, bytes);
    });
    each([](const char* block, const void*, void* to, size_t bytes) {
      std::memcpy(to, block, bytes);
    });
  }
}

// The same, possibly converted to another type.
void CastPart(const opw_tensor& to, const opw_tensor& from, int64_t at, int64_t n) {
  if (to.dtype == from.dtype) {
    std::memcpy(At(to, at), At(from, at), static_cast<size_t>(n * DTypeBytes(TypeOf(to))));
    return;
  }
  const void* const in[] = {At(from, at)};
  elementwise::WidestCasts()->loops[from.dtype][to.dtype](At(to, at), in, n, 0);
}

// The operands' part of a chunk.
StepPart PartOf(const StepPlace& place, int states, int64_t at, int64_t n) {
  StepPart part{.from_params = At(*place.in[0], at), .grads = At(*place.in[1], at), .n = n};
  for (int s = 0; s < states; ++s) part.from_states[s] = At(*place.in[2 + s], at);
  return part;
}

// lamb's coefficients: sums of squares of chunks, then of each tensor's chunks in order, in their
// type.
const opw_tensor& CoefficientsOf(const opw_call* c) { return c->results[3 * ListSize(c, 0)]; }
double CoefficientOf(const opw_call* c, int64_t t) {
  const opw_tensor& all = CoefficientsOf(c);
  return TypeOf(all) == DType::kF64 ? static_cast<const double*>(all.data)[t]
                                    : static_cast<double>(static_cast<const float*>(all.data)[t]);
}
void SetCoefficients(const opw_call* c, LambLoop loop, const StepNumbers& numbers, bool skips) {
  struct Sums {
    double params, updates;
  };
  const Chunks& chunks = static_cast<const Prepared*>(c->state)->chunks;
  auto* const sums = static_cast<Sums*>(c->workspace);
  if (!skips) {
    ForChunks(c, [&](int64_t t, int64_t at, int64_t n, int64_t chunk) {
      sums[chunk] = {};
      loop(PartOf(PlaceOf(c, 2, t), 2, at, n), numbers, &sums[chunk].params, &sums[chunk].updates);
    });
  }
  const StepAttrs attrs = AttrsOf(kStepRows[kLambRow], c);
  for (int64_t t = 0; t < ListSize(c, 0); ++t) {
    Sums all{};
    for (int64_t k = chunks.first[static_cast<size_t>(t)];
         k < chunks.first[static_cast<size_t>(t) + 1] && !skips; ++k) {
      all.params += sums[k].params;
      all.updates += sums[k].updates;
    }
    const double coefficient = ops::optim::CoefficientOf(attrs, all.params, all.updates);
    const opw_tensor& to = CoefficientsOf(c);
    if (TypeOf(to) == DType::kF64)
      static_cast<double*>(to.data)[t] = coefficient;
    else
      static_cast<float*>(to.data)[t] = static_cast<float>(coefficient);
  }
}
int PrepareLamb(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const int rc = Prepare(c, state, workspace_bytes);
  *workspace_bytes *= 2;
  return rc;
}

template <const OptimLoops& (*kLoops)(), int kRow>
struct StepKernel {
  static constexpr const StepRow& kStep = kStepRows[kRow];

  static const char* Supported(const opw_call* c) {
    return Supports(c, 2 + kStep.states,
                    ListSize(c, 0) * (1 + StatesOf(kStep, c) + (kStep.copies ? 1 : 0)) +
                        (kRow == kLambRow ? 1 : 0));
  }
  static int Run(const opw_call* c) {
    const int states = StatesOf(kStep, c);
    const StepPlace first = PlaceOf(c, states, 0);
    const bool wider = states > 0 && first.in[2]->dtype != first.in[0]->dtype;
    const StepLoop loop = kLoops().step[static_cast<int>(kStep.rule)][first.in[0]->dtype][wider];
    const StepNumbers all = NumbersOf(kStep, c);
    const bool skips = Skips(kStep, c);
    if (kRow == kLambRow) SetCoefficients(c, kLoops().lamb[first.in[0]->dtype][wider], all, skips);
    ForChunks(c, [&](int64_t t, int64_t at, int64_t n, int64_t) {
      const StepPlace place = PlaceOf(c, states, t);
      if (skips) {
        CopyPlace(place, states, at, n);
        if (kStep.copies) CastPart(CopyOf(c, t), *place.out[0], at, n);
        return;
      }
      StepPart part = PartOf(place, states, at, n);
      part.params = At(*place.out[0], at);
      for (int s = 0; s < states; ++s) part.states[s] = At(*place.out[1 + s], at);
      StepNumbers numbers = all;
      if (kRow == kLambRow) numbers.trust *= CoefficientOf(c, t);
      loop(part, numbers);
      if (kStep.copies) CastPart(CopyOf(c, t), *place.out[0], at, n);
    });
    return OPW_OK;
  }
};

const char* SupportsList(const opw_call* c) { return Supports(c, 1, 0); }
const char* SupportsScale(const opw_call* c) { return Supports(c, 1, ListSize(c, 0)); }

// Squares of chunks first; their sums are then added in order.
template <const OptimLoops& (*kLoops)()>
int L2Norm(const opw_call* c) {
  const Chunks& chunks = static_cast<const Prepared*>(c->state)->chunks;
  auto* const sums = static_cast<double*>(c->workspace);
  const SquareLoop loop = kLoops().square[Operand(c, 0).dtype];
  ForChunks(c, [&](int64_t t, int64_t at, int64_t n, int64_t chunk) {
    sums[chunk] = loop(At(c->operands[c->starts[0] + t], at), n);
  });
  const auto set = [](const opw_tensor& to, int64_t i, double square) {
    if (TypeOf(to) == DType::kF64)
      static_cast<double*>(to.data)[i] = std::sqrt(square);
    else
      static_cast<float*>(to.data)[i] = static_cast<float>(std::sqrt(square));
  };
  double all = 0;
  for (int64_t t = 0; t < ListSize(c, 0); ++t) {
    double own = 0;
    for (int64_t k = chunks.first[static_cast<size_t>(t)];
         k < chunks.first[static_cast<size_t>(t) + 1]; ++k)
      own += sums[k];
    set(c->results[1], t, own);
    all += own;
  }
  set(c->results[0], 0, all);
  return OPW_OK;
}

template <const OptimLoops& (*kLoops)()>
int Scale(const opw_call* c) {
  const float factor = *static_cast<const float*>(Operand(c, 1).data);
  const ScaleLoop loop = kLoops().scale[Operand(c, 0).dtype];
  uint8_t* const overflow = static_cast<uint8_t*>(c->results[ListSize(c, 0)].data);
  *overflow = 0;
  ForChunks(c, [&](int64_t t, int64_t at, int64_t n, int64_t) {
    if (loop(At(c->results[t], at), At(c->operands[c->starts[0] + t], at), n, factor))
      __atomic_store_n(overflow, uint8_t{1}, __ATOMIC_RELAXED);
  });
  return OPW_OK;
}

template <const OptimLoops& (*kLoops)(), int kRow>
void AddStep(VariantTable& table, const Isa& isa, const char* set, int priority) {
  using Kernel = StepKernel<kLoops, kRow>;
  AddProduction(table, isa, kStepRows[kRow].name, set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, Kernel::Supported,
                 kRow == kLambRow ? PrepareLamb : PrepareWithout, Release, Kernel::Run});
}

template <const OptimLoops& (*kLoops)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  AddStep<kLoops, 0>(table, isa, set, priority);
  AddStep<kLoops, 1>(table, isa, set, priority);
  AddStep<kLoops, 2>(table, isa, set, priority);
  AddStep<kLoops, 3>(table, isa, set, priority);
  AddStep<kLoops, kLambRow>(table, isa, set, priority);
  AddStep<kLoops, kCopyRow>(table, isa, set, priority);
  AddProduction(
      table, isa, "l2_norm", set, set, priority, kFloats,
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsList, Prepare, Release, L2Norm<kLoops>});
  AddProduction(table, isa, "scale", set, set, priority, kFloats,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, SupportsScale, PrepareWithout,
                 Release, Scale<kLoops>});
}

}  // namespace

void AddOptimFast(VariantTable& table, const Isa& isa) {
  Add<OptimLoopsAvx512>(table, isa, "avx512", 2);
  Add<OptimLoopsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::optim
