// What the toolchains share: looking once, and telling how a compiler's process ended.
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

// "NAME=VALUE" of those of these variables that this process has, for a child's environment.
std::vector<std::string> Inherited(const std::vector<const char*>& names);

// The last `lines` lines of the text.
std::string_view LastLines(std::string_view text, int lines);

// One line of a message: the command as it could be typed.
std::string CommandOf(const std::vector<std::string>& argv);

// The error of a compilation that went wrong: who, the command, how it ended, and the last lines of
// its log. The code is made out from how it ended and from what compilers say when they crash or
// find no room.
Status CompileError(const CompileRequest& request, std::string_view compiler,
                    const std::vector<std::string>& argv, const ProcessResult& result);

// INVALID_ARGUMENT unless each is one argument that begins with '-', neither reads other arguments
// from a file nor asks for the machine that happens to compile, and the architecture is a name.
Status CheckFlags(const CompileRequest& request);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_TOOLCHAIN_PARTS_H_
