// Where a vendor's libraries may lie, for dlopen: toolkits, wheels, and what the user names.
#ifndef OPWIRE_KERNELS_JIT_VENDOR_LIBRARY_H_
#define OPWIRE_KERNELS_JIT_VENDOR_LIBRARY_H_

#include <string>
#include <vector>

namespace opwire::jit {

struct VendorLibrary {
  const char* setting;               // an environment variable with a file or a folder
  std::vector<const char*> homes;    // environment variables of installations
  std::vector<const char*> folders;  // usual ones
  std::vector<const char*> below;  // where in an installation, or in a folder of Python's packages
  std::vector<const char*> names;  // the file's, the best first
};

// In their order: what the user named, then what the loader finds, then the usual folders.
std::vector<std::string> CandidatesFor(const VendorLibrary& library);

// dlopen's handle of the first candidate that opens, with its symbols for it alone. Null: none
// does, and `reasons` has "; why" of each behind what it had.
void* OpenFirst(const VendorLibrary& library, std::string& reasons);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_VENDOR_LIBRARY_H_
