// A user's op with one of its variants, bound to types and sizes. Checks and measurements call it.
// For processes that try kernels.
#ifndef OPWIRE_EXECUTOR_OPS_BOUND_OP_H_
#define OPWIRE_EXECUTOR_OPS_BOUND_OP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "executor/ops/cases.h"
#include "executor/ops/guarded.h"
#include "executor/plan/instance.h"
#include "executor/plan/reference.h"
#include "ir/base/status.h"
#include "kernels/device/device.h"
#include "kernels/jit/manifest.h"
#include "kernels/select/variant.h"

namespace opwire::executor {

// The op as a program of one node.
struct BoundOp {
  std::string what;  // "f32 M=3 N=17"
  std::map<std::string, int64_t> extents;
  std::vector<Shape> shapes;  // of the operands
  std::vector<DType> dtypes;  // of the operands
  std::shared_ptr<Program> program;
  std::unique_ptr<Instance> instance;
  const Step& step() const { return instance->steps()[0]; }
};

// The devices of a trial: the device that runs the kernel, and a CPU for the reference, with its
// kernels. All outlive the trial.
struct TrialPlace {
  Device& device;
  Device& host;  // may be the same
  std::shared_ptr<const KernelSet> builtin;
};

// The op outlives this object.
class OpUnderTrial {
 public:
  // FAILED_PRECONDITION, or INVALID_ARGUMENT if the manifest contradicts the kernel or the
  // reference cannot be used.
  static StatusOr<OpUnderTrial> Make(const jit::OpManifest& op, const jit::OpVariantSpec& variant,
                                     const opw_kernel& kernel, const TrialPlace& place);

  const jit::OpManifest& op() const { return *op_; }
  const jit::OpVariantSpec& variant() const { return *variant_; }
  const opw_kernel& kernel() const { return kernel_; }
  Device& device() const { return place_.device; }
  bool on_host() const { return place_.device.info().host_memory; }
  std::string Label() const;  // "user.twice@own"
  bool HasIndices() const;    // operands that are positions in an extent

  // Binds the op. `pin`: the variant's name or, on a CPU, "reference". Returns nothing if the sizes
  // or types contradict the op's signature, or if the kernel refuses them (counted, see refused()).
  // `faults` reports a fault in the kernel's own code.
  StatusOr<std::optional<BoundOp>> Bind(const TypeBinding& types, const jit::OpCase& c,
                                        const std::string& pin, FaultReporter& faults);
  int refused() const { return refused_; }
  const std::string& last_refusal() const { return last_refusal_; }

  // The extent in which the values of an index operand are positions.
  int64_t IndexExtent(const BoundOp& b, size_t operand) const;
  std::vector<uint8_t> RandomInput(const BoundOp& b, size_t operand, Values values,
                                   std::mt19937_64& random) const;

  // Returns the reference's results as numbers, computed in f64 if that is possible.
  StatusOr<std::vector<std::vector<double>>> Reference(
      const BoundOp& b, const std::vector<std::vector<uint8_t>>& inputs) const;

 private:
  OpUnderTrial(const jit::OpManifest& op, const jit::OpVariantSpec& variant,
               const opw_kernel& kernel, const TrialPlace& place)
      : op_(&op), variant_(&variant), kernel_(kernel), place_(place) {}

  Status RunReference(const opw_kernel& kernel, opw_call& call, const std::string& what) const;

  const jit::OpManifest* op_;
  const jit::OpVariantSpec* variant_;
  opw_kernel kernel_;
  TrialPlace place_;
  std::shared_ptr<const ReferenceProgram> reference_, wide_;
  std::shared_ptr<const KernelSet> set_;
  int refused_ = 0;
  std::string last_refusal_;
};

// The types of the variables: "f32 i64".
std::string Describe(const TypeBinding& types);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_BOUND_OP_H_
