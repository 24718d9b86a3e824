// A verified program with its facts that do not depend on sizes. Shared by the sessions that
// uploaded equal bytes.
#ifndef OPWIRE_EXECUTOR_PLAN_PROGRAM_H_
#define OPWIRE_EXECUTOR_PLAN_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/plan/schedule.h"
#include "executor/plan/views.h"
#include "executor/store/store.h"
#include "ir/program/module.h"
#include "ir/program/serialise.h"
#include "ir/verify/verify.h"
#include "ir/wire/limits.h"
#include "kernels/select/variant.h"

namespace opwire::executor {

class Instance;

// The storage of a function's values, without sizes.
struct FunctionPlan {
  Schedule schedule;
  // The root whose storage a value has: itself, or another value.
  Views views;
  // The last unit of the schedule that reads a root's storage; the number of units if a result
  // needs it.
  std::vector<uint32_t> last_use;
  // The node that makes a value; -1 for parameters.
  std::vector<int32_t> producer;
  // The result whose storage a root has; -1: scratch.
  std::vector<int32_t> result_of;
  // By result: the parameter that it becomes, or -1.
  std::vector<int32_t> inout_of_result;
  // By result: copied at the end, because its value is stored elsewhere.
  std::vector<uint8_t> copied;
};

struct Program {
  std::shared_ptr<const KernelSet> kernels;
  ProgramHash hash;
  std::string bytes;
  Module module;
  Typing typing;
  std::vector<ValueTypes> values;   // by function
  std::vector<FunctionPlan> plans;  // by function, for a run of it
  size_t nodes = 0;
  Reservation held;  // of the executor's memory; used by the device thread only

  // How a function is called. Its results have storage of their own, or that of its parameters
  // starting with the first or the second one, as values that a loop carries.
  enum class Call : uint8_t { kOwn, kFromFirst, kFromSecond };
  const FunctionPlan& PlanOf(uint32_t function, Call call) const {
    return called_plans.at({function, call});
  }
  std::map<std::pair<uint32_t, Call>, FunctionPlan> called_plans;

  // The instances of the last bound sizes, most recent first. Used by the device thread only.
  struct Instances {
    std::vector<std::unique_ptr<Instance>> ready;
  };
  mutable std::vector<Instances> instances;  // by function

  Program();
  ~Program();
  // Bytes of memory, excluding instances: the bytes, the constants as the module has them, and the
  // nodes with their types and plans.
  int64_t MemoryBytes() const;
  const std::string& name() const { return module.functions[0].name; }
};

// Checks the bytes twice (as bytes, as a program). Checks that every node has a variant that
// supports its element types on this device, and makes the plans. Errors carry their site. Runs on
// a worker.
StatusOr<std::shared_ptr<Program>> PrepareProgram(std::string bytes,
                                                  std::shared_ptr<const KernelSet> kernels,
                                                  const ExecutorLimits& limits);

// Returns the element type by which a node's variant is chosen: that of the op definition's first
// type variable.
DType KeyDType(const OpDef& row, const Node& node, const std::vector<const TensorType*>& values);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_PROGRAM_H_
