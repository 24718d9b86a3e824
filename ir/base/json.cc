#include "ir/base/json.h"

#include <nlohmann/json.hpp>

namespace opwire {

nlohmann::json ParseJson(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string DumpJson(const nlohmann::json& value, int indent, bool ascii) {
  return value.dump(indent, ' ', ascii, nlohmann::json::error_handler_t::replace);
}

}  // namespace opwire
