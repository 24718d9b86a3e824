// Names and sizes of element types and encodings.
#include "ir/base/dtype.h"

#include <array>

namespace opwire {
namespace {

constexpr std::array<std::string_view, kDTypeCount> kDTypeNames = {
    "invalid", "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64",
    "i32",     "i16", "i8",  "u64", "u32",  "u16",    "u8",     "bool"};

struct EncodingRow {
  std::string_view name;
  BlockLayout layout;
};
constexpr std::array<EncodingRow, kEncodingCount> kEncodings = {{{"dense", {1, 0}},
                                                                 {"i4", {2, 1}},
                                                                 {"q4_0", {32, 18}},
                                                                 {"q4_1", {32, 20}},
                                                                 {"q8_0", {32, 34}},
                                                                 {"q6_k", {256, 210}},
                                                                 {"fp6", {4, 3}},
                                                                 {"fp4", {2, 1}}}};

}  // namespace

std::string_view DTypeName(DType t) { return kDTypeNames[IsValid(t) ? static_cast<size_t>(t) : 0]; }

std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 1; i < kDTypeCount; ++i) {
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string_view EncodingName(Encoding e) {
  const auto i = static_cast<size_t>(e);
  return i < kEncodings.size() ? kEncodings[i].name : "invalid";
}

std::optional<Encoding> ParseEncoding(std::string_view name) {
  for (int i = 0; i < kEncodingCount; ++i) {
    if (kEncodings[i].name == name) return static_cast<Encoding>(i);
  }
  return std::nullopt;
}

BlockLayout LayoutOf(DType t, Encoding e) {
  if (e == Encoding::kDense) return {1, DTypeBytes(t)};
  return kEncodings[static_cast<size_t>(e)].layout;
}

std::string DTypeSet::ToString() const {
  std::string out;
  for (int i = 1; i < kDTypeCount; ++i) {
    if (!Has(static_cast<DType>(i))) continue;
    if (!out.empty()) out += ", ";
    out += kDTypeNames[i];
  }
  return out;
}

}  // namespace opwire
