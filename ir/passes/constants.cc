// Reads and writes constants of nodes, and interprets bodies on them.
#include "ir/passes/constants.h"

#include <algorithm>
#include <cstring>

#include "ir/base/element.h"
#include "ir/scalar/interpret.h"
#include "ir/scalar/scalar.h"

namespace opwire {
namespace {

std::string BytesOf(DType dtype, uint64_t bits) {
  std::string out(static_cast<size_t>(DTypeBytes(dtype)), '\0');
  std::memcpy(out.data(), &bits, out.size());  // little-endian, as everywhere in this code
  return out;
}

// One element, if all are equal.
Constant FromElements(DType dtype, std::vector<int64_t> shape, std::string bytes) {
  const auto size = static_cast<size_t>(DTypeBytes(dtype));
  const std::string_view all = bytes;
  bool same = !bytes.empty();
  for (size_t at = size; same && at < all.size(); at += size)
    same = all.substr(at, size) == all.substr(0, size);
  if (same) return {.dtype = dtype, .bytes = bytes.substr(0, size)};
  return {.dtype = dtype, .shape = std::move(shape), .splat = false, .bytes = std::move(bytes)};
}

int64_t Count(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t e : shape) n = CheckedMul(n, e).value_or(kMaxExtent);
  return n;
}

// Copies and selections move bits, so that NaNs keep their bits.
bool OnlyMoves(const Expr& body) {
  return std::ranges::all_of(body.nodes(), [](const ExprNode& n) {
    return n.prim == Prim::kIn || n.prim == Prim::kSelect;
  });
}

// The index of the operand's element for the element `at` of the result, to which the operand
// broadcasts.
int64_t Place(int64_t at, std::span<const int64_t> result, std::span<const int64_t> operand) {
  int64_t place = 0, stride = 1;
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t extent = result[result.size() - 1 - i], index = at % extent;
    at /= extent;
    if (i >= operand.size()) continue;
    const int64_t of_operand = operand[operand.size() - 1 - i];
    if (of_operand != 1) place += index * stride;
    stride *= of_operand;
  }
  return place;
}

}  // namespace

uint64_t Constant::bits() const {
  uint64_t out = 0;
  std::memcpy(&out, bytes.data(), bytes.size());
  return out;
}

int64_t SignedOf(const Constant& c) {
  const auto size = static_cast<int>(8 * DTypeBytes(c.dtype));
  return static_cast<int64_t>(c.bits() << (64 - size)) >> (64 - size);
}

std::optional<std::vector<int64_t>> KnownShape(const DimTable& dims, const TensorType& type) {
  std::vector<int64_t> out;
  for (Dim d : type.shape) {
    if (!dims.IsConstant(d)) return std::nullopt;
    out.push_back(dims.ConstantValue(d));
  }
  return out;
}

std::optional<Constant> ConstantOf(const Rewriter& r, ValueId v) {
  const Node* const node = r.Producer(v);
  if (node == nullptr || !node->pin.empty()) return std::nullopt;
  const TensorType& type = r.TypeOf(v);
  if (type.encoding != Encoding::kDense) return std::nullopt;
  if (node->op == "zeros") return Constant{.dtype = type.dtype, .bytes = BytesOf(type.dtype, 0)};
  if (node->op == "full") {
    return Constant{
        .dtype = type.dtype,
        .bytes =
            BytesOf(type.dtype, ElementBits(type.dtype, std::get<double>(r.Resolved(*node)[1])))};
  }
  const bool values = node->op == "values";
  if (!values && node->op != "constant") return std::nullopt;
  const auto shape = KnownShape(r.dims(), type);
  if (!shape || Count(*shape) > kMaxFoldedElements) return std::nullopt;
  const std::vector<AttrValue> attrs = r.Resolved(*node);
  if (!values) return FromElements(type.dtype, *shape, r.Blob(std::get<BlobRef>(attrs[1])));
  std::string bytes;
  for (double value : std::get<Doubles>(attrs[0]))
    bytes += BytesOf(type.dtype, ElementBits(type.dtype, value));
  return FromElements(type.dtype, *shape, std::move(bytes));
}

