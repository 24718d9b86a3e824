// Lists the possible places, and opens the first library found.
#include "kernels/jit/vendor_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace opwire::jit {

namespace fs = std::filesystem;

std::vector<std::string> CandidatesFor(const VendorLibrary& library) {
  std::vector<std::string> out;
  const auto add_folder = [&](const fs::path& folder) {
    for (const char* name : library.names) out.push_back(folder / name);
  };
  const auto add_home = [&](const fs::path& home) {
    for (const char* below : library.below) add_folder(home / below);
  };
  if (const char* named = std::getenv(library.setting); named && *named) {
    std::error_code ignored;
    if (!fs::is_directory(named, ignored)) return {named};
    add_folder(named);
    add_home(named);
    return out;
  }
  for (const char* name : library.names) out.push_back(name);
  for (const char* home : library.homes) {
    if (const char* value = std::getenv(home); value && *value) add_home(value);
  }
  for (const char* folder : library.folders) add_home(folder);
  return out;
}

void* OpenFirst(const VendorLibrary& library, std::string& reasons) {
  for (const std::string& candidate : CandidatesFor(library)) {
    if (void* const handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* const why = dlerror();
    reasons += "; " + (why ? std::string(why) : candidate);
  }
  return nullptr;
}

}  // namespace opwire::jit
