// The training of examples/02_loop as one request, against PyTorch's eager mode and against its
// matmuls alone.
#include <chrono>
#include <cstdlib>
#include <deque>
#include <span>
#include <thread>

#include "examples/02_loop/training_loop.h"
#include "ir/text/text.h"
#include "tests/bench/bench.h"

namespace opwire::bench {
using namespace examples;
namespace {

constexpr int64_t kImages = 1797;

Array Random(DType dtype, std::vector<int64_t> shape, int64_t below, std::mt19937_64& random) {
  Array a(dtype, std::move(shape));
  const auto fill = [&](auto values) {
    for (auto& v : values)
      v = static_cast<std::remove_reference_t<decltype(v)>>(random() %
                                                            static_cast<uint64_t>(below));
  };
  if (dtype == DType::kU8)
    fill(a.values<uint8_t>());
  else if (dtype == DType::kI32)
    fill(a.values<int32_t>());
  else
    fill(a.values<int64_t>());
  return a;
}

// A loop over the matmuls of a step alone. Most results have no readers. The passes would remove
// these matmuls, so the program runs without passes.
Module ProductsOf(int64_t batch) {
  ModuleBuilder m;
  FunctionBuilder all = m.Function("products"), step = m.Function("step");
  const auto declare = [&](FunctionBuilder& f) {
    return std::vector<Value>{
        f.In("x", DType::kF32, {batch, kPixels}), f.In("w1", DType::kF32, {kPixels, kHidden}),
        f.In("w2", DType::kF32, {kHidden, kDigits}), f.In("dy", DType::kF32, {batch, kDigits})};
  };
  step.In("iteration", DType::kI64, {});
  const Value carried = step.In("c", DType::kF32, {batch, kHidden});
  const std::vector<Value> in = declare(step);
  const Value h = step.Op("matmul", {in[0], in[1]});
  step.Op("matmul", {h, in[2]});
  const Value dh = step.Op("matmul", {in[3], in[2]}, {{"transpose_y", true}});
  step.Op("matmul", {carried, in[3]}, {{"transpose_x", true}});
  step.Op("matmul", {in[0], dh}, {{"transpose_x", true}});
  step.Return("c", dh);
  const Value times = all.In("steps", DType::kI64, {}),
              c = all.In("c", DType::kF32, {batch, kHidden});
  all.Return("c", all.Repeat(times, {c}, declare(all), step)[0]);
  return Must(m.Finish());
}

// Returns the arguments of a training, by the names of its parameters. `arrays` keeps their values.
std::vector<Arg> ArgumentsOf(const Module& training, int64_t steps, std::deque<Array>& arrays) {
  std::vector<Arg> args;
  for (const Param& p : training.functions[0].params) {
    std::mt19937_64 random(7 + args.size());
    std::vector<int64_t> shape;
    for (const Dim d : p.type.shape) shape.push_back(training.dims.ConstantValue(d));
    const auto add = [&](Array values) {
      args.emplace_back(arrays.emplace_back(std::move(values)));
    };
    if (p.name == "steps")
      args.emplace_back(steps);
    else if (p.name == "rate")
      args.emplace_back(0.1);
    else if (p.name == "fall")
      args.emplace_back(1e-5);
    else if (p.name == "images")
      add(Random(p.type.dtype, shape, 17, random));
    else if (p.name == "labels")
      add(Random(p.type.dtype, shape, kDigits, random));
    else if (p.name == "order")
      add(Random(p.type.dtype, shape, kImages, random));
    else
      add(p.name.starts_with("v_") ? Array(DType::kF32, shape) : InitialWeight(shape, random));
  }
  return args;
}

}  // namespace

void TrainingRows(const Setup& setup, std::vector<Row>& rows) {
  const int64_t steps = setup.Scaled<int64_t>(1000, 20);
  Session session = OpenOn("bench", true);
  const Module loss =
      Must(Parse(Must(ReadExample(OPWIRE_SOURCE "/examples/02_loop/loss.opw")), "loss.opw"));
  const bool torch = std::system("python3 -c 'import torch' 2>/dev/null") == 0;
  const auto measure = [&](int64_t batch, const std::string& name) {
    const Module module = Must(TrainingLoop(loss, kImages, steps * batch, batch));
    const Program train = Must(session.Load(module)),
                  products = Must(session.Load(ProductsOf(batch), {.passes = std::nullopt}));
    std::deque<Array> arrays;
    const std::vector<Arg> args = Put(session, ArgumentsOf(module, steps, arrays));
    RunOptions options;
    int64_t emitted = 0;
    options.on_emit = [&](std::string_view, const Array&) { ++emitted; };
    const auto time = [&] {
      emitted = 0;
      const double begun = Seconds();
      Must(train.Run(args, options));
      const double seconds = Seconds() - begun;
      if (emitted != steps)
        throw RowError(fmt::format("expected {} losses, got {}", steps, emitted));
      return seconds / static_cast<double>(steps) * 1e6;
    };
    const Timed ours(
        time,
        [&] {
          std::deque<Array> fresh;
          const std::vector<Array> results =
              ResultsOf(train, Put(session, ArgumentsOf(module, steps, fresh)));
          MustFall(std::span(results).last(static_cast<size_t>(steps)));
          return results;
        },
        [&] {
          std::deque<Array> fresh;
          return ByReference(setup, module, ArgumentsOf(module, steps, fresh));
        },
        1e-3);
    const auto theirs = [&] {
      return NumberFrom(
          fmt::format("python3 " OPWIRE_SOURCE "/tests/bench/training.py {} {}", batch, steps));
    };
    // Wait until its fused groups are compiled in the background, by a thread that continues only
    // if a processor is free.
    const double warm = setup.Scaled(10.0, 0.0);
    for (const double begun = Seconds(); Seconds() - begun < warm;
         std::this_thread::sleep_for(std::chrono::milliseconds(300)))
      time();
    rows.push_back(
        Compare(setup, name, "us/step", "PyTorch, eager", ours, torch ? Timed(theirs) : nullptr));
    if (!torch) rows.back().note = "python3 has no torch";
    rows.back().target = batch == 8 ? 1.0 / 20 : 1.0 / 5;

    const Array x = Array::Random(DType::kF32, {batch, kPixels}, 1),
                w1 = Array::Random(DType::kF32, {kPixels, kHidden}, 2),
                w2 = Array::Random(DType::kF32, {kHidden, kDigits}, 3),
                dy = Array::Random(DType::kF32, {batch, kDigits}, 4);
    const std::vector<Arg> operands = {steps, x, x, w1, w2, dy};
    const auto time_bound = [&] {
      constexpr double kBeside = 10;  // microseconds
      const double begun = Seconds();
      Must(products.Run(operands));
      return 1.5 * (Seconds() - begun) / static_cast<double>(steps) * 1e6 + kBeside;
    };
    const Timed bound(
        time_bound, [&] { return ResultsOf(products, operands); },
        [&] { return ByReference(setup, ProductsOf(batch), operands); });
    time_bound();
    rows.push_back(Compare(setup, name + "_products", "us/step",
                           "1.5 times its products by themselves, and 10 us", ours, bound));
    rows.back().target = 1;
  };
  for (const int64_t batch : {64, 8}) {
    const std::string name = fmt::format("train_digits_{}", batch);
    Measure("training", {name, name + "_products"}, rows, [&] { measure(batch, name); });
  }
}

}  // namespace opwire::bench
