// Chains of elementwise ops as one kernel, against a copy of the bytes that they must move and
// against one kernel per op.
#include "kernels/fused/fused.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>

#include "kernels/device/device.h"
#include "kernels/fused/joint.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/toolchain.h"
#include "kernels/select/variant.h"
#include "tests/bench/bench.h"

namespace opwire::bench {
namespace {

// min(relu(x + b) * s - b, s) for numbers b and s.
fused::ScalarProgram Chain() {
  fused::ScalarProgram p;
  int value = p.AddInput(DType::kF32);
  const int b = p.AddInput(DType::kF32), s = p.AddInput(DType::kF32);
  const auto append = [&](const char* row, std::vector<int> operands) {
    value = Must(p.Append(*Catalogue().Find(row), operands, {}, DType::kF32));
  };
  append("add", {value, b});
  append("relu", {value});
  append("mul", {value, s});
  append("sub", {value, b});
  append("minimum", {value, s});
  p.AddOutput(value);
  return p;
}

// A kernel of the chain on one large array.
class Runner {
 public:
  Runner(const opw_kernel& kernel, opw_runtime* runtime, int64_t floats, const float* x, float* y)
      : kernel_(kernel), shape_{floats} {
    in_[0] = {const_cast<float*>(x), shape_, strides_, floats, OPW_F32, 0, 1, 1};
    for (int i = 0; i < 2; ++i) in_[i + 1] = {&numbers_[i], nullptr, nullptr, 1, OPW_F32, 0, 0, 1};
    out_ = {y, shape_, strides_, floats, OPW_F32, 0, 1, 1};
    call_.operands = in_;
    call_.starts = starts_;
    call_.results = &out_;
    call_.runtime = runtime;
    call_.context = kernel.context;
    int64_t workspace = 0;
    kernel_.prepare(&call_, &call_.state, &workspace);
  }
  ~Runner() { kernel_.release(call_.state); }
  Runner(const Runner&) = delete;
  // Returns the result for random x.
  Array Result() {
    const Array x = Array::Random(DType::kF32, {shape_[0]}, 1);
    Array y(DType::kF32, {shape_[0]});
    opw_tensor in[3] = {in_[0], in_[1], in_[2]}, out = out_;
    in[0].data = const_cast<uint8_t*>(x.bytes().data());
    out.data = y.bytes().data();
    opw_call call = call_;
    call.operands = in;
    call.results = &out;
    kernel_.run(&call);
    return y;
  }
  double Milliseconds() {
    const double begun = Seconds();
    kernel_.run(&call_);
    return (Seconds() - begun) * 1e3;
  }

 private:
  const opw_kernel kernel_;
  int64_t shape_[1], strides_[1] = {1};
  float numbers_[2] = {3.0f, 0.5f};
  opw_tensor in_[3], out_;
  uint32_t starts_[4] = {0, 1, 2, 3};
  opw_call call_{};
};

// An optimiser step of many small weights, m = momentum m + g and p - lr m: with one call per
// weight, or with one call for all.
class WrittenSteps {
 public:
  static constexpr int kWeights = 148;

