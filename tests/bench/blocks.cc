// Matmuls with weights in GGUF's blocks. For one token the baseline is a read of the weights'
// bytes. For a prompt it is the same layer with dense bf16 weights.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "kernels/device/device.h"
#include "kernels/select/variant.h"
#include "tests/bench/bench.h"
#include "tests/bench/oracle.h"

namespace opwire::bench {
namespace {

struct Matrix {
  int64_t n, k;
};
// The matmuls for one token of SmolLM2-135M. Its embedding is also the weight of the last layer.
std::vector<Matrix> SmolLm2(bool small) {
  if (small) return {{32, 256}, {64, 512}};
  std::vector<Matrix> all;
  for (int layer = 0; layer < 30; ++layer) {
    for (const Matrix& m : {Matrix{576, 576},
                            {192, 576},
                            {192, 576},
                            {576, 576},
                            {1536, 576},
                            {1536, 576},
                            {576, 1536}})
      all.push_back(m);
  }
  all.push_back({49152, 576});
  return all;
}

// `m` rows of x times all matrices in turn, by the kernel that the table chooses for "linear" or
// "quantized_linear". `packs`: uses packed weights, as an executor does starting with the second
// run.
class Layers {
 public:
  Layers(Device& device, const VariantTable& variants, std::string_view op, DType x, DType weight,
         Encoding encoding, int64_t m, const std::vector<Matrix>& matrices, bool packs = true)
      : x_type_(x), matrices_(matrices), rows_(m) {
    const OpDef& row = *Catalogue().Find(op);
    int64_t bytes = 0, most_x = 0, most_y = 0;
    for (const Matrix& a : matrices) {
      bytes += *TensorBytes(weight, encoding, Ints{a.n, a.k});
      most_x = std::max(most_x, m * a.k * DTypeBytes(x));
      most_y = std::max(most_y, m * a.n * DTypeBytes(x));
    }
    weights_.resize(static_cast<size_t>(bytes));
    for (size_t i = 0; i < weights_.size(); ++i)
      weights_[i] = static_cast<char>(i * 2654435761u >> 13 & 0x3f);  // moderate as f16 and as bf16
    x_ = weights_;
    x_.resize(static_cast<size_t>(most_x), 0x30);
    y_.resize(static_cast<size_t>(most_y));
    attrs_ = {opw_attr{OPW_ATTR_BYTES, 0, 4, {.bytes = "none"}},
              opw_attr{OPW_ATTR_BYTES, 0, 4, {.bytes = "ieee"}}};
    char* at = weights_.data();
    for (const Matrix& a : matrices) {
      Call& c = *calls_.emplace_back(std::make_unique<Call>());
      c.shapes[0] = {m, a.k}, c.shapes[1] = {a.n, a.k}, c.shapes[2] = {m, a.n};
      for (size_t t = 0; t < 3; ++t) c.strides[t] = {c.shapes[t][1], 1};
      const auto tensor = [&](size_t t, DType type, Encoding e, void* data) {
        return opw_tensor{data,
                          c.shapes[t].data(),
                          c.strides[t].data(),
                          c.shapes[t][0] * c.shapes[t][1],
                          static_cast<uint8_t>(type),
                          static_cast<uint8_t>(e),
                          2,
                          1};
      };
      c.operands = {tensor(0, x, Encoding::kDense, x_.data()), tensor(1, weight, encoding, at), {}};
      c.result = tensor(2, x, Encoding::kDense, y_.data());
      at += *TensorBytes(weight, encoding, Ints{a.n, a.k});
      c.starts = row.OperandStarts({});
      c.call.operands = c.operands.data();
      c.call.starts = c.starts.data();
      c.call.results = &c.result;
      c.call.attrs = attrs_.data();
      const Variant& variant = *Must(variants.Choose(op, x, c.call, ""));
      c.kernel = variant.kernel;
      if (const Packing::Size size =
              variant.packing && packs ? variant.packing->size(c.operands[1]) : Packing::Size{};
          size.pieces > 0) {
        c.packed.resize(static_cast<size_t>(size.pieces * size.bytes) + kAlign);
        void* const to = reinterpret_cast<void*>(
            (reinterpret_cast<uintptr_t>(c.packed.data()) + kAlign - 1) / kAlign * kAlign);
        variant.packing->pack(c.operands[1], 0, size.pieces, to);
        c.operands[1].data = to;
        c.operands[1].packed = 1;
      }
      c.call.context = c.kernel.context;
      c.call.runtime = device.runtime();
      if (c.kernel.prepare) c.kernel.prepare(&c.call, &c.call.state, &c.call.workspace_bytes);
      workspace_.resize(
          std::max(workspace_.size(), static_cast<size_t>(c.call.workspace_bytes) + kAlign));
    }
    for (auto& c : calls_)
      c->call.workspace = reinterpret_cast<void*>(
          (reinterpret_cast<uintptr_t>(workspace_.data()) + kAlign - 1) / kAlign * kAlign);
  }
  ~Layers() {
    for (auto& c : calls_) {
      if (c->kernel.release) c->kernel.release(c->call.state);
    }
  }
  Layers(const Layers&) = delete;

