// The type of a tensor value: element type, encoding, and a shape of dimension expressions.
#ifndef OPWIRE_IR_BASE_TYPE_H_
#define OPWIRE_IR_BASE_TYPE_H_

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ir/base/checked.h"
#include "ir/base/dim.h"
#include "ir/base/dtype.h"

namespace opwire {

inline constexpr int kMaxRank = 16;

struct TensorType {
  DType dtype = DType::kInvalid;
  Encoding encoding = Encoding::kDense;
  std::vector<Dim> shape;

  int rank() const { return static_cast<int>(shape.size()); }
  bool operator==(const TensorType&) const = default;
};

// "f32[?b, 64]", "f32[]" for rank 0, "i8:q8_0[32, 64]" for an encoded type.
std::string ToString(const TensorType& type, const DimTable& dims);

// Returns the bytes of a dense row-major tensor of these extents; nothing on overflow. An encoded
// row must have whole blocks.
std::optional<int64_t> TensorBytes(DType dtype, Encoding encoding, std::span<const int64_t> shape);

// "[4, 8]".
std::string ShapeToString(std::span<const int64_t> shape);

// An index into Module::blobs.
struct BlobRef {
  uint32_t index = 0;
  bool operator==(const BlobRef&) const = default;
};

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;
using Bools = std::vector<bool>;
using Strings = std::vector<std::string>;
using DTypes = std::vector<DType>;
using Dims = std::vector<Dim>;

// The value of an attribute. The op definition gives the kind of an empty list.
using AttrValue = std::variant<int64_t, double, bool, std::string, DType, Dim, TensorType, BlobRef,
                               Ints, Doubles, Bools, Strings, DTypes, Dims>;

// The alternatives of AttrValue by name; numbers are on the wire.
enum class AttrKind : uint8_t {
  kInt,
  kFloat,
  kBool,
  kString,
  kDType,
  kDim,
  kType,
  kBlob,
  kInts,
  kFloats,
  kBools,
  kStrings,
  kDTypes,
  kDims,
};
inline constexpr int kAttrKindCount = 14;
inline AttrKind KindOf(const AttrValue& v) { return static_cast<AttrKind>(v.index()); }
std::string_view AttrKindName(AttrKind kind);

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_TYPE_H_
