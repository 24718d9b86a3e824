// Shapes and attributes for each family of ops.
#include "tests/conformance/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "tests/conformance/blocks.h"
#include "tests/conformance/harness.h"

namespace opwire::conformance {
namespace {

using Attrs = std::vector<NamedAttr>;

class Builder {
 public:
  Builder(const OpDef& row, DType type, Random& random) : row_(row), type_(type), random_(random) {}

  std::vector<Case> Take() { return std::move(cases_); }

  Tensor Of(Extents shape, Values values = Values::kPlain) {
    return Make(type_, std::move(shape), values, random_);
  }
  Tensor Of(DType type, Extents shape, Values values = Values::kPlain) {
    return Make(type, std::move(shape), values, random_);
  }
  // Returns index values in [-extent, extent). `bad` of them are outside.
  Tensor Indices(DType type, Extents shape, int64_t extent, int bad = 0) {
    Tensor t{type, shape, std::vector<Real>(Count(shape))};
    for (Real& v : t.values)
      v = extent == 0 ? 0
                      : static_cast<Real>(static_cast<int64_t>(random_() % (2 * extent)) - extent);
    const Real hostile[] = {static_cast<Real>(extent), static_cast<Real>(-extent - 1), 0x7fffffff,
                            -0x80000000LL};
    for (int i = 0; i < bad && !t.values.empty(); ++i)
      t.values[random_() % t.values.size()] = hostile[random_() % 4];
    return t;
  }
  static Tensor Scalar(DType type, Real v) { return {type, {}, {Rounded(type, v)}}; }
  Tensor Key() {
    return {DType::kU64, {2}, {static_cast<Real>(random_()), static_cast<Real>(random_())}};
  }

  Case& Add(std::vector<Tensor> operands, Attrs attrs = {}) {
    Case c;
    for (const Tensor& t : operands)
      c.name += t.dtype == DType::kInvalid
                    ? " -"
                    : fmt::format(" {}{}", DTypeName(t.dtype), ShapeToString(t.shape));
    c.operands = std::move(operands);
    c.attrs = std::move(attrs);
    cases_.push_back(std::move(c));
    return cases_.back();
  }

  void Elementwise();
  void Shape();
  void Indexing();
  void Create();
  void Reduce();
  void Sort();
  void Quant();
  void Blocks();
  void Sample();
  void Nn();
  void Linear();
  void LinearLoss();
  void Long();
  void LongLinear();
  void ScaledMatmul();
  void Attention();
  void KvAppend();
  void KvAttention();
  void Convolution();
  void Optim();
  void Rotary();

 private:
  // `mask`: 1 with a weight, 2 with a bias.
  void AddNorm(const Extents& shape, int trailing, int mask, Values values = Values::kPlain) {
    const Tensor absent;
    const Extents tail(shape.end() - trailing, shape.end());
    std::vector<Tensor> operands = {Of(shape, values)};
    if (row_.operands[1].name != "weight") operands.push_back(Of(shape));
    operands.push_back((mask & 1) != 0 ? Of(tail) : absent);
    if (row_.FindOperand("bias") > 0) operands.push_back((mask & 2) != 0 ? Of(tail) : absent);
    if (row_.name.ends_with("_backward"))
      operands.push_back(cases_.size() % 3 != 0 ? Of(shape) : absent);
    Add(std::move(operands), {{"dims", static_cast<int64_t>(trailing)}, {"eps", 1e-5}});
  }

