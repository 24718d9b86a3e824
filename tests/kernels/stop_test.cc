// A loop over a large array inside one range sees the stop word.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "kernels/device/device.h"
#include "kernels/select/variant.h"

namespace opwire {
namespace {

// A runtime that allows `left` ranges to begin.
struct Limited : opw_runtime {
  explicit Limited(int64_t ranges) : opw_runtime{}, left(ranges) {
    abi_version = OPW_ABI_VERSION;
    threads = 1;
    parallel_for = [](opw_runtime* r, int64_t n, int64_t grain, opw_body body, void* context) {
      for (int64_t i = 0; i < n; i += grain) {
        if (static_cast<Limited*>(r)->left-- > 0) body(context, i, std::min(n, i + grain));
      }
    };
  }
  int64_t left;
};

// Returns the sum of n ones of u64 by the reference. There is one result, so one range, in which it
// checks for a stop again.
uint64_t Ones(int64_t n, int64_t ranges) {
  const std::vector<uint64_t> x(n, 1);
  uint64_t y = 0;
  const int64_t stride = 1;
  const opw_tensor operand = {const_cast<uint64_t*>(x.data()), &n, &stride, n, OPW_U64, 0, 1, 1};
  const opw_tensor result = {&y, nullptr, nullptr, 1, OPW_U64, 0, 0, 1};
  const uint32_t starts[] = {0, 1};
  opw_attr attrs[2] = {};
  attrs[0].kind = OPW_ATTR_INTS;
  Limited runtime(ranges);
  const VariantTable table = BuildVariantTable(**OpenDevice("cpu", {}));
  opw_call call{};
  call.operands = &operand;
  call.starts = starts;
  call.results = &result;
  call.attrs = attrs;
  call.runtime = &runtime;
  EXPECT_EQ((*table.Choose("sum", DType::kU64, call, "reference"))->kernel.run(&call), OPW_OK);
  return y;
}

TEST(Stop, IsSeenInsideALongRange) {
  constexpr int64_t kLength = 1 << 20;
  EXPECT_EQ(Ones(kLength, kLength), uint64_t{kLength});
  EXPECT_EQ(Ones(kLength, 0), 0u);
  EXPECT_LT(Ones(kLength, 3), uint64_t{kLength} / 8);
}

// Returns log(n) by attention to n keys of zeros: one query, so one range.
float LogOfKeys(const Variant& variant, int64_t n, int64_t ranges) {
  const std::vector<float> zeros(n);
  float output = 0, log_sum_exp = 0;
  const int64_t one[] = {1, 1, 1}, keys[] = {1, n, 1}, strides[] = {n, 1, 1};
  void* const data = const_cast<float*>(zeros.data());
  const opw_tensor operands[] = {{data, one, one, 1, OPW_F32, 0, 3, 1},
                                 {data, keys, strides, n, OPW_F32, 0, 3, 1},
                                 {data, keys, strides, n, OPW_F32, 0, 3, 1},
                                 {}};
  const opw_tensor results[] = {{&output, one, one, 1, OPW_F32, 0, 3, 1},
                                {&log_sum_exp, one, one, 1, OPW_F32, 0, 2, 1}};
  const uint32_t starts[] = {0, 1, 2, 3, 4};
  opw_attr attrs[3] = {};
  attrs[2].kind = OPW_ATTR_FLOAT;
  Limited runtime(ranges);
  opw_call call{};
  call.operands = operands;
  call.starts = starts;
  call.results = results;
  call.attrs = attrs;
  call.runtime = &runtime;
  EXPECT_EQ(variant.kernel.run(&call), OPW_OK);
  return log_sum_exp;
}

TEST(Stop, IsSeenByAttentionToManyKeys) {
  const VariantTable table = BuildVariantTable(**OpenDevice("cpu", {}));
  constexpr int64_t kKeys = 1 << 18;
  for (const Variant& v : table.Of("scaled_dot_product_attention")) {
    if (!v.unavailable.empty()) continue;
    EXPECT_NEAR(LogOfKeys(v, kKeys, kKeys), std::log(static_cast<float>(kKeys)), 1e-4) << v.name;
    EXPECT_LT(LogOfKeys(v, kKeys, 3), std::log(static_cast<float>(kKeys)) - 1) << v.name;
  }
}

// Prepares and runs a call, in a workspace of its own.
void RunAlone(const opw_kernel& kernel, opw_call& call) {
  ASSERT_EQ(kernel.prepare(&call, &call.state, &call.workspace_bytes), OPW_OK);
  void* const workspace = std::aligned_alloc(
      64, static_cast<size_t>(std::max<int64_t>(64, (call.workspace_bytes + 63) / 64 * 64)));
  call.workspace = workspace;
  EXPECT_EQ(kernel.run(&call), OPW_OK);
  kernel.release(call.state);
  std::free(workspace);
}

// A layer with enough rows and columns to split both: x[i] is i % 7 and w[j] is j % 5 throughout,
// so all sums are whole numbers.
TEST(Stop, IsSeenBetweenPiecesOfALayer) {
  constexpr int64_t kRows = 300, kColumns = 5000, kTerms = 1024;
  const VariantTable table = BuildVariantTable(**OpenDevice("cpu", {}));
  std::vector<float> x(kRows * kTerms), w(kColumns * kTerms), b(kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i / kTerms % 7);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i / kTerms % 5);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i);
  const int64_t x_shape[] = {kRows, kTerms}, w_shape[] = {kColumns, kTerms}, b_shape[] = {kColumns},
                y_shape[] = {kRows, kColumns}, strides[] = {kTerms, 1}, y_strides[] = {kColumns, 1},
                one = 1;
  for (const int64_t ranges : {1000, 0}) {
    std::vector<float> y(kRows * kColumns);
    const opw_tensor operands[] = {
        {x.data(), x_shape, strides, kRows * kTerms, OPW_F32, 0, 2, 1},
        {w.data(), w_shape, strides, kColumns * kTerms, OPW_F32, 0, 2, 1},
        {b.data(), b_shape, &one, kColumns, OPW_F32, 0, 1, 1}};
    const opw_tensor result = {y.data(), y_shape, y_strides, kRows * kColumns, OPW_F32, 0, 2, 1};
    const uint32_t starts[] = {0, 1, 2, 3};
    opw_attr attrs[2] = {};
    for (opw_attr& attr : attrs) attr.kind = OPW_ATTR_BYTES, attr.value.bytes = "";
    Limited runtime(ranges);
    opw_call call{};
    call.operands = operands;
    call.starts = starts;
    call.results = &result;
    call.attrs = attrs;
    call.runtime = &runtime;
    RunAlone((*table.Choose("linear", DType::kF32, call, "onednn"))->kernel, call);
    int64_t wrong = 0, made = 0;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        const float is = y[static_cast<size_t>(i * kColumns + j)];
        wrong += is != static_cast<float>(kTerms * (i % 7) * (j % 5) + j);
        made += is != 0;
      }
    }
    if (ranges > 0)
      EXPECT_EQ(wrong, 0);
    else
      EXPECT_TRUE(made > 0 && made < kRows * kColumns / 2)
          << made;  // some columns of the first rows
  }
}