  WrittenSteps(opw_runtime* runtime, bool small) : runtime_(runtime) {
    const int64_t part = small ? 96 : 1,
                  sizes[] = {768 / part, 2304 / part, 768 / part, 3072 / part};
    for (int i = 0; i < kWeights; ++i) sizes_.push_back(sizes[i % 4]);
    for (const int64_t n : sizes_) memory_.emplace_back(static_cast<size_t>(5 * n), 0.5f);
    for (int i = 0; i < kWeights; ++i) {
      const int64_t* const n = &sizes_[static_cast<size_t>(i)];
      for (int t = 0; t < 5; ++t)
        (t < 3 ? in_ : out_)
            .push_back(
                {memory_[static_cast<size_t>(i)].data() + t * *n, n, &kOne, *n, OPW_F32, 0, 1, 1});
      for (float& number : numbers_)
        in_.push_back({&number, nullptr, nullptr, 1, OPW_F32, 0, 0, 1});
    }
    starts_.resize(in_.size() + 1);
    for (size_t i = 0; i < starts_.size(); ++i) starts_[i] = static_cast<uint32_t>(i);
  }
  static fused::ScalarProgram Program() {
    fused::ScalarProgram p;
    const int w = p.AddInput(DType::kF32), g = p.AddInput(DType::kF32), m = p.AddInput(DType::kF32),
              momentum = p.AddInput(DType::kF32), lr = p.AddInput(DType::kF32);
    const auto append = [&](const char* row, int x, int y) {
      return Must(p.Append(*Catalogue().Find(row), {{x, y}}, {}, DType::kF32));
    };
    const int next = append("add", append("mul", m, momentum), g);
    p.AddOutput(append("sub", w, append("mul", next, lr)));
    p.AddOutput(next);
    return p;
  }
  // Returns a function that gives the microseconds of all calls, each over `members` weights.
  // REQUIRES: the kernel lives as long as this.
  std::function<double()> Prepare(const opw_kernel& kernel, int members) {
    std::vector<opw_call> calls;
    for (int i = 0; i < kWeights; i += members) {
      opw_call& c = calls.emplace_back();
      c.operands = in_.data() + 5 * i;
      c.results = out_.data() + 2 * i;
      c.starts = starts_.data();
      c.runtime = runtime_;
      c.context = kernel.context;
      int64_t workspace = 0;
      kernel.prepare(&c, &c.state, &workspace);
      prepared_.push_back({kernel.release, c.state});
    }
    return [calls, run = kernel.run] {
      const double begun = Seconds();
      for (const opw_call& c : calls) run(&c);
      return (Seconds() - begun) * 1e6;
    };
  }
  // Returns the new weights and means that `all`, a result of Prepare, computes from random ones.
  std::vector<Array> ResultsOf(const std::function<double()>& all) {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const Array values = Array::Random(DType::kF32, {5 * sizes_[i]}, i);
      std::ranges::copy(values.values<float>(), memory_[i].begin());
    }
    all();
    std::vector<Array> results;
    for (size_t i = 0; i < memory_.size(); ++i)
      results.push_back(
          Array::Of<float>(DType::kF32, {2 * sizes_[i]},
                           std::span(memory_[i]).subspan(3 * static_cast<size_t>(sizes_[i]))));
    return results;
  }
  // Returns their expected values.
  std::vector<Array> Expected() const {
    std::vector<Array> results;
    for (size_t i = 0; i < memory_.size(); ++i) {
      const auto n = static_cast<size_t>(sizes_[i]);
      const Array values = Array::Random(DType::kF32, {5 * sizes_[i]}, i);
      const std::span<const float> w = values.values<float>(), g = w.subspan(n), m = g.subspan(n);
      const std::span<float> out =
          results.emplace_back(DType::kF32, std::vector{2 * sizes_[i]}).values<float>();
      for (size_t k = 0; k < n; ++k) {
        out[n + k] = m[k] * numbers_[0] + g[k];
        out[k] = w[k] - out[n + k] * numbers_[1];
      }
    }
    return results;
  }
  ~WrittenSteps() {
    for (const auto& [release, state] : prepared_) release(state);
  }
  WrittenSteps(const WrittenSteps&) = delete;

