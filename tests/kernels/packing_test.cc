// Kernels that take an operand in an order of their own: what they give has the same bits, of one
// row or many, by any instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/device/device.h"
#include "kernels/ops/blocks/packed.h"
#include "kernels/select/variant.h"
#include "tests/seed.h"

namespace opwire {
namespace {

constexpr size_t kAlign = 64;

struct Aligned {
  explicit Aligned(int64_t bytes) : memory(static_cast<size_t>(bytes) + kAlign) {}
  void* data() {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + kAlign - 1) /
                                   kAlign * kAlign);
  }
  std::vector<char> memory;
};

// y[m, n] of x[m, k] and weights [n, k] in blocks, from row `first` of x on.
class Product {
 public:
  Product(Device& device, int64_t n, int64_t k, Encoding encoding, std::mt19937_64& random)
      : device_(device), n_(n), k_(k), encoding_(encoding), x_(static_cast<size_t>(kMost * k)) {
    weights_.resize(static_cast<size_t>(*TensorBytes(DType::kI8, encoding, Shape{n, k})));
    // Of bytes below 0x3c all numbers of two of them are moderate.
    for (char& c : weights_) c = static_cast<char>(random() % 0x3c);
    for (float& v : x_) v = static_cast<float>(static_cast<int64_t>(random() % 2001) - 1000) / 300;
  }
  std::vector<float> Run(const Variant& v, int64_t first, int64_t m, bool packed) {
    const int64_t shapes[3][2] = {{m, k_}, {n_, k_}, {m, n_}},
                  strides[3][2] = {{k_, 1}, {k_, 1}, {n_, 1}};
    std::vector<float> y(static_cast<size_t>(m * n_));
    const auto tensor = [&](int t, void* data, DType type, Encoding e) {
      return opw_tensor{data,
                        shapes[t],
                        strides[t],
                        shapes[t][0] * shapes[t][1],
                        static_cast<uint8_t>(type),
                        static_cast<uint8_t>(e),
                        2,
                        1};
    };
    opw_tensor operands[] = {tensor(0, x_.data() + first * k_, DType::kF32, Encoding::kDense),
                             tensor(1, weights_.data(), DType::kI8, encoding_),
                             {}};
    const opw_tensor result = tensor(2, y.data(), DType::kF32, Encoding::kDense);
    const Packing::Size size = v.packing->size(operands[1]);
    Aligned memory(size.pieces * size.bytes);
    if (packed) {
      v.packing->pack(operands[1], 0, size.pieces, memory.data());
      operands[1].data = memory.data();
      operands[1].packed = 1;
    }
    const uint32_t starts[] = {0, 1, 2, 3};
    opw_call call{};
    call.operands = operands;
    call.starts = starts;
    call.results = &result;
    call.context = v.kernel.context;
    call.runtime = device_.runtime();
    EXPECT_EQ(v.kernel.prepare(&call, &call.state, &call.workspace_bytes), OPW_OK);
    Aligned workspace(call.workspace_bytes);
    call.workspace = workspace.data();
    EXPECT_EQ(v.kernel.run(&call), OPW_OK);
    return y;
  }
  static constexpr int64_t kMost = 29;

 private:
  Device& device_;
  const int64_t n_, k_;
  const Encoding encoding_;
  std::vector<char> weights_;
  std::vector<float> x_;
};

TEST(Packing, ProductsOfBlocksHaveTheSameBitsInAllWays) {
  const uint64_t seed = Seed();
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(seed);
  const auto device = *OpenDevice("cpu", {});
  const VariantTable table = BuildVariantTable(*device);
  for (const Encoding encoding :
       {Encoding::kQ4_0, Encoding::kQ4_1, Encoding::kQ8_0, Encoding::kQ6_K}) {
    for (const auto& [n, blocks] :
         {std::pair<int64_t, int64_t>{1, 1}, {16, 2}, {37, 3}, {64, 18}, {50, 35}}) {
      const int64_t k = blocks * ops::blocks::PackedFormatOf(static_cast<int>(encoding)).elements;
      Product product(*device, n, k, encoding, random);
      std::vector<float> all;
      for (const Variant& v : table.Of("quantized_linear")) {
        if (!v.packing || !v.unavailable.empty()) continue;
        for (const bool packed : {false, true}) {
          for (const int64_t m : {0, 1, 2, 3, 4, 5, 8, 9, 12, 29}) {
            const std::vector<float> y = product.Run(v, 0, m, packed);
            if (all.empty()) all = product.Run(v, 0, Product::kMost, false);
            EXPECT_TRUE(y.empty() ||
                        std::memcmp(y.data(), all.data(), y.size() * sizeof(float)) == 0)
                << v.name << ", " << EncodingName(encoding) << ", [" << m << ", " << k << "] by ["
                << n << ", " << k << "], packed " << packed;
          }
        }
      }
    }
  }
}

TEST(Packing, WhatHasNoElementsIsTakenAsItLies) {
  const auto device = *OpenDevice("cpu", {});
  const VariantTable table = BuildVariantTable(*device);
  const int64_t shape[] = {0, 64}, strides[] = {64, 1};
  const opw_tensor none{nullptr,
                        shape,
                        strides,
                        0,
                        static_cast<uint8_t>(DType::kI8),
                        static_cast<uint8_t>(Encoding::kQ4_1),
                        2,
                        1};
  int seen = 0;
  for (const Variant& v : table.variants()) {
    if (!v.packing) continue;
    EXPECT_EQ(v.packing->size(none).pieces, 0);
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace opwire
