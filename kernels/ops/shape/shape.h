// The parts of the shape family.
#ifndef OPWIRE_KERNELS_OPS_SHAPE_SHAPE_H_
#define OPWIRE_KERNELS_OPS_SHAPE_SHAPE_H_

#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::shape {

// reshape, permute, expand, cat, tile, slice, slice_update.
void AddMoveReference(VariantTable& table);
// index_select, gather, scatter_add, index_put, choose, one_hot, embedding, embedding_backward.
void AddIndexingReference(VariantTable& table);
// "generic": reshape, cat, slice, slice_update and tile of dense tensors.
void AddCopies(VariantTable& table, const Isa& isa);
// "generic": permute of dense tensors.
void AddPermute(VariantTable& table, const Isa& isa);
// "generic": index_select, embedding, gather, choose and one_hot of dense tensors.
void AddIndexing(VariantTable& table, const Isa& isa);
// "generic": scatter_add.
void AddScatterAdd(VariantTable& table, const Isa& isa);
// "generic": index_put of dense tensors.
void AddIndexPut(VariantTable& table, const Isa& isa);
// "generic": embedding_backward of dense tensors.
void AddEmbeddingBackward(VariantTable& table, const Isa& isa);

}  // namespace opwire::ops::shape

#endif  // OPWIRE_KERNELS_OPS_SHAPE_SHAPE_H_
