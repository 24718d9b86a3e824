// Finds ranges of units that may move, and the units that join in each.
#include "executor/plan/horizontal.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "ir/program/joint_order.h"

namespace opwire::executor {
namespace {

class UnitJoiner {
 public:
  UnitJoiner(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser,
             Schedule& schedule)
      : w_(what),
        fusable_(fusable),
        fuser_(fuser),
        s_(schedule),
        producer_(what.values.size(), -1),
        reserved_(what.values.size()),
        leaves_(what.values.size()),
        replaced_at_(what.f.params.size(), -1) {
    for (uint32_t n = 0; n < w_.f.nodes.size(); ++n) {
      for (size_t r = 0; r < w_.f.nodes[n].results.size(); ++r)
        producer_[w_.values.first_result[n] + r] = static_cast<int32_t>(n);
    }
    for (size_t r = 0; r < w_.inout_of_result.size(); ++r) {
      if (w_.inout_of_result[r] >= 0)
        replaced_at_[static_cast<size_t>(w_.inout_of_result[r])] = producer_[static_cast<size_t>(
            w_.views.root[static_cast<size_t>(w_.f.results[r].value)])];
    }
    std::vector<int32_t> last_read(w_.f.params.size(), -1);  // of a parameter's old value
    for (uint32_t n = 0; n < w_.f.nodes.size(); ++n) {
      for (const ValueId v : w_.f.nodes[n].operands) {
        if (v == kAbsent) continue;
        const auto root = static_cast<size_t>(w_.views.root[static_cast<size_t>(v)]);
        if (root < last_read.size()) last_read[root] = static_cast<int32_t>(n);
        const int32_t p = producer_[static_cast<size_t>(v)];
        if (p >= 0 && s_.unit_of[static_cast<size_t>(p)] != s_.unit_of[n])
          leaves_[static_cast<size_t>(v)] = true;
      }
    }
    for (size_t r = 0; r < w_.f.results.size(); ++r) {
      const auto v = static_cast<size_t>(w_.f.results[r].value);
      const int32_t inout = w_.inout_of_result[r];
      const bool own = static_cast<size_t>(w_.views.root[v]) == v && producer_[v] >= 0;
      // The new value of a parameter that is read later is made elsewhere, and copied at the end.
      reserved_[v] = reserved_[v] ||
                     (own && (inout < 0 || last_read[static_cast<size_t>(inout)] <= producer_[v]));
    }
  }

  void Run() {
    const auto count = static_cast<uint32_t>(s_.units.size());
    std::vector<std::vector<uint32_t>> order;
    for (uint32_t begin = 0; begin < count;) {
      if (!Moves(begin)) {
        order.push_back({begin++});
        continue;
      }
      uint32_t end = begin + 1;
      while (end < count && Moves(end)) ++end;
      Arrange(begin, end, order);
      begin = end;
    }
    if (order.size() < count) Rebuild(order);
  }

 private:
  const OpDef& RowOf(uint32_t n) const { return *w_.typing.nodes[n].row; }
  std::span<const uint32_t> NodesOf(uint32_t u) const {
    const Unit& unit = s_.units[u];
    return unit.group >= 0
               ? std::span<const uint32_t>(s_.groups[static_cast<size_t>(unit.group)].nodes)
               : std::span(&unit.node, 1);
  }
  std::vector<ValueId> OutputsOf(uint32_t u) const {
    const Unit& unit = s_.units[u];
    if (unit.group >= 0) return s_.groups[static_cast<size_t>(unit.group)].outputs;
    std::vector<ValueId> out;
    for (size_t r = 0; r < w_.f.nodes[unit.node].results.size(); ++r)
      out.push_back(static_cast<ValueId>(w_.values.first_result[unit.node] + r));
    return out;
  }
  bool IsNumber(ValueId v) const { return w_.values.types[static_cast<size_t>(v)]->rank() == 0; }

