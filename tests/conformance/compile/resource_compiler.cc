// The text has a title, a line for each kernel, and an end.
#include "tests/conformance/compile/resource_compiler.h"

#include <fmt/format.h>

#include <iterator>
#include <sstream>
#include <utility>

#include "kernels/jit/digest.h"
#include "kernels/jit/files.h"

namespace opwire::conformance {
namespace {

constexpr std::string_view kTitle = "opwire resources 1", kEnd = "end";
constexpr const char* kFile = "resources.txt";

std::string TextOf(const ResourcesByKernel& kernels) {
  std::string out = fmt::format("{}\n", kTitle);
  for (const auto& [name, r] : kernels) {
    fmt::format_to(std::back_inserter(out), "{} {} {} {} {} {}\n", name, r.registers,
                   r.spill_stores, r.spill_loads, r.stack, r.shared);
  }
  return fmt::format("{}{}\n", out, kEnd);
}

class Compiler final : public jit::Toolchain {
 public:
  explicit Compiler(std::unique_ptr<jit::Toolchain> compiler)
      : compiler_(std::move(compiler)), facts_(compiler_->facts()) {
    if (facts_.available())
      facts_.identity = jit::Digest().Add(std::string_view(facts_.identity)).Add(kTitle).Hex();
  }

  std::string_view name() const override { return compiler_->name(); }
  std::string_view backend() const override { return compiler_->backend(); }
  const jit::ToolchainFacts& facts() override { return facts_; }

  StatusOr<jit::CompiledObject> Compile(const jit::CompileRequest& request,
                                        const std::string& directory) override {
    OPWIRE_ASSIGN_OR_RETURN(jit::CompiledObject object, compiler_->Compile(request, directory));
    OPWIRE_ASSIGN_OR_RETURN(const ResourcesByKernel kernels, ResourcesOf(object));
    if (kernels.empty())
      return Internal("{}: {} reports no resources of kernels", request.name, name());
    object.path = fmt::format("{}/{}", directory, kFile);
    OPWIRE_RETURN_IF_ERROR(jit::WriteFile(object.path, TextOf(kernels), /*sync=*/false));
    return object;
  }

 private:
  StatusOr<ResourcesByKernel> ResourcesOf(const jit::CompiledObject& object) const {
    if (backend() == "cuda") return FromPtxasLog(object.log);
    OPWIRE_ASSIGN_OR_RETURN(const std::string bytes, jit::ReadFile(object.path));
    return FromCodeObject(bytes);
  }

  const std::unique_ptr<jit::Toolchain> compiler_;
  jit::ToolchainFacts facts_;
};

}  // namespace

std::unique_ptr<jit::Toolchain> ResourceCompiler(std::unique_ptr<jit::Toolchain> compiler) {
  return std::make_unique<Compiler>(std::move(compiler));
}

StatusOr<ResourcesByKernel> ReadResources(const std::string& file) {
  OPWIRE_ASSIGN_OR_RETURN(const std::string text, jit::ReadFile(file));
  std::istringstream lines(text);
  std::string line;
  ResourcesByKernel out;
  if (std::getline(lines, line) && line == kTitle) {
    while (std::getline(lines, line) && line != kEnd) {
      std::istringstream fields(line);
      std::string name;
      Resources r;
      if (!(fields >> name >> r.registers >> r.spill_stores >> r.spill_loads >> r.stack >>
            r.shared))
        break;
      out[name] = r;
    }
    if (line == kEnd) return out;
  }
  return DataLoss("{}: expected the resources of kernels, got \"{}\"", file, line);
}

}  // namespace opwire::conformance
