// Cuts programs of rows at their reductions, from the last phase to the first: what a phase reads
// of earlier ones is what those must write.
#include "kernels/fused/row_phases.h"

#include <algorithm>
#include <map>

namespace opwire::fused {
namespace {

using Level = RowProgram::Level;

constexpr int kCheap = 4;       // what is computed again rather than kept
constexpr int kSaturated = 64;  // costs are not told apart beyond

class Splitter {
 public:
  Splitter(const RowProgram& program, bool keeps)
      : p_(program),
        keeps_(keeps),
        all_(program.scalar().instructions()),
        levels_(program.Levels()),
        cost_(all_.size()) {
    for (size_t i = 0; i < all_.size(); ++i) {
      cost_[i] = CostOf(all_[i].prim);
      for (int k = 0; k < InfoOf(all_[i].prim).arity; ++k) {
        const auto operand = static_cast<size_t>(all_[i].operands[k]);
        if (!levels_[operand].of_row) cost_[i] = std::min(kSaturated, cost_[i] + cost_[operand]);
      }
    }
  }

  StatusOr<RowPhases> Split() {
    // Tensors of elements are written by the last phase that reads one.
    int deepest = 0, last = 0;
    for (size_t o = 0; o < p_.result_places().size(); ++o) {
      const int depth = levels_[static_cast<size_t>(p_.scalar().outputs()[o])].depth;
      deepest = std::max(deepest, depth);
      if (p_.result_places()[o] == RowProgram::kElements) last = std::max(last, depth);
    }
    for (const RowProgram::Reduction& f : p_.reductions())
      last = std::max(last, levels_[static_cast<size_t>(f.value)].depth);
    OPWIRE_RETURN_IF_ERROR(AddPhase(OutputsOfRow(), deepest, true));
    for (int depth = last; depth >= 0; --depth) {
      OPWIRE_RETURN_IF_ERROR(AddPhase(Elements(depth, depth == last), depth, false));
      OPWIRE_RETURN_IF_ERROR(AddPhase(ValuesOfRow(depth), depth, true));
    }
    std::ranges::reverse(out_.steps);
    return std::move(out_);
  }

 private:
  // What a phase is asked to write: a value, as what, and where.
  struct Asked {
    int value;
    DType type;
    RowSlot slot;
  };

  DType Held(int value) const { return ComputeType(all_[static_cast<size_t>(value)].type); }
  RowSlot Result(size_t output) const {
    return {RowSlot::kTensor, static_cast<int32_t>(p_.operands().size() + output)};
  }

  std::vector<Asked> OutputsOfRow() const {
    std::vector<Asked> asked;
    for (size_t o = 0; o < p_.result_places().size(); ++o) {
      if (p_.result_places()[o] != RowProgram::kElements)
        asked.push_back(
            {p_.scalar().outputs()[o], p_.scalar().OutputType(static_cast<int>(o)), Result(o)});
    }
    return asked;
  }
  std::vector<Asked> Elements(int depth, bool last) {
    std::vector<Asked> asked;
    for (size_t o = 0; last && o < p_.result_places().size(); ++o) {
      if (p_.result_places()[o] == RowProgram::kElements)
        asked.push_back(
            {p_.scalar().outputs()[o], p_.scalar().OutputType(static_cast<int>(o)), Result(o)});
    }
    reductions_.clear();
    for (const RowProgram::Reduction& reduction : p_.reductions()) {
      const auto wanted = value_of_.find(reduction.result);
      if (levels_[static_cast<size_t>(reduction.value)].depth != depth || wanted == value_of_.end())
        continue;
      const Level& level = levels_[static_cast<size_t>(reduction.value)];
      if (level.operand >= 0 && !level.of_row &&
          Held(reduction.value) == all_[static_cast<size_t>(reduction.value)].type) {
        reductions_.push_back({reduction.kind, {RowSlot::kTensor, level.operand}, wanted->second});
        continue;
      }
      const bool is_new = !kept_of_.contains(reduction.value);
      const int32_t kept = Keep(reduction.value);
      if (is_new) out_.kept[static_cast<size_t>(kept)].to_reduce_only = true;
      reductions_.push_back({reduction.kind, {RowSlot::kKept, kept}, wanted->second});
    }
    for (const auto& [value, kept] : kept_of_) {
      if (levels_[static_cast<size_t>(value)].depth == depth)
        asked.push_back({value, Held(value), {RowSlot::kKept, kept}});
    }
    return asked;
  }
  std::vector<Asked> ValuesOfRow(int depth) const {
    std::vector<Asked> asked;
    for (const auto& [value, slot] : value_of_) {
      const Level& level = levels_[static_cast<size_t>(value)];
      if (level.depth == depth && level.reduction < 0)
        asked.push_back({value, Held(value), {RowSlot::kValue, slot}});
    }
    return asked;
  }

  int32_t Keep(int value) {
    const auto [it, is_new] = kept_of_.try_emplace(value, static_cast<int32_t>(out_.kept.size()));
    if (is_new) out_.kept.push_back({Held(value), false});
    return it->second;
  }
  int32_t ValueOf(int value) {
    const auto [it, is_new] =
        value_of_.try_emplace(value, static_cast<int32_t>(out_.values.size()));
    if (is_new) out_.values.push_back(Held(value));
    return it->second;
  }

