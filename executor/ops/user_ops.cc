// Folders to sets of kernels: builders, a watcher, and one lock around what they share.
#include "executor/ops/user_ops.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "executor/ops/trial.h"
#include "executor/plan/reference.h"
#include "ir/base/owned_fd.h"
#include "ir/ops/names.h"
#include "ir/wire/log.h"
#include "kernels/jit/library.h"
#include "kernels/jit/manifest.h"
#include "kernels/jit/prebuilt.h"
#include "kernels/select/choices.h"

namespace opwire::ops {
namespace {

using jit::OpManifest;
using jit::OpVariantSpec;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kSettle{50};      // after the last write of an edit
constexpr milliseconds kPublishEvery{200};
constexpr int kQuarantineDeaths = 2;
constexpr int kBuilderNice = 5;          // runs come first

// One variant of an op, for one backend.
struct Built {
  OpVariantSpec spec;
  std::string backend, arch;
  enum State : uint8_t { kWaiting, kReady, kFailed, kUnsuited } state = kWaiting;  // unsuited: not for this architecture
  std::string reason;  // why it failed or does not suit
  std::string key;     // of its object in the cache
  Origin origin = Origin::kBuilt;
  std::shared_ptr<const jit::Library> library;  // cpu
};

// A folder at one state of its files.
struct Version {
  std::shared_ptr<const OpManifest> manifest;
  std::shared_ptr<const ReferenceProgram> reference;
  std::vector<Built> variants;
};

struct Folder {
  std::shared_ptr<const Version> live;     // what sets offer; null: nothing yet
  std::shared_ptr<const OpManifest> read;  // the last manifest that could be read, which may not be live yet
  std::string problem;                     // with the files as they are now; empty: none
  uint64_t edit = 0;                       // counts the states of its files,
  uint64_t live_edit = 0;                  // and which of them is live
};

class UserOpsImpl final : public UserOps {
 public:
  UserOpsImpl(UserOpsOptions options, VariantTable builtin, Publish publish)
      : options_(std::move(options)), publish_(std::move(publish)),
        builtin_(std::make_shared<KernelSet>(KernelSet{.variants = std::move(builtin)})),
        stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), watch_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    const jit::ToolchainOptions tools{.seconds = options_.seconds, .worker = options_.worker};
    toolchains_.push_back(jit::HostCompiler(tools));
    toolchains_.push_back(jit::Nvrtc(tools));
    toolchains_.push_back(jit::Hiprtc(tools));
  }

  ~UserOpsImpl() override {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    for (std::thread& t : threads_) t.join();
  }

