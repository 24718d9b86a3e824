// A verified program with what is known of it before sizes are bound. Shared by the sessions that uploaded equal bytes.
#ifndef OPWIRE_EXECUTOR_PLAN_PROGRAM_H_
#define OPWIRE_EXECUTOR_PLAN_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/store/store.h"
#include "ir/program/module.h"
#include "ir/program/serialise.h"
#include "ir/verify/verify.h"
#include "ir/wire/limits.h"
#include "kernels/select/variant.h"

namespace opwire {

class Instance;

// Where values of a function live, as far as sizes do not matter.
struct FunctionPlan {
  // Whose storage a value has: itself, or the operand that it is another shape of.
  std::vector<ValueId> root;
  // The last node that reads a root's storage; the number of nodes for what the results need.
  std::vector<uint32_t> last_use;
  // The node that makes a value; -1 for parameters.
  std::vector<int32_t> producer;
  // The result that a root's storage is; -1: scratch.
  std::vector<int32_t> result_of;
  // By result: the parameter that it becomes, or -1.
  std::vector<int32_t> inout_of_result;
  // By result: copied at the end, because its value lives elsewhere.
  std::vector<uint8_t> copied;
};

struct Program {
  std::shared_ptr<const KernelSet> kernels;
  ProgramHash hash;
  std::string bytes;
  Module module;
  Typing typing;
  std::vector<ValueTypes> values;    // by function
  std::vector<FunctionPlan> plans;   // by function
  size_t nodes = 0;
  Reservation held;  // of the executor's memory; the device thread's

  // The sizes bound lately, most recent first. The device thread's.
  struct Instances {
    std::vector<std::unique_ptr<Instance>> ready;
  };
  mutable std::vector<Instances> instances;  // by function

  Program();
  ~Program();
  // What it takes, its instances apart: the bytes, the constants as the module has them, and the nodes with their types and plans.
  int64_t MemoryBytes() const;
  const std::string& name() const { return module.functions[0].name; }
};

// `inout_of_result`: by result, the parameter whose storage it is to become, or -1; the value of a parameter that a result becomes is gone where that is written.
FunctionPlan PlanFunction(const Function& f, const ValueTypes& values, const FunctionTyping& typing, std::vector<int32_t> inout_of_result);

// Checks the bytes twice (as bytes, as a program), that every node has a variant here that takes its element types, and works out the
// plans. Errors carry their site. Runs on a worker.
StatusOr<std::shared_ptr<Program>> PrepareProgram(std::string bytes, std::shared_ptr<const KernelSet> kernels, const ExecutorLimits& limits);

// The element type by which a node's variant is chosen: that of the row's first type variable.
DType KeyDType(const OpRow& row, const Node& node, const std::vector<const TensorType*>& values);

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_PLAN_PROGRAM_H_
