// Building, checking and measuring the ops of folders, and looking after the cache.
#include "executor/ops/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "executor/ops/trial.h"
#include "ir/base/json.h"
#include "ir/ops/names.h"
#include "kernels/jit/cache.h"
#include "kernels/jit/manifest.h"
#include "kernels/jit/prebuilt.h"

namespace opwire::executor {
namespace {

using jit::OpManifest;
using jit::OpVariantSpec;
using nlohmann::json;

enum : int { kDone = 0, kFailed = 1, kWrongUsage = 2 };
constexpr double kTrialSeconds = 300;

void PrintJson(const json& j) { fmt::print("{}\n", Printable(DumpJson(j, 2))); }

// Of a device that is not the one that kernels are checked on.
std::vector<std::string> ArchsOf(const std::string& backend, bool all) {
  if (backend == "cuda")
    return all ? std::vector<std::string>{"sm_80", "sm_90a"} : std::vector<std::string>{"sm_90a"};
  if (backend == "hip") return {"gfx90a"};
  return all ? jit::ArchsBelow(jit::HostArch()) : std::vector<std::string>{jit::HostArch()};
}

class Builder {
 public:
  explicit Builder(const BuildFlags& flags) : flags_(flags) {}

  int Run() {
    if (flags_.device != "cpu") {
      // Only to know it: kernels are checked in processes of their own, which open it for
      // themselves.
      const auto device = OpenDevice(flags_.device, {});
      if (!device.ok()) return Complain(device.status());
      own_ = (*device)->info().kind;
      own_arch_ = (*device)->info().arch;
    }
    toolchains_.emplace(jit::ToolchainOptions{}, own_);
    auto cache = jit::BuildCache::Open({.directory = flags_.cache});
    if (!cache.ok()) return Complain(cache.status());
    cache_ = *std::move(cache);
    if (!cache_->warning().empty()) fmt::print(stderr, "{}\n", Printable(cache_->warning()));
    json out = json::array();
    bool failed = false;
    for (const std::string& directory : flags_.directories) {
      const auto folders = jit::OpFolders(directory);
      if (!folders.ok()) return Complain(folders.status());
      if (folders->empty()) {
        return Complain(
            NotFound("{}: expected {} there or in its folders; opwire new-op NAME makes one",
                     directory, jit::kManifestName));
      }
      for (const std::string& folder : *folders) {
        json op = Op(folder);
        failed |= op.contains("failure");
        for (const json& v : op.value("variants", json::array()))
          failed |= v.at("state") == "failed";
        out.push_back(std::move(op));
      }
    }
    if (flags_.json) PrintJson(out);
    return failed ? kFailed : kDone;
  }

 private:
  static int Complain(const Status& status) {
    fmt::print(stderr, "opwire build: {}\n", Printable(MessageOf(status)));
    return kWrongUsage;
  }

  json Op(const std::string& folder) {
    const auto op = jit::ReadManifest(folder);
    if (!op.ok()) {
      if (!flags_.json) fmt::print("{}\n", Printable(MessageOf(op.status())));
      return {{"folder", folder}, {"failure", MessageOf(op.status())}};
    }
    json variants = json::array();
    for (const OpVariantSpec& variant : op->variants) {
      for (const std::string& backend : variant.BackendsFor(own_)) {
        std::vector<std::string> archs = ArchsOf(backend, flags_.all);
        if (backend == own_ && std::ranges::find(archs, own_arch_) == archs.end())
          archs = {own_arch_};
        for (const std::string& arch : archs) {
          json v = One(*op, variant, backend, arch);
          if (!flags_.json) Show(*op, v);
          variants.push_back(std::move(v));
        }
      }
    }
    return {{"folder", folder}, {"op", op->name()}, {"variants", variants}};
  }

  json One(const OpManifest& op, const OpVariantSpec& variant, const std::string& backend,
           const std::string& arch) {
    json v{{"variant", variant.name}, {"backend", backend}, {"arch", arch}};
    const auto end = [&](const char* state, const std::string& reason) {
      v["state"] = state;
      v["reason"] = reason;
      return v;
    };
    if (const auto least = variant.min_arch.find(backend); least != variant.min_arch.end()) {
      if (const std::string below = jit::BelowArch(arch, least->second); !below.empty())
        return end("skipped", below);
    }
    jit::Toolchain& toolchain = toolchains_->Of(backend);
    const jit::ToolchainFacts& facts = toolchain.facts();
    // A machine without a GPU's compiler can still be where an op is written.
    if (!facts.available()) return end(backend == own_ ? "failed" : "skipped", facts.reason);
    v["toolchain"] = facts.version;
    auto request = jit::RequestFor(op, variant, backend, arch);
    if (!request.ok()) return end("failed", MessageOf(request.status()));
    auto entry = cache_->Get(toolchain, *request);
    if (!entry.ok()) return end("failed", MessageOf(entry.status()));
    v["object"] = entry->object;
    v["bytes"] = entry->bytes;
    v["seconds"] = entry->seconds;
    const bool runs = backend == own_ && (backend == "cpu" || arch == own_arch_);
    if (!runs) return end(entry->built ? "built" : "cached", "compiled; nothing here runs it");
    TrialOptions trial{
        .device = flags_.device,
        .check = {.thorough = !flags_.quick, .measure = !flags_.quick, .seed = flags_.seed},
        .seconds = kTrialSeconds};
    const auto report = TryKernel(op.folder, variant.name, entry->object, trial);
    if (absl::IsInternal(report.status()))
      return end("failed", MessageOf(report.status()));  // the machine's affair, not the kernel's
    jit::Verdict verdict{.tried = true,
                         .failure = report.ok() ? "" : MessageOf(report.status()),
                         .deaths = entry->verdict.deaths};
    if (Status s = cache_->SetVerdict(entry->key, verdict); !s.ok())
      fmt::print(stderr, "{}\n", Printable(MessageOf(s)));
    if (!report.ok()) return end("failed", MessageOf(report.status()));
    v["cases"] = report->cases;
    v["worst"] = report->worst;
    for (const Measurement& m : report->measurements) {
      v["speed"].push_back({{"what", m.what},
                            {"seconds", m.seconds},
                            {"reference_seconds", m.reference_seconds},
                            {"copy_seconds", m.copy_seconds},
                            {"bytes", m.bytes}});
    }
    if (flags_.all && backend == "cpu") {
      if (Status s = jit::StorePrebuilt(op, variant, arch, entry->object); !s.ok())
        return end("failed", MessageOf(s));
    }
    return end(entry->built ? "built" : "cached", "");
  }

