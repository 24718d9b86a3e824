// Weights drawn from normal distributions, and zeros.
#include "examples/03_gpt2/state.h"

#include <fmt/format.h>

#include <random>

namespace opwire::examples {

Array Gpt2InitialWeight(const Gpt2Weight& weight, uint64_t seed) {
  Array a(DType::kF32, weight.shape);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(weight.mean, weight.deviation);
  for (float& v : a.values<float>()) v = weight.deviation > 0 ? normal(random) : weight.mean;
  return a;
}

StatusOr<std::vector<Tensor>> PutGpt2State(Session& session, const Gpt2Config& c) {
  const std::vector<Gpt2Weight> weights = Gpt2Weights(c);
  OPWIRE_ASSIGN_OR_RETURN(
      const Program cast,
      session.Load(fmt::format("dim ?n in [1, {0}] program @cast(%x: f32[?n]) -> (y: {1}[?n]) {{ "
                               "%0 = cast(%x) {{dtype = {1}}} return %0 }}",
                               kMaxExtent, DTypeName(c.dtype))));
  std::vector<Tensor> state;
  for (const Gpt2StateTensor& t : Gpt2State(c)) {
    const Gpt2Weight& weight = weights[t.weight];
    Array begin =
        t.begins_as_weight ? Gpt2InitialWeight(weight, t.weight) : Array(DType::kF32, weight.shape);
    ArrayView view = begin.view();
    if (t.dtype != DType::kF32) {
      view.shape = {begin.elements()};
      OPWIRE_ASSIGN_OR_RETURN(std::vector<Array> narrow, cast.Call({view}));
      begin = std::move(narrow[0]);
      view = begin.view();
      view.shape = weight.shape;
    }
    OPWIRE_ASSIGN_OR_RETURN(state.emplace_back(), session.Put(view, t.name));
  }
  return state;
}

}  // namespace opwire::examples
