// Elementwise programs over tensors whose order of axes differs from the kernel's: the bits equal
// those of tensors in one order, on the CPU and on emulated devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ir/base/element.h"
#include "kernels/fused/interpreter.h"
#include "tests/fused/device_runs.h"
#include "tests/fused/programs.h"

namespace opwire::fused {
namespace {

using Shape = std::vector<int64_t>;

// Planes that are tiles, parts of tiles, narrow planes, and several of them.
const std::vector<Shape> kShapes = {{64, 64},       {65, 515}, {1030, 131},  {3, 700},
                                    {700, 3},       {1, 300},  {2, 130, 70}, {70, 3, 129},
                                    {66, 33, 2, 5}, {5, 7, 9}, {4, 0}};

// Returns a tensor without gaps, with its axes in memory in the order of `order`.
TestTensor InOrder(DType type, const Shape& shape, const std::vector<size_t>& order) {
  TestTensor t(type, shape);
  int64_t below = 1;
  for (size_t k = order.size(); k-- > 0; below *= shape[order[k]]) t.strides[order[k]] = below;
  return t;
}
TestTensor InAnyOrder(DType type, const Shape& shape, std::mt19937_64& random) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::shuffle(order, random);
  return InOrder(type, shape, order);
}

// Returns its elements in the shape's order.
TestTensor Dense(const TestTensor& t) {
  TestTensor out(t.type, t.shape);
  const int64_t size = DTypeBytes(t.type);
  for (int64_t i = 0; i < t.elements(); ++i) {
    int64_t at = 0, rest = i;
    for (size_t a = t.shape.size(); a-- > 0; rest /= t.shape[a])
      at += rest % t.shape[a] * t.strides[a];
    std::memcpy(out.bytes.data() + i * size, t.bytes.data() + at * size, static_cast<size_t>(size));
  }
  return out;
}

struct Turned {
  std::vector<TestTensor> inputs, outputs;

