// Chooses ops and operands at random and keeps those that the catalogue's rules accept. Works on
// Module itself, not through the builder, because a refused attempt is normal here.
#include "tests/ir/random_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "ir/verify/verify.h"

namespace opwire {
namespace {

class Generator {
 public:
  Generator(std::mt19937_64& rng, const RandomOptions& options) : rng_(rng), o_(options) {
    if (o_.symbols) {
      symbols_.push_back(*m_.dims.Symbol("b", 1, kRandomSymbolUpper));
      symbols_.push_back(*m_.dims.Symbol("s.len", 2, kRandomSymbolUpper, 2));
    }
    for (const OpDef& row : Catalogue().rows()) {
      if (row.control != Control::kNone) continue;
      if (o_.ops.empty() || std::find(o_.ops.begin(), o_.ops.end(), row.name) != o_.ops.end())
        rows_.push_back(&row);
    }
  }

  Module Make() {
    for (int i = 0; i < o_.functions; ++i) {
      f_ = Function{.name = i == 0 ? "main" : fmt::format("helper.{}", i)};
      types_.clear();
      MakeParams();
      MakeNodes(o_.nodes);
      MakeResults();
      m_.functions.push_back(std::move(f_));
    }
    for (Function& body : called_) m_.functions.push_back(std::move(body));
    return std::move(m_);
  }

 private:
  uint64_t Below(uint64_t n) { return rng_() % n; }
  bool Chance(int percent) { return static_cast<int>(Below(100)) < percent; }
  template <typename T>
  const T& Pick(const std::vector<T>& v) {
    return v[Below(v.size())];
  }

  Dim RandomDim() {
    if (!symbols_.empty() && Chance(30)) {
      const Dim s = Pick(symbols_);
      switch (Below(8)) {
        case 0:
          return m_.dims.Mul(m_.dims.Constant(2), s);
        case 1:
          return m_.dims.Add(s, m_.dims.Constant(1));
        case 2:
          return m_.dims.Min(s, m_.dims.Constant(4));
        case 3:
          return m_.dims.FloorDiv(m_.dims.Add(symbols_[0], symbols_[1]), m_.dims.Constant(2));
        default:
          return s;
      }
    }
    return m_.dims.Constant(Chance(5) ? 0 : 1 + static_cast<int64_t>(Below(o_.max_extent)));
  }

  void MakeNodes(int count) {
    for (int n = 0, tries = 0; n < count && tries < count * 50; ++tries) {
      if (o_.control && depth_ < 2 && Chance(4))
        n += MakeControl();
      else
        n += TryNode(*Pick(rows_));
    }
  }

  std::vector<Dim> RandomShape() {
    // Existing shapes make operands that fit each other.
    if (!types_.empty() && Chance(60)) return Pick(types_).shape;
    std::vector<Dim> shape(Below(4));
    for (Dim& d : shape) d = RandomDim();
    return shape;
  }

  DType RandomDType() {
    if (!o_.dtypes.empty()) return Pick(o_.dtypes);
    if (Chance(50)) return DType::kF32;
    if (Chance(30)) return DType::kI64;
    return static_cast<DType>(1 + Below(kDTypeCount - 1));
  }

  void AddParam(TensorType type, ParamMode mode) {
    f_.params.push_back({.name = fmt::format("p{}", f_.params.size()), .mode = mode, .type = type});
    types_.push_back(std::move(type));
  }

