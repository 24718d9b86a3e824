// Writes the phases as functions, and the kernel that calls them.
#include "kernels/fused/gpu_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/fused/gpu_body.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::fused {
namespace {

using gpu::CodeName;

// A kernel's text, from the outside in. Names by tensor: p its address, r where its row begins, a
// elements that were read, b what is stored, o one of the row, c one for all; w values of the row,
// k kept elements and f those for reductions only, s what a thread reduces.
class RowWriter {
 public:
  RowWriter(const GpuRows& rows, const GpuRowForm& form, int launch)
      : rows_(rows), form_(form), phases_(rows.PhasesOf(form)), launch_(launch) {
    for (size_t i = 0; i < phases_.programs.size(); ++i)
      parts_.push_back(
          {phases_.narrow[i], std::vector<bool>(phases_.programs[i].outputs().size())});
    for (const RowPhases::Step& step : phases_.steps) {
      for (size_t o = 0; o < step.phase.out.size(); ++o)
        parts_[static_cast<size_t>(step.phase.program)].passed[o] =
            step.phase.out[o].kind != RowSlot::kTensor;
    }
    for (size_t i = 0; i < phases_.programs.size(); ++i)
      bodies_.emplace_back(phases_.programs[i], &parts_[i]);
    for (size_t t = 0; t < rows_.operands(); ++t) {
      const auto readers = std::ranges::count_if(
          phases_.steps, [&](const RowPhases::Step& s) { return GpuRows::Reads(s, t); });
      held_.push_back(!form_.streamed && readers > 1 && OfElements(t));
    }
    raises_ = std::ranges::any_of(phases_.programs, Raises);
  }

