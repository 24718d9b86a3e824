#include "tests/bench/oracle.h"

namespace opwire::bench {

conformance::Tensor DecodedOf(DType dtype, const std::vector<int64_t>& shape,
                              std::string_view bytes) {
  conformance::Tensor t{.dtype = dtype, .shape = shape};
  if (dtype == DType::kInvalid) return t;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(DTypeBytes(dtype)))
    t.values.push_back(conformance::Decode(dtype, bytes.data() + at));
  return t;
}

StatusOr<conformance::Expected> OracleOf(const Device& device, const std::string& op,
                                         Operands operands, const std::vector<NamedAttr>& attrs,
                                         const std::vector<uint32_t>& segments) {
  const OpDef* const row = Catalogue().Find(op);
  if (!row) return NotFound("no op {}", op);
  while (segments.empty() && operands.size() < row->operands.size()) operands.emplace_back();
  const conformance::Case c{
      .name = op, .operands = std::move(operands), .segments = segments, .attrs = attrs};
  OPWIRE_ASSIGN_OR_RETURN(const conformance::BoundCase bound, conformance::Bind(*row, c));
  return conformance::ExpectedOf(bound, device);
}

StatusOr<std::vector<Array>> OracleArrays(const Device& device, const std::string& op,
                                          Operands operands, const std::vector<NamedAttr>& attrs,
                                          const std::vector<uint32_t>& segments) {
  OPWIRE_ASSIGN_OR_RETURN(const conformance::Expected expected,
                          OracleOf(device, op, std::move(operands), attrs, segments));
  std::vector<Array> out;
  for (const conformance::Expected::Result& r : expected.results) {
    Array& array = out.emplace_back(r.tensor.dtype, r.tensor.shape);
    uint8_t* at = array.bytes().data();
    for (const conformance::Real v : r.tensor.values) {
      conformance::Encode(r.tensor.dtype, v, at);
      at += DTypeBytes(r.tensor.dtype);
    }
  }
  return out;
}

}  // namespace opwire::bench