  const OpDef& row_;
  const DType type_;
  Random& random_;
  std::vector<Case> cases_;
};

const Extents kShapes[] = {{}, {1}, {0}, {7}, {10}, {17}, {64}, {129}, {3, 5}, {2, 0, 3}, {33, 40}};

void Builder::Elementwise() {
  const int arity = static_cast<int>(row_.operands.size());
  const auto operand = [&](int i, Extents shape, Values values) {
    return Of(row_.operands[i].type == "bool" ? DType::kBool : type_, std::move(shape), values);
  };
  const auto add = [&](const std::vector<Extents>& shapes, Values values, const Attrs& attrs) {
    std::vector<Tensor> operands;
    for (int i = 0; i < arity; ++i)
      operands.push_back(operand(i, shapes[i % shapes.size()], values));
    Add(std::move(operands), attrs);
  };
  // Enough elements for several ranges, for one type of each width of a vector's lanes.
  const bool large = type_ == DType::kF32 || type_ == DType::kBF16 || type_ == DType::kI64 ||
                     type_ == DType::kBool;
  std::vector<Attrs> all_attrs = {{}};
  if (row_.name == "cast") {
    all_attrs.clear();
    for (int t = 1; t < kDTypeCount; ++t) all_attrs.push_back({{"dtype", static_cast<DType>(t)}});
    all_attrs.push_back({{"dtype", DType::kF8E4M3}, {"saturate", true}});
    all_attrs.push_back({{"dtype", DType::kF8E5M2}, {"saturate", true}});
  }
  for (const Attrs& attrs : all_attrs) {
    for (const Extents& shape : kShapes) add({shape}, Values::kPlain, attrs);
    add({{300}}, Values::kSpecial, attrs);
    if (large && row_.name != "cast") add({{16500}}, Values::kSpecial, attrs);
  }
  if (arity == 1) return;
  const std::vector<Extents> broadcasts[] = {
      {{33, 40}, {40}},    {{40}, {33, 40}}, {{33, 40}, {33, 1}}, {{33, 1}, {1, 40}},
      {{4, 1, 5}, {3, 1}}, {{17}, {}},       {{}, {17}},          {{0, 3}, {3}}};
  for (const auto& shapes : broadcasts) add(shapes, Values::kSpecial, {});
  if (!large) return;
  add({{8500, 2}, {2}}, Values::kSpecial, {});
  add({{3, 6000}, {3, 1}}, Values::kSpecial, {});
}

void Builder::Shape() {
  const std::string& op = row_.name;
  if (op == "reshape") {
    for (const Ints& to : {Ints{6, 4}, Ints{24}, Ints{2, 3, 2, 2}})
      Add({Of({4, 6}, Values::kSpecial)}, {{"shape", to}});
    Add({Of({0, 3})}, {{"shape", Ints{3, 0}}});
    Add({Of({1})}, {{"shape", Ints{}}});
  } else if (op == "recompute") {
    for (const Ints& shape : {Ints{4, 6}, Ints{}, Ints{0, 3}, Ints{37}})
      Add({Of(shape, Values::kSpecial)});
  } else if (op == "permute") {
    for (const Ints& dims : {Ints{1, 0}, Ints{0, 1}, Ints{-1, -2}})
      Add({Of({37, 70}, Values::kSpecial)}, {{"dims", dims}});
    for (const Ints& dims : {Ints{2, 0, 1}, Ints{1, 0, 2}, Ints{2, 1, 0}, Ints{0, 2, 1}})
      Add({Of({3, 17, 20})}, {{"dims", dims}});
    Add({Of({2, 3, 4, 5})}, {{"dims", Ints{0, 2, 1, 3}}});
    Add({Of({0, 3})}, {{"dims", Ints{1, 0}}});
    Add({Of({})}, {{"dims", Ints{}}});
    for (const Extents& shape : {Extents{200, 300}, Extents{72, 136}, Extents{301, 261}})
      Add({Of(shape)}, {{"dims", Ints{1, 0}}});
  } else if (op == "expand") {
    Add({Of({3, 1}, Values::kSpecial)}, {{"shape", Ints{2, 3, 40}}});
    Add({Of({40})}, {{"shape", Ints{30, 40}}});
    Add({Of({})}, {{"shape", Ints{5, 7}}});
    Add({Of({1, 3})}, {{"shape", Ints{0, 3}}});
  } else if (op == "cat") {
    for (int64_t dim : {0, 1, -1}) {
      std::vector<Tensor> xs;
      for (int64_t extent : {3, 0, 40})
        xs.push_back(Of(dim == 0 ? Extents{extent, 5} : Extents{5, extent}, Values::kSpecial));
      Add(std::move(xs), {{"dim", dim}}).segments = {3};
    }
    Add({Of({4, 3, 2})}, {{"dim", int64_t{1}}}).segments = {1};
  } else if (op == "tile") {
    Add({Of({3, 5}, Values::kSpecial)}, {{"repeats", Ints{2, 3}}});
    Add({Of({3, 5})}, {{"repeats", Ints{4}}});
    Add({Of({3})}, {{"repeats", Ints{2, 1, 2}}});
    Add({Of({3})}, {{"repeats", Ints{0}}});
    Add({Of({2, 3, 5})}, {{"repeats", Ints{2, 3, 1}}});
    Add({Of({2, 1, 5})}, {{"repeats", Ints{3, 2, 2, 4}}});
    Add({Of({3, 5})}, {{"repeats", Ints{1, 1}}});
  } else if (op == "slice") {
    const auto add = [&](DType index, int64_t start, int64_t dim, int64_t length, int64_t step) {
      Case& c = Add({Of({12, 9}, Values::kSpecial), Scalar(index, static_cast<Real>(start))},
                    {{"dim", dim}, {"step", step}});
      c.attrs.push_back({"length", c.dims->Constant(length)});
    };
    add(DType::kI64, 2, 0, 5, 1);
    add(DType::kI32, -4, 1, 4, 1);
    add(DType::kI64, 1, -1, 4, 2);
    add(DType::kI64, 10, 0, 5, 1);  // runs past the end
    add(DType::kI64, 12, 0, 1, 1);  // begins past the end
    add(DType::kI32, -13, 0, 2, 1);
    add(DType::kI64, int64_t{1} << 62, 0, 3, 1);
    add(DType::kI64, 0, 0, 0, 1);
    add(DType::kI64, 6, 0, 4, 3);  // strided past the end
    add(DType::kI64, 8, 1, 1, 5);
    add(DType::kI64, 5, 1, 3, 2);  // single elements, past the end
  } else if (op == "slice_update") {
    const auto add = [&](DType index, Extents x, Extents v, std::vector<Real> starts, Ints steps) {
      Tensor at{index, {static_cast<int64_t>(starts.size())}, std::move(starts)};
      Add({Of(std::move(x), Values::kSpecial), Of(std::move(v)), std::move(at)},
          {{"steps", std::move(steps)}});
    };
    add(DType::kI64, {12, 9}, {5, 9}, {2, 0}, {});    // one run
    add(DType::kI32, {12, 9}, {5, 4}, {-8, -9}, {});  // runs
    add(DType::kI64, {12, 9}, {12, 1}, {0, -1}, {});  // a column
    add(DType::kI64, {12, 9}, {1, 1}, {11, 8}, {7, 3});
    add(DType::kI64, {12, 9}, {12, 9}, {0, 0}, {});  // all
    add(DType::kI64, {12, 9}, {12, 9}, {0, 1}, {});  // past the end
    add(DType::kI32, {12, 9}, {3, 4}, {1, 2}, {5, 2});
    add(DType::kI64, {12, 9}, {3, 4}, {1, 3}, {5, 2});  // strided past the end
    add(DType::kI64, {12, 9}, {1, 1}, {-13, 0}, {});
    add(DType::kI64, {12, 9}, {0, 4}, {99, 0}, {});  // nothing is set, so no index is outside
    add(DType::kI64, {3, 4, 5, 6}, {2, 4, 2, 6}, {1, 0, 3, 0}, {});
    add(DType::kI64, {1, 7}, {1, 3}, {0, 0}, {1, 3});
    add(DType::kI64, {}, {}, {}, {});
    add(DType::kI64, {200, 300}, {100, 300}, {50, 0}, {2, 1});
  } else if (op == "index_put") {
    const auto add = [&](Extents x, int64_t dim, Extents shape,
                         std::vector<std::vector<Real>> places, DType type = DType::kI64) {
      std::vector<Tensor> operands = {Of(x, Values::kSpecial)};
      const uint32_t axes = static_cast<uint32_t>(places.size());
      Extents src = x;
      src.erase(src.begin() + dim, src.begin() + dim + std::ssize(places));
      src.insert(src.begin() + dim, shape.begin(), shape.end());
      operands.push_back(Of(std::move(src)));
      for (std::vector<Real>& p : places) operands.push_back({type, shape, std::move(p)});
      Add(std::move(operands), {{"dim", dim}}).segments = {1, 1, axes};
    };
    add({9}, 0, {4}, {{3, -1, 0, 7}});
    add({9}, 0, {6}, {{3, 3, -1, 8, 3, 8}}, DType::kI32);  // the last of several
    add({9, 5}, 0, {2, 2}, {{8, -9, 4, 8}});
    add({4, 6, 5}, 1, {3}, {{5, 1, -6}});
    add({4, 6, 5}, 1, {3}, {{5, 6, -6}});                    // past the end: nothing is set
    add({4, 6, 5}, 0, {4}, {{1, -1, 1, 3}, {0, 5, 0, -1}});  // two axes
    add({4, 6, 5}, 0, {3}, {{1, 4, 0}, {0, 9, 5}});          // the first of both
    add({3, 4, 5}, 0, {2}, {{2, 0}, {3, -4}, {0, 1}}, DType::kI32);
    add({7, 8}, 0, {}, {{5}});
    add({7, 8}, 1, {0}, {{}});
    add({0, 8}, 1, {2}, {{9, 9}});
    std::vector<Real> many(900), all(900);
    for (size_t i = 0; i < many.size(); ++i) {
      many[i] = static_cast<Real>(i * 7919 % 150) * 11;
      all[i] = static_cast<Real>(i * 7919 % 900);
    }
    add({3000}, 0, {900}, {many});  // a few of many positions, each six times
    add({900, 8}, 0, {900}, {all}, DType::kI32);
    add({2, 20000}, 0, {1}, {{1}});  // a long row
  }
}

void Builder::Indexing() {
  const std::string& op = row_.name;
  for (const DType index : {DType::kI64, DType::kI32}) {
    for (const int bad : {0, 2}) {
      if (op == "index_select") {
        for (int64_t dim : {0, 1, -1})
          Add({Of({4, 6, 5}, Values::kSpecial), Indices(index, {7},
                                                        dim == 0   ? 4
                                                        : dim == 1 ? 6
                                                                   : 5,
                                                        bad)},
              {{"dim", dim}});
        Add({Of({6, 40}), Indices(index, {3, 4}, 6, bad)}, {{"dim", int64_t{0}}});
        Add({Of({6, 40}), Indices(index, {}, 6, bad)}, {{"dim", int64_t{0}}});
      } else if (op == "embedding") {
        Add({Of({9, 33}, Values::kSpecial), Indices(index, {5, 6}, 9, bad)});
        Add({Of({9, 1}), Indices(index, {0}, 9)});
        Add({Of({50, 100}), Indices(index, {700}, 50, bad)});
      } else if (op == "embedding_backward") {
        const auto add = [&](Extents places, int64_t rows, int64_t columns, int wrong) {
          Extents grad = places;
          grad.push_back(columns);
          Case& c = Add({Of(std::move(grad)), Indices(index, std::move(places), rows, wrong)});
          c.attrs = {{"rows", c.dims->Constant(rows)}};
        };
        add({5, 6}, 9, 33, bad);
        add({}, 9, 1, bad);
        add({0}, 9, 5, 0);
        add({4}, 0, 5, 0);
        add({700}, 50, 104, bad);
        add({2500}, 3, 8, bad);   // several batches of indices, many spans of a row
        add({20}, 4, 2100, bad);  // several blocks of columns
        add({17}, 1, 24, bad);    // one more than a span, of one row
        add({16}, 1, 3, 0);
        add({1100}, 1, 7, bad);  // more spans of a row than are joined at a time
        add({600}, 1300, 16,
            bad);  // several blocks that group; most of them find one position or none
        add({2049}, 40, 1, bad);
        Case& none = Add({Of({40, 8}), Indices(index, {40}, 5)});  // no position names a row
        none.attrs = {{"rows", none.dims->Constant(5)}};
        for (Real& v : none.operands[1].values) v = 5;
      } else if (op == "gather") {
        for (int64_t dim : {0, -1})
          Add({Of({5, 6}, Values::kSpecial), Indices(index, {4, 6}, dim == 0 ? 5 : 6, bad)},
              {{"dim", dim}});
        Add({Of({5, 1000}), Indices(index, {5, 900}, 1000, bad)}, {{"dim", int64_t{1}}});
        Add({Of({3, 4, 5, 6}), Indices(index, {2, 9, 4, 5}, 4, bad)}, {{"dim", int64_t{1}}});
        Add({Of({3, 20000}), Indices(index, {7, 20000}, 3, bad)}, {{"dim", int64_t{0}}});
      } else if (op == "scatter_add") {
        for (int64_t dim : {0, -1}) {
          Add({Of({5, 6}), Indices(index, {4, 6}, dim == 0 ? 5 : 6, bad), Of({8, 7})},
              {{"dim", dim}});
        }
        Add({Of({3}), Indices(index, {50}, 3, bad), Of({50})}, {{"dim", int64_t{0}}});
        Add({Of({3, 4, 150}), Indices(index, {2, 9, 140}, 4, bad), Of({3, 9, 140})},
            {{"dim", int64_t{1}}});
        Add({Of({4, 40}), Indices(index, {0, 40}, 4), Of({0, 40})}, {{"dim", int64_t{0}}});
      } else if (op == "choose") {
        const DType content =
            type_;  // the first type variable is the case's; xs take each type in turn below
        if (content != index) continue;
        for (DType t : {DType::kF32, DType::kBF16, DType::kI64, DType::kBool}) {
          Add({Indices(index, {4, 9}, 3, bad), Of(t, {4, 9}, Values::kSpecial), Of(t, {4, 9}),
               Of(t, {4, 9})})
              .segments = {1, 3};
        }
      } else if (op == "one_hot") {
        if (type_ != index) continue;
        for (int t = 1; t < kDTypeCount; ++t) {
          Case& c = Add({Indices(index, {3, 7}, 11, bad)}, {{"dtype", static_cast<DType>(t)}});
          c.attrs.push_back({"classes", c.dims->Constant(11)});
        }
      }
    }
  }
}

void Builder::Create() {
  const std::string& op = row_.name;
  if (op == "zeros") {
    for (const Extents& shape : kShapes) Add({}, {{"shape", Ints(shape)}, {"dtype", type_}});
  } else if (op == "full") {
    for (double v : {0.0, -3.75, 1e30, std::numeric_limits<double>::quiet_NaN(), 7.0})
      Add({}, {{"shape", Ints{5, 7}}, {"value", v}, {"dtype", type_}});
  } else if (op == "values") {
    Add({}, {{"value", Doubles{1, -2.5, 300, 1e20, 0}}, {"dtype", type_}});
    Add({}, {{"value", Doubles{}}, {"dtype", type_}});
  } else if (op == "constant") {
    const Tensor t = Of({3, 5}, Values::kSpecial);
    Case& c = Add({}, {});
    c.blob.resize(t.elements() * DTypeBytes(type_));
    for (int64_t i = 0; i < t.elements(); ++i)
      Encode(type_, t.values[i], c.blob.data() + i * DTypeBytes(type_));
    c.attrs = {
        {"type", TensorType{type_, Encoding::kDense, {c.dims->Constant(3), c.dims->Constant(5)}}},
        {"value", BlobRef{0}}};
  } else if (op == "arange") {
    for (int64_t length : {0, 1, 10, 1000}) {
      Case& c = Add({Scalar(type_, 3), Scalar(type_, IsFloat(type_) ? -0.75L : 2)});
      c.attrs = {{"length", c.dims->Constant(length)}};
    }
  } else if (op == "dropout") {
    for (Real p : {0.0L, 0.25L, 1.0L}) {
      for (const Extents& shape :
           {Extents{}, Extents{0}, Extents{7}, Extents{33, 40}, Extents{16500}}) {
        Add({Of(shape), Scalar(DType::kF32, p), Key()}, {{"site", int64_t{5}}});
      }
    }
  } else {  // uniform, normal
    for (const Extents& shape :
         {Extents{}, Extents{0}, Extents{7}, Extents{33, 40}, Extents{16500}}) {
      Add({Key(), Scalar(type_, -1), Scalar(type_, 2.5L)},
          {{"shape", Ints(shape)}, {"site", int64_t{-3}}});
    }
  }
}

void Builder::Reduce() {
  const std::string& op = row_.name;
  const bool arg = op == "argmax" || op == "argmin", extreme = arg || op == "amax" || op == "amin";
  const Values values = extreme ? Values::kSpecial : op == "prod" ? Values::kUnit : Values::kPlain;
  if (op == "cumsum" || arg) {
    for (int64_t dim : {0, 1, -1}) {
      for (const Values v : {Values::kPlain, values}) {
        for (const Extents& shape : {Extents{5, 17, 3}, Extents{1, 1}, Extents{40, 200}}) {
          Attrs attrs = {{"dim", dim}};
          if (arg) attrs.push_back({"keepdim", dim == 1});
          Add({Of(shape, v)}, attrs);
        }
      }
    }
    Add({Of({0, 3})}, {{"dim", int64_t{1}}});
    for (const Extents& shape : {Extents{33000}, Extents{17, 900}}) {  // several parts; many rows
      Attrs attrs = {{"dim", int64_t{-1}}};
      if (arg) attrs.push_back({"keepdim", false});
      Add({Of(shape, values)}, attrs);
    }
    if (!arg) Add({Of({300, 300})}, {{"dim", int64_t{0}}});
    return;
  }
  for (const Values v : {Values::kPlain, values}) {
    if (op == "prod" && v == Values::kPlain && IsFloat(type_)) continue;
    for (const Ints& dims :
         {Ints{}, Ints{0}, Ints{-1}, Ints{1}, Ints{0, 1}, Ints{1, 2}, Ints{0, 2}}) {
      Add({Of({5, 17, 9}, v)}, {{"dims", dims}, {"keepdim", dims.size() == 1}});
    }
    for (const Ints& dims : {Ints{0}, Ints{1}}) Add({Of({130, 150}, v)}, {{"dims", dims}});
    for (const Extents& shape : {Extents{}, Extents{1}, Extents{1000}}) Add({Of(shape, v)});
    Add({Of({3, 2000}, v)}, {{"dims", Ints{1}}});
    if (op != "prod") Add({Of({20011}, v)});
    Add({Of({op == "prod" ? 130 : 5000, 33}, v)}, {{"dims", Ints{0}}});  // several parts of columns
    if (op != "prod")
      Add({Of({2, 400, 1003}, v)}, {{"dims", Ints{1}}});  // many columns; no two are aligned alike
  }
  Add({Of({0, 3})}, {{"dims", Ints{1}}});
  if (!extreme) Add({Of({3, 0})}, {{"dims", Ints{1}}});
}

// Slices of one block's memory on GPUs and of several parts; many equal elements, and slices that
// are already sorted.
void Builder::Sort() {
  const bool topk = row_.name == "topk";
  const auto add = [&](Tensor x, int64_t dim, bool descending, int64_t k) {
    Case& c = Add({std::move(x)}, {{"dim", dim}, {topk ? "largest" : "descending", descending}});
    if (topk) c.attrs.push_back({"k", c.dims->Constant(k)}), c.name += fmt::format(" k {}", k);
  };
  const auto few = [&](Extents shape, uint64_t kinds) {
    Tensor x = Of(std::move(shape));
    for (Real& v : x.values) v = static_cast<Real>(random_() % (type_ == DType::kBool ? 2 : kinds));
    return x;
  };
  const auto ordered = [&](int64_t n, bool upwards) {
    Tensor x = Of({n});
    for (int64_t i = 0; i < n; ++i)
      x.values[static_cast<size_t>(i)] =
          static_cast<Real>((upwards ? i : n - 1 - i) * (type_ == DType::kBool ? 2 : 120) / n);
    return x;
  };
  for (const bool descending : {false, true}) {
    for (const int64_t dim : {0, 1, -1}) {
      for (const Values v : {Values::kPlain, Values::kSpecial}) {
        for (const Extents& shape : {Extents{5, 17, 3}, Extents{1, 1}, Extents{40, 200}})
          add(Of(shape, v), dim, descending,
              v == Values::kPlain
                  ? 1
                  : std::min<int64_t>(shape[dim < 0 ? shape.size() - 1 : static_cast<size_t>(dim)],
                                      7));
      }
    }
    add(Of({300, 2}, Values::kSpecial), 0, descending, 300);
    add(Of({2, 2048}, Values::kSpecial), 1, descending, 2048);
    add(Of({2, 2049}, Values::kSpecial), 1, descending, 100);
    add(Of({3000, 3}, Values::kSpecial), 0, descending, 2500);
    add(few({9000}, 2), 0, descending, 600);
    add(few({2, 5000}, 40), -1, descending, 3);
  }
  add(ordered(9000, true), 0, true, 130);
  add(ordered(9000, false), 0, false, 130);
  if (type_ == DType::kF32 || type_ == DType::kBF16) {
    add(Of({70000}, Values::kSpecial), 0, false, 5000);
    if (topk || row_.name == "sort")
      add(Of({270000}, Values::kSpecial), 0, true, 50);  // several parts on the CPU
  }
  add(Of({0, 3}), 1, false, 2);
  add(Of({3, 0}), 1, false, 0);
  add(Of({3, 4}), 1, false, 0);
}

// Groups of few lanes, of a warp, of a block and of several chunks. Also groups without elements,
// of equal elements, and with the ends of the range.
void Builder::Quant() {
  const bool back = row_.name == "dequantize";
  const auto add = [&](const Extents& shape, int64_t group, int64_t bits, bool symmetric,
                       Values values) {
    const Attrs way = {{"bits", bits}, {"symmetric", symmetric}};
    if (!back) {
      Case& c = Add({Of(shape, values)}, way);
      c.attrs.push_back({"group_size", group});
      c.name += fmt::format(" by {} to {} bits {}", group, bits, symmetric);
      return;
    }
    if ((bits == 4) != (type_ == DType::kU8)) return;
    Extents packed = shape, params = shape;
    packed.back() /= 8 / bits;
    params.back() = group == 0 ? 1 : shape.back() / group;
    params.push_back(symmetric ? 1 : 2);
    for (const DType y : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
      for (const DType p : {DType::kF64, DType::kF32}) {
        if (shape[0] > 10000 && y != p) continue;
        Case& c = Add({Of(packed, Values::kSpecial), Of(p, params, values)}, way);
        c.attrs.push_back({"dtype", y});
        c.name += fmt::format(" to {}", DTypeName(y));
      }
    }
  };
  for (const int64_t bits : {8, 4}) {
    for (const bool symmetric : {true, false}) {
      for (const Values v : {Values::kPlain, Values::kSpecial}) {
        add({3, 64}, 32, bits, symmetric, v);
        add({5, 3, 70}, 14, bits, symmetric, v);
        add({2, 600}, 200, bits, symmetric, v);
        add({700}, 2, bits, symmetric, v);
        add({3, 2000}, 1000, bits, symmetric, v);
        add({2, 5002}, 0, bits, symmetric, v);
      }
      add({70006}, 0, bits, symmetric, Values::kPlain);
      add({0, 8}, 4, bits, symmetric, Values::kPlain);
      if (!back) add({3, 0}, 0, bits, symmetric, Values::kPlain);
    }
  }
  if (back) return;
  for (const bool symmetric : {true, false}) {  // one number per group: zeros of both signs, and
                                                // numbers that are too small or too large to divide
                                                // by
    Case& c = Add({{type_, {12, 2}, {0, -0.0L, -0.0L, -0.0L, 3, 3, -3, -3}}},
                  {{"group_size", int64_t{2}}, {"symmetric", symmetric}});
    std::vector<Real>& x = c.operands[0].values;
    for (const Real v : {Ulp(type_, 0), Largest(type_), static_cast<Real>(INFINITY)})
      x.insert(x.end(), {v, v, -v, v});
    x.insert(x.end(), {NAN, 1, -2, NAN});
  }
}

// One block and several blocks in a row, of all encodings. Shapes with rows of weights in addition
// to whole panels, rows of x in addition to whole tiles, and more elements than are unpacked at a
// time.
void Builder::Blocks() {
  const auto add = [&](std::vector<Tensor> operands, Attrs attrs, Encoding encoding) {
    Add(std::move(operands), std::move(attrs)).name += fmt::format(" {}", EncodingName(encoding));
  };
  for (const Encoding encoding :
       {Encoding::kQ4_0, Encoding::kQ4_1, Encoding::kQ8_0, Encoding::kQ6_K}) {
    const int64_t block = LayoutOf(DType::kI8, encoding).elements;
    if (row_.name == "dequantize_blocks") {
      for (const Extents& shape : {Extents{block}, Extents{3, 2 * block}, Extents{2, 3, 5 * block},
                                   Extents{0, block}, Extents{40, 4 * block}})
        for (const Values values : {Values::kPlain, Values::kSpecial})
          add({MakeBlocks(encoding, shape, values, random_)}, {{"dtype", type_}}, encoding);
    } else if (row_.name == "quantized_embedding") {
      for (const DType y : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
        const Tensor weight = MakeBlocks(encoding, {19, 3 * block}, Values::kPlain, random_);
        for (const Extents& shape : {Extents{}, Extents{7}, Extents{4, 33}, Extents{0}})
          for (const int bad : {0, 2})
            add({weight, Indices(type_, shape, 19, bad)}, {{"dtype", y}}, encoding);
        add({MakeBlocks(encoding, {0, block}, Values::kPlain, random_), Indices(type_, {2}, 0)},
            {{"dtype", y}}, encoding);
      }
    } else {
      const auto product = [&](Extents x, int64_t n, bool bias, Values values = Values::kPlain) {
        Tensor weight = MakeBlocks(encoding, {n, x.back()}, Values::kPlain, random_);
        add({Of(std::move(x), values), std::move(weight), bias ? Of({n}) : Tensor()}, {}, encoding);
      };
      for (const int64_t m : {1, 2, 3, 4, 5, 8, 12, 13, 40})
        product({m, (1 + m % 5) * block}, m % 3 == 0 ? 33 : 1 + m, m % 2 == 0);
      product({2, 3, 18 * 256}, 16, true);
      product({256, 256}, 5, false);
      product({9 * 256}, 17, true);
      product({530, block}, 3, true);
      product({14, 1280}, 35, false);
      product({3, 544 / 32 * block}, 5, false);
      product({0, block}, 4, true);
      product({2, block}, 0, false);
      product({3, 2 * block}, 4, false);
      cases_.back().operands[0].values[static_cast<size_t>(block)] = NAN;
      product({13, 2 * block}, 4, false);
      cases_.back().operands[0].values[static_cast<size_t>(block)] = NAN;
      product({2, 2 * block}, 4, false);
      std::ranges::fill(cases_.back().operands[0].values, 0);
      product({2, 2 * block}, 4, false);
      for (Real& v : cases_.back().operands[0].values)
        v = Rounded(type_, std::ldexp(v, type_ == DType::kF16 ? -20 : -130));
    }
  }
}

// Each way to keep tokens alone, and all together; equal logits, NaN and infinities; one token.
void Builder::Sample() {
  const Tensor absent;
  const auto add = [&](Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p) {
    Add({std::move(logits), Key(), std::move(temperature), std::move(top_k), std::move(top_p)},
        {{"site", static_cast<int64_t>(random_() % 5)}});
  };
  const auto of = [&](DType type, Extents shape, std::vector<Real> choices) {
    Tensor t{type, shape, std::vector<Real>(Count(shape))};
    for (Real& v : t.values) v = Rounded(type, choices[random_() % choices.size()]);
    return t;
  };
  for (const Values v : {Values::kPlain, Values::kSpecial}) {
    for (const Extents& shape :
         {Extents{5, 1}, Extents{40, 33}, Extents{9, 1000}, Extents{2, 5003}}) {
      const Extents rows = {shape[0]};
      const Tensor k = of(DType::kI64, rows, {1, 3, 20, -2, 0, static_cast<Real>(shape[1]), 1e9L}),
                   p = of(DType::kF32, rows, {0.5L, 0.9L, 0, -1, 1, 2, 0.01L, NAN});
      const Tensor t = of(DType::kF32, rows, {1, 0.25L, 3, 0, -1, NAN, 1e-30L, INFINITY});
      add(Of(shape, v), absent, absent, absent);
      add(Of(shape, v), t, absent, absent);
      add(Of(shape, v), absent, k, absent);
      add(Of(shape, v), absent, absent, p);
      add(Of(shape, v), t, k, p);
      add(Of(shape, v), Scalar(DType::kF32, 0.7L), Scalar(DType::kI32, 10),
          Scalar(DType::kF32, 0.8L));
      add(of(type_, shape, {1, 2, 2.5L}), absent, k, p);
    }
  }
  for (const Real x :
       {static_cast<Real>(NAN), static_cast<Real>(-INFINITY), static_cast<Real>(INFINITY)}) {
    add(of(type_, {6, 50}, {x}), absent, Scalar(DType::kI64, 20), absent);
    add(of(type_, {6, 50}, {x, 0, -0.0L}), absent, absent, Scalar(DType::kF32, 0.6L));
  }
  add(Of({0, 7}), absent, absent, absent);
}

void Builder::Nn() {
  const std::string& op = row_.name;
  if (op.ends_with("softmax_backward")) {
    const auto add = [&](const Extents& shape, int64_t dim) -> Case& {
      return Add({Of(shape), Of(shape)}, {{"dim", dim}});
    };
    for (int64_t dim : {0, 1, -1}) add({5, 17, 9}, dim);
    for (const Extents& shape :
         {Extents{1}, Extents{0, 4}, Extents{33, 100}, Extents{3, 2000}, Extents{40, 768}})
      add(shape, -1);
    add({2, 100, 150}, 1);
    add({3, 300, 10}, 1);
    if (type_ == DType::kF32)
      add({2, 20000}, -1), add({9, 16500},
                               -1);     // longer than a GPU's block holds: few rows in chunks, many
                                        // rows with one per block
    for (const int64_t dim : {0, 1}) {  // masked elements; a NaN affects only its own slices
      Case& c = add({9, 33}, dim);
      for (size_t i = 0; i < c.operands[1].values.size(); i += 5)
        c.operands[1].values[i] = op.starts_with("log") ? -INFINITY : 0;
      c.operands[0].values[40] = NAN;
      c.operands[1].values[70] = NAN;
    }
  } else if (row_.family == "softmax") {
    for (int64_t dim : {0, 1, -1}) Add({Of({5, 17, 9})}, {{"dim", dim}});
    for (const Extents& shape : {Extents{1}, Extents{0, 4}, Extents{33, 100}, Extents{3, 2000},
                                 Extents{2, 5003}, Extents{3, 8192}})
      Add({Of(shape)});
    Add({Of({9, 33}, Values::kSpecial)});
    Add({Of({50, 10}, Values::kSpecial)});  // short rows, more than are reduced at once
    Add({Of({9, 33}, Values::kSpecial)}, {{"dim", int64_t{0}}});
    Add({Of({2, 100, 150})}, {{"dim", int64_t{1}}});
    if (type_ == DType::kF32)
      Add({Of({2, 20000})}), Add({Of({5, 20001})});  // longer than a GPU's block holds in registers
  } else if (row_.family == "norm") {
    for (const auto& [shape, trailing] : {std::pair{Extents{6, 33}, 1},
                                          {Extents{3, 4, 10}, 2},
                                          {Extents{2, 1}, 1},
                                          {Extents{0, 8}, 1},
                                          {Extents{9, 512}, 1},
                                          {Extents{40, 768}, 1}}) {
      for (int mask = 0; mask < (row_.FindOperand("bias") > 0 ? 4 : 2); ++mask) {
        AddNorm(shape, trailing, mask);
      }
    }
    if (DTypeBytes(type_) ==
        2) {  // more than a GPU's warp holds; the rows of the first begin in the middle of vectors
      for (const int64_t columns : {5003, 8192}) AddNorm({2, columns}, 1, 3);
    }
    // Several such rows per block of a GPU, with an odd number of 32 threads for each row.
    if (DTypeBytes(type_) <= 4 && !op.starts_with("add_") && !op.ends_with("_backward"))
      AddNorm({35, 4703}, 1, 3);
    for (const Extents& shape : {Extents{9, 512}, Extents{2, 8200}})
      AddNorm(shape, 1, 1, Values::kUnit);  // far from 0 relative to its spread
    if (type_ == DType::kF32) {  // longer than a GPU's block holds: few rows in chunks, many rows
                                 // with one per block
      AddNorm({2, 20000}, 1, 1);
      if (!op.ends_with("_backward")) AddNorm({5, 20001}, 1, 3);
      if (op.starts_with("add_") || op.ends_with("_backward")) AddNorm({9, 16500}, 1, 0);
    }
    if (op.ends_with("_backward")) {
      AddNorm({300, 40}, 1, 1);  // several blocks of rows
      AddNorm({650, 24}, 1, 1);  // groups walk these in turns; groups of few lanes, of a warp whose
                                 // last lanes have no columns, and of a block
      AddNorm({1, 256}, 1, 0);
      for (const int64_t columns : {104, 768, 776, 1024, 1032, 4096, 4104})
        AddNorm({columns > 1000 ? 7 : 67, columns}, 1, static_cast<int>(columns / 8 % 2));
    }
  } else if (op == "matmul") {
    const std::pair<Extents, Extents> shapes[] = {
        {{1, 1}, {1, 1}},           {{5, 7}, {7, 3}},
        {{33, 17}, {17, 40}},       {{0, 4}, {4, 3}},
        {{4, 0}, {0, 3}},           {{70, 65}, {65, 90}},
        {{2, 5, 6}, {6, 4}},        {{3, 1, 5, 6}, {2, 6, 4}},
        {{1, 70}, {70, 33}},        {{5, 6}, {2, 6, 70}},
        {{4, 64, 64}, {4, 64, 64}}, {{0, 3, 4}, {4, 5}},
        {{600, 7}, {7, 9}},         {{3, 2, 5, 66}, {3, 1, 66, 9}},
        {{2, 4136}, {4136, 5}},     {{1, 64}, {2, 64, 11}},
        {{2, 3, 1, 99}, {3, 99, 1}}};
    for (const auto& [x, y] : shapes) {
      for (int mask = 0; mask < 4; ++mask) {
        Extents a = x, b = y;
        if ((mask & 1) != 0) std::swap(a[a.size() - 2], a.back());
        if ((mask & 2) != 0) std::swap(b[b.size() - 2], b.back());
        Add({Of(a), Of(b)}, {{"transpose_x", (mask & 1) != 0}, {"transpose_y", (mask & 2) != 0}});
      }
    }
  } else {
    for (const char* reduction : {"mean", "sum", "none"}) {
      for (const DType index : {DType::kI64, DType::kI32}) {
        for (int bad : {0, 2}) {
          for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{7, 11},
                                              {1, 1},
                                              {40, 300},
                                              {150, 32},
                                              {0, 5},
                                              {3, 9000},
                                              {2, 5003}}) {
            if (classes > 1000 && (index == DType::kI64 || std::string_view(reduction) == "sum"))
              continue;
            Tensor target = Indices(index, {rows}, classes, bad);
            for (Real& v : target.values) v = bad == 0 ? std::fabs(v + 0.5L) - 0.5L : v;
            if (rows > 2) target.values[rows / 2] = -100;
            std::vector<Tensor> operands = {Of({rows, classes}), std::move(target)};
            if (op != "cross_entropy")
              operands.insert(
                  operands.begin(),
                  Of(std::string_view(reduction) == "none" ? Extents{rows} : Extents{}));
            Add(std::move(operands), {{"reduction", std::string(reduction)}});
          }
        }
      }
    }
  }
}

