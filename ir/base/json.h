// JSON to text and back. nlohmann's parser and writer are templates of 300 KB: they are compiled
// here only, and other files call these.
#ifndef OPWIRE_IR_BASE_JSON_H_
#define OPWIRE_IR_BASE_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace opwire {

// The discarded value (is_discarded) if the text is not JSON.
nlohmann::json ParseJson(std::string_view text);

// In one line, or with `indent` spaces a level. What is not UTF-8 becomes U+FFFD; `ascii`: all that
// is not ASCII becomes \u escapes.
std::string DumpJson(const nlohmann::json& value, int indent = -1, bool ascii = false);

}  // namespace opwire

#endif  // OPWIRE_IR_BASE_JSON_H_
