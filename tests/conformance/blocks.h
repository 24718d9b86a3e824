// The conformance suite's own reading of GGUF's blocks, as ggml's quants.c lays them out.
//   https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c
#ifndef OPWIRE_TESTS_CONFORMANCE_BLOCKS_H_
#define OPWIRE_TESTS_CONFORMANCE_BLOCKS_H_

#include <string_view>
#include <vector>

#include "tests/conformance/cases.h"
#include "tests/conformance/tensor.h"

namespace opwire::conformance {

struct BlockElement {
  Real product, offset;  // of scale and value, and what is added; 0 where the encoding has none
};
// REQUIRES: whole blocks of one of GGUF's encodings.
std::vector<BlockElement> ReadBlocks(Encoding encoding, std::string_view bytes);

// Blocks of random bytes whose scales are moderate, or with kSpecial any. REQUIRES: the last extent
// is of whole blocks.
Tensor MakeBlocks(Encoding encoding, Extents shape, Values values, Random& random);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_BLOCKS_H_
