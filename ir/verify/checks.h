// Checks that the verifiers of modules and functions share. Internal to ir/verify.
#ifndef OPWIRE_IR_VERIFY_CHECKS_H_
#define OPWIRE_IR_VERIFY_CHECKS_H_

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/verify/verify.h"

namespace opwire::verify {

// Checks that it is an identifier within the limit. `what` begins the message.
Status CheckName(std::string_view name, const Limits& limits, std::string_view what);
// RESOURCE_EXHAUSTED when count > limit.
Status CheckLimit(int64_t count, int64_t limit, std::string_view what);

// Checks that calls form no cycle and nest at most to the limit. Also checks the limit of a
// function's nodes, where those of called functions count at each call.
struct CallOrder {
  std::vector<uint32_t> callers_first;  // the module's functions, each before those that it calls
  std::vector<int64_t> all_nodes;       // by function: FunctionTyping::all_nodes
};
StatusOr<CallOrder> OrderByCalls(const Module& module, const Limits& limits);
// Checks the types, modes and symbols of calls. Completes FunctionTyping::uses.
Status CheckCalledFunctions(const Module& module, Typing& typing,
                            std::span<const uint32_t> callers_first);

// Returns the same error with `where` appended, cut to a size that fits into a log line and a
// reply.
Status Annotate(const Status& s, const std::string& where);
// " (node %0 add of "f" at where)".
std::string PlaceOfNode(const Function& f, const ValueTypes& values, uint32_t node);

// Checks one function. `stamps` has an entry for each dimension that the check of some function has
// visited: the number of the last such function. So all checks together take linear time.
class FunctionVerifier {
 public:
  FunctionVerifier(Module& module, uint32_t function, const Limits& limits, const OpCatalogue& ops,
                   std::vector<uint32_t>& stamps);
  StatusOr<FunctionTyping> Verify();

 private:
  Status CheckParams();
  Status CheckNode(uint32_t index);
  Status CheckOperands(const Node& node, ValueId defined);
  Status CheckResults(const Node& node, const std::vector<TensorType>& inferred);
  Status CheckBlobs(const Node& node);
  Status CheckFunctionResults();
  Status CheckInouts();
  // Checks that the result of the parameter's name, null if there is none, can replace the
  // parameter.
  Status CheckReplacement(size_t param, const Result* result,
                          const std::unordered_map<ValueId, int>& times_returned) const;

  Status CheckType(const TensorType& type);
  // Checks an extent that the function names: it exists and is small. Notes its symbols as used.
  Status CheckDim(Dim d);
  Status NoteSymbols(Dim d);

  Status AtNode(const Status& s, uint32_t index) const;
  Status AtFunction(const Status& s) const;

  Module& module_;
  const uint32_t number_;
  const Function& f_;
  const Limits& limits_;
  const OpCatalogue& ops_;
  std::vector<uint32_t>& stamps_;
  const ValueTypes values_;
  std::vector<int64_t> last_read_;            // by parameter: the last node that reads it, -1: none
  std::unordered_set<uint64_t> constrained_;  // the pairs in out_.constraints
  FunctionTyping out_;
};

}  // namespace opwire::verify

#endif  // OPWIRE_IR_VERIFY_CHECKS_H_
