// permute of dense tensors: runs if the last axis stays, otherwise as fused code that reads x
// through tiles and copies the elements unchanged.
#include "ir/scalar/scalar.h"
#include "kernels/fused/driver.inc.h"
#include "kernels/ops/families.h"
#include "kernels/ops/shape/runs.h"
#include "kernels/ops/shape/shape.h"
#include "kernels/ops/stream.h"

namespace opwire::ops::shape {
namespace {

const char* SupportsDense(const opw_call* c) {
  return AllDense(c, 1) ? nullptr : "needs dense tensors";
}

// x with its axes in the result's order.
struct Turned {
  int64_t strides[OPW_MAX_RANK];
  opw_tensor x;

  explicit Turned(const opw_call* c) : x(Operand(c, 0)) {
    const opw_tensor& y = c->results[0];
    for (int a = 0; a < y.rank; ++a)
      strides[a] = Operand(c, 0).strides[Axis(c->attrs[0].value.ints[a], y.rank)];
    x.shape = y.shape;
    x.strides = strides;
  }
  Turned(const Turned&) = delete;
};

// Rows of the last axis, which stays.
int CopyRows(const opw_call* c, const Turned& from) {
  const opw_tensor& y = c->results[0];
  int64_t outer[OPW_MAX_RANK];
  std::copy_n(y.shape, y.rank, outer);
  const int64_t row = outer[y.rank - 1], bytes = row * DTypeBytes(TypeOf(y));
  outer[y.rank - 1] = 1;
  ParallelFor(c, y.elements / row, std::max<int64_t>(1, kRangeBytes / bytes),
              [&](int64_t begin, int64_t end) {
                Walk<1> walk(y.rank, outer);
                for (int a = 0; a < y.rank; ++a) walk.SetStride(0, a, from.strides[a]);
                walk.Start(begin);
                for (int64_t r = begin; r < end; ++r, walk.Next())
                  std::memcpy(At(y, 0) + r * bytes,
                              At(from.x, 0) + walk.offset(0) * DTypeBytes(TypeOf(y)), bytes);
              });
  return OPW_OK;
}

template <int kBytes>
uint32_t CopyElements(const fused::Rows& rows) {
  if (rows.stream)
    StreamCopy(rows.out[0], rows.in[0], rows.n * kBytes);
  else
    std::memcpy(rows.out[0], rows.in[0], rows.n * kBytes);
  return 0;
}

int Prepare(const opw_call* c, void** state, int64_t*) {
  const Turned from(c);
  opw_call turned = *c;
  turned.operands = &from.x;
  return fused::PrepareLayout(&turned, 1, 1, state);
}

int Permute(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  if (y.elements == 0) return OPW_OK;
  if (const Turned from(c); y.rank > 0 && from.strides[y.rank - 1] == 1) return CopyRows(c, from);
  switch (DTypeBytes(TypeOf(y))) {
    case 8:
      return fused::RunLayout(c, CopyElements<8>);
    case 4:
      return fused::RunLayout(c, CopyElements<4>);
    case 2:
      return fused::RunLayout(c, CopyElements<2>);
    default:
      return fused::RunLayout(c, CopyElements<1>);
  }
}

}  // namespace

void AddPermute(VariantTable& table, const Isa& isa) {
  AddProduction(
      table, isa, "permute", "generic", "", 0, kAll,
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, SupportsDense, Prepare, fused::ReleaseLayout, Permute});
}

}  // namespace opwire::ops::shape
