// Element types and encodings of tensors: names, sizes, classes. The numeric values are on the wire
// and in kernels/abi.h, so they never change.
#ifndef OPWIRE_IR_BASE_DTYPE_H_
#define OPWIRE_IR_BASE_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace opwire {

enum class DType : uint8_t {
  kInvalid = 0,
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBF16 = 4,
  kF8E4M3 = 5,  // the "fn" form: no infinities, largest finite value 448
  kF8E5M2 = 6,
  kI64 = 7,
  kI32 = 8,
  kI16 = 9,
  kI8 = 10,
  kU64 = 11,
  kU32 = 12,
  kU16 = 13,
  kU8 = 14,
  kBool = 15,  // one byte, 0 or 1; any other byte reads as true
  // 16 and 17 are reserved for complex types.
};
inline constexpr int kDTypeCount = 16;  // valid values are 1 .. kDTypeCount - 1

// How elements are packed into bytes. Dense is one element after the other.
enum class Encoding : uint8_t {
  kDense = 0,
  kPackedI4 = 1,  // two elements a byte, element 0 in the low nibble
  kQ4_0 = 2,      // GGUF blocks
  kQ4_1 = 3,
  kQ8_0 = 4,
  kQ6_K = 5,
  kFp6 = 6,
  kFp4 = 7,
};
inline constexpr int kEncodingCount = 8;

// Whether it is one of GGUF's blocks, each with what its integers are multiplied by. Their tensors
// are of i8.
constexpr bool IsBlocks(Encoding e) { return e >= Encoding::kQ4_0 && e <= Encoding::kQ6_K; }

// A block of `elements` consecutive elements takes `bytes` bytes. Dense: one element, its size.
struct BlockLayout {
  int64_t elements;
  int64_t bytes;
};

constexpr bool IsValid(DType t) { return t > DType::kInvalid && static_cast<int>(t) < kDTypeCount; }

constexpr int64_t DTypeBytes(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 1;
    case DType::kInvalid:
      return 0;
  }
  return 0;
}

// "f32", "bool", ...; "invalid" for anything else.
std::string_view DTypeName(DType t);
std::optional<DType> ParseDType(std::string_view name);

// "dense", "i4", "q4_0", ...
std::string_view EncodingName(Encoding e);
std::optional<Encoding> ParseEncoding(std::string_view name);
BlockLayout LayoutOf(DType t, Encoding e);

// A set of element types, as a bit mask.
class DTypeSet {
 public:
  constexpr DTypeSet() = default;
  constexpr DTypeSet(std::initializer_list<DType> types) {
    for (DType t : types) bits_ |= 1u << static_cast<int>(t);
  }
  constexpr bool Has(DType t) const { return (bits_ >> static_cast<int>(t)) & 1u; }
  constexpr DTypeSet operator|(DTypeSet o) const { return DTypeSet(bits_ | o.bits_); }
  constexpr DTypeSet operator-(DTypeSet o) const { return DTypeSet(bits_ & ~o.bits_); }
  constexpr bool operator==(const DTypeSet&) const = default;
  constexpr bool Empty() const { return bits_ == 0; }
  // "f32, f16, bf16", in the order of the enum.
  std::string ToString() const;

 private:
  constexpr explicit DTypeSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_ = 0;
};

inline constexpr DTypeSet kFloats = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
inline constexpr DTypeSet kFloat8s = {DType::kF8E4M3, DType::kF8E5M2};
inline constexpr DTypeSet kSigned = {DType::kI64, DType::kI32, DType::kI16, DType::kI8};
inline constexpr DTypeSet kUnsigned = {DType::kU64, DType::kU32, DType::kU16, DType::kU8};
inline constexpr DTypeSet kIntegers = kSigned | kUnsigned;
inline constexpr DTypeSet kIndex = {DType::kI64, DType::kI32};
inline constexpr DTypeSet kBoolean = {DType::kBool};
inline constexpr DTypeSet kArithmetic = kFloats | kIntegers;
inline constexpr DTypeSet kAll = kArithmetic | kFloat8s | kBoolean;

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_DTYPE_H_