  std::string Write() const {
    std::string functions, steps, before, begins, values;
    for (size_t i = 0; i < bodies_.size(); ++i)
      functions += fmt::format("OPW_DEVICE void Phase{}({}) {{\n{}}}\n", i, bodies_[i].Parameters(),
                               bodies_[i].Statements());
    for (size_t t = 0; t < rows_.tensors(); ++t) {
      const std::string_view type = CodeName(rows_.TypeOf(t));
      const bool input = t < rows_.operands();
      before += fmt::format("  {0}{1}* const p{2} = static_cast<{0}{1}*>(p.data[{2}]);\n",
                            input ? "const " : "", type, t);
      if (form_.access[t] == RowAccess::kConstant)
        before += fmt::format("  const {} c{} = *p{};\n", type, t, t);
      else
        begins += fmt::format("    {0}{1}* const r{2} = p{2} + at[{2}];\n", input ? "const " : "",
                              type, t);
    }
    // Values of the row are read before anything is stored, and elements that are held as soon as
    // that.
    for (size_t t = 0; t < rows_.operands(); ++t) {
      if (form_.access[t] == RowAccess::kOfRow)
        begins += fmt::format("    const {} o{} = *r{};\n", CodeName(rows_.TypeOf(t)), t, t);
    }
    values += LoadHeld();
    for (size_t v = 0; v < phases_.values.size(); ++v)
      values += fmt::format("    {} w{};\n", CodeName(phases_.values[v]), v);
    for (size_t k = 0; k < phases_.kept.size(); ++k) {
      if (!phases_.kept[k].to_reduce_only)
        values += fmt::format("    {} k{}[kSteps][kItems];\n", CodeName(phases_.kept[k].type), k);
    }
    int phase = 0;
    for (const RowPhases::Step& step : phases_.steps) {
      if (form_.cut && phase > launch_) break;
      if (step.phase.of_row)
        steps += OfRow(step);
      else
        steps += form_.cut && phase++ < launch_ ? Join(step) : Elements(step);
    }
    const bool last = !form_.cut || launch_ + 1 == rows_.Launches(form_),
               of_rows = form_.cut && launch_ == rows_.ElementPhases(form_);
    const std::string_view unit =
        !form_.cut || of_rows
            ? ""
            : "    const i64 row = unit / p.parts, begin = unit % p.parts * p.part_length, n = "
              "begin + p.part_length < p.length ? begin + p.part_length : p.length;\n";
    return fmt::format(
        "namespace opw::OPW_KERNEL {{\n"
        "constexpr int kTensors = {tensors}, kLanes = {lanes}, kItems = {items}, kSteps = {steps}, "
        "kBatch = {batch}, kStride = {stride};\n"
        "struct Params {{\n"
        "  void* data[kTensors{partials}];\n"
        "  Reporter reporter;\n"
        "  i64 rows, length, {parts}along[kTensors];\n"
        "  u64 arguments[{arguments}];\n"
        "  Axes<kTensors, {rank}> axes;\n"
        "}};\n"
        "{functions}"
        "}}\n"
        "extern \"C\" __global__ void __launch_bounds__({threads}, {resident}) "
        "OPW_KERNEL(OPW_PARAM opw::OPW_KERNEL::Params p) {{\n"
        "  using namespace opw;\n"
        "  using namespace opw::OPW_KERNEL;\n"
        "  AwaitPrevious();\n"
        "{before}"
        "{flags}"
        "  const {number} {n}rank = GroupRank<kLanes>() * kItems;\n"
        "  ForRows<kLanes>(p.rows{units}, [&](i64 {of}, bool there) {{\n"
        "{unit}"
        "    i64 at[kTensors];\n"
        "    OffsetsAt<{wide}>(p.axes, row, at);\n"
        "{begins}{values}{body}"
        "{raise}"
        "  }});\n"
        "{report}"
        "}}\n",
        fmt::arg("tensors", rows_.tensors()), fmt::arg("lanes", form_.lanes),
        fmt::arg("items", form_.items), fmt::arg("steps", form_.steps),
        fmt::arg("batch", form_.batch),
        fmt::arg("stride", (form_.lanes > 0 ? form_.lanes : form_.threads) * form_.items),
        fmt::arg("arguments", std::max(1, rows_.program().scalar().arguments())),
        fmt::arg("rank", form_.rank), fmt::arg("functions", functions),
        fmt::arg("threads", form_.threads), fmt::arg("resident", form_.resident),
        fmt::arg("before", before), fmt::arg("flags", raises_ ? "  u32 raised = 0;\n" : ""),
        fmt::arg("number", form_.streamed ? "i64" : "int"),
        fmt::arg("n", form_.cut        ? ""
                      : form_.streamed ? "n = p.length, "
                                       : "n = static_cast<int>(p.length), "),
        fmt::arg("partials", form_.cut ? " + 1" : ""),
        fmt::arg("parts", form_.cut ? "parts, part_length, " : ""),
        fmt::arg("units", unit.empty() ? "" : " * p.parts"),
        fmt::arg("of", unit.empty() ? "row" : "unit"), fmt::arg("unit", unit),
        fmt::arg("wide", form_.wide), fmt::arg("begins", begins),
        fmt::arg("values", (raises_ ? "    u32 flags = 0;\n" : "") + values),
        fmt::arg("body", steps + (last ? StoreOfRow() : "")),
        fmt::arg("raise", raises_ ? "    if (there) raised |= flags;\n" : ""),
        fmt::arg("report", raises_ ? "  Raise(p.reporter, raised);\n" : ""));
  }

 private:
  bool OfElements(size_t t) const {
    return form_.access[t] == RowAccess::kItems || form_.access[t] == RowAccess::kStrided;
  }
  bool IsResult(const RowSlot& slot) const {
    return slot.kind == RowSlot::kTensor && static_cast<size_t>(slot.index) >= rows_.operands();
  }

