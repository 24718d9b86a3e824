// Finds matmuls of the same rows, or of many rows, and the nodes that form groups with them.
#include "executor/plan/products.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "executor/plan/horizontal.h"
#include "ir/ops/catalogue.h"

namespace opwire::executor {
namespace {

using fused::ProductProgram;
using fused::ScalarProgram;
constexpr DTypeSet kTypes{DType::kF32, DType::kF16, DType::kBF16};

class ProductJoiner {
 public:
  ProductJoiner(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser,
                Schedule& schedule)
      : w_(what),
        fusable_(fusable),
        fuser_(fuser),
        s_(schedule),
        producer_(what.values.size(), -1),
        readers_(what.values.size()),
        returned_(what.values.size()),
        replaces_(what.values.size()),
        replaced_(what.f.params.size()),
        taken_(schedule.units.size()),
        at_(schedule.units.size()) {
    std::iota(at_.begin(), at_.end(), 0u);
    for (uint32_t n = 0; n < w_.f.nodes.size(); ++n) {
      for (size_t r = 0; r < w_.f.nodes[n].results.size(); ++r)
        producer_[w_.values.first_result[n] + r] = static_cast<int32_t>(n);
      for (const ValueId v : w_.f.nodes[n].operands) {
        if (v != kAbsent) readers_[static_cast<size_t>(v)].push_back(n);
      }
    }
    for (size_t r = 0; r < w_.f.results.size(); ++r) {
      returned_[static_cast<size_t>(w_.f.results[r].value)] = true;
      if (w_.inout_of_result[r] < 0) continue;
      replaced_[static_cast<size_t>(w_.inout_of_result[r])] = true;
      replaces_[static_cast<size_t>(w_.views.root[static_cast<size_t>(w_.f.results[r].value)])] =
          true;
    }
  }

  void Run() {
    for (uint32_t u = 0; u < s_.units.size(); ++u) {
      if (taken_[u] || !IsProduct(u)) continue;
      const ValueId x = w_.f.nodes[s_.units[u].node].operands[0];
      std::vector<uint32_t> products = {u};
      if (IsOfMany(s_.units[u].node)) {
        Join(u, products);
        continue;
      }
      for (const uint32_t n : readers_[static_cast<size_t>(x)]) {
        const uint32_t other = s_.unit_of[n];
        if (other != Schedule::kNowhere && other > u &&
            std::ranges::find(products, other) == products.end() && IsProduct(other) &&
            products.size() < ProductProgram::kMaxSections)
          products.push_back(other);
      }
      Join(u, products);
    }
    if (!joined_.empty()) Rebuild();
  }

 private:
  const Node& NodeAt(uint32_t n) const { return w_.f.nodes[n]; }
  const OpDef& RowOf(uint32_t n) const { return *w_.typing.nodes[n].row; }
  const TensorType& TypeOf(ValueId v) const { return *w_.values.types[static_cast<size_t>(v)]; }
  ValueId ResultOf(uint32_t n, size_t r = 0) const {
    return static_cast<ValueId>(w_.values.first_result[n] + r);
  }
  const AttrValue& AttrOf(uint32_t n, std::string_view name) const {
    return w_.typing.nodes[n].attrs[static_cast<size_t>(RowOf(n).FindAttr(name))];
  }