  void MakeParams() {
    // Bind every symbol, one by its own parameter.
    for (Dim s : symbols_) {
      if (s == symbols_.back()) {
        f_.params.push_back({.name = "len", .mode = ParamMode::kDim, .type = {}, .dim = s});
        types_.push_back({});
      } else {
        AddParam({.dtype = DType::kF32, .shape = {s, m_.dims.Constant(2)}}, ParamMode::kIn);
      }
    }
    AddParam({.dtype = DType::kU64, .shape = {m_.dims.Constant(2)}},
             ParamMode::kIn);  // a random key
    AddParam({.dtype = DType::kI64, .shape = {}}, ParamMode::kIn);
    AddParam({.dtype = DType::kF32, .shape = {}}, ParamMode::kIn);
    // Logits and targets, which ops with random shapes would seldom get.
    AddParam({.dtype = DType::kF32, .shape = {m_.dims.Constant(3), m_.dims.Constant(4)}},
             ParamMode::kIn);
    AddParam({.dtype = DType::kI64, .shape = {m_.dims.Constant(3)}}, ParamMode::kIn);
    AddParam({.dtype = DType::kF32, .shape = {m_.dims.Constant(3)}},
             ParamMode::kIn);  // and the sums of rows of logits
    AddParam({.dtype = DType::kF32, .shape = HeadShape()},
             ParamMode::kIn);  // queries, keys and values
    AddParam({.dtype = DType::kF32, .shape = {m_.dims.Constant(2), m_.dims.Constant(3)}},
             ParamMode::kIn);  // and their logsumexp
    AddParam({.dtype = DType::kF32, .shape = KernelShape()},
             ParamMode::kIn);  // a convolution's weight, and its result for the queries
    AddParam({.dtype = DType::kF32, .shape = ConvolvedShape()}, ParamMode::kIn);
    AddParam({.dtype = DType::kI8, .shape = HeadShape()},
             ParamMode::kIn);  // quantised values, and their groups' parameters
    AddParam({.dtype = DType::kF32, .shape = GroupsShape()}, ParamMode::kIn);
    if (o_.encoded) {  // weights in blocks, and the matrix that is multiplied with them
      AddParam({.dtype = DType::kI8,
                .encoding = static_cast<Encoding>(2 + Below(3)),
                .shape = {m_.dims.Constant(3), m_.dims.Constant(32)}},
               ParamMode::kIn);
      AddParam({.dtype = DType::kF32, .shape = {m_.dims.Constant(2), m_.dims.Constant(32)}},
               ParamMode::kIn);
    }
    for (int i = 0; i < o_.params; ++i) {
      TensorType type{.dtype = RandomDType(), .shape = RandomShape()};
      if (Small(type))
        AddParam(std::move(type), o_.inouts && Chance(30) ? ParamMode::kInout : ParamMode::kIn);
    }
  }

  bool Small(const TensorType& t) const {
    if (t.rank() > 6) return false;
    int64_t n = 1;
    for (Dim d : t.shape) {
      n *= std::max<int64_t>(1, m_.dims.Bounds(d).upper);
      if (n > o_.max_elements) return false;
    }
    return true;
  }

  // Returns a value whose element type the operand takes; of the shape `like` if it is given.
  // kAbsent if there is none.
  ValueId RandomOperand(const OpDef& row, const OperandSpec& spec, DType bound,
                        const std::vector<Dim>* like) {
    const DTypeSet allowed = bound == DType::kInvalid ? row.TypesOf(spec.type) : DTypeSet{bound};
    std::vector<ValueId> fit;
    for (size_t v = 0; v < types_.size(); ++v) {
      if ((types_[v].encoding != Encoding::kDense) != (spec.type == kBlocksType)) continue;
      if (IsValid(types_[v].dtype) && allowed.Has(types_[v].dtype) &&
          (!like || types_[v].shape == *like))
        fit.push_back(static_cast<ValueId>(v));
    }
    return fit.empty() ? kAbsent : Pick(fit);
  }

  // Returns the shape that an operand must have with the op's others; null: any shape.
  const std::vector<Dim>* ShapeFor(const OpDef& row, const OperandSpec& spec) {
    static const std::vector<Dim>
        kNoExtents;  // of optimisers' operands other than lists, and of a loss
    if (!spec.variadic && row.family == "optim") return &kNoExtents;
    if (row.family == "convolution") {
      wanted_ = spec.name == "weight" ? KernelShape()
                : spec.name == "grad" ? ConvolvedShape()
                                      : HeadShape();
      return spec.optional ? nullptr : &wanted_;
    }
    if (row.name == "scaled_matmul" && spec.type == "f32") return &kNoExtents;
    if (row.name == "quantized_linear" && spec.name == "x") {
      wanted_ = {m_.dims.Constant(2), m_.dims.Constant(32)};
      return &wanted_;
    }
    if (row.name == "dequantize") {
      wanted_ = spec.name == "params" ? GroupsShape() : HeadShape();
      return &wanted_;
    }
    const bool of_cache = row.name == "kv_attention" || row.name == "kv_append";
    const bool of_heads = of_cache || row.name == "scaled_dot_product_attention_backward",
               of_loss = row.name == "linear_cross_entropy_backward";
    if ((!of_heads && !of_loss) || spec.optional) return nullptr;
    if ((of_loss && spec.name == "grad") ||
        (of_cache && (spec.name == "length" || spec.name == "position")))
      return &kNoExtents;
    wanted_ = of_heads ? HeadShape() : std::vector{m_.dims.Constant(3), m_.dims.Constant(4)};
    if (spec.name == "logsumexp" || spec.name == "target") wanted_.pop_back();
    return &wanted_;
  }