  // Reads of operands, by the names that `to` says.
  template <typename F>
  std::string Loads(std::string_view indent, const F& to) const {
    std::string out;
    for (size_t t = 0; t < rows_.operands(); ++t) {
      const std::string name = to(t);
      if (name.empty()) continue;
      out += form_.access[t] == RowAccess::kItems
                 ? fmt::format("{}{} = LoadItems<kItems>(r{} + e);\n", indent, name, t)
                 : fmt::format(
                       "{0}{1} = GatherItems<kItems>(r{2} + e * p.along[{2}], p.along[{2}]);\n",
                       indent, name, t);
    }
    return out;
  }
  std::string Array(std::string_view indent, size_t t, std::string_view count) const {
    return fmt::format("{}Wide<{}, kItems> a{}[{}];\n", indent, CodeName(rows_.TypeOf(t)), t,
                       count);
  }
  std::string LoadHeld() const {
    std::string arrays;
    for (size_t t = 0; t < rows_.operands(); ++t)
      arrays += held_[t] ? Array("    ", t, "kSteps") : "";
    if (arrays.empty()) return "";
    return arrays +
           "#pragma unroll\n"
           "    for (int s = 0; s < kSteps; ++s) {\n"
           "      const int e = rank + s * kStride;\n"
           "      if (e >= n) continue;\n" +
           Loads("      ",
                 [&](size_t t) { return held_[t] ? fmt::format("a{}[s]", t) : std::string(); }) +
           "    }\n";
  }

  // What is read of an operand, a kept value or one of the row; of elements, that of step s, which
  // is step b of its batch, item i.
  std::string Read(const RowSlot& slot) const {
    const auto at = static_cast<size_t>(slot.index);
    switch (slot.kind) {
      case RowSlot::kValue:
        return fmt::format("w{}", at);
      case RowSlot::kKept:
        return phases_.kept[at].to_reduce_only ? fmt::format("f{}", at)
                                               : fmt::format("k{}[s][i]", at);
      default:
        break;
    }
    if (OfElements(at)) return fmt::format("a{}[{}].Get(i)", at, held_[at] ? 's' : 'b');
    return fmt::format("{}{}", form_.access[at] == RowAccess::kConstant ? 'c' : 'o', at);
  }
  bool RoundsLate(const RowPhase& phase, size_t output) const {
    return bodies_[static_cast<size_t>(phase.program)].RoundsLate(output);
  }
  std::string Call(const RowPhase& phase) const {
    const auto program = static_cast<size_t>(phase.program);
    std::string out;
    const auto add = [&](const std::string& argument) {
      out += (out.empty() ? "" : ", ") + argument;
    };
    for (const RowSlot& slot : phase.in) add(Read(slot));
    for (size_t o = 0; o < phase.out.size(); ++o) {
      const RowSlot& slot = phase.out[o];
      if (!IsResult(slot))
        add(Read(slot));
      else
        add(fmt::format(fmt::runtime(phase.of_row           ? "b{}"
                                     : RoundsLate(phase, o) ? "b{}[i]"
                                                            : "b{}.v[i]"),
                        slot.index));
    }
    if (phases_.programs[program].arguments() > 0) add("p.arguments");
    if (Raises(phases_.programs[program])) add("flags");
    return fmt::format("Phase{}({});\n", program, out);
  }

  std::string OfRow(const RowPhases::Step& step) const {
    std::string results;
    for (size_t o = 0; o < step.phase.out.size(); ++o) {
      const RowSlot& slot = step.phase.out[o];
      if (IsResult(slot))
        results += fmt::format("    {} b{};\n",
                               RoundsLate(step.phase, o)
                                   ? "float"
                                   : CodeName(rows_.TypeOf(static_cast<size_t>(slot.index))),
                               slot.index);
    }
    return results + "    " + Call(step.phase);
  }
  // Results of the row, by one of its threads once all have read what may lie there.
  std::string StoreOfRow() const {
    std::string stores;
    for (const RowPhases::Step& step : phases_.steps) {
      if (!step.phase.of_row) continue;
      for (size_t o = 0; o < step.phase.out.size(); ++o) {
        const RowSlot& slot = step.phase.out[o];
        if (!IsResult(slot)) continue;
        const std::string_view type = CodeName(rows_.TypeOf(static_cast<size_t>(slot.index)));
        stores += RoundsLate(step.phase, o)
                      ? fmt::format("      *r{0} = Narrow<{1}>(b{0});\n", slot.index, type)
                      : fmt::format("      *r{0} = b{0};\n", slot.index);
      }
    }
    if (stores.empty()) return "";
    return "    GroupBarrier<kLanes>();\n    if (there && rank == 0) {\n" + stores + "    }\n";
  }

