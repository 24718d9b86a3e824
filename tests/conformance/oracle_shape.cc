// Ops that move elements, and ops that find them by an index.
#include <cmath>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

// Returns an index value of [-extent, extent), counted from the front. Otherwise returns -1, and
// notes the first bad position.
int64_t Checked(Real value, int64_t extent, int operand, int64_t position, Expected* e) {
  const int64_t v = static_cast<int64_t>(value);
  if (v >= -extent && v < extent) return v < 0 ? v + extent : v;
  if (e->bad_operand < 0 || position < e->bad_position) {
    e->bad_operand = operand;
    e->bad_position = position;
  }
  return -1;
}

// Sets every result element from from(index), which gives a position in `x`, or -1 for a 0.
template <typename From>
void Move(const Tensor& x, Expected* e, const From& from) {
  Extents index(e->result().shape.size(), 0);
  for (int64_t i = 0; i < e->result().elements(); ++i, NextIndex(e->result().shape, &index)) {
    const int64_t at = from(index);
    e->result().values[i] = at < 0 ? 0 : x.values[at];
  }
}

void Cat(const OracleCall& c, Expected* e) {
  const int dim = Axis(c.Int(0), e->result().rank());
  int64_t before = 0;
  for (const Tensor& x : c.operands) {
    Extents index(x.shape.size(), 0);
    for (int64_t i = 0; i < x.elements(); ++i, NextIndex(x.shape, &index)) {
      Extents to = index;
      to[dim] += before;
      e->result().values[Flat(e->result().shape, to)] = x.values[i];
    }
    before += x.shape[dim];
  }
}

// Sets the error of sums of the given numbers of terms: each addition is rounded to the computing
// type, the sum once to the result's.
void AllowSums(DType type, const std::vector<Real>& magnitude, const std::vector<Real>& terms,
               Expected* e) {
  const DType computing = ComputingType(type);
  e->error().resize(terms.size());
  for (size_t i = 0; i < terms.size(); ++i) {
    e->error()[i] = terms[i] * Ulp(computing, magnitude[i]) +
                    (computing == type ? 0 : Ulp(type, e->result().values[i]) / 2);
  }
}

void ScatterAdd(const OracleCall& c, Expected* e) {
  const Tensor &x = c.In(0), &places = c.In(1), &src = c.In(2);
  const int dim = Axis(c.Int(0), x.rank());
  const bool floats = IsFloat(x.dtype);
  std::vector<Real>& sums = e->result().values;
  sums = x.values;
  std::vector<Real> magnitude(sums.size()), terms(sums.size(), 0);
  for (size_t i = 0; i < sums.size(); ++i) magnitude[i] = std::fabs(sums[i]);
  Extents index(places.shape.size(), 0);
  for (int64_t i = 0; i < places.elements(); ++i, NextIndex(places.shape, &index)) {
    const int64_t at = Checked(places.values[i], x.shape[dim], 1, i, e);
    if (at < 0) continue;
    Extents to = index;
    to[dim] = at;
    const int64_t flat = Flat(x.shape, to);
    const Real v = src.values[Flat(src.shape, index)];
    sums[flat] = floats ? sums[flat] + v : CastValue(DType::kI64, x.dtype, sums[flat] + v, false);
    magnitude[flat] += std::fabs(v);
    terms[flat] += 1;
  }
  if (floats) AllowSums(x.dtype, magnitude, terms, e);
}

void EmbeddingBackward(const OracleCall& c, Expected* e) {
  const Tensor &grad = c.In(0), &places = c.In(1);
  std::vector<Real>& sums = e->result().values;
  const int64_t rows = e->result().shape[0], columns = e->result().shape[1];
  if (sums.empty()) return;  // nothing is read
  std::vector<Real> magnitude(sums.size(), 0), terms(sums.size(), 0);
  for (int64_t n = 0; n < places.elements(); ++n) {
    const int64_t at = Checked(places.values[n], rows, 1, n, e);
    for (int64_t j = 0; j < columns && at >= 0; ++j) {
      sums[at * columns + j] += grad.values[n * columns + j];
      magnitude[at * columns + j] += std::fabs(grad.values[n * columns + j]);
      terms[at * columns + j] += 1;
    }
  }
  AllowSums(grad.dtype, magnitude, terms, e);
}

}  // namespace

