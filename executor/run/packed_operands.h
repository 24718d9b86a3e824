// What the kernels of a run read packed: bound where it is there, made before the first step where that pays.
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
  // Binds all operands of the instance that kernels also take packed: to what is there, else as they lie. `data_of` and `block_of` a parameter: where it is bound, and the tensor's
  // block, null where it is none's.
  void Bind(Instance& instance, absl::FunctionRef<void*(int)> data_of, absl::FunctionRef<const BufferRef*(int)> block_of);
  // What is to be packed before the steps begin.
  bool HasWork() const { return !wanted_.empty(); }
  // The step whose operand is the next to be packed.
  uint32_t step(const Instance& instance) const { return instance.packables()[wanted_.back().operand].step; }
  // Packs some of it, about a millisecond's work, and binds what is complete. Where the device was told to stop, nothing may be done.
  void Work(Instance& instance, PackedCopies& copies, Device& device);
  // Lets go of what was bound.
  void End();

 private:
  struct Wanted {
    size_t operand;  // among the instance's
    BufferRef block;
    std::shared_ptr<PackedCopy> copy = nullptr;  // that is being made
    int64_t done = 0;                            // pieces
  };
  std::vector<std::shared_ptr<const PackedCopy>> held_;
  std::vector<Wanted> wanted_;  // the last is next
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_RUN_PACKED_OPERANDS_H_
