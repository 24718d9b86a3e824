// Finds objects, builds them under a lock, and falls back to a temporary directory if the user's
// cannot be written.
#include "kernels/jit/cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "kernels/jit/cache_store.h"
#include "kernels/jit/setting.h"
#include "kernels/jit/unit_lock.h"

namespace opwire::jit {
namespace {

namespace fs = std::filesystem;

constexpr int kTries = 4;
constexpr size_t kProbeBytes = 1 << 20;  // a disk with less free space than this counts as full

StatusOr<std::string> DirectoryOf(const BuildCache::Options& options) {
  if (!options.directory.empty()) return fs::absolute(options.directory).string();
  if (const std::string d = Setting("OPWIRE_CACHE"); !d.empty()) return fs::absolute(d).string();
  if (const std::string d = Setting("XDG_CACHE_HOME"); d.starts_with("/")) return d + "/opwire";
  if (const std::string d = Setting("HOME"); d.starts_with("/")) return d + "/.cache/opwire";
  return FailedPrecondition(
      "no directory for the cache of builds: set OPWIRE_CACHE, XDG_CACHE_HOME or HOME");
}

// Makes the directory and its parents if they are missing.
Status MakeDirectories(const std::string& path) {
  std::error_code ignored;
  const fs::path above = fs::path(path).parent_path();
  if (!fs::exists(above, ignored) && above != path) OPWIRE_RETURN_IF_ERROR(MakeDirectories(above));
  return MakeDirectory(path);
}

// Objects are executed, so no other user may be able to put one there.
Status CheckDirectory(const std::string& path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0) return absl::OkStatus();  // a missing directory is made
  if (!S_ISDIR(s.st_mode))
    return FailedPrecondition("{}: the cache of builds: expected a directory", path);
  if (s.st_uid != geteuid()) {
    return FailedPrecondition(
        "{}: the cache of builds: belongs to user {}, expected {}; set OPWIRE_CACHE to a directory "
        "of your own",
        path, s.st_uid, geteuid());
  }
  if (s.st_mode & (S_IWGRP | S_IWOTH)) {
    return FailedPrecondition(
        "{}: the cache of builds: others may write it (mode {:o}); chmod go-w {}", path,
        s.st_mode & 07777, path);
  }
  return absl::OkStatus();
}

// Errors that may not occur in another directory.
bool IsOfDirectory(const Status& s) {
  return absl::IsResourceExhausted(s) || absl::IsPermissionDenied(s) || absl::IsNotFound(s);
}

// The result of one attempt to build.
struct Outcome {
  StatusOr<CacheEntry> entry;
  bool directory_failed = false;  // the directory caused the error, so another one may work
};

class Cache final : public BuildCache {
 public:
  explicit Cache(Options options) : options_(std::move(options)), main_(options_.directory) {}

  ~Cache() override {
    if (temporary_) RemoveTree(temporary_->root());
  }

  Status Start() {
    Status made = MakeDirectories(main_.root());
    if (made.ok()) made = main_.Prepare();
    return made.ok() ? made : UseTemporary(made);
  }

  StatusOr<CacheEntry> Get(Toolchain& toolchain, const CompileRequest& request) override {
    const ToolchainFacts& facts = toolchain.facts();
    if (!facts.available()) return FailedPrecondition("{}: {}", request.name, facts.reason);
    Status last;
    for (int i = 0; i < kTries; ++i) {
      OPWIRE_ASSIGN_OR_RETURN(const UnitKey unit, UnitOf(facts, request));
      if (auto found = FindUnit(unit)) return *std::move(found);
      CacheStore& store = Writable();
      Outcome outcome = GetFrom(store, toolchain, request, unit);
      if (outcome.entry.ok()) return std::move(outcome.entry);
      last = outcome.entry.status();
      const bool removed =
          absl::IsNotFound(last) && outcome.directory_failed;  // by another process meanwhile
      if (removed && &store == &main_ && MakeDirectories(main_.root()).ok() && main_.Prepare().ok())
        continue;
      if (outcome.directory_failed && &store == &main_) {
        OPWIRE_RETURN_IF_ERROR(UseTemporary(last));
      } else if (!absl::IsAborted(last)) {
        return last;
      }
    }
    return last;
  }

  std::optional<CacheEntry> Find(Toolchain& toolchain, const CompileRequest& request) override {
    if (!toolchain.facts().available()) return std::nullopt;
    const auto unit = UnitOf(toolchain.facts(), request);
    return unit.ok() ? FindUnit(*unit) : std::nullopt;
  }

  Status SetVerdict(const std::string& key, const Verdict& verdict) override {
    if (CacheStore* temporary = Temporary(); temporary && temporary->Read(key))
      return temporary->SetVerdict(key, verdict);
    return main_.SetVerdict(key, verdict);
  }

