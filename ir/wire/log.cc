// JSON lines through spdlog.
#include "ir/wire/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "ir/base/json.h"

namespace opwire {
namespace {

constexpr size_t kMostChars = 512;

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto l = spdlog::stderr_logger_mt("opwire");
    l->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})",
                   spdlog::pattern_time_type::utc);
    return l;
  }();
  return *logger;
}

std::string& Source() {
  static std::string source;
  return source;
}

}  // namespace

bool SetLogLevel(std::string_view name) {
  const auto level = name == "debug"     ? spdlog::level::debug
                     : name == "info"    ? spdlog::level::info
                     : name == "warning" ? spdlog::level::warn
                     : name == "error"   ? spdlog::level::err
                                         : spdlog::level::off;
  if (level == spdlog::level::off) return false;
  Logger().set_level(level);
  return true;
}

void SetLogSource(std::string source) { Source() = std::move(source); }

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  const spdlog::level::level_enum l = level == LogLevel::kDebug     ? spdlog::level::debug
                                      : level == LogLevel::kInfo    ? spdlog::level::info
                                      : level == LogLevel::kWarning ? spdlog::level::warn
                                                                    : spdlog::level::err;
  if (!Logger().should_log(l)) return;
  const auto quoted = [](std::string_view s) {
    return DumpJson(std::string(s.substr(0, kMostChars)), -1, /*ascii=*/true);
  };
  std::string line = "\"source\":" + quoted(Source()) + ",\"event\":" + quoted(event);
  for (const auto& [key, value] : fields) line += "," + quoted(key) + ":" + quoted(value);
  Logger().log(l, "{}", line);
  Logger().flush();
}

}  // namespace opwire
