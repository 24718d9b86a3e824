// The ops on GGUF's blocks, element by element, in f64. This is the one exact definition of an
// element.
#include "ir/base/float.h"
#include "ir/scalar/scalar.h"
#include "kernels/ops/blocks/blocks.h"
#include "kernels/ops/families.h"

namespace opwire::ops::blocks {
namespace {

double HalfAt(const uint8_t* p) {
  return static_cast<double>(F16ToFloat(static_cast<uint16_t>(p[0] | p[1] << 8)));
}
int NibbleAt(const uint8_t* p, int64_t i) {
  return p[i % 16] >> (i < 16 ? 0 : 4) & 15;
}  // of 32 in 16 bytes

// Element i of a block of 256. Each half has four quarters of 32 elements. Two of them share 32
// bytes of low bits, and all four share 32 bytes of two high bits each.
double ElementOfQ6K(const uint8_t* block, int64_t i) {
  const int64_t half = i / 128, quarter = i % 128 / 32, at = i % 32;
  const int low = block[64 * half + quarter % 2 * 32 + at] >> quarter / 2 * 4 & 15;
  const int high = block[128 + 32 * half + at] >> 2 * quarter & 3;
  const int scale = static_cast<int8_t>(block[192 + i / 16]);
  return HalfAt(block + 208) * (scale * ((low | high << 4) - 32));
}

// Element i of a row.
double ElementOf(Encoding encoding, const uint8_t* row, int64_t i) {
  const BlockLayout layout = LayoutOf(DType::kI8, encoding);
  const uint8_t* const block = row + i / layout.elements * layout.bytes;
  i %= layout.elements;
  switch (encoding) {
    case Encoding::kQ4_0:
      return HalfAt(block) * (NibbleAt(block + 2, i) - 8);
    case Encoding::kQ4_1:
      return HalfAt(block) * NibbleAt(block + 4, i) + HalfAt(block + 2);
    case Encoding::kQ8_0:
      return HalfAt(block) * static_cast<int8_t>(block[2 + i]);
    default:
      return ElementOfQ6K(block, i);
  }
}

int Linear(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &weight = Operand(c, 1), &bias = Operand(c, 2),
                   &y = c->results[0];
  const EncodedRows w(weight);
  const auto encoding = static_cast<Encoding>(weight.encoding);
  const int64_t n = weight.shape[0], x_k = x.strides[x.rank - 1];
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, w.k)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t row = OffsetOf(x, i / n * w.k), j = i % n;
                    double sum = 0;
                    for (int64_t l = 0; l < w.k && !StoppedAt(c, l); ++l)
                      sum += static_cast<double>(Load<T>(x.data, row + l * x_k)) *
                             ElementOf(encoding, w.Row(j), l);
                    if (!Absent(bias))
                      sum += static_cast<double>(Load<T>(bias.data, j * bias.strides[0]));
                    Store<T>(y.data, OffsetOf(y, i), sum);
                  }
                });
  });
  return OPW_OK;
}

// Writes y's elements of type T. `row_of` gives the row for each row of y; -1: zeros.
template <typename F>
void ToFloats(const opw_call* c, const opw_tensor& encoded, const F& row_of) {
  const opw_tensor& y = c->results[0];
  const EncodedRows w(encoded);
  const auto encoding = static_cast<Encoding>(encoded.encoding);
  VisitType(TypeOf(y), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
      int64_t row = -1;
      for (int64_t i = begin; i < end; ++i) {
        if (i == begin || i % w.k == 0) row = row_of(i / w.k);
        const double v = row < 0 ? 0 : ElementOf(encoding, w.Row(row), i % w.k);
        if constexpr (std::is_same_v<T, double>)
          Store<T>(y.data, OffsetOf(y, i), v);
        else
          Store<T>(y.data, OffsetOf(y, i), static_cast<float>(v));
      }
    });
  });
}

int EmbedBlocks(const opw_call* c) {
  const opw_tensor &weight = Operand(c, 0), &indices = Operand(c, 1);
  ToFloats(c, weight, [&](int64_t i) {
    const int64_t row = WrapIndex(LoadIndex(indices, OffsetOf(indices, i)), weight.shape[0]);
    if (row < 0) c->runtime->out_of_range(c->runtime, 1, i);
    return row;
  });
  return OPW_OK;
}

int DequantizeBlocks(const opw_call* c) {
  ToFloats(c, Operand(c, 0), [](int64_t i) { return i; });
  return OPW_OK;
}

}  // namespace

void AddBlocksReference(VariantTable& table) {
  AddReference(table, "quantized_linear",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Linear});
  AddReference(table, "quantized_embedding",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, EmbedBlocks});
  AddReference(table, "dequantize_blocks",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, DequantizeBlocks});
}

}  // namespace opwire::ops::blocks
