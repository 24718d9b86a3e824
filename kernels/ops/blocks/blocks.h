// The parts of the blocks family, and how its kernels read a call.
#ifndef OPWIRE_KERNELS_OPS_BLOCKS_BLOCKS_H_
#define OPWIRE_KERNELS_OPS_BLOCKS_BLOCKS_H_

#include "kernels/abi.h"
#include "kernels/ops/call.h"
#include "kernels/select/isa.h"
#include "kernels/select/variant.h"

namespace opwire::ops::blocks {

void AddBlocksReference(VariantTable& table);
// "avx512vnni", "avx512" and "avx2".
void AddBlocksFast(VariantTable& table, const Isa& isa);

inline BlockLayout LayoutOf(const opw_tensor& t) {
  return opwire::LayoutOf(TypeOf(t), static_cast<Encoding>(t.encoding));
}

// An encoded tensor's rows along its last axis, one after the other.
struct EncodedRows {
  const uint8_t* blocks;
  BlockLayout layout;
  int64_t k, bytes;  // of a row

  explicit EncodedRows(const opw_tensor& t)
      : blocks(static_cast<const uint8_t*>(t.data)),
        layout(LayoutOf(t)),
        k(t.shape[t.rank - 1]),
        bytes(k / layout.elements * layout.bytes) {}
  const uint8_t* Row(int64_t row) const { return blocks + row * bytes; }
};

}  // namespace opwire::ops::blocks

#endif  // OPWIRE_KERNELS_OPS_BLOCKS_BLOCKS_H_