bool ComputeShape(const OracleCall& c, Expected* e) {
  if (c.row->family != "shape") return false;
  const std::string& op = c.row->name;
  e->exact_zeros = op != "scatter_add" && op != "embedding_backward";
  const Tensor& x = c.operands[0];
  const int rank = x.rank();
  if (op == "reshape" || op == "recompute") {
    e->result().values = x.values;
  } else if (op == "permute") {
    Move(x, e, [&](const Extents& index) {
      Extents from(index.size());
      for (size_t a = 0; a < index.size(); ++a) from[Axis(c.IntList(0)[a], rank)] = index[a];
      return Flat(x.shape, from);
    });
  } else if (op == "expand") {
    Move(x, e, [&](const Extents& index) { return BroadcastFlat(x.shape, index); });
  } else if (op == "cat") {
    Cat(c, e);
  } else if (op == "tile") {
    Move(x, e, [&](const Extents& index) {
      Extents from(x.shape.size());
      for (int a = 0; a < rank; ++a) from[a] = index[a + index.size() - rank] % x.shape[a];
      return Flat(x.shape, from);
    });
  } else if (op == "slice") {
    const int dim = Axis(c.Int(0), rank);
    const int64_t start = Checked(c.In(1).values[0], x.shape[dim], 1, 0, e), step = c.Int(2);
    Move(x, e, [&](const Extents& index) -> int64_t {
      const int64_t at = start + index[dim] * step;
      if (start < 0 || at < 0 || at >= x.shape[dim]) {
        e->bad_operand = 1;
        return -1;
      }
      Extents from = index;
      from[dim] = at;
      return Flat(x.shape, from);
    });
    if (e->result().elements() == 0) e->bad_operand = -1;
  } else if (op == "slice_update") {
    const Tensor& v = c.In(1);
    Extents first(x.shape.size());
    for (int a = 0; a < rank && v.elements() > 0; ++a) {
      const auto axis = static_cast<size_t>(a);
      first[axis] = Checked(c.In(2).values[axis], x.shape[axis], 2, a, e);
      const int64_t step = c.IntList(0).empty() ? 1 : c.IntList(0)[axis];
      if (first[axis] + (v.shape[axis] - 1) * step >= x.shape[axis] && e->bad_operand < 0)
        e->bad_operand = 2, e->bad_position = a;
      if (e->bad_operand >= 0) break;
    }
    e->result().values = x.values;
    if (v.elements() == 0 || e->bad_operand >= 0) return true;
    Extents index(x.shape.size(), 0);
    for (int64_t i = 0; i < v.elements(); ++i, NextIndex(v.shape, &index)) {
      Extents to = first;
      for (size_t a = 0; a < to.size(); ++a)
        to[a] += index[a] * (c.IntList(0).empty() ? 1 : c.IntList(0)[a]);
      e->result().values[Flat(x.shape, to)] = v.values[i];
    }
  } else if (op == "index_put") {
    const Tensor& src = c.In(1);
    const int dim = Axis(c.Int(0), rank);
    const auto index = std::span(c.operands).subspan(c.starts[2]);
    e->result().values = x.values;
    if (src.elements() == 0 || x.elements() == 0) return true;
    std::vector<Extents> places(static_cast<size_t>(index[0].elements()));
    for (int64_t i = 0; i < index[0].elements(); ++i) {
      for (size_t a = 0; a < index.size(); ++a)
        places[i].push_back(
            Checked(index[a].values[i], x.shape[dim + a], 2 + static_cast<int>(a), i, e));
    }
    if (e->bad_operand >= 0) return true;
    Extents at(src.shape.size(), 0);
    for (int64_t i = 0; i < src.elements(); ++i, NextIndex(src.shape, &at)) {
      const auto begin = at.begin() + dim, end = begin + index[0].rank();
      const Extents& place = places[Flat(index[0].shape, Extents(begin, end))];
      Extents to(at.begin(), begin);
      to.insert(to.end(), place.begin(), place.end());
      to.insert(to.end(), end, at.end());
      e->result().values[Flat(x.shape, to)] = src.values[i];
    }
  } else if (op == "index_select" || op == "embedding") {
    const Tensor& places = c.In(1);
    const int dim = op == "embedding" ? 0 : Axis(c.Int(0), rank);
    Move(x, e, [&](const Extents& index) -> int64_t {
      const Extents place(index.begin() + dim, index.begin() + dim + places.rank());
      const int64_t flat = Flat(places.shape, place),
                    at = Checked(places.values[flat], x.shape[dim], 1, flat, e);
      if (at < 0) return -1;
      Extents from(index.begin(), index.begin() + dim);
      from.push_back(at);
      from.insert(from.end(), index.begin() + dim + places.rank(), index.end());
      return Flat(x.shape, from);
    });
  } else if (op == "gather") {
    const int dim = Axis(c.Int(0), rank);
    Move(x, e, [&](const Extents& index) -> int64_t {
      const int64_t flat = Flat(c.In(1).shape, index),
                    at = Checked(c.In(1).values[flat], x.shape[dim], 1, flat, e);
      if (at < 0) return -1;
      Extents from = index;
      from[dim] = at;
      return Flat(x.shape, from);
    });
  } else if (op == "scatter_add") {
    ScatterAdd(c, e);
  } else if (op == "embedding_backward") {
    EmbeddingBackward(c, e);
  } else if (op == "choose") {
    const int64_t count = static_cast<int64_t>(c.operands.size()) - 1;
    for (int64_t i = 0; i < e->result().elements(); ++i) {
      const int64_t at = Checked(x.values[i], count, 0, i, e);
      e->result().values[i] = at < 0 ? 0 : c.operands[1 + at].values[i];
    }
  } else {  // one_hot
    const int64_t classes = e->result().shape.back();
    for (int64_t i = 0; i < x.elements(); ++i) {
      const int64_t at = Checked(x.values[i], classes, 0, i, e);
      if (at >= 0) e->result().values[i * classes + at] = 1;
    }
  }
  return true;
}

}  // namespace opwire::conformance
