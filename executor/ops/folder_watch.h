// Tells when folders change: inotify, with what is noticed gathered until nothing more is written.
#ifndef OPWIRE_EXECUTOR_OPS_FOLDER_WATCH_H_
#define OPWIRE_EXECUTOR_OPS_FOLDER_WATCH_H_

#include <map>
#include <set>
#include <string>

#include "ir/base/owned_fd.h"

namespace opwire::ops {

// One thread at a time, but for Stop.
class FolderWatch {
 public:
  FolderWatch();

  // From here on watches these too: by path, the folder that has changed when something in the path
  // has. One that cannot be watched is told of in the log.
  void Add(std::map<std::string, std::string> wanted);

  // Waits until something has changed and has been left alone for 50 ms, or was first seen half a
  // second ago: the folders. A folder that went, and one that comes back under its name, have
  // changed. None: it was stopped.
  std::set<std::string> Wait();
  // Any thread: ends Wait, this one and all later ones.
  void Stop();

 private:
  struct Place {
    std::string path, folder;
  };
  bool TryToWatch(const std::string& path, const std::string& folder);
  void ReadEvents(std::set<std::string>& changed);

  const OwnedFd stop_, events_;
  std::map<int, Place> watched_;
  std::map<std::string, std::string>
      missing_;  // that were watched, or should be: by path, the folder
};

}  // namespace opwire::ops

#endif  // OPWIRE_EXECUTOR_OPS_FOLDER_WATCH_H_