  std::vector<Dim> HeadShape() {
    return {m_.dims.Constant(2), m_.dims.Constant(3), m_.dims.Constant(4)};
  }

  std::vector<Dim> GroupsShape() {
    return {m_.dims.Constant(2), m_.dims.Constant(3), m_.dims.Constant(1), m_.dims.Constant(1)};
  }

  std::vector<Dim> KernelShape() {
    return {m_.dims.Constant(3), m_.dims.Constant(3), m_.dims.Constant(4)};
  }
  std::vector<Dim> ConvolvedShape() {
    return {m_.dims.Constant(2), m_.dims.Constant(3), m_.dims.Constant(1)};
  }

  bool RandomOperands(const OpDef& row, Node* node) {
    // Lists of one node have one length, and their values at one position have one shape. So they
    // meet the rules that require it.
    const uint32_t places = 1 + static_cast<uint32_t>(Below(3));
    std::vector<ValueId> first;
    std::vector<std::pair<std::string, DType>> bound;
    for (const OperandSpec& spec : row.operands) {
      const uint32_t count = spec.variadic ? places : 1;
      for (uint32_t i = 0; i < count; ++i) {
        const auto it = std::find_if(bound.begin(), bound.end(),
                                     [&](const auto& b) { return b.first == spec.type; });
        const std::vector<Dim>* const like =
            spec.variadic && first.size() == places ? &types_[first[i]].shape : ShapeFor(row, spec);
        ValueId v =
            spec.optional && Chance(40)
                ? kAbsent
                : RandomOperand(row, spec, it == bound.end() ? DType::kInvalid : it->second, like);
        if (v == kAbsent && !spec.optional) return false;
        if (v != kAbsent && it == bound.end()) bound.emplace_back(spec.type, types_[v].dtype);
        node->operands.push_back(v);
        if (spec.variadic && first.size() < places) first.push_back(v);
      }
      if (row.HasLists()) node->segments.push_back(count);
    }
    return true;
  }

  // Returns the shape that matters for an attribute: that of the first operand.
  const std::vector<Dim>& FirstShape(const Node& node) const {
    static const std::vector<Dim> kNone;
    return node.operands.empty() || node.operands[0] == kAbsent ? kNone
                                                                : types_[node.operands[0]].shape;
  }

  double RandomFloat() {
    switch (Below(8)) {
      case 0:
        return std::numeric_limits<double>::infinity();
      case 1:
        return -0.0;
      case 2:
        return std::numeric_limits<double>::quiet_NaN();
      case 3:
        return 1e300;
      default:
        return std::uniform_real_distribution<double>(-4, 4)(rng_);
    }
  }

  Ints RandomAxes(const OpDef& row, int rank) {
    Ints axes(rank);
    for (int i = 0; i < rank; ++i) axes[i] = Chance(20) ? i - rank : i;
    std::shuffle(axes.begin(), axes.end(), rng_);
    if (row.name != "permute") axes.resize(Below(rank + 1));
    return axes;
  }

