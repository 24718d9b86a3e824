// Compilers with one interface: the host's C++ compiler, NVRTC, hipRTC and the emulator's. Each is
// searched for at the first query. If it cannot be used, it reports why.
//
//   const std::unique_ptr<Toolchain> cxx = HostCompiler({});
//   if (!cxx->facts().available()) ... cxx->facts().reason ...
//   auto object = cxx->Compile({.name = "user.gelu_bias", .directory = folder, .sources =
//       {"gelu_bias.cc"}, .arch = HostArch()}, scratch);
#ifndef OPWIRE_KERNELS_JIT_TOOLCHAIN_H_
#define OPWIRE_KERNELS_JIT_TOOLCHAIN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace opwire::jit {

struct ToolchainFacts {
  std::string reason;    // why it cannot be used: "no c++, g++ or clang++ in PATH"; empty: it can
  std::string path;      // of the program or library
  std::string version;   // "g++ 12.2.0", "NVRTC 13.0"
  std::string identity;  // SHA-256, hex, over everything that determines its output for equal
                         // sources: a part of every cache key
  std::vector<std::string> architectures;  // "sm_90"; empty if it does not report them
  bool available() const { return reason.empty(); }
};

// A request for one object. Nothing in it comes over a wire.
struct CompileRequest {
  std::string name;                  // for messages: "user.gelu_bias"
  std::string directory;             // the host compiler's: the folder of sources and headers
  std::vector<std::string> sources;  // files in `directory`
  std::string text;  // in place of sources: the unit itself; input of the RTC compilers
  std::vector<std::string> flags;      // "-O3", "-DTILE=64"
  std::vector<std::string> libraries;  // the host linker's: "m", "gomp"
  std::string arch;                    // "x86-64-v4", "sm_90a", "gfx90a", "emu32"
  std::string judged_by;  // further dependencies of the object's verdict: a part of its key, not of
                          // the compilation
};

struct CompiledObject {
  std::string
      path;  // a shared library, a cubin or a code object, in the folder that Compile was given
  std::vector<std::string> headers;  // files that it was made from in addition to its sources,
                                     // absolute, without our embedded headers
  std::string log;                   // warnings
  double seconds = 0;
};

class Toolchain {
 public:
  virtual ~Toolchain() = default;
  virtual std::string_view name() const = 0;     // "c++", "nvrtc", "hiprtc", "emu"
  virtual std::string_view backend() const = 0;  // "cpu", "cuda", "hip", "emu"
  // Searches at the first call and keeps the result. Any thread.
  virtual const ToolchainFacts& facts() = 0;
  // FAILED_PRECONDITION with facts().reason. INVALID_ARGUMENT if the sources do not compile, with
  // the command, how it ended and the last lines of the compiler's log. DEADLINE_EXCEEDED or
  // INTERNAL if the compiler hangs or crashes. RESOURCE_EXHAUSTED for a full disk. Any thread;
  // several at a time.
  virtual StatusOr<CompiledObject> Compile(const CompileRequest& request,
                                           const std::string& directory) = 0;
};

struct ToolchainOptions {
  double seconds = 60;                      // a compilation's limit of wall time,
  double cpu_seconds = 0;                   // of processor time (0: 4 times `seconds`),
  int64_t memory_bytes = int64_t{4} << 30;  // of address space,
  int64_t file_bytes = int64_t{256} << 20;  // and of each file that it writes
  std::string worker = "/proc/self/exe";  // the program whose `--jit-worker` compiles in a separate
                                          // process (worker.h)
  std::string
      compiler;  // the host's: a path; empty: OPWIRE_CXX, CXX, c++, g++, clang++ in this order
};

// Builds shared libraries against abi.h, which it brings along as <opwire/abi.h>.
std::unique_ptr<Toolchain> HostCompiler(ToolchainOptions options);
// Both see the embedded <opwire/gpu.h> and no other header.
std::unique_ptr<Toolchain> Nvrtc(ToolchainOptions options);
std::unique_ptr<Toolchain> Hiprtc(ToolchainOptions options);
// The host's C++ compiler, for units that the RTC compilers accept. It makes shared libraries that
// kernels/device/emu runs, for "emu32" and "emu64" by the lanes of a wave.
std::unique_ptr<Toolchain> EmuCompiler(ToolchainOptions options);

// One toolchain for each backend; the emulator's only if it is named.
class Toolchains {
 public:
  explicit Toolchains(const ToolchainOptions& options, std::string_view backend = {});
  // REQUIRES: "cpu", "cuda", "hip", or the one that was named.
  Toolchain& Of(std::string_view backend) const;
  const std::vector<std::unique_ptr<Toolchain>>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<Toolchain>> all_;
};

// The architecture for the host compiler on this processor: "x86-64-v2", "x86-64-v3" or
// "x86-64-v4", by CPUID and by the features that the system enables. On other processors "armv8-a".
std::string HostArch();

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_TOOLCHAIN_H_
