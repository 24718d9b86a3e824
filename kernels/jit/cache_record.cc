// As JSON, so that people can read it.
#include "kernels/jit/cache_record.h"

#include <nlohmann/json.hpp>

#include "ir/base/json.h"

namespace opwire::jit {
namespace {

constexpr int kRecordVersion = 1;

}  // namespace

std::string WriteRecord(const CacheRecord& record) {
  const CacheEntry& e = record.entry;
  const nlohmann::json json = {{"record", kRecordVersion},
                               {"key", e.key},
                               {"name", e.name},
                               {"toolchain", e.toolchain},
                               {"version", e.version},
                               {"arch", e.arch},
                               {"bytes", e.bytes},
                               {"built_at", e.built_at},
                               {"seconds", e.seconds},
                               {"unit", record.unit},
                               {"sha256", record.sha256},
                               {"tried", e.verdict.tried},
                               {"failure", e.verdict.failure},
                               {"deaths", e.verdict.deaths}};
  return DumpJson(json, 2) + "\n";
}

std::optional<CacheRecord> ParseRecord(std::string_view text) {
  const nlohmann::json json = ParseJson(text);
  if (!json.is_object()) return std::nullopt;
  try {
    if (json.at("record") != kRecordVersion) return std::nullopt;
    CacheRecord record;
    CacheEntry& e = record.entry;
    json.at("key").get_to(e.key);
    json.at("name").get_to(e.name);
    json.at("toolchain").get_to(e.toolchain);
    json.at("version").get_to(e.version);
    json.at("arch").get_to(e.arch);
    json.at("bytes").get_to(e.bytes);
    json.at("built_at").get_to(e.built_at);
    json.at("seconds").get_to(e.seconds);
    json.at("unit").get_to(record.unit);
    json.at("sha256").get_to(record.sha256);
    json.at("tried").get_to(e.verdict.tried);
    json.at("failure").get_to(e.verdict.failure);
    json.at("deaths").get_to(e.verdict.deaths);
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace opwire::jit
