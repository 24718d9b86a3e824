// Turns folders into sets of kernels: builders, a watcher, and one lock around their shared state.
#include "executor/ops/user_ops.h"

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

#include "executor/ops/folder_watch.h"
#include "executor/ops/op_version.h"
#include "ir/base/json.h"
#include "ir/wire/log.h"
#include "kernels/select/choices.h"
#include "kernels/select/quarantine.h"

namespace opwire::executor {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kPublishEvery{200};
constexpr int kBuilderNice = 5;  // runs come first

bool IsOp(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + "/" + std::string(jit::kManifestName), ignored);
}

struct Folder {
  std::shared_ptr<const OpVersion> live;        // offered in sets; null: nothing yet
  std::shared_ptr<const jit::OpManifest> read;  // of the present files; null: they cannot be read
  std::string problem;                          // the error in these files; empty: none
  uint64_t edit = 0;                            // counts the states of the files
  uint64_t live_edit = 0;                       // the state that is live
};

struct Job {
  std::string path;
  uint64_t edit;
  std::shared_ptr<OpVersion> version;
};

class UserOpsImpl final : public UserOps {
 public:
  UserOpsImpl(UserOpsOptions options, KernelSet builtin, Publish publish)
      : options_(std::move(options)),
        publish_(std::move(publish)),
        builtin_(std::make_shared<KernelSet>(std::move(builtin))) {}

  ~UserOpsImpl() override {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    watch_.Stop();
    for (std::thread& t : threads_) t.join();
  }