  // The extents of a dense tensor, if all are known.
  std::optional<std::vector<int64_t>> ShapeOf(ValueId v) const {
    const TensorType& t = TypeOf(v);
    std::vector<int64_t> shape;
    for (const Dim d : t.shape) {
      if (!w_.dims.IsConstant(d)) return std::nullopt;
      shape.push_back(w_.dims.ConstantValue(d));
    }
    return t.encoding == Encoding::kDense ? std::optional(shape) : std::nullopt;
  }
  static int64_t Product(std::span<const int64_t> extents) {
    int64_t all = 1;
    for (const int64_t e : extents) all = std::min<int64_t>(all * e, int64_t{1} << 40);
    return all;
  }
  bool IsParameter(ValueId v) const { return producer_[static_cast<size_t>(v)] < 0; }
  // Whether v exists at unit `at`, which does not come after v's reader. A replacement of v comes
  // after the reader, and so after `at`.
  bool IsThere(ValueId v, uint32_t at) const {
    if (IsParameter(v)) return true;
    const uint32_t u = s_.unit_of[static_cast<size_t>(producer_[static_cast<size_t>(v)])];
    return u != Schedule::kNowhere && at_[u] < at;
  }
  // The same for a value whose reader comes before `at`: no node may replace it.
  bool IsStillThere(ValueId v, uint32_t at) const {
    const auto root = static_cast<size_t>(w_.views.root[static_cast<size_t>(v)]);
    return IsThere(v, at) && (root >= replaced_.size() || !replaced_[root]);
  }
  // Whether a node is a unit without others, and a kernel of a group may take its place.
  bool IsAlone(uint32_t n) const {
    const uint32_t u = s_.unit_of[n];
    return u != Schedule::kNowhere && s_.units[u].group < 0 && !taken_[u] && fusable_[n] &&
           w_.views.kinds[n] == ViewKind::kNone;
  }
  // The only reader of v; none if v is a result of the function.
  std::optional<uint32_t> OnlyReaderOf(ValueId v) const {
    const auto& readers = readers_[static_cast<size_t>(v)];
    return readers.size() == 1 && !returned_[static_cast<size_t>(v)] ? std::optional(readers[0])
                                                                     : std::nullopt;
  }
  // Whether its result is written in place of a parameter.
  bool Replaces(ValueId v) const { return replaces_[static_cast<size_t>(v)]; }

  bool IsProduct(uint32_t u) const {
    const Unit& unit = s_.units[u];
    const Node& node = NodeAt(unit.node);
    if (unit.group >= 0 || node.op != "linear" || !IsAlone(unit.node)) return false;
    const ValueId x = node.operands[0], weight = node.operands[1], bias = node.operands[2];
    const auto shape = ShapeOf(x), of_weight = ShapeOf(weight);
    if (!shape || !of_weight || !IsParameter(weight) ||
        (bias != kAbsent && (!IsParameter(bias) || !ShapeOf(bias))))
      return false;
    const int64_t terms = shape->back(), rows = Product(std::span(*shape).first(shape->size() - 1));
    if (terms == 0 || rows < 1 ||
        !(rows > ProductProgram::kMaxRows ? fuser_.HasEpilogues() : fuser_.HasProducts()) ||
        (*of_weight)[0] == 0 || (*of_weight)[0] >= INT32_MAX)
      return false;
    if (!kTypes.Has(TypeOf(x).dtype) || Replaces(ResultOf(unit.node))) return false;
    return TypeOf(x).dtype != DType::kF32 ||
           std::get<std::string>(AttrOf(unit.node, "precision")) == "ieee";
  }

  bool IsOfMany(uint32_t product) const { return Rows(product) > ProductProgram::kMaxRows; }

  // The parts of a group.
  struct Finish {
    std::vector<uint32_t> products;     // nodes
    std::vector<uint32_t> nodes;        // after them
    const FusedGroup* group = nullptr;  // the elementwise nodes
    std::optional<FusedGroup> own;      // the same of a single node
    std::optional<uint32_t> turn, append;
  };

  // Whether a node moves no data: a reshape, or a permutation that keeps the order of all axes of
  // more than one element.
  bool KeepsOrder(uint32_t n) const {
    const Node& node = NodeAt(n);
    if (s_.unit_of[n] == Schedule::kNowhere || taken_[s_.unit_of[n]]) return false;
    if (node.op == "reshape") return ShapeOf(ResultOf(n)).has_value();
    const auto from = node.op == "permute" ? ShapeOf(node.operands[0]) : std::nullopt;
    if (!from || s_.units[s_.unit_of[n]].group >= 0) return false;
    int64_t last = -1;
    for (int64_t d : std::get<Ints>(AttrOf(n, "dims"))) {
      if (d < 0) d += static_cast<int64_t>(from->size());
      if ((*from)[static_cast<size_t>(d)] == 1) continue;
      if (d < last) return false;
      last = d;
    }
    return true;
  }
  // Returns the value that v is after changes of its shape, if these are its only readers. Adds the
  // nodes on the way.
  ValueId Follow(ValueId v, std::vector<uint32_t>& nodes) const {
    for (auto n = OnlyReaderOf(v); n && KeepsOrder(*n); n = OnlyReaderOf(v)) {
      nodes.push_back(*n);
      v = ResultOf(*n);
    }
    return v;
  }

