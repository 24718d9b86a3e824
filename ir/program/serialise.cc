// Writes and reads programs with FlatBuffers.
#include "ir/program/serialise.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "ir/schema/program_generated.h"

namespace opwire {
namespace {

using flatbuffers::Offset;

class Writer {
 public:
  explicit Writer(const Module& m) : m_(m), b_(1024) {}

  std::string Write() {
    std::vector<Offset<fb::Function>> functions;
    for (const Function& f : m_.functions) functions.push_back(WriteFunction(f));
    std::vector<Offset<flatbuffers::String>> features;
    for (const std::string& f : m_.features) features.push_back(b_.CreateString(f));
    std::vector<Offset<fb::DimSymbol>> symbols;
    for (const DimSymbol& s : m_.dims.symbols()) {
      symbols.push_back(
          fb::CreateDimSymbol(b_, b_.CreateString(s.name), s.lower, s.upper, s.multiple));
    }
    std::vector<fb::DimNode> dims;
    for (const DimNode& n : m_.dims.nodes())
      dims.emplace_back(static_cast<uint8_t>(n.kind), n.value, n.a.index, n.b.index);
    std::vector<Offset<fb::Blob>> blobs;
    for (const std::string& blob : m_.blobs) {
      blobs.push_back(fb::CreateBlob(
          b_, b_.CreateVector(reinterpret_cast<const uint8_t*>(blob.data()), blob.size())));
    }
    const auto features_at = b_.CreateVector(features);
    const auto ops_at = b_.CreateVector(ops_);
    const auto symbols_at = b_.CreateVector(symbols);
    const auto dims_at = b_.CreateVectorOfStructs(dims);
    const auto types_at = b_.CreateVector(types_);
    const auto blobs_at = b_.CreateVector(blobs);
    const auto functions_at = b_.CreateVector(functions);
    b_.Finish(fb::CreateModule(b_, kProgramFormat, features_at, ops_at, symbols_at, dims_at,
                               types_at, blobs_at, functions_at),
              fb::ModuleIdentifier());
    return std::string(reinterpret_cast<const char*>(b_.GetBufferPointer()), b_.GetSize());
  }

 private:
  uint32_t TypeIndex(const TensorType& t) {
    std::vector<uint32_t> key = {static_cast<uint32_t>(t.dtype), static_cast<uint32_t>(t.encoding)};
    for (Dim d : t.shape) key.push_back(d.index);
    const auto [it, added] = type_index_.try_emplace(key, static_cast<uint32_t>(types_.size()));
    if (added) {
      const auto shape = b_.CreateVector(key.data() + 2, key.size() - 2);
      types_.push_back(fb::CreateType(b_, static_cast<uint8_t>(t.dtype),
                                      static_cast<uint8_t>(t.encoding), shape));
    }
    return it->second;
  }

  uint32_t OpIndex(const Node& n) {
    const auto [it, added] =
        op_index_.try_emplace({n.op, n.version}, static_cast<uint32_t>(ops_.size()));
    if (added) ops_.push_back(fb::CreateOpUse(b_, b_.CreateString(n.op), n.version));
    return it->second;
  }

  template <typename List>
  Offset<flatbuffers::Vector<int64_t>> IntVector(const List& list) {
    std::vector<int64_t> out;
    for (const auto& x : list) {
      if constexpr (std::is_same_v<typename List::value_type, Dim>)
        out.push_back(x.index);
      else
        out.push_back(static_cast<int64_t>(x));
    }
    return b_.CreateVector(out);
  }