  void Show(const OpManifest& op, const json& v) const {
    fmt::print("{}@{}  {} {}: {}", op.name(), v.at("variant").get<std::string>(),
               v.at("backend").get<std::string>(), v.at("arch").get<std::string>(),
               v.at("state").get<std::string>());
    if (v.at("state") == "built")
      fmt::print(" in {:.2f} s by {}", v.at("seconds").get<double>(), v.value("toolchain", ""));
    if (const std::string reason = v.at("reason"); !reason.empty())
      fmt::print(": {}", Printable(reason));
    fmt::print("\n");
    if (v.contains("cases")) {
      fmt::print("  {} cases agree with the reference{} (seed {})\n", v.at("cases").get<int>(),
                 own_ == "cpu" ? ", between guard pages" : "", flags_.seed);
      for (const std::string& worst : v.at("worst").get<std::vector<std::string>>())
        fmt::print("  largest error of {}\n", worst);
    }
    for (const json& s : v.value("speed", json::array())) {
      const double seconds = s.at("seconds"), reference = s.at("reference_seconds"),
                   copy = s.at("copy_seconds");
      fmt::print("  {}: {:.3f} ms, {:.1f} GB/s; {:.2f} x the time of a copy",
                 s.at("what").get<std::string>(), seconds * 1e3,
                 s.at("bytes").get<double>() / seconds * 1e-9, seconds / copy);
      if (reference > 0) fmt::print(", {:.1f} x as fast as the reference", reference / seconds);
      fmt::print("\n");
    }
    std::fflush(stdout);
  }

  const BuildFlags& flags_;
  std::string own_ = "cpu", own_arch_ = jit::HostArch();  // of the device
  std::optional<jit::Toolchains> toolchains_;
  std::unique_ptr<jit::BuildCache> cache_;
};

std::string Bytes(int64_t n) {
  if (n < 10240) return fmt::format("{} B", n);
  const bool small = n < (1 << 20);
  return fmt::format("{:.1f} {}", static_cast<double>(n) / (small ? 1 << 10 : 1 << 20),
                     small ? "KiB" : "MiB");
}

std::string TimeText(int64_t seconds) {
  const auto at = static_cast<std::time_t>(seconds);
  std::tm local{};
  localtime_r(&at, &local);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local));
}

int List(jit::BuildCache& cache, bool as_json) {
  const std::vector<jit::CacheEntry> entries = cache.List();
  if (as_json) {
    json out = json::array();
    for (const jit::CacheEntry& e : entries) {
      out.push_back({{"key", e.key},
                     {"name", e.name},
                     {"toolchain", e.toolchain},
                     {"version", e.version},
                     {"arch", e.arch},
                     {"bytes", e.bytes},
                     {"built_at", e.built_at},
                     {"used_at", e.used_at},
                     {"seconds", e.seconds},
                     {"tried", e.verdict.tried},
                     {"failure", e.verdict.failure},
                     {"deaths", e.verdict.deaths}});
    }
    PrintJson(out);
    return kDone;
  }
  int64_t total = 0;
  for (const jit::CacheEntry& e : entries) {
    total += e.bytes;
    const std::string verdict = !e.verdict.tried             ? "not tried"
                                : !e.verdict.failure.empty() ? "refused: " + e.verdict.failure
                                : e.verdict.deaths > 0 ? fmt::format("{} deaths", e.verdict.deaths)
                                                       : "good";
    fmt::print("{}  {:<32} {:<10} {:>9}  {}  {}\n", e.key.substr(0, 12), e.name, e.arch,
               Bytes(e.bytes), TimeText(e.used_at), Printable(verdict));
  }
  fmt::print("{} objects, {} in {}\n", entries.size(), Bytes(total), cache.directory());
  return kDone;
}

StatusOr<std::unique_ptr<jit::BuildCache>> OpenCache(const CacheFlags& flags) {
  return jit::BuildCache::Open({.directory = flags.directory});
}

int CacheFailed(const Status& status) {
  fmt::print(stderr, "opwire cache: {}\n", Printable(MessageOf(status)));
  return kFailed;
}

}  // namespace

int BuildOps(const BuildFlags& flags) { return Builder(flags).Run(); }

int ShowCache(const CacheFlags& flags) {
  auto cache = OpenCache(flags);
  return cache.ok() ? List(**cache, flags.json) : CacheFailed(cache.status());
}

int PruneCache(const CacheFlags& flags) {
  auto cache = OpenCache(flags);
  if (!cache.ok()) return CacheFailed(cache.status());
  const auto removed = (*cache)->Prune(flags.bytes);
  if (!removed.ok()) return CacheFailed(removed.status());
  if (flags.json)
    PrintJson({{"removed", *removed}});
  else
    fmt::print("removed {} objects from {}\n", *removed, (*cache)->directory());
  return kDone;
}

}  // namespace opwire::executor
