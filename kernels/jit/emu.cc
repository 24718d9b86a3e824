// GPU units as C++: the built-ins first, then the unit, then exports of the unit's kernels.
#include <fmt/format.h>
#include <re2/re2.h>

#include "kernels/jit/digest.h"
#include "kernels/jit/toolchain_parts.h"

namespace opwire::jit {
namespace {

// Exports kernels under their plain names, with their launch bounds. If a unit has several kernels,
// which share its variables, it also exports their number.
std::string Exports(const std::string& text) {
  static const RE2 kKernel(
      R"re((?:extern\s+"C"\s+__global__\s+void(?:\s+__launch_bounds__\s*\(([^)]*)\))?|OPW_GLOBAL\s*\(([^)]*)\))\s*(\w+)\s*\()re");
  std::string out, launch_bounds, global, name;
  re2::StringPiece rest(text);
  int kernels = 0;
  for (; RE2::FindAndConsume(&rest, kKernel, &launch_bounds, &global, &name); ++kernels) {
    const std::string bounds = launch_bounds + global;
    out += fmt::format("OPW_EMU_KERNEL({}, {})\n", name, bounds.empty() ? "1024" : bounds);
  }
  if (kernels > 1)
    out += fmt::format(
        "extern \"C\" __attribute__((visibility(\"default\"))) const int opw_emu_kernels = {};\n",
        kernels);
  return out;
}

// Dynamic shared memory has no declaration in C++. It becomes a pointer to the emulator's memory.
std::string WithDynamicShared(std::string text) {
  static const RE2 kDynamic(
      R"re(extern\s+__shared__\s+(?:(?:alignas|__align__)\s*\([^)]*\)\s*)?([\w:\s]*[\w])\s+(\w+)\s*\[\s*\]\s*;)re");
  RE2::GlobalReplace(&text, kDynamic,
                     R"(\1* const \2 = reinterpret_cast<\1*>(opw_emu_machine.dynamic_shared);)");
  return text;
}

class Emu final : public ProbedToolchain {
 public:
  explicit Emu(ToolchainOptions options) : host_(HostCompiler(std::move(options))) {}

  std::string_view name() const override { return "emu"; }
  std::string_view backend() const override { return "emu"; }

  StatusOr<CompiledObject> Compile(const CompileRequest& request,
                                   const std::string& directory) override {
    if (request.arch != "emu32" && request.arch != "emu64") {
      return InvalidArgument("{}: architecture {}: expected emu32 or emu64", request.name,
                             request.arch);
    }
    CompileRequest unit = request;
    unit.arch = HostArch();
    unit.text = fmt::format("#include <opwire/emu.h>\n{}\n{}OPW_EMU_UNIT(R\"opw({})opw\")\n",
                            WithDynamicShared(request.text), Exports(request.text), request.name);
    // Measured on hundreds of kernels: -Og compiles in 60 % of the time of -O1, and with these four
    // passes the code runs as fast. The indices of arrays whose extent is known are checked. No
    // files of the compiler's runtime are linked: they would put their own variables among those of
    // the blocks.
    const std::string lanes = request.arch.substr(3);
    unit.flags.insert(
        unit.flags.begin(),
        {"-std=c++17", "-Og", "-finline-functions-called-once", "-finline-small-functions",
         "-ftree-sra", "-fmove-loop-invariants", "-DOPW_EMU=" + lanes, "-fsanitize=bounds",
         "-nostdlib", "-fno-exceptions", "-w"});
    unit.libraries.push_back("m");
    return host_->Compile(unit, directory);
  }

 protected:
  ToolchainFacts Probe() override {
    ToolchainFacts facts = host_->facts();
    if (facts.available())
      facts.identity = Digest()
                           .Add(std::string_view(facts.identity))
                           .Add(std::string_view(HostArch()))
                           .Add(kForm)
                           .Hex();
    facts.architectures = {"emu32", "emu64"};
    return facts;
  }

 private:
  static constexpr int64_t kForm = 2;  // version of the text around a unit and of the flags

  const std::unique_ptr<Toolchain> host_;
};

}  // namespace

std::unique_ptr<Toolchain> EmuCompiler(ToolchainOptions options) {
  return std::make_unique<Emu>(std::move(options));
}

}  // namespace opwire::jit
