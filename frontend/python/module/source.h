// The user's source lines: where an op was called, outside this package.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_SOURCE_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_SOURCE_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

namespace opwire::python {

// The nearest frame of the calling thread outside the package: its code and instruction. Borrowed
// from the frame.
struct SourceLine {
  PyObject* code = nullptr;
  int instruction = 0;
};
// Sets the package's folder, whose frames are skipped.
void SetPackageFolder(std::string folder);
// The caller owns the reference.
SourceLine Here();
// "train.py:12"; empty if there is no line.
std::string TextOf(const SourceLine& at);

// The last lines, by number: the sources of queued runs, for error messages if they fail. Adding
// one takes a few nanoseconds and makes no text.
class Sources {
 public:
  Sources() = default;
  Sources(const Sources&) = delete;
  ~Sources();
  // Adds the calling line and returns its number.
  uint64_t Add();
  // Returns one of the last 65,536 lines; else an empty string.
  std::string Find(uint64_t number) const;

 private:
  std::vector<SourceLine> ring_;
  uint64_t next_ = 0;
};

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_SOURCE_H_
