// A function of a program with its dimensions bound: kernels chosen and prepared, sizes and offsets
// fixed, the arguments of every call laid out. Only the tensors are patched in for a run: their
// addresses, and whether an operand is packed.
#ifndef OPWIRE_EXECUTOR_PLAN_INSTANCE_H_
#define OPWIRE_EXECUTOR_PLAN_INSTANCE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "executor/plan/program.h"
#include "executor/run/crash_record.h"
#include "ir/wire/clock.h"
#include "kernels/abi.h"
#include "kernels/device/device.h"

namespace opwire::executor {

class Graphs;

// The action of a step. All kinds except kCall have no kernel. Whatever runs the steps executes
// them: the host (cursor.h), or the device in a loop or `if` that it runs on its own
// (executor/run/graphs.h).
enum class StepKind : uint8_t {
  kCall,   // calls a kernel
  kEnter,  // a loop begins, with at most max_trips iterations, or the number in the i64 of operand
           // 0
  kIteration,  // an iteration begins, and its number is written to result 0 if there is one; after
               // a repeat's last iteration it continues at `target`
  kNext,       // an iteration has ended; continues at `target`
  kBranch,     // continues at `target` if the bool of operand 0 is false
  kJump,       // continues at `target`
  kEmit,       // sends operand 0 to the client
};
struct ControlStep {
  uint32_t target = 0;     // a step
  uint32_t loop = 0;       // of the instance
  int64_t max_trips = -1;  // of a while; -1: of others
  std::string_view name;   // of the value that is sent
};

// One kernel call, or one action between calls. Kept small, because a long program is read from
// memory step by step.
struct Step {
  int (*run)(const opw_call*);
  opw_call call;  // of a control step: the values that it reads and writes, with its ControlStep as
                  // the context
  uint64_t mark;  // CrashRecord::Mark of function, node and variant
  uint32_t cost_ns;  // an estimate; decides how often the clock is read
  uint16_t number;   // among the steps that check values
  StepKind kind;
  bool checks_values : 1;  // the kernel may meet values outside their domain
  bool captures : 1;       // its work may be part of a graph
  bool packs : 1;          // an operand is among the instance's packables
  uint32_t node() const { return CrashRecord::NodeOf(mark); }
  // The function that owns the node: its number in the module, or -1 if it is the function that is
  // run.
  int32_t called_function() const { return CrashRecord::CalledOf(mark); }
  const ControlStep& control() const { return *static_cast<const ControlStep*>(call.context); }
};
// "matmul@onednn"; "fused", "copy@result" and "control" for steps without a variant.
const std::string& LabelOf(const Step& step, const VariantTable& variants);

// An operand of a step that is an unchanged parameter, and that the step's kernel also takes
// packed.
struct Packable {
  int param = 0;
  uint32_t step = 0;
  bool often = false;            // in a loop
  opw_tensor* tensor = nullptr;  // of the step's call
  const Packing* packing = nullptr;
};

struct InstanceOptions {
  opw_runtime* runtime = nullptr;
  Device* device = nullptr;  // the owner of the memory; null: the host
  bool no_arena = false;     // every value has heap memory of its own, for sanitizers
  int64_t most = INT64_MAX;  // the limit of that heap memory, in bytes
  class CrashRecord* crash =
      nullptr;  // notes which code runs while kernels are measured and prepared; may be null
};

// A parameter or result as clients see it.
struct Slot {
  DType dtype = DType::kInvalid;
  Encoding encoding = Encoding::kDense;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

class Instance {
 public:
  // INVALID_ARGUMENT if the sizes break a constraint of the program. OUT_OF_RANGE if a size is not
  // a valid extent. RESOURCE_EXHAUSTED if bytes overflow. UNIMPLEMENTED if no variant supports a
  // call. The error has the node's site. REQUIRES: `symbols` were checked against their bounds.
  static StatusOr<std::unique_ptr<Instance>> Build(const Program& program, uint32_t function,
                                                   std::vector<int64_t> symbols,
                                                   const InstanceOptions& options);
  ~Instance();