  // Whether the unit takes no scratch memory, so that it can run earlier or later.
  bool Moves(uint32_t u) const {
    const Unit& unit = s_.units[u];
    const OpDef& row = RowOf(unit.node);
    if (unit.group >= 0) {
      if (!s_.groups[static_cast<size_t>(unit.group)].program) return false;
    } else {
      if (w_.views.kinds[unit.node] != ViewKind::kNone) return true;
      const bool needs_nothing =
          IsElementwise(row) || (w_.f.nodes[unit.node].operands.empty() &&
                                 row.effects == Effects::kPure && row.control == Control::kNone);
      if (!needs_nothing) return false;
    }
    return std::ranges::all_of(
        OutputsOf(u), [&](ValueId v) { return reserved_[static_cast<size_t>(v)] || IsNumber(v); });
  }

  // Whether it may be a member of a joint group.
  bool Joins(uint32_t u) const {
    const Unit& unit = s_.units[u];
    if (unit.group < 0) {
      const Node& node = w_.f.nodes[unit.node];
      const auto dense = [&](ValueId v) {
        return w_.values.types[static_cast<size_t>(v)]->encoding == Encoding::kDense;
      };
      if (!fusable_[unit.node] || !IsElementwise(RowOf(unit.node)) ||
          RowOf(unit.node).body.Empty() || w_.views.kinds[unit.node] != ViewKind::kNone)
        return false;
      if (!std::ranges::all_of(node.operands, dense) ||
          node.results[0].encoding != Encoding::kDense)
        return false;
    } else if (!s_.groups[static_cast<size_t>(unit.group)].program) {
      return false;
    }
    const std::vector<ValueId> outputs = OutputsOf(u);
    return std::ranges::all_of(outputs,
                               [&](ValueId v) {
                                 return reserved_[static_cast<size_t>(v)] &&
                                        !leaves_[static_cast<size_t>(v)];
                               }) &&
           !IsLarge(outputs[0]);
  }
  bool IsLarge(ValueId v) const {
    int64_t elements = 1;
    for (const Dim d : w_.values.types[static_cast<size_t>(v)]->shape) {
      if (!w_.dims.IsConstant(d)) return false;
      const int64_t extent = w_.dims.ConstantValue(d);
      if (extent > kMaxMemberElements) return true;
      elements *= extent;
      if (elements > kMaxMemberElements) return true;
    }
    return false;
  }

  // Appends the units from `begin` up to `end` to `order`, with those that join placed together.
  void Arrange(uint32_t begin, uint32_t end, std::vector<std::vector<uint32_t>>& order) {
    std::vector<std::string> keys(end - begin);
    for (uint32_t u = begin; u < end; ++u) {
      if (!Joins(u)) continue;
      if (s_.units[u].group < 0) {
        auto group = GroupOfOne(w_, s_.units[u].node);
        if (!group) continue;
        keys[u - begin] = group->program->Identity();
        alone_.emplace(u, *std::move(group));
      } else {
        keys[u - begin] = s_.groups[static_cast<size_t>(s_.units[u].group)].program->Identity();
      }
    }
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    const auto add_edge = [&](uint32_t from, uint32_t to) {
      if (from != to && from >= begin && from < end && to >= begin && to < end)
        edges.push_back({from - begin, to - begin});
    };
    for (uint32_t u = begin; u < end; ++u) {
      for (const uint32_t n : NodesOf(u)) {
        for (const ValueId v : w_.f.nodes[n].operands) {
          if (v == kAbsent) continue;
          if (const int32_t p = producer_[static_cast<size_t>(v)]; p >= 0)
            add_edge(s_.unit_of[static_cast<size_t>(p)], u);
          const auto root = static_cast<size_t>(w_.views.root[static_cast<size_t>(v)]);
          if (w_.views.kinds[n] == ViewKind::kOf || root >= replaced_at_.size() ||
              replaced_at_[root] <= static_cast<int32_t>(n))
            continue;
          add_edge(u, s_.unit_of[static_cast<size_t>(replaced_at_[root])]);
        }
      }
    }
    for (std::vector<uint32_t>& units : JointOrder(keys, std::move(edges), kMaxMembers)) {
      for (uint32_t& u : units) u += begin;
      order.push_back(std::move(units));
    }
  }

