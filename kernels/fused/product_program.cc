// Counting a product program's tensors, and what identifies it.
#include "kernels/fused/product_program.h"

#include <fmt/format.h>

#include <bit>

namespace opwire::fused {

size_t ProductProgram::Operands() const {
  size_t count = 1;
  if (norm) count += norm->adds + norm->weighted;
  count += (positions != DType::kInvalid) + (at != DType::kInvalid);
  for (const Section& s : sections) count += s.finish.inputs().size() + (s.places > 0);
  return count;
}

size_t ProductProgram::Results() const {
  size_t count = norm && norm->adds ? 1 : 0;
  for (const Section& s : sections) count += s.finish.outputs().size();
  return count;
}

int ProductProgram::Arguments() const {
  int count = 0;
  for (const Section& s : sections) count += s.finish.arguments();
  return count;
}

std::string ProductProgram::Identity() const {
  std::string out = fmt::format("{} {} {} {} {}", static_cast<int>(type), rows, terms,
                                static_cast<int>(positions), static_cast<int>(at));
  if (norm)
    out += fmt::format(" norm {} {} {:x}", norm->adds, norm->weighted,
                       std::bit_cast<uint64_t>(norm->eps));
  for (const Section& s : sections) {
    out += fmt::format("; {} {} {} {}", s.products, s.columns, s.depth, s.places);
    if (s.turn)
      out +=
          fmt::format(" turn {:x} {:x} {} {}", std::bit_cast<uint64_t>(s.turn->theta),
                      std::bit_cast<uint64_t>(s.turn->scale), s.turn->interleaved, s.turn->inverse);
    for (const bool of_rows : s.by_row) out += of_rows ? " r" : " c";
    const std::string finish = s.finish.Identity();
    out += fmt::format(" {}:", finish.size()) + finish;
  }
  return out;
}

}  // namespace opwire::fused