// Every pair of types; one scale for all and one for each row or column; one matrix for several
// others. Depths are multiples of sixteen, as libraries require, and other numbers.
void Builder::ScaledMatmul() {
  const std::pair<Extents, Extents> shapes[] = {{{1, 1}, {1, 1}},          {{33, 17}, {17, 40}},
                                                {{0, 4}, {4, 3}},          {{4, 0}, {0, 3}},
                                                {{3, 1, 5, 6}, {2, 6, 4}}, {{3, 5, 16}, {16, 32}},
                                                {{70, 64}, {64, 96}},      {{17, 272}, {272, 16}}};
  for (const DType other : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const DType to : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const auto& [x, y] : shapes) {
        const bool sixteens = y.back() % 16 == 0;
        for (int mask = 0; mask < (sixteens ? 16 : 4); ++mask) {
          Extents a = x, b = y;
          const bool transpose_x = (mask & 1) != 0, transpose_y = (mask & 2) != 0;
          if (transpose_x) std::swap(a[a.size() - 2], a.back());
          if (transpose_y) std::swap(b[b.size() - 2], b.back());
          const int scales = sixteens ? mask >> 2 : static_cast<int>(cases_.size() / 3 % 4);
          Tensor scale_x =
                     Of(DType::kF32, (scales & 1) != 0 ? Extents{x[x.size() - 2]} : Extents{}),
                 scale_y = Of(DType::kF32, (scales & 2) != 0 ? Extents{y.back()} : Extents{});
          Add({Of(a), Of(other, b), std::move(scale_x), std::move(scale_y)},
              {{"transpose_x", transpose_x}, {"transpose_y", transpose_y}, {"dtype", to}})
              .name += fmt::format(" {}{} to {}", transpose_x, transpose_y, DTypeName(to));
        }
      }
    }
  }
}