  // Finds a rotation of heads of one row, and an append of that row to a cache.
  void FindHeads(uint32_t product, uint32_t at, Finish& f) const {
    std::vector<uint32_t> nodes;
    ValueId v = Follow(ResultOf(product), nodes);
    auto n = OnlyReaderOf(v);
    if (n && NodeAt(*n).op == "rotary_embedding" && NodeAt(*n).operands[0] == v && IsAlone(*n)) {
      const auto shape = ShapeOf(v);
      const ValueId positions = NodeAt(*n).operands[1];
      const auto of_positions = positions == kAbsent ? std::nullopt : ShapeOf(positions);
      const int64_t dim = std::get<int64_t>(AttrOf(*n, "dim"));
      const bool integer = of_positions && (TypeOf(positions).dtype == DType::kI64 ||
                                            TypeOf(positions).dtype == DType::kI32);
      if (shape && integer && Product(*of_positions) == 1 && IsThere(positions, at) &&
          (dim == 0 || dim == shape->back()) && shape->back() % 2 == 0 && !Replaces(ResultOf(*n))) {
        nodes.push_back(*n);
        f.turn = *n;
        f.nodes = nodes;
        v = Follow(ResultOf(*n), nodes);
        n = OnlyReaderOf(v);
      }
    }
    if (!n || NodeAt(*n).op != "kv_append" || NodeAt(*n).operands[1] != v || !IsAlone(*n)) return;
    const Node& append = NodeAt(*n);
    const ValueId cache = append.operands[0], position = append.operands[2];
    const auto of_cache = ShapeOf(cache), of_new = ShapeOf(v), of_position = ShapeOf(position);
    if (append.operands[3] != kAbsent || !of_cache || !of_new || !of_position ||
        Product(*of_position) != 1 || !IsThere(position, at))
      return;
    const size_t rank = of_cache->size();
    if ((*of_new)[rank - 2] != 1 || of_cache->back() % 2 != 0 ||
        of_cache->back() != of_new->back() ||
        Product(std::span(*of_cache).first(rank - 2)) * of_cache->back() != Product(*of_new))
      return;
    // No other node reads the old cache, so that it exists, though it is replaced.
    if (OnlyReaderOf(cache) != n || w_.views.root[static_cast<size_t>(cache)] != cache ||
        !IsThere(cache, at))
      return;
    if (Product(*of_cache) >= (int64_t{1} << 40) ||
        (f.turn && ShapeOf(NodeAt(*f.turn).operands[0])->back() != of_cache->back()))
      return;
    nodes.push_back(*n);
    f.append = *n;
    f.nodes = nodes;
  }

  // Finds an elementwise unit that contains all readers of the matmul. Its other operands must
  // exist already or be results of other `products`.
  bool FindElementwise(uint32_t product, std::span<const uint32_t> products, uint32_t at,
                       Finish& f) {
    const ValueId v = ResultOf(product);
    const auto& readers = readers_[static_cast<size_t>(v)];
    if (readers.empty() || returned_[static_cast<size_t>(v)]) return false;
    const uint32_t u = s_.unit_of[readers[0]];
    if (u == Schedule::kNowhere || taken_[u] ||
        std::ranges::any_of(readers, [&](uint32_t n) { return s_.unit_of[n] != u; }))
      return false;
    const Unit& unit = s_.units[u];
    if (unit.group >= 0) {
      f.group = &s_.groups[static_cast<size_t>(unit.group)];
      if (!f.group->program || f.group->members > 1) return false;
    } else {
      if (!IsAlone(unit.node) || !IsElementwise(RowOf(unit.node)) || RowOf(unit.node).body.Empty())
        return false;
      f.own = GroupOfOne(w_, unit.node);
      if (!f.own) return false;
    }
    const FusedGroup& group = f.group ? *f.group : *f.own;
    const auto shape = ShapeOf(v);
    for (const ValueId i : group.inputs) {
      const bool is_product =
          std::ranges::any_of(products, [&](uint32_t p) { return ResultOf(p) == i; });
      if (is_product &&
          std::ranges::all_of(readers_[static_cast<size_t>(i)],
                              [&](uint32_t n) { return s_.unit_of[n] == u; }) &&
          !returned_[static_cast<size_t>(i)] && ShapeOf(i) == shape) {
        f.products.push_back(static_cast<uint32_t>(producer_[static_cast<size_t>(i)]));
      } else if (is_product || !IsThere(i, at) || ShapeOf(i) != shape ||
                 TypeOf(i).dtype != TypeOf(v).dtype) {
        return false;
      }
    }
    if (f.products.size() > ProductProgram::kMaxProducts) return false;
    for (const ValueId o : group.outputs) {
      if (ShapeOf(o) != shape || Replaces(o)) return false;
    }
    f.nodes = group.nodes;
    return true;
  }