ValueId AppendConstant(Rewriter& r, const TensorType& type, const Constant& c) {
  if (c.splat) {
    const double value = ElementValue(c.dtype, c.bytes.data());
    if (ElementBits(c.dtype, value) == c.bits()) {
      std::vector<NamedAttr> attrs;
      if (!type.shape.empty()) attrs.push_back({"shape", type.shape});
      attrs.push_back({"value", value});
      if (type.dtype != DType::kF32) attrs.push_back({"dtype", type.dtype});
      return r.Append("full", {}, std::move(attrs));
    }
  }
  const auto shape = KnownShape(r.dims(), type);
  if (!shape || Count(*shape) > kMaxFoldedElements) return kAbsent;
  std::string bytes = c.bytes;
  if (c.splat) {
    bytes.clear();
    for (int64_t i = Count(*shape); i > 0; --i) bytes += c.bytes;
  }
  const auto blob = r.AddBlob(std::move(bytes));
  return blob ? r.Append("constant", {}, {{"type", type}, {"value", *blob}}) : kAbsent;
}

std::optional<Constant> Evaluate(const OpDef& row, std::span<const AttrValue> attrs,
                                 std::span<const Constant> operands, DType result,
                                 const std::optional<std::vector<int64_t>>& shape) {
  if (operands.empty()) return std::nullopt;
  const bool splat = std::ranges::all_of(operands, &Constant::splat);
  if (!splat && (!shape || Count(*shape) > kMaxFoldedElements)) return std::nullopt;
  const int64_t count = splat ? 1 : Count(*shape);
  const auto element = [&](int operand, int64_t at) {
    const Constant& c = operands[static_cast<size_t>(operand)];
    return c.bytes.data() + (c.splat ? 0 : Place(at, *shape, c.shape) * DTypeBytes(c.dtype));
  };
  const int saturate_attr = row.FindAttr("saturate");
  const bool saturate =
      saturate_attr >= 0 && std::get<bool>(attrs[static_cast<size_t>(saturate_attr)]);
  std::string bytes(static_cast<size_t>(count * DTypeBytes(result)), '\0');
  bool divided = false;
  const auto run = [&]<typename C>(ops::TypeTag<C>, const auto& load, const auto& store) {
    ops::Interpreter<C> interpreter(row.body.nodes());
    for (int64_t at = 0; at < count; at += interpreter.kBlock) {
      const int64_t n = std::min(count - at, interpreter.kBlock);
      const C* const values = interpreter.Run(
          n,
          [&](int operand, C* block) {
            for (int64_t i = 0; i < n; ++i) block[i] = load(operand, at + i);
          },
          &divided);
      for (int64_t i = 0; i < n; ++i) store(at + i, values[i]);
    }
  };
  // The last operand has the main type: a condition comes first.
  const DType main = operands.back().dtype;
  if (OnlyMoves(row.body)) {
    ops::VisitBits(DTypeBytes(main), [&](auto tag) {
      using U = typename decltype(tag)::Type;
      run(
          tag,
          [&](int operand, int64_t at) -> U {
            if (operands[static_cast<size_t>(operand)].dtype == DType::kBool &&
                main != DType::kBool)
              return *element(operand, at) != 0;
            U bits;
            std::memcpy(&bits, element(operand, at), sizeof(U));
            return bits;
          },
          [&](int64_t at, U bits) {
            std::memcpy(bytes.data() + at * static_cast<int64_t>(sizeof(U)), &bits, sizeof(U));
          });
    });
  } else {
    ops::VisitType(main, [&](auto main_tag) {
      using C = ops::ComputeOf<typename decltype(main_tag)::Type>;
      run(
          ops::TypeTag<C>{},
          [&](int operand, int64_t at) {
            C value{};
            ops::VisitType(operands[static_cast<size_t>(operand)].dtype, [&](auto tag) {
              using T = typename decltype(tag)::Type;
              T stored;
              std::memcpy(&stored, element(operand, at), sizeof(T));
              if constexpr (std::is_same_v<ops::ComputeOf<T>, C> || std::is_same_v<T, ops::Bool>)
                value = static_cast<C>(ops::Scalar<T>::Load(stored));
            });
            return value;
          },
          [&](int64_t at, C value) {
            ops::VisitType(result, [&](auto tag) {
              using T = typename decltype(tag)::Type;
              const T stored = ops::Convert<T>(value, saturate);
              std::memcpy(bytes.data() + at * static_cast<int64_t>(sizeof(T)), &stored, sizeof(T));
            });
          });
    });
  }
  if (divided) return std::nullopt;
  if (splat) return Constant{.dtype = result, .bytes = std::move(bytes)};
  return FromElements(result, *shape, std::move(bytes));
}

}  // namespace opwire
