// Chains of elementwise ops as one kernel, against a copy of the bytes that they must move and
// against each op by itself.
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

constexpr int64_t kFloats = 16 << 20;  // 64 MiB

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
  Runner(const opw_kernel& kernel, opw_runtime* runtime, const float* x, float* y)
      : kernel_(kernel) {
    in_[0] = {const_cast<float*>(x), shape_, strides_, kFloats, OPW_F32, 0, 1, 1};
    for (int i = 0; i < 2; ++i) in_[i + 1] = {&numbers_[i], nullptr, nullptr, 1, OPW_F32, 0, 0, 1};
    out_ = {y, shape_, strides_, kFloats, OPW_F32, 0, 1, 1};
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
  double Milliseconds() {
    const double begun = Seconds();
    kernel_.run(&call_);
    return (Seconds() - begun) * 1e3;
  }

 private:
  const opw_kernel kernel_;
  int64_t shape_[1] = {kFloats}, strides_[1] = {1};
  float numbers_[2] = {3.0f, 0.5f};
  opw_tensor in_[3], out_;
  uint32_t starts_[4] = {0, 1, 2, 3};
  opw_call call_{};
};

// p - lr m, m = momentum m + g: a step of many small weights, each by a call or all by one.
class WrittenSteps {
 public:
  static constexpr int kWeights = 148;

