// How the module's kernels read a call: operands and results as tensors of ATen over the same
// memory, and index values checked.
#ifndef OPWIRE_KERNELS_TORCH_MODULE_CALL_H_
#define OPWIRE_KERNELS_TORCH_MODULE_CALL_H_

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "kernels/abi.h"

namespace opwire::torch_module {

// How an element type is read.
enum class As {
  kType,    // unchanged
  kSigned,  // unsigned integers wider than a byte as signed ones, which have the same bits where
            // they wrap
  kBits,    // an integer of its width, for ops that only move elements
};

class Call {
 public:
  Call(const opw_call* call, at::Device device) : c(call), device(device) {}

  const opw_call* const c;
  const at::Device device;

  // Operand i of the row; undefined where it is absent.
  at::Tensor In(int i, As as = As::kType) const { return Over(c->operands[c->starts[i]], as); }
  std::vector<at::Tensor> List(int i, As as = As::kType) const;
  // By position among the call's results.
  at::Tensor Out(int i = 0, As as = As::kType) const { return Over(c->results[i], as); }

  int64_t Int(int attr) const { return c->attrs[attr].value.i; }
  bool Bool(int attr) const { return c->attrs[attr].value.i != 0; }
  double Float(int attr) const { return c->attrs[attr].value.f; }
  at::IntArrayRef Ints(int attr) const {
    return {c->attrs[attr].value.ints, static_cast<size_t>(c->attrs[attr].count)};
  }
  std::string_view Text(int attr) const {
    return {c->attrs[attr].value.bytes, static_cast<size_t>(c->attrs[attr].count)};
  }

 private:
  at::Tensor Over(const opw_tensor& t, As as) const;
};

// 16-bit floats as f32, others as they are.
at::Tensor Wide(const at::Tensor& t);
// The element type that floats are computed in: f64 of f64, else f32.
at::ScalarType ComputingType(const at::Tensor& t);

// A call's operand has values out of its domain where `bad` says so: reports the first. Whether
// there is one.
bool Report(const Call& call, int operand, const at::Tensor& bad);
// The values of an index operand, read once, each in [0, extent); those out of range, which are
// reported, are 0 and marked. REQUIRES: extent > 0, or no values.
struct Indices {
  at::Tensor values;  // i64
  at::Tensor bad;     // bool, of the same shape; undefined: none
};
Indices CheckIndices(const Call& call, int operand, int64_t extent);

// The functions that run an op's calls.
struct Row {
  const char* op;
  void (*run)(const Call& call);
};
// One array a file, ended by a row without a name.
extern const Row kElementwiseRows[];
extern const Row kReduceRows[];
extern const Row kShapeRows[];
extern const Row kNnRows[];
extern const Row kOptimRows[];

}  // namespace opwire::torch_module

#endif  // OPWIRE_KERNELS_TORCH_MODULE_CALL_H_
