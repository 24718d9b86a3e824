// What shape rules see of a node, and the checks that hold for every row: arity, segments, element
// types.
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/catalogue.h"
#include "ir/ops/names.h"

namespace opwire {
namespace {

constexpr size_t kMaxOperandsInMessages = 4;

Status CheckArity(const OpDef& row, size_t operands, std::span<const uint32_t> segments) {
  if (!row.HasLists()) {
    if (!segments.empty())
      return InvalidArgument("{}: expected no segments, for no operand is a list, got {}", row.name,
                             segments.size());
    if (operands != row.operands.size()) {
      return InvalidArgument("{}: expected {} operands, got {}; it is {}", row.name,
                             row.operands.size(), operands, row.Signature());
    }
    return absl::OkStatus();
  }
  if (segments.size() != row.operands.size()) {
    return InvalidArgument("{}: expected {} segments, one for each operand, got {}; it is {}",
                           row.name, row.operands.size(), segments.size(), row.Signature());
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!row.operands[i].variadic && segments[i] != 1) {
      return InvalidArgument("{}: operand {} is one value, got a segment of {}", row.name,
                             row.operands[i].name, segments[i]);
    }
    sum += segments[i];
  }
  if (sum != operands)
    return InvalidArgument("{}: segments hold {} operands, got {}", row.name, sum, operands);
  return absl::OkStatus();
}

// The element types that variables stand for at one node.
class Bindings {
 public:
  Bindings(const OpDef& row, const DimTable& dims) : row_(row), dims_(dims) {}

  Status Bind(const OperandSpec& spec, const TensorType& type) {
    if (!IsValid(type.dtype))
      return InvalidArgument("{}: operand {} has no element type", row_.name, spec.name);
    if (spec.type == kAnyType) return absl::OkStatus();
    if (spec.type == kBlocksType) {
      if (type.dtype == DType::kI8 && IsBlocks(type.encoding)) return absl::OkStatus();
      return InvalidArgument(
          "{}: operand {}: expected i8 in blocks of q4_0, q4_1, q8_0 or q6_k, got {}", row_.name,
          spec.name, ToString(type, dims_));
    }
    if (type.encoding != Encoding::kDense) {
      return InvalidArgument("{}: operand {}: expected a dense tensor, got {}", row_.name,
                             spec.name, ToString(type, dims_));
    }
    const DTypeSet allowed = row_.TypesOf(spec.type);
    if (!allowed.Has(type.dtype)) {
      return InvalidArgument("{}: operand {}: expected {}, got {}", row_.name, spec.name,
                             allowed.ToString(), ToString(type, dims_));
    }
    if (row_.Variable(spec.type) == nullptr) return absl::OkStatus();
    for (const Bound& b : bound_) {
      if (b.variable != spec.type) continue;
      if (b.dtype == type.dtype) return absl::OkStatus();
      return InvalidArgument("{}: operand {}: expected {} as in {}, got {}", row_.name, spec.name,
                             DTypeName(b.dtype), b.operand, ToString(type, dims_));
    }
    bound_.push_back({spec.type, spec.name, type.dtype});
    return absl::OkStatus();
  }

  // kInvalid when only the shape rule knows.
  DType Of(std::string_view type) const {
    for (const Bound& b : bound_) {
      if (b.variable == type) return b.dtype;
    }
    return row_.Variable(type) ? DType::kInvalid : ParseDType(type).value_or(DType::kInvalid);
  }

 private:
  struct Bound {
    std::string_view variable, operand;
    DType dtype;
  };
  const OpDef& row_;
  const DimTable& dims_;
  std::vector<Bound> bound_;
};

Status CheckResult(const OpDef& row, const ResultSpec& spec, const TensorType& t,
                   const DimTable& dims) {
  if (!row.TypesOf(spec.type).Has(t.dtype)) {
    return InvalidArgument("{}: result {}: expected {}, got {}", row.name, spec.name,
                           row.TypesOf(spec.type).ToString(), DTypeName(t.dtype));
  }
  if (t.rank() > kMaxRank) {
    return InvalidArgument("{}: result {}: expected at most rank {}, got {}", row.name, spec.name,
                           kMaxRank, t.rank());
  }
  for (Dim d : t.shape) {
    if (dims.TreeSize(d) <= kMaxTreeSize) continue;
    return InvalidArgument("{}: result {}: an extent is an expression of more than {} terms",
                           row.name, spec.name, kMaxTreeSize);
  }
  return absl::OkStatus();
}

}  // namespace