  Offset<fb::Attr> WriteAttr(const NamedAttr& a) {
    int64_t i = 0;
    double f = 0;
    Offset<flatbuffers::String> s;
    Offset<flatbuffers::Vector<int64_t>> ints;
    Offset<flatbuffers::Vector<double>> floats;
    Offset<flatbuffers::Vector<Offset<flatbuffers::String>>> strings;
    const AttrValue& v = a.value;
    switch (KindOf(v)) {
      case AttrKind::kInt:
        i = std::get<int64_t>(v);
        break;
      case AttrKind::kFloat:
        f = std::get<double>(v);
        break;
      case AttrKind::kBool:
        i = std::get<bool>(v);
        break;
      case AttrKind::kString:
        s = b_.CreateString(std::get<std::string>(v));
        break;
      case AttrKind::kDType:
        i = static_cast<int64_t>(std::get<DType>(v));
        break;
      case AttrKind::kDim:
        i = std::get<Dim>(v).index;
        break;
      case AttrKind::kType:
        i = TypeIndex(std::get<TensorType>(v));
        break;
      case AttrKind::kBlob:
        i = std::get<BlobRef>(v).index;
        break;
      case AttrKind::kInts:
        ints = IntVector(std::get<Ints>(v));
        break;
      case AttrKind::kFloats:
        floats = b_.CreateVector(std::get<Doubles>(v));
        break;
      case AttrKind::kBools:
        ints = IntVector(std::get<Bools>(v));
        break;
      case AttrKind::kStrings:
        strings = b_.CreateVectorOfStrings(std::get<Strings>(v));
        break;
      case AttrKind::kDTypes:
        ints = IntVector(std::get<DTypes>(v));
        break;
      case AttrKind::kDims:
        ints = IntVector(std::get<Dims>(v));
        break;
    }
    const auto name = b_.CreateString(a.name);
    // A field equal to its default is not written, and -0 is equal to 0.
    b_.ForceDefaults(f == 0 && std::signbit(f));
    const auto at =
        fb::CreateAttr(b_, name, static_cast<uint8_t>(KindOf(v)), i, f, s, ints, floats, strings);
    b_.ForceDefaults(false);
    return at;
  }

  Offset<fb::Node> WriteNode(const Node& n) {
    std::vector<uint32_t> results;
    for (const TensorType& t : n.results) results.push_back(TypeIndex(t));
    std::vector<Offset<fb::Attr>> attrs;
    for (const NamedAttr& a : n.attrs) attrs.push_back(WriteAttr(a));
    const uint32_t op = OpIndex(n);
    const auto operands = b_.CreateVector(n.operands);
    const auto segments =
        n.segments.empty() ? Offset<flatbuffers::Vector<uint32_t>>() : b_.CreateVector(n.segments);
    const auto attrs_at =
        attrs.empty() ? Offset<flatbuffers::Vector<Offset<fb::Attr>>>() : b_.CreateVector(attrs);
    const auto calls =
        n.calls.empty() ? Offset<flatbuffers::Vector<uint32_t>>() : b_.CreateVector(n.calls);
    const auto results_at = b_.CreateVector(results);
    const auto pin = n.pin.empty() ? Offset<flatbuffers::String>() : b_.CreateString(n.pin);
    const auto location =
        n.location.empty() ? Offset<flatbuffers::String>() : b_.CreateSharedString(n.location);
    return fb::CreateNode(b_, op, operands, segments, attrs_at, calls, results_at, pin, location);
  }

  Offset<fb::Function> WriteFunction(const Function& f) {
    std::vector<Offset<fb::Param>> params;
    for (const Param& p : f.params) {
      const uint32_t type = p.mode == ParamMode::kDim ? 0 : TypeIndex(p.type);
      params.push_back(fb::CreateParam(b_, b_.CreateString(p.name), static_cast<uint8_t>(p.mode),
                                       type, p.dim.index));
    }
    std::vector<Offset<fb::Node>> nodes;
    for (const Node& n : f.nodes) nodes.push_back(WriteNode(n));
    std::vector<Offset<fb::Result>> results;
    for (const Result& r : f.results)
      results.push_back(fb::CreateResult(b_, b_.CreateString(r.name), r.value));
    const auto name = b_.CreateString(f.name);
    const auto params_at = b_.CreateVector(params);
    const auto nodes_at = b_.CreateVector(nodes);
    const auto results_at = b_.CreateVector(results);
    return fb::CreateFunction(b_, name, params_at, nodes_at, results_at);
  }

