// Child processes with limits: compilers, and the trial of compiled objects. No shell is involved.
//
//   OPWIRE_ASSIGN_OR_RETURN(ProcessResult r, RunProcess({.argv = {"/usr/bin/g++", "-O2", "k.cc"},
//       .seconds = 60}));
//   if (!r.ok()) return Internal("{}: {}\n{}", "g++", r.Describe(), r.errors);
#ifndef OPWIRE_KERNELS_JIT_PROCESS_H_
#define OPWIRE_KERNELS_JIT_PROCESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace opwire::jit {

struct ProcessOptions {
  std::vector<std::string> argv;         // argv[0] is a path
  std::string directory;                 // working directory; empty: the caller's
  std::string input;                     // for its standard input
  std::vector<std::string> environment;  // NAME=VALUE; nothing else is inherited
  double seconds = 60;             // of wall time; afterwards its whole process group is killed
  double cpu_seconds = 0;          // of processor time, each process; 0: 4 times `seconds`
  int64_t memory_bytes = 0;        // of address space, each process; 0: no limit
  int64_t file_bytes = 0;          // of any file that it writes; 0: no limit
  int64_t output_bytes = 1 << 20;  // kept of each of its outputs: the first half and the last
};

struct ProcessResult {
  int exit_code = 0;  // if it exited normally
  int signal = 0;     // that ended it; 0: none
  bool timed_out = false;
  std::string output;  // its standard output,
  std::string errors;  // and its standard error
  double seconds = 0;  // of wall time

  bool ok() const { return exit_code == 0 && signal == 0 && !timed_out; }
  // "exit code 1", "signal 11 (Segmentation fault)", "no end within 60 s".
  std::string Describe() const;
};

// Waits for the child. Its descendants are killed when it ends. It and they are killed at the
// time limit, and when this process ends. NOT_FOUND if argv[0] is not a program; RESOURCE_EXHAUSTED
// if no process can be made. Any thread.
StatusOr<ProcessResult> RunProcess(const ProcessOptions& options);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_PROCESS_H_
