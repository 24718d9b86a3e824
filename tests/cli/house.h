// A runtime directory and a working directory of a test's own, and the processes that it starts
// there. All ends with it.
#ifndef OPWIRE_TESTS_CLI_HOUSE_H_
#define OPWIRE_TESTS_CLI_HOUSE_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace opwire {

class House {
 public:
  House();
  ~House();
  House(const House&) = delete;

  struct Result {
    std::string output;  // both streams, in order
    int code = -1;
  };
  // A shell's command line, in the working directory, with our programs on the path.
  Result Run(const std::string& command);
  // The same in the background; what it says goes to a file.
  pid_t Start(const std::string& command);
  // Sends a signal; with SIGKILL waits for the end, too. The exit code, or 128 + the signal that
  // ended it.
  void Signal(pid_t pid, int signal);
  Result Wait(pid_t pid);

  // A registry that asks for a beat each 100 ms, and an executor named cpu-0; returns once it is
  // registered.
  pid_t StartRegistry();
  pid_t StartExecutor(const std::string& flags = "");

  // The processes of this program that have this parent.
  static std::vector<pid_t> ChildrenOf(pid_t parent, const std::string& program);

  void Write(const std::string& file, const std::string& text);
  const std::string& runtime() const { return runtime_; }
  const std::string& work() const { return work_; }

  // Polls for at most ten seconds.
  static bool Eventually(const std::function<bool()>& condition);

 private:
  std::string OutputOf(pid_t pid) const;
  std::string root_, runtime_, work_;
  std::vector<pid_t> children_;
};

}  // namespace opwire

#endif  // OPWIRE_TESTS_CLI_HOUSE_H_
