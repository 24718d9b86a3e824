// The conformance suite's own reader of GGUF's blocks, as ggml's quants.c stores them.
//   https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c
#ifndef OPWIRE_TESTS_CONFORMANCE_BLOCKS_H_
#define OPWIRE_TESTS_CONFORMANCE_BLOCKS_H_

#include <string_view>
#include <vector>

#include "tests/conformance/cases.h"
#include "tests/conformance/tensor.h"

namespace opwire::conformance {

struct BlockElement {
  Real product, offset;  // of scale and value, and the offset that is added; 0 if the encoding has
                         // none
};
// REQUIRES: whole blocks of one of GGUF's encodings.
std::vector<BlockElement> ReadBlocks(Encoding encoding, std::string_view bytes);

// Returns blocks of random bytes whose scales are moderate; with kSpecial any scales. REQUIRES: the
// last extent is of whole blocks.
Tensor MakeBlocks(Encoding encoding, Extents shape, Values values, Random& random);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_BLOCKS_H_