InferContext::InferContext(const OpDef& row, DimTable& dims,
                           std::span<const TensorType* const> operands,
                           std::span<const uint32_t> segments, std::span<const AttrValue> attrs)
    : row_(row),
      dims_(dims),
      operands_(operands),
      attrs_(attrs),
      starts_(row.OperandStarts(segments)) {
  if (row.DeclaresResults()) return;
  result_starts_ = row.ResultStarts(starts_);
  results_.resize(result_starts_.back());
}

const TensorType* InferContext::Operand(int i) const { return operands_[starts_[i]]; }

std::span<const TensorType* const> InferContext::List(int i) const {
  return operands_.subspan(starts_[i], starts_[i + 1] - starts_[i]);
}

Status InferContext::Error(std::string_view message) const {
  return InvalidArgument("{}: {}", row_.name, message);
}

std::string InferContext::OperandShapes() const {
  std::string out;
  size_t shown = 0;
  for (const TensorType* t : operands_) {
    if (t == nullptr) continue;
    if (shown == kMaxOperandsInMessages) return out + " x ...";
    if (shown++ > 0) out += " x ";
    out += '[';
    for (size_t i = 0; i < t->shape.size(); ++i)
      out += (i ? ", " : "") + dims_.ToString(t->shape[i]);
    out += ']';
  }
  return out;
}

void InferContext::Constrain(Dim a, Dim b, std::string_view what) {
  if (constrained_.insert(uint64_t{a.index} << 32 | b.index).second)
    constraints_.push_back({a, b, std::string(what)});
}

Status InferContext::RequireEqual(Dim a, Dim b, std::string_view what) {
  switch (dims_.Compare(a, b)) {
    case DimOrder::kEqual:
      return absl::OkStatus();
    case DimOrder::kUnknown:
      Constrain(a, b, what);
      return absl::OkStatus();
    case DimOrder::kDifferent:
      break;
  }
  return Error(fmt::format("{} differ: {} ({} and {})", what, OperandShapes(), dims_.ToString(a),
                           dims_.ToString(b)));
}

Status InferContext::RequireAtMost(Dim a, Dim b, std::string_view what) {
  const Dim least = dims_.Min(a, b);
  switch (dims_.Compare(least, a)) {
    case DimOrder::kEqual:
      return absl::OkStatus();
    case DimOrder::kUnknown:
      Constrain(least, a, what);
      return absl::OkStatus();
    case DimOrder::kDifferent:
      break;
  }
  return Error(fmt::format("{}: expected at most {}, got {} in {}", what, dims_.ToString(b),
                           dims_.ToString(a), OperandShapes()));
}

Status InferContext::RequireEqualShapes(std::span<const Dim> a, std::span<const Dim> b,
                                        std::string_view what) {
  if (a.size() != b.size()) {
    return Error(
        fmt::format("{} differ: {} (ranks {} and {})", what, OperandShapes(), a.size(), b.size()));
  }
  for (size_t i = 0; i < a.size(); ++i) OPWIRE_RETURN_IF_ERROR(RequireEqual(a[i], b[i], what));
  return absl::OkStatus();
}

Status InferContext::RequireRank(int operand, int rank) {
  if (In(operand).rank() == rank) return absl::OkStatus();
  return Error(fmt::format("operand {}: expected rank {}, got {}", row_.operands[operand].name,
                           rank, Print(In(operand))));
}

Status InferContext::RequireRankAtLeast(int operand, int rank) {
  if (In(operand).rank() >= rank) return absl::OkStatus();
  return Error(fmt::format("operand {}: expected rank {} or more, got {}",
                           row_.operands[operand].name, rank, Print(In(operand))));
}