// One row and more rows, of rank 1 to 4; few and many columns; no terms to sum; sums that are NaN,
// and large ones.
void Builder::Linear() {
  const bool norm = row_.name == "rms_norm_linear";
  std::vector<std::pair<Extents, int64_t>> shapes = {
      {{7}, 3},      {{1, 64}, 70},  {{2, 4136}, 5}, {{3, 33}, 21},
      {{4, 65}, 37}, {{33, 17}, 40}, {{70, 65}, 90}, {{2, 3, 5, 6}, 9},
      {{0, 4}, 3},   {{4, 0}, 3},    {{5, 4}, 0},    {{3, 40, 24}, 130}};
  if (norm) shapes.insert(shapes.end(), {{{8, 72}, 11}, {{3, 2088}, 4}, {{5, 33}, 9}});
  for (const auto& [x, n] : shapes) {
    for (const std::string activation : {"none", "relu", "gelu", "gelu_tanh", "silu"}) {
      if (norm && activation != "silu" && x.size() == 2 && x[0] > 2 && x[0] < 9)
        continue;  // each number of few rows has its own kernel
      for (const bool biased : {false, true}) {
        std::vector<Tensor> operands = {Of(x), Of({n, x.back()}), biased ? Of({n}) : Tensor()};
        if (norm)
          operands.insert(operands.begin() + 1, cases_.size() % 3 == 0 ? Tensor() : Of({x.back()}));
        Case& c = Add(std::move(operands), {{"activation", activation}});
        c.name += " " + activation;
        for (size_t i = 0; i < c.operands[0].values.size() && n > 5; i += 3)
          c.operands[0].values[i] *= 8;
        if (n == 40) c.operands[0].values[20] = NAN;
      }
    }
  }
}

