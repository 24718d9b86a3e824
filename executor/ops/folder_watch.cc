// inotify.
#include "executor/ops/folder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "ir/wire/log.h"

namespace opwire::executor {
namespace {

constexpr int kSettleMs = 50, kAtMostMs = 500, kLookAgainMs = 500;
constexpr uint32_t kEvents =
    IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB | IN_MOVE_SELF;

}  // namespace

FolderWatch::FolderWatch()
    : stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      events_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

void FolderWatch::Add(std::map<std::string, std::string> wanted) {
  for (const auto& [w, place] : watched_) wanted.erase(place.path);
  for (const auto& [path, folder] : wanted) {
    if (TryToWatch(path, folder) || !missing_.emplace(path, folder).second) continue;
    Log(LogLevel::kWarning, "a folder cannot be watched: edits will not be noticed",
        {{"folder", path}, {"why", std::strerror(errno)}});
  }
}

bool FolderWatch::TryToWatch(const std::string& path, const std::string& folder) {
  const int w = inotify_add_watch(events_.get(), path.c_str(), kEvents);
  if (w >= 0) watched_[w] = {path, folder};
  return w >= 0;
}

std::set<std::string> FolderWatch::Wait() {
  using Clock = std::chrono::steady_clock;
  std::set<std::string> changed;
  Clock::time_point first;
  while (true) {
    pollfd fds[] = {{stop_.get(), POLLIN, 0}, {events_.get(), POLLIN, 0}};
    const int n = poll(fds, 2, !changed.empty() ? kSettleMs : missing_.empty() ? -1 : kLookAgainMs);
    if (fds[0].revents) return {};
    const bool none = changed.empty();
    if (n > 0) ReadEvents(changed);
    // A folder exists under its name again.
    if (n == 0 && none) {
      std::erase_if(missing_, [&](const auto& m) {
        if (!TryToWatch(m.first, m.second)) return false;
        changed.insert(m.second);
        return true;
      });
    }
    if (none) first = Clock::now();
    const bool settled = n == 0 || Clock::now() - first > std::chrono::milliseconds(kAtMostMs);
    if (!changed.empty() && settled) return changed;
  }
}

void FolderWatch::Stop() {
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));
}

void FolderWatch::ReadEvents(std::set<std::string>& changed) {
  alignas(inotify_event) char buffer[16384];
  const ssize_t bytes = read(events_.get(), buffer, sizeof(buffer));
  for (ssize_t at = 0; at < bytes;) {
    const auto& event = *reinterpret_cast<const inotify_event*>(buffer + at);
    at += static_cast<ssize_t>(sizeof(inotify_event) + event.len);
    const auto it = watched_.find(event.wd);
    if (it == watched_.end()) continue;
    changed.insert(it->second.folder);
    if (event.mask & IN_MOVE_SELF) {
      missing_.insert_or_assign(it->second.path, it->second.folder);
      inotify_rm_watch(events_.get(), event.wd);
      watched_.erase(event.wd);
      continue;
    }
    // A folder appears or disappears, so the watch under its name is of another folder than the
    // present one.
    if ((event.mask & IN_ISDIR) && event.len > 0 && it->second.path == it->second.folder) {
      const std::string path = it->second.path + "/" + event.name;
      const auto old =
          std::ranges::find_if(watched_, [&](const auto& w) { return w.second.path == path; });
      if (old != watched_.end()) {
        changed.insert(old->second.folder);
        if (event.mask & (IN_MOVED_FROM | IN_MOVED_TO)) {
          inotify_rm_watch(events_.get(), old->first);
          watched_.erase(old);
        }
      }
    }
    if (const auto gone = watched_.find(event.wd);
        (event.mask & IN_IGNORED) && gone != watched_.end()) {
      missing_.insert_or_assign(gone->second.path, gone->second.folder);
      watched_.erase(gone);
    }
  }
}

}  // namespace opwire::executor