  void operator()() {
    for (auto& c : calls_) c->kernel.run(&c->call);
  }
  // Returns the result of each matrix.
  std::vector<Array> Results() {
    std::vector<Array> results;
    for (auto& c : calls_) {
      std::ranges::fill(y_, '\xff');
      c->kernel.run(&c->call);
      Array& y =
          results.emplace_back(x_type_, std::vector(c->shapes[2].begin(), c->shapes[2].end()));
      std::memcpy(y.bytes().data(), y_.data(), y.bytes().size());
    }
    return results;
  }
  // Returns the expected results for quantised weights in this encoding.
  std::vector<Array> Expected(const Device& device, Encoding encoding) const {
    std::vector<Array> results;
    std::string_view rest(weights_.data(), weights_.size());
    for (const Matrix& a : matrices_) {
      const auto bytes = static_cast<size_t>(*TensorBytes(DType::kI8, encoding, Ints{a.n, a.k}));
      const auto x_bytes = static_cast<size_t>(rows_ * a.k * DTypeBytes(x_type_));
      const conformance::Tensor weight{.dtype = DType::kI8,
                                       .shape = {a.n, a.k},
                                       .encoding = encoding,
                                       .encoded = std::string(rest.substr(0, bytes))};
      rest.remove_prefix(bytes);
      results.push_back(std::move(
          Must(OracleArrays(device, "quantized_linear",
                            {DecodedOf(x_type_, {rows_, a.k}, {x_.data(), x_bytes}), weight}, {}))
              .at(0)));
    }
    return results;
  }
  const std::vector<char>& weights() const { return weights_; }

 private:
  static constexpr size_t kAlign = 64;
  struct Call {
    std::array<std::array<int64_t, 2>, 3> shapes, strides;
    std::array<opw_tensor, 3> operands;
    opw_tensor result;
    std::vector<uint32_t> starts;
    std::vector<char> packed;
    opw_call call{};
    opw_kernel kernel{};
  };
  const DType x_type_;
  const std::vector<Matrix> matrices_;
  const int64_t rows_;
  std::vector<char> weights_, x_, y_, workspace_;
  std::vector<opw_attr> attrs_;
  std::vector<std::unique_ptr<Call>> calls_;
};

// Reads the bytes once, in ranges of 16 KiB.
class Read {
 public:
  Read(opw_runtime* runtime, const std::vector<char>& bytes) : runtime_(runtime), bytes_(bytes) {}
  void operator()() {
    runtime_->parallel_for(
        runtime_, static_cast<int64_t>(bytes_.size() / kVector), 16384 / kVector,
        [](void* context, int64_t begin, int64_t end) {
          typedef long long Vector __attribute__((vector_size(kVector)));
          const char* const from = static_cast<const Read*>(context)->bytes_.data();
          Vector all = {};
          for (int64_t i = begin; i < end; ++i) {
            Vector v;
            std::memcpy(&v, from + i * kVector, kVector);
            all ^= v;
          }
          asm volatile("" : : "m"(all));
        },
        this);
  }

