// The sizes and strides of a call of attention or of its gradient. Not for files built for an
// instruction set.
#ifndef OPWIRE_KERNELS_OPS_ATTENTION_SHAPES_H_
#define OPWIRE_KERNELS_OPS_ATTENTION_SHAPES_H_

#include <algorithm>
#include <cmath>

#include "kernels/ops/attention/cpu_loops.h"
#include "kernels/ops/call.h"

namespace opwire::ops::attention {

// Returns the narrowest that supports `queries` queries at a time.
inline const AttentionWidth& WidthFor(const AttentionWidth (&widths)[kAttentionWidths],
                                      int64_t queries) {
  return *std::find_if(widths, widths + kAttentionWidths - 1,
                       [&](const AttentionWidth& w) { return w.queries >= queries; });
}

// Keys [first, last) that a query may see, or queries that may see a key.
struct AttentionRange {
  int64_t first, last;
};

// Query heads are walked as [batch..., Hkv, Hq / Hkv], in the order of the output. Along the last
// of these axes key and value stay. All strides are in elements; without a mask its strides are 0.
struct AttentionShapes {
  // The gradient's call has four more.
  enum Tensor {
    kQuery,
    kKey,
    kValue,
    kMask,
    kOutput,
    kLogSumExp,
    kTensors,
    kGrad = kTensors,
    kGradQuery,
    kGradKey,
    kGradValue,
    kAll
  };

  int64_t queries, keys, depth, value_depth;  // Sq, Skv, D, Dv
  int64_t heads = 1;                          // Hq, of all batches
  int rank;                                   // of the axes that heads are walked along
  int64_t extents[OPW_MAX_RANK];
  int64_t strides[kAll][OPW_MAX_RANK];
  int64_t row[kAll],
      column[kAll];  // along positions, and along D, Dv or Skv; a logsumexp has no columns
  bool causal;
  int64_t window;  // 0: no window; at most Sq + Skv, which is no limit either
  double scale;

  explicit AttentionShapes(const opw_call* c)
      : AttentionShapes(Operand(c, 0), Operand(c, 1), Operand(c, 2), Operand(c, 3), c->results[0],
                        c->results[1], c->attrs) {}
  // grad, query, key, value, output, logsumexp, mask? -> grad_query, grad_key, grad_value
  static AttentionShapes OfBackward(const opw_call* c) {
    AttentionShapes s(Operand(c, 1), Operand(c, 2), Operand(c, 3), Operand(c, 6), Operand(c, 4),
                      Operand(c, 5), c->attrs);
    const int64_t group = s.extents[s.rank - 1];
    s.Place(kGrad, Operand(c, 0), 0, group);
    s.Place(kGradQuery, c->results[0], 0, group);
    s.Place(kGradKey, c->results[1], 0, 0);
    s.Place(kGradValue, c->results[2], 0, 0);
    return s;
  }

  // The keys that causal and window permit for query i.
  AttentionRange KeysOf(int64_t i) const {
    const int64_t at = i + keys - queries;  // the key position of the query
    const int64_t last = causal ? std::min(keys, at + 1) : keys;
    return {window > 0 ? std::max<int64_t>(0, at - window + 1) : 0, std::max<int64_t>(0, last)};
  }
  // The queries that see key j.
  AttentionRange QueriesOf(int64_t j) const {
    const int64_t at = j - keys + queries;
    return {causal ? std::max<int64_t>(0, at) : 0,
            std::max<int64_t>(0, window > 0 ? std::min(queries, at + window) : queries)};
  }

 private:
  AttentionShapes(const opw_tensor& q, const opw_tensor& k, const opw_tensor& v,
                  const opw_tensor& m, const opw_tensor& output, const opw_tensor& log_sum_exp,
                  const opw_attr* attrs) {
    const int batch = q.rank - 3;
    queries = q.shape[batch + 1], keys = k.shape[batch + 1], depth = q.shape[batch + 2],
    value_depth = v.shape[batch + 2];
    const int64_t key_heads = k.shape[batch],
                  group = key_heads == 0 ? 1 : q.shape[batch] / key_heads;
    rank = batch + 2;
    std::copy_n(q.shape, batch, extents);
    extents[batch] = key_heads, extents[batch + 1] = group;
    for (int a = 0; a < rank; ++a) heads *= extents[a];
    Place(kQuery, q, 0, group);
    Place(kKey, k, 0, 0);
    Place(kValue, v, 0, 0);
    Place(kMask, m, Absent(m) ? q.rank : q.rank - m.rank, group);
    Place(kOutput, output, 0, group);
    Place(kLogSumExp, log_sum_exp, 0, group);
    causal = attrs[0].value.i != 0;
    window = std::min(attrs[1].value.i, queries + keys);
    const double given = attrs[2].value.f;
    scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, depth)));
  }

  // The first `missing` axes of the shape are missing in t, and broadcast. group 0: the heads of t
  // are those of keys.
  void Place(Tensor which, const opw_tensor& t, int missing, int64_t group) {
    const auto stride = [&](int a) {
      return a < missing || a - missing >= t.rank || t.shape[a - missing] == 1
                 ? 0
                 : t.strides[a - missing];
    };
    const int head = std::max(rank, 2) - 2;  // tells the compiler that there are at least two axes
    for (int a = 0; a < head; ++a) strides[which][a] = stride(a);
    strides[which][head] = stride(head) * std::max<int64_t>(1, group);
    strides[which][head + 1] = group == 0 ? 0 : stride(head);
    row[which] = stride(head + 1);
    column[which] = stride(head + 2);
  }
};

}  // namespace opwire::ops::attention

#endif  // OPWIRE_KERNELS_OPS_ATTENTION_SHAPES_H_
