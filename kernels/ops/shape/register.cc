// The shape family's variants.
#include "kernels/ops/families.h"
#include "kernels/ops/shape/shape.h"

namespace opwire::ops::shape {

void AddShape(VariantTable& table, const Isa& isa) {
  AddMoveReference(table);
  AddIndexingReference(table);
  AddCopies(table, isa);
  AddPermute(table, isa);
  AddIndexing(table, isa);
  AddScatterAdd(table, isa);
  AddIndexPut(table, isa);
  AddEmbeddingBackward(table, isa);
}

}  // namespace opwire::ops::shape