  // What the parts of an earlier launch's phase reduced.
  std::string Join(const RowPhases::Step& step) const {
    std::string out;
    for (const RowReduction& f : step.reductions) {
      out += fmt::format(
          "    w{0} = JoinPartials<{1}>(PartialsOf<{1}>(p.data[kTensors], p.rows * p.parts, {0}) + "
          "row * p.parts, static_cast<int>(p.parts), p.length);\n",
          f.value, ReduceName(f.kind, phases_.values[static_cast<size_t>(f.value)]));
    }
    return out;
  }

  std::string Elements(const RowPhases::Step& step) const {
    std::string states, items, results, stores, reduced;
    for (const RowReduction& f : step.reductions) {
      const std::string reduction =
          ReduceName(f.kind, phases_.values[static_cast<size_t>(f.value)]);
      states += fmt::format("      {0}::State s{1} = {0}::Identity();\n", reduction, f.value);
      items += fmt::format("            {}::Take(s{}, Load({}), 0);\n", reduction, f.value,
                           Read(f.from));
      if (form_.cut)
        reduced += fmt::format(
            "      PutPartial<{0}>(PartialsOf<{0}>(p.data[kTensors], p.rows * p.parts, {1}), unit, "
            "s{1});\n",
            reduction, f.value);
      else
        reduced += fmt::format("      w{0} = ReduceGroup<{1}, kLanes>(s{0}, p.length);\n", f.value,
                               reduction);
    }
    if (step.phase.program >= 0) {
      std::string for_reductions;
      for (size_t o = 0; o < step.phase.out.size(); ++o) {
        const RowSlot& slot = step.phase.out[o];
        if (slot.kind == RowSlot::kKept &&
            phases_.kept[static_cast<size_t>(slot.index)].to_reduce_only)
          for_reductions +=
              fmt::format("            {} f{};\n",
                          CodeName(phases_.kept[static_cast<size_t>(slot.index)].type), slot.index);
        if (!IsResult(slot)) continue;
        const auto t = static_cast<size_t>(slot.index);
        const std::string_view type = CodeName(rows_.TypeOf(t));
        const bool rounds = RoundsLate(step.phase, o);
        results += rounds ? fmt::format("          float b{}[kItems];\n", t)
                          : fmt::format("          Vector<{}, kItems> b{};\n", type, t);
        stores += form_.access[t] == RowAccess::kItems
                      ? fmt::format("            {0}<{1}, kItems>(r{2} + e, b{2});\n",
                                    rounds ? "StoreRounded" : "StoreVector", type, t)
                      : fmt::format(
                            "            ScatterItems<{0}, kItems>(r{1} + e * p.along[{1}], "
                            "p.along[{1}], b{1});\n",
                            type, t);
      }
      items = for_reductions + "            " + Call(step.phase) + items;
    }
    std::string arrays;
    const auto reads = [&](size_t t) {
      return !held_[t] && OfElements(t) && GpuRows::Reads(step, t);
    };
    for (size_t t = 0; t < rows_.operands(); ++t)
      arrays += reads(t) ? Array("        ", t, "kBatch") : "";
    const auto loop = [&](const std::string& body) {
      return fmt::format(
          "#pragma unroll\n        for (int b = 0; b < kBatch; ++b) {{\n{}          if (e >= n) "
          "continue;\n{}        }}\n",
          form_.streamed ? "          const i64 e = first + b * kStride;\n"
                         : "          const int s = first + b, e = rank + s * kStride;\n",
          body);
    };
    const std::string loads = arrays.empty() ? "" : loop(Loads("          ", [&](size_t t) {
      return reads(t) ? fmt::format("a{}[b]", t) : std::string();
    }));
    const std::string work =
        loop(results + "#pragma unroll\n          for (int i = 0; i < kItems; ++i) {\n" + items +
             "          }\n" +
             (stores.empty() ? "" : "          if (there) {\n" + stores + "          }\n"));
    return "    {\n" + states +
           (form_.streamed ? fmt::format("#pragma unroll 1\n      for (i64 first = {}rank; first < "
                                         "n; first += kBatch * kStride) {{\n",
                                         form_.cut ? "begin + " : "")
                           : "#pragma unroll\n      for (int first = 0; first < kSteps; first += "
                             "kBatch) {\n") +
           arrays + loads + work + "      }\n" + reduced + "    }\n";
  }

