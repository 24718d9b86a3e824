// Writes a line an instruction over the templates of lanes.inc.h.
#include "kernels/fused/source.h"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "kernels/embedded.h"
#include "kernels/jit/library.h"

namespace opwire::fused {
namespace {

std::string_view ElementName(DType type) {  // of values in memory; bool: a byte
  static constexpr std::string_view kNames[kDTypeCount] = {
      "",        "double",  "float",  "uint16_t", "uint16_t", "uint8_t",  "uint8_t", "int64_t",
      "int32_t", "int16_t", "int8_t", "uint64_t", "uint32_t", "uint16_t", "uint8_t", "uint8_t"};
  return kNames[static_cast<int>(type)];
}

// The functions of functions.inc.h; a swapped one has the operands the other way round.
struct Function {
  std::string_view name;
  bool swapped = false;
};
Function FunctionOf(Prim prim) {
  switch (prim) {
    case Prim::kAdd:
      return {"AddOp"};
    case Prim::kSub:
      return {"SubOp"};
    case Prim::kMul:
      return {"MulOp"};
    case Prim::kDiv:
      return {"DivOp"};
    case Prim::kRem:
      return {"FmodOp"};
    case Prim::kPow:
      return {"PowOp"};
    case Prim::kAtan2:
      return {"Atan2Op"};
    case Prim::kHypot:
      return {"HypotOp"};
    case Prim::kLogAddExp:
      return {"LogAddExpOp"};
    case Prim::kMin:
      return {"MinOp"};
    case Prim::kMax:
      return {"MaxOp"};
    case Prim::kAnd:
      return {"AndOp"};
    case Prim::kOr:
      return {"OrOp"};
    case Prim::kXor:
      return {"XorOp"};
    case Prim::kShl:
      return {"ShlOp"};
    case Prim::kShr:
      return {"ShrOp"};
    case Prim::kEq:
      return {"EqOp"};
    case Prim::kNe:
      return {"NeOp"};
    case Prim::kLt:
      return {"LtOp"};
    case Prim::kLe:
      return {"LeOp"};
    case Prim::kGt:
      return {"LtOp", true};
    case Prim::kGe:
      return {"LeOp", true};
    case Prim::kNot:
      return {"NotOp"};
    case Prim::kNeg:
      return {"NegOp"};
    case Prim::kAbs:
      return {"AbsOp"};
    case Prim::kSign:
      return {"SignOp"};
    case Prim::kSqrt:
      return {"SqrtOp"};
    case Prim::kRsqrt:
      return {"RsqrtOp"};
    case Prim::kRecip:
      return {"ReciprocalOp"};
    case Prim::kExp:
      return {"ExpOp"};
    case Prim::kExpm1:
      return {"Expm1Op"};
    case Prim::kLog:
      return {"LogOp"};
    case Prim::kLog1p:
      return {"Log1pOp"};
    case Prim::kLog2:
      return {"Log2Op"};
    case Prim::kLog10:
      return {"Log10Op"};
    case Prim::kSin:
      return {"SinOp"};
    case Prim::kCos:
      return {"CosOp"};
    case Prim::kTan:
      return {"TanOp"};
    case Prim::kTanh:
      return {"TanhOp"};
    case Prim::kErf:
      return {"ErfOp"};
    case Prim::kAsin:
      return {"AsinOp"};
    case Prim::kAcos:
      return {"AcosOp"};
    case Prim::kSinh:
      return {"SinhOp"};
    case Prim::kCosh:
      return {"CoshOp"};
    case Prim::kAsinh:
      return {"AsinhOp"};
    case Prim::kAcosh:
      return {"AcoshOp"};
    case Prim::kAtanh:
      return {"AtanhOp"};
    case Prim::kFloor:
      return {"FloorOp"};
    case Prim::kCeil:
      return {"CeilOp"};
    case Prim::kRound:
      return {"RoundOp"};
    case Prim::kTrunc:
      return {"TruncOp"};
    case Prim::kIsNan:
      return {"IsNanOp"};
    case Prim::kIsInf:
      return {"IsInfOp"};
    case Prim::kIn:
    case Prim::kAttr:
    case Prim::kConst:
    case Prim::kSelect:
    case Prim::kCast:
      return {};
  }
  return {};
}

// Whether the function is written for whole vectors of a float type only.
bool TakesWholeVectors(Prim prim) {
  static constexpr Prim kAnyWidth[] = {Prim::kAdd, Prim::kSub,  Prim::kMul,   Prim::kDiv,
                                       Prim::kMin, Prim::kMax,  Prim::kEq,    Prim::kNe,
                                       Prim::kLt,  Prim::kLe,   Prim::kGt,    Prim::kGe,
                                       Prim::kNeg, Prim::kSign, Prim::kRecip, Prim::kIsNan};
  return std::ranges::find(kAnyWidth, prim) == std::end(kAnyWidth);
}

// Whether signed integers may leave their range.
bool Wraps(Prim prim) {
  return prim == Prim::kAdd || prim == Prim::kSub || prim == Prim::kMul || prim == Prim::kShl ||
         prim == Prim::kNeg;
}

// Writes a program's loop. An extreme of values and of what all elements share, a constant, an
// argument or an input that is found to be repeated, takes one instruction where that is neither
// NaN nor zero: then there are two loops, of which the one is for calls in which all of these are
// such.
class Writer {
 public:
  Writer(const ScalarProgram& program, int index)
      : program_(program), index_(index), held_(HowHeld(program)) {}

