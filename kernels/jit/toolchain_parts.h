// Shared by the toolchains: a search that runs once, and reports of how a compiler's process ended.
#ifndef OPWIRE_KERNELS_JIT_TOOLCHAIN_PARTS_H_
#define OPWIRE_KERNELS_JIT_TOOLCHAIN_PARTS_H_

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/jit/process.h"
#include "kernels/jit/toolchain.h"

namespace opwire::jit {

class ProbedToolchain : public Toolchain {
 public:
  const ToolchainFacts& facts() final {
    std::call_once(once_, [this] { facts_ = Probe(); });
    return facts_;
  }

 protected:
  virtual ToolchainFacts Probe() = 0;

 private:
  std::once_flag once_;
  ToolchainFacts facts_;
};

// Those of these variables that this process has, as "NAME=VALUE", for a child's environment.
std::vector<std::string> Inherited(const std::vector<const char*>& names);

// The last `lines` lines of the text.
std::string_view LastLines(std::string_view text, int lines);

// The command as it could be typed, as one line of a message.
std::string CommandOf(const std::vector<std::string>& argv);

// The error of a failed compilation: the compiler, the command, how it ended, and the last lines of
// its log. The code is derived from how it ended, and from what compilers print if they crash or
// run out of space.
Status CompileError(const CompileRequest& request, std::string_view compiler,
                    const std::vector<std::string>& argv, const ProcessResult& result);

// INVALID_ARGUMENT unless every flag is one argument that begins with '-'. No flag may read other
// arguments from a file or depend on the machine that compiles. The architecture must be a name.
Status CheckFlags(const CompileRequest& request);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_TOOLCHAIN_PARTS_H_