  Turned(const ScalarProgram& p, const Shape& shape, std::mt19937_64& random) {
    for (const DType type : p.inputs()) {
      inputs.push_back(random() % 5 == 0 ? Broadcast(type, shape, random)
                                         : InAnyOrder(type, shape, random));
      FillHard(inputs.back(), random);
    }
    for (size_t o = 0; o < p.outputs().size(); ++o) {
      const DType type = p.OutputType(static_cast<int>(o));
      outputs.push_back(random() % 3 == 0 ? InAnyOrder(type, shape, random)
                                          : TestTensor(type, shape));
    }
  }
  // Returns the same with all tensors in one order of axes.
  Turned Alike() const {
    Turned out = *this;
    for (TestTensor& t : out.inputs) t = Dense(t);
    for (TestTensor& t : out.outputs) t = TestTensor(t.type, t.shape);
    return out;
  }
};

void ExpectEqual(const Turned& turned, const Turned& alike) {
  for (size_t o = 0; o < alike.outputs.size(); ++o)
    ASSERT_EQ(FirstDifference(Dense(turned.outputs[o]), alike.outputs[o]), "") << "output " << o;
}

// Calls `run` with one or two programs of each type, and with some of mixed types, each with its
// tensors.
template <typename Run>
void ForEachCase(size_t shapes, const Run& run) {
  std::mt19937_64 random(Seed());
  std::vector<ScalarProgram> programs;
  for (const DType type : TypesIn(kAll)) programs.push_back(PrimitivesOf(type)[0].program);
  for (const int nodes : {1, 3, 8, 24}) programs.push_back(RandomProgram(random, nodes).program);
  for (size_t i = 0; i < programs.size(); ++i) {
    for (size_t s = 0; s < shapes; ++s) {
      const Shape& shape = kShapes[shapes == kShapes.size() ? s : random() % kShapes.size()];
      Turned turned(programs[i], shape, random);
      SCOPED_TRACE(testing::Message() << "program " << i << " on " << testing::PrintToString(shape)
                                      << ", seed " << Seed());
      run(programs[i], turned, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}
const std::vector<opw_attr>& Arguments() {
  static const auto* const all = new std::vector<opw_attr>{FloatArgument(-2.5), IntArgument(7),
                                                           IntArgument(1), FloatArgument(0.1)};
  return *all;
}

TEST(TurnedOnTheHost, TensorsInAnyOrderGiveEqualBits) {
  ForEachCase(kShapes.size(), [](const ScalarProgram& p, Turned& turned, std::mt19937_64&) {
    const Interpreter interpreter(p);
    Turned alike = turned.Alike();
    const uint32_t raised = Call(interpreter.kernel(), alike.inputs, alike.outputs, Arguments());
    ASSERT_EQ(Call(interpreter.kernel(), turned.inputs, turned.outputs, Arguments()), raised);
    ExpectEqual(turned, alike);
  });
}

TEST(TurnedOnTheHost, AResultTakesThePlaceOfAnOperandInItsOrder) {
  std::mt19937_64 random(Seed());
  ScalarProgram p;
  const int x = p.AddInput(DType::kF32), y = p.AddInput(DType::kF32);
  p.AddOutput(*p.Append(*Catalogue().Find("sub"), {{x, y}}, {}, DType::kF32));
  const Interpreter interpreter(p);
  for (const Shape& shape : kShapes) {
    Turned turned(p, shape, random);
    turned.inputs = {InAnyOrder(DType::kF32, shape, random),
                     InAnyOrder(DType::kF32, shape, random)};
    for (TestTensor& t : turned.inputs) FillHard(t, random);
    turned.outputs = {turned.inputs[0]};
    Turned alike = turned.Alike();
    Call(interpreter.kernel(), alike.inputs, alike.outputs);
    const std::vector<opw_tensor> in = {turned.outputs[0].abi(), turned.inputs[1].abi()},
                                  out = {in[0]};
    CallOn(interpreter.kernel(), in, out);
    SCOPED_TRACE(testing::Message() << testing::PrintToString(shape) << ", seed " << Seed());
    ExpectEqual(turned, alike);
  }
}

// On GPUs all NaNs are equivalent.
void WithOneNan(std::vector<TestTensor>& tensors) {
  for (TestTensor& t : tensors) {
    const int64_t size = DTypeBytes(t.type);
    const uint64_t nan = (kFloats | kFloat8s).Has(t.type) ? ElementBits(t.type, NAN) : 0;
    for (size_t at = 0; at < t.bytes.size(); at += static_cast<size_t>(size)) {
      if (std::isnan(ElementValue(t.type, t.bytes.data() + at)))
        std::memcpy(t.bytes.data() + at, &nan, static_cast<size_t>(size));
    }
  }
}

class TurnedTest : public DeviceRunsTest {
 protected:
  uint32_t Run(const ScalarProgram& p, Turned& t, std::vector<int> shares = {}, int64_t shift = 0) {
    return RunKernel(fuser_->Get(p), t.inputs, t.outputs, std::move(shares), shift, Arguments());
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, TurnedTest, ::testing::Values("emu:0", "emu:1"),
                         [](const auto& info) {
                           return std::string(info.param, 3) + info.param[4];
                         });

TEST_P(TurnedTest, TensorsInAnyOrderGiveEqualBits) {
  ForEachCase(2, [&](const ScalarProgram& p, Turned& turned, std::mt19937_64& random) {
    if (turned.outputs[0].elements() == 0) return;
    Turned alike = turned.Alike();
    setenv("OPWIRE_EMU_ORDER", "forward", 1);
    const uint32_t raised = Run(p, alike);
    setenv("OPWIRE_EMU_ORDER", random() % 2 ? "backward" : "4711", 1);
    ASSERT_EQ(Run(p, turned, {}, random() % 2), raised);
    WithOneNan(turned.outputs);
    WithOneNan(alike.outputs);
    ExpectEqual(turned, alike);
  });
}

TEST_P(TurnedTest, AResultTakesThePlaceOfAnOperandInItsOrder) {
  std::mt19937_64 random(Seed());
  ScalarProgram p;
  const int x = p.AddInput(DType::kF32), y = p.AddInput(DType::kF32);
  p.AddOutput(*p.Append(*Catalogue().Find("sub"), {{x, y}}, {}, DType::kF32));
  for (const Shape& shape : {Shape{65, 130}, Shape{2, 70, 33}}) {
    Turned turned(p, shape, random);
    turned.inputs = {InAnyOrder(DType::kF32, shape, random),
                     InAnyOrder(DType::kF32, shape, random)};
    for (TestTensor& t : turned.inputs) FillHard(t, random);
    turned.outputs = {turned.inputs[0]};
    Turned alike = turned.Alike();
    Run(p, alike);
    Run(p, turned, {0});
    WithOneNan(turned.outputs);
    WithOneNan(alike.outputs);
    SCOPED_TRACE(testing::Message() << testing::PrintToString(shape) << ", seed " << Seed());
    ExpectEqual(turned, alike);
  }
}

}  // namespace
}  // namespace opwire::fused
