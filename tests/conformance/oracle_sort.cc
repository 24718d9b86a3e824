// Elements in order, by a stable sort of their positions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {

bool ComputeSort(const OracleCall& c, Expected* e) {
  if (c.row->family != "sort") return false;
  const Tensor& x = c.In(0);
  const bool topk = c.row->name == "topk", descending = c.Bool(topk ? 2 : 1);
  const int dim = Axis(c.Int(topk ? 1 : 0), x.rank());
  Tensor* const values = c.row->name == "argsort" ? nullptr : &e->results[0].tensor;
  Tensor& indices = e->results.back().tensor;
  e->exact_zeros = true;
  const auto smaller = [](Real a, Real b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  Extents slices = x.shape, index(x.shape.size(), 0);
  slices[static_cast<size_t>(dim)] = 1;
  if (x.elements() == 0) return true;
  do {
    const auto at = [&](const Extents& shape, int64_t i) {
      Extents place = index;
      place[static_cast<size_t>(dim)] = i;
      return static_cast<size_t>(Flat(shape, place));
    };
    std::vector<int64_t> order(static_cast<size_t>(x.shape[static_cast<size_t>(dim)]));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
      const Real va = x.values[at(x.shape, a)], vb = x.values[at(x.shape, b)];
      return descending ? smaller(vb, va) : smaller(va, vb);
    });
    for (int64_t i = 0; i < indices.shape[static_cast<size_t>(dim)]; ++i) {
      const int64_t from = order[static_cast<size_t>(i)];
      indices.values[at(indices.shape, i)] = static_cast<Real>(from);
      if (values != nullptr) values->values[at(indices.shape, i)] = x.values[at(x.shape, from)];
    }
  } while (NextIndex(slices, &index));
  return true;
}

}  // namespace opwire::conformance
