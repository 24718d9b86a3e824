// Blocks pointer by pointer, in the order of ggml's own loops.
#include "tests/conformance/blocks.h"

#include <cstdlib>

namespace opwire::conformance {
namespace {

using Elements = std::vector<BlockElement>;

Real Scale(const uint8_t* p) { return Decode(DType::kF16, p); }

// Halves of bytes, first all low ones.
void ReadNibbles(Elements& out, const uint8_t* bytes, Real d, int bias, Real m) {
  for (const int shift : {0, 4}) {
    for (int j = 0; j < 16; ++j)
      out.push_back({d * static_cast<Real>((bytes[j] >> shift & 15) - bias), m});
  }
}

void ReadQ6K(Elements& out, const uint8_t* block) {
  const Real d = Scale(block + 208);
  const size_t begin = out.size();
  out.resize(begin + 256);
  const uint8_t *ql = block, *qh = block + 128;
  const int8_t* sc = reinterpret_cast<const int8_t*>(block + 192);
  BlockElement* y = out.data() + begin;
  for (int n = 0; n < 256; n += 128, y += 128, ql += 64, qh += 32, sc += 8) {
    for (int l = 0; l < 32; ++l) {
      const int is = l / 16;
      const int q1 = ((ql[l] & 0xF) | ((qh[l] >> 0 & 3) << 4)) - 32,
                q2 = ((ql[l + 32] & 0xF) | ((qh[l] >> 2 & 3) << 4)) - 32;
      const int q3 = ((ql[l] >> 4) | ((qh[l] >> 4 & 3) << 4)) - 32,
                q4 = ((ql[l + 32] >> 4) | ((qh[l] >> 6 & 3) << 4)) - 32;
      y[l] = {d * sc[is] * q1, 0};
      y[l + 32] = {d * sc[is + 2] * q2, 0};
      y[l + 64] = {d * sc[is + 4] * q3, 0};
      y[l + 96] = {d * sc[is + 6] * q4, 0};
    }
  }
}

}  // namespace

Elements ReadBlocks(Encoding encoding, std::string_view bytes) {
  Elements out;
  const BlockLayout layout = LayoutOf(DType::kI8, encoding);
  const auto* block = reinterpret_cast<const uint8_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size() / static_cast<size_t>(layout.bytes);
       ++i, block += layout.bytes) {
    switch (encoding) {
      case Encoding::kQ4_0:
        ReadNibbles(out, block + 2, Scale(block), 8, 0);
        break;
      case Encoding::kQ4_1:
        ReadNibbles(out, block + 4, Scale(block), 0, Scale(block + 2));
        break;
      case Encoding::kQ8_0:
        for (int j = 0; j < 32; ++j)
          out.push_back({Scale(block) * static_cast<int8_t>(block[2 + j]), 0});
        break;
      case Encoding::kQ6_K:
        ReadQ6K(out, block);
        break;
      default:
        std::abort();
    }
  }
  return out;
}

Tensor MakeBlocks(Encoding encoding, Extents shape, Values values, Random& random) {
  Tensor t{.dtype = DType::kI8,
           .shape = std::move(shape),
           .values = {},
           .encoding = encoding,
           .encoded = {}};
  const BlockLayout layout = LayoutOf(DType::kI8, encoding);
  const int64_t blocks = Count(t.shape) / layout.elements;
  if (random.zeros) {
    t.encoded.resize(static_cast<size_t>(blocks * layout.bytes));
    t.values.resize(static_cast<size_t>(Count(t.shape)));
    return t;
  }
  for (int64_t b = 0; b < blocks; ++b) {
    const size_t begin = t.encoded.size();
    for (int64_t i = 0; i < layout.bytes; ++i) t.encoded.push_back(static_cast<char>(random()));
    const std::vector<Real> scales = Make(DType::kF16, {2}, values, random).values;
    Encode(DType::kF16, scales[0] / 16,
           t.encoded.data() + begin + (encoding == Encoding::kQ6_K ? 208 : 0));
    if (encoding == Encoding::kQ4_1)
      Encode(DType::kF16, scales[1] / 2, t.encoded.data() + begin + 2);
  }
  for (const BlockElement& e : ReadBlocks(encoding, t.encoded))
    t.values.push_back(e.product + e.offset);
  return t;
}

}  // namespace opwire::conformance