 private:
  static constexpr int64_t kOne = 1;
  opw_runtime* const runtime_;
  std::vector<int64_t> sizes_;
  std::vector<std::vector<float>> memory_;
  float numbers_[2] = {0.9f, 0.01f};
  std::vector<opw_tensor> in_, out_;
  std::vector<uint32_t> starts_;
  std::vector<std::pair<void (*)(void*), void*>> prepared_;
};

// 20 named arithmetic ops over one array. If `pins` is set, each runs alone, by its own kernel.
std::string Chain20(const VariantTable& variants, int64_t floats, bool pins) {
  const char* const ops[] = {"add(%{}, %b)",     "mul(%{}, %s)", "relu(%{})",        "sub(%{}, %b)",
                             "minimum(%{}, %s)", "neg(%{})",     "maximum(%{}, %b)", "abs(%{})",
                             "mul(%{}, %x)",     "add(%{}, %s)"};
  constexpr int kOps = 20;
  std::string text = fmt::format(
      "program @chain20(%x: f32[{}], %b: f32[], %s: f32[]) -> (y: f32[{}]) {{\n", floats, floats);
  for (int i = 0; i < kOps; ++i) {
    std::string op =
        fmt::format(fmt::runtime(ops[i % std::size(ops)]), i == 0 ? "x" : std::to_string(i - 1));
    const std::string name = op.substr(0, op.find('('));
    if (pins)
      op.insert(name.size(), "@" + Must(variants.FirstRunnable(name, DType::kF32, ""))->name);
    text += fmt::format("  %{} = {}\n", i, op);
  }
  return text + fmt::format("  return %{}\n}}\n", kOps - 1);
}

// Row ops as plain ops, and as the op that these spell out; of [rows, columns]. Plain ops with pins
// run as one kernel each.
struct Spelled {
  const char* name;
  const char* plain;
  const char* op;
};
constexpr Spelled kSpelled[] = {
    {"softmax",
     "  %m = amax{0}(%x) {{dims = [1], keepdim = true}}\n  %0 = sub{1}(%x, %m)\n  %1 = "
     "exp{2}(%0)\n  %s = sum{3}(%1) {{dims = [1], keepdim = true}}\n  %y = div{4}(%1, %s)\n",
     "  %y = softmax(%x)\n"},
    {"layer_norm",
     "  %m = mean{0}(%x) {{dims = [1], keepdim = true}}\n  %0 = sub{1}(%x, %m)\n  %1 = mul{2}(%0, "
     "%0)\n  %v = mean{3}(%1) {{dims = [1], keepdim = true}}\n  %e = full() {{value = 1e-5}}\n"
     "  %2 = add{4}(%v, %e)\n  %3 = rsqrt{5}(%2)\n  %4 = mul{2}(%0, %3)\n  %5 = mul{2}(%4, %w)\n  "
     "%y = add{4}(%5, %w)\n",
     "  %y = layer_norm(%x, %w, %w)\n"},
};
std::string RowProgramText(const std::string& body, int64_t rows, int64_t columns) {
  return fmt::format(
      "program @f(%x: f32[{0}, {1}], %w: f32[{1}]) -> (y: f32[{0}, {1}]) {{\n{2}  return %y\n}}\n",
      rows, columns, body);
}

// Returns the milliseconds of copying the array on all threads, by memcpy or past the caches.
double CopyMilliseconds(opw_runtime* runtime, int64_t floats, const float* from, float* to,
                        bool past) {
  struct Copy {
    const float* from;
    float* to;
  } copy{from, to};
  const double begun = Seconds();
  runtime->parallel_for(
      runtime, floats, floats / std::max(1, runtime->threads),
      past ? [](void* context, int64_t begin, int64_t end) {
        const Copy& one = *static_cast<const Copy*>(context);
        for (int64_t i = begin; i < end; i += 4) _mm_stream_ps(one.to + i, _mm_load_ps(one.from + i));
        _mm_sfence();
      } : [](void* context, int64_t begin, int64_t end) {
        const Copy& one = *static_cast<const Copy*>(context);
        std::memcpy(one.to + begin, one.from + begin, static_cast<size_t>(end - begin) * sizeof(float));
      },
      &copy);
  return (Seconds() - begun) * 1e3;
}

// Returns the milliseconds of reading both arrays on all threads, in consecutive pieces.
double ReadMilliseconds(opw_runtime* runtime, int64_t floats, const float* a, const float* b) {
  const float* const both[] = {a, b};
  const double begun = Seconds();
  runtime->parallel_for(
      runtime, floats, floats / std::max(1, runtime->threads * 4),
      [](void* context, int64_t begin, int64_t end) {
        __m128 sums[4] = {};
        for (int i = 0; i < 2; ++i) {
          const float* const from = static_cast<const float* const*>(context)[i];
          for (int64_t at = begin / 16 * 16; at + 16 <= end; at += 16) {
            for (int k = 0; k < 4; ++k)
              sums[k] = _mm_add_ps(sums[k], _mm_load_ps(from + at + 4 * k));
          }
        }
        [[maybe_unused]] const volatile float read =
            _mm_cvtss_f32(_mm_add_ps(_mm_add_ps(sums[0], sums[1]), _mm_add_ps(sums[2], sums[3])));
      },
      const_cast<const float**>(both));
  return (Seconds() - begun) * 1e3;
}

// The gradient of a bias through relu, as plain ops; of [rows, columns].
std::string BiasGradientText(std::string_view gt, std::string_view where, std::string_view sum,
                             int64_t rows, int64_t columns) {
  return fmt::format(
      "program @f(%y: f32[{0}, {1}], %g: f32[{0}, {1}]) -> (b: f32[{1}]) {{\n  %z = full() {{value "
      "= 0.0}}\n  %0 = gt{2}(%y, %z)\n  %1 = where{3}(%0, %g, %z)\n"
      "  %2 = sum{4}(%1) {{dims = [0]}}\n  return %2\n}}\n",
      rows, columns, gt, where, sum);
}

// relu(x) + z of [side, side]. x is read with permuted axes or in storage order.
std::string PermutedText(bool permutes, std::string_view permute, std::string_view relu,
                         std::string_view add, int64_t side) {
  const std::string turned =
      permutes ? fmt::format("  %t = permute{}(%x) {{dims = [1, 0]}}\n", permute) : "";
  return fmt::format(
      "program @f(%x: f32[{0}, {0}], %z: f32[{0}, {0}]) -> (y: f32[{0}, {0}]) {{\n{1}  %r = "
      "relu{2}({3})\n  %y = add{4}(%r, %z)\n  return %y\n}}\n",
      side, turned, relu, permutes ? "%t" : "%x", add);
}

// gelu(x w' + b) + z, of [m, k] by [n, k]. With a pin the matmul is a kernel of its own.
std::string FinishedText(std::string_view pin, int64_t m, int64_t k, int64_t n) {
  return fmt::format(
      "program @f(%x: f32[{0}, {1}], %w: f32[{2}, {1}], %b: f32[{2}], %z: f32[{0}, {2}]) -> (y: "
      "f32[{0}, {2}]) {{\n  %a = linear{3}(%x, %w, %b) {{activation = \"gelu\"}}\n"
      "  %y = add(%a, %z)\n  return %y\n}}\n",
      m, k, n, pin);
}

}  // namespace

