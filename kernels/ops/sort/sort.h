// The parts of the sort family, and how its kernels read a call.
#ifndef OPWIRE_KERNELS_OPS_SORT_SORT_H_
#define OPWIRE_KERNELS_OPS_SORT_SORT_H_

#include "kernels/abi.h"
#include "kernels/ops/call.h"
#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::sort {

void AddSortReference(VariantTable& table);
// "radix"; of topk for few elements "avx512" and "avx2".
void AddRadix(VariantTable& table, const Isa& isa);
void AddTopk(VariantTable& table, const Isa& isa);

enum class SortOp { kSort, kArgsort, kTopk };

// A call's request: from each slice along an axis the first `count` of its elements in order.
struct Ordering {
  const opw_tensor& x;
  const opw_tensor* values;  // null: not requested
  const opw_tensor& indices;
  int dim;
  int64_t extent, count;
  bool descending;

  Ordering(const opw_call* c, SortOp op)
      : x(Operand(c, 0)),
        values(op == SortOp::kArgsort ? nullptr : c->results),
        indices(c->results[op == SortOp::kArgsort ? 0 : 1]),
        dim(Axis(c->attrs[op == SortOp::kTopk ? 1 : 0].value.i, x.rank)),
        extent(x.shape[dim]),
        count(indices.shape[dim]),
        descending(c->attrs[op == SortOp::kTopk ? 2 : 1].value.i != 0) {}
};

}  // namespace opwire::ops::sort

#endif  // OPWIRE_KERNELS_OPS_SORT_SORT_H_
