// The parts of the optim family, and how its ops are read from a call.
#ifndef OPWIRE_KERNELS_OPS_OPTIM_OPTIM_H_
#define OPWIRE_KERNELS_OPS_OPTIM_OPTIM_H_

#include <vector>

#include "kernels/ops/call.h"
#include "kernels/ops/optim/steps.h"
#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::optim {

inline constexpr int kMostStates = 2;

// An op that makes a step: lists of parameters, gradients and states, then 0-d operands. Results
// are the lists without the gradients.
struct StepRow {
  const char* name;
  OptimRule rule;
  int states;
  int lr, step, grad_scale, skip;  // operands; -1: the op has none
  bool copies = false;             // of the parameters, its last list of results
};
inline constexpr StepRow kStepRows[] = {{"adamw", OptimRule::kAdamw, 2, 4, 5, 6, 7},
                                        {"sgd", OptimRule::kSgd, 1, 3, 4, 5, 6},
                                        {"lion", OptimRule::kLion, 1, 3, -1, 4, 5},
                                        {"adagrad", OptimRule::kAdagrad, 1, 3, -1, 4, 5},
                                        {"lamb", OptimRule::kLamb, 2, 4, 5, 6, 7},
                                        {"adamw_copy", OptimRule::kAdamw, 2, 4, 5, 6, 7, true}};
inline constexpr int kLambRow =
    4;  // its step first needs a coefficient of each tensor, its last result
inline constexpr int kCopyRow = 5;

// The number of a call's lists of states: sgd without momentum has none.
inline int StatesOf(const StepRow& row, const opw_call* c) {
  return ListSize(c, 2) > 0 ? row.states : 0;
}
// Tensors of one place: parameter, gradient and states, and the new parameter and states.
struct StepPlace {
  const opw_tensor* in[2 + kMostStates];
  const opw_tensor* out[1 + kMostStates];
};
StepPlace PlaceOf(const opw_call* c, int states, int64_t place);
// The copy of a place's parameter. REQUIRES: the op has copies.
inline const opw_tensor& CopyOf(const opw_call* c, int64_t place) {
  return c->results[3 * ListSize(c, 0) + place];
}

// Numbers from an op's attributes; those from its operands are not known yet.
struct StepAttrs {
  double beta1 = 0, beta2 = 0, rest1 = 0, eps = 0, weight_decay = 0;  // rest1: sgd's 1 - dampening
  double least = 0, most = 0;                                         // of lamb's coefficient
  bool decoupled = false, bias_correction = false, maximize = false, nesterov = false;
};
StepAttrs AttrsOf(const StepRow& row, const opw_call* c);
// With the operands' values. REQUIRES: this thread can read them.
StepNumbers NumbersOf(const StepRow& row, const opw_call* c);
bool Skips(const StepRow& row, const opw_call* c);
// lamb's coefficient of a tensor whose parameters and updates have these sums of squares.
double CoefficientOf(const StepAttrs& a, double params, double updates);

// The chunks of tensors, one tensor after the other. A tensor's last chunk may be short; an empty
// tensor has none.
struct Chunks {
  int64_t size;                // elements
  std::vector<int64_t> first;  // by tensor, its first chunk; then the number of all chunks
  Chunks(const opw_tensor* tensors, int64_t count, int64_t elements);
  int64_t count() const { return first.back(); }
  // The tensor of a chunk. REQUIRES: chunk < count().
  int64_t TensorOf(int64_t chunk) const;
};

void AddOptimReference(VariantTable& table);
// "avx512" and "avx2".
void AddOptimFast(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::optim

#endif  // OPWIRE_KERNELS_OPS_OPTIM_OPTIM_H_
