// reshape, cat, slice, slice_update and tile of dense tensors, as runs of contiguous elements.
#include "kernels/ops/families.h"
#include "kernels/ops/shape/runs.h"
#include "kernels/ops/shape/shape.h"
#include "kernels/ops/shape/slice_bounds.h"

namespace opwire::ops::shape {
namespace {

const char* SupportsDense(const opw_call* c) {
  return AllDense(c, static_cast<int>(c->starts[1])) ? nullptr : "needs dense tensors";
}

const char* SupportsDenseUpdate(const opw_call* c) {
  return AllDense(c, 2) ? nullptr : "needs dense tensors";
}

int Reshape(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  const char* const x = static_cast<const char*>(Operand(c, 0).data);
  CopyRuns(c, At(y, 0), 1, BytesOf(y), 0, [x](int64_t) { return x; });
  return OPW_OK;
}

// y: [outer, sum of the parts, inner]; each operand has one run per row.
int Cat(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  const int dim = Axis(c->attrs[0].value.i, y.rank);
  const int64_t bytes = DTypeBytes(TypeOf(y)), row = ElementsFrom(y, dim) * bytes,
                inner = ElementsFrom(y, dim + 1) * bytes;
  int64_t at = 0;  // bytes along the row
  for (int64_t i = 0; i < ListSize(c, 0); ++i) {
    const opw_tensor& x = c->operands[c->starts[0] + i];
    const int64_t part = x.shape[dim] * inner;
    CopyRuns(c, At(y, 0) + at, y.elements * bytes / row, part, row,
             [&](int64_t r) { return At(x, 0) + r * part; });
    at += part;
  }
  return OPW_OK;
}

// The number of the `length` positions first, first + step, ... that are in [0, extent) before the
// first one outside.
int64_t Inside(int64_t first, int64_t step, int64_t length, int64_t extent) {
  if (first < 0) return 0;
  if (step == 0) return length;
  const uint64_t room = static_cast<uint64_t>(step > 0 ? extent - 1 - first : first);
  const uint64_t stride =
      step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  return static_cast<int64_t>(std::min<uint64_t>(static_cast<uint64_t>(length), room / stride + 1));
}

// y[o, i] = x[o, first + i * step] for single elements; zeros starting with `inside`.
void Stride(const opw_call* c, const char* x, char* y, int64_t bytes, int64_t outer, int64_t extent,
            int64_t length, int64_t first, int64_t step, int64_t inside) {
  VisitBits(bytes, [&](auto tag) {
    using U = typename decltype(tag)::Type;
    ParallelFor(c, outer * length, kRangeBytes / bytes, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin / length, i = begin % length, at = begin; at < end; ++o, i = 0) {
        const U* const from = reinterpret_cast<const U*>(x) + o * extent + first;
        U* const to = reinterpret_cast<U*>(y);
        const int64_t stop = std::min(length, i + (end - at));
        for (; i < std::min(inside, stop); ++i) to[at++] = from[i * step];
        for (; i < stop; ++i) to[at++] = U{0};
      }
    });
  });
}

// x: [outer, extent, inner], y: [outer, length, inner]. With a step of 1 each row is one run,
// otherwise each position is one.
int Slice(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  const int dim = Axis(c->attrs[0].value.i, x.rank);
  const int64_t step = c->attrs[2].value.i, extent = x.shape[dim], length = y.shape[dim],
                bytes = DTypeBytes(TypeOf(x));
  const int64_t inner = ElementsFrom(x, dim + 1) * bytes,
                outer = y.elements * bytes / (length * inner);
  const int64_t first = WrapIndex(LoadIndex(Operand(c, 1), 0), extent),
                inside = Inside(first, step, length, extent);
  if (inside < length) c->runtime->out_of_range(c->runtime, 1, 0);
  const char* const from = At(x, 0) + first * inner;
  if (step == 1 || inside == 0) {
    const int64_t row = length * inner, part = inside * inner;
    CopyRuns(c, At(y, 0), outer, part, row, [&](int64_t o) { return from + o * extent * inner; });
    CopyRuns(c, At(y, 0) + part, outer, row - part, row, [](int64_t) { return nullptr; });
    return OPW_OK;
  }
  if (inner == bytes) {
    Stride(c, At(x, 0), At(y, 0), bytes, outer, extent, length, first, step, inside);
    return OPW_OK;
  }
  CopyRuns(c, At(y, 0), outer * length, inner, inner, [&](int64_t r) {
    const int64_t o = r / length, i = r % length;
    return i < inside ? from + (o * extent + i * step) * inner : nullptr;
  });
  return OPW_OK;
}