  // Returns the epilogues of the matmuls. Each matmul is in one of them.
  std::vector<Finish> FindFinishes(std::span<const uint32_t> products, uint32_t at) {
    std::vector<Finish> out;
    std::vector<uint32_t> left(products.begin(), products.end());
    while (!left.empty()) {
      Finish f;
      const uint32_t first = left.front();
      const auto rows = Rows(first);
      if (rows == 1) FindHeads(first, at, f);
      if (!f.turn && !f.append && !FindElementwise(first, products, at, f)) f = {};
      if (std::ranges::any_of(f.products,
                              [&](uint32_t p) { return std::ranges::find(left, p) == left.end(); }))
        f = {};
      if (f.products.empty()) f.products = {first};
      std::erase_if(
          left, [&](uint32_t p) { return std::ranges::find(f.products, p) != f.products.end(); });
      out.push_back(std::move(f));
    }
    return out;
  }
  // The same for matmuls without epilogues.
  static std::vector<Finish> Alone(std::span<const uint32_t> products) {
    std::vector<Finish> out;
    for (const uint32_t p : products) out.push_back({.products = {p}});
    return out;
  }
  int64_t Rows(uint32_t product) const {
    const auto shape = *ShapeOf(NodeAt(product).operands[0]);
    return Product(std::span(shape).first(shape.size() - 1));
  }

  // The norm of the last axis that made x, if only these matmuls read it.
  std::optional<uint32_t> FindNorm(ValueId x, std::span<const uint32_t> products,
                                   uint32_t at) const {
    const int32_t p = producer_[static_cast<size_t>(x)];
    if (p < 0 || returned_[static_cast<size_t>(x)]) return std::nullopt;
    const auto n = static_cast<uint32_t>(p);
    const Node& node = NodeAt(n);
    const bool adds = node.op == "add_rms_norm";
    if ((!adds && node.op != "rms_norm") || ResultOf(n) != x || !IsAlone(n)) return std::nullopt;
    if (std::get<int64_t>(AttrOf(n, RowOf(n).attrs[0].name)) != 1) return std::nullopt;
    const ValueId weight = node.operands[adds ? 2 : 1];
    if (weight != kAbsent && !IsStillThere(weight, at)) return std::nullopt;
    for (const uint32_t reader : readers_[static_cast<size_t>(x)]) {
      if (std::ranges::find(products, reader) == products.end()) return std::nullopt;
    }
    for (int i = 0; i < (adds ? 2 : 1); ++i) {
      const ValueId v = node.operands[static_cast<size_t>(i)];
      if (!IsStillThere(v, at) || ShapeOf(v) != ShapeOf(x)) return std::nullopt;
    }
    if (!adds) return n;
    // The norm's second result is read after the group, or within it. A reader within it would take
    // it for an existing operand, which it is not.
    if (Replaces(ResultOf(n, 1))) return std::nullopt;
    for (const uint32_t reader : readers_[static_cast<size_t>(ResultOf(n, 1))]) {
      if (s_.unit_of[reader] == Schedule::kNowhere || at_[s_.unit_of[reader]] <= at)
        return std::nullopt;
    }
    return n;
  }

  // Adds a matmul's sum with its bias and activation, in f32.
  std::optional<int> Sum(uint32_t product, int sum, ScalarProgram& program, FusedGroup& group,
                         ProductProgram::Section& section) const {
    const Node& node = NodeAt(product);
    int value = sum;
    if (const ValueId bias = node.operands[2]; bias != kAbsent) {
      const int added =
          program.Append({.prim = Prim::kCast,
                          .type = DType::kF32,
                          .operands = {program.AddInput(TypeOf(bias).dtype), -1, -1}});
      group.inputs.push_back(bias);
      section.by_row.push_back(false);
      value =
          program.Append({.prim = Prim::kAdd, .type = DType::kF32, .operands = {value, added, -1}});
    }
    const std::string& activation = std::get<std::string>(AttrOf(product, "activation"));
    if (activation == "none") return value;
    const OpDef& row = *Catalogue().Find(activation);
    const std::vector<int> unread(row.attrs.size(), -1);
    const auto finished = program.Append(row, {{value}}, unread, DType::kF32);
    return finished.ok() ? std::optional(*finished) : std::nullopt;
  }

