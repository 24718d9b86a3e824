// Builds and checks scalar programs.
#include "kernels/fused/scalar_program.h"

#include <algorithm>
#include <bit>

namespace opwire::fused {
namespace {

// A body's constant in a computing type.
uint64_t ConstantBits(double value, DType compute) {
  switch (compute) {
    case DType::kF64:
      return std::bit_cast<uint64_t>(value);
    case DType::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kBool:
      return value != 0;
    default:  // bodies hold small whole numbers
      return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
}

}  // namespace

DType ComputeType(DType type) {
  return (DTypeSet{DType::kF16, DType::kBF16} | kFloat8s).Has(type) ? DType::kF32 : type;
}

bool IsTest(Prim prim) {
  return (prim >= Prim::kEq && prim <= Prim::kGe) || prim == Prim::kIsNan || prim == Prim::kIsInf;
}

DTypeSet TypesOf(Prim prim) {
  switch (prim) {
    case Prim::kIn:
    case Prim::kSelect:
    case Prim::kCast:
      return kAll;
    case Prim::kAttr:
    case Prim::kConst:
    case Prim::kEq:
    case Prim::kNe:
    case Prim::kLt:
    case Prim::kLe:
    case Prim::kGt:
    case Prim::kGe:
      return kArithmetic | kBoolean;
    case Prim::kAdd:
    case Prim::kSub:
    case Prim::kMul:
    case Prim::kDiv:
    case Prim::kRem:
    case Prim::kPow:
    case Prim::kMin:
    case Prim::kMax:
      return kArithmetic;
    case Prim::kAnd:
    case Prim::kOr:
    case Prim::kXor:
    case Prim::kNot:
      return kIntegers | kBoolean;
    case Prim::kShl:
    case Prim::kShr:
      return kIntegers;
    case Prim::kNeg:
    case Prim::kAbs:
    case Prim::kSign:
      return kFloats | kSigned;
    default:
      return kFloats;
  }
}

int ScalarProgram::Append(const Instruction& instruction) {
  instructions_.push_back(instruction);
  return static_cast<int>(instructions_.size()) - 1;
}

std::vector<int> ScalarProgram::Append(const ScalarProgram& other, std::span<const int> inputs) {
  std::vector<int> made;
  for (const Instruction& one : other.instructions()) {
    if (one.prim == Prim::kIn) {
      made.push_back(inputs[static_cast<size_t>(one.index)]);
    } else if (one.prim == Prim::kAttr) {
      made.push_back(AddArgument(one.type));
    } else {
      Instruction copy = one;
      for (int32_t& o : copy.operands) o = o < 0 ? o : made[static_cast<size_t>(o)];
      made.push_back(Append(copy));
    }
  }
  return made;
}

int ScalarProgram::AddInput(DType type) {
  inputs_.push_back(type);
  return Append(
      {.prim = Prim::kIn, .type = type, .index = static_cast<int32_t>(inputs_.size()) - 1});
}

int ScalarProgram::AddArgument(DType type) {
  return Append({.prim = Prim::kAttr, .type = type, .index = arguments_++});
}

int ScalarProgram::Coerced(int value, DType type) {
  if (instructions_[value].type == type) return value;
  return Append({.prim = Prim::kCast, .type = type, .operands = {value, -1, -1}});
}

bool ScalarProgram::LooksAt(const OpDef& row, DType result) {
  return result == DType::kBool ||
         (!row.body.Empty() && row.body.nodes().back().prim == Prim::kCast);
}

int ScalarProgram::Rounded(int value) {
  const Instruction& made = instructions_[value];
  if (ComputeType(made.type) == made.type || made.prim == Prim::kIn || made.prim == Prim::kCast)
    return value;
  return Append({.prim = Prim::kCast, .type = made.type, .operands = {value, -1, -1}});
}

StatusOr<int> ScalarProgram::Append(const OpDef& row, std::span<const int> operands,
                                    std::span<const int> attrs, DType result, bool saturate) {
  if (row.body.Empty()) return InvalidArgument("{} has no scalar body", row.name);
  if (operands.size() != row.operands.size()) {
    return InvalidArgument("{} takes {} operands, not {}", row.name, row.operands.size(),
                           operands.size());
  }
  const auto known = [this](int value) {
    return value >= 0 && value < static_cast<int>(instructions_.size());
  };
  for (const int value : operands) {
    if (!known(value)) return InvalidArgument("{}: there is no value {}", row.name, value);
  }
  const DType type =
      instructions_[operands.back()].type;  // the row's main type: a condition comes first
  for (size_t i = 0; i < operands.size(); ++i) {
    const DType got = instructions_[operands[i]].type;
    if (!row.TypesOf(row.operands[i].type).Has(got) ||
        (got != type && row.operands[i].type != DTypeName(DType::kBool))) {
      return InvalidArgument("{}: operand {} is {} beside {}", row.name, row.operands[i].name,
                             DTypeName(got), DTypeName(type));
    }
  }
  const bool looks = LooksAt(row, result);
  std::vector<int> stack;
  for (const ExprNode& node : row.body.nodes()) {
    if (node.prim == Prim::kIn) {
      stack.push_back(looks ? Rounded(operands[node.index]) : operands[node.index]);
      continue;
    }
    if (node.prim == Prim::kAttr) {
      if (node.index >= static_cast<int>(attrs.size()) || !known(attrs[node.index])) {
        return InvalidArgument("{}: its body reads attribute {}, which is not given", row.name,
                               row.attrs[node.index].name);
      }
      stack.push_back(Coerced(attrs[node.index], type));
      continue;
    }
    if (node.prim == Prim::kConst) {
      stack.push_back(Append(
          {.prim = node.prim, .type = type, .bits = ConstantBits(node.value, ComputeType(type))}));
      continue;
    }
    const int arity = InfoOf(node.prim).arity;
    Instruction next{.prim = node.prim, .type = IsTest(node.prim) ? DType::kBool : type};
    for (int i = arity - 1; i >= 0; --i, stack.pop_back()) {
      const bool condition = node.prim == Prim::kSelect && i == 0;
      next.operands[i] = Coerced(stack.back(), condition ? DType::kBool : type);
    }
    if (node.prim == Prim::kCast) {
      next.type = result;
      next.saturate = saturate;
    }
    stack.push_back(Append(next));
  }
  return Coerced(stack.back(), result);
}

std::string ScalarProgram::Identity() const {
  std::string out;
  const auto put = [&](auto number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  put(inputs_.size());
  for (const DType type : inputs_) put(type);
  put(arguments_);
  put(outputs_.size());
  for (const int value : outputs_) put(value);
  for (const Instruction& i : instructions_) {
    put(i.prim);
    put(i.type);
    for (const int32_t operand : i.operands) put(operand);
    put(i.index);
    put(i.bits);
    put(i.saturate);
  }
  return out;
}

Status ScalarProgram::CheckOne(int at) const {
  const Instruction& one = instructions_[at];
  if (static_cast<int>(one.prim) >= kPrimCount)
    return InvalidArgument("instruction {}: no primitive {}", at, static_cast<int>(one.prim));
  if (!IsValid(one.type))
    return InvalidArgument("instruction {}: no element type {}", at, static_cast<int>(one.type));
  const PrimInfo& info = InfoOf(one.prim);
  for (int i = 0; i < 3; ++i) {
    const bool has = i < info.arity;
    if (has ? one.operands[i] < 0 || one.operands[i] >= at : one.operands[i] != -1) {
      return InvalidArgument("instruction {}: {} has value {} as operand {}", at, info.name,
                             one.operands[i], i);
    }
  }
  if (one.prim == Prim::kIn && (one.index < 0 || one.index >= static_cast<int>(inputs_.size()) ||
                                inputs_[one.index] != one.type)) {
    return InvalidArgument("instruction {}: no input {} of {}", at, one.index, DTypeName(one.type));
  }
  if (one.prim == Prim::kAttr && (one.index < 0 || one.index >= arguments_)) {
    return InvalidArgument("instruction {}: no argument {}", at, one.index);
  }
  DType took = one.type;
  for (int i = 0; i < info.arity; ++i) {
    const DType got = instructions_[one.operands[i]].type;
    const bool condition = one.prim == Prim::kSelect && i == 0;
    if (i == 0 && one.prim != Prim::kSelect && (IsTest(one.prim) || one.prim == Prim::kCast))
      took = got;
    if (got != (condition ? DType::kBool : took)) {
      return InvalidArgument("instruction {}: {} of {} has a {} as operand {}", at, info.name,
                             DTypeName(took), DTypeName(got), i);
    }
  }
  if (!TypesOf(one.prim).Has(took) || (IsTest(one.prim) && one.type != DType::kBool)) {
    return InvalidArgument("instruction {}: {} of {} to {}", at, info.name, DTypeName(took),
                           DTypeName(one.type));
  }
  return absl::OkStatus();
}

Status ScalarProgram::Check() const {
  const auto within = [](size_t n, int most, std::string_view what) {
    return n <= static_cast<size_t>(most) ? absl::OkStatus()
                                          : ResourceExhausted("{} {}, at most {}", n, what, most);
  };
  OPWIRE_RETURN_IF_ERROR(within(inputs_.size(), kMaxInputs, "inputs"));
  OPWIRE_RETURN_IF_ERROR(within(outputs_.size(), kMaxOutputs, "outputs"));
  const auto reads = std::ranges::count(instructions_, Prim::kAttr, &Instruction::prim);
  OPWIRE_RETURN_IF_ERROR(within(std::max<size_t>(arguments_, reads), kMaxArguments, "arguments"));
  OPWIRE_RETURN_IF_ERROR(within(instructions_.size(), kMaxInstructions, "instructions"));
  if (outputs_.empty()) return InvalidArgument("a program without outputs");
  for (size_t i = 0; i < instructions_.size(); ++i)
    OPWIRE_RETURN_IF_ERROR(CheckOne(static_cast<int>(i)));
  for (const int value : outputs_) {
    if (value < 0 || value >= static_cast<int>(instructions_.size()))
      return InvalidArgument("output of no value {}", value);
  }
  return absl::OkStatus();
}

std::vector<Held> HowHeld(const ScalarProgram& program) {
  const std::vector<Instruction>& all = program.instructions();
  std::vector<Held> held(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Instruction& one = all[i];
    Held& h = held[i];
    const int arity = InfoOf(one.prim).arity;
    const Held* const a = arity > 1 ? &held[one.operands[1]] : nullptr;
    const Held* const b = arity > 2 ? &held[one.operands[2]] : nullptr;
    const bool selects = one.prim == Prim::kSelect;
    const bool moved = one.prim == Prim::kIn || one.prim == Prim::kCast ||
                       (selects && a->as == one.type && b->as == one.type);
    h.as = moved ? one.type : ComputeType(one.type);
    h.exact = arity == 0 || one.prim == Prim::kCast || !(kFloats | kFloat8s).Has(one.type) ||
              (selects && a->exact && b->exact);
  }
  for (const int value : program.outputs()) held[value].used = true;
  for (size_t i = all.size(); i-- > 0;) {
    for (int k = 0; held[i].used && k < InfoOf(all[i].prim).arity; ++k)
      held[all[i].operands[k]].used = true;
  }
  return held;
}

}  // namespace opwire::fused