StatusOr<int> InferContext::Axis(int64_t axis, int rank, std::string_view attr) {
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  if (rank == 0)
    return Error(
        fmt::format("{}: expected no axis for rank 0, got {} for {}", attr, axis, OperandShapes()));
  return Error(fmt::format("{}: expected {} to {}, got {} for {}", attr, -rank, rank - 1, axis,
                           OperandShapes()));
}

StatusOr<std::vector<Dim>> InferContext::Broadcast(std::span<const TensorType* const> types) {
  size_t rank = 0;
  for (const TensorType* t : types) rank = std::max(rank, t->shape.size());
  const auto is = [&](Dim d, int64_t v) {
    return dims_.IsConstant(d) && dims_.ConstantValue(d) == v;
  };
  const Dim one = dims_.Constant(1);
  std::vector<Dim> shape(rank, one);
  for (const TensorType* t : types) {
    const size_t offset = rank - t->shape.size();
    for (size_t i = 0; i < t->shape.size(); ++i) {
      Dim& have = shape[offset + i];
      const Dim d = t->shape[i];
      if (is(d, 1) || have == d) continue;
      if (!is(have, 1)) {
        OPWIRE_RETURN_IF_ERROR(RequireEqual(have, d, "broadcast shapes"));
        if (!dims_.IsConstant(d))
          continue;  // the first name of the extent stands, unless its number is known
      }
      have = d;
    }
  }
  return shape;
}

StatusOr<Inferred> InferTypes(const OpDef& row, DimTable& dims,
                              std::span<const TensorType* const> operands,
                              std::span<const uint32_t> segments, std::span<const AttrValue> attrs,
                              std::span<const TensorType> declared) {
  OPWIRE_RETURN_IF_ERROR(CheckArity(row, operands.size(), segments));
  if (attrs.size() != row.attrs.size()) {
    return InvalidArgument("{}: expected {} resolved attributes, got {}", row.name,
                           row.attrs.size(), attrs.size());
  }
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (KindOf(attrs[i]) != row.attrs[i].kind) {
      return InvalidArgument("{}: attribute {}: expected {}, got {}", row.name, row.attrs[i].name,
                             AttrKindName(row.attrs[i].kind), AttrKindName(KindOf(attrs[i])));
    }
  }
  Bindings bindings(row, dims);
  const std::vector<uint32_t> starts = row.OperandStarts(segments);
  if (!row.DeclaresResults() && !row.results.empty() && row.ResultStarts(starts).back() == 0) {
    return InvalidArgument(
        "{}: operand {}: expected a value at least, for there is a result for each; it is {}",
        row.name, row.operands[row.LengthOf(0)].name, row.Signature());
  }
  for (size_t i = 0; i < row.operands.size(); ++i) {
    const OperandSpec& spec = row.operands[i];
    for (uint32_t k = starts[i]; k < starts[i + 1]; ++k) {
      if (operands[k] != nullptr) {
        OPWIRE_RETURN_IF_ERROR(bindings.Bind(spec, *operands[k]));
      } else if (!spec.optional) {
        return InvalidArgument("{}: operand {} is absent; it is {}", row.name, spec.name,
                               row.Signature());
      }
    }
  }
  InferContext context(row, dims, operands, segments, attrs);
  if (row.DeclaresResults()) {
    OPWIRE_RETURN_IF_ERROR(row.infer(context));
    return Inferred{{declared.begin(), declared.end()}, context.constraints()};
  }
  for (size_t i = 0; i < row.results.size(); ++i) {
    for (TensorType& t : context.ResultList(static_cast<int>(i)))
      t.dtype = bindings.Of(row.results[i].type);
  }
  OPWIRE_RETURN_IF_ERROR(row.infer(context));
  for (size_t i = 0; i < row.results.size(); ++i) {
    for (const TensorType& t : context.ResultList(static_cast<int>(i)))
      OPWIRE_RETURN_IF_ERROR(CheckResult(row, row.results[i], t, dims));
  }
  return Inferred{std::move(context.results()), context.constraints()};
}

}  // namespace opwire
