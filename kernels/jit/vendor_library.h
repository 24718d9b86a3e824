// Places of a vendor's libraries, for dlopen: toolkits, wheels, and places that the user names.
#ifndef OPWIRE_KERNELS_JIT_VENDOR_LIBRARY_H_
#define OPWIRE_KERNELS_JIT_VENDOR_LIBRARY_H_

#include <string>
#include <vector>

namespace opwire::jit {

struct VendorLibrary {
  const char* setting;               // an environment variable with a file or a folder
  std::vector<const char*> homes;    // environment variables of installations
  std::vector<const char*> folders;  // usual ones
  std::vector<const char*> below;    // path in an installation, or in a folder of Python's packages
  std::vector<const char*> names;    // file names, the best first
};

// In order: the place that the user named, then the loader's search path, then the usual folders.
std::vector<std::string> CandidatesFor(const VendorLibrary& library);

// dlopen's handle of the first candidate that opens, with its symbols visible only to the handle.
// Null if none does; "; why" of each is then appended to `reasons`.
void* OpenFirst(const VendorLibrary& library, std::string& reasons);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_VENDOR_LIBRARY_H_