// Copies runs of v. The last axes of a run are contiguous in x, too.
int UpdateSlice(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &v = Operand(c, 1), &y = c->results[0];
  const SliceBounds bounds(c);
  const bool sets = bounds.Check(c);
  if (y.elements == 0) return OPW_OK;
  if (y.data != x.data) CopyRuns(c, At(y, 0), 1, BytesOf(y), 0, [&](int64_t) { return At(x, 0); });
  if (!sets) return OPW_OK;
  int64_t base = 0, strides[OPW_MAX_RANK];
  for (int64_t a = y.rank - 1, n = 1; a >= 0; n *= y.shape[a--]) {
    strides[a] = n * bounds.step[a];
    base += n * bounds.first[a];
  }
  int outer = y.rank;
  int64_t run = 1;
  while (outer > 0 && (v.shape[outer - 1] == 1 || strides[outer - 1] == run)) {
    --outer;
    const bool whole = v.shape[outer] == y.shape[outer];
    run *= v.shape[outer];
    if (!whole) break;
  }
  const int64_t bytes = DTypeBytes(TypeOf(y)), runs = v.elements / run;
  if (runs == 1) {
    CopyRuns(c, At(y, base), 1, run * bytes, 0, [&](int64_t) { return At(v, 0); });
    return OPW_OK;
  }
  const auto copy = [&](auto bytes_of_run) {
    ParallelFor(c, runs, std::max<int64_t>(1, kRangeBytes / (run * bytes)),
                [&](int64_t begin, int64_t end) {
                  Walk<1> walk(outer, v.shape);
                  for (int a = 0; a < outer; ++a) walk.SetStride(0, a, strides[a]);
                  walk.Start(begin);
                  for (int64_t r = begin; r < end; ++r, walk.Next())
                    std::memcpy(At(y, base + walk.offset(0)), At(v, r * run), bytes_of_run());
                });
  };
  // Single elements are copied by one instruction.
  if (run == 1)
    VisitBits(bytes, [&](auto tag) { copy([] { return sizeof(typename decltype(tag)::Type); }); });
  else
    copy([&] { return static_cast<size_t>(run * bytes); });
  return OPW_OK;
}

// The axes after the last repeated one are contiguous. Together with that axis they are one run,
// which is written `repeats` times, one after the other.
int Tile(const opw_call* c) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  const int64_t bytes = DTypeBytes(TypeOf(x));
  const int shift = y.rank - x.rank;
  const auto extent = [&](int a) { return a < shift ? 1 : x.shape[a - shift]; };
  int last = y.rank - 1;
  while (last >= 0 && y.shape[last] == extent(last)) --last;
  const int64_t run = last < 0 ? x.elements : ElementsFrom(x, std::max(0, last - shift));
  const int64_t repeats = last < 0 ? 1 : y.shape[last] / extent(last);
  CopyRuns(c, At(y, 0), y.elements / run, run * bytes, run * bytes, [&](int64_t r) {
    int64_t flat = r / repeats, offset = 0, stride = run;
    for (int a = last - 1; a >= shift; --a) {
      offset += flat % y.shape[a] % extent(a) * stride;
      stride *= extent(a);
      flat /= y.shape[a];
    }
    return At(x, offset);
  });
  return OPW_OK;
}

}  // namespace

void AddCopies(VariantTable& table, const Isa& isa) {
  const auto add = [&](const char* op, int (*run)(const opw_call*)) {
    AddProduction(table, isa, op, "generic", "", 0, kAll,
                  {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsDense, nullptr, nullptr, run});
  };
  add("reshape", Reshape);
  add("recompute", Reshape);
  add("cat", Cat);
  add("slice", Slice);
  add("tile", Tile);
  AddProduction(table, isa, "slice_update", "generic", "", 0, kAll,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, SupportsDenseUpdate, nullptr,
                 nullptr, UpdateSlice});
}

}  // namespace opwire::ops::shape