// In one chunk and in several, whose last one is smaller; without rows, or without terms to sum.
void Builder::LinearLoss() {
  const bool back = row_.name.ends_with("_backward");
  struct Sizes {
    int64_t rows, depth, classes, chunk;
  };
  for (const std::string reduction : {"mean", "sum", "none"}) {
    for (const DType index : {DType::kI64, DType::kI32}) {
      for (const int bad : {0, 2}) {
        for (const Sizes& z : {Sizes{7, 5, 11, 0},
                               {7, 8, 11, 3},
                               {1, 1, 1, 0},
                               {40, 17, 300, 0},
                               {40, 64, 301, 16},
                               {0, 4, 5, 0},
                               {3, 0, 4, 2},
                               {130, 24, 50, 65}}) {
          if (back && z.depth == 0) continue;  // nothing to write, so targets may stay unread
          Tensor target = Indices(index, {z.rows}, z.classes, bad);
          for (Real& v : target.values) v = bad == 0 ? std::fabs(v + 0.5L) - 0.5L : v;
          if (z.rows > 2) target.values[z.rows / 2] = -100;
          std::vector<Tensor> operands = {Of({z.rows, z.depth}), Of({z.classes, z.depth}),
                                          std::move(target)};
          if (back) {
            // Near the real value, because exponentials far from it overflow.
            Tensor log_sum = Of(type_ == DType::kF64 ? DType::kF64 : DType::kF32, {z.rows});
            for (int64_t row = 0; row < z.rows; ++row) {
              Real sum = 0;
              for (int64_t i = 0; i < z.classes; ++i) {
                const Real* const x = &operands[0].values[static_cast<size_t>(row * z.depth)];
                const Real* const w = &operands[1].values[static_cast<size_t>(i * z.depth)];
                sum += std::exp(std::inner_product(x, x + z.depth, w, Real{0}));
              }
              Real& v = log_sum.values[static_cast<size_t>(row)];
              v = Rounded(log_sum.dtype, std::log(sum) + v / 8);
            }
            operands.insert(operands.begin(),
                            Of(reduction == "none" ? Extents{z.rows} : Extents{}));
            operands.push_back(std::move(log_sum));
          }
          Add(std::move(operands), {{"reduction", reduction}, {"chunk_size", z.chunk}}).name +=
              fmt::format(" {} by {}", reduction, z.chunk);
        }
      }
    }
  }
}

