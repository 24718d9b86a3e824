// What executors say of themselves as JSON, asked for and printed.
#ifndef OPWIRE_FRONTEND_CLI_FACTS_H_
#define OPWIRE_FRONTEND_CLI_FACTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "frontend/cli/cli.h"
#include "ir/base/json.h"
#include "ir/ops/names.h"

namespace opwire::cli {

using nlohmann::json;

inline std::string Text(const json& j) { return j.get<std::string>(); }
inline int64_t Count(const json& j) { return j.get<int64_t>(); }

// The same in one line, in the order of the keys.
inline void PrintJsonLine(const nlohmann::ordered_json& j, std::FILE* to = stdout) {
  fmt::print(to, "{}\n",
             Printable(j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
}
inline void PrintJson(const json& j) { fmt::print("{}\n", Printable(DumpJson(j, 2))); }

// As Ask. INTERNAL where the answer is no JSON.
inline StatusOr<json> AskJson(const ExecutorFacts& executor, std::string_view topic,
                              std::string_view argument = "", DType dtype = DType::kInvalid) {
  OPWIRE_ASSIGN_OR_RETURN(const std::string text, Ask(executor, topic, argument, dtype));
  json j = ParseJson(text);
  if (j.is_discarded()) return Internal("executor {} answered {} with no JSON", executor.id, topic);
  return j;
}

}  // namespace opwire::cli

#endif  // OPWIRE_FRONTEND_CLI_FACTS_H_