  const GpuRows& rows_;
  const GpuRowForm& form_;
  const RowPhases& phases_;
  const int launch_;
  std::vector<GpuPart> parts_;   // by program
  std::vector<GpuBody> bodies_;  // the same
  std::vector<bool> held_;  // by operand: its elements are held from the first phase to the last
  bool raises_ = false;
};

}  // namespace

std::string ReduceName(ReduceKind kind, DType type) {
  const std::string_view name = CodeName(type);
  switch (kind) {
    case ReduceKind::kSum:
      return fmt::format("reduce::SumOf<{}>", name);
    case ReduceKind::kMean:
      return fmt::format("reduce::MeanOf<{}>", name);
    case ReduceKind::kProd:
      return fmt::format("reduce::ProdOf<{}>", name);
    default:
      return fmt::format("reduce::ExtremeOf<{}, {}>", name,
                         kind == ReduceKind::kMax || kind == ReduceKind::kAny);
  }
}

GpuRows::GpuRows(const RowProgram& program, RowPhases keeping, RowPhases anew)
    : program_(program),
      keeping_(std::move(keeping)),
      anew_(std::move(anew)),
      types_(program.OperandTypes()),
      places_(program.operand_places()) {
  for (size_t o = 0; o < program.result_places().size(); ++o)
    types_.push_back(program.scalar().OutputType(static_cast<int>(o)));
  places_.insert(places_.end(), program.result_places().begin(), program.result_places().end());
}

StatusOr<GpuRows> GpuRows::Make(const RowProgram& program) {
  OPWIRE_ASSIGN_OR_RETURN(RowPhases anew, SplitRows(program, /*keeps=*/false));
  // What is kept is read by phases, which read only so much.
  const StatusOr<RowPhases> kept = SplitRows(program);
  RowPhases keeping = kept.ok() ? *kept : anew;
  return GpuRows(program, std::move(keeping), std::move(anew));
}

bool GpuRows::Reads(const RowPhases::Step& step, size_t tensor) {
  const auto is = [&](const RowSlot& s) {
    return s.kind == RowSlot::kTensor && s.index == static_cast<int32_t>(tensor);
  };
  return std::ranges::any_of(step.phase.in, is) ||
         std::ranges::any_of(step.reductions, [&](const RowReduction& f) { return is(f.from); });
}

int GpuRows::ElementPhases(const GpuRowForm& form) const {
  return static_cast<int>(std::ranges::count_if(
      PhasesOf(form).steps, [](const RowPhases::Step& s) { return !s.phase.of_row; }));
}
int GpuRows::Launches(const GpuRowForm& form) const {
  // What becomes of the last reductions, and is written, takes one more.
  const auto of_row = [](RowProgram::Place place) { return place != RowProgram::kElements; };
  return form.cut ? ElementPhases(form) + std::ranges::any_of(program_.result_places(), of_row) : 1;
}
int64_t GpuRows::Blocks(const GpuRowForm& form, int launch) const {
  return form.cut && launch < ElementPhases(form) ? form.rows * form.parts : form.blocks;
}
int64_t GpuRows::PartialBytes(const GpuRowForm& form) const {
  return form.cut ? static_cast<int64_t>(PhasesOf(form).values.size()) * form.rows * form.parts *
                        kPartialBytes
                  : 0;
}
std::string GpuRows::Source(const GpuRowForm& form, int launch) const {
  return RowWriter(*this, form, launch).Write();
}

std::vector<std::byte> GpuRows::Params(const GpuRowForm& form,
                                       std::span<const opw_attr> arguments) const {
  ParamBytes out(tensors() + form.cut);
  out.Put(form.rows);
  out.Put(form.length);
  if (form.cut) {
    out.Put(form.parts);
    out.Put(form.part_length);
  }
  for (const int64_t stride : form.along) out.Put(stride);
  for (const uint64_t bits : ArgumentBits(program_.scalar(), arguments)) out.Put(bits);
  out.PutAxes(form.rank, form.extents, form.strides);
  return out.Take();
}

}  // namespace opwire::fused