void FusedRows(const Setup& setup, Device& device, const VariantTable& variants,
               std::vector<Row>& rows) {
  const int64_t side = setup.Scaled<int64_t>(4096, 64), floats = side * side;  // 64 MiB
  const auto cxx = jit::HostCompiler({});
  const auto cache = Must(jit::BuildCache::Open({.directory = setup.directory + "/fused"}));
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  const std::unique_ptr<float[], void (*)(void*)> x(
      static_cast<float*>(std::aligned_alloc(64, bytes)), std::free),
      y(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
  std::memset(x.get(), 0, bytes);
  std::memset(y.get(), 0, bytes);
  const int times = setup.Times(15);
  const auto median = [&](const auto& once) {
    std::vector<double> ms;
    for (int i = 0; i < times; ++i) ms.push_back(once());
    return Percentile(ms, 0.5);
  };
  Measure("fused", {"fused_interpreted"}, rows, [&] {
    const fused::ScalarProgram program = Chain();
    fused::FusedKernel compiled(program);
    compiled.functions().Compile(*cxx, *cache);
    Must(compiled.functions().status());
    const fused::Interpreter interpreter(program);
    Runner fast(compiled.kernel(), device.runtime(), floats, x.get(), y.get()),
        slow(interpreter.kernel(), device.runtime(), floats, x.get(), y.get());
    const auto runs = [&](Runner& runner) {
      return Timed([&] { return median([&] { return runner.Milliseconds(); }); },
                   [&] { return std::vector{runner.Result()}; },
                   [&] {
                     Array y = Array::Random(DType::kF32, {floats}, 1);
                     for (float& v : y.values<float>())
                       v = std::min(std::max(v + 3.0f, 0.0f) * 0.5f - 3.0f, 0.5f);
                     return std::vector{y};
                   });
    };
    rows.push_back(
        Compare(setup, "fused_interpreted", "ms", "the same compiled", runs(slow), runs(fast)));
  });
  Measure("fused", {"joint_sgd_148"}, rows, [&] {
    fused::FusedKernel step(WrittenSteps::Program());
    step.functions().Compile(*cxx, *cache);
    Must(step.functions().status());
    const fused::JointKernel joint(
        std::shared_ptr<const fused::Functions>(std::shared_ptr<void>(), &step.functions()),
        WrittenSteps::kWeights);
    WrittenSteps steps(device.runtime(), setup.small);
    const auto together = steps.Prepare(joint.kernel(), WrittenSteps::kWeights),
               apart = steps.Prepare(step.kernel(), 1);
    const auto runs = [&](const std::function<double()>& all) {
      return Timed([&] { return median(all); }, [&] { return steps.ResultsOf(all); },
                   [&] { return steps.Expected(); });
    };
    const std::function<double()> of_all = together, of_each = apart;
    rows.push_back(Compare(setup, "joint_sgd_148", "us", "the same by a call for each weight",
                           runs(of_all), runs(of_each)));
  });

  Session session = OpenOn("bench", true);
  const double warm = setup.Scaled(10.0, 0.0);
  const auto pin = [&](const char* op) {
    return "@" + Must(variants.FirstRunnable(op, DType::kF32, ""))->name;
  };
  Measure("fused", {"chain20", "chain20_alone"}, rows, [&] {
    const std::string text = Chain20(variants, floats, false);
    const ProgramOperands operands(session, text, {{"b", 0.25}, {"s", 0.5}});
    const Timed chain = operands.Runs(setup, text, times),
                alone = operands.Runs(setup, Chain20(variants, floats, true), times);
    const auto copy = [&] {
      const auto by = [&](bool past) {
        return median(
            [&] { return CopyMilliseconds(device.runtime(), floats, x.get(), y.get(), past); });
      };
      const double plain = by(false);
      return std::min(plain, by(true));
    };
    // Until it was compiled in the background, by a thread that continues only if a processor is
    // free.
    for (const double begun = Seconds(); Seconds() - begun < warm;
         std::this_thread::sleep_for(std::chrono::milliseconds(300)))
      chain.time();
    alone.time();
    rows.push_back(
        Compare(setup, "chain20", "ms", "the faster of two copies of as many bytes", chain, copy));
    rows.back().target = 1 / 0.85;
    rows.push_back(Compare(setup, "chain20_alone", "ms", "each op alone", chain, alone));
    rows.back().target = 0.2;
  });
  using Shape = std::pair<int64_t, int64_t>;
  const std::vector<Shape> shapes =
      setup.small ? std::vector<Shape>{{64, 8}, {16, 32}, {4, 256}}
                  : std::vector<Shape>{{262144, 64}, {16384, 1024}, {512, 32768}};
  for (const Spelled& one : kSpelled) {
    const bool softmax = one.name == std::string_view("softmax");
    for (const auto& [m, n] : shapes) {
      const std::string name = fmt::format("rows_{}_{}x{}", one.name, m, n);
      Measure("fused", {name, name + "_alone"}, rows, [&, m = m, n = n] {
        const std::string plain =
            softmax ? fmt::format(fmt::runtime(one.plain), "", "", "", "", "")
                    : fmt::format(fmt::runtime(one.plain), "", "", "", "", "", "");
        const std::string pinned =
            softmax ? fmt::format(fmt::runtime(one.plain), pin("amax"), pin("sub"), pin("exp"),
                                  pin("sum"), pin("div"))
                    : fmt::format(fmt::runtime(one.plain), pin("mean"), pin("sub"), pin("mul"),
                                  pin("mean"), pin("add"), pin("rsqrt"));
        const auto text = [&](const std::string& body) { return RowProgramText(body, m, n); };
        const ProgramOperands operands(session, text(plain));
        const Timed fused = operands.Runs(setup, text(plain), times),
                    by_itself = operands.Runs(setup, text(pinned), times),
                    op = operands.Runs(setup, text(one.op), times);
        for (const double begun = Seconds(); Seconds() - begun < warm;) fused.time();
        rows.push_back(Compare(setup, name, "ms", "the op that it spells out", fused, op));
        rows.push_back(Compare(setup, name + "_alone", "ms", "each op alone", fused, by_itself));
      });
    }
  }
  Measure("fused", {"written_bias_gradient", "written_bias_gradient_alone"}, rows, [&] {
    const std::string text = BiasGradientText("", "", "", side, side);
    const ProgramOperands operands(session, text);
    const Timed fused = operands.Runs(setup, text, times),
                by_itself = operands.Runs(
                    setup, BiasGradientText(pin("gt"), pin("where"), pin("sum"), side, side),
                    times);
    for (const double begun = Seconds(); Seconds() - begun < warm;) fused.time();
    rows.push_back(
        Compare(setup, "written_bias_gradient", "ms", "reading both operands", fused, [&] {
          return median(
              [&] { return ReadMilliseconds(device.runtime(), floats, x.get(), y.get()); });
        }));
    rows.push_back(
        Compare(setup, "written_bias_gradient_alone", "ms", "each op alone", fused, by_itself));
  });
  Measure("fused", {"permuted_relu_add", "permuted_relu_add_alone"}, rows, [&] {
    const std::string text = PermutedText(true, "", "", "", side);
    const ProgramOperands operands(session, text);
    const Timed fused = operands.Runs(setup, text, times),
                by_itself = operands.Runs(
                    setup, PermutedText(true, pin("permute"), pin("relu"), pin("add"), side),
                    times);
    Timed straight = operands.Runs(setup, PermutedText(false, "", "", "", side), times);
    straight.result = nullptr;  // it computes other numbers
    for (const double begun = Seconds(); Seconds() - begun < warm;) fused.time();
    for (const double begun = Seconds(); Seconds() - begun < warm;) straight.time();
    rows.push_back(Compare(setup, "permuted_relu_add", "ms",
                           "the same in the order in which all lie", fused, straight));
    rows.push_back(
        Compare(setup, "permuted_relu_add_alone", "ms", "each op alone", fused, by_itself));
  });
  using Sizes = std::tuple<int64_t, int64_t, int64_t>;
  const std::vector<Sizes> products =
      setup.small
          ? std::vector<Sizes>{{64, 8, 8}, {32, 16, 32}, {16, 16, 16}, {16, 32, 32}}
          : std::vector<Sizes>{
                {65536, 64, 64}, {16384, 256, 1024}, {1024, 1024, 1024}, {2048, 4096, 4096}};
  for (const auto& [m, k, n] : products) {
    const std::string name = fmt::format("linear_finished_{}x{}x{}", m, n, k);
    Measure("fused", {name}, rows, [&, m = m, k = k, n = n] {
      const std::string text = FinishedText("", m, k, n);
      const ProgramOperands operands(session, text);
      const Timed finished = operands.Runs(setup, text, times),
                  apart = operands.Runs(setup, FinishedText("@onednn", m, k, n), times);
      for (const double begun = Seconds(); Seconds() - begun < warm;) finished.time();
      rows.push_back(Compare(setup, name, "ms", "the product alone, and one kernel for the sum",
                             finished, apart));
    });
  }
}

}  // namespace opwire::bench
