// A step of adamw over many tensors in place, against a copy of as many bytes.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/device/device.h"
#include "kernels/select/variant.h"
#include "tests/bench/bench.h"
#include "tests/bench/oracle.h"

namespace opwire::bench {
namespace {

constexpr int64_t kTensors = 32,
                  kLists = 4;  // of each tensor; parameters, gradients and two states

// The kernel that the table chooses for the call, with the row's own attributes.
class AdamwStep {
 public:
  AdamwStep(Device& device, const VariantTable& variants, int64_t elements)
      : shape_{elements}, memory_(static_cast<size_t>(kTensors * kLists * elements), 0.5f) {
    const opw_tensor number = {nullptr, nullptr, nullptr, 1, OPW_F32, 0, 0, 1};
    for (int64_t t = 0; t < kTensors * kLists; ++t)
      operands_.push_back(
          {memory_.data() + t * elements, shape_, strides_, elements, OPW_F32, 0, 1, 1});
    for (const int64_t list : {0, 2, 3})
      results_.insert(results_.end(), operands_.begin() + list * kTensors,
                      operands_.begin() + (list + 1) * kTensors);
    operands_.insert(operands_.end(), {number, number, {}, {}});
    operands_[kTensors * kLists].data = &lr_;
    operands_[kTensors * kLists + 1].data = &step_;
    operands_[kTensors * kLists + 1].dtype = OPW_I64;
    const OpDef& row = *Catalogue().Find("adamw");
    std::vector<uint32_t> segments(row.operands.size(), 1);
    std::fill_n(segments.begin(), kLists, static_cast<uint32_t>(kTensors));
    starts_ = row.OperandStarts(segments);
    for (const AttrSpec& a : row.attrs) {
      const bool* const flag = std::get_if<bool>(&*a.fallback);
      attrs_.push_back(flag ? opw_attr{OPW_ATTR_INT, 0, 1, {.i = *flag}}
                            : opw_attr{OPW_ATTR_FLOAT, 0, 1, {.f = std::get<double>(*a.fallback)}});
    }
    call_.operands = operands_.data();
    call_.starts = starts_.data();
    call_.results = results_.data();
    call_.attrs = attrs_.data();
    kernel_ = Must(variants.Choose("adamw", DType::kF32, call_, ""))->kernel;
    call_.context = kernel_.context;
    int64_t workspace = 0;
    if (kernel_.prepare) kernel_.prepare(&call_, &call_.state, &workspace);
    call_.runtime = device.runtime();
  }
  ~AdamwStep() {
    if (kernel_.release) kernel_.release(call_.state);
  }
  AdamwStep(const AdamwStep&) = delete;
  void operator()() { kernel_.run(&call_); }
  // What random lists are after one step: parameters, means and means of squares.
  std::vector<Array> Results() {
    const int64_t elements = shape_[0];
    for (int64_t t = 0; t < kTensors * kLists; ++t)
      std::ranges::copy(Values(t, elements).values<float>(), memory_.begin() + t * elements);
    (*this)();
    std::vector<Array> results;
    for (const int64_t list : {0, 2, 3}) {
      for (int64_t t = list * kTensors; t < (list + 1) * kTensors; ++t)
        results.push_back(
            Array::Of<float>(DType::kF32, {elements},
                             std::span(memory_).subspan(static_cast<size_t>(t * elements),
                                                        static_cast<size_t>(elements))));
    }
    return results;
  }
  // What they must be.
  static std::vector<Array> Expected(const Device& device, int64_t elements) {
    Operands operands;
    const auto add = [&](const Array& a) {
      const std::span<const uint8_t> bytes = a.bytes();
      operands.push_back(DecodedOf(a.dtype(), a.shape(),
                                   {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    };
    for (int64_t t = 0; t < kTensors * kLists; ++t) add(Values(t, elements));
    add(Array::Of<float>(DType::kF32, {}, std::array{kRate}));
    add(Array::Of<int64_t>(DType::kI64, {}, std::array{kStep}));
    operands.resize(operands.size() + 2);
    std::vector<uint32_t> segments(kLists, static_cast<uint32_t>(kTensors));
    segments.resize(kLists + 4, 1);
    return Must(OracleArrays(device, "adamw", std::move(operands), {}, segments));
  }

 private:
  int64_t shape_[1], strides_[1] = {1};
  // Tensor `t` of all lists. Means of squares are not negative.
  static Array Values(int64_t t, int64_t elements) {
    Array values = Array::Random(DType::kF32, {elements}, static_cast<uint64_t>(t));
    for (float& v : values.values<float>()) v = t < 3 * kTensors ? v : v * v;
    return values;
  }

  static constexpr float kRate = 1e-3f;
  static constexpr int64_t kStep = 10;
  float lr_ = kRate;
  int64_t step_ = kStep;
  std::vector<float> memory_;
  std::vector<opw_tensor> operands_, results_;
  std::vector<uint32_t> starts_;
  std::vector<opw_attr> attrs_;
  opw_call call_{};
  opw_kernel kernel_{};
};

// Moves `bytes` bytes, half of them in.
class EqualCopy {
 public:
  EqualCopy(opw_runtime* runtime, int64_t bytes)
      : runtime_(runtime),
        from_(static_cast<size_t>(bytes / 2), 1),
        to_(static_cast<size_t>(bytes / 2), 2) {}
  void operator()() {
    runtime_->parallel_for(
        runtime_, static_cast<int64_t>(to_.size()),
        static_cast<int64_t>(to_.size()) / std::max(1, runtime_->threads),
        [](void* context, int64_t begin, int64_t end) {
          const EqualCopy& own = *static_cast<const EqualCopy*>(context);
          std::memcpy(const_cast<char*>(own.to_.data()) + begin, own.from_.data() + begin,
                      static_cast<size_t>(end - begin));
        },
        this);
  }

 private:
  opw_runtime* runtime_;
  std::vector<char> from_, to_;
};

}  // namespace

void OptimRows(const Setup& setup, Device& device, const VariantTable& variants,
               std::vector<Row>& rows) {
  const int64_t elements = setup.Scaled<int64_t>(512 << 10, 100);
  AdamwStep step(device, variants, elements);
  constexpr int64_t kMoved = kLists + 3;  // three of the lists are written
  EqualCopy copy(device.runtime(), kTensors * elements * kMoved * int64_t{sizeof(float)});
  const auto median = [&](auto& once) {
    std::vector<double> ms;
    for (int i = 0; i < setup.Times(5); ++i) {
      const double begun = Seconds();
      once();
      ms.push_back((Seconds() - begun) * 1e3);
    }
    return Percentile(ms, 0.5);
  };
  rows.push_back(Compare(setup, "adamw", "ms", "a copy of as many bytes",
                         Timed([&] { return median(step); }, [&] { return step.Results(); },
                               [&] { return AdamwStep::Expected(device, elements); }),
                         [&] { return median(copy); }));
  rows.back().target = 1.2;
}

}  // namespace opwire::bench
