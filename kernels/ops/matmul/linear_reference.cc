// linear and rms_norm_linear as their definitions say: one sum a result, in f64, and the
// activation's row interpreted there.
#include <optional>

#include "ir/ops/catalogue.h"
#include "ir/scalar/interpret.h"
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"

namespace opwire::ops::matmul {
namespace {

// With kNorm of rms_norm(x, operand 1), which is not rounded.
template <bool kNorm>
int Linear(const opw_call* c) {
  constexpr int kWeight = kNorm ? 2 : 1;
  const opw_tensor &x = Operand(c, 0), &norm_weight = Operand(c, 1), &weight = Operand(c, kWeight),
                   &bias = Operand(c, kWeight + 1), &y = c->results[0];
  const int64_t n = weight.shape[0], k = weight.shape[1], x_k = x.strides[x.rank - 1];
  const OpDef* const activation =
      Catalogue().Find(Text(c->attrs[kNorm ? 1 : 0]));  // none: there is no such row
  VisitType(TypeOf(x), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ParallelFor(
        c, y.elements, std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, k)),
        [&](int64_t begin, int64_t end) {
          std::optional<Interpreter<double>> interpreter;
          if (activation != nullptr) interpreter.emplace(activation->body.nodes());
          double factor = 1;  // of the row
          for (int64_t i = begin; i < end; ++i) {
            const int64_t row = OffsetOf(x, i / n * k), j = i % n;
            const auto element = [&](int64_t l) {
              return static_cast<double>(Load<T>(x.data, row + l * x_k));
            };
            if (kNorm && (i == begin || j == 0)) {
              double square = 0;
              for (int64_t l = 0; l < k && !StoppedAt(c, l); ++l) square += element(l) * element(l);
              factor = 1 / std::sqrt(square / static_cast<double>(k) + c->attrs[0].value.f);
            }
            double sum = 0;
            for (int64_t l = 0; l < k && !StoppedAt(c, l); ++l) {
              double of_x = element(l) * factor;
              if (kNorm && !Absent(norm_weight))
                of_x *= static_cast<double>(Load<T>(norm_weight.data, l * norm_weight.strides[0]));
              sum += of_x * static_cast<double>(Load<T>(
                                weight.data, j * weight.strides[0] + l * weight.strides[1]));
            }
            if (!Absent(bias)) sum += static_cast<double>(Load<T>(bias.data, j * bias.strides[0]));
            bool divided = false;
            if (interpreter)
              sum = *interpreter->Run(
                  1, [&](int, double* block) { *block = sum; }, &divided);
            Store<T>(y.data, OffsetOf(y, i), sum);
          }
        });
  });
  return OPW_OK;
}

}  // namespace

void AddLinearReference(VariantTable& table) {
  AddReference(table, "linear",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Linear<false>});
  AddReference(table, "rms_norm_linear",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Linear<true>});
}

}  // namespace opwire::ops::matmul