  AttrValue RandomAttr(const OpDef& row, const AttrSpec& spec, const Node& node) {
    const std::vector<Dim>& shape = FirstShape(node);
    const int rank = static_cast<int>(shape.size());
    switch (spec.kind) {
      case AttrKind::kInt:
        if (spec.name == "dim" && rank > 0) return static_cast<int64_t>(Below(2 * rank)) - rank;
        if (spec.name == "dims" || spec.name == "step" || spec.name == "groups")
          return static_cast<int64_t>(1 + Below(2));
        if (spec.name == "bits") return Chance(50) ? int64_t{4} : int64_t{8};
        return static_cast<int64_t>(Below(10));
      case AttrKind::kFloat:
        if (spec.name.starts_with("beta") || spec.name == "momentum" || spec.name == "weight_decay")
          return static_cast<double>(Below(10)) / 10;
        return spec.name == "eps" ? 1e-5 : RandomFloat();
      case AttrKind::kBool:
        return Chance(50);
      case AttrKind::kString:
        return std::get<std::string>(*spec.fallback);
      case AttrKind::kDType:
        return RandomDType();
      case AttrKind::kDim:
        return RandomDim();
      case AttrKind::kType:
        return TensorType{.dtype = RandomDType(),
                          .shape = {m_.dims.Constant(static_cast<int64_t>(Below(4)))}};
      case AttrKind::kBlob:
        return BlobRef{static_cast<uint32_t>(m_.blobs.size())};
      case AttrKind::kInts:
        if (row.family == "convolution")
          return Ints(Below(2), static_cast<int64_t>(Below(2)) +
                                    (spec.name == "stride" || spec.name == "dilation"));
        if (spec.name == "repeats") return Ints(Below(4), 1 + static_cast<int64_t>(Below(2)));
        return RandomAxes(row, rank);
      case AttrKind::kFloats: {
        Doubles values(Below(5));
        for (double& v : values) v = RandomFloat();
        return values;
      }
      case AttrKind::kDims:
        return RandomDims(row, shape);
      case AttrKind::kBools:
        return Bools{true, false};
      case AttrKind::kStrings:
        return Strings{"a"};
      case AttrKind::kDTypes:
        return DTypes{RandomDType()};
    }
    return int64_t{0};
  }

  Dims RandomDims(const OpDef& row, const std::vector<Dim>& shape) {
    Dims out = RandomShape();
    if (row.name == "reshape") {
      out.assign(shape.begin(), shape.end());
      if (out.size() >= 2 && Chance(70)) {
        out[0] = m_.dims.Mul(out[0], out[1]);
        out.erase(out.begin() + 1);
      }
      if (Chance(50)) out.insert(out.begin() + Below(out.size() + 1), m_.dims.Constant(1));
    } else if (row.name == "expand") {
      out.assign(shape.begin(), shape.end());
      for (Dim& d : out) {
        if (d == m_.dims.Constant(1)) d = RandomDim();
      }
      if (Chance(50)) out.insert(out.begin(), RandomDim());
    }
    return out;
  }

  bool TryNode(const OpDef& row) {
    Node node{.op = row.name, .version = row.version};
    if (!RandomOperands(row, &node)) return false;
    for (const AttrSpec& spec : row.attrs) {
      if (spec.fallback && Chance(50)) continue;
      node.attrs.push_back({spec.name, RandomAttr(row, spec, node)});
    }
    std::vector<const TensorType*> operands;
    for (ValueId v : node.operands) operands.push_back(v == kAbsent ? nullptr : &types_[v]);
    const auto attrs = ResolveAttrs(row, node.attrs, m_.dims);
    if (!attrs.ok()) return false;
    auto inferred = InferTypes(row, m_.dims, operands, node.segments, *attrs);
    // The constraints may have no common solution.
    if (!inferred.ok() || !inferred->constraints.empty()) return false;
    if (!std::all_of(inferred->results.begin(), inferred->results.end(),
                     [&](const TensorType& t) { return Small(t); }))
      return false;
    if (row.name == "constant") {
      const TensorType& t = inferred->results[0];
      std::string bytes(m_.dims.ConstantValue(t.shape[0]) * DTypeBytes(t.dtype), '\0');
      for (char& c : bytes) c = static_cast<char>(t.dtype == DType::kBool ? Below(2) : Below(256));
      m_.blobs.push_back(std::move(bytes));
    }
    if (o_.decorations && Chance(10)) node.pin = "variant.1";
    if (o_.decorations && Chance(10)) node.location = "model \"x\".py:\\12\n\x01\xff";
    types_.insert(types_.end(), inferred->results.begin(), inferred->results.end());
    node.results = std::move(inferred->results);
    f_.nodes.push_back(std::move(node));
    return true;
  }