  const Module& m_;
  flatbuffers::FlatBufferBuilder b_;
  std::map<std::vector<uint32_t>, uint32_t> type_index_;
  std::vector<Offset<fb::Type>> types_;
  std::map<std::pair<std::string, uint16_t>, uint32_t> op_index_;
  std::vector<Offset<fb::OpUse>> ops_;
};

// An absent vector is read as empty.
template <typename T>
auto Items(const flatbuffers::Vector<T>* v) {
  struct Range {
    const flatbuffers::Vector<T>* v;
    auto begin() const {
      return v ? v->begin() : typename flatbuffers::Vector<T>::const_iterator(nullptr, 0);
    }
    auto end() const {
      return v ? v->end() : typename flatbuffers::Vector<T>::const_iterator(nullptr, 0);
    }
  };
  return Range{v};
}

std::string Text(const flatbuffers::String* s) { return s ? s->str() : std::string(); }

// FlatBuffers may refer to one table many times, so a small message could describe a huge module.
// So the bytes that are copied are limited to a multiple of the message's bytes.
class ModuleReader {
 public:
  ModuleReader(const fb::Module& in, size_t bytes) : in_(in), budget_(16 * bytes + 4096) {}

  StatusOr<Module> Read() {
    if (in_.format() != kProgramFormat)
      return InvalidArgument("program: expected format {}, got {}", kProgramFormat, in_.format());
    for (const auto* f : Items(in_.features())) {
      OPWIRE_RETURN_IF_ERROR(SpendOn(f));
      m_.features.push_back(f->str());
    }
    for (const auto* s : Items(in_.symbols())) {
      OPWIRE_RETURN_IF_ERROR(
          m_.dims.Symbol(s->name()->string_view(), s->lower(), s->upper(), s->multiple()).status());
    }
    for (const auto* n : Items(in_.dims())) {
      // Expressions are simplified when they are made, so handles are mapped.
      if (n->a() > dims_.size() || n->b() > dims_.size())
        return Index("dimension", std::max(n->a(), n->b()), dims_.size());
      const auto handle = [&](uint32_t i) { return i < dims_.size() ? dims_[i] : Dim{UINT32_MAX}; };
      if (n->kind() >= kDimKindCount)
        return InvalidArgument("dimension expression: unknown kind {}", n->kind());
      OPWIRE_ASSIGN_OR_RETURN(
          const Dim d, m_.dims.Make({static_cast<DimKind>(n->kind()), n->value(), handle(n->a()),
                                     handle(n->b())}));
      dims_.push_back(d);
    }
    for (const auto* t : Items(in_.types())) {
      TensorType type{static_cast<DType>(t->dtype()), static_cast<Encoding>(t->encoding()), {}};
      if (t->shape() && t->shape()->size() > kMaxRank) {
        return InvalidArgument("type {}: expected rank at most {}, got {}", types_.size(), kMaxRank,
                               t->shape()->size());
      }
      if (!IsValid(type.dtype))
        return InvalidArgument("type {}: unknown element type {}", types_.size(), t->dtype());
      if (t->encoding() >= kEncodingCount)
        return InvalidArgument("type {}: unknown encoding {}", types_.size(), t->encoding());
      for (uint32_t d : Items(t->shape())) {
        OPWIRE_ASSIGN_OR_RETURN(const Dim dim, DimAt(d));
        type.shape.push_back(dim);
      }
      types_.push_back(std::move(type));
    }
    for (const auto* b : Items(in_.blobs())) {
      OPWIRE_RETURN_IF_ERROR(Spend(b->bytes() ? b->bytes()->size() : 0));
      m_.blobs.emplace_back(
          b->bytes()
              ? std::string(reinterpret_cast<const char*>(b->bytes()->data()), b->bytes()->size())
              : "");
    }
    for (const auto* f : Items(in_.functions())) {
      OPWIRE_RETURN_IF_ERROR(ReadFunction(*f));
    }
    return std::move(m_);
  }