  explicit WrittenSteps(opw_runtime* runtime) : runtime_(runtime) {
    constexpr int64_t kSizes[] = {768, 2304, 768, 3072};
    for (int i = 0; i < kWeights; ++i) sizes_.push_back(kSizes[i % 4]);
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
  // Microseconds of all calls, each over `members` weights. REQUIRES: the kernel lives as long as
  // this.
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

// 20 named arithmetic ops over one array, each by the kernel that runs it alone where `pins` is
// set.
std::string Chain20(const VariantTable& variants, bool pins) {
  const char* const ops[] = {"add(%{}, %b)",     "mul(%{}, %s)", "relu(%{})",        "sub(%{}, %b)",
                             "minimum(%{}, %s)", "neg(%{})",     "maximum(%{}, %b)", "abs(%{})",
                             "mul(%{}, %x)",     "add(%{}, %s)"};
  constexpr int kOps = 20;
  std::string text = fmt::format(
      "program @chain20(%x: f32[{}], %b: f32[], %s: f32[]) -> (y: f32[{}]) {{\n", kFloats, kFloats);
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

// Rows as plain ops and as the op that these spell out; of [rows, columns]. Plain ops with pins run
// by themselves.
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

// Milliseconds of copying the array on all threads, by memcpy or past the caches.
double CopyMilliseconds(opw_runtime* runtime, const float* from, float* to, bool past) {
  struct Copy {
    const float* from;
    float* to;
  } copy{from, to};
  const double begun = Seconds();
  runtime->parallel_for(
      runtime, kFloats, kFloats / std::max(1, runtime->threads),
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

// Milliseconds of reading both arrays on all threads, in pieces that lie behind each other.
double ReadMilliseconds(opw_runtime* runtime, const float* a, const float* b) {
  const float* const both[] = {a, b};
  const double begun = Seconds();
  runtime->parallel_for(
      runtime, kFloats, kFloats / std::max(1, runtime->threads * 4),
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

// relu(x) + z, where x is read in the other order of its axes or as it is; of [side, side].
std::string PermutedText(bool permutes, std::string_view permute, std::string_view relu,
                         std::string_view add, int64_t side) {
  const std::string turned =
      permutes ? fmt::format("  %t = permute{}(%x) {{dims = [1, 0]}}\n", permute) : "";
  return fmt::format(
      "program @f(%x: f32[{0}, {0}], %z: f32[{0}, {0}]) -> (y: f32[{0}, {0}]) {{\n{1}  %r = "
      "relu{2}({3})\n  %y = add{4}(%r, %z)\n  return %y\n}}\n",
      side, turned, relu, permutes ? "%t" : "%x", add);
}

// gelu(x w' + b) + z, of [m, k] by [n, k]. With a pin the product is a kernel of its own.
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
  const auto cxx = jit::HostCompiler({});
  const auto cache = Must(jit::BuildCache::Open({.directory = setup.directory + "/fused"}));
  const fused::ScalarProgram program = Chain();
  fused::FusedKernel compiled(program);
  compiled.functions().Compile(*cxx, *cache);
  Must(compiled.functions().status());
  const fused::Interpreter interpreter(program);
  const size_t bytes = kFloats * sizeof(float);
  const std::unique_ptr<float[], void (*)(void*)> x(
      static_cast<float*>(std::aligned_alloc(64, bytes)), std::free),
      y(static_cast<float*>(std::aligned_alloc(64, bytes)), std::free);
  std::memset(x.get(), 0, bytes);
  std::memset(y.get(), 0, bytes);
  Runner fast(compiled.kernel(), device.runtime(), x.get(), y.get()),
      slow(interpreter.kernel(), device.runtime(), x.get(), y.get());
  const auto median = [](const auto& once) {
    std::vector<double> ms;
    for (int i = 0; i < 15; ++i) ms.push_back(once());
    return Percentile(ms, 0.5);
  };
  rows.push_back(Compare(
      "fused_interpreted", "ms", "the same compiled",
      [&] { return median([&] { return slow.Milliseconds(); }); },
      [&] { return median([&] { return fast.Milliseconds(); }); }));

  fused::FusedKernel step(WrittenSteps::Program());
  step.functions().Compile(*cxx, *cache);
  Must(step.functions().status());
  const fused::JointKernel joint(
      std::shared_ptr<const fused::Functions>(std::shared_ptr<void>(), &step.functions()),
      WrittenSteps::kWeights);
  WrittenSteps steps(device.runtime());
  const auto together = steps.Prepare(joint.kernel(), WrittenSteps::kWeights),
             apart = steps.Prepare(step.kernel(), 1);
  rows.push_back(Compare(
      "joint_sgd_148", "us", "the same by a call for each weight", [&] { return median(together); },
      [&] { return median(apart); }));

  Session session = OpenOn("bench", true);
  const Program chain = Must(session.Load(Chain20(variants, false))),
                alone = Must(session.Load(Chain20(variants, true)));
  const Tensor in = Must(session.Put(Array::Random(DType::kF32, {kFloats}, 1).view()));
  const auto run = [&](const Program& p) {
    return median([&] { return static_cast<double>(Must(p.Run({in, 0.25, 0.5})).run_ns) / 1e6; });
  };
  const auto copy = [&] {
    const double plain =
        median([&] { return CopyMilliseconds(device.runtime(), x.get(), y.get(), false); });
    return std::min(
        plain, median([&] { return CopyMilliseconds(device.runtime(), x.get(), y.get(), true); }));
  };
  // Until it was compiled behind the runs, by a thread that goes on only where a processor is free.
  constexpr double kWarm = 10;
  for (const double begun = Seconds(); Seconds() - begun < kWarm;
       std::this_thread::sleep_for(std::chrono::milliseconds(300)))
    run(chain);
  run(alone);
  rows.push_back(Compare(
      "chain20", "ms", "the faster of two copies of as many bytes", [&] { return run(chain); },
      copy));
  rows.back().target = 1 / 0.85;
  const auto pin = [&](const char* op) {
    return "@" + Must(variants.FirstRunnable(op, DType::kF32, ""))->name;
  };
  for (const Spelled& one : kSpelled) {
    const bool softmax = one.name == std::string_view("softmax");
    const std::string plain = softmax
                                  ? fmt::format(fmt::runtime(one.plain), "", "", "", "", "")
                                  : fmt::format(fmt::runtime(one.plain), "", "", "", "", "", "");
    const std::string pinned = softmax
                                   ? fmt::format(fmt::runtime(one.plain), pin("amax"), pin("sub"),
                                                 pin("exp"), pin("sum"), pin("div"))
                                   : fmt::format(fmt::runtime(one.plain), pin("mean"), pin("sub"),
                                                 pin("mul"), pin("mean"), pin("add"), pin("rsqrt"));
    for (const auto& [m, n] :
         {std::pair<int64_t, int64_t>{262144, 64}, {16384, 1024}, {512, 32768}}) {
      const auto load = [&, m = m, n = n](const std::string& body) {
        return Must(session.Load(RowProgramText(body, m, n)));
      };
      const Program fused = load(plain), by_itself = load(pinned), op = load(one.op);
      const Tensor x = Must(session.Put(Array::Random(DType::kF32, {m, n}, 1).view())),
                   w = Must(session.Put(Array::Random(DType::kF32, {n}, 2).view()));
      const auto time = [&](const Program& p) {
        return median([&] { return static_cast<double>(Must(p.Run({x, w})).run_ns) / 1e6; });
      };
      for (const double begun = Seconds(); Seconds() - begun < kWarm;) time(fused);
      const std::string name = fmt::format("rows_{}_{}x{}", one.name, m, n);
      rows.push_back(Compare(
          name, "ms", "the op that it spells out", [&] { return time(fused); },
          [&] { return time(op); }));
      rows.push_back(Compare(
          name + "_alone", "ms", "each op by itself", [&] { return time(fused); },
          [&] { return time(by_itself); }));
    }
  }
  {
    constexpr int64_t kSide = 4096;
    static_assert(kSide * kSide == kFloats);
    const Program fused = Must(session.Load(BiasGradientText("", "", "", kSide, kSide))),
                  by_itself = Must(session.Load(
                      BiasGradientText(pin("gt"), pin("where"), pin("sum"), kSide, kSide)));
    const float* const second = y.get();
    const Tensor y = Must(session.Put(Array::Random(DType::kF32, {kSide, kSide}, 1).view())),
                 g = Must(session.Put(Array::Random(DType::kF32, {kSide, kSide}, 2).view()));
    const auto time = [&](const Program& p) {
      return median([&] { return static_cast<double>(Must(p.Run({y, g})).run_ns) / 1e6; });
    };
    for (const double begun = Seconds(); Seconds() - begun < kWarm;) time(fused);
    rows.push_back(Compare(
        "written_bias_gradient", "ms", "reading both operands", [&] { return time(fused); },
        [&] {
          return median([&] { return ReadMilliseconds(device.runtime(), x.get(), second); });
        }));
    rows.push_back(Compare(
        "written_bias_gradient_alone", "ms", "each op by itself", [&] { return time(fused); },
        [&] { return time(by_itself); }));
  }
  {
    constexpr int64_t kSide = 4096;
    const Program fused = Must(session.Load(PermutedText(true, "", "", "", kSide))),
                  straight = Must(session.Load(PermutedText(false, "", "", "", kSide))),
                  by_itself = Must(session.Load(
                      PermutedText(true, pin("permute"), pin("relu"), pin("add"), kSide)));
    const Tensor x = Must(session.Put(Array::Random(DType::kF32, {kSide, kSide}, 1).view())),
                 z = Must(session.Put(Array::Random(DType::kF32, {kSide, kSide}, 2).view()));
    const auto time = [&](const Program& p) {
      return median([&] { return static_cast<double>(Must(p.Run({x, z})).run_ns) / 1e6; });
    };
    for (const double begun = Seconds(); Seconds() - begun < kWarm;) time(fused);
    for (const double begun = Seconds(); Seconds() - begun < kWarm;) time(straight);
    rows.push_back(Compare(
        "permuted_relu_add", "ms", "the same in the order in which all lie",
        [&] { return time(fused); }, [&] { return time(straight); }));
    rows.push_back(Compare(
        "permuted_relu_add_alone", "ms", "each op by itself", [&] { return time(fused); },
        [&] { return time(by_itself); }));
  }
  for (const auto& [m, k, n] : {std::tuple<int64_t, int64_t, int64_t>{65536, 64, 64},
                                {16384, 256, 1024},
                                {1024, 1024, 1024},
                                {2048, 4096, 4096}}) {
    const Program finished = Must(session.Load(FinishedText("", m, k, n))),
                  apart = Must(session.Load(FinishedText("@onednn", m, k, n)));
    const Tensor x = Must(session.Put(Array::Random(DType::kF32, {m, k}, 1).view())),
                 w = Must(session.Put(Array::Random(DType::kF32, {n, k}, 2).view())),
                 b = Must(session.Put(Array::Random(DType::kF32, {n}, 3).view())),
                 z = Must(session.Put(Array::Random(DType::kF32, {m, n}, 4).view()));
    const auto time = [&](const Program& p) {
      return median([&] { return static_cast<double>(Must(p.Run({x, w, b, z})).run_ns) / 1e6; });
    };
    for (const double begun = Seconds(); Seconds() - begun < kWarm;) time(finished);
    rows.push_back(Compare(
        fmt::format("linear_finished_{}x{}x{}", m, n, k), "ms",
        "the product by itself, and one kernel for the sum", [&] { return time(finished); },
        [&] { return time(apart); }));
  }
  rows.push_back(Compare(
      "chain20_alone", "ms", "each op by itself", [&] { return run(chain); },
      [&] { return run(alone); }));
  rows.back().target = 0.2;
}

}  // namespace opwire::bench
