// cross_entropy and its gradient: a row's log(sum(exp)) in one pass, and totals of the rows in a
// fixed order.
#include "kernels/ops/loss/gpu_params.h"
#include "kernels/ops/softmax/gpu_online.cuh"

namespace opw::loss {

using softmax::LogSumExp;
using softmax::OnlineOf;

// A row's target: whether it counts (is not ignored), and the class if it is in range, otherwise
// -1.
struct Target {
  i64 at;
  bool counts;
};
// One thread of the group loads and reports it, and only that thread knows whether it counts.
template <typename I, int kLanes>
OPW_DEVICE Target TargetOf(const RowsParams& p, i64 row, bool there) {
  Target t{-1, false};
  if (there && GroupRank<kLanes>() == 0) {
    const i64 value = LoadIndex(static_cast<const I*>(p.target) + row);
    t.counts = value != p.ignore;
    if (t.counts) {
      if (static_cast<u64>(value) < static_cast<u64>(p.classes))
        t.at = value;
      else
        ReportOutOfRange(p.reporter, p.operand, p.first + row);
    }
  }
  t.at = GroupReduce<kLanes>(t.at, Max(), i64(-1));  // the other threads have -1
  return t;
}

// Losses of rows: stored as elements of R, or with kTotal as totals of one row each.
template <typename T, typename R, typename I, bool kTotal, int kLanes>
OPW_DEVICE void Losses(const RowsParams& p) {
  using C = ComputeOf<T>;
  ForRows<kLanes>(p.rows, [&](i64 row, bool there) {
    const Target target = TargetOf<I, kLanes>(p, row, there);
    const T* const x = static_cast<const T*>(p.logits) + row * p.pitch;
    // A row without a target is read for its sum only; the lanes of a warp continue together.
    const C log_sum =
        LogSumExp(OnlineOf<T, kLanes>(x, target.at < 0 && p.log_sums == nullptr ? 0 : p.classes));
    if (!there || GroupRank<kLanes>() != 0) return;
    if (p.log_sums != nullptr) static_cast<C*>(p.log_sums)[row] = log_sum;
    const C loss = target.at < 0 ? C(0) : log_sum - Load(x[target.at]);
    if constexpr (kTotal)
      p.totals[row] = {static_cast<double>(loss), target.counts};
    else
      static_cast<R*>(p.out)[row] = Store<R>(loss);
  });
}

// Maps a row's elements to (exp(v - log_sum) - (at == target)) * scale, or to 0 if the row has no
// target.
template <typename T>
struct Gradient {
  using C = ComputeOf<T>;
  C log_sum, scale;
  i64 target;
  OPW_DEVICE C operator()(C v, i64 at) const {
    return target < 0 ? C(0) : (ExpFor<T>(v - log_sum) - (at == target ? C(1) : C(0))) * scale;
  }
};
template <typename T>
OPW_DEVICE ComputeOf<T> ScaleOf(const RowsParams& p, i64 row) {
  using C = ComputeOf<T>;
  const C grad = Load(static_cast<const T*>(p.grad)[p.each_grad != 0 ? row : 0]);
  return p.totals == nullptr ? grad : grad / static_cast<C>(p.totals->count);
}

// Stores the loss of a row whose logits are at x, if it is requested.
template <typename T, int kLanes>
OPW_DEVICE void StoreLoss(const RowsParams& p, i64 row, bool there, const Target& target,
                          const T* x, ComputeOf<T> log_sum) {
  using C = ComputeOf<T>;
  if ((p.losses == nullptr && p.each_total == nullptr) || !there || GroupRank<kLanes>() != 0)
    return;
  const C loss = target.at < 0 ? C(0) : log_sum - Load(x[target.at]);
  if (p.each_total != nullptr)
    p.each_total[row] = {static_cast<double>(loss), target.counts};
  else
    static_cast<T*>(p.losses)[row] = Store<T>(loss);
}

template <typename T, typename I, typename Row, int kLanes>
OPW_DEVICE void GradientsAs(const RowsParams& p) {
  ForRows<kLanes>(p.rows, [&](i64 row, bool there) {
    const Target target = TargetOf<I, kLanes>(p, row, there);
    const T* const from = static_cast<const T*>(p.logits) + row * p.pitch;
    Row x;
    x.Load(from, there ? static_cast<int>(p.classes) : 0);
    x.Await();
    const ComputeOf<T> log_sum = LogSumExp(OnlineOf<kLanes>(x));
    StoreLoss<T, kLanes>(p, row, there, target, from, log_sum);
    x.Store(static_cast<T*>(p.out) + row * p.pitch,
            Gradient<T>{log_sum, ScaleOf<T>(p, row), target.at});
  });
}
template <typename T, typename I, int kLanes, int kVectors>
OPW_DEVICE void Gradients(const RowsParams& p) {
  GradientsAs<T, I, OnChip<T, kLanes, kVectors>, kLanes>(p);
}
template <typename T, typename I, int kLanes, int kVectors, int kThreads>
OPW_DEVICE void HeldGradients(const RowsParams& p) {
  GradientsAs<T, I, Held<T, kLanes, kVectors, kThreads>, kLanes>(p);
}
template <typename T, typename I>
OPW_DEVICE void StreamedGradients(const RowsParams& p) {
  ForRows<0>(p.rows, [&](i64 row, bool there) {
    const Target target = TargetOf<I, 0>(p, row, there);
    const T* const x = static_cast<const T*>(p.logits) + row * p.pitch;
    const ComputeOf<T> log_sum = LogSumExp(OnlineOf<T, 0>(x, target.at < 0 ? 0 : p.classes));
    StoreLoss<T, 0>(p, row, there, target, x, log_sum);
    const Gradient<T> gradient{log_sum, ScaleOf<T>(p, row), target.at};
    MapSpan<0, true>(x, static_cast<T*>(p.out) + row * p.pitch, p.classes, gradient);
  });
}

// Reads logits in T's computing type, with the logarithm of each row's sum, and writes elements of
// T. If both are one type they may share memory. Rows are aligned to vectors of both types.
template <typename T, typename I>
OPW_DEVICE void RoundedGradients(const RowsParams& p) {
  using C = ComputeOf<T>;
  constexpr int kWidth = kPerVector<T>, kLoads = kWidth / kPerVector<C>;
  ForRows<0>(p.rows, [&](i64 row, bool there) {
    const Target target = TargetOf<I, 0>(p, row, there);
    const C* const x = static_cast<const C*>(p.logits) + row * p.pitch;
    T* const y = static_cast<T*>(p.out) + row * p.pitch;
    const Gradient<T> gradient{static_cast<const C*>(p.log_sums)[row], ScaleOf<T>(p, row),
                               target.at};
    const i64 whole = p.classes / kWidth * kWidth;
    for (i64 at = static_cast<i64>(threadIdx.x) * kWidth; at < whole;
         at += static_cast<i64>(blockDim.x) * kWidth) {
      C out[kWidth];
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const Wide<C> v = LoadAligned(x + at + l * kPerVector<C>);
#pragma unroll
        for (int k = 0; k < kPerVector<C>; ++k)
          out[l * kPerVector<C> + k] = gradient(v.Get(k), at + l * kPerVector<C> + k);
      }
      StoreWide(y + at, RoundAll<T>(out), true);
    }
    for (i64 at = whole + threadIdx.x; at < p.classes; at += blockDim.x)
      y[at] = Store<T>(gradient(x[at], at));
  });
}

// The total of the block's share of all rows, for all its threads.
template <typename I>
OPW_DEVICE Total TotalOf(const TotalsParams& p) {
  Total t{0, 0};
  for (i64 i = Index(); i < p.count; i += Stride()) {
    if (p.totals == nullptr) {
      t.count += LoadIndex(static_cast<const I*>(p.target) + i) != p.ignore;
    } else {
      t.loss += p.totals[i].loss;
      t.count += p.totals[i].count;
    }
  }
  t.loss = BlockReduce(t.loss, Sum(), 0.0);
  t.count = BlockReduce(t.count, Sum(), i64(0));
  return t;
}
template <typename I>
OPW_DEVICE void ReduceTotals(const TotalsParams& p) {
  const Total t = TotalOf<I>(p);
  if (threadIdx.x == 0) static_cast<Total*>(p.out)[blockIdx.x] = t;
}
template <typename T>
OPW_DEVICE void FinishTotals(const TotalsParams& p) {
  const Total t = TotalOf<i64>(p);
  if (threadIdx.x == 0)
    *static_cast<T*>(p.out) =
        Store<T>(p.mean != 0 ? t.loss / static_cast<double>(t.count) : t.loss);
}

}  // namespace opw::loss
