// The rows' variants of an instruction set: its loops, each driven by a plan.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "kernels/ops/call.h"
#include "kernels/ops/elementwise/cpu_loops.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/elementwise/plan.h"
#include "kernels/ops/families.h"

namespace opwire::ops::elementwise {
namespace {

enum class Set { kAvx2, kAvx512 };
template <Set kSet>
const FastElementwise& Loops() {
  static const FastElementwise loops =
      kSet == Set::kAvx2 ? FastElementwiseAvx2() : FastElementwiseAvx512();
  return loops;
}

// opw_kernel's functions carry no context, so each entry of the table has its own `prepare`.
constexpr int kMaxOps = 64;
template <Set kSet, size_t kOp>
int Prepare(const opw_call* c, void** state, int64_t*) {
  const FastOp& op = Loops<kSet>().ops[kOp];
  return PreparePlan(c, op.loops[c->operands[op.operands - 1].dtype], op.operands, op.swap, state);
}

template <Set kSet>
const FastCasts& Casts() {
  return kSet == Set::kAvx2 ? FastCastsAvx2() : FastCastsAvx512();
}
template <Set kSet>
ElementwiseLoop CastOf(const opw_call* c) {
  return Casts<kSet>().loops[c->operands[0].dtype][c->results[0].dtype];
}
template <Set kSet>
const char* SupportsCast(const opw_call* c) {
  return CastOf<kSet>(c) == nullptr ? "no loop converts between these types" : nullptr;
}
template <Set kSet>
int PrepareCast(const opw_call* c, void** state, int64_t*) {
  return PreparePlan(c, CastOf<kSet>(c), 1, false, state);
}

template <Set kSet, size_t... kOp>
constexpr auto Prepares(std::index_sequence<kOp...>) {
  return std::array{&Prepare<kSet, kOp>...};
}

template <Set kSet>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  static constexpr auto kPrepares = Prepares<kSet>(std::make_index_sequence<kMaxOps>());
  const FastElementwise& fast = Loops<kSet>();
  const uint32_t flags = OPW_DETERMINISTIC | OPW_INPLACE;
  for (int i = 0; i < fast.count; ++i) {
    DTypeSet types;
    for (int t = 1; t < kDTypeCount; ++t) {
      if (fast.ops[i].loops[t] != nullptr) types = types | DTypeSet{static_cast<DType>(t)};
    }
    AddProduction(table, isa, fast.ops[i].op, set, set, priority, types,
                  {OPW_ABI_VERSION, flags, nullptr, kPrepares.at(i), ReleasePlan, RunPlan});
  }
  DTypeSet from;
  for (int t = 1; t < kDTypeCount; ++t) {
    for (const ElementwiseLoop loop : Casts<kSet>().loops[t]) {
      if (loop != nullptr) from = from | DTypeSet{static_cast<DType>(t)};
    }
  }
  AddProduction(
      table, isa, "cast", set, set, priority, from,
      {OPW_ABI_VERSION, flags, SupportsCast<kSet>, PrepareCast<kSet>, ReleasePlan, RunPlan});
}

}  // namespace

const FastCasts* WidestCasts() {
  const Isa& isa = Isa::Detect();
  return isa.avx512 ? &FastCastsAvx512() : isa.avx2 ? &FastCastsAvx2() : nullptr;
}

ElementwiseLoop WidestRelu(uint8_t type) {
  const Isa& isa = Isa::Detect();
  if (!isa.avx512 && !isa.avx2) return nullptr;
  const FastElementwise all = isa.avx512 ? FastElementwiseAvx512() : FastElementwiseAvx2();
  const FastOp* const relu = std::find_if(all.ops, all.ops + all.count, [](const FastOp& op) {
    return std::string_view(op.op) == "relu";
  });
  return relu->loops[type];
}

void AddElementwiseFast(VariantTable& table, const Isa& isa) {
  Add<Set::kAvx512>(table, isa, "avx512", 2);
  Add<Set::kAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::elementwise