  // ---- Control

  ValueId Append(Node node, TensorType type) {
    node.results = {type};
    f_.nodes.push_back(std::move(node));
    types_.push_back(std::move(type));
    return static_cast<ValueId>(types_.size() - 1);
  }
  ValueId AppendScalar(DType dtype, double value) {
    return Append(
        {.op = "full", .attrs = {{"value", AttrValue(value)}, {"dtype", AttrValue(dtype)}}},
        {.dtype = dtype});
  }
  ValueId AppendCopy(ValueId from) {
    return Append({.op = "copy", .operands = {from}}, types_[from]);
  }
  bool IsInout(ValueId v) const {
    return static_cast<size_t>(v) < f_.params.size() && f_.params[v].mode == ParamMode::kInout;
  }
  // Returns values of a type, except for parameters that are replaced.
  std::vector<ValueId> ValuesOf(const TensorType& type) const {
    std::vector<ValueId> fit;
    for (size_t v = 0; v < types_.size(); ++v) {
      if (types_[v] == type && !IsInout(static_cast<ValueId>(v)))
        fit.push_back(static_cast<ValueId>(v));
    }
    return fit;
  }

  // Appends another function of a few nodes, which takes values of the types `given`, and returns
  // some of its own of the types `wanted`. Returns its number. Starting with parameter
  // `inouts_from`, as many parameters as there are results may be replaced; -1: none.
  uint32_t MakeCalled(const std::vector<TensorType>& given, const std::vector<TensorType>& wanted,
                      int inouts_from) {
    Function caller = std::exchange(f_, {});
    std::vector<TensorType> callers_types = std::exchange(types_, {});
    ++depth_;
    for (size_t i = 0; i < given.size(); ++i) {
      const int result = inouts_from < 0 ? -1 : static_cast<int>(i) - inouts_from;
      AddParam(given[i], result >= 0 && result < static_cast<int>(wanted.size()) && Chance(40)
                             ? ParamMode::kInout
                             : ParamMode::kIn);
    }
    MakeNodes(1 + static_cast<int>(Below(5)));
    std::vector<ValueId> sources;
    for (const TensorType& type : wanted) {
      const std::vector<ValueId> fit = ValuesOf(type);
      sources.push_back(fit.empty() ? kAbsent : Pick(fit));
    }
    for (size_t r = 0; r < wanted.size(); ++r) {
      const ValueId param = inouts_from < 0 ? kAbsent : inouts_from + static_cast<ValueId>(r);
      if (param != kAbsent && IsInout(param)) {
        f_.results.push_back(
            {f_.params[param].name, AppendCopy(sources[r] == kAbsent ? param : sources[r])});
      } else {
        if (sources[r] == kAbsent)
          sources[r] = wanted[r].shape.empty()
                           ? AppendScalar(wanted[r].dtype, static_cast<double>(Chance(30)))
                           : AppendCopy(param);
        f_.results.push_back({fmt::format("r{}", r), sources[r]});
      }
    }
    --depth_;
    const auto number = static_cast<uint32_t>(o_.functions) + static_cast<uint32_t>(called_.size());
    f_.name = fmt::format("called.{}", number);
    called_.push_back(std::exchange(f_, std::move(caller)));
    types_ = std::move(callers_types);
    return number;
  }

