// The element types that distinguish the variants and calls of an op definition.
#ifndef OPWIRE_KERNELS_SELECT_KEY_TYPES_H_
#define OPWIRE_KERNELS_SELECT_KEY_TYPES_H_

#include "ir/ops/catalogue.h"
#include "ir/ops/type_binding.h"
#include "kernels/abi.h"

namespace opwire {

// The types of the definition's first type variable. Without a variable: those that its operands
// name, or all types if they name none.
inline DTypeSet KeyTypesOf(const OpDef& row) {
  if (!row.variables.empty()) return row.variables[0].types;
  DTypeSet types;
  for (const OperandSpec& o : row.operands) types = types | row.TypesOf(o.type);
  return types.Empty() ? kAll : types;
}

// Whether a call has the types that the definition's variables are bound to. REQUIRES: a definition
// without lists.
inline bool HasTypes(const opw_call* call, const OpDef& row, const TypeBinding& types) {
  bool has = true;
  const auto check = [&](const std::string& type, const opw_tensor& t) {
    has = has && static_cast<DType>(t.dtype) == TypeIn(types, type);
  };
  for (size_t i = 0; i < row.operands.size(); ++i)
    check(row.operands[i].type, call->operands[call->starts[i]]);
  for (size_t r = 0; r < row.results.size(); ++r) check(row.results[r].type, call->results[r]);
  return has;
}

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_KEY_TYPES_H_
