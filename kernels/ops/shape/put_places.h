// Where index_put writes. Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_SHAPE_PUT_PLACES_H_
#define OPWIRE_KERNELS_OPS_SHAPE_PUT_PLACES_H_

#include <numeric>

#include "kernels/ops/call.h"

namespace opwire::ops::shape {

// A call of index_put: y is [outer, extent, inner] and src is [outer, puts, inner], with the axes
// that index names places of as one, `extent`.
struct PutPlaces {
  int dim, axes;
  int64_t outer, extent, inner, puts;

  explicit PutPlaces(const opw_call* c) {
    const opw_tensor& x = Operand(c, 0);
    dim = Axis(c->attrs[0].value.i, x.rank);
    axes = static_cast<int>(ListSize(c, 2));
    const auto product = [](const int64_t* begin, const int64_t* end) {
      return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
    };
    outer = product(x.shape, x.shape + dim);
    extent = product(x.shape + dim, x.shape + dim + axes);
    inner = product(x.shape + dim + axes, x.shape + x.rank);
    puts = Index(c, 0).elements;
  }

  // The tensor of places along the axis dim + a.
  static const opw_tensor& Index(const opw_call* c, int a) {
    return c->operands[c->starts[2] + static_cast<uint32_t>(a)];
  }

  // The place in [0, extent) that the indices at flat position `put` name; -1, and a report, where
  // one of them is outside.
  int64_t Find(const opw_call* c, int64_t put) const {
    int64_t place = 0;
    for (int a = 0; a < axes; ++a) {
      const opw_tensor& index = Index(c, a);
      const int64_t n = Operand(c, 0).shape[dim + a],
                    at = WrapIndex(LoadIndex(index, OffsetOf(index, put)), n);
      if (__builtin_expect(at < 0, 0)) {
        c->runtime->out_of_range(c->runtime, static_cast<int>(c->starts[2]) + a, put);
        return -1;
      }
      place = place * n + at;
    }
    return place;
  }
};

}  // namespace opwire::ops::shape

#endif  // OPWIRE_KERNELS_OPS_SHAPE_PUT_PLACES_H_
