// The limits of programs by name.
#include <array>

#include "ir/verify/verify.h"

namespace opwire {

std::span<const LimitRow> LimitTable() {
  static constexpr std::array<LimitRow, 15> kTable = {{
      {"functions", &Limits::functions, "Functions of a program."},
      {"nodes", &Limits::nodes, "Nodes of all its functions."},
      {"operands", &Limits::operands, "Operands and called functions of all nodes."},
      {"params", &Limits::params, "Parameters of all functions."},
      {"results", &Limits::results, "Results of all functions."},
      {"call-depth", &Limits::call_depth,
       "Functions called within each other, the entry not counted."},
      {"rank", &Limits::rank, "Axes of a tensor."},
      {"attribute-bytes", &Limits::attribute_bytes, "Names and values of all attributes."},
      {"symbols", &Limits::symbols, "Dimension symbols."},
      {"dims", &Limits::dims, "Dimension expressions, those of shape rules not counted."},
      {"blobs", &Limits::blobs, "Constants held as bytes."},
      {"blob-bytes", &Limits::blob_bytes, "Their bytes."},
      {"name-bytes", &Limits::name_bytes, "Bytes of a name."},
      {"location-bytes", &Limits::location_bytes, "Bytes of a source location."},
      {"tensor-bytes", &Limits::tensor_bytes,
       "Bytes of a tensor if its symbols have their least extents."},
  }};
  return kTable;
}

}  // namespace opwire
