// Keys of calls; programs with symbols for their extents.
#include "frontend/python/module/op_cache.h"

#include <algorithm>
#include <cstring>

#include "ir/program/builder.h"
#include "ir/program/serialise.h"
#include "ir/verify/verify.h"

namespace opwire::python {
namespace {

template <typename T>
void AppendRaw(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AppendAttr(std::string& key, const NamedAttr& a, const DimTable& dims) {
  key += a.name;
  key += '\0';
  AppendRaw(key, static_cast<uint8_t>(a.value.index()));
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) {
          AppendRaw(key, v.size());
          key += v;
        } else if constexpr (std::is_same_v<T, Dim>) {
          AppendRaw(key, dims.ConstantValue(v));
        } else if constexpr (std::is_same_v<T, Dims>) {
          AppendRaw(key, v.size());
          for (const Dim d : v) AppendRaw(key, dims.ConstantValue(d));
        } else if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Doubles> ||
                             std::is_same_v<T, DTypes>) {
          AppendRaw(key, v.size());
          for (const auto& e : v) AppendRaw(key, e);
        } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
                             std::is_same_v<T, bool> || std::is_same_v<T, DType>) {
          AppendRaw(key, v);
        }
      },
      a.value);
}

// Extents become symbols, equal ones the same, so that calls of other sizes share a program.
// Extents 0 and 1 stay: they broadcast, or are special otherwise.
class Symbols {
 public:
  explicit Symbols(FunctionBuilder& f) : f_(f) {}
  Extent Of(int64_t extent) {
    if (extent <= 1) return extent;
    const auto at = std::find(extents_.begin(), extents_.end(), extent);
    if (at == extents_.end()) extents_.push_back(extent);
    const auto number = static_cast<size_t>(at - extents_.begin());
    return f_.Symbol("d" + std::to_string(number), 2);
  }
  // Those that no tensor has.
  size_t known() const { return extents_.size(); }
  const std::vector<int64_t>& extents() const { return extents_; }

 private:
  FunctionBuilder& f_;
  std::vector<int64_t> extents_;
};

// A program of the call; `extents` gets the arguments for its dimension parameters. Symbolic:
// extents are symbols.
StatusOr<Module> Build(const OpCall& call, bool symbolic, std::vector<int64_t>& extents) {
  ModuleBuilder m;
  if (call.ops) m.UseOps(call.ops);
  FunctionBuilder f = m.Function(call.row->name);
  Symbols symbols(f);
  const auto extent = [&](int64_t n) { return symbolic ? symbols.Of(n) : Extent(n); };
  std::vector<Value> values;
  for (const Given& g : call.given) {
    if (g.dtype == DType::kInvalid) {
      values.push_back({});
      continue;
    }
    std::vector<Extent> shape;
    if (!g.scalar) {
      for (const int64_t n : *g.shape) shape.push_back(extent(n));
    }
    values.push_back(call.in_place && values.empty()
                         ? f.Inout("p0", g.dtype, shape)
                         : f.In("p" + std::to_string(values.size()), g.dtype, shape, g.encoding));
  }
  const size_t bound = symbols.known();
  const auto dim = [&](Dim d) {
    const Extent e = extent(call.dims.ConstantValue(d));
    return e.is_dim ? e.dim : f.dims().Constant(e.number);
  };
  std::vector<AttrArg> attrs;
  for (const NamedAttr& a : call.attrs) {
    AttrValue value = a.value;
    if (Dim* const d = std::get_if<Dim>(&value)) *d = dim(*d);
    if (Dims* const all = std::get_if<Dims>(&value)) {
      for (Dim& d : *all) d = dim(d);
    }
    attrs.emplace_back(a.name, std::move(value));
  }
  extents.assign(symbols.extents().begin() + static_cast<std::ptrdiff_t>(bound),
                 symbols.extents().end());
  for (size_t i = bound; i < symbols.extents().size(); ++i)
    f.DimParam("n" + std::to_string(i), f.Symbol("d" + std::to_string(i), 2));
  std::vector<std::vector<Value>> lists;
  if (!call.segments.empty()) {
    size_t at = 0;
    for (const uint32_t n : call.segments) {
      lists.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(at),
                         values.begin() + static_cast<std::ptrdiff_t>(at + n));
      at += n;
    }
  }
  const std::vector<Value> results = lists.empty() ? f.Ops(call.row->name, values, attrs)
                                                   : f.OpsWithLists(call.row->name, lists, attrs);
  for (size_t r = 0; r < results.size(); ++r)
    f.Return(call.in_place && r == 0 ? "p0" : "r" + std::to_string(r), results[r]);
  return m.Finish();
}

