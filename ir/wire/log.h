// Logs: one JSON object a line on standard error. Strings from clients are escaped and cut; no
// tensor data.
//
//   Log(LogLevel::kInfo, "session opened", {{"session", "3"}, {"principal", "uid:1000"}});
#ifndef OPWIRE_IR_WIRE_LOG_H_
#define OPWIRE_IR_WIRE_LOG_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace opwire {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogField = std::pair<std::string_view, std::string>;

// Levels below are dropped; "debug", "info", "warning", "error". False for another name.
bool SetLogLevel(std::string_view name);
// The program's name and id, on every line.
void SetLogSource(std::string source);
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_LOG_H_