void Builder::Attention() {
  struct Sizes {
    Extents q, k, v;
  };
  const auto sizes = [](int64_t batch, int64_t hq, int64_t hkv, int64_t sq, int64_t skv, int64_t d,
                        int64_t dv) {
    return Sizes{{batch, hq, sq, d}, {batch, hkv, skv, d}, {batch, hkv, skv, dv}};
  };
  const Tensor absent;
  const bool backward = row_.name == "scaled_dot_product_attention_backward";
  const auto add = [&](const Sizes& s, Tensor mask, Attrs attrs) -> void {
    if (!backward) return void(Add({Of(s.q), Of(s.k), Of(s.v), std::move(mask)}, std::move(attrs)));
    Extents output = s.q;
    output.back() = s.v.back();
    Tensor log_sum =
        Of(type_ == DType::kF64 ? DType::kF64 : DType::kF32, {s.q.begin(), s.q.end() - 1});
    // As for queries that see no key.
    const int64_t queries = log_sum.shape.back(), blind = attrs.empty() || attrs[0].name != "causal"
                                                              ? 0
                                                              : queries - s.k[s.k.size() - 2];
    for (size_t i = 0; i < log_sum.values.size(); ++i) {
      if (static_cast<int64_t>(i) % queries < blind) log_sum.values[i] = -INFINITY;
    }
    Add({Of(output), Of(s.q), Of(s.k), Of(s.v), Of(output), std::move(log_sum), std::move(mask)},
        std::move(attrs));
  };
  // Returns a mask of each kind. Some of its rows exclude every key.
  const auto excluding = [&](Extents shape, bool boolean) {
    Tensor mask = Of(boolean ? DType::kBool : type_, std::move(shape));
    const int64_t last = mask.shape.empty() ? 1 : mask.shape.back();
    const Real excludes = boolean ? 0 : -INFINITY;
    for (size_t i = 0; i < mask.values.size(); ++i) {
      if (boolean) mask.values[i] = 1;
      if (random_() % 3 == 0 || static_cast<int64_t>(i) / last % 7 == 3) mask.values[i] = excludes;
    }
    return mask;
  };
  const std::vector<Attrs> bounds = {
      {},
      {{"causal", true}},
      {{"window", int64_t{3}}},
      {{"causal", true}, {"window", int64_t{2}}},
      {{"causal", true}, {"window", std::numeric_limits<int64_t>::max()}, {"scale", -0.7}}};
  for (const Attrs& attrs : bounds) {
    add(sizes(2, 3, 3, 5, 9, 7, 4), absent, attrs);
    add(sizes(1, 4, 2, 9, 5, 8, 8), absent, attrs);
  }
  for (const Sizes& s :
       {sizes(1, 1, 1, 1, 1, 1, 1), sizes(1, 6, 1, 3, 17, 16, 33), sizes(0, 2, 2, 3, 4, 5, 6),
        sizes(2, 0, 0, 3, 4, 5, 6), sizes(2, 0, 3, 3, 4, 5, 6), sizes(1, 2, 1, 0, 4, 5, 6),
        sizes(1, 2, 1, 3, 0, 5, 6), sizes(1, 2, 1, 3, 4, 0, 6), sizes(1, 2, 1, 3, 4, 5, 0),
        Sizes{{4, 6, 8}, {2, 10, 8}, {2, 10, 8}},
        Sizes{{2, 3, 2, 5, 8}, {2, 3, 1, 6, 8}, {2, 3, 1, 6, 4}}}) {
    add(s, absent, {{"scale", 0.5}});
  }
  // Several blocks of queries and keys, and of columns of value; also one query at a time.
  for (const Attrs& attrs :
       {Attrs{}, Attrs{{"causal", true}}, Attrs{{"causal", true}, {"window", int64_t{40}}}}) {
    add(sizes(1, 2, 1, 70, 150, 64, 80), absent, attrs);
    add(sizes(1, 4, 2, 1, 200, 64, 64), absent, attrs);
  }
  add(sizes(1, 1, 1, 67, 70, 128, 130), absent, {{"causal", true}});
  add(sizes(1, 1, 1, 5, 70, 300, 256), excluding({70}, true), {});
  add(sizes(1, 1, 1, 3, 20, 33, 300), absent, {});
  for (const bool boolean : {true, false}) {
    for (const Extents& shape : {Extents{}, Extents{9}, Extents{5, 9}, Extents{4, 1, 9},
                                 Extents{2, 1, 5, 9}, Extents{1, 4, 5, 1}, Extents{2, 4, 5, 9}}) {
      add(sizes(2, 4, 2, 5, 9, 8, 8), excluding(shape, boolean), {});
    }
    add(sizes(2, 4, 2, 66, 80, 16, 16), excluding({2, 1, 66, 80}, boolean), {{"causal", true}});
  }
  if (backward) {  // a NaN in a query affects its own gradient and those of the keys that it sees
    add(sizes(1, 2, 2, 4, 70, 8, 3), absent, {});
    cases_.back().operands[1].values[3] = NAN;
    return;
  }
  // Large scores that grow with the key, so that each block has a new maximum; a NaN makes its
  // query's results NaN.
  const Sizes steep = sizes(1, 1, 1, 4, 300, 2, 3);
  Tensor q = Of(steep.q, Values::kUnit), k = Of(steep.k, Values::kUnit);
  for (size_t i = 0; i < k.values.size(); ++i)
    k.values[i] = Rounded(type_, k.values[i] * static_cast<Real>(i / 2));
  for (Real& x : std::span(q.values).subspan(2)) x = Rounded(type_, -x);
  q.values[7] = NAN;
  Add({std::move(q), std::move(k), Of(steep.v), absent});
}

// With 1 to 3 axes; strides, dilations and paddings that differ by axis; groups, depthwise and of
// one element. Also nothing to sum, and no results; several tiles and blocks of channels and
// positions.
void Builder::Convolution() {
  const auto add = [&](const Extents& input, const Extents& weight, Attrs attrs = {},
                       bool biased = false) {
    Case plain;
    for (const Extents& shape : {input, weight}) plain.operands.push_back({type_, shape, {}});
    plain.operands.push_back({});
    plain.attrs = attrs;
    const Extents output = Bind(*Catalogue().Find("convolution"), plain).value().results[0].shape;
    std::vector<Tensor> operands = {Of(input), Of(weight)};
    if (row_.name == "convolution")
      operands.push_back(biased ? Of({output[1]}) : Tensor{});
    else
      operands.insert(operands.begin(), Of(output));
    Case& c = Add(std::move(operands), std::move(attrs));
    for (const NamedAttr& a : c.attrs) {
      c.name += " " + a.name;
      if (const Ints* const list = std::get_if<Ints>(&a.value)) c.name += ShapeToString(*list);
      if (const int64_t* const number = std::get_if<int64_t>(&a.value))
        c.name += fmt::format("{}", *number);
    }
  };
  for (const bool transposed : {false, true}) {
    // Returns weights of `out` channels for `in`, in groups.
    const auto both = [&](const Extents& input, int64_t out, const Extents& kernel,
                          Attrs attrs = {}, bool biased = false, int64_t groups = 1) {
      Extents weight =
          transposed ? Extents{input[1], out / groups} : Extents{out, input[1] / groups};
      weight.insert(weight.end(), kernel.begin(), kernel.end());
      if (groups > 1) attrs.push_back({"groups", groups});
      if (transposed) attrs.push_back({"transposed", true});
      add(input, weight, std::move(attrs), biased);
    };
    both({2, 3, 9}, 4, {3}, {}, true);
    both({1, 1, 1}, 1, {1});
    both({3, 5, 20}, 7, {4}, {{"stride", Ints{3}}, {"padding", Ints{2}}, {"dilation", Ints{2}}},
         true);
    both({2, 3, 7, 8}, 5, {3, 3}, {{"padding", Ints{1}}}, true);
    both({2, 3, 7, 8}, 5, {3, 2},
         {{"stride", Ints{2, 1}}, {"padding", Ints{0, 2}}, {"dilation", Ints{1, 3}}}, true);
    both({2, 3, 6, 5}, 4, {1, 1}, {}, true);
    both({2, 4, 7, 5}, 6, {1, 1}, {{"stride", Ints{2}}});
    both({2, 6, 8, 9}, 4, {3, 3}, {{"stride", Ints{2}}, {"padding", Ints{1}}}, true, 2);
    both({2, 6, 8, 9}, 6, {3, 3}, {{"padding", Ints{1}}}, true, 6);   // depthwise
    both({2, 5, 8, 9}, 10, {3, 3}, {{"padding", Ints{1}}}, true, 5);  // two of each
    both({1, 32, 6, 6}, 32, {3, 3}, {{"padding", Ints{1}}, {"stride", Ints{2}}}, true, 32);
    both({2, 3, 4, 5, 6}, 4, {2, 3, 2},
         {{"stride", Ints{1, 2, 1}}, {"padding", Ints{1, 0, 1}}, {"dilation", Ints{2, 1, 1}}},
         true);
    both({1, 4, 3, 4, 5}, 4, {1, 3, 3}, {{"padding", Ints{0, 1, 1}}}, false, 2);
    both({1, 3, 5, 5}, 2, {5, 5}, {{"padding", Ints{2}}});
    both({0, 3, 5, 5}, 2, {3, 3}, {}, true);
    both({2, 0, 5, 5}, 4, {3, 3}, {}, !transposed);
    both({2, 3, 5, 5}, 0, {3, 3}, {}, true);
    both({2, 70, 5, 6}, 67, {3, 3}, {{"padding", Ints{1}}}, true);
    both({3, 16, 12, 13}, 32, {3, 3}, {{"padding", Ints{1}}, {"stride", Ints{2}}}, true);
    both({17, 3, 9, 9}, 64, {7, 7}, {{"padding", Ints{3}}, {"stride", Ints{2}}});
    if (type_ != DType::kF32) continue;
    both({1, 64, 13, 12}, 64, {3, 3}, {{"padding", Ints{1}}}, true);
    both({2, 64, 20, 20}, 64, {3, 3}, {{"padding", Ints{1}}}, true);
    cases_.back().large = true;
  }
  add({2, 3, 5, 4}, {3, 4, 3, 3},
      {{"stride", Ints{2, 3}},
       {"padding", Ints{1, 0}},
       {"output_padding", Ints{1, 2}},
       {"transposed", true}},
      true);
  add({2, 4, 7}, {4, 3, 2},
      {{"stride", Ints{2}},
       {"dilation", Ints{4}},
       {"output_padding", Ints{3}},
       {"transposed", true}},
      true);
  add({1, 4, 3, 2, 3}, {4, 2, 3, 1, 2},
      {{"stride", Ints{2}},
       {"padding", Ints{1, 0, 1}},
       {"output_padding", Ints{1, 0, 1}},
       {"transposed", true},
       {"groups", int64_t{2}}},
      true);
  add({2, 3, 0, 4}, {2, 3, 2, 2}, {{"padding", Ints{1}}}, true);  // all elements are padding zeros
}

// One position for all batches, and one per batch; rows of odd sizes, no rows, and as many rows as
// the cache has; positions out of range.
void Builder::KvAppend() {
  for (const DType index : {DType::kI64, DType::kI32}) {
    for (const int bad : {0, 1}) {
      const auto add = [&](const Extents& cache, int64_t rows, Extents positions) {
        Extents added = cache;
        added[added.size() - 2] = rows;
        const int64_t places = cache[cache.size() - 2] - rows + 1;
        Add({Of(cache, Values::kSpecial),
             Of(std::move(added), Values::kSpecial),
             Indices(index, std::move(positions), places, bad),
             {}});
      };
      // To pages; no two batches share a page.
      const auto paged = [&](int64_t batches, const Extents& pool, int64_t in_row, int64_t rows,
                             Extents positions) {
        Tensor table{index, {batches, in_row}, {}};
        std::vector<int64_t> pages(pool[0]);
        std::iota(pages.begin(), pages.end(), 0);
        std::ranges::shuffle(pages, random_);
        for (int64_t i = 0; i < batches * in_row; ++i)
          table.values.push_back(static_cast<Real>(pages[i] - (random_() % 2 ? pool[0] : 0)));
        if (bad > 0)
          table.values[random_() % table.values.size()] =
              static_cast<Real>(pool[0] + random_() % 5);
        Add({Of(pool, Values::kSpecial), Of({batches, pool[1], rows, pool[3]}, Values::kSpecial),
             Indices(index, std::move(positions), in_row * pool[2] - rows + 1, bad),
             std::move(table)});
      };
      add({2, 3, 9, 16}, 1, {});
      add({4, 2, 9, 16}, 1, {4});
      add({4, 2, 9, 7}, 3, {4});
      add({2, 3, 2, 20, 64}, 5, {2, 3});
      add({3, 5, 8}, 5, {});
      add({3, 5, 8}, 0, {});
      add({5, 1, 4, 3}, 4, {5});
      add({2, 3, 40, 64}, 30, {2});
      paged(3, {10, 2, 4, 16}, 3, 1, {3});
      paged(2, {7, 3, 5, 7}, 3, 9, {2});
      paged(1, {4, 1, 2, 64}, 4, 6, {});
    }
  }
  Add({Of({2, 0, 4, 3}), Of({2, 0, 1, 3}), Indices(DType::kI64, {2}, 4), {}});
  Add({Of({5, 2, 4, 3}),
       Of({0, 2, 1, 3}),
       Indices(DType::kI64, {0}, 4),
       {DType::kI64, {0, 2}, {}}});
}