 private:
  static Status Index(std::string_view what, uint64_t got, size_t count) {
    return InvalidArgument("program: {} {} is not among the {} of the program", what, got, count);
  }
  StatusOr<Dim> DimAt(uint64_t i) const {
    if (i >= dims_.size()) return Index("dimension", i, dims_.size());
    return dims_[i];
  }
  StatusOr<TensorType> TypeAt(uint64_t i) const {
    if (i >= types_.size()) return Index("type", i, types_.size());
    return types_[i];
  }
  static StatusOr<DType> DTypeAt(int64_t i) {
    if (i <= 0 || i >= kDTypeCount) return InvalidArgument("attribute: unknown element type {}", i);
    return static_cast<DType>(i);
  }

  Status Spend(size_t items) {
    spent_ += items;
    if (spent_ > budget_)
      return InvalidArgument("program: its parts add up to more than {} times its bytes", 16);
    return absl::OkStatus();
  }
  template <typename... Vectors>
  Status SpendOn(const Vectors*... v) {
    return Spend((sizeof...(v) + ... + (v ? v->size() : 0)));
  }

  StatusOr<AttrValue> ReadAttr(const fb::Attr& a) {
    OPWIRE_RETURN_IF_ERROR(SpendOn(a.name(), a.s(), a.ints(), a.floats(), a.strings()));
    if (a.kind() >= kAttrKindCount)
      return InvalidArgument("attribute {}: unknown kind {}", a.name()->string_view(), a.kind());
    switch (static_cast<AttrKind>(a.kind())) {
      case AttrKind::kInt:
        return a.i();
      case AttrKind::kFloat:
        return a.f();
      case AttrKind::kBool:
        return a.i() != 0;
      case AttrKind::kString:
        return Text(a.s());
      case AttrKind::kDType:
        return DTypeAt(a.i());
      case AttrKind::kDim:
        return DimAt(static_cast<uint64_t>(a.i()));
      case AttrKind::kType:
        return TypeAt(static_cast<uint64_t>(a.i()));
      case AttrKind::kBlob:
        if (a.i() < 0 || a.i() > UINT32_MAX)
          return Index("blob", static_cast<uint64_t>(a.i()), in_.blobs() ? in_.blobs()->size() : 0);
        return BlobRef{static_cast<uint32_t>(a.i())};
      case AttrKind::kInts: {
        Ints out;
        for (int64_t i : Items(a.ints())) out.push_back(i);
        return out;
      }
      case AttrKind::kFloats: {
        Doubles out;
        for (double f : Items(a.floats())) out.push_back(f);
        return out;
      }
      case AttrKind::kBools: {
        Bools out;
        for (int64_t i : Items(a.ints())) out.push_back(i != 0);
        return out;
      }
      case AttrKind::kStrings: {
        Strings out;
        for (const auto* s : Items(a.strings())) {
          OPWIRE_RETURN_IF_ERROR(Spend(s->size()));
          out.push_back(s->str());
        }
        return out;
      }
      case AttrKind::kDTypes: {
        DTypes out;
        for (int64_t i : Items(a.ints())) {
          OPWIRE_ASSIGN_OR_RETURN(const DType t, DTypeAt(i));
          out.push_back(t);
        }
        return out;
      }
      case AttrKind::kDims: {
        Dims out;
        for (int64_t i : Items(a.ints())) {
          OPWIRE_ASSIGN_OR_RETURN(const Dim d, DimAt(static_cast<uint64_t>(i)));
          out.push_back(d);
        }
        return out;
      }
    }
    return Internal("attribute kinds");
  }

