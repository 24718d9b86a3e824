// What the type variables of a row stand for at one call.
#ifndef OPWIRE_IR_OPS_TYPE_BINDING_H_
#define OPWIRE_IR_OPS_TYPE_BINDING_H_

#include <string>
#include <utility>
#include <vector>

#include "ir/ops/catalogue.h"

namespace opwire {

using TypeBinding = std::vector<std::pair<std::string, DType>>;

// What `type` of a signature stands for; kInvalid for a variable that is not in the binding.
DType TypeIn(const TypeBinding& types, const std::string& type);
// Every combination of the variables' types; RESOURCE_EXHAUSTED beyond 256.
StatusOr<std::vector<TypeBinding>> TypeBindings(const OpDef& row);

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_TYPE_BINDING_H_