  Status AddPhase(const std::vector<Asked>& asked, int depth, bool of_row) {
    RowPhases::Step step{{-1, of_row, {}, {}}, {}};
    if (!of_row) step.reductions = reductions_;
    if (asked.empty()) {
      if (!step.reductions.empty()) out_.steps.push_back(std::move(step));
      return absl::OkStatus();
    }
    step.phase.program = static_cast<int>(out_.programs.size());
    ScalarProgram program;
    Writer writer{*this, program, step.phase, depth, {}, {}};
    std::vector<int> arguments;
    for (const Instruction& one : all_) {
      if (one.prim == Prim::kAttr)
        arguments.resize(std::max(arguments.size(), static_cast<size_t>(one.index) + 1), -1);
    }
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].prim == Prim::kAttr)
        arguments[static_cast<size_t>(all_[i].index)] = static_cast<int>(i);
    }
    for (const int value : arguments) {
      const int made = program.AddArgument(value < 0 ? DType::kF32 : Held(value));
      if (value >= 0) writer.made[value] = made;
    }
    for (const Asked& a : asked) {
      const int value = writer.Emit(a.value);
      program.AddOutput(
          a.type == Held(a.value)
              ? value
              : program.Append({.prim = Prim::kCast, .type = a.type, .operands = {value, -1, -1}}));
      step.phase.out.push_back(a.slot);
    }
    OPWIRE_RETURN_IF_ERROR(program.Check());
    writer.narrow.resize(program.instructions().size());
    out_.narrow.push_back(std::move(writer.narrow));
    out_.programs.push_back(std::move(program));
    out_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  // Writes one phase's program. Narrow floats are f32 in it, but where they are read, cast to and
  // stored.
  struct Writer {
    Splitter& s;
    ScalarProgram& program;
    RowPhase& phase;
    const int depth;
    std::map<int, int> made;   // by value of the whole program
    std::vector<bool> narrow;  // RowPhases::narrow

    int Read(DType type, RowSlot slot) {
      phase.in.push_back(slot);
      return program.AddInput(type);
    }
    int Widened(int value, DType type) {
      return ComputeType(type) == type ? value
                                       : program.Append({.prim = Prim::kCast,
                                                         .type = ComputeType(type),
                                                         .operands = {value, -1, -1}});
    }
    int Emit(int value) {
      if (const auto known = made.find(value); known != made.end()) return known->second;
      const int out = Make(value);
      made[value] = out;
      return out;
    }
    int Make(int value) {
      const Instruction& one = s.all_[static_cast<size_t>(value)];
      const Level& level = s.levels_[static_cast<size_t>(value)];
      if (level.operand >= 0 && (!level.of_row || phase.of_row))
        return Widened(Read(one.type, {RowSlot::kTensor, level.operand}), one.type);
      const bool elsewhere =
          level.of_row && !level.constant && (!phase.of_row || level.depth < depth);
      if (level.reduction >= 0 || elsewhere)
        return Read(s.Held(value), {RowSlot::kValue, s.ValueOf(value)});
      if (s.keeps_ && !level.of_row && level.depth < depth &&
          s.cost_[static_cast<size_t>(value)] > kCheap)
        return Read(s.Held(value), {RowSlot::kKept, s.Keep(value)});
      Instruction next = one;
      for (int k = 0; k < InfoOf(one.prim).arity; ++k) next.operands[k] = Emit(one.operands[k]);
      if (one.prim != Prim::kCast) next.type = ComputeType(one.type);
      const int out = program.Append(next);
      narrow.resize(static_cast<size_t>(out) + 1);
      narrow.back() = ComputeType(one.type) != one.type;
      return one.prim == Prim::kCast ? Widened(out, one.type) : out;
    }
  };

  const RowProgram& p_;
  const bool keeps_;
  const std::vector<Instruction>& all_;
  const std::vector<Level> levels_;
  std::vector<int> cost_;                      // of computing a value again from what is read
  std::map<int, int32_t> kept_of_, value_of_;  // by value: its place in RowPhases
  std::vector<RowReduction> reductions_;       // of the phase that is being made
  RowPhases out_;
};

}  // namespace

int CostOf(Prim prim) {
  switch (prim) {
    case Prim::kIn:
    case Prim::kConst:
    case Prim::kAttr:
      return 0;
    case Prim::kAdd:
    case Prim::kSub:
    case Prim::kMul:
    case Prim::kMin:
    case Prim::kMax:
    case Prim::kAnd:
    case Prim::kOr:
    case Prim::kXor:
    case Prim::kEq:
    case Prim::kNe:
    case Prim::kLt:
    case Prim::kLe:
    case Prim::kGt:
    case Prim::kGe:
    case Prim::kSelect:
    case Prim::kNot:
    case Prim::kNeg:
    case Prim::kAbs:
    case Prim::kCast:
      return 1;
    case Prim::kDiv:
    case Prim::kSqrt:
    case Prim::kRecip:
      return 3;
    default:
      return 8;
  }
}

StatusOr<RowPhases> SplitRows(const RowProgram& program, bool keeps) {
  OPWIRE_RETURN_IF_ERROR(program.scalar().Check());
  return Splitter(program, keeps).Split();
}

}  // namespace opwire::fused