  Status ReadFunction(const fb::Function& in) {
    Function f;
    OPWIRE_RETURN_IF_ERROR(SpendOn(in.name(), in.params(), in.nodes(), in.results()));
    f.name = in.name()->str();
    for (const auto* p : Items(in.params())) {
      OPWIRE_RETURN_IF_ERROR(SpendOn(p->name()));
      Param param;
      param.name = p->name()->str();
      if (p->mode() > static_cast<uint8_t>(ParamMode::kDim))
        return InvalidArgument("parameter {}: unknown mode {}", param.name, p->mode());
      param.mode = static_cast<ParamMode>(p->mode());
      if (param.mode == ParamMode::kDim) {
        OPWIRE_ASSIGN_OR_RETURN(param.dim, DimAt(p->dim()));
      } else {
        OPWIRE_ASSIGN_OR_RETURN(param.type, TypeAt(p->type()));
      }
      f.params.push_back(std::move(param));
    }
    for (const auto* n : Items(in.nodes())) {
      Node node;
      const size_t ops = in_.ops() ? in_.ops()->size() : 0;
      if (n->op() >= ops) return Index("op", n->op(), ops);
      const fb::OpUse* use = in_.ops()->Get(n->op());
      OPWIRE_RETURN_IF_ERROR(SpendOn(use->name(), n->operands(), n->segments(), n->attrs(),
                                     n->calls(), n->results(), n->pin()));
      node.op = use->name()->str();
      node.version = use->version();
      for (int32_t v : Items(n->operands())) node.operands.push_back(v);
      for (uint32_t s : Items(n->segments())) node.segments.push_back(s);
      for (const auto* a : Items(n->attrs())) {
        OPWIRE_ASSIGN_OR_RETURN(AttrValue value, ReadAttr(*a));
        node.attrs.push_back({a->name()->str(), std::move(value)});
      }
      for (uint32_t c : Items(n->calls())) node.calls.push_back(c);
      for (uint32_t t : Items(n->results())) {
        OPWIRE_ASSIGN_OR_RETURN(TensorType type, TypeAt(t));
        node.results.push_back(std::move(type));
      }
      node.pin = Text(n->pin());
      node.location = Text(n->location());
      f.nodes.push_back(std::move(node));
    }
    for (const auto* r : Items(in.results())) {
      OPWIRE_RETURN_IF_ERROR(SpendOn(r->name()));
      f.results.push_back({r->name()->str(), r->value()});
    }
    m_.functions.push_back(std::move(f));
    return absl::OkStatus();
  }

  const fb::Module& in_;
  const size_t budget_;
  size_t spent_ = 0;
  Module m_;
  std::vector<Dim> dims_;
  std::vector<TensorType> types_;
};

}  // namespace

std::string Serialise(const Module& module) { return Writer(module).Write(); }

StatusOr<Module> Deserialise(std::span<const uint8_t> bytes) {
  // FlatBuffers reads scalars in place, so the copy is aligned. It is private, so it cannot change
  // after the check.
  std::vector<uint64_t> copy((bytes.size() + 7) / 8);
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  const auto* data = reinterpret_cast<const uint8_t*>(copy.data());
  // Tables are those of the module, its functions, their nodes and attributes. Vectors of strings
  // count as well.
  flatbuffers::Verifier verifier(data, bytes.size(), /*max_depth=*/8, /*max_tables=*/4'000'000);
  if (bytes.size() < 8 || !fb::ModuleBufferHasIdentifier(data) ||
      !fb::VerifyModuleBuffer(verifier)) {
    return InvalidArgument("program: {} bytes are not a well-formed program of format {}",
                           bytes.size(), kProgramFormat);
  }
  return ModuleReader(*fb::GetModule(data), bytes.size()).Read();
}

ProgramHash HashProgram(std::span<const uint8_t> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.low64, h.high64};
}

}  // namespace opwire
