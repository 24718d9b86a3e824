// The training of a network on digits as one program. Gradient() derives the gradients from the
// program of the loss. The body of the loop selects a batch, computes loss and gradients, and
// makes a step of the optimiser.
#ifndef OPWIRE_EXAMPLES_02_LOOP_TRAINING_LOOP_H_
#define OPWIRE_EXAMPLES_02_LOOP_TRAINING_LOOP_H_

#include <string>
#include <vector>

#include "examples/data/digits.h"
#include "ir/passes/gradient.h"
#include "ir/program/builder.h"

namespace opwire::examples {
using namespace client;

// program @train(steps, inout weights and velocities, images, labels, order of the examples, rate,
// its fall in a step) -> (the same weights and velocities)
inline StatusOr<Module> TrainingLoop(const Module& loss, int64_t images, int64_t order,
                                     int64_t batch) {
  const std::vector<std::string> wrt = {"w1", "b1", "w2", "b2"};
  OPWIRE_ASSIGN_OR_RETURN(const Module both, Gradient(loss, wrt));
  ModuleBuilder m;
  FunctionBuilder train = m.Function("train"), step = m.Function("step");
  struct Values {
    std::vector<Value> weights, velocities, inputs;
  };
  const auto declare = [&](FunctionBuilder& f) {
    Values v;
    for (const auto& [name, shape] : DigitWeights())
      v.weights.push_back(f.Inout(name, DType::kF32, {shape.begin(), shape.end()}));
    for (const auto& [name, shape] : DigitWeights())
      v.velocities.push_back(f.Inout("v_" + name, DType::kF32, {shape.begin(), shape.end()}));
    v.inputs = {f.In("images", DType::kU8, {images, kPixels}),
                f.In("labels", DType::kI32, {images}), f.In("order", DType::kI64, {order}),
                f.In("rate", DType::kF32, {}), f.In("fall", DType::kF32, {})};
    return v;
  };

  const Value iteration = step.In("iteration", DType::kI64, {});
  const Values in = declare(step);
  const Value first =
      step.Op("mul", {iteration, step.Scalar(DType::kI64, static_cast<double>(batch))});
  const Value chosen = step.Op("slice", {in.inputs[2], first}, {{"length", batch}});
  const Value x = step.Op("index_select", {in.inputs[0], chosen}),
              y = step.Op("index_select", {in.inputs[1], chosen});
  std::vector<Value> arguments = {x, y};
  arguments.insert(arguments.end(), in.weights.begin(), in.weights.end());
  const std::vector<Value> lost = step.Inline(both, arguments);  // the loss, then the gradients
  step.Emit("loss", lost[0]);
  const Value rate = step.Op(
      "sub", {in.inputs[3],
              step.Op("mul", {step.Op("cast", {iteration}, {{"dtype", AttrValue(DType::kF32)}}),
                              in.inputs[4]})});
  const Value number = step.Op("add", {iteration, step.Scalar(DType::kI64, 1)});
  const std::vector<Value> next = step.OpsWithLists(
      "sgd", {in.weights, {lost.begin() + 1, lost.end()}, in.velocities, {rate}, {number}},
      {{"momentum", 0.9}});
  for (size_t i = 0; i < wrt.size(); ++i) step.Return(wrt[i], next[i]);
  for (size_t i = 0; i < wrt.size(); ++i) step.Return("v_" + wrt[i], next[wrt.size() + i]);

  const Value steps = train.In("steps", DType::kI64, {});
  const Values state = declare(train);
  std::vector<Value> carried = state.weights;
  carried.insert(carried.end(), state.velocities.begin(), state.velocities.end());
  const std::vector<Value> trained = train.Repeat(steps, carried, state.inputs, step);
  for (size_t i = 0; i < wrt.size(); ++i) train.Return(wrt[i], trained[i]);
  for (size_t i = 0; i < wrt.size(); ++i) train.Return("v_" + wrt[i], trained[wrt.size() + i]);
  return m.Finish();
}

}  // namespace opwire::examples

#endif  // OPWIRE_EXAMPLES_02_LOOP_TRAINING_LOOP_H_
