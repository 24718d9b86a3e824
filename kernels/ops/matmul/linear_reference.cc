// linear as its definition says: one sum a result, in f64, and the activation's row interpreted there.
#include <optional>

#include "ir/ops/catalogue.h"
#include "kernels/ops/call.h"
#include "kernels/ops/elementwise/interpret.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"
#include "kernels/ops/scalar.h"

namespace opwire::ops {
namespace {

int Linear(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &weight = Operand(c, 1), &bias = Operand(c, 2), &y = c->results[0];
  const int64_t n = weight.shape[0], k = weight.shape[1], x_k = x.strides[x.rank - 1];
  const OpRow* const activation = Catalogue().Find(Text(c->attrs[0]));  // none: there is no such row
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ParallelFor(c, y.elements, std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, k)), [&](int64_t begin, int64_t end) {
      std::optional<Interpreter<double>> interpreter;
      if (activation != nullptr) interpreter.emplace(activation->body.nodes());
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = OffsetOf(x, i / n * k), j = i % n;
        double sum = 0;
        for (int64_t l = 0; l < k && !StoppedAt(c, l); ++l) {
          sum += static_cast<double>(Load<T>(x.data, row + l * x_k)) * static_cast<double>(Load<T>(weight.data, j * weight.strides[0] + l * weight.strides[1]));
        }
        if (!Absent(bias)) sum += static_cast<double>(Load<T>(bias.data, j * bias.strides[0]));
        bool divided = false;
        if (interpreter) sum = *interpreter->Run(1, [&](int, double* block) { *block = sum; }, &divided);
        Store<T>(y.data, OffsetOf(y, i), sum);
      }
    });
  });
  return OPW_OK;
}

}  // namespace

void AddLinearReference(VariantTable& table) {
  AddReference(table, "linear", {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Linear});
}

}  // namespace opwire::ops