  Status Begin() {
    auto cache = jit::BuildCache::Open(options_.cache);
    if (cache.ok()) cache_ = *std::move(cache);
    else if (!options_.directories.empty()) return cache.status();
    const std::string why = cache_ ? cache_->warning() : MessageOf(cache.status());
    if (!why.empty()) Log(LogLevel::kWarning, "the cache cannot be used", {{"why", why}});
    choices_ = Choices::Open(cache_ ? cache_->directory() : "", options_.context);
    if (options_.directories.empty()) {
      Offer();
      return absl::OkStatus();
    }
    std::vector<std::string> found;
    for (std::string& directory : options_.directories) {
      OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> folders, jit::OpFolders(directory));
      found.insert(found.end(), folders.begin(), folders.end());
      directory = std::filesystem::canonical(directory).string();
    }
    // What is cached is loaded by several at a time: an executor with hundreds of ops shall be there at once.
    std::atomic<size_t> next{0};
    std::vector<std::thread> loaders;
    for (const std::string& folder : found) folders_[folder];
    Watch();
    std::vector<Loaded> loaded(found.size());
    const auto load = [&] {
      for (size_t i; (i = next++) < found.size();) loaded[i] = Load(found[i]);
    };
    for (int i = 1; i < options_.threads; ++i) loaders.emplace_back(load);
    load();
    for (std::thread& t : loaders) t.join();
    // In order, so that of two folders with one op it is always the same that has it.
    for (size_t i = 0; i < found.size(); ++i) Install(found[i], std::move(loaded[i]));
    Watch();  // what the manifests name, too
    Offer();
    for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { BuildLoop(); });
    threads_.emplace_back([this] { WatchLoop(); });
    return absl::OkStatus();
  }

  std::shared_ptr<const KernelSet> current() const override {
    std::lock_guard lock(mutex_);
    return current_;
  }

  bool Settled() const override {
    std::lock_guard lock(mutex_);
    return queue_.empty() && building_ == 0 && !dirty_;
  }

  std::string Facts() override {
    json out{{"toolchains", json::array()}, {"cache", nullptr}, {"folders", json::array()}};
    for (const auto& t : toolchains_) {
      const jit::ToolchainFacts& f = t->facts();
      out["toolchains"].push_back({{"name", t->name()}, {"backend", t->backend()}, {"available", f.available()}, {"reason", f.reason},
                                   {"version", f.version}, {"path", f.path}, {"architectures", f.architectures}});
    }
    if (cache_) {
      int64_t bytes = 0;
      const std::vector<jit::CacheEntry> entries = cache_->List();
      for (const jit::CacheEntry& e : entries) bytes += e.bytes;
      out["cache"] = {{"directory", cache_->directory()}, {"entries", entries.size()}, {"bytes", bytes}, {"limit", options_.cache.max_bytes},
                      {"warning", cache_->warning()}};
    }
    std::lock_guard lock(mutex_);
    for (const auto& [path, folder] : folders_) {
      const std::string op = folder.live ? folder.live->manifest->name() : "";
      out["folders"].push_back({{"folder", path}, {"op", op}, {"problem", folder.problem}});
    }
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
  }

 private:
  // ---- reading

  jit::Toolchain& ToolchainOf(const std::string& backend) {
    return **std::ranges::find_if(toolchains_, [&](const auto& t) { return t->backend() == backend; });
  }

  static std::string ArchOf(const OpVariantSpec& spec, const std::string& backend) {
    if (backend == "cpu") return jit::HostArch();
    if (const auto least = spec.min_arch.find(backend); least != spec.min_arch.end()) return least->second;
    return backend == "cuda" ? "sm_90a" : "gfx90a";  // what a GPU executor would ask for on today's machines
  }

  StatusOr<std::shared_ptr<Version>> Read(const std::string& folder, bool eager) {
    auto version = std::make_shared<Version>();
    OPWIRE_ASSIGN_OR_RETURN(OpManifest manifest, jit::ReadManifest(folder));
    version->manifest = std::make_shared<const OpManifest>(std::move(manifest));
    const OpManifest& op = *version->manifest;
    OPWIRE_ASSIGN_OR_RETURN(version->reference, ReferenceProgram::Make(op.declaration, op.row, op.reference, op.folder + "/reference", builtin_,
                                                                      eager ? ReferenceProgram::When::kNow : ReferenceProgram::When::kAsked));
    for (const OpVariantSpec& spec : op.variants) {
      for (const std::string& backend : spec.backends) {
        Built b{.spec = spec, .backend = backend, .arch = ArchOf(spec, backend)};
        const auto least = spec.min_arch.find(backend);
        b.reason = least == spec.min_arch.end() ? "" : jit::BelowArch(b.arch, least->second);
        if (!b.reason.empty()) b.state = Built::kUnsuited;
        version->variants.push_back(std::move(b));
      }
    }
    return version;
  }

  struct Loaded {
    StatusOr<std::shared_ptr<Version>> version = std::shared_ptr<Version>();
    bool missing = false;  // something must be built
  };

  // Reads a folder and takes what the cache has. Any thread.
  Loaded Load(const std::string& path) {
    Loaded l{.version = Read(path, /*eager=*/false)};
    if (!l.version.ok()) return l;
    const OpManifest& op = *(*l.version)->manifest;
    for (Built& b : (*l.version)->variants) l.missing |= b.state == Built::kWaiting && !Prebuilt(op, b) && !FromCache(op, b);
    // The reference answers where something is missing, so it is checked now.
    if (l.missing) l.version = ReadBeside(path, **l.version);
    return l;
  }

  // Makes it what the folder is, and queues what must be built.
  void Install(const std::string& path, Loaded loaded) {
    auto& [version, missing] = loaded;
    std::lock_guard lock(mutex_);
    Folder& folder = folders_[path];
    const uint64_t edit = ++folder.edit;
    if (version.ok()) folder.read = (*version)->manifest;
    if (version.ok() && TakenByAnother(path, (*version)->manifest->name())) {
      version = AlreadyExists("{}/{}: another folder has the op {}", path, jit::kManifestName, (*version)->manifest->name());
    }
    if (!version.ok()) {
      Complain(path, folder, MessageOf(version.status()));
      return;
    }
    if (!missing) {
      Adopt({path, edit, *version});
    } else if (!folder.live) {
      // Offered by its reference; an op that was there before keeps what it has until the new is built.
      folder.live = *version;
      folder.live_edit = edit;
      dirty_ = true;
    }
    if (missing) {
      queue_.push_back({path, edit, std::make_shared<Version>(**version)});
      ++queued_;
    }
    wake_.notify_all();
  }

  // The same version with its reference planned.
  StatusOr<std::shared_ptr<Version>> ReadBeside(const std::string& path, const Version& have) {
    OPWIRE_ASSIGN_OR_RETURN(std::shared_ptr<Version> again, Read(path, /*eager=*/true));
    if (again->manifest->digest == have.manifest->digest) again->variants = have.variants;
    return again;
  }

  // REQUIRES: mutex_ is held.
  bool TakenByAnother(const std::string& path, const std::string& op) const {
    return std::ranges::any_of(folders_, [&](const auto& f) { return f.first != path && f.second.live && f.second.live->manifest->name() == op; });
  }

  // REQUIRES: mutex_ is held.
  void Complain(const std::string& path, Folder& folder, const std::string& problem) {
    folder.problem = problem;
    Log(LogLevel::kWarning, folder.live ? "an op's folder cannot be used; what was there before stays" : "an op's folder cannot be used",
        {{"folder", path}, {"why", problem}});
  }

  // ---- building

  // It was checked when it was made, on a machine of its architecture.
  bool Prebuilt(const OpManifest& op, Built& b) {
    const auto object = b.backend == "cpu" ? jit::FindPrebuilt(op, b.spec, b.arch) : std::nullopt;
    if (!object) return false;
    if (options_.died == op.name() + "@" + b.spec.name) {
      // Built anew, it stands in the cache, which counts deaths.
      jit::ForgetPrebuilt(*object);
      return false;
    }
    auto library = jit::Library::Open(*object);
    if (!library.ok()) {
      Log(LogLevel::kWarning, "a prebuilt kernel does not load; it is built anew", {{"object", *object}, {"why", MessageOf(library.status())}});
      return false;
    }
    b.library = *std::move(library);
    b.origin = Origin::kPrebuilt;
    b.state = Built::kReady;
    return true;
  }

  bool FromCache(const OpManifest& op, Built& b) {
    auto request = jit::RequestFor(op, b.spec, b.backend, b.arch);
    if (!request.ok()) return false;
    auto entry = cache_->Find(ToolchainOf(b.backend), *request);
    if (!entry || (b.backend == "cpu" && !entry->verdict.tried)) return false;
    b.origin = Origin::kCached;
    Take(op, b, *std::move(entry));
    return true;
  }

  // Loads an object that was tried, or says why not.
  void Take(const OpManifest& op, Built& b, jit::CacheEntry entry) {
    b.key = entry.key;
    b.state = Built::kFailed;
    if (b.backend != "cpu") {
      b.state = Built::kReady;
      return;
    }
    CountDeath(op, b, entry);
    if (!entry.verdict.failure.empty()) {
      b.reason = entry.verdict.failure;
    } else if (entry.verdict.deaths >= kQuarantineDeaths) {
      b.reason = fmt::format("quarantined: executors died in it {} times; edit it, or remove it from the cache: opwire cache prune", entry.verdict.deaths);
    } else if (auto library = jit::Library::Open(entry.object); library.ok()) {
      b.library = *std::move(library);
      b.state = Built::kReady;
    } else {
      b.reason = MessageOf(library.status());
    }
  }

  // The executor before this one may have died in it.
  void CountDeath(const OpManifest& op, const Built& b, jit::CacheEntry& entry) {
    if (options_.died != op.name() + "@" + b.spec.name || death_counted_.exchange(true)) return;
    ++entry.verdict.deaths;
    if (Status s = cache_->SetVerdict(entry.key, entry.verdict); !s.ok()) Log(LogLevel::kWarning, "a kernel's death cannot be noted", {{"why", MessageOf(s)}});
  }

  void Build(const OpManifest& op, Built& b) {
    const auto fail = [&](const Status& why) {
      b.state = Built::kFailed;
      b.reason = MessageOf(why);
    };
    auto request = jit::RequestFor(op, b.spec, b.backend, b.arch);
    if (!request.ok()) return fail(request.status());
    auto entry = cache_->Get(ToolchainOf(b.backend), *request);
    if (!entry.ok()) return fail(entry.status());
    b.origin = entry->built ? Origin::kBuilt : Origin::kCached;
    if (b.backend == "cpu" && !entry->verdict.tried) {
      TrialOptions trial{.worker = options_.worker, .seconds = options_.seconds};
      const auto report = TryKernel(op.folder, b.spec.name, entry->object, trial);
      if (absl::IsInternal(report.status()) || absl::IsNotFound(report.status())) return fail(report.status());  // it says nothing about the kernel
      entry->verdict = {.tried = true, .failure = report.ok() ? "" : MessageOf(report.status()), .deaths = entry->verdict.deaths};
      if (Status s = cache_->SetVerdict(entry->key, entry->verdict); !s.ok()) Log(LogLevel::kWarning, "a verdict cannot be kept", {{"why", MessageOf(s)}});
    }
    Take(op, b, *std::move(entry));
  }

  struct Job {
    std::string path;
    uint64_t edit;
    std::shared_ptr<Version> version;
  };

  void BuildLoop() {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kBuilderNice);
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return ended_ || !queue_.empty(); });
      if (ended_) return;
      Job job = std::move(queue_.front());
      queue_.pop_front();
      ++building_;
      lock.unlock();
      // What this executor runs first; what it only reports on, after.
      for (const bool own : {true, false}) {
        for (Built& b : job.version->variants) {
          if (b.state != Built::kWaiting || (b.backend == "cpu") != own || Stale(job)) continue;
          Build(*job.version->manifest, b);
        }
        if (own) {
          lock.lock();
          Adopt(job);
          lock.unlock();
        }
      }
      lock.lock();
      Adopt(job);
      --building_;
      ++built_;
      MaybeOffer(lock);
    }
  }

  bool Stale(const Job& job) const {
    std::lock_guard lock(mutex_);
    const auto it = folders_.find(job.path);
    return ended_ || it == folders_.end() || it->second.edit != job.edit;
  }

  // What was built goes live, unless the folder was edited meanwhile or this is a broken edit of something that works. REQUIRES: mutex_
  // is held.
  void Adopt(const Job& job) {
    const auto it = folders_.find(job.path);
    if (it == folders_.end() || it->second.edit != job.edit) return;
    Folder& folder = it->second;
    const auto& variants = job.version->variants;
    const auto broken = std::ranges::find_if(variants, [](const Built& b) { return b.state == Built::kFailed && b.backend == "cpu"; });
    const bool worked = folder.live && std::ranges::any_of(folder.live->variants, [](const Built& b) { return b.library != nullptr; });
    const std::string problem = broken == variants.end() ? "" : broken->reason;
    if (problem != folder.problem && !problem.empty()) Complain(job.path, folder, problem);
    folder.problem = problem;
    if (!problem.empty() && worked && folder.live_edit != job.edit) return;
    if (TakenByAnother(job.path, job.version->manifest->name())) {
      Complain(job.path, folder, fmt::format("{}/{}: another folder has the op {}", job.path, jit::kManifestName, job.version->manifest->name()));
      return;
    }
    folder.live = std::make_shared<const Version>(*job.version);
    folder.live_edit = job.edit;
    dirty_ = true;
  }

  // ---- offering

  // Soon after the first change, and when nothing more is to come. REQUIRES: mutex_ is held by `lock`.
  void MaybeOffer(std::unique_lock<std::mutex>& lock) {
    const auto now = std::chrono::steady_clock::now();
    const bool settled = queue_.empty() && building_ == 0;
    if (!dirty_ || (!settled && now - offered_at_ < kPublishEvery)) return;
    offered_at_ = now;
    lock.unlock();
    Offer();
    ShowProgress();
    lock.lock();
  }

  // Makes the set of what is live and hands it on.
  void Offer() {
    std::lock_guard one_at_a_time(offering_);
    std::unique_lock lock(mutex_);
    dirty_ = false;
    std::vector<std::shared_ptr<const Version>> live;
    for (const auto& [path, folder] : folders_) {
      if (folder.live) live.push_back(folder.live);
    }
    const std::shared_ptr<const KernelSet> before = current_;
    lock.unlock();
    auto set = MakeSet(live, before);
    lock.lock();
    current_ = set;
    lock.unlock();
    if (before) publish_(std::move(set));
  }

  std::shared_ptr<const KernelSet> MakeSet(const std::vector<std::shared_ptr<const Version>>& live, const std::shared_ptr<const KernelSet>& before) {
    auto set = std::make_shared<KernelSet>();
    set->epoch = before ? before->epoch + 1 : 1;
    std::vector<OpRow> rows;
    for (const auto& v : live) {
      rows.push_back(v->manifest->row);
      set->declarations.push_back(v->manifest->declaration);
    }
    auto ops = ExtendCatalogue(std::move(rows));
    set->ops = *std::move(ops);  // names are unique: TakenByAnother
    set->variants = VariantTable(*set->ops, before ? before->variants.labels() : builtin_->variants.labels());
    for (const Variant& v : builtin_->variants.variants()) set->variants.Add(v);
    for (const auto& v : live) AddOp(*v, *set);
    set->variants.Steer(options_.steering);
    if (!options_.steering.deterministic) set->choices = choices_;
    return set;
  }

  static void AddOp(const Version& v, KernelSet& set) {
    const OpManifest& op = *v.manifest;
    const DTypeSet dtypes = op.row.variables.empty() ? kAll : op.row.variables[0].types;
    for (const Built& b : v.variants) {
      if (b.backend != "cpu") {
        set.other_backends.push_back({op.name(), b.spec.name, b.backend, b.arch, b.reason, b.state != Built::kWaiting});
        continue;
      }
      Variant variant{op.name(), b.spec.name, Tier::kProduction, b.spec.priority, dtypes, "", op.folder};
      variant.origin = b.origin;
      if (b.library) {
        variant.kernel = b.library->kernel();
        variant.holds = b.library;
        variant.build = b.key.empty() ? op.digest.substr(0, 12) : b.key.substr(0, 12);
      } else {
        variant.unavailable = b.state == Built::kWaiting ? "is being built" : b.reason;
      }
      set.variants.Add(std::move(variant));
    }
    set.variants.Add({op.name(), "reference", Tier::kReference, 0, dtypes, "", op.folder, v.reference->kernel(), Origin::kPrebuilt, v.reference});
  }

  void ShowProgress() {
    if (!isatty(STDERR_FILENO)) return;
    std::lock_guard lock(mutex_);
    fmt::print(stderr, "\rbuilt {} of {} ops{}", built_, queued_, built_ == queued_ ? "\n" : "");
  }

  // ---- watching

  // Looks at directories of ops and what lies in them, so that an op is seen however slowly it is written, and at ops with the folders
  // of their files.
  void Watch() {
    std::map<std::string, std::string> wanted;  // by path: the folder that has changed when something there has
    std::error_code ignored;
    for (const std::string& directory : options_.directories) {
      wanted.emplace(directory, directory);
      if (IsOp(directory)) continue;
      for (std::filesystem::directory_iterator it(directory, ignored), end; it != end; it.increment(ignored)) {
        if (it->is_directory(ignored)) wanted.emplace(it->path().string(), it->path().string());
      }
    }
    {
      std::lock_guard lock(mutex_);
      for (const auto& [path, folder] : folders_) {
        wanted.emplace(path, path);
        if (!folder.read) continue;
        for (const OpVariantSpec& v : folder.read->variants) {
          for (const auto* files : {&v.sources, &v.headers}) {
            for (const std::string& file : *files) {
              if (file.find('/') != file.npos) wanted.emplace(std::filesystem::path(path + "/" + file).parent_path().string(), path);
            }
          }
        }
      }
    }
    for (const auto& [w, place] : watched_) wanted.erase(place.path);
    for (const auto& [path, folder] : wanted) {
      const int w = inotify_add_watch(watch_.get(), path.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB);
      if (w >= 0) watched_[w] = {path, folder};
      else Log(LogLevel::kWarning, "a folder cannot be watched: edits will not be noticed", {{"folder", path}, {"why", std::strerror(errno)}});
    }
  }

  void WatchLoop() {
    std::set<std::string> changed;
    while (true) {
      pollfd fds[] = {{stop_.get(), POLLIN, 0}, {watch_.get(), POLLIN, 0}};
      const int n = poll(fds, 2, changed.empty() ? -1 : static_cast<int>(kSettle.count()));
      if (fds[0].revents) return;
      if (n > 0) {
        ReadEvents(changed);
      } else if (!changed.empty()) {
        for (const std::string& path : std::exchange(changed, {})) Changed(path);
      }
    }
  }

  void ReadEvents(std::set<std::string>& changed) {
    alignas(inotify_event) char buffer[16384];
    const ssize_t bytes = read(watch_.get(), buffer, sizeof(buffer));
    for (ssize_t at = 0; at < bytes;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event.len);
      const auto it = watched_.find(event.wd);
      if (it == watched_.end()) continue;
      changed.insert(it->second.folder);
      // A folder that comes or goes: what was watched under its name is not what is there now.
      if ((event.mask & IN_ISDIR) && event.len > 0 && it->second.path == it->second.folder) {
        const std::string path = it->second.path + "/" + event.name;
        const auto old = std::ranges::find_if(watched_, [&](const auto& w) { return w.second.path == path; });
        if (old != watched_.end()) {
          changed.insert(old->second.folder);
          if (event.mask & (IN_MOVED_FROM | IN_MOVED_TO)) {
            inotify_rm_watch(watch_.get(), old->first);
            watched_.erase(old);
          }
        }
      }
      if (event.mask & IN_IGNORED) watched_.erase(event.wd);
    }
  }

  static bool IsOp(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path + "/" + std::string(jit::kManifestName), ignored);
  }

  // Something in this folder is not what it was: an op's, or one that holds such.
  void Changed(const std::string& path) {
    std::vector<std::string> load;
    if (IsOp(path)) {
      load.push_back(path);
    } else {
      const bool holds = std::ranges::find(options_.directories, path) != options_.directories.end();
      const auto below = holds ? jit::OpFolders(path) : std::vector<std::string>();
      std::lock_guard lock(mutex_);
      const size_t gone = folders_.erase(path);
      dirty_ |= gone > 0;
      if (below.ok()) std::ranges::copy_if(*below, std::back_inserter(load), [&](const std::string& f) { return !folders_.contains(f); });
      // One that had to stand back for its name may have it now.
      for (const auto& [other, folder] : folders_) {
        if (gone > 0 && !folder.live) load.push_back(other);
      }
    }
    for (const std::string& folder : load) Install(folder, Load(folder));
    Watch();
    std::unique_lock lock(mutex_);
    MaybeOffer(lock);
  }

  UserOpsOptions options_;
  const Publish publish_;
  const std::shared_ptr<const KernelSet> builtin_;
  std::vector<std::unique_ptr<jit::Toolchain>> toolchains_;
  std::unique_ptr<jit::BuildCache> cache_;  // null: it cannot be used, and there are no folders
  std::shared_ptr<Choices> choices_;
  std::atomic<bool> death_counted_{false};

  std::mutex offering_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Folder> folders_;
  std::deque<Job> queue_;
  int building_ = 0, built_ = 0, queued_ = 0;
  bool dirty_ = false;  // something is live that no set has
  bool ended_ = false;
  std::chrono::steady_clock::time_point offered_at_;
  std::shared_ptr<const KernelSet> current_;

  const OwnedFd stop_, watch_;
  struct Place {
    std::string path, folder;  // what is watched, and whose change it is
  };
  std::map<int, Place> watched_;  // the watcher's
  std::vector<std::thread> threads_;
};

}  // namespace

StatusOr<std::unique_ptr<UserOps>> UserOps::Start(UserOpsOptions options, VariantTable builtin, Publish publish) {
  auto ops = std::make_unique<UserOpsImpl>(std::move(options), std::move(builtin), std::move(publish));
  OPWIRE_RETURN_IF_ERROR(ops->Begin());
  return std::unique_ptr<UserOps>(std::move(ops));
}

}  // namespace opwire::ops