  std::string Write() {
    const std::vector<Instruction>& all = program_.instructions();
    int64_t widest = 1;
    for (const DType type : program_.inputs())
      widest = std::max(widest, DTypeBytes(type));  // also of those that nothing uses
    for (size_t i = 0; i < all.size(); ++i) {
      if (held_[i].used) NoteBound(all[i]);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (!held_[i].used) continue;
      Emit(static_cast<int>(i));
      widest = std::max(widest, DTypeBytes(held_[i].as));
    }
    for (size_t i = program_.outputs().size(); i-- > 0;) Output(static_cast<int>(i));
    if (widened_) widest = std::max<int64_t>(widest, 4);
    std::string bounds;
    for (const auto& [value, test] : bounds_) bounds += (bounds.empty() ? "" : " && ") + test;
    return fmt::format(
        "struct P{0} {{\n"
        "  static constexpr int kInputs = {1}, kOutputs = {2}, kLanes = kVectorBytes / {3};\n"
        "  static constexpr uint8_t kTypes[] = {{{4}}};\n"
        "  template <bool kOrdered>\n"
        "  static uint32_t LoopOf(const fused::Rows& rows, const int64_t* step, int64_t vectors) "
        "{{\n"
        "    uint32_t flags = 0;\n"
        "    const bool stream = rows.stream, far = rows.far;\n{5}"
        "    for (int64_t i = 0; i < vectors; ++i) {{\n{6}    }}\n"
        "    return flags;\n"
        "  }}\n"
        "  static uint32_t Loop(const fused::Rows& rows, const int64_t* step, int64_t vectors) {{\n"
        "{7}    return LoopOf<false>(rows, step, vectors);\n"
        "  }}\n"
        "}};\n",
        index_, program_.inputs().size(), program_.outputs().size(), widest, TypeList(), before_,
        body_,
        bounds.empty()
            ? ""
            : fmt::format("    if ({}) return LoopOf<true>(rows, step, vectors);\n", bounds));
  }

 private:
  std::string TypeList() const {
    std::string list;
    for (const DType type : program_.inputs()) list += fmt::format("{}, ", static_cast<int>(type));
    for (size_t i = 0; i < program_.outputs().size(); ++i)
      list += fmt::format("{}, ", static_cast<int>(program_.OutputType(static_cast<int>(i))));
    return list;
  }

  const Instruction& At(int value) const { return program_.instructions()[value]; }
  static std::string Name(int value) { return fmt::format("v{}", value); }
  void Line(int value, const std::string& expression) {
    body_ += fmt::format("      const auto v{} = {};\n", value, expression);
  }
  void LineBefore(int value, const std::string& expression) {
    before_ += fmt::format("    const auto v{} = {};\n", value, expression);
  }

  void Emit(int at) {
    const Instruction& one = At(at);
    const bool mask = one.type == DType::kBool;
    const std::string_view element = ElementName(ComputeType(one.type));
    switch (one.prim) {
      case Prim::kIn: {
        before_ += fmt::format(
            "    const char* p{0} = rows.in[{1}];\n    const int64_t s{0} = step[{1}];\n", at,
            one.index);
        body_ += fmt::format("      if (far) AskAhead(p{0} + i * s{0});\n", at);
        if (mask) return Line(at, fmt::format("GetMask<kLanes>(p{0} + i * s{0})", at));
        const std::string_view held = ElementName(one.type);
        if (!bounds_.contains(at))
          return Line(at, fmt::format("Get<{0}, kLanes>(p{1} + i * s{1})", held, at));
        before_ += fmt::format("    const auto u{0} = Get<{1}, kLanes>(p{0});\n", at, held);
        return Line(at,
                    fmt::format("kOrdered ? u{1} : Get<{0}, kLanes>(p{1} + i * s{1})", held, at));
      }
      case Prim::kConst:
        return LineBefore(
            at, mask ? fmt::format("Constant<int8_t, kLanes>(0x{:x}u)", one.bits != 0 ? 0xff : 0)
                     : fmt::format("Constant<{}, kLanes>(0x{:x}u)", element, one.bits));
      case Prim::kAttr:
        return LineBefore(
            at, mask ? fmt::format("MaskArgument<kLanes>(rows.arguments[{}])", one.index)
                     : fmt::format("Argument<{}, kLanes>(rows.arguments[{}])", element, one.index));
      case Prim::kSelect:
        return Line(at, Select(at));
      case Prim::kCast:
        return Line(at, Cast(one));
      default:
        return Line(at,
                    mask && At(one.operands[0]).type == DType::kBool ? OfMasks(one) : Apply(one));
    }
  }

