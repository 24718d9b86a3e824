// Builds programs of rows.
#include "kernels/fused/row_program.h"

#include <algorithm>

namespace opwire::fused {
namespace {

constexpr std::string_view kNames[] = {"sum", "mean", "prod", "amax", "amin", "any", "all"};

}  // namespace

std::optional<ReduceKind> ReduceKindOf(std::string_view op) {
  const auto* const found = std::ranges::find(kNames, op);
  return found == std::end(kNames) ? std::nullopt
                                   : std::optional(static_cast<ReduceKind>(found - kNames));
}

int RowProgram::AddInput(DType type, Place place) {
  operands_.push_back(static_cast<int>(scalar_.inputs().size()));
  operand_places_.push_back(place);
  return scalar_.AddInput(type);
}

StatusOr<int> RowProgram::Append(const OpDef& row, std::span<const int> operands,
                                 std::span<const int> attrs, DType result, bool saturate) {
  std::vector<int> own(operands.begin(), operands.end());
  for (int& value : own) {
    const DType type = scalar_.instructions()[static_cast<size_t>(value)].type;
    const bool reduced =
        std::ranges::find(reductions_, value, &Reduction::result) != reductions_.end();
    // What a reduction of narrow floats gave is f32 still.
    if (reduced && ComputeType(type) != type && ScalarProgram::LooksAt(row, result))
      value = scalar_.Append({.prim = Prim::kCast, .type = type, .operands = {value, -1, -1}});
  }
  return scalar_.Append(row, own, attrs, result, saturate);
}

int RowProgram::Reduce(ReduceKind kind, int value) {
  const int result = scalar_.AddInput(scalar_.instructions()[static_cast<size_t>(value)].type);
  reductions_.push_back({kind, value, result});
  return result;
}

void RowProgram::AddOutput(int value, Place place) {
  scalar_.AddOutput(value);
  result_places_.push_back(place);
}

std::string RowProgram::Identity() const {
  std::string out = scalar_.Identity();
  const auto put = [&](auto number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  put(shape_of_);
  put(operands_.size());
  for (const Place p : operand_places_) put(p);
  for (const Place p : result_places_) put(p);
  for (const Reduction& f : reductions_) put(f.kind), put(f.value), put(f.result);
  return out;
}

std::vector<DType> RowProgram::OperandTypes() const {
  std::vector<DType> out;
  for (const int input : operands_) out.push_back(scalar_.inputs()[static_cast<size_t>(input)]);
  return out;
}

bool RowProgram::HasExtremes() const {
  return std::ranges::any_of(reductions_, [](const Reduction& f) {
    return f.kind == ReduceKind::kMax || f.kind == ReduceKind::kMin;
  });
}

std::vector<RowProgram::Level> RowProgram::Levels() const {
  const std::vector<Instruction>& all = scalar_.instructions();
  std::vector<Level> out(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Instruction& one = all[i];
    Level& level = out[i];
    if (one.prim == Prim::kIn) {
      level.constant = false;
      const auto reduction =
          std::ranges::find(reductions_, static_cast<int>(i), &Reduction::result);
      if (reduction != reductions_.end()) {
        level.reduction = static_cast<int>(reduction - reductions_.begin());
        level.depth = out[static_cast<size_t>(reduction->value)].depth + 1;
      } else {
        level.operand =
            static_cast<int>(std::ranges::find(operands_, one.index) - operands_.begin());
        level.of_row = operand_places_[static_cast<size_t>(level.operand)] != kElements;
      }
    }
    for (int k = 0; k < InfoOf(one.prim).arity; ++k) {
      const Level& operand = out[static_cast<size_t>(one.operands[k])];
      level.depth = std::max(level.depth, operand.depth);
      level.of_row = level.of_row && operand.of_row;
      level.constant = level.constant && operand.constant;
    }
  }
  return out;
}

const char* WhyNoExtremes(const opw_tensor& shape) {
  const std::span extents(shape.shape, shape.rank);
  if (extents.back() > 0 ||
      std::ranges::find(extents.first(extents.size() - 1), 0) != extents.end() - 1)
    return nullptr;
  return "an extent of 0 has no largest or smallest element";
}

}  // namespace opwire::fused
