// The list of calls, and their plans.
#include "kernels/ops/gpu/ahead.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "kernels/ops/gpu/families.h"
#include "kernels/select/failure.h"
#include "kernels/select/variant.h"

namespace opwire::gpu {
namespace {

// ---- The list

std::vector<AheadCall> MakeCalls() {
  std::vector<AheadCall> calls;
  const auto each = [&](std::initializer_list<std::string_view> ops, std::string_view operands,
                        const std::vector<NamedAttr>& attrs = {}) {
    for (const std::string_view op : ops) calls.push_back({op, operands, attrs});
  };
  const DType bf16 = DType::kBF16, f32 = DType::kF32;

  // Arithmetic: of equal shapes, with a number, with one row for all rows (a bias, a gain), with a
  // number per row (a scale).
  each({"add", "sub", "mul", "div"}, "T[8192, 1024], T[8192, 1024]");
  each({"add", "mul", "div"}, "T[8192, 1024], T[]");
  each({"add", "mul"}, "T[8192, 1024], T[1024]");
  each({"sub", "mul", "div"}, "T[8192, 1024], T[8192, 1]");
  each({"add"}, "T[64, 256, 56, 56], T[256, 1, 1]");
  each({"add"}, "i64[8192], i64[]");
  // Activations, parts of their gradients, and other functions.
  each({"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "exp"}, "T[8192, 1024]");
  each({"gt"}, "T[8192, 1024], T[]");
  each({"where"}, "bool[8192, 1024], T[8192, 1024], T[8192, 1024]");
  each({"where"}, "bool[8192, 1024], T[8192, 1024], T[]");
  each({"dropout"}, "T[8192, 1024], f32[], u64[2]");
  // Other types.
  each({"cast"}, "bf16[8192, 1024]", {{"dtype", f32}});
  each({"cast"}, "f32[8192, 1024]", {{"dtype", bf16}});
  each({"cast"}, "bool[8192, 1024]", {{"dtype", f32}});
  each({"cast"}, "u8[8192, 1024]", {{"dtype", f32}});
  each({"cast"}, "i64[8192]", {{"dtype", f32}});
  each({"cast"}, "i32[8192]", {{"dtype", DType::kI64}});

  // Softmax, of scores and of classes.
  for (const char* x : {"T[65536, 128]", "T[65536, 1024]", "T[65536, 2048]", "T[65536, 4096]"})
    each({"softmax"}, x, {{"dim", -1}});
  each({"softmax_backward"}, "T[65536, 1024], T[65536, 1024]", {{"dim", -1}});
  each({"softmax_backward"}, "T[65536, 2048], T[65536, 2048]", {{"dim", -1}});
  each({"log_softmax"}, "T[1024, 1000]", {{"dim", -1}});

  // Norms over the widths of models.
  for (const char* x :
       {"T[8192, 1024], T[1024]", "T[8192, 2048], T[2048]", "T[8192, 4096], T[4096]"})
    each({"rms_norm"}, x);
  each({"add_rms_norm"}, "T[8192, 4096], T[8192, 4096], T[4096]");
  each({"rms_norm_backward"}, "T[8192, 4096], T[8192, 4096], T[4096], T[8192, 4096]");
  each({"layer_norm"}, "T[8192, 1024], T[1024], T[1024]");
  each({"layer_norm"}, "T[8192, 4096], T[4096], T[4096]");
  each({"add_layer_norm"}, "T[8192, 1024], T[8192, 1024], T[1024], T[1024]");
  each({"layer_norm_backward"}, "T[8192, 1024], T[8192, 1024], T[1024], T[8192, 1024]");

  // Moves: transposes, also of heads, channels last, concatenations and slices.
  each({"permute"}, "T[4096, 4096]", {{"dims", Ints{1, 0}}});
  each({"permute"}, "T[8, 1024, 16, 64]", {{"dims", Ints{0, 2, 1, 3}}});
  each({"permute"}, "T[64, 256, 56, 56]", {{"dims", Ints{0, 2, 3, 1}}});
  each({"cat"}, "(T[8192, 1024], T[8192, 1024])", {{"dim", 1}});
  each({"slice"}, "T[8192, 3072], i64[]", {{"dim", 1}, {"length", 1024}});
  each({"slice"}, "T[8192, 1024], i64[]", {{"dim", 0}, {"length", 1024}});

  // Sums and means: of all elements, of rows, of columns (a bias's gradient), of channels.
  each({"sum"}, "T[8192, 1024]");
  each({"sum", "mean"}, "T[8192, 1024]", {{"dims", Ints{1}}});
  each({"sum"}, "T[8192, 1024]", {{"dims", Ints{0}}});
  each({"mean"}, "T[64, 256, 56, 56]", {{"dims", Ints{2, 3}}});
  each({"sum"}, "T[64, 256, 56, 56]", {{"dims", Ints{0, 2, 3}}});
  each({"argmax"}, "bf16[64, 131072]", {{"dim", -1}});

  // Tables, positions, and losses over vocabularies and classes.
  each({"embedding"}, "T[50257, 1024], i64[8192]");
  each({"embedding_backward"}, "bf16[8192, 1024], i64[8192]", {{"rows", 50257}});
  each({"rotary_embedding"}, "T[8, 32, 1024, 128], i64[1024]");
  each({"cross_entropy"}, "T[8192, 50257], i64[8192]");
  each({"cross_entropy_backward"}, "T[], T[8192, 50257], i64[8192]");
  each({"cross_entropy"}, "f32[256, 1000], i64[256]");
  each({"cross_entropy_backward"}, "f32[], f32[256, 1000], i64[256]");

  // Steps of optimisers.
  each({"adamw"}, "f32[4096], f32[4096], f32[4096], f32[4096], f32[], i64[], -, -");
  each({"adamw_copy"}, "f32[4096], f32[4096], f32[4096], f32[4096], f32[], i64[], -, -");
  each({"sgd"}, "f32[4096], f32[4096], f32[4096], f32[], i64[], -, -", {{"momentum", 0.9}});
  each({"l2_norm"}, "f32[4096]");
  each({"scale"}, "f32[4096], f32[]");

  // Generation of single tokens.
  each({"linear"}, "bf16[1, 4096], bf16[4096, 4096], -");
  each({"rms_norm_linear"}, "bf16[1, 4096], bf16[4096], bf16[4096, 4096], -");
  each({"kv_append"}, "T[8, 8, 4096, 128], T[8, 8, 1, 128], i64[8], -");
  each({"kv_attention"},
       "bf16[8, 32, 1, 128], bf16[8, 8, 4096, 128], bf16[8, 8, 4096, 128], i64[8], -");
  each({"sample"}, "T[8, 131072], u64[2], f32[8], i64[8], f32[8]");
  // Constants.
  each({"full"}, "", {{"value", 0.0}, {"shape", Ints{8192, 1024}}, {"dtype", f32}});
  return calls;
}

// A compiler takes about as long for a unit of either kind. Kernels that are written out are short;
// those of templates take several times as long.
constexpr std::string_view kGenerated = "kernels/fused/primitives.cuh";
constexpr size_t kGeneratedInUnit = 12, kTemplatesInUnit = 3;

// ---- Calls as plans see them

struct Laid {
  Laid(DType type, std::vector<int64_t> extents)
      : shape(std::move(extents)), strides(shape.size()) {
    int64_t elements = 1;
    for (size_t a = shape.size(); a-- > 0; elements *= shape[a]) strides[a] = elements;
    tensor = {nullptr,
              shape.data(),
              strides.data(),
              elements,
              static_cast<uint8_t>(type),
              0,
              static_cast<uint8_t>(shape.size()),
              1};
  }
  Laid(const Laid&) = delete;

  std::vector<int64_t> shape, strides;
  opw_tensor tensor;
};

// One call, with a type in place of T.
class BoundCall {
 public:
  BoundCall(const AheadCall& call, DType t) : call_(call), t_(t) {}

  Status Bind() {
    row_ = Catalogue().Find(call_.op);
    if (!row_) return InvalidArgument("no such op");
    OPWIRE_RETURN_IF_ERROR(ReadOperands());
    std::vector<NamedAttr> given = call_.attrs;
    for (NamedAttr& a : given) {
      const int at = row_->FindAttr(a.name);
      const auto* const number = std::get_if<int64_t>(&a.value);
      if (at >= 0 && number && row_->attrs[static_cast<size_t>(at)].kind == AttrKind::kDim)
        a.value = dims_.Constant(*number);
    }
    OPWIRE_ASSIGN_OR_RETURN(values_, ResolveAttrs(*row_, given, dims_));
    std::vector<TensorType> types(operands_.size());
    std::vector<const TensorType*> pointers;
    for (size_t i = 0; i < types.size(); ++i) {
      types[i].dtype = static_cast<DType>(operands_[i].dtype);
      for (int a = 0; a < operands_[i].rank; ++a)
        types[i].shape.push_back(dims_.Constant(operands_[i].shape[a]));
      pointers.push_back(types[i].dtype == DType::kInvalid ? nullptr : &types[i]);
    }
    OPWIRE_ASSIGN_OR_RETURN(const Inferred inferred,
                            InferTypes(*row_, dims_, pointers,
                                       row_->HasLists() ? std::span<const uint32_t>(segments_)
                                                        : std::span<const uint32_t>(),
                                       values_));
    for (const TensorType& type : inferred.results) {
      std::vector<int64_t> shape;
      for (const Dim d : type.shape) shape.push_back(dims_.ConstantValue(d));
      results_.push_back(laid_.emplace_back(type.dtype, std::move(shape)).tensor);
    }
    return LowerAttrs();
  }

  // Plans with the first of our own variants that supports the call.
  Status Plan(const VariantTable& table) {
    const std::vector<uint32_t> starts = row_->OperandStarts(segments_);
    for (const Variant& v : table.Of(call_.op)) {
      // The others are from libraries, or replace them if there is no library.
      if (v.tier != Tier::kProduction || v.library ||
          (!row_->variables.empty() && !v.dtypes.Has(KeyType())))
        continue;
      opw_call c{};
      c.context = v.kernel.context;
      c.operands = operands_.data();
      c.starts = starts.data();
      c.results = results_.data();
      c.attrs = attrs_.data();
      if (v.kernel.supports && v.kernel.supports(&c)) continue;
      if (v.kernel.prepare(&c, &c.state, &c.workspace_bytes) != OPW_OK) return TakeFailure();
      v.kernel.release(c.state);
      return absl::OkStatus();
    }
    return Unimplemented("our kernels do not support it");
  }

 private:
  // Returns the type of the first operand, or result, that has the op's first type variable.
  DType KeyType() const {
    const std::string& key = row_->variables[0].name;
    for (size_t i = 0, at = 0; i < row_->operands.size(); at += segments_[i++]) {
      if (row_->operands[i].type == key && operands_[at].dtype != 0)
        return static_cast<DType>(operands_[at].dtype);
    }
    return static_cast<DType>(results_[0].dtype);
  }

  Status ReadOperands() {
    std::string_view rest = call_.operands;
    while (!rest.empty()) {
      segments_.push_back(0);
      const bool list = Take(rest, "(");
      do {
        OPWIRE_RETURN_IF_ERROR(ReadOperand(rest));
        ++segments_.back();
      } while (list && Take(rest, ", "));
      if ((list && !Take(rest, ")")) || (!rest.empty() && !Take(rest, ", ")))
        return InvalidArgument("expected a comma before '{}'", rest);
    }
    if (segments_.size() != row_->operands.size())
      return InvalidArgument("expected {} operands, got {}", row_->operands.size(),
                             segments_.size());
    return absl::OkStatus();
  }

  Status ReadOperand(std::string_view& rest) {
    if (Take(rest, "-")) {
      operands_.push_back({});
      return absl::OkStatus();
    }
    const std::string_view name = rest.substr(0, rest.find('['));
    const std::optional<DType> type = name == "T" ? t_ : ParseDType(name);
    rest.remove_prefix(name.size());
    if (!type || !Take(rest, "["))
      return InvalidArgument("expected a type and extents in '{}'", call_.operands);
    std::vector<int64_t> shape;
    while (!Take(rest, "]")) {
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
      if (error != std::errc()) return InvalidArgument("expected an extent before '{}'", rest);
      rest.remove_prefix(static_cast<size_t>(end - rest.data()));
      Take(rest, ", ");
      shape.push_back(extent);
    }
    operands_.push_back(laid_.emplace_back(*type, std::move(shape)).tensor);
    return absl::OkStatus();
  }

  static bool Take(std::string_view& rest, std::string_view what) {
    if (!rest.starts_with(what)) return false;
    rest.remove_prefix(what.size());
    return true;
  }

  Status LowerAttrs() {
    const auto ints = [&](std::vector<int64_t> list) {
      const std::vector<int64_t>& kept = ints_.emplace_back(std::move(list));
      return opw_attr{OPW_ATTR_INTS, 0, static_cast<int64_t>(kept.size()), {.ints = kept.data()}};
    };
    const auto integer = [](int64_t i) { return opw_attr{OPW_ATTR_INT, 0, 1, {.i = i}}; };
    for (const AttrValue& v : values_) {
      switch (KindOf(v)) {
        case AttrKind::kInt:
          attrs_.push_back(integer(std::get<int64_t>(v)));
          break;
        case AttrKind::kBool:
          attrs_.push_back(integer(std::get<bool>(v)));
          break;
        case AttrKind::kDType:
          attrs_.push_back(integer(static_cast<int64_t>(std::get<DType>(v))));
          break;
        case AttrKind::kDim:
          attrs_.push_back(integer(dims_.ConstantValue(std::get<Dim>(v))));
          break;
        case AttrKind::kFloat:
          attrs_.push_back({OPW_ATTR_FLOAT, 0, 1, {.f = std::get<double>(v)}});
          break;
        case AttrKind::kInts:
          attrs_.push_back(ints(std::get<Ints>(v)));
          break;
        case AttrKind::kString: {
          const std::string& s = std::get<std::string>(v);
          attrs_.push_back(
              {OPW_ATTR_BYTES, 0, static_cast<int64_t>(s.size()), {.bytes = s.c_str()}});
          break;
        }
        case AttrKind::kDims: {
          std::vector<int64_t> list;
          for (const Dim d : std::get<Dims>(v)) list.push_back(dims_.ConstantValue(d));
          attrs_.push_back(ints(std::move(list)));
          break;
        }
        default:
          return Unimplemented("an attribute of kind {}", AttrKindName(KindOf(v)));
      }
    }
    return absl::OkStatus();
  }

  const AheadCall& call_;
  const DType t_;
  const OpDef* row_ = nullptr;
  DimTable dims_;
  std::deque<Laid> laid_;
  std::vector<opw_tensor> operands_, results_;
  std::vector<uint32_t> segments_;
  std::vector<AttrValue> values_;
  std::deque<std::vector<int64_t>> ints_;
  std::vector<opw_attr> attrs_;
};

}  // namespace

std::span<const AheadCall> AheadCalls() {
  static const std::vector<AheadCall> calls = MakeCalls();
  return calls;
}

std::vector<AheadUnit> UnitsOf(std::vector<KernelText> kernels,
                               const std::function<size_t(std::string_view)>& most_of) {
  std::set<std::pair<std::string, std::string>> seen;  // the prelude and the text of each
  std::erase_if(kernels,
                [&](const KernelText& k) { return !seen.emplace(k.prelude, k.text).second; });
  std::ranges::stable_sort(kernels, {}, &KernelText::prelude);
  std::vector<AheadUnit> units;
  for (size_t begin = 0, end = 0; begin < kernels.size(); begin = end) {
    const std::string& prelude = kernels[begin].prelude;
    while (end < kernels.size() && kernels[end].prelude == prelude) ++end;
    const size_t most = most_of(prelude), count = (end - begin + most - 1) / most;
    for (size_t i = 0; i < count; ++i) {
      const auto at = [&](size_t unit) {
        return kernels.begin() + static_cast<int64_t>(begin + unit * (end - begin) / count);
      };
      units.emplace_back(at(i), at(i + 1));
    }
  }
  return units;
}

StatusOr<std::vector<AheadUnit>> AheadUnits(GpuDevice& device, std::span<const AheadCall> calls) {
  std::vector<KernelText> kernels;
  VariantTable table;
  AddAll(table, std::make_shared<Code>(
                    device, [&](const KernelText& kernel) { kernels.push_back(kernel); }));
  for (const AheadCall& call : calls) {
    const bool any = call.operands.find("T[") != call.operands.npos;
    for (const DType t : {DType::kBF16, DType::kF32}) {
      if (!any && t == DType::kF32) continue;
      BoundCall bound(call, t);
      Status s = bound.Bind();
      if (s.ok()) s = bound.Plan(table);
      if (!s.ok())
        return Internal("{}({}) is not planned: {}", call.op, call.operands, MessageOf(s));
    }
  }
  std::vector<AheadUnit> units = UnitsOf(std::move(kernels), [](std::string_view prelude) {
    return prelude == kGenerated ? kGeneratedInUnit : kTemplatesInUnit;
  });
  std::ranges::stable_sort(units, std::ranges::greater(),
                           &AheadUnit::size);  // most programs need these first: arithmetic
  return units;
}

}  // namespace opwire::gpu
