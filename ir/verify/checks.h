// Checks that the verifier of modules and that of functions share. Internal to ir/verify.
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

// An identifier within the limit; `what` begins the message.
Status CheckName(std::string_view name, const Limits& limits, std::string_view what);
// RESOURCE_EXHAUSTED when count > limit.
Status CheckLimit(int64_t count, int64_t limit, std::string_view what);

// Calls form no cycle and nest at most to the limit, nor does a function have more nodes than its
// limit where those of each function that it calls are counted at each call.
struct CallOrder {
  std::vector<uint32_t> callers_first;  // the module's functions, each before those that it calls
  std::vector<int64_t> all_nodes;       // by function: FunctionTyping::all_nodes
};
StatusOr<CallOrder> OrderByCalls(const Module& module, const Limits& limits);
// What calls of functions ask for: types, modes, symbols. Completes FunctionTyping::uses.
Status CheckCalledFunctions(const Module& module, Typing& typing,
                            std::span<const uint32_t> callers_first);

// The same error with what `where` adds, cut to a size that a log line and a reply can bear.
Status Annotate(const Status& s, const std::string& where);
// " (node %0 add of "f" at where)".
std::string PlaceOfNode(const Function& f, const ValueTypes& values, uint32_t node);

// The checks of one function. `stamps` has an entry for each dimension that some function's walk
// has seen, the number of the function that saw it last: so that all walks together are linear.
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
  // The result of the parameter's name, null where there is none, is fit to replace it.
  Status CheckReplacement(size_t param, const Result* result,
                          const std::unordered_map<ValueId, int>& times_returned) const;

  Status CheckType(const TensorType& type);
  // An extent that the function names: it exists, is small, and its symbols are noted as used.
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
  std::vector<int64_t> last_read_;  // by parameter: the last node that reads it, -1 for none
  std::unordered_set<uint64_t> constrained_;  // the pairs in out_.constraints
  FunctionTyping out_;
};

}  // namespace opwire::verify

#endif  // OPWIRE_IR_VERIFY_CHECKS_H_
