// Creates programs.
#include "tests/fused/programs.h"

#include <fmt/format.h>

#include <algorithm>

namespace opwire::fused {

std::vector<DType> TypesIn(DTypeSet set) {
  std::vector<DType> out;
  for (int t = 1; t < kDTypeCount; ++t) {
    if (set.Has(static_cast<DType>(t))) out.push_back(static_cast<DType>(t));
  }
  return out;
}

std::vector<Case> PrimitivesOf(DType type) {
  std::vector<Case> out;
  for (int p = 0; p < kPrimCount; ++p) {
    const Prim prim = static_cast<Prim>(p);
    const int arity = InfoOf(prim).arity;
    if (arity == 0 || prim == Prim::kCast || !TypesOf(prim).Has(type)) continue;
    if (out.empty() || out.back().outputs.size() == kMaxOutputs) {
      out.emplace_back();
      out.back().program.AddInput(DType::kBool);
      for (int i = 0; i < 2; ++i) out.back().program.AddInput(type);
    }
    Instruction one{.prim = prim, .type = IsTest(prim) ? DType::kBool : type};
    for (int i = 0; i < arity; ++i) one.operands[i] = prim == Prim::kSelect ? i : i + 1;
    out.back().program.AddOutput(out.back().program.Append(one));
    out.back().outputs.push_back(fmt::format("{} of {}", InfoOf(prim).name, DTypeName(type)));
  }
  return out;
}

Case CastsOf(DType from) {
  Case c;
  c.program.AddInput(from);
  for (const DType to : TypesIn(kAll)) {
    c.program.AddOutput(c.program.Append({.prim = Prim::kCast,
                                          .type = to,
                                          .operands = {0, -1, -1},
                                          .saturate = to == DType::kF8E5M2}));
    c.outputs.push_back(fmt::format("cast of {} to {}", DTypeName(from), DTypeName(to)));
  }
  return c;
}

namespace {

// Appends one instruction on existing values, cast if their types differ.
int RandomInstruction(ScalarProgram& p, std::mt19937_64& random) {
  const auto any = [&] {  // mostly one of the latest, so that few values stay unused
    const size_t n = p.instructions().size(), back = random() % 4 == 0 ? n : std::min<size_t>(n, 6);
    return static_cast<int>(n - 1 - random() % back);
  };
  const auto typed = [&](int value, DType type) {
    return p.instructions()[value].type == type
               ? value
               : p.Append({.prim = Prim::kCast, .type = type, .operands = {value, -1, -1}});
  };
  for (;;) {
    const Prim prim = static_cast<Prim>(random() % kPrimCount);
    const int first = any();
    const DType type = p.instructions()[first].type;
    const int arity = InfoOf(prim).arity;
    if (prim == Prim::kConst && TypesOf(prim).Has(type)) {
      return p.Append({.prim = prim,
                       .type = type,
                       .bits = type == DType::kBool ? random() % 2 : random() >> random() % 64});
    }
    if (arity == 0 || !TypesOf(prim).Has(type)) continue;
    Instruction one{.prim = prim, .type = IsTest(prim) ? DType::kBool : type};
    if (prim == Prim::kCast) one.type = TypesIn(kAll)[random() % 15];
    for (int i = 0; i < arity; ++i) one.operands[i] = typed(i == 0 ? first : any(), type);
    if (prim == Prim::kSelect) one.operands[0] = typed(any(), DType::kBool);
    return p.Append(one);
  }
}

}  // namespace

Case RandomProgram(std::mt19937_64& random, int nodes) {
  Case c;
  const int inputs = 1 + static_cast<int>(random() % kMaxInputs);
  const std::vector<DType> types = TypesIn(
      random() % 2 == 0 ? kAll : DTypeSet{DType::kF32, DType::kF16, DType::kBF16, DType::kBool});
  for (int i = 0; i < inputs; ++i) c.program.AddInput(types[random() % types.size()]);
  c.program.AddArgument(DType::kF32);
  c.program.AddArgument(DType::kI32);
  c.program.AddArgument(DType::kBool);
  c.program.AddArgument(DType::kF16);
  for (int i = 0; i < nodes; ++i) RandomInstruction(c.program, random);
  const int outputs = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < outputs; ++i) {
    const int value = i == 0 ? static_cast<int>(c.program.instructions().size()) - 1
                             : static_cast<int>(random() % c.program.instructions().size());
    c.program.AddOutput(value);
    c.outputs.push_back(fmt::format("output {} of a random program", i));
  }
  return c;
}

}  // namespace opwire::fused
