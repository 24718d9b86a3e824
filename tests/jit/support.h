// Fake compilers, and other processes at the same cache.
#ifndef OPWIRE_TESTS_JIT_SUPPORT_H_
#define OPWIRE_TESTS_JIT_SUPPORT_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/jit/cache.h"
#include "kernels/jit/toolchain.h"
#include "tests/assert_ok.h"
#include "tests/folder.h"

namespace opwire::jit {

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
std::string Slurp(const std::string& path);
int CountLines(const std::string& path);
std::vector<std::string> NamesIn(const std::string& folder);

// A program that says `gcc version 99` and, asked to compile, does this in sh.
std::string FakeCompiler(const Folder& folder, const std::string& body);
// The real one, which notes each compilation in a line of the folder's `calls`; `before` is done
// first.
std::string CountingCompiler(const Folder& folder, const std::string& before = "");
inline int CallsIn(const Folder& folder) { return CountLines(folder / "calls"); }

// An op of one source that includes "a.h", which includes "b.h" with a number in it.
CompileRequest OpIn(const Folder& folder, int number = 1);
// Changes that number, and waits until file times have moved on.
void SetNumber(const Folder& folder, int number);
// What the object's function returns.
int Call(const std::string& object);

// Other processes: this program again with --get CACHE COMPILER FOLDER [NUMBER] or --hold LOCK; see
// main.cc.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments);
  ~Process();
  Process(Process&& o) noexcept;

  pid_t pid() const { return pid_; }
  void Kill();
  // Its standard output. What it ended with is in code(): exit code, or 128 + signal.
  std::string Finish();
  int code() const { return code_; }
  std::string ReadLine();

 private:
  void Wait();

  pid_t pid_ = -1;
  int fd_ = -1, code_ = -1;
};
int HelperMain(int argc, char** argv);

std::unique_ptr<BuildCache> OpenCache(const std::string& directory);

}  // namespace opwire::jit

#endif  // OPWIRE_TESTS_JIT_SUPPORT_H_