// Caches whose batches have some positions, one or none, and NaN after them. Pages in any order,
// shared pages, and missing ones. Rows of vectors and of odd sizes; many positions for few rows,
// and many rows.
void Builder::KvAttention() {
  struct Sizes {
    int64_t hq, hkv, sq, page, d, dv;
  };
  const auto tensors = [&](const Extents& batch, const Sizes& z, int64_t pages) {
    Extents q = batch, k = pages < 0 ? batch : Extents{pages};
    q.insert(q.end(), {z.hq, z.sq, z.d});
    k.insert(k.end(), {z.hkv, z.page, z.d});
    Extents v = k;
    v.back() = z.dv;
    return std::vector<Tensor>{Of(q), Of(k), Of(v)};
  };
  const auto whole = [&](const Extents& batch, const Sizes& z, Tensor length, const Attrs& attrs) {
    std::vector<Tensor> operands = tensors(batch, z, -1);
    // NaN after the last position and before all windows must not affect a result.
    const auto window = std::ranges::find(attrs, "window", &NamedAttr::name);
    const int64_t reach = window == attrs.end() ? 0 : std::get<int64_t>(window->value);
    const bool one = length.values.size() == 1;
    const int64_t slice = z.hkv * z.page;
    for (int64_t row = 0; row < Count(batch) * slice; ++row) {
      const Real n = length.values[one ? 0 : static_cast<size_t>(row / slice)],
                 positions = static_cast<Real>(z.page + 1);
      const Real there = n < 0 ? n + positions : n, at = static_cast<Real>(row % z.page),
                 first = reach == 0 ? 0 : there - static_cast<Real>(z.sq + reach) + 1;
      if (at < there && at >= first) continue;
      for (int64_t l = 0; l < z.d; ++l)
        operands[1].values[static_cast<size_t>(row * z.d + l)] = NAN;
      for (int64_t l = 0; l < z.dv; ++l)
        operands[2].values[static_cast<size_t>(row * z.dv + l)] = NAN;
    }
    operands.push_back(std::move(length));
    operands.emplace_back();
    Add(std::move(operands), attrs);
  };
  const auto paged = [&](int64_t batches, const Sizes& z, int64_t pages, int64_t in_row,
                         DType index, int bad, const Attrs& attrs) {
    std::vector<Tensor> operands = tensors({batches}, z, pages);
    operands.push_back(Indices(index, {batches}, in_row * z.page + 1, bad));
    operands.push_back(Indices(index, {batches, in_row}, pages, 2 * bad));
    Add(std::move(operands), attrs);
  };
  const std::vector<Attrs> bounds = {{},
                                     {{"causal", false}},
                                     {{"window", int64_t{5}}},
                                     {{"causal", false}, {"window", int64_t{3}}, {"scale", -0.7}}};
  for (const DType index : {DType::kI64, DType::kI32}) {
    for (const int bad : {0, 1}) {
      for (const Attrs& attrs : bounds) {
        whole({3}, {4, 2, 1, 21, 16, 8}, Indices(index, {3}, 22, bad), attrs);
        whole({2, 2}, {3, 1, 2, 9, 7, 5}, Indices(index, {2, 2}, 10, bad), attrs);
        paged(3, {4, 2, 1, 8, 16, 8}, 7, 3, index, bad, attrs);
        paged(2, {6, 1, 3, 5, 8, 7}, 4, 2, index, bad, attrs);
      }
      paged(4, {8, 1, 1, 16, 64, 64}, 40, 9, index, bad, {});
    }
  }
  for (const auto& [batch, z] : {std::pair<Extents, Sizes>{{}, {1, 1, 1, 1, 1, 1}},
                                 {{0}, {2, 2, 1, 4, 5, 6}},
                                 {{2}, {0, 2, 1, 4, 5, 6}},
                                 {{2}, {0, 0, 1, 4, 5, 6}},
                                 {{2}, {2, 1, 0, 4, 5, 6}},
                                 {{2}, {2, 1, 2, 0, 5, 6}},
                                 {{2}, {2, 1, 2, 4, 0, 6}},
                                 {{2}, {2, 1, 2, 4, 5, 0}}}) {
    whole(batch, z, Indices(DType::kI64, {}, z.page + 1), {});
  }
  paged(2, {2, 1, 1, 4, 8, 8}, 0, 3, DType::kI64, 0, {});
  paged(2, {2, 1, 1, 4, 8, 8}, 3, 0, DType::kI64, 0, {});
  if (type_ == DType::kF16) return;  // its kernels differ from those of bf16 only in conversions
  // Parts of the positions, each with several steps; heads of many elements; more rows than a tile
  // has.
  for (const Sizes& z : {Sizes{1, 1, 1, 330, 64, 64},
                         {8, 2, 1, 210, 128, 128},
                         {2, 1, 1, 130, 256, 64},
                         {3, 1, 1, 70, 300, 40},
                         {5, 1, 9, 90, 80, 72}}) {
    for (const Attrs& attrs : {Attrs{}, Attrs{{"window", int64_t{45}}}})
      whole({2}, z, Scalar(DType::kI64, static_cast<Real>(z.page - random_() % 7)), attrs);
  }
}

