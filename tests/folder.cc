// Over the file system's calls.
#include "tests/folder.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace opwire {

namespace fs = std::filesystem;

Folder::Folder() {
  char path[] = "/tmp/opwire-test-XXXXXX";
  if (mkdtemp(path) == nullptr) abort();
  path_ = path;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string Folder::Write(const std::string& name, const std::string& text, int mode) const {
  const std::string path = path_ + "/" + name;
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
  chmod(path.c_str(), static_cast<mode_t>(mode));
  return path;
}

std::string KernelCache(const Folder& own) {
  const char* const shared = std::getenv("OPWIRE_CACHE");
  return shared != nullptr ? shared : own.path();
}

}  // namespace opwire
