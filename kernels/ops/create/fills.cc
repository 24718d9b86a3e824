// zeros, full and constant of dense tensors, as runs of bytes or of one element.
#include "ir/scalar/scalar.h"
#include "kernels/ops/create/create.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::create {
namespace {

constexpr int64_t kRangeBytes = 64 * 1024;

const char* SupportsDense(const opw_call* c) {
  return AllDense(c, 0) ? nullptr : "needs a dense result";
}

int Zeros(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  ParallelFor(c, BytesOf(y), kRangeBytes, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(y.data) + begin, 0, end - begin);
  });
  return OPW_OK;
}

int Full(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  VisitType(TypeOf(y), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const T value = Convert<T>(c->attrs[1].value.f);
    ParallelFor(c, y.elements, kRangeBytes / static_cast<int64_t>(sizeof(T)),
                [&](int64_t begin, int64_t end) {
                  std::fill(static_cast<T*>(y.data) + begin, static_cast<T*>(y.data) + end, value);
                });
  });
  return OPW_OK;
}

const char* SupportsConstant(const opw_call* c) {
  if (c->attrs[1].count != BytesOf(c->results[0]))
    return "the value's bytes are not as many as the type's";
  return SupportsDense(c);
}

int Constant(const opw_call* c) {
  const opw_tensor& y = c->results[0];
  const char* const bytes = c->attrs[1].value.bytes;
  ParallelFor(c, BytesOf(y), kRangeBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(y.data) + begin, bytes + begin, end - begin);
  });
  return OPW_OK;
}

}  // namespace

void AddFills(VariantTable& table, const Isa& isa) {
  const auto add = [&](const char* op, int (*run)(const opw_call*),
                       const char* (*supports)(const opw_call*)) {
    AddProduction(table, isa, op, "generic", "", 0, kAll,
                  {OPW_ABI_VERSION, OPW_DETERMINISTIC, supports, nullptr, nullptr, run});
  };
  add("zeros", Zeros, SupportsDense);
  add("full", Full, SupportsDense);
  add("constant", Constant, SupportsConstant);
}

}  // namespace opwire::ops::create
