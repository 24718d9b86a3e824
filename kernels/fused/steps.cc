// Makes steps of instructions, and gives each result a block that is free.
#include "kernels/fused/steps.h"

#include <utility>

namespace opwire::fused {
namespace {

class Builder {
 public:
  Builder(const ScalarProgram& program, const Isa& isa)
      : program_(program), isa_(isa), held_(HowHeld(program)) {}

  Steps Make() {
    const std::vector<Instruction>& all = program_.instructions();
    values_.resize(all.size());
    computed_.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      if (held_[i].used) values_[i] = Emit(static_cast<int>(i));
    }
    // An output may share storage with an input, so all inputs are read before any is written.
    for (const int value : program_.outputs()) {
      if (program_.outputs().size() > 1 && values_[value].kind == Slot::kInput)
        values_[value] =
            Add(CastStep(held_[value].as, held_[value].as, false, isa_), {values_[value]});
    }
    for (size_t i = 0; i < program_.outputs().size(); ++i) Output(static_cast<int>(i));
    AssignBlocks();
    return std::move(made_);
  }

 private:
  Slot Add(Step step, const std::vector<Slot>& from, Slot to = {Slot::kBlock, -1}) {
    for (size_t i = 0; i < from.size(); ++i) step.from[i] = from[i];
    if (step.swap) std::swap(step.from[0], step.from[1]);
    step.to = to.index < 0 ? Slot{Slot::kBlock, blocks_++} : to;
    made_.steps.push_back(step);
    return step.to;
  }

  Slot Emit(int at) {
    const Instruction& one = program_.instructions()[at];
    switch (one.prim) {
      case Prim::kIn: {
        const Slot input{Slot::kInput, one.index};
        return one.type == DType::kBool ? Add(CastStep(one.type, one.type, false, isa_), {input})
                                        : input;
      }
      case Prim::kConst:
        made_.constants.push_back(one.bits);
        return {Slot::kConstant, static_cast<int32_t>(made_.constants.size()) - 1};
      case Prim::kAttr:
        made_.arguments.push_back({one.index, ComputeType(one.type)});
        return {Slot::kArgument, static_cast<int32_t>(made_.arguments.size()) - 1};
      case Prim::kSelect: {
        const bool moves = held_[at].as == one.type;
        const auto arm = [&](int i) {
          return moves ? values_[one.operands[i]] : Computed(one.operands[i]);
        };
        return Add(OpStep(one.prim, held_[at].as, isa_),
                   {values_[one.operands[0]], arm(1), arm(2)});
      }
      case Prim::kCast: {
        const DType from = held_[one.operands[0]].as;
        const bool between = ComputeType(from) != from && ComputeType(one.type) != one.type &&
                             (from != one.type || one.saturate);
        return between ? Add(CastStep(DType::kF32, one.type, one.saturate, isa_),
                             {Computed(one.operands[0])})
                       : Add(CastStep(from, one.type, one.saturate, isa_),
                             {Canonical(one.operands[0])});
      }
      default: {
        std::vector<Slot> from;
        for (int k = 0; k < InfoOf(one.prim).arity; ++k) from.push_back(Computed(one.operands[k]));
        return Add(
            OpStep(one.prim, ComputeType(program_.instructions()[one.operands[0]].type), isa_),
            from);
      }
    }
  }

  // The value in its computing type.
  Slot Computed(int value) {
    const DType type = held_[value].as, compute = ComputeType(type);
    if (type == compute) return values_[value];
    if (computed_[value].index < 0)
      computed_[value] = Add(CastStep(type, compute, false, isa_), {values_[value]});
    return computed_[value];
  }
  // The value as it is held, any NaN of arithmetic the canonical one.
  Slot Canonical(int value) {
    return held_[value].exact ? values_[value]
                              : Add(CanonicalStep(held_[value].as), {values_[value]});
  }
  void Output(int i) {
    const int value = program_.outputs()[i];
    const DType from = held_[value].as, to = program_.OutputType(i);
    const Slot place{Slot::kOutput, i};
    if (from == to && !held_[value].exact)
      Add(CanonicalStep(from), {values_[value]}, place);
    else
      Add(CastStep(from, to, false, isa_), {Canonical(value)}, place);
  }

  // So far every result has a block of its own.
  void AssignBlocks() {
    std::vector<size_t> last(blocks_);
    for (size_t s = 0; s < made_.steps.size(); ++s) {
      for (const Slot& from : made_.steps[s].from) {
        if (from.kind == Slot::kBlock && from.index >= 0) last[from.index] = s;
      }
    }
    constexpr size_t kFreed = ~size_t{0};
    std::vector<int32_t> place(blocks_), free;
    for (size_t s = 0; s < made_.steps.size(); ++s) {
      Step& step = made_.steps[s];
      if (step.to.kind == Slot::kBlock) {
        if (free.empty()) free.push_back(made_.blocks++);
        step.to.index = place[step.to.index] = free.back();
        free.pop_back();
      }
      for (int i = 0; i < step.operands; ++i) {
        Slot& from = step.from[i];
        if (from.kind != Slot::kBlock) continue;
        if (last[from.index] == s) {
          free.push_back(place[from.index]);
          last[from.index] = kFreed;
        }
        from.index = place[from.index];
      }
    }
  }

  const ScalarProgram& program_;
  const Isa& isa_;
  const std::vector<Held> held_;
  std::vector<Slot> values_;    // by instruction, as it is held
  std::vector<Slot> computed_;  // in its computing type, where that is another and was asked for
  int32_t blocks_ = 0;
  Steps made_;
};

}  // namespace

Steps MakeSteps(const ScalarProgram& program, const Isa& isa) {
  return Builder(program, isa).Make();
}

}  // namespace opwire::fused