  FusedGroup Joint(const std::vector<uint32_t>& units) const {
    FusedGroup out;
    out.members = static_cast<uint32_t>(units.size());
    for (const uint32_t u : units) {
      const FusedGroup& member =
          s_.units[u].group >= 0 ? s_.groups[static_cast<size_t>(s_.units[u].group)] : alone_.at(u);
      if (!out.program) {
        out.program = member.program;
        out.first_nodes = static_cast<uint32_t>(member.nodes.size());
      }
      out.nodes.insert(out.nodes.end(), member.nodes.begin(), member.nodes.end());
      out.inputs.insert(out.inputs.end(), member.inputs.begin(), member.inputs.end());
      out.outputs.insert(out.outputs.end(), member.outputs.begin(), member.outputs.end());
      out.arguments.insert(out.arguments.end(), member.arguments.begin(), member.arguments.end());
    }
    out.kernel = fuser_.GetJoint(*out.program, static_cast<int>(units.size()));
    return out;
  }

  void Rebuild(const std::vector<std::vector<uint32_t>>& order) {
    ScheduleWriter out(s_);
    for (const std::vector<uint32_t>& units : order) {
      std::optional<FusedGroup> joint =
          units.size() > 1 ? std::optional(Joint(units)) : std::nullopt;
      if (joint && joint->kernel) {
        out.Add(*std::move(joint));
        continue;
      }
      for (const uint32_t u : units) out.Add(s_.units[u]);
    }
    s_ = out.Take();
  }

  const Scheduled& w_;
  const std::vector<bool>& fusable_;
  fused::Fuser& fuser_;
  Schedule& s_;
  std::vector<int32_t> producer_;  // by value: its node; -1 for parameters
  std::vector<bool> reserved_;     // by value: it is a result that has memory for the whole run
  std::vector<bool> leaves_;       // by value: another unit reads it
  std::vector<int32_t>
      replaced_at_;  // by parameter: the node whose result takes its place; -1: none
  absl::flat_hash_map<uint32_t, FusedGroup> alone_;  // by unit: a single node that may join
};

}  // namespace

std::optional<FusedGroup> GroupOfOne(const Scheduled& what, uint32_t n) {
  const Node& node = what.f.nodes[n];
  const OpDef& row = *what.typing.nodes[n].row;
  FusedGroup group;
  fused::ScalarProgram program;
  std::vector<int> operands;
  for (const ValueId v : node.operands) {
    const auto known = std::ranges::find(group.inputs, v);
    operands.push_back(known != group.inputs.end()
                           ? static_cast<int>(known - group.inputs.begin())
                           : program.AddInput(what.values.types[static_cast<size_t>(v)]->dtype));
    if (known == group.inputs.end()) group.inputs.push_back(v);
  }
  const int saturate = row.FindAttr("saturate");
  const std::vector<int> unread(row.attrs.size(), -1);
  const auto value = program.Append(
      row, operands, unread, node.results[0].dtype,
      saturate >= 0 && std::get<bool>(what.typing.nodes[n].attrs[static_cast<size_t>(saturate)]));
  if (!value.ok()) return std::nullopt;
  program.AddOutput(*value);
  if (!program.Check().ok()) return std::nullopt;
  group.nodes = {n};
  group.outputs = {static_cast<ValueId>(what.values.first_result[n])};
  group.program = std::make_shared<const fused::ScalarProgram>(std::move(program));
  return group;
}

void JoinEqualUnits(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser,
                    Schedule& schedule) {
  if (fuser.HasJoint() && schedule.units.size() >= 2)
    UnitJoiner(what, fusable, fuser, schedule).Run();
}

}  // namespace opwire::executor
