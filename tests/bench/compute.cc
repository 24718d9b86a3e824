// What the wire and the plan add to kernels: per-op overhead, transfers, matrix products.
#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <optional>

#include "ir/text/text.h"
#include "kernels/device/device.h"
#include "kernels/select/variant.h"
#include "tests/bench/bench.h"

namespace opwire::bench {
namespace {

// A kernel called in this process, as the executor would.
class DirectAdd {
 public:
  DirectAdd(Device& device, const VariantTable& variants, int64_t n) : shape_{n}, strides_{1} {
    for (opw_tensor* t : {&in_[0], &in_[1], &out_}) {
      *t = {nullptr, shape_, strides_, n, OPW_F32, 0, 1, 1};
    }
    call_.operands = in_;
    call_.starts = starts_;
    call_.results = &out_;
    kernel_ = Must(variants.Choose("add", DType::kF32, call_, ""))->kernel;
    int64_t workspace = 0;
    if (kernel_.prepare) kernel_.prepare(&call_, &call_.state, &workspace);
    call_.runtime = device.runtime();
  }
  ~DirectAdd() {
    if (kernel_.release) kernel_.release(call_.state);
  }
  void operator()(const float* a, const float* b, float* y) {
    in_[0].data = const_cast<float*>(a);
    in_[1].data = const_cast<float*>(b);
    out_.data = y;
    kernel_.run(&call_);
  }