  // Describes the scalar program of an epilogue, and adds its inputs and results to the group.
  bool Describe(const Finish& f, FusedGroup& group, ProductProgram::Section& section) const {
    const DType type = TypeOf(ResultOf(f.products[0])).dtype;
    section.products = static_cast<int>(f.products.size());
    section.columns = ShapeOf(NodeAt(f.products[0]).operands[1])->front();
    ScalarProgram& program = section.finish;
    std::vector<int> sums, values;
    for (const uint32_t p : f.products) {
      sums.push_back(program.AddInput(DType::kF32));
      group.inputs.push_back(NodeAt(p).operands[1]);
    }
    for (size_t i = 0; i < f.products.size(); ++i) {
      const auto value = Sum(f.products[i], sums[i], program, group, section);
      if (!value) return false;
      values.push_back(
          f.turn
              ? *value
              : program.Append({.prim = Prim::kCast, .type = type, .operands = {*value, -1, -1}}));
    }
    const FusedGroup* const then = f.group ? f.group : f.own ? &*f.own : nullptr;
    if (then == nullptr) {
      program.AddOutput(values[0]);
      group.outputs.push_back(f.append ? ResultOf(*f.append)
                              : f.turn ? ResultOf(*f.turn)
                                       : ResultOf(f.products[0]));
    } else {
      std::vector<int> inputs;
      for (const ValueId v : then->inputs) {
        const auto product =
            std::ranges::find_if(f.products, [&](uint32_t p) { return ResultOf(p) == v; });
        if (product != f.products.end()) {
          inputs.push_back(values[static_cast<size_t>(product - f.products.begin())]);
          continue;
        }
        inputs.push_back(program.AddInput(TypeOf(v).dtype));
        group.inputs.push_back(v);
        section.by_row.push_back(true);
      }
      const std::vector<int> made = program.Append(*then->program, inputs);
      for (const fused::Instruction& one : then->program->instructions()) {
        if (one.prim == Prim::kAttr)
          group.arguments.push_back(then->arguments[static_cast<size_t>(one.index)]);
      }
      for (size_t o = 0; o < then->outputs.size(); ++o) {
        program.AddOutput(made[static_cast<size_t>(then->program->outputs()[o])]);
        group.outputs.push_back(then->outputs[o]);
      }
    }
    group.takes_place_of.resize(group.outputs.size(), -1);
    if (f.turn) {
      section.turn = {std::get<double>(AttrOf(*f.turn, "theta")),
                      std::get<double>(AttrOf(*f.turn, "scale")),
                      std::get<bool>(AttrOf(*f.turn, "interleaved")),
                      std::get<bool>(AttrOf(*f.turn, "inverse"))};
      section.depth = ShapeOf(NodeAt(*f.turn).operands[0])->back();
    }
    if (f.append) {
      const auto cache = *ShapeOf(NodeAt(*f.append).operands[0]);
      section.depth = cache.back();
      section.places = cache[cache.size() - 2];
      group.takes_place_of.back() = static_cast<int32_t>(group.inputs.size());
      group.inputs.push_back(NodeAt(*f.append).operands[0]);
    }
    return program.Check().ok();
  }

