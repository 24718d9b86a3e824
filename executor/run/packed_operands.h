// What the kernels of a run read packed: bound where it is there, made before the step that first
// reads it where that pays.
#ifndef OPWIRE_EXECUTOR_RUN_PACKED_OPERANDS_H_
#define OPWIRE_EXECUTOR_RUN_PACKED_OPERANDS_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "executor/plan/instance.h"
#include "executor/store/packed.h"

namespace opwire {

class PackedOperands {
 public:
  // Binds all operands of the instance that kernels also take packed: to what is there, else as
  // they lie. `data_of` and `block_of` a parameter: where it is bound, and the tensor's block, null
  // where it is none's or nothing is to be packed.
  void Bind(Instance& instance, absl::FunctionRef<void*(int)> data_of,
            absl::FunctionRef<const BufferRef*(int)> block_of);
  // Whether an operand of the step is to be packed before it.
  bool Wanted(const Instance& instance, uint32_t step) const;
  // Packs some of it, about a millisecond's work, and binds it where it is complete. What is done
  // stays with the block, however the run ends. Where the device was told to stop, nothing may be
  // done. REQUIRES: Wanted(instance, step).
  void Work(Instance& instance, uint32_t step, PackedCopies& copies, Device& device);
  // Lets go of what was bound.
  void End();

 private:
  struct Operand {
    size_t number;  // among the instance's
    BufferRef block;
  };
  std::vector<std::shared_ptr<const PackedCopy>> held_;
  std::vector<Operand> wanted_;  // in the order of their steps
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_RUN_PACKED_OPERANDS_H_