// A dense tensor of f32 whose image n has the value n + 1 throughout, or 0.
struct Images {
  Images(std::vector<int64_t> extents, bool filled) : shape(std::move(extents)), strides(4, 1) {
    for (size_t a = 3; a-- > 0;) strides[a] = strides[a + 1] * shape[a + 1];
    values.resize(static_cast<size_t>(strides[0] * shape[0]));
    for (size_t i = 0; filled && i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<int64_t>(i) / strides[0] + 1);
    tensor = {values.data(),
              shape.data(),
              strides.data(),
              static_cast<int64_t>(values.size()),
              OPW_F32,
              0,
              4,
              1};
  }
  std::vector<int64_t> shape, strides;
  std::vector<float> values;
  opw_tensor tensor;
};

// oneDNN's convolutions of five images, three at a time. Each image has its own results, a weight's
// gradient is of all images, and a stopped run begins no further images.
TEST(Stop, IsSeenBetweenPiecesOfAConvolution) {
  constexpr int64_t kBatch = 5, kChannels = 64, kExtent = 48, kOut = kExtent - 2;
  const VariantTable table = BuildVariantTable(**OpenDevice("cpu", {}));
  const auto run = [&](const char* op, std::vector<opw_tensor> operands,
                       std::vector<opw_tensor> results, int64_t ranges) {
    const uint32_t starts[] = {0, 1, 2, 3};
    opw_attr attrs[6] = {};
    for (const int list : {0, 1, 2, 4}) attrs[list].kind = OPW_ATTR_INTS;
    attrs[5].value.i = 1;
    Limited runtime(ranges);
    opw_call call{};
    call.operands = operands.data();
    call.starts = starts;
    call.results = results.data();
    call.attrs = attrs;
    call.runtime = &runtime;
    RunAlone((*table.Choose(op, DType::kF32, call, "onednn"))->kernel, call);
  };
  Images weight({kChannels, kChannels, 3, 3}, false);
  std::ranges::fill(weight.values, 1.0f);
  const Images input({kBatch, kChannels, kExtent, kExtent}, true),
      grad({kBatch, kChannels, kOut, kOut}, true);
  for (const int64_t ranges : {1000, 0}) {
    const Images y(grad.shape, false), grad_input(input.shape, false),
        grad_weight(weight.shape, false);
    run("convolution", {input.tensor, weight.tensor, {}}, {y.tensor}, ranges);
    run("convolution_backward", {grad.tensor, input.tensor, weight.tensor},
        {grad_input.tensor, grad_weight.tensor}, ranges);
    float squares = 0;
    for (int64_t n = 0; n < kBatch; ++n) {
      const float made = ranges > 0 || n < 3 ? static_cast<float>(n + 1) : 0;
      squares += made * made;
      EXPECT_EQ(y.values[static_cast<size_t>(n * y.strides[0] + 7 * kOut + 9)],
                made * kChannels * 9)
          << n;
      EXPECT_EQ(grad_input.values[static_cast<size_t>(n * grad_input.strides[0] + 7 * kExtent + 9)],
                made * kChannels * 9)
          << n;
    }
    EXPECT_EQ(grad_weight.values[5], squares * kOut * kOut);
  }
}

}  // namespace
}  // namespace opwire
