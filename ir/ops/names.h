// Names in messages: client strings escaped and cut, and suggestions for unknown ones.
#ifndef OPWIRE_IR_OPS_NAMES_H_
#define OPWIRE_IR_OPS_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

namespace opwire {

// `text` fit for a message: at most `limit` bytes of it, then "..."; bytes outside printable ASCII
// as \xNN.
std::string Clip(std::string_view text, size_t limit = 64);

// `text` fit for a terminal, which it can neither control nor reorder: control characters, marks of
// direction, and bytes that are not UTF-8 as \xNN or \uNNNN. Line feeds stay, unless `one_line`. Of
// JSON text without invalid UTF-8 it makes the same JSON.
std::string Printable(std::string_view text, bool one_line = false);

// A letter or '_', then letters, digits, '_' and '.': what parameters, results, functions, symbols
// and variants are called.
bool IsIdentifier(std::string_view name);

// Up to three of `names` within a third of `name`'s length in edits (at least two), the nearest
// first.
std::vector<std::string> NearestNames(std::string_view name,
                                      const std::vector<std::string_view>& names);

// ", did you mean a, b?"; empty without candidates.
std::string DidYouMean(const std::vector<std::string>& candidates);

}  // namespace opwire

#endif  // OPWIRE_IR_OPS_NAMES_H_