  std::vector<CacheEntry> List() override {
    std::vector<CacheEntry> entries = main_.List();
    if (CacheStore* temporary = Temporary()) {
      for (CacheEntry& e : temporary->List()) entries.push_back(std::move(e));
    }
    std::stable_sort(entries.begin(), entries.end(), [](const CacheEntry& a, const CacheEntry& b) {
      return a.used_at > b.used_at;
    });
    return entries;
  }

  StatusOr<int> Prune(int64_t bytes) override { return main_.Prune(bytes, ""); }

  const std::string& directory() const override { return main_.root(); }
  const std::string& warning() const override {
    static const std::string kNone;
    return Temporary() ? warning_ : kNone;
  }

 private:
  CacheStore* Temporary() const {
    return use_temporary_.load(std::memory_order_acquire) ? temporary_.get() : nullptr;
  }
  CacheStore& Writable() { return Temporary() ? *temporary_ : main_; }

  std::optional<CacheEntry> FindUnit(const UnitKey& unit) {
    std::optional<CacheEntry> found = main_.Find(unit);
    CacheStore* const temporary = Temporary();
    return found || !temporary ? std::move(found) : temporary->Find(unit);
  }

  // Later builds go to a directory that is removed when this process ends.
  Status UseTemporary(const Status& why) {
    std::lock_guard lock(mutex_);
    if (Temporary()) return absl::OkStatus();
    const std::string base = Setting("TMPDIR").empty() ? "/tmp" : Setting("TMPDIR");
    std::string path = base + "/opwire-jit-XXXXXX";
    if (!mkdtemp(path.data())) return why;
    auto store = std::make_unique<CacheStore>(path);
    if (!store->Prepare().ok()) {
      RemoveTree(path);
      return why;
    }
    temporary_ = std::move(store);
    warning_ = fmt::format("kernels are built in {}, which is removed when this process ends: {}",
                           path, MessageOf(why));
    use_temporary_.store(true, std::memory_order_release);
    return absl::OkStatus();
  }

  Outcome GetFrom(CacheStore& store, Toolchain& toolchain, const CompileRequest& request,
                  const UnitKey& unit) {
    auto lock = UnitLock::Acquire(store.LockPath(unit.unit), options_.wait_seconds);
    if (!lock.ok()) return {lock.status(), IsOfDirectory(lock.status())};
    if (auto found = store.Find(unit)) return {*std::move(found)};
    if (const auto failure = lock->FailureWhileWaiting()) return {*failure};
    lock->NoteHolder();
    return Build(store, *lock, toolchain, request, unit);
  }

  Outcome Build(CacheStore& store, UnitLock& lock, Toolchain& toolchain,
                const CompileRequest& request, const UnitKey& unit) {
    auto directory = store.MakePrivate();
    if (!directory.ok()) return {directory.status(), true};
    const int64_t begun = RealTimeNs();
    auto object = toolchain.Compile(request, directory->path());
    if (!object.ok()) {
      if (absl::IsResourceExhausted(object.status()) && !HasRoom(*directory))
        return {object.status(), true};
      lock.NoteFailure(object.status());
      return {object.status()};
    }
    auto headers = ReadHeaders(object->headers, begun);
    if (!headers.ok()) return {headers.status()};
    const auto after = UnitOf(toolchain.facts(), request);
    if (!after.ok() || after->unit != unit.unit)
      return {Aborted("{}: its sources changed while they were compiled", request.name)};

    CacheEntry entry;
    entry.name = request.name;
    entry.toolchain = toolchain.name();
    entry.version = toolchain.facts().version;
    entry.arch = request.arch;
    entry.seconds = object->seconds;
    entry.built = true;
    auto published = store.Publish(unit, *headers, object->path, std::move(entry));
    if (!published.ok()) return {published.status(), IsOfDirectory(published.status())};
    (void)store.Prune(options_.max_bytes,
                      published->key);  // a cache that is too large is not an error of this build
    return {std::move(published)};
  }

  static bool HasRoom(const PrivateDirectory& directory) {
    return WriteFile(directory.path() + "/room", std::string(kProbeBytes, '\0'), /*sync=*/false)
        .ok();
  }

  const Options options_;
  CacheStore main_;
  std::mutex mutex_;
  std::unique_ptr<CacheStore> temporary_;  // set once, before use_temporary_
  std::string warning_;
  std::atomic<bool> use_temporary_{false};
};

}  // namespace

StatusOr<std::unique_ptr<BuildCache>> BuildCache::Open(Options options) {
  OPWIRE_ASSIGN_OR_RETURN(options.directory, DirectoryOf(options));
  OPWIRE_RETURN_IF_ERROR(CheckDirectory(options.directory));
  auto cache = std::make_unique<Cache>(std::move(options));
  OPWIRE_RETURN_IF_ERROR(cache->Start());
  return cache;
}

}  // namespace opwire::jit
