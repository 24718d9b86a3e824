// Writes a line an instruction.
#include "kernels/fused/gpu_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/base/element.h"
#include "kernels/device/gpu/flags.h"
#include "kernels/ops/gpu/code.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::fused {
namespace {

using gpu::CodeName;
using gpu::ComputeName;

// The functions of primitives.cuh, in the order of Prim from kAdd to kIsInf; kSelect is none.
constexpr std::string_view kFunctions[] = {
    "Add",   "Sub",   "Mul",   "Div",   "Rem",   "Pow",   "Atan2", "Hypot", "LogAddExp",
    "Min",   "Max",   "And",   "Or",    "Xor",   "Shl",   "Shr",   "Eq",    "Ne",
    "Lt",    "Le",    "Gt",    "Ge",    "",      "Not",   "Neg",   "Abs",   "Sign",
    "Sqrt",  "Rsqrt", "Recip", "Exp",   "Expm1", "Log",   "Log1p", "Log2",  "Log10",
    "Sin",   "Cos",   "Tan",   "Tanh",  "Erf",   "Asin",  "Acos",  "Sinh",  "Cosh",
    "Asinh", "Acosh", "Atanh", "Floor", "Ceil",  "Round", "Trunc", "IsNan", "IsInf"};
static_assert(std::size(kFunctions) ==
              static_cast<size_t>(Prim::kIsInf) - static_cast<size_t>(Prim::kAdd) + 1);

std::string Name(int value) { return fmt::format("v{}", value); }
bool Divides(const Instruction& i) {
  return (i.prim == Prim::kDiv || i.prim == Prim::kRem) && !kFloats.Has(ComputeType(i.type));
}

}  // namespace

bool HasSixteenBits(DType type) { return type == DType::kF16 || type == DType::kBF16; }

bool HasNear(Prim prim, DType type) {
  constexpr Prim kThese[] = {Prim::kExp, Prim::kDiv, Prim::kRecip, Prim::kErf, Prim::kTanh};
  return ComputeType(type) == DType::kF32 && type != DType::kF32 &&
         std::ranges::find(kThese, prim) != std::end(kThese);
}

DType TypeOfTensor(const ScalarProgram& program, size_t tensor) {
  const size_t inputs = program.inputs().size();
  return tensor < inputs ? program.inputs()[tensor]
                         : program.OutputType(static_cast<int>(tensor - inputs));
}

bool Raises(const ScalarProgram& program) {
  return std::ranges::any_of(program.instructions(), Divides);
}

std::vector<uint64_t> ArgumentBits(const ScalarProgram& program,
                                   std::span<const opw_attr> arguments) {
  std::vector<uint64_t> out(static_cast<size_t>(std::max(1, program.arguments())));
  for (const Instruction& i : program.instructions()) {
    if (i.prim != Prim::kAttr) continue;
    const opw_attr& a = arguments[static_cast<size_t>(i.index)];
    const DType type = ComputeType(i.type);
    out[static_cast<size_t>(i.index)] =
        a.kind == OPW_ATTR_FLOAT ? ElementBits(type, a.value.f) : ElementBits(type, a.value.i);
  }
  return out;
}

ParamBytes::ParamBytes(size_t tensors) : bytes_(8 * tensors + sizeof(opw::Reporter)) {}

void ParamBytes::PutAxes(int rank, const std::vector<int64_t>& extents,
                         const std::vector<std::vector<int64_t>>& strides) {
  const size_t count = static_cast<size_t>(rank), skip = count - extents.size();
  const auto extent = [&](size_t a) { return a < skip ? 1 : extents[a - skip]; };
  for (size_t a = 0; a < count; ++a) Put(extent(a));
  for (size_t a = 0; a < count; ++a) Put(gpu::DivisorOf(std::min<int64_t>(extent(a), INT32_MAX)));
  for (const std::vector<int64_t>& s : strides) {
    for (size_t a = 0; a < count; ++a) Put(a < skip ? int64_t{0} : s[a - skip]);
  }
}

bool GpuBody::RoundsLate(size_t output) const {
  return HasSixteenBits(program_.OutputType(static_cast<int>(output))) &&
         HeldOf(StoredFrom(output)).as == DType::kF32;
}

int GpuBody::StoredFrom(size_t output) const {
  const int value = program_.outputs()[output];
  const Instruction& one = At(value);
  const bool casts =
      part_ != nullptr && one.prim == Prim::kCast && !one.saturate && HasSixteenBits(one.type);
  return casts && HeldOf(one.operands[0]).as == DType::kF32 ? one.operands[0] : value;
}