  bool MakeControl() {
    const auto some = [&](uint64_t least, uint64_t most) {
      std::vector<ValueId> out;
      for (uint64_t n = least + Below(most - least + 1); out.size() < n;) {
        const auto v = static_cast<ValueId>(Below(types_.size()));
        if (IsValid(types_[v].dtype) && types_[v].encoding == Encoding::kDense) out.push_back(v);
      }
      return out;
    };
    const std::vector<ValueId> carried = some(1, 3), inputs = some(0, 2);
    std::vector<TensorType> carried_types, given;
    for (ValueId v : carried) carried_types.push_back(types_[v]);
    given = carried_types;
    for (ValueId v : inputs) given.push_back(types_[v]);
    Node node;
    const auto take = [&](const std::vector<ValueId>& list) {
      node.operands.insert(node.operands.end(), list.begin(), list.end());
      node.segments.push_back(static_cast<uint32_t>(list.size()));
    };
    const TensorType condition{.dtype = DType::kBool}, index{.dtype = DType::kI64};
    switch (Below(3)) {
      case 0: {
        const std::vector<ValueId> fit = ValuesOf(condition);
        const ValueId holds = fit.empty() || Chance(20)
                                  ? AppendScalar(DType::kBool, static_cast<double>(Chance(50)))
                                  : Pick(fit);
        node.op = "if";
        take({holds});
        std::vector<ValueId> all = carried;
        all.insert(all.end(), inputs.begin(), inputs.end());
        take(all);
        for (int k = 0; k < 2; ++k)
          node.calls.push_back(MakeCalled(given, carried_types, /*inouts_from=*/-1));
        break;
      }
      case 1:
        node.op = "while";
        node.attrs = {{"max_trips", AttrValue(static_cast<int64_t>(Below(4)))}};
        take(carried);
        take(inputs);
        node.calls = {MakeCalled(given, {condition}, /*inouts_from=*/-1)};
        node.calls.push_back(MakeCalled(given, carried_types, /*inouts_from=*/0));
        break;
      default: {
        node.op = "repeat";
        const ValueId most = AppendScalar(DType::kI64, static_cast<double>(Below(4)));
        const std::vector<ValueId> fit = ValuesOf(index);
        take({Append({.op = "minimum", .operands = {Pick(fit), most}}, index)});
        take(carried);
        take(inputs);
        given.insert(given.begin(), index);
        node.calls = {MakeCalled(given, carried_types, /*inouts_from=*/1)};
        break;
      }
    }
    node.results = carried_types;
    types_.insert(types_.end(), carried_types.begin(), carried_types.end());
    f_.nodes.push_back(std::move(node));
    return true;
  }

  // Replaces each inout parameter by a copy of a value of its type, and returns some others.
  void MakeResults() {
    const size_t made = types_.size();
    std::vector<ValueId> sources(f_.params.size(), kAbsent);
    for (size_t p = 0; p < f_.params.size(); ++p) {
      if (f_.params[p].mode != ParamMode::kInout) continue;
      std::vector<ValueId> fit;
      for (size_t v = 0; v < made; ++v) {
        const bool other_inout =
            v < f_.params.size() && v != p && f_.params[v].mode == ParamMode::kInout;
        if (!other_inout && types_[v] == types_[p]) fit.push_back(static_cast<ValueId>(v));
      }
      sources[p] = Pick(fit);
    }
    for (size_t p = 0; p < f_.params.size(); ++p) {
      if (sources[p] != kAbsent) f_.results.push_back({f_.params[p].name, AppendCopy(sources[p])});
    }
    for (size_t v = f_.params.size(); v < made; ++v) {
      if (Chance(30) || (v + 1 == made && f_.results.empty()))
        f_.results.push_back({fmt::format("r{}", v), static_cast<ValueId>(v)});
    }
  }

  std::mt19937_64& rng_;
  const RandomOptions& o_;
  std::vector<const OpDef*> rows_;
  std::vector<Dim> symbols_;
  std::vector<Dim> wanted_;  // the last result of ShapeFor
  Module m_;
  Function f_;
  std::vector<TensorType> types_;  // by ValueId
  std::vector<Function> called_;
  int depth_ = 0;  // of calls
};

}  // namespace

Module RandomModule(std::mt19937_64& rng, const RandomOptions& options) {
  Module m = Generator(rng, options).Make();
  if (const auto typing = VerifyModule(m); !typing.ok()) {
    std::fprintf(stderr, "RandomModule made what the verifier refuses: %s\n",
                 MessageOf(typing.status()).c_str());
    std::abort();
  }
  return m;
}

}  // namespace opwire