// What the program gives at the sizes of the call; nothing where it refuses them.
std::optional<std::vector<ResultType>> ResultsOf(Module& m, const OpCall& call,
                                                 const std::vector<int64_t>& extents) {
  const Function& f = m.functions[0];
  std::vector<int64_t> sizes(m.dims.symbols().size(), 0);
  size_t given = 0, extra = 0;
  for (const Param& p : f.params) {
    if (p.mode == ParamMode::kDim) {
      sizes[static_cast<size_t>(m.dims.node(p.dim).value)] = extents[extra++];
      continue;
    }
    while (call.given[given].dtype == DType::kInvalid) ++given;
    const Given& g = call.given[given++];
    for (size_t i = 0; !g.scalar && i < g.shape->size(); ++i) {
      const DimNode& d = m.dims.node(p.type.shape[i]);
      if (d.kind == DimKind::kSymbol) sizes[static_cast<size_t>(d.value)] = (*g.shape)[i];
    }
  }
  const auto typing = VerifyModule(m, {}, call.ops ? *call.ops : Catalogue());
  if (!typing.ok()) return std::nullopt;
  const DimValues values(m.dims, sizes);
  for (const DimConstraint& c : typing->functions[0].constraints) {
    const auto a = values.Get(c.a), b = values.Get(c.b);
    if (!a.ok() || !b.ok() || *a != *b) return std::nullopt;
  }
  const ValueTypes types(f);
  std::vector<ResultType> out;
  for (const Result& r : f.results) {
    const TensorType& t = *types.types[static_cast<size_t>(r.value)];
    ResultType made{t.dtype, {}};
    for (const Dim d : t.shape) {
      const auto n = values.Get(d);
      if (!n.ok()) return std::nullopt;
      made.shape.push_back(*n);
    }
    out.push_back(std::move(made));
  }
  return out;
}

bool Equal(const std::vector<ResultType>& a, const std::vector<ResultType>& b) {
  return std::ranges::equal(a, b, [](const ResultType& x, const ResultType& y) {
    return x.dtype == y.dtype && x.shape == y.shape;
  });
}

}  // namespace

StatusOr<const OpCache::Entry*> OpCache::Find(Session& session, const OpCall& call) {
  key_.clear();
  AppendRaw(key_, call.row);
  AppendRaw(key_, call.in_place);
  for (const Given& g : call.given) {
    AppendRaw(key_, static_cast<uint8_t>(static_cast<int>(g.dtype) | (g.scalar ? 64 : 0)));
    if (g.shape == nullptr) continue;
    AppendRaw(key_, g.encoding);
    AppendRaw(key_, static_cast<uint8_t>(g.shape->size()));
    for (const int64_t n : *g.shape) AppendRaw(key_, n);
  }
  for (const uint32_t n : call.segments) AppendRaw(key_, n);
  for (const NamedAttr& a : call.attrs) AppendAttr(key_, a, call.dims);
  if (const auto it = entries_.find(key_); it != entries_.end()) {
    programs_.splice(programs_.begin(), programs_, it->second.shared);
    return &it->second;
  }
  OPWIRE_ASSIGN_OR_RETURN(Entry entry, Make(session, call));
  if (entries_.size() >= kMostEntries) entries_.clear();
  return &(entries_[key_] = std::move(entry));
}

StatusOr<OpCache::Entry> OpCache::Make(Session& session, const OpCall& call) {
  Entry entry;
  entry.ops = call.ops;
  std::vector<int64_t> none;
  OPWIRE_ASSIGN_OR_RETURN(Module exact, Build(call, false, none));
  auto results = ResultsOf(exact, call, none);
  if (!results)
    return InvalidArgument("{}: the extents of its results are not known before it runs",
                           call.row->name);
  entry.results = *std::move(results);
  StatusOr<Module> general = Build(call, true, entry.extents);
  const auto same = general.ok() ? ResultsOf(*general, call, entry.extents) : std::nullopt;
  const bool suits = same && Equal(*same, entry.results);
  if (!suits) entry.extents.clear();
  OPWIRE_ASSIGN_OR_RETURN(entry.shared,
                          ProgramOf(session, suits ? *std::move(general) : std::move(exact)));
  return entry;
}

StatusOr<std::list<OpCache::Shared>::iterator> OpCache::ProgramOf(Session& session, Module module) {
  std::string bytes = Serialise(module);
  if (const auto it = by_bytes_.find(bytes); it != by_bytes_.end()) return it->second;
  OPWIRE_ASSIGN_OR_RETURN(Program program,
                          session.Load(std::move(module), {.passes = std::nullopt}));
  if (programs_.size() >= kMostPrograms) {
    const auto last = std::prev(programs_.end());
    absl::erase_if(entries_, [&](const auto& e) { return e.second.shared == last; });
    by_bytes_.erase(last->key);
    programs_.erase(last);
  }
  programs_.push_front({bytes, std::make_shared<const Program>(std::move(program))});
  by_bytes_.emplace(std::move(bytes), programs_.begin());
  return programs_.begin();
}

}  // namespace opwire::python