  const std::vector<int64_t>& symbols() const { return symbols_; }
  std::span<const Slot> params() const { return params_; }
  std::span<const Slot> results() const { return results_; }
  // By result: the inout parameter whose storage it is; -1: storage of its own.
  int InoutOf(int result) const { return inout_of_result_[result]; }
  // The first and the last step that write an inout parameter.
  uint32_t FirstWrite(int param) const { return first_write_[param]; }
  uint32_t LastWrite(int param) const { return last_write_[param]; }

  // Bytes of scratch memory that a run needs. `base` is 64-byte aligned and must exist until the
  // run ends.
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // The bytes of it that are live at one time: no order of values in memory takes less.
  int64_t scratch_bound() const { return scratch_bound_; }
  void BindScratch(uint8_t* base);
  void BindParam(int param, void* data);
  // Packables are bound one by one, independently of their parameters.
  std::span<const Packable> packables() const { return packables_; }  // in the order of their steps
  void BindPackable(size_t i, void* data, bool packed);
  // REQUIRES: InoutOf(result) < 0. Null: the result is in scratch memory (not wanted, or sent
  // inline).
  void BindResult(int result, void* data);
  const void* ResultData(int result) const { return result_data_[result]; }

  std::span<const Step> steps() const { return steps_; }
  // The group of a step; null if the step is not a group.
  const FusedGroup* GroupAt(uint32_t step) const;
  // The number of loops among the steps.
  size_t loops() const { return loops_; }
  bool has_control() const { return !controls_.empty(); }
  const Program& program() const { return program_; }
  uint32_t function() const { return function_; }
  // The number of the function that owns the step's node.
  uint32_t FunctionOf(const Step& step) const {
    return step.called_function() >= 0 ? static_cast<uint32_t>(step.called_function()) : function_;
  }

  // Changes whenever an address is bound again.
  uint64_t bindings() const { return bindings_; }

  bool busy = false;               // a pending run uses it
  Nanos took = kNever;             // its last run
  std::unique_ptr<Graphs> graphs;  // of a device that supports graphs, starting with the second run

 private:
  class Builder;
  struct Patches {
    struct Address {
      void** slot;
      int64_t offset;  // bytes
    };
    std::vector<Address> slots;
    void* current = nullptr;
    // Returns whether that changed anything.
    bool Set(void* data) {
      if (data == current) return false;
      current = data;
      for (const Address& a : slots) *a.slot = static_cast<char*>(data) + a.offset;
      return !slots.empty();
    }
  };
  struct ScratchPatch {
    void** slot;
    int64_t place;   // of the planner's
    int64_t offset;  // in it; includes the place's own offset once that is known
  };
  struct FreeAligned {
    void operator()(uint8_t* memory) const;
  };
  using Owned = std::unique_ptr<uint8_t[], FreeAligned>;
  struct Prepared {
    void (*release)(void*);
    void* state;
  };

  Instance(const Program& program, uint32_t function);

  const Program& program_;  // owns this
  uint32_t function_;
  std::vector<int64_t> symbols_;
  std::vector<Slot> params_, results_;
  std::vector<int> inout_of_result_;
  std::vector<uint32_t> first_write_, last_write_;
  std::vector<Step> steps_;
  std::vector<std::pair<uint32_t, const FusedGroup*>> groups_;  // by step, in their order
  std::deque<ControlStep> controls_;
  uint32_t loops_ = 0;
  std::vector<opw_tensor> tensors_;
  std::vector<uint32_t> starts_;
  std::deque<std::vector<int64_t>> extents_;  // shapes and strides; addresses stay
  std::deque<std::vector<opw_attr>> attrs_;
  std::deque<std::vector<int64_t>> attr_ints_;
  std::vector<Packable> packables_;
  std::vector<Prepared> prepared_;
  std::vector<Owned> owned_;  // no_arena
  std::vector<Patches> param_patches_, result_patches_;
  std::vector<ScratchPatch> scratch_patches_;
  std::vector<int64_t> result_scratch_;  // offset of each result when it is not kept
  std::vector<void*> result_data_;
  uint64_t bindings_ = 1;
  uint8_t* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0, scratch_bound_ = 0;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_INSTANCE_H_
