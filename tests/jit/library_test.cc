// Libraries of kernels: what loads, and why another does not.
#include "kernels/jit/library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/jit/toolchain.h"
#include "tests/jit/support.h"

namespace opwire::jit {
namespace {

// A library of this text, which <opwire/abi.h> and a kernel's function Run precede.
StatusOr<std::shared_ptr<const Library>> Build(const Folder& folder, const std::string& text,
                                               int kernels = 1,
                                               std::vector<std::string> flags = {}) {
  CompileRequest request;
  request.flags = std::move(flags);
  request.name = "test.library";
  request.text =
      "#include <opwire/abi.h>\nstatic int Run(const opw_call*) { return OPW_OK; }\n" + text + "\n";
  request.arch = HostArch();
  OPWIRE_ASSIGN_OR_RETURN(const CompiledObject object,
                          HostCompiler({})->Compile(request, folder.path()));
  return Library::Open(object.path, kernels);
}

void ExpectRefused(const StatusOr<std::shared_ptr<const Library>>& library,
                   const std::string& part) {
  EXPECT_TRUE(absl::IsFailedPrecondition(library.status())) << library.status();
  EXPECT_NE(MessageOf(library.status()).find(part), std::string::npos) << library.status();
}

TEST(Library, HasItsKernel) {
  Folder folder;
  ASSERT_OK_AND(const auto library,
                Build(folder, "OPW_KERNEL = {OPW_ABI_VERSION, OPW_CONTIGUOUS, 0, 0, 0, Run, 0};"));
  EXPECT_EQ(library->kernel().flags, static_cast<uint32_t>(OPW_CONTIGUOUS));
  EXPECT_EQ(library->kernel().run(nullptr), OPW_OK);
}

TEST(Library, HasSeveralKernels) {
  Folder folder;
  const std::string text =
      "extern \"C\" __attribute__((visibility(\"default\"))) const opw_kernel opwire_kernel_1 = "
      "{OPW_ABI_VERSION, 2, 0, 0, 0, Run, 0};\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) const opw_kernel opwire_kernel_2 = "
      "{OPW_ABI_VERSION, 4, 0, 0, 0, Run, 0};\n"
      "OPW_KERNEL = {OPW_ABI_VERSION, 1, 0, 0, 0, Run, 0};";
  ASSERT_OK_AND(const auto library, Build(folder, text, 3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(library->kernel(i).flags, 1u << i);
  ExpectRefused(Library::Open(folder / "object", 4), "opwire_kernel_3");
}

// Fast arithmetic is the library's own affair: g++ links code into it that would make this thread
// flush subnormals to zero.
TEST(Library, LeavesTheArithmeticOfItsLoaderAlone) {
  Folder folder;
  volatile float small = 1e-40f;
  ASSERT_GT(small * 1.0f, 0.0f);
  ASSERT_OK_AND(
      const auto library,
      Build(folder, "OPW_KERNEL = {OPW_ABI_VERSION, 0, 0, 0, 0, Run, 0};", 1, {"-ffast-math"}));
  EXPECT_GT(small * 1.0f, 0.0f);
}

TEST(Library, StaysLoadedAsLongAsItIsHeld) {
  Folder folder;
  ASSERT_OK_AND(const auto library,
                Build(folder, "OPW_KERNEL = {OPW_ABI_VERSION, 0, 0, 0, 0, Run, 0};"));
  ASSERT_OK_AND(const auto again, Library::Open(folder / "object"));
  EXPECT_EQ(&again->kernel(), &library->kernel());
  ASSERT_EQ(unlink((folder / "object").c_str()), 0);
  EXPECT_EQ(library->kernel().run(nullptr), OPW_OK);
}

TEST(Library, RefusesWhatIsNone) {
  Folder folder;
  ExpectRefused(Library::Open("/no/such/file"), "/no/such/file");
  ExpectRefused(Library::Open(folder.Write("text", "not a library")), "it does not load");
  ExpectRefused(
      Build(folder,
            "extern \"C\" int undefined_thing(); int Other() { return undefined_thing(); }"),
      "undefined_thing");
}

TEST(Library, RefusesOneWithoutKernel) {
  Folder folder;
  ExpectRefused(
      Build(folder, "static const opw_kernel hidden = {OPW_ABI_VERSION, 0, 0, 0, 0, Run, 0};"),
      "expected a kernel opwire_kernel, as");
}

TEST(Library, RefusesAnotherInterface) {
  Folder folder;
  ExpectRefused(Build(folder, "OPW_KERNEL = {OPW_ABI_VERSION + 1, 0, 0, 0, 0, Run, 0};"),
                "expected a kernel of interface 1, got 2");
}

TEST(Library, RefusesAKernelThatCannotRun) {
  Folder folder;
  ExpectRefused(Build(folder, "OPW_KERNEL = {OPW_ABI_VERSION, 0, 0, 0, 0, 0, 0};"),
                "opwire_kernel has no run");
}

}  // namespace
}  // namespace opwire::jit