  // The value in its computing type.
  std::string Computed(int value) {
    const DType type = held_[value].as;
    if (type == ComputeType(type)) return Name(value);
    widened_ = true;
    return fmt::format("Widen<{}>({})", Tag(type), Name(value));
  }
  static std::string_view Tag(DType type) {
    return type == DType::kF16      ? "Half"
           : type == DType::kBF16   ? "BFloat16"
           : type == DType::kF8E4M3 ? "E4M3"
                                    : "E5M2";
  }
  std::string Canonical(int value) const {
    return held_[value].exact ? Name(value) : fmt::format("Canonical({})", Name(value));
  }

  // Whether it is what relu's row spells out: 0 where x <= 0, else x.
  bool IsRelu(const Instruction& one) const {
    const Instruction &test = At(one.operands[0]), &zero = At(one.operands[1]);
    const int x = one.operands[2];
    return kFloats.Has(one.type) && one.type == ComputeType(one.type) &&
           zero.prim == Prim::kConst && zero.bits == 0 && test.prim == Prim::kLe &&
           test.operands[0] == x && At(test.operands[1]).prim == Prim::kConst &&
           At(test.operands[1]).bits == 0;
  }

  std::string Select(int at) {
    const Instruction& one = At(at);
    if (IsRelu(one)) return fmt::format("ReluOp::Apply({})", Name(one.operands[2]));
    const bool moves = held_[at].as == one.type;
    const auto arm = [&](int i) {
      return moves ? Name(one.operands[i]) : Computed(one.operands[i]);
    };
    return fmt::format("{}({}, {}, {})", one.type == DType::kBool ? "ChooseMask" : "Choose",
                       Name(one.operands[0]), arm(1), arm(2));
  }

  std::string Cast(const Instruction& one) {
    const int from = one.operands[0];
    if (held_[from].as == one.type && !one.saturate) return Canonical(from);
    const bool mask = At(from).type == DType::kBool;
    std::string value =
        held_[from].as == ComputeType(held_[from].as) ? Canonical(from) : Computed(from);
    const DType to = ComputeType(one.type);
    if (to != one.type)
      return Narrow(
          one.type, one.saturate,
          mask ? fmt::format("Ones<float>({})", value) : fmt::format("ToNarrow({})", value));
    if (to == DType::kBool) return fmt::format("{} != 0", value);
    return mask ? fmt::format("Ones<{}>({})", ElementName(to), value)
                : fmt::format("CastTo<{}>({})", ElementName(to), value);
  }

  std::string Narrow(DType type, bool saturate, const std::string& value) {
    widened_ = true;
    if (DTypeBytes(type) == 2) return fmt::format("Narrow<{}>({})", Tag(type), value);
    return fmt::format("NarrowEighth<{}, {}>({})",
                       type == DType::kF8E4M3 ? "3, 7, 0x7f" : "2, 15, 0x7c", saturate, value);
  }

  // An operand of an extreme that all elements share, or may.
  struct Bound {
    int operand = -1;    // none
    bool known = false;  // without a look at the call
  };
  Bound BoundOf(const Instruction& one) const {
    if ((one.prim != Prim::kMin && one.prim != Prim::kMax) || !kFloats.Has(ComputeType(one.type)))
      return {};
    for (const Prim prim : {Prim::kConst, Prim::kAttr, Prim::kIn}) {
      for (const int operand : {1, 0}) {
        const Instruction& of = At(one.operands[operand]);
        if (of.prim != prim) continue;
        if (prim != Prim::kConst) return {operand};
        const double number = of.type == DType::kF64
                                  ? std::bit_cast<double>(of.bits)
                                  : std::bit_cast<float>(static_cast<uint32_t>(of.bits));
        if (number == number && number != 0) return {operand, true};
      }
    }
    return {};
  }
  // How the call tells whether it is one.
  void NoteBound(const Instruction& one) {
    const Bound bound = BoundOf(one);
    if (bound.operand < 0 || bound.known) return;
    const int value = one.operands[bound.operand];
    const Instruction& of = At(value);
    if (of.prim == Prim::kIn) {
      const std::string first =
          fmt::format("Get<{}, kLanes>(rows.in[{}])", ElementName(of.type), of.index);
      bounds_[value] = fmt::format("step[{}] == 0 && IsBound({})", of.index,
                                   of.type == ComputeType(of.type)
                                       ? first
                                       : fmt::format("Widen<{}>({})", Tag(of.type), first));
    } else {
      bounds_[value] = fmt::format("IsBound(Argument<{}, kLanes>(rows.arguments[{}]))",
                                   ElementName(ComputeType(of.type)), of.index);
    }
  }