std::string GpuBody::Parameters() const {
  std::string out;
  const auto add = [&](const std::string& parameter) {
    out += (out.empty() ? "" : ", ") + parameter;
  };
  for (size_t i = 0; i < program_.inputs().size(); ++i)
    add(fmt::format("{} x{}", CodeName(program_.inputs()[i]), i));
  for (size_t o = 0; o < program_.outputs().size(); ++o)
    add(fmt::format("{}& y{}",
                    RoundsLate(o) ? "float" : CodeName(program_.OutputType(static_cast<int>(o))),
                    o));
  if (program_.arguments() > 0) add("const u64* arguments");
  if (Raises(program_)) add("u32& flags");
  return out;
}

std::string GpuBody::Statements() const {
  std::string out;
  for (size_t i = 0; i < program_.instructions().size(); ++i) {
    if (held_[i].used)
      out += fmt::format("  const auto v{} = {};\n", i, Expression(static_cast<int>(i)));
  }
  for (size_t o = 0; o < program_.outputs().size(); ++o) {
    const int value = StoredFrom(o);
    const DType type = program_.OutputType(static_cast<int>(o));
    // What rounds to 16 bits makes one NaN of all by itself.
    const bool any_nan = HasSixteenBits(type) || (part_ != nullptr && part_->passed[o]);
    const std::string v = any_nan ? Name(value) : Canonical(value);
    const bool as_it_is = RoundsLate(o) || (HeldOf(value).as == type && type != DType::kBool);
    out += fmt::format("  y{} = {};\n", o,
                       as_it_is ? v : fmt::format("Store<{}>({})", CodeName(type), v));
  }
  return out;
}

std::string GpuBody::Computed(int value) const {
  const DType type = HeldOf(value).as;
  return type == ComputeType(type) ? Name(value) : fmt::format("Load({})", Name(value));
}
std::string GpuBody::Canonical(int value) const {
  return HeldOf(value).exact ? Name(value) : fmt::format("prim::Canonical({})", Name(value));
}

bool GpuBody::HasNear(int value) const {
  const Instruction& one = At(value);
  const bool narrow = part_ != nullptr && part_->narrow[static_cast<size_t>(value)];
  return fused::HasNear(one.prim, narrow ? DType::kBF16 : one.type);
}

std::string GpuBody::Expression(int at) const {
  const Instruction& one = At(at);
  const std::string_view compute = ComputeName(one.type);
  switch (one.prim) {
    case Prim::kIn:
      return one.type == DType::kBool ? fmt::format("Load(x{})", one.index)
                                      : fmt::format("x{}", one.index);
    case Prim::kConst:
      return fmt::format("prim::FromBits<{}>(0x{:x}ull)", compute, one.bits);
    case Prim::kAttr:
      return fmt::format("prim::FromBits<{}>(arguments[{}])", compute, one.index);
    case Prim::kSelect: {
      const bool moves = HeldOf(at).as == one.type;
      const auto arm = [&](int i) {
        return moves ? Name(one.operands[i]) : Computed(one.operands[i]);
      };
      return fmt::format("{} ? {} : {}", Name(one.operands[0]), arm(1), arm(2));
    }
    case Prim::kCast:
      return Cast(one);
    default:
      break;
  }
  const std::string_view function =
      kFunctions[static_cast<size_t>(one.prim) - static_cast<size_t>(Prim::kAdd)];
  const std::string a = Computed(one.operands[0]);
  const std::string_view body = HasNear(at) ? "near" : "prim";
  if (body == "near" && one.prim == Prim::kErf && OnlyBesideOne(at))
    return fmt::format("near::ErfBesideOne({})", a);
  if (InfoOf(one.prim).arity == 1) return fmt::format("{}::{}({})", body, function, a);
  return fmt::format("{}::{}({}, {}{})", body, function, a, Computed(one.operands[1]),
                     Divides(one) ? ", flags" : "");
}

// Whether all that becomes of a value is a sum with a constant of at least 1, or a difference from
// one.
bool GpuBody::OnlyBesideOne(int value) const {
  if (std::ranges::find(program_.outputs(), value) != program_.outputs().end()) return false;
  return std::ranges::all_of(program_.instructions(), [&](const Instruction& i) {
    const int arity = InfoOf(i.prim).arity;
    const auto* const used = std::find(i.operands, i.operands + arity, value);
    if (used == i.operands + arity) return true;
    if (i.prim != Prim::kAdd && i.prim != Prim::kSub) return false;
    const Instruction& other = At(i.operands[used == i.operands ? 1 : 0]);
    return other.prim == Prim::kConst &&
           std::fabs(std::bit_cast<float>(static_cast<uint32_t>(other.bits))) >= 1;
  });
}

std::string GpuBody::Cast(const Instruction& one) const {
  const int from = one.operands[0];
  const DType held = HeldOf(from).as;
  if (held == one.type && !one.saturate) return Canonical(from);
  const std::string value = held == ComputeType(held) ? Canonical(from) : Computed(from);
  if (ComputeType(one.type) != one.type)
    return fmt::format("Store<{}>({}, {})", CodeName(one.type), value, one.saturate);
  return fmt::format("CastTo<{}>({})", ComputeName(one.type), value);
}

}  // namespace opwire::fused
