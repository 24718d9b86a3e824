// The blocks family's variants.
#include "kernels/ops/blocks/blocks.h"
#include "kernels/ops/families.h"

namespace opwire::ops::blocks {

void AddBlocks(VariantTable& table, const Isa& isa) {
  AddBlocksReference(table);
  AddBlocksFast(table, isa);
}

}  // namespace opwire::ops::blocks