 private:
  int64_t shape_[1], strides_[1];
  opw_tensor in_[2], out_;
  uint32_t starts_[3] = {0, 1, 2};
  opw_call call_{};
  opw_kernel kernel_{};
};

void Overhead(const Setup& setup, std::vector<Row>& rows, Device& device,
              const VariantTable& variants) {
  const int ops = setup.Scaled(10'000, 100), times = setup.Times(50);
  // Pinned to what would be chosen anyway: nodes that are pinned run one by one.
  const std::string add_op = "add@" + Must(variants.FirstRunnable("add", DType::kF32, ""))->name;
  std::string text = fmt::format(
      "program @chain(%x: f32[10], %y: f32[10]) -> (z: f32[10]) {{\n  %0 = {}(%x, %y)\n", add_op);
  for (int i = 1; i < ops; ++i) text += fmt::format("  %{} = {}(%{}, %y)\n", i, add_op, i - 1);
  text += fmt::format("  return %{}\n}}\n", ops - 1);
  Session session = OpenOn("bench", true);
  const Program chain = Must(session.Load(text));
  const Array x = Array::Random(DType::kF32, {10}, 1), y = Array::Random(DType::kF32, {10}, 2);
  RunOptions options;
  options.wants = {Want::kInline};
  DirectAdd add(device, variants, 10);
  alignas(64) float values[2][16] = {}, addend[16] = {};
  const auto module = Must(Parse(text, "chain"));
  const auto ours = [&] {
    std::vector<double> ns;
    for (int i = 0; i < times; ++i)
      ns.push_back(static_cast<double>(Must(chain.Run({x, y}, options)).run_ns) / ops);
    return Percentile(ns, 0.5);
  };
  const auto theirs = [&] {
    std::vector<double> ns;
    for (int i = 0; i < times; ++i) {
      const double begun = Seconds();
      for (int k = 0; k < ops; ++k) add(values[k & 1], addend, values[(k + 1) & 1]);
      ns.push_back((Seconds() - begun) * 1e9 / ops);
    }
    return Percentile(ns, 0.5);
  };
  const Timed wire(
      ours,
      [&] {
        return std::vector{Must(chain.Run({x, y}, options)).outputs.at(0).array.value()};
      },
      [&] {
        const Array a = Array::Random(DType::kF32, {10}, 1),
                    b = Array::Random(DType::kF32, {10}, 2);
        return ByReference(setup, Must(Parse(text, "chain")), {a, b});
      });
  const Timed loop(theirs, [&] {
    std::memcpy(values[0], x.bytes().data(), x.bytes().size());
    std::memcpy(addend, y.bytes().data(), y.bytes().size());
    for (int k = 0; k < ops; ++k) add(values[k & 1], addend, values[(k + 1) & 1]);
    return std::vector{Array::Of<float>(DType::kF32, {10}, values[ops & 1])};
  });
  rows.push_back(
      Compare(setup, "op_overhead", "ns/op", "a loop that calls the kernel", wire, loop));
  rows.back().target = 1.5;
  Row absolute = rows.back();
  absolute.name = "op_overhead_absolute";
  absolute.target = 50;
  absolute.target_is_ratio = false;
  rows.push_back(absolute);
}

void Transfers(const Setup& setup, std::vector<Row>& rows, Device& device,
               const VariantTable& variants) {
  const int64_t floats = setup.Scaled<int64_t>(16 << 20, 32 << 10);  // 64 MiB
  Session session = OpenOn("bench", true);
  const Program program = Must(session.Load(kAdd));
  const Array source = Array::Random(DType::kF32, {floats}, 3);
  Array sink(DType::kF32, {floats});
  const Tensor y = Must(session.Put(source.view()));
  const size_t bytes = source.bytes().size();
  const auto in_segment = [&] {
    const double begun = Seconds();
    const Writable w = Must(session.Alloc(DType::kF32, {floats}));
    std::memcpy(w.bytes.data(), source.bytes().data(), bytes);
    Must(session.Seal(w));
    const RunResult r = Must(program.Run({w.tensor, y}));
    const TensorView view = Must(session.View(r.outputs[0].tensor));
    std::memcpy(sink.bytes().data(), view.bytes().data(), bytes);
    return (Seconds() - begun) * 1e3;
  };
  const auto foreign = [&] {
    const double begun = Seconds();
    const Tensor x = Must(session.Put(source.view()));
    const RunResult r = Must(program.Run({x, y}));
    Must(session.FetchInto(r.outputs[0].tensor, sink.bytes()));
    return (Seconds() - begun) * 1e3;
  };
  const std::span<const float> addend = source.values<float>();
  std::vector<float> a(addend.size()), b(addend.begin(), addend.end()), c(addend.size());
  DirectAdd add(device, variants, floats);
  const auto local = [&] {
    const double begun = Seconds();
    std::memcpy(a.data(), source.bytes().data(), bytes);
    add(a.data(), b.data(), c.data());
    std::memcpy(sink.bytes().data(), c.data(), bytes);
    return (Seconds() - begun) * 1e3;
  };
  const auto checked = [&](const std::function<double()>& run) {
    return Timed(
        run,
        [&, run] {
          std::ranges::fill(sink.bytes(), 0xff);
          run();
          return std::vector{sink};
        },
        [&] {
          Array twice = Array::Random(DType::kF32, {floats}, 3);
          for (float& v : twice.values<float>()) v *= 2;
          return std::vector{twice};
        },
        0);
  };
  const Timed ours = checked(in_segment), theirs = checked(local);
  in_segment();
  local();
  rows.push_back(
      Compare(setup, "transfer_64MiB", "ms", "copy, add, copy in one process", ours, theirs));
  rows.back().target = 1.15;
  foreign();
  rows.push_back(Compare(setup, "transfer_64MiB_foreign", "ms", "copy, add, copy in one process",
                         checked(foreign), theirs));
  rows.back().target = 1.5;
}

// Nothing where the processor lacks the instructions for the type.
std::optional<dnnl::matmul::primitive_desc> ProductOf(const dnnl::memory::desc& md,
                                                      const dnnl::engine& engine) {
  try {
    return dnnl::matmul::primitive_desc(dnnl::matmul::desc(md, md, md), engine);
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented) throw;
    return std::nullopt;
  }
}

void Matmul(const Setup& setup, std::vector<Row>& rows, DType dtype, dnnl::memory::data_type type,
            const std::string& name) {
  const int64_t n = setup.Scaled<int64_t>(1024, 32);
  const int times = setup.Times(15);
  Session session = OpenOn("bench", true);
  const std::string t(DTypeName(dtype));
  const Program program =
      Must(session.Load(fmt::format("program @product(%x: {0}[{1}, {1}], %y: {0}[{1}, {1}]) -> (z: "
                                    "{0}[{1}, {1}]) {{\n  %0 = matmul(%x, %y)\n  return %0\n}}\n",
                                    t, n)));
  const Array x = Array::Random(dtype, {n, n}, 1), y = Array::Random(dtype, {n, n}, 2);
  const Tensor dx = Must(session.Put(x.view())), dy = Must(session.Put(y.view()));

  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc md({n, n}, type, dnnl::memory::format_tag::ab);
  const auto described = ProductOf(md, engine);
  if (!described) {
    rows.push_back({.name = name, .note = "oneDNN has no such product for this processor"});
    return;
  }
  const dnnl::matmul product(*described);
  Array z(dtype, {n, n});
  dnnl::memory mx(md, engine, const_cast<uint8_t*>(x.bytes().data())),
      my(md, engine, const_cast<uint8_t*>(y.bytes().data())), mz(md, engine, z.bytes().data());
  const auto library = [&] {
    std::vector<double> ms;
    for (int i = 0; i < times; ++i) {
      const double begun = Seconds();
      product.execute(stream, {{DNNL_ARG_SRC, mx}, {DNNL_ARG_WEIGHTS, my}, {DNNL_ARG_DST, mz}});
      stream.wait();
      ms.push_back((Seconds() - begun) * 1e3);
    }
    return Percentile(ms, 0.5);
  };
  const auto wire = [&] {
    std::vector<double> ms;
    for (int i = 0; i < times; ++i) {
      const double begun = Seconds();
      const RunResult r = Must(program.Run({dx, dy}));
      ms.push_back((Seconds() - begun) * 1e3);
    }
    return Percentile(ms, 0.5);
  };
  const double tolerance = dtype == DType::kF32 ? 1e-4 : 1e-2;
  const Timed ours(
      wire,
      [&] {
        return Must(program.Call({dx, dy}));
      },
      [&] {
        const Array a = Array::Random(dtype, {n, n}, 1), b = Array::Random(dtype, {n, n}, 2);
        return ByReference(setup, program.module(), {a, b});
      },
      tolerance);
  const Timed theirs(
      library,
      [&] {
        std::ranges::fill(z.bytes(), 0xff);
        library();
        return std::vector{z};
      },
      nullptr, tolerance);
  wire();
  library();
  rows.push_back(Compare(setup, name, "ms", "oneDNN matmul in this process", ours, theirs));
  rows.back().target = 1.05;
}

}  // namespace

void ComputeRows(const Setup& setup, std::vector<Row>& rows) {
  const std::unique_ptr<Device> device = Must(OpenDevice("cpu", {}));
  const VariantTable variants = BuildVariantTable(*device);
  Measure("overhead", {"op_overhead", "op_overhead_absolute"}, rows,
          [&] { Overhead(setup, rows, *device, variants); });
  Measure("transfers", {"transfer_64MiB", "transfer_64MiB_foreign"}, rows,
          [&] { Transfers(setup, rows, *device, variants); });
  Measure("fused", {}, rows, [&] { FusedRows(setup, *device, variants, rows); });
  Measure("optim", {"adamw"}, rows, [&] { OptimRows(setup, *device, variants, rows); });
  Measure("blocks", {}, rows, [&] { BlocksRows(setup, *device, variants, rows); });
  Measure("matmul", {"matmul_f32_1024"}, rows, [&] {
    Matmul(setup, rows, DType::kF32, dnnl::memory::data_type::f32, "matmul_f32_1024");
  });
  Measure("matmul", {"matmul_bf16_1024"}, rows, [&] {
    Matmul(setup, rows, DType::kBF16, dnnl::memory::data_type::bf16, "matmul_bf16_1024");
  });
}

}  // namespace opwire::bench