  void Join(uint32_t at, const std::vector<uint32_t>& units) {
    std::vector<uint32_t> products;
    for (const uint32_t u : units) products.push_back(s_.units[u].node);
    const ValueId x = NodeAt(products[0]).operands[0];
    const std::optional<uint32_t> norm =
        IsOfMany(products[0]) ? std::nullopt : FindNorm(x, products, at);
    std::vector<Finish> finishes = FindFinishes(products, at);
    bool apart = false;
    // The norm's second result does not exist yet when the epilogues run.
    for (Finish& f : finishes) {
      const FusedGroup* const then = f.group ? f.group : f.own ? &*f.own : nullptr;
      if (norm && then && NodeAt(*norm).results.size() > 1 &&
          std::ranges::find(then->inputs, ResultOf(*norm, 1)) != then->inputs.end())
        apart = true;
    }
    if (apart) finishes = Alone(products);
    // All rotations have one position. All appends have one position, in caches of one length.
    std::optional<uint32_t> turn, append;
    for (Finish& f : finishes) {
      const bool turns = !f.turn || !turn ||
                         (NodeAt(*f.turn).operands[1] == NodeAt(*turn).operands[1] &&
                          AttrOf(*f.turn, "scale") == AttrOf(*turn, "scale"));
      const bool appends = !f.append || !append ||
                           (NodeAt(*f.append).operands[2] == NodeAt(*append).operands[2] &&
                            Length(*f.append) == Length(*append));
      if (!turns || !appends) f = {.products = f.products};
      if (f.turn) turn = f.turn;
      if (f.append) append = f.append;
    }

    FusedGroup group;
    ProductProgram program{
        .type = TypeOf(x).dtype, .rows = Rows(products[0]), .terms = ShapeOf(x)->back()};
    group.nodes = products;
    if (norm) {
      const Node& node = NodeAt(*norm);
      const bool adds = node.op == "add_rms_norm";
      group.nodes.push_back(*norm);
      group.inputs.push_back(node.operands[0]);
      if (adds)
        group.inputs.push_back(node.operands[1]), group.outputs.push_back(ResultOf(*norm, 1));
      if (const ValueId weight = node.operands[adds ? 2 : 1]; weight != kAbsent)
        group.inputs.push_back(weight);
      program.norm = {.adds = adds,
                      .weighted = node.operands[adds ? 2 : 1] != kAbsent,
                      .eps = std::get<double>(AttrOf(*norm, "eps"))};
    } else {
      group.inputs.push_back(x);
    }
    if (turn) {
      group.inputs.push_back(NodeAt(*turn).operands[1]);
      program.positions = TypeOf(group.inputs.back()).dtype;
    }
    if (append) {
      group.inputs.push_back(NodeAt(*append).operands[2]);
      program.at = TypeOf(group.inputs.back()).dtype;
      group.checked = *append;
    }
    for (const Finish& f : finishes) {
      group.nodes.insert(group.nodes.end(), f.nodes.begin(), f.nodes.end());
      if (!Describe(f, group, program.sections.emplace_back())) return;
    }
    if (group.nodes.size() < 2 && IsOfMany(products[0])) return;
    group.kernel = fuser_.GetProducts(program);
    if (!group.kernel) return;
    std::ranges::sort(group.nodes);
    for (const uint32_t n : group.nodes) {
      taken_[s_.unit_of[n]] = true;
      at_[s_.unit_of[n]] = at;
    }
    joined_.emplace_back(at, std::move(group));
  }
  int64_t Length(uint32_t append) const {
    const auto cache = *ShapeOf(NodeAt(append).operands[0]);
    return cache[cache.size() - 2];
  }

  void Rebuild() {
    ScheduleWriter out(s_);
    auto next = joined_.begin();
    for (uint32_t u = 0; u < s_.units.size(); ++u) {
      if (next != joined_.end() && next->first == u)
        out.Add(std::move((next++)->second));
      else if (!taken_[u])
        out.Add(s_.units[u]);
    }
    s_ = out.Take();
  }

  const Scheduled& w_;
  const std::vector<bool>& fusable_;
  fused::Fuser& fuser_;
  Schedule& s_;
  std::vector<int32_t> producer_;  // by value: its node; -1 for parameters
  std::vector<std::vector<uint32_t>>
      readers_;                 // by value: its reader nodes, one entry for each read
  std::vector<bool> returned_;  // by value
  std::vector<bool> replaces_;  // by value
  std::vector<bool> replaced_;  // by parameter
  std::vector<bool> taken_;     // by unit: a group has it
  std::vector<uint32_t> at_;    // by unit: its place in the order, among units
  std::vector<std::pair<uint32_t, FusedGroup>>
      joined_;  // by unit whose place they take, in their order
};

}  // namespace

void JoinProducts(const Scheduled& what, const std::vector<bool>& fusable, fused::Fuser& fuser,
                  Schedule& schedule) {
  if (!fuser.HasProducts() && !fuser.HasEpilogues()) return;
  if (std::ranges::any_of(what.f.nodes, [](const Node& node) { return node.op == "linear"; }))
    ProductJoiner(what, fusable, fuser, schedule).Run();
}

}  // namespace opwire::executor
