// The element types by which a row's variants are told apart.
#ifndef OPWIRE_KERNELS_SELECT_KEY_TYPES_H_
#define OPWIRE_KERNELS_SELECT_KEY_TYPES_H_

#include "ir/ops/catalogue.h"

namespace opwire {

// Those of the row's first type variable; without one those that its operands name, or all where it has none.
inline DTypeSet KeyTypesOf(const OpRow& row) {
  if (!row.variables.empty()) return row.variables[0].types;
  DTypeSet types;
  for (const OperandSpec& o : row.operands) types = types | row.TypesOf(o.type);
  return types.Empty() ? kAll : types;
}

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_KEY_TYPES_H_
