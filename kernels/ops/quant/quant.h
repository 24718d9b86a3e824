// The parts of the quant family, and how its kernels read a call.
#ifndef OPWIRE_KERNELS_OPS_QUANT_QUANT_H_
#define OPWIRE_KERNELS_OPS_QUANT_QUANT_H_

#include "kernels/abi.h"
#include "kernels/ops/call.h"
#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::quant {

void AddQuantReference(VariantTable& table);
// "avx512" and "avx2".
void AddQuantFast(VariantTable& table, const Isa& isa);

// The groups of a call, one after the other: `floats` is x or y, `params` has `each` numbers per
// group.
struct Groups {
  const opw_tensor &floats, &values, &params;
  int bits;
  int64_t each, count, size;  // elements of a group

  Groups(const opw_tensor& f, const opw_tensor& v, const opw_tensor& p, int64_t b)
      : floats(f),
        values(v),
        params(p),
        bits(static_cast<int>(b)),
        each(p.shape[p.rank - 1]),
        count(p.elements / each),
        size(count == 0 ? 0 : f.elements / count) {}
  static Groups OfQuantize(const opw_call* c) {
    return {Operand(c, 0), c->results[0], c->results[1], c->attrs[1].value.i};
  }
  static Groups OfDequantize(const opw_call* c) {
    return {c->results[0], Operand(c, 0), Operand(c, 1), c->attrs[0].value.i};
  }
  // Bytes of n values.
  int64_t Bytes(int64_t n) const { return n * bits / 8; }
};

// The factor of values and the offset, of type C, from the least and largest element; symmetric:
// from the largest magnitude.
template <typename C>
struct GroupNumbers {
  C factor, offset;
  GroupNumbers(C least, C most, bool symmetric, int bits) {
    const C half = symmetric
                       ? most
                       : most / 2 - least / 2;  // as exact as max - min, and never beyond the range
    offset = symmetric ? C(0) : most / 2 + least / 2 + C(0);  // never -0
    factor = static_cast<C>(1 << (bits - 1)) / half;
    if (factor - factor != 0 && half == half) factor = 1;  // infinite
  }
};

}  // namespace opwire::ops::quant

#endif  // OPWIRE_KERNELS_OPS_QUANT_QUANT_H_
