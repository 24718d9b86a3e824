// The user's lines: where an op was called, outside this package.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_SOURCE_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_SOURCE_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

namespace opwire::python {

// The nearest frame of the calling thread that is not of the package: its code and instruction.
// Borrowed from the frame.
struct SourceLine {
  PyObject* code = nullptr;
  int instruction = 0;
};
// Names the package's folder, whose frames are passed over.
void SetPackageFolder(std::string folder);
// The reference is the caller's.
SourceLine Here();
// "train.py:12"; empty where there is none.
std::string TextOf(const SourceLine& at);

// The last ones, by the number that each got: what a queued run came from, in case that it fails.
// Takes a few nanoseconds and no text.
class Sources {
 public:
  Sources() = default;
  Sources(const Sources&) = delete;
  ~Sources();
  // The number of the calling line.
  uint64_t Add();
  // Of the last 65,536; else empty.
  std::string Find(uint64_t number) const;

 private:
  std::vector<SourceLine> ring_;
  uint64_t next_ = 0;
};

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_SOURCE_H_
