// inotify.
#include "executor/ops/folder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "ir/wire/log.h"

namespace opwire::ops {
namespace {

constexpr int kSettleMs = 50;
constexpr uint32_t kEvents = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB;

}  // namespace

FolderWatch::FolderWatch() : stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), events_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

void FolderWatch::Add(std::map<std::string, std::string> wanted) {
  for (const auto& [w, place] : watched_) wanted.erase(place.path);
  for (const auto& [path, folder] : wanted) {
    const int w = inotify_add_watch(events_.get(), path.c_str(), kEvents);
    if (w >= 0) watched_[w] = {path, folder};
    else Log(LogLevel::kWarning, "a folder cannot be watched: edits will not be noticed", {{"folder", path}, {"why", std::strerror(errno)}});
  }
}

std::set<std::string> FolderWatch::Wait() {
  std::set<std::string> changed;
  while (true) {
    pollfd fds[] = {{stop_.get(), POLLIN, 0}, {events_.get(), POLLIN, 0}};
    const int n = poll(fds, 2, changed.empty() ? -1 : kSettleMs);
    if (fds[0].revents) return {};
    if (n > 0) ReadEvents(changed);
    else if (n == 0) return changed;
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
    // A folder that comes or goes: what was watched under its name is not what is there now.
    if ((event.mask & IN_ISDIR) && event.len > 0 && it->second.path == it->second.folder) {
      const std::string path = it->second.path + "/" + event.name;
      const auto old = std::ranges::find_if(watched_, [&](const auto& w) { return w.second.path == path; });
      if (old != watched_.end()) {
        changed.insert(old->second.folder);
        if (event.mask & (IN_MOVED_FROM | IN_MOVED_TO)) {
          inotify_rm_watch(events_.get(), old->first);
          watched_.erase(old);
        }
      }
    }
    if (event.mask & IN_IGNORED) watched_.erase(event.wd);
  }
}

}  // namespace opwire::ops
