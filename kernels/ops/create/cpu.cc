// uniform, normal and dropout of dense f32 tensors.
#include "kernels/ops/create/cpu_loops.h"
#include "kernels/ops/create/create.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::create {
namespace {

const char* Supports(const opw_call* c) { return AllDense(c, 3) ? nullptr : "needs dense tensors"; }

int RunWith(const opw_call* c, RandomLoop loop, const opw_tensor& key, int site, const float* x,
            float a, float b) {
  const opw_tensor& y = c->results[0];
  const uint64_t* const words = static_cast<const uint64_t*>(key.data);
  const uint64_t first = words[0], high = words[1] + static_cast<uint64_t>(c->attrs[site].value.i);
  ParallelFor(c, y.elements, kRowGrain, [&](int64_t begin, int64_t end) {
    loop(static_cast<float*>(y.data), x, first, high, begin, end, a, b);
  });
  return OPW_OK;
}

float ScalarOf(const opw_tensor& t) { return *static_cast<const float*>(t.data); }

template <const RandomLoops& (*kLoops)()>
int Uniform(const opw_call* c) {
  return RunWith(c, kLoops().uniform, Operand(c, 0), 1, nullptr, ScalarOf(Operand(c, 1)),
                 ScalarOf(Operand(c, 2)));
}
template <const RandomLoops& (*kLoops)()>
int Normal(const opw_call* c) {
  return RunWith(c, kLoops().normal, Operand(c, 0), 1, nullptr, ScalarOf(Operand(c, 1)),
                 ScalarOf(Operand(c, 2)));
}
template <const RandomLoops& (*kLoops)()>
int Dropout(const opw_call* c) {
  return RunWith(c, kLoops().dropout, Operand(c, 2), 0,
                 static_cast<const float*>(Operand(c, 0).data), ScalarOf(Operand(c, 1)), 0);
}

template <const RandomLoops& (*kLoops)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  const auto add = [&](const char* op, int (*run)(const opw_call*), uint32_t flags) {
    AddProduction(table, isa, op, set, set, priority, {DType::kF32},
                  {OPW_ABI_VERSION, OPW_DETERMINISTIC | flags, Supports, nullptr, nullptr, run});
  };
  add("uniform", Uniform<kLoops>, 0);
  add("normal", Normal<kLoops>, 0);
  add("dropout", Dropout<kLoops>, OPW_INPLACE);
}

}  // namespace

void AddCreateFast(VariantTable& table, const Isa& isa) {
  Add<RandomLoopsAvx512>(table, isa, "avx512", 2);
  Add<RandomLoopsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::create
