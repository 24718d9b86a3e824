// The packed operands of a run's kernels. Existing packed copies are bound. A missing copy is made
// before the first step that reads it, if that pays.
#ifndef OPWIRE_EXECUTOR_RUN_PACKED_OPERANDS_H_
#define OPWIRE_EXECUTOR_RUN_PACKED_OPERANDS_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "executor/plan/instance.h"
#include "executor/store/packed.h"

namespace opwire::executor {

class PackedOperands {
 public:
  // Binds all operands of the instance that kernels also take packed: to an existing packed copy,
  // else to the parameter's data. For a parameter, `data_of` returns its address. `block_of`
  // returns the tensor's block, or null if it has none or must not be packed.
  void Bind(Instance& instance, absl::FunctionRef<void*(int)> data_of,
            absl::FunctionRef<const BufferRef*(int)> block_of);
  // Whether an operand of the step is to be packed before it.
  bool Wanted(const Instance& instance, uint32_t step) const;
  // Packs a part of it, about a millisecond's work, and binds it if it is complete. The packed part
  // stays with the block, whatever the status of the run. If the device was told to stop, the part
  // may not be packed. REQUIRES: Wanted(instance, step).
  void Work(Instance& instance, uint32_t step, PackedCopies& copies, Device& device);
  // Releases the bound copies.
  void End();

 private:
  struct Operand {
    size_t number;  // among the instance's
    BufferRef block;
  };
  std::vector<std::shared_ptr<const PackedCopy>> held_;
  std::vector<Operand> wanted_;  // in the order of their steps
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_RUN_PACKED_OPERANDS_H_