 private:
  static constexpr int64_t kVector = 64;
  opw_runtime* runtime_;
  const std::vector<char>& bytes_;
};

// The allowed error of a result, relative to the largest one: x is rounded to 8 bits.
constexpr double kOfBlocks = 2e-2;

double FastestOf(const std::function<void()>& once, int times) {
  double best = 1e18;
  for (int i = 0; i < times; ++i) {
    const double begun = Seconds();
    once();
    best = std::min(best, (Seconds() - begun) * 1e3);
  }
  return best;
}

}  // namespace

void BlocksRows(const Setup& setup, Device& device, const VariantTable& variants,
                std::vector<Row>& rows) {
  const Matrix square = setup.Scaled<Matrix>({4096, 4096}, {32, 256});
  const std::vector<Matrix> of_4096(setup.Scaled<size_t>(6, 1), square),
      smollm2 = SmolLm2(setup.small);
  const auto measure = [&](const std::string& name, Encoding encoding, int64_t m,
                           const std::vector<Matrix>& matrices, double target, bool packs) {
    Layers ours(device, variants, "quantized_linear", DType::kF32, DType::kI8, encoding, m,
                matrices, packs);
    Read theirs(device.runtime(), ours.weights());
    const Timed products([&] { return FastestOf([&] { ours(); }, setup.Times(7)); },
                         [&] { return ours.Results(); },
                         [&] { return ours.Expected(device, encoding); }, kOfBlocks);
    rows.push_back(Compare(setup, name, "ms", "a read of the weights", products,
                           [&] { return FastestOf([&] { theirs(); }, setup.Times(7)); }));
    rows.back().target = target;
  };
  const auto token = [&](const std::string& name, Encoding encoding, int64_t m,
                         const std::vector<Matrix>& matrices, double target, bool packs = true) {
    Measure("blocks", {name}, rows, [&] { measure(name, encoding, m, matrices, target, packs); });
  };
  constexpr double kOfTheRoof = 1 / 0.7;
  token("quantized_smollm2_q4_1", Encoding::kQ4_1, 1, smollm2, kOfTheRoof);
  token("quantized_smollm2_q4_1_as_it_lies", Encoding::kQ4_1, 1, smollm2, 0, false);
  for (const Encoding e : {Encoding::kQ4_1, Encoding::kQ8_0, Encoding::kQ6_K, Encoding::kQ4_0})
    token(fmt::format("quantized_linear_1_{}", EncodingName(e)), e, 1, of_4096, kOfTheRoof);
  for (const int64_t m : {2, 4, 8})
    token(fmt::format("quantized_linear_{}_q4_1", m), Encoding::kQ4_1, m, of_4096, 0);
  const int64_t prompt = setup.Scaled<int64_t>(512, 16);
  Layers dense(device, variants, "linear", DType::kBF16, DType::kBF16, Encoding::kDense, prompt,
               {square});
  for (const Encoding e : {Encoding::kQ4_1, Encoding::kQ8_0, Encoding::kQ6_K, Encoding::kQ4_0}) {
    const std::string name = fmt::format("quantized_linear_512_{}", EncodingName(e));
    Measure("blocks", {name}, rows, [&] {
      Layers ours(device, variants, "quantized_linear", DType::kBF16, DType::kI8, e, prompt,
                  {square});
      const Timed products([&] { return FastestOf([&] { ours(); }, setup.Times(3)); },
                           [&] { return ours.Results(); }, [&] { return ours.Expected(device, e); },
                           kOfBlocks);
      rows.push_back(Compare(setup, name, "ms", "linear with bf16 weights", products,
                             [&] { return FastestOf([&] { dense(); }, setup.Times(3)); }));
      rows.back().target = 1;
    });
  }
}

}  // namespace opwire::bench