  Status Begin() {
    OPWIRE_RETURN_IF_ERROR(
        builtin_->variants.CheckSteering(options_.steering, !options_.directories.empty()));
    OPWIRE_RETURN_IF_ERROR(OpenCache());
    if (options_.directories.empty()) {
      Offer();
      return absl::OkStatus();
    }
    std::vector<std::string> found;
    for (std::string& directory : options_.directories) {
      OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> folders, jit::OpFolders(directory));
      if (folders.empty())
        Log(LogLevel::kWarning, "no op is there yet; the directory is watched for one",
            {{"directory", directory}});
      found.insert(found.end(), folders.begin(), folders.end());
      directory = std::filesystem::canonical(directory).string();
    }
    for (const std::string& folder : found) folders_[folder];
    Watch();
    ReadAll(found);
    Watch();  // also watch the files that the manifests name
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
    return Idle() && !dirty_;
  }

  std::string Facts() override {
    json out{{"toolchains", json::array()}, {"cache", nullptr}, {"folders", json::array()}};
    for (const auto& t : source_->toolchains()) {
      const jit::ToolchainFacts& f = t->facts();
      out["toolchains"].push_back({{"name", t->name()},
                                   {"backend", t->backend()},
                                   {"available", f.available()},
                                   {"reason", f.reason},
                                   {"version", f.version},
                                   {"path", f.path},
                                   {"architectures", f.architectures}});
    }
    if (jit::BuildCache* const cache = source_->cache()) {
      int64_t bytes = 0;
      const std::vector<jit::CacheEntry> entries = cache->List();
      for (const jit::CacheEntry& e : entries) bytes += e.bytes;
      out["cache"] = {{"directory", cache->directory()},
                      {"entries", entries.size()},
                      {"bytes", bytes},
                      {"limit", options_.cache.max_bytes},
                      {"warning", cache->warning()}};
    }
    std::lock_guard lock(mutex_);
    for (const auto& [path, folder] : folders_) {
      const std::string op = folder.live ? folder.live->manifest->name() : "";
      out["folders"].push_back({{"folder", path}, {"op", op}, {"problem", folder.problem}});
    }
    return DumpJson(out);
  }

 private:
  // Without folders there is nothing to build, so the executor runs without a cache then.
  Status OpenCache() {
    auto cache = jit::BuildCache::Open(options_.cache);
    if (!cache.ok() && !options_.directories.empty()) return cache.status();
    const std::string why = cache.ok() ? (*cache)->warning() : MessageOf(cache.status());
    if (!why.empty()) Log(LogLevel::kWarning, "the cache cannot be used", {{"why", why}});
    const std::string directory = cache.ok() ? (*cache)->directory() : "";
    choices_ = Choices::Open(directory, options_.context);
    const Quarantined quarantined = Quarantine(*builtin_, directory, options_.context,
                                               options_.died_of_time ? "" : options_.died);
    if (!quarantined.why_not_fused.empty())
      Log(LogLevel::kWarning, "nothing is fused", {{"why", quarantined.why_not_fused}});
    source_.emplace(
        OpSourceOptions{options_.worker, options_.seconds, options_.died, options_.device},
        cache.ok() ? *std::move(cache) : nullptr, builtin_);
    return absl::OkStatus();
  }

  // ---- folders

  // Several threads read, so that an executor with hundreds of ops starts at once.
  void ReadAll(const std::vector<std::string>& found) {
    std::vector<StatusOr<std::shared_ptr<OpVersion>>> versions(found.size(), Internal("not read"));
    std::atomic<size_t> next{0};
    const auto read = [&] {
      for (size_t i; (i = next++) < found.size();) versions[i] = source_->Read(found[i]);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < options_.threads; ++i) others.emplace_back(read);
    read();
    for (std::thread& t : others) t.join();
    // In order: if two folders define one op, always the same folder provides it.
    for (size_t i = 0; i < found.size(); ++i) Install(found[i], std::move(versions[i]));
  }

  // Stores the present version of a folder and queues its builds.
  void Install(const std::string& path, StatusOr<std::shared_ptr<OpVersion>> version) {
    std::lock_guard lock(mutex_);
    Folder& folder = folders_[path];
    const Job job{path, ++folder.edit, version.ok() ? *version : nullptr};
    if (!version.ok()) return Complain(path, folder, MessageOf(version.status()));
    folder.read = job.version->manifest;
    if (TakenByAnother(path, *job.version)) return Complain(path, folder, SaysAnotherHas(job));
    if (!job.version->Waiting()) {
      Adopt(job);
      return;
    }
    if (!folder.live) {
      // Offered by its reference. An op that had a version before keeps it until the new one is
      // built.
      folder.live = std::make_shared<OpVersion>(*job.version);
      folder.live_edit = job.edit;
      dirty_ = true;
    }
    queue_.push_back(job);
    ++queued_;
    wake_.notify_all();
  }

  // REQUIRES: mutex_ is held.
  bool TakenByAnother(const std::string& path, const OpVersion& version) const {
    return std::ranges::any_of(folders_, [&](const auto& f) {
      return f.first != path && f.second.live &&
             f.second.live->manifest->name() == version.manifest->name();
    });
  }
  static std::string SaysAnotherHas(const Job& job) {
    return fmt::format("{}/{}: another folder has the op {}", job.path, jit::kManifestName,
                       job.version->manifest->name());
  }

  // REQUIRES: mutex_ is held.
  void Complain(const std::string& path, Folder& folder, const std::string& problem) {
    folder.problem = problem;
    Log(LogLevel::kWarning,
        folder.live ? "an op's folder cannot be used; the op stays as it was"
                    : "an op's folder cannot be used",
        {{"folder", path}, {"why", problem}});
  }

  // Makes a built version live, unless the folder was edited meanwhile or this is a broken edit of
  // a working op. REQUIRES: mutex_ is held.
  void Adopt(const Job& job) {
    const auto it = folders_.find(job.path);
    if (it == folders_.end() || it->second.edit != job.edit) return;
    Folder& folder = it->second;
    const auto& variants = job.version->variants;
    const auto broken = std::ranges::find_if(
        variants, [](const Built& b) { return b.state == Built::kFailed && b.own; });
    const std::string problem = broken == variants.end() ? "" : broken->reason;
    if (problem != folder.problem && !problem.empty()) Complain(job.path, folder, problem);
    folder.problem = problem;
    if (!problem.empty() && folder.live && folder.live->Loaded() && folder.live_edit != job.edit)
      return;
    if (TakenByAnother(job.path, *job.version))
      return Complain(job.path, folder, SaysAnotherHas(job));
    folder.live = std::make_shared<const OpVersion>(*job.version);
    folder.live_edit = job.edit;
    dirty_ = true;
  }

  // ---- building

  void BuildLoop() {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kBuilderNice);
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return ended_ || !queue_.empty(); });
      if (ended_) return;
      const Job job = std::move(queue_.front());
      queue_.pop_front();
      ++building_;
      BuildFor(lock, job, /*own=*/true);
      --building_;
      ++built_;
      MaybeOffer(lock);
      // Variants that it only reports on come after. No thread waits for them.
      BuildFor(lock, job, /*own=*/false);
      MaybeOffer(lock);
    }
  }

  // Builds the variants that this executor runs, or the others. REQUIRES: mutex_ is held by `lock`.
  void BuildFor(std::unique_lock<std::mutex>& lock, const Job& job, bool own) {
    for (Built& b : job.version->variants) {
      if (b.state != Built::kWaiting || b.own != own || Stale(job)) continue;
      lock.unlock();
      source_->Build(*job.version->manifest, b);
      lock.lock();
    }
    Adopt(job);
  }

  // REQUIRES: mutex_ is held.
  bool Stale(const Job& job) const {
    const auto it = folders_.find(job.path);
    return ended_ || it == folders_.end() || it->second.edit != job.edit;
  }
  bool Idle() const { return queue_.empty() && building_ == 0; }

  // ---- offering

  // Offers soon after the first change, and when no more work is queued. REQUIRES: mutex_ is held
  // by `lock`.
  void MaybeOffer(std::unique_lock<std::mutex>& lock) {
    const auto now = std::chrono::steady_clock::now();
    if (!dirty_ || (!Idle() && now - offered_at_ < kPublishEvery)) return;
    offered_at_ = now;
    lock.unlock();
    Offer();
    ShowProgress();
    lock.lock();
  }

  // Makes a set of the live versions and publishes it.
  void Offer() {
    std::lock_guard one_at_a_time(offering_);
    std::unique_lock lock(mutex_);
    dirty_ = false;
    std::vector<std::shared_ptr<const OpVersion>> live;
    for (const auto& [path, folder] : folders_) {
      if (folder.live) live.push_back(folder.live);
    }
    const std::shared_ptr<const KernelSet> before = current_;
    lock.unlock();
    auto set = MakeSet(live, before.get());
    lock.lock();
    current_ = set;
    lock.unlock();
    if (before) publish_(std::move(set));
  }

  std::shared_ptr<const KernelSet> MakeSet(
      const std::vector<std::shared_ptr<const OpVersion>>& live, const KernelSet* before) const {
    auto set = std::make_shared<KernelSet>();
    set->epoch = before ? before->epoch + 1 : 1;
    std::vector<OpDef> rows;
    for (const auto& v : live) {
      rows.push_back(v->manifest->row);
      set->declarations.push_back(v->manifest->declaration);
    }
    set->ops = *ExtendCatalogue(std::move(rows));  // names are unique: TakenByAnother
    set->variants =
        VariantTable(*set->ops, before ? before->variants.labels() : builtin_->variants.labels());
    for (const Variant& v : builtin_->variants.variants()) set->variants.Add(v);
    for (const auto& v : live) v->AddTo(*set);
    set->variants.Steer(options_.steering);
    if (!options_.steering.deterministic) set->choices = choices_;
    set->fuser = builtin_->fuser;
    return set;
  }

  void ShowProgress() {
    if (!isatty(STDERR_FILENO)) return;
    std::lock_guard lock(mutex_);
    fmt::print(stderr, "\rbuilt {} of {} ops{}", built_, queued_, built_ == queued_ ? "\n" : "");
  }

  // ---- watching

  // Watches directories of ops and their subfolders, so that an op is seen however slowly it is
  // written. Watches ops with the folders of their files.
  void Watch() {
    std::map<std::string, std::string> wanted;
    std::error_code ignored;
    for (const std::string& directory : options_.directories) {
      wanted.emplace(directory, directory);
      if (IsOp(directory)) continue;
      for (std::filesystem::directory_iterator it(directory, ignored), end; it != end;
           it.increment(ignored)) {
        if (it->is_directory(ignored)) wanted.emplace(it->path().string(), it->path().string());
      }
    }
    {
      std::lock_guard lock(mutex_);
      for (const auto& [path, folder] : folders_) {
        wanted.emplace(path, path);
        if (!folder.read) continue;
        for (const jit::OpVariantSpec& v : folder.read->variants) {
          for (const auto* files : {&v.sources, &v.headers}) {
            for (const std::string& file : *files) {
              if (file.find('/') != file.npos)
                wanted.emplace(std::filesystem::path(path + "/" + file).parent_path().string(),
                               path);
            }
          }
        }
      }
    }
    watch_.Add(std::move(wanted));
  }

  void WatchLoop() {
    for (std::set<std::string> changed; !(changed = watch_.Wait()).empty();) {
      for (const std::string& path : changed) Changed(path);
    }
  }

  // Something in this folder changed. It is an op's folder, or it contains such folders.
  void Changed(const std::string& path) {
    std::vector<std::string> read;
    if (IsOp(path)) {
      Install(path, source_->Read(path));
    } else {
      const bool holds =
          std::ranges::find(options_.directories, path) != options_.directories.end();
      const auto below = holds ? jit::OpFolders(path) : std::vector<std::string>();
      std::lock_guard lock(mutex_);
      dirty_ |= folders_.erase(path) > 0;
      if (below.ok())
        std::ranges::copy_if(*below, std::back_inserter(read),
                             [&](const std::string& f) { return !folders_.contains(f); });
    }
    {
      // A folder whose op's name was taken may have the name now.
      std::lock_guard lock(mutex_);
      for (const auto& [other, folder] : folders_) {
        if (!folder.live && other != path) read.push_back(other);
      }
    }
    for (const std::string& folder : read) Install(folder, source_->Read(folder));
    Watch();
    std::unique_lock lock(mutex_);
    MaybeOffer(lock);
  }

  UserOpsOptions options_;
  const Publish publish_;
  const std::shared_ptr<KernelSet> builtin_;  // of this program only
  std::optional<OpSource> source_;
  std::shared_ptr<Choices> choices_;

  std::mutex offering_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Folder> folders_;
  std::deque<Job> queue_;
  int building_ = 0, built_ = 0, queued_ = 0;
  bool dirty_ = false;  // something is live that is in no set yet
  bool ended_ = false;
  std::chrono::steady_clock::time_point offered_at_;
  std::shared_ptr<const KernelSet> current_;

  FolderWatch watch_;
  std::vector<std::thread> threads_;
};

}  // namespace

StatusOr<std::unique_ptr<UserOps>> UserOps::Start(UserOpsOptions options, KernelSet builtin,
                                                  Publish publish) {
  auto ops =
      std::make_unique<UserOpsImpl>(std::move(options), std::move(builtin), std::move(publish));
  OPWIRE_RETURN_IF_ERROR(ops->Begin());
  return std::unique_ptr<UserOps>(std::move(ops));
}

}  // namespace opwire::executor