// Lists of odd sizes, of several chunks, of one tensor, without elements, and of more tensors than
// a launch takes.
void Builder::Optim() {
  const std::vector<std::vector<Extents>> all = {{{7}, {0}, {}, {33, 40}, {1}, {2, 0, 3}, {515}},
                                                 {{20483}, {8192}},
                                                 {{16}},
                                                 {{0}, {2, 0}},
                                                 std::vector<Extents>(100, {3, 5})};
  const std::string& op = row_.name;
  const auto add = [&](std::vector<std::vector<Tensor>> lists, const std::vector<Tensor>& others,
                       const Attrs& attrs) {
    std::vector<Tensor> operands;
    std::vector<uint32_t> segments;
    for (std::vector<Tensor>& list : lists) {
      segments.push_back(static_cast<uint32_t>(list.size()));
      for (Tensor& t : list) operands.push_back(std::move(t));
    }
    for (const Tensor& t : others) {
      operands.push_back(t);
      segments.push_back(1);
    }
    Case& c = Add(std::move(operands), attrs);
    c.segments = std::move(segments);
    c.name = fmt::format(" {} tensors of {}{}, {} others", c.segments[0], DTypeName(type_),
                         ShapeToString(c.operands[0].shape), others.size());
    for (const NamedAttr& a : attrs) c.name += " " + a.name;
  };
  const auto list = [&](const std::vector<Extents>& shapes, DType type, bool positive = false) {
    std::vector<Tensor> out;
    for (const Extents& shape : shapes) {
      out.push_back(Of(type, shape));
      for (Real& v : out.back().values) v = positive ? std::fabs(v) : v;
    }
    return out;
  };
  if (op == "l2_norm" || op == "scale") {
    for (const std::vector<Extents>& shapes : all) {
      for (const bool special : {false, true}) {
        std::vector<Tensor> xs = list(shapes, type_);
        const Real bad = op == "scale" ? Largest(type_) : NAN;  // 3 times this is no longer finite
        if (special && !xs.back().values.empty()) xs.back().values.back() = bad;
        std::vector<Tensor> others;
        if (op == "scale") others.push_back(Scalar(DType::kF32, special ? 3 : 0.3L));
        add({std::move(xs)}, others, {});
      }
    }
    for (const Real x : {INFINITY, -INFINITY})
      add({{{type_, {}, {x}}}},
          op == "scale" ? std::vector{Scalar(DType::kF32, 1)} : std::vector<Tensor>{}, {});
    return;
  }
  const bool lamb = op == "lamb", copies = op == "adamw_copy",
             adamw = op == "adamw" || copies || lamb, sgd = op == "sgd", stepped = adamw || sgd;
  const Tensor absent, no = Scalar(DType::kBool, 0), yes = Scalar(DType::kBool, 1),
                       lr = Scalar(DType::kF32, 0.01L);
  const auto step = [&](const std::vector<Extents>& shapes, DType state, int64_t number,
                        const Tensor& scale, const Tensor& skip, const Attrs& attrs, Real bad = 0) {
    const bool stateless = sgd && (attrs.empty() || attrs[0].name != "momentum");
    std::vector<Tensor> grads = list(shapes, type_);
    if (bad != 0) grads[0].values[0] = bad;
    std::vector<std::vector<Tensor>> lists = {
        list(shapes, type_), std::move(grads),
        stateless ? std::vector<Tensor>() : list(shapes, state, op == "adagrad")};
    if (adamw) lists.push_back(list(shapes, state, true));
    std::vector<Tensor> others = {lr};
    if (stepped) others.push_back(Scalar(DType::kI64, number));
    others.insert(others.end(), {scale, skip});
    add(std::move(lists), others, attrs);
  };
  std::vector<Attrs> ways = {
      {}, {{"weight_decay", 0.1}}, {{"weight_decay", 0.1}, {"maximize", true}}};
  if (lamb) {
    ways = {
        {},
        {{"weight_decay", 0.1}, {"max_coefficient", 0.5}},
        {{"beta1", 0.0}, {"bias_correction", false}, {"min_coefficient", 3.0}, {"maximize", true}},
        {{"weight_decay", 0.1}}};
  } else if (adamw) {
    ways = {{},
            {{"weight_decay", 0.0}},
            {{"weight_decay", 0.1}, {"decoupled", false}},
            {{"beta1", 0.0}, {"bias_correction", false}, {"maximize", true}}};
  } else if (sgd) {
    ways.push_back({{"momentum", 0.9}, {"dampening", 0.1}});
    ways.push_back(
        {{"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.1}, {"maximize", true}});
  }
  if (copies) {  // each with a different type of the copies
    ways = {{{"dtype", DType::kF32}},
            {{"weight_decay", 0.0}, {"dtype", DType::kF16}},
            {{"weight_decay", 0.1}, {"decoupled", false}},
            {{"beta1", 0.0}, {"dtype", DType::kF64}},
            {{"bias_correction", false}}};
  }
  std::vector<DType> states = {type_};
  if (type_ == DType::kF16 || type_ == DType::kBF16) states.push_back(DType::kF32);
  for (const DType state : states) {
    for (const std::vector<Extents>& shapes : all) step(shapes, state, 3, absent, no, ways.back());
    for (const Attrs& attrs : ways) {
      for (const int64_t number : {1, 2, 100000}) {
        if (number == 1 || stepped)
          step({{70}, {256}}, state, number, Scalar(DType::kF32, 4), absent, attrs);
      }
      step(all[0], state, 5, Scalar(DType::kF32, 3), yes, attrs);
      for (const Real bad : {static_cast<Real>(NAN), static_cast<Real>(INFINITY)})
        step({{40}, {9}}, state, 1, absent, absent, attrs, bad);
    }
  }
}

void Builder::Rotary() {
  const Tensor absent;
  const auto positions = [&](DType type, Extents shape, Real largest) {
    Tensor t{type, shape, std::vector<Real>(Count(shape))};
    for (Real& v : t.values)
      v = std::floor((2 * static_cast<Real>(random_() >> 11) / 0x1p53L - 1) * largest);
    return t;
  };
  const auto add = [&](Extents shape, Tensor p, Attrs attrs) {
    Add({Of(std::move(shape)), std::move(p)}, std::move(attrs));
  };
  for (const bool interleaved : {false, true}) {
    const auto with = [&](Attrs attrs) {
      attrs.push_back({"interleaved", interleaved});
      return attrs;
    };
    for (const bool inverse : {false, true}) {
      add({2, 3, 5, 16}, absent, with({{"inverse", inverse}}));
      add({2, 3, 5, 32}, positions(DType::kI64, {2, 1, 5}, 1000),
          with(
              {{"inverse", inverse}, {"dim", int64_t{16}}, {"theta", 500000.0}, {"scale", -0.25}}));
    }
    for (const Extents& shape :
         {Extents{1, 2}, Extents{0, 8}, Extents{3, 0}, Extents{40, 128}, Extents{7, 38}})
      add(shape, absent, with({}));
    add({9, 7}, absent, with({{"dim", int64_t{2}}}));
    add({9, 70}, absent, with({{"dim", int64_t{46}}}));
    for (const Extents& shape : {Extents{}, Extents{5}, Extents{4, 1}, Extents{4, 5},
                                 Extents{3, 1, 1}, Extents{3, 4, 5}}) {
      add({3, 4, 5, 8}, positions(DType::kI32, shape, 4000), with({}));
    }
    // Any position is valid. Angles that f32 no longer tells apart are somewhere on the circle.
    for (const Real largest : {0x1p20L, 0x1p30L, 0x1p62L})
      add({50, 24}, positions(DType::kI64, {50}, largest), with({}));
    add({2, 16}, {DType::kI64, {2}, {-0x1p63L, 0x1p63L - 1}}, with({{"theta", 2.0}}));
    add({2, 16}, {DType::kI32, {2}, {-0x1p31L, 0x1p31L - 1}}, with({{"theta", 1e-3}}));
    add({2, 3, 300, 64}, absent, with({}));  // several ranges
  }
}

}  // namespace

Tensor Make(DType type, Extents shape, Values values, Random& random) {
  Tensor t{type, shape, std::vector<Real>(Count(shape))};
  if (random.zeros) return t;
  std::normal_distribution<double> normal;
  if (!IsFloat(type)) {
    const int bits = type == DType::kBool ? 1 : BitsOf(type);
    for (Real& v : t.values) {
      uint64_t raw = random();
      if (values == Values::kPlain) raw %= 64;
      const uint64_t extremes[] = {0, 1, ~uint64_t{0}, uint64_t{1} << (bits - 1),
                                   (uint64_t{1} << (bits - 1)) - 1};
      if (values == Values::kSpecial && random() % 4 == 0) raw = extremes[random() % 5];
      if (values == Values::kPlain && IsSigned(type)) raw -= 32;
      v = Decode(type, &raw);
      if (type == DType::kBool) v = static_cast<Real>(raw >> 3 & 1);
    }
    return t;
  }
  const Real infinity = std::numeric_limits<Real>::infinity(), tiny = Ulp(type, 0);
  const Real specials[] = {
      NAN, infinity, -infinity, 0,    -0.0L, tiny, -3 * tiny, Largest(type), -Largest(type),
      1,   -1,       0.5L,      1.5L, 2.5L,  20,   -20};
  for (Real& v : t.values) {
    v = values == Values::kUnit
            ? 1 + 0.1L * normal(random)
            : static_cast<Real>(normal(random)) * (values == Values::kSpecial ? 5 : 1);
    if (values == Values::kSpecial) {
      if (random() % 4 == 0) v = std::ldexp(v, static_cast<int>(random() % 60) - 30);
      if (random() % 8 == 0) v = specials[random() % std::size(specials)];
    }
    v = Rounded(type, v);
  }
  return t;
}

// Clusters of 2, 4 and 8 blocks: enough rows to fill a device with clusters. The last cluster is
// only partly used.
void Builder::Long() {
  for (const Extents& shape :
       {Extents{66, 20000}, Extents{70, 30001}, Extents{40, 40003}, Extents{20, 131072}}) {
    if (row_.family == "softmax")
      Add(row_.operands.size() == 1 ? std::vector{Of(shape)} : std::vector{Of(shape), Of(shape)});
    if (row_.family == "norm") AddNorm(shape, 1, 1);
  }
  if (row_.family == "norm")
    AddNorm({2500, 1027}, 1, 3);  // rows that begin in the middle of vectors, several per block
  if (row_.family == "reduce" && row_.FindAttr("dims") >= 0 &&
      row_.name != "prod") {  // columns whose rows a cluster shares
    for (const Extents& shape : {Extents{600, 4096}, Extents{600, 4099}, Extents{8200, 256},
                                 Extents{2600, 768}, Extents{900, 2304}})
      Add({Of(shape)}, {{"dims", Ints{0}}});
  }
}

// Matmuls of 16-bit floats that tensor cores compute tile by tile: several tiles per
// multiprocessor, edges everywhere, more terms than are in flight at once.
void Builder::LongLinear() {
  struct Sizes {
    int64_t m, n, k;
  };
  for (const auto& [m, n, k] :
       {Sizes{2900, 1608, 72}, {300, 264, 1000}, {1100, 2064, 520}, {129, 8, 8}}) {
    for (const std::string activation : {"gelu", "silu", "gelu_tanh", "none"}) {
      if (m > 1000 && activation != (n == 1608 ? "silu" : "gelu")) continue;
      std::vector<Tensor> operands = {Of({m, k}), Of({n, k}),
                                      n == 264 && activation == "silu" ? Tensor() : Of({n})};
      if (row_.name == "rms_norm_linear") operands.insert(operands.begin() + 1, Of({k}));
      Add(std::move(operands), {{"activation", activation}}).name += " " + activation;
    }
  }
}

std::vector<Case> LongCasesOf(const OpDef& row, DType type, Random& random) {
  Builder b(row, type, random);
  if (type == DType::kF32) b.Long();
  if (row.name.ends_with("linear") && row.name != "quantized_linear" &&
      (type == DType::kF16 || type == DType::kBF16))
    b.LongLinear();
  return b.Take();
}

std::vector<Case> CasesOf(const OpDef& row, DType type, Random& random) {
  Builder b(row, type, random);
  if (row.family == "elementwise")
    b.Elementwise();
  else if (row.family == "shape")
    b.Shape(), b.Indexing();
  else if (row.family == "create")
    b.Create();
  else if (row.family == "reduce")
    b.Reduce();
  else if (row.family == "sort")
    b.Sort();
  else if (row.family == "quant")
    b.Quant();
  else if (row.family == "blocks")
    b.Blocks();
  else if (row.family == "sampling")
    b.Sample();
  else if (row.family == "convolution")
    b.Convolution();
  else if (row.name == "kv_append")
    b.KvAppend();
  else if (row.name == "kv_attention")
    b.KvAttention();
  else if (row.name == "scaled_matmul")
    b.ScaledMatmul();
  else if (row.name == "linear" || row.name == "rms_norm_linear")
    b.Linear();
  else if (row.name.starts_with("linear_cross_entropy"))
    b.LinearLoss();
  else if (row.family == "attention")
    b.Attention();
  else if (row.family == "optim")
    b.Optim();
  else if (row.family == "rotary")
    b.Rotary();
  else
    b.Nn();
  return b.Take();
}

}  // namespace opwire::conformance
