// Reads an op's folder, takes objects from the cache, builds and tries variants.
#include "executor/ops/op_version.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "executor/ops/trial.h"
#include "ir/wire/log.h"
#include "kernels/jit/library.h"
#include "kernels/jit/prebuilt.h"
#include "kernels/ops/gpu/user_kernel.h"
#include "kernels/select/key_types.h"
#include "kernels/select/quarantine.h"

namespace opwire::executor {
namespace {

using jit::OpManifest;
using jit::OpVariantSpec;

// The architecture for a device that is not this executor's.
std::string ArchOf(const OpVariantSpec& spec, const std::string& backend) {
  if (backend == "cpu") return jit::HostArch();
  if (const auto least = spec.min_arch.find(backend); least != spec.min_arch.end())
    return least->second;
  return backend == "cuda" ? "sm_90a"
                           : "gfx90a";  // the request of a GPU executor on today's machines
}

}  // namespace

bool OpVersion::Loaded() const {
  return std::ranges::any_of(variants, [](const Built& b) { return b.holds != nullptr; });
}

bool OpVersion::Waiting() const {
  return std::ranges::any_of(variants, [](const Built& b) { return b.state == Built::kWaiting; });
}

void OpVersion::AddTo(KernelSet& set) const {
  const OpManifest& op = *manifest;
  const DTypeSet dtypes = KeyTypesOf(op.row);
  for (const Built& b : variants) {
    if (!b.own) {
      set.other_backends.push_back(
          {op.name(), b.spec.name, b.backend, b.arch, b.reason, b.state != Built::kWaiting});
      continue;
    }
    Variant variant{op.name(), b.spec.name, Tier::kProduction, b.spec.priority,
                    dtypes,    "",          op.folder};
    variant.origin = b.origin;
    if (b.holds) {
      variant.kernel = b.kernel;
      variant.holds = b.holds;
      variant.build = b.key.empty() ? op.digest.substr(0, 12) : b.key.substr(0, 12);
    } else {
      variant.unavailable = b.state == Built::kWaiting ? "is being built" : b.reason;
    }
    set.variants.Add(std::move(variant));
  }
  set.variants.Add({op.name(), "reference", Tier::kReference, 0, dtypes, "", op.folder,
                    reference->kernel(), nullptr, Origin::kPrebuilt, reference});
}

OpSource::OpSource(OpSourceOptions options, std::unique_ptr<jit::BuildCache> cache,
                   std::shared_ptr<const KernelSet> builtin)
    : options_(std::move(options)),
      cache_(std::move(cache)),
      builtin_(std::move(builtin)),
      backend_(options_.device ? options_.device->info().kind : "cpu"),
      toolchains_({.seconds = options_.seconds, .worker = options_.worker}, backend_) {}

Built OpSource::NewBuilt(const OpVariantSpec& spec, const std::string& backend) const {
  Built b{.spec = spec, .backend = backend, .own = backend == backend_};
  b.arch = b.own && options_.device ? options_.device->info().arch : ArchOf(spec, backend);
  const auto least = spec.min_arch.find(backend);
  b.reason = least == spec.min_arch.end() ? "" : jit::BelowArch(b.arch, least->second);
  if (!b.reason.empty()) b.state = Built::kUnsuited;
  return b;
}

StatusOr<std::shared_ptr<OpVersion>> OpSource::ReadFiles(const std::string& folder,
                                                         ReferenceProgram::When when) const {
  auto version = std::make_shared<OpVersion>();
  OPWIRE_ASSIGN_OR_RETURN(OpManifest manifest, jit::ReadManifest(folder));
  version->manifest = std::make_shared<const OpManifest>(std::move(manifest));
  const OpManifest& op = *version->manifest;
  OPWIRE_ASSIGN_OR_RETURN(
      version->reference,
      ReferenceProgram::Make(op.declaration, op.row, op.reference, op.folder + "/reference",
                             builtin_, when, /*wide=*/false, options_.device));
  for (const OpVariantSpec& spec : op.variants) {
    for (const std::string& backend : spec.BackendsFor(backend_))
      version->variants.push_back(NewBuilt(spec, backend));
  }
  return version;
}

StatusOr<std::shared_ptr<OpVersion>> OpSource::Read(const std::string& folder) {
  OPWIRE_ASSIGN_OR_RETURN(std::shared_ptr<OpVersion> version,
                          ReadFiles(folder, ReferenceProgram::When::kAsked));
  const OpManifest& op = *version->manifest;
  for (Built& b : version->variants) {
    if (b.state == Built::kWaiting && !FromPrebuilt(op, b)) FromCache(op, b);
  }
  if (!version->Waiting()) return version;
  // The reference runs until the missing variants are built, so check it now.
  OPWIRE_ASSIGN_OR_RETURN(std::shared_ptr<OpVersion> planned,
                          ReadFiles(folder, ReferenceProgram::When::kNow));
  if (planned->manifest->digest == op.digest) planned->variants = version->variants;
  return planned;
}

// The object was checked when it was built, on a machine of its architecture.
bool OpSource::FromPrebuilt(const OpManifest& op, Built& b) {
  const auto object =
      b.own && b.backend == "cpu" ? jit::FindPrebuilt(op, b.spec, b.arch) : std::nullopt;
  if (!object) return false;
  if (options_.died == op.name() + "@" + b.spec.name) {
    // A rebuilt object is in the cache, which counts deaths.
    jit::ForgetPrebuilt(*object);
    return false;
  }
  if (Status s = Load(op, *object, b); !s.ok()) {
    Log(LogLevel::kWarning, "a prebuilt kernel does not load; it is built again",
        {{"object", *object}, {"why", MessageOf(s)}});
    return false;
  }
  b.origin = Origin::kPrebuilt;
  b.state = Built::kReady;
  return true;
}

bool OpSource::FromCache(const OpManifest& op, Built& b) {
  auto request = jit::RequestFor(op, b.spec, b.backend, b.arch);
  if (!request.ok()) return false;
  auto entry = cache_->Find(toolchains_.Of(b.backend), *request);
  if (!entry || (b.own && !entry->verdict.tried)) return false;
  b.origin = Origin::kCached;
  Take(op, b, *std::move(entry));
  return true;
}

// Loads an object that was tried, or stores why it cannot.
void OpSource::Take(const OpManifest& op, Built& b, jit::CacheEntry entry) {
  b.key = entry.key;
  b.state = Built::kFailed;
  if (!b.own) {
    b.state = Built::kReady;
    return;
  }
  CountDeath(op, b, entry);
  if (!entry.verdict.failure.empty()) {
    b.reason = entry.verdict.failure;
  } else if (entry.verdict.deaths >= kQuarantineDeaths) {
    b.reason = fmt::format(
        "quarantined: executors died in it {} times; edit it, or remove it from the cache: opwire "
        "cache prune",
        entry.verdict.deaths);
  } else if (Status s = Load(op, entry.object, b); s.ok()) {
    b.state = Built::kReady;
  } else {
    b.reason = MessageOf(s);
  }
}

Status OpSource::Load(const OpManifest& op, const std::string& object, Built& b) const {
  if (options_.device) {
    OPWIRE_ASSIGN_OR_RETURN(const auto kernel,
                            gpu::UserKernel::Load(op, b.spec, object, *options_.device));
    b.kernel = kernel->kernel();
    b.holds = kernel;
  } else {
    OPWIRE_ASSIGN_OR_RETURN(const auto library, jit::Library::Open(object));
    b.kernel = library->kernel();
    b.holds = library;
  }
  return absl::OkStatus();
}

// Counts the previous executor's death, if it died in this variant.
void OpSource::CountDeath(const OpManifest& op, const Built& b, jit::CacheEntry& entry) {
  if (options_.died != op.name() + "@" + b.spec.name || death_counted_.exchange(true)) return;
  ++entry.verdict.deaths;
  if (Status s = cache_->SetVerdict(entry.key, entry.verdict); !s.ok())
    Log(LogLevel::kWarning, "a kernel's death cannot be noted", {{"why", MessageOf(s)}});
}

void OpSource::Build(const OpManifest& op, Built& b) {
  constexpr int kTries = 4;  // the cache may prune an object before it is loaded
  for (int i = 0; i < kTries; ++i) {
    const std::string object = BuildOnce(op, b);
    if (object.empty() || b.state == Built::kReady || access(object.c_str(), F_OK) == 0) return;
  }
}

std::string OpSource::BuildOnce(const OpManifest& op, Built& b) {
  const auto fail = [&](const Status& why) {
    b.state = Built::kFailed;
    b.reason = MessageOf(why);
  };
  auto request = jit::RequestFor(op, b.spec, b.backend, b.arch);
  auto entry = request.ok() ? cache_->Get(toolchains_.Of(b.backend), *request)
                            : StatusOr<jit::CacheEntry>(request.status());
  if (!entry.ok()) {
    fail(entry.status());
    return "";
  }
  const std::string object = entry->object;
  b.origin = entry->built ? Origin::kBuilt : Origin::kCached;
  if (b.own && !entry->verdict.tried) {
    TrialOptions trial{.worker = options_.worker,
                       .device = options_.device ? SpecOf(options_.device->info()) : "cpu",
                       .seconds = options_.seconds};
    const auto report = TryKernel(op.folder, b.spec.name, object, trial);
    const bool of_kernel = !absl::IsInternal(report.status()) &&
                           !absl::IsNotFound(report.status()) && access(object.c_str(), F_OK) == 0;
    if (!report.ok() && !of_kernel) {
      fail(report.status());
      return object;
    }
    entry->verdict = {.tried = true,
                      .failure = report.ok() ? "" : MessageOf(report.status()),
                      .deaths = entry->verdict.deaths};
    if (Status s = cache_->SetVerdict(entry->key, entry->verdict); !s.ok())
      Log(LogLevel::kWarning, "a verdict cannot be kept", {{"why", MessageOf(s)}});
  }
  Take(op, b, *std::move(entry));
  return object;
}

}  // namespace opwire::executor
