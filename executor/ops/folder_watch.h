// Reports changed folders, with inotify. Collects the events of one change, until no more files are
// written.
#ifndef OPWIRE_EXECUTOR_OPS_FOLDER_WATCH_H_
#define OPWIRE_EXECUTOR_OPS_FOLDER_WATCH_H_

#include <map>
#include <set>
#include <string>

#include "ir/base/owned_fd.h"

namespace opwire::executor {

// One thread at a time, except for Stop.
class FolderWatch {
 public:
  FolderWatch();

  // Also watches `wanted`: by path, the folder that Wait reports when something in the path
  // changes. Logs a path that cannot be watched.
  void Add(std::map<std::string, std::string> wanted);

  // Waits for changes and returns the changed folders: 50 ms after the last event, or 500 ms after
  // the first one. A folder that disappears, or exists under its name again, has changed. Empty:
  // the watch was stopped.
  std::set<std::string> Wait();
  // Any thread. Ends the present Wait and all later ones.
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

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_OPS_FOLDER_WATCH_H_