  // A bool of bools.
  std::string OfMasks(const Instruction& one) const {
    const std::string a = Name(one.operands[0]), b = Name(one.operands[1]);
    const Function f = FunctionOf(one.prim);
    if (one.prim == Prim::kNot) return fmt::format("~{}", a);
    if (!IsTest(one.prim)) return fmt::format("OfMasks<{}>({}, {})", f.name, a, b);
    return fmt::format("{}::Apply(Ones<uint8_t>({}), Ones<uint8_t>({}))", f.name, f.swapped ? b : a,
                       f.swapped ? a : b);
  }

  std::string Apply(const Instruction& one) {
    const DType compute = ComputeType(At(one.operands[0]).type);
    const bool floats = kFloats.Has(compute);
    const Function f = FunctionOf(one.prim);
    std::string a = Computed(one.operands[0]);
    const std::string call =
        floats && TakesWholeVectors(one.prim)     ? fmt::format("Whole<{}>", f.name)
        : kSigned.Has(compute) && Wraps(one.prim) ? fmt::format("Wrapping<{}>", f.name)
                                                  : fmt::format("{}::Apply", f.name);
    if (InfoOf(one.prim).arity == 1) return fmt::format("{}({})", call, a);
    std::string b = Computed(one.operands[1]);
    if (const Bound bound = BoundOf(one); bound.operand >= 0) {
      return fmt::format("Bounded<{}, {}>({}, {})", f.name, bound.known ? "true" : "kOrdered",
                         bound.operand == 0 ? b : a, bound.operand == 0 ? a : b);
    }
    if (!floats && one.prim == Prim::kDiv)
      return fmt::format("Each<DivideOp<false>>({}, {}, &flags)", a, b);
    if (!floats && one.prim == Prim::kRem)
      return fmt::format("Each<DivideOp<true>>({}, {}, &flags)", a, b);
    if (!floats && one.prim == Prim::kPow)
      return fmt::format("Each<IntegerPowOp>({}, {}, &flags)", a, b);
    if (f.swapped) std::swap(a, b);
    return fmt::format("{}({}, {})", call, a, b);
  }

  void Output(int i) {
    const int value = program_.outputs()[i];
    const DType type = program_.OutputType(i);
    std::string v = Canonical(value);
    if (type == DType::kBool)
      v = fmt::format("Ones<uint8_t>({})", v);
    else if (held_[value].as != type)
      v = Narrow(type, false, v);
    before_ += fmt::format("    char* const q{0} = rows.out[{0}];\n", i);
    body_ +=
        fmt::format("      Put(q{0} + i * {1} * kLanes, {2}, stream);\n", i, DTypeBytes(type), v);
  }

  const ScalarProgram& program_;
  const int index_;
  const std::vector<Held> held_;
  std::map<int, std::string> bounds_;  // by value: whether it is one in a call
  std::string before_, body_;          // the loop
  bool widened_ = false;               // f32 is computed beside what values are held as
};

// The embedded headers one after the other, each without its includes of the others.
std::string MakePrelude() {
  std::string text = "#define OPWIRE_ISA unit\n#include <opwire/abi.h>\n";
  for (const EmbeddedFile& file : FusedHeaders()) {
    for (size_t at = 0; at < file.text.size();) {
      const size_t end = std::min(file.text.find('\n', at), file.text.size() - 1) + 1;
      const std::string_view line = file.text.substr(at, end - at);
      if (!line.starts_with("#include \"")) text += line;
      at = end;
    }
  }
  return text;
}

}  // namespace

std::string ProgramSource(const ScalarProgram& program, int index) {
  return Writer(program, index).Write();
}

std::string HostSource(std::span<const ScalarProgram* const> programs) {
  static const std::string prelude = MakePrelude();
  std::string text = prelude + "\nnamespace opwire::ops::unit {\nnamespace {\n\n";
  for (size_t i = 0; i < programs.size(); ++i)
    text += ProgramSource(*programs[i], static_cast<int>(i)) + "\n";
  text += "}  // namespace\n}  // namespace opwire::ops::unit\n\n";
  for (size_t i = 0; i < programs.size(); ++i) {
    text += fmt::format(
        "extern \"C\" __attribute__((visibility(\"default\"))) const opw_kernel {} = "
        "opwire::ops::unit::KernelOf<opwire::ops::unit::P{}>();\n",
        jit::KernelSymbol(static_cast<int>(i)), i);
  }
  return text;
}

}  // namespace opwire::fused
