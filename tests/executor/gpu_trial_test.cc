// Findings of a trial on a GPU, here an emulated one: kernels that are right, and every kind of
// wrong kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "executor/ops/trial.h"
#include "kernels/jit/manifest.h"
#include "kernels/jit/process.h"
#include "kernels/jit/sanitized.h"
#include "tests/assert_ok.h"
#include "tests/folder.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

// y = x + w through the workspace. WRONG stands for further actions at the end of the second
// launch.
constexpr const char* kSum = R"(
#include <opwire/gpu.h>
using namespace opw;

template <typename T>
__device__ void Take(const T*, const T* w, T*, i64, i64 N, double, void* workspace) {
  for (i64 i = Index(); i < N; i += Stride()) static_cast<T*>(workspace)[i] = w[i];
}
template <typename T, int kEach>
__device__ void Add(const T* x, const T* w, T* y, i64 M, i64 N, double by, void* workspace) {
  extern __shared__ unsigned char memory[];
  T* const shared = reinterpret_cast<T*>(memory);
  const i64 row = blockIdx.x;
  for (i64 i = threadIdx.x; i < N; i += blockDim.x) shared[i] = static_cast<const T*>(workspace)[i] * T(by);
  __syncthreads();
  for (i64 i = threadIdx.x; i < N; i += blockDim.x) y[row * N + i] = x[row * N + i] + shared[i];
  if (row > 0 || threadIdx.x > 0) return;
  (void)w;
  WRONG;
}
)";

constexpr const char* kLookup = R"(
#include <opwire/gpu.h>
using namespace opw;

__device__ void Lookup(const float* table, const i64* ids, float* y, i64 V, i64 B, Reporter report) {
  for (i64 i = Index(); i < B; i += Stride()) {
    const i64 at = WrapIndex(LoadIndex(ids + i), V);
    if (at < 0) NOTE;
    y[i] = at < 0 ? 0 : table[at];
  }
}
)";

class GpuTrial : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (jit::kSanitized) GTEST_SKIP() << "the emulator's fibers are none that a sanitizer knows";
    const auto write = [&](const std::string& name, const char* signature, const char* more,
                           const char* launch, const char* reference, const char* source) {
      folder_.Write(
          name + "/op.json",
          fmt::format(R"({{"name": "{0}", "signature": "{1}", {2}, "reference": "reference.opw",
        "variants": {{"gpu": {{"backend": ["cuda", "hip"], "sources": ["{0}.cu"], "flags": ["-DWRONG={{}}"], {3}}}}}}})",
                      name, signature, more, launch));
      folder_.Write(name + "/reference.opw", reference);
      folder_.Write(name + "/" + name + ".cu", source);
    };
    write(
        "sum", "x: T[M, N], w: T[N] -> y: T[M, N]",
        R"("types": {"T": ["f32", "f64"]}, "attributes": {"by": {"type": "float", "default": 1.5, "doc": "Factor of w."}})",
        R"("launch": [{"function": "Take<T>", "blocks": "(N + 63) / 64", "threads": 64}, {"function": "Add<T, 2>", "blocks": "M", "threads": 128, "shared": "8 * N"}],
             "workspace": "8 * N")",
        "program @reference(%x: T[?M, ?N], %w: T[?N], %by: f64[]) -> (y: T[?M, ?N]) { %0 = "
        "cast(%by) {dtype = T} %1 = mul(%w, %0) %2 = add(%x, %1) return %2 }\n",
        kSum);
    write("lookup", "table: f32[V], ids: i64[B] -> y: f32[B]", R"("indices": {"ids": "V"})",
          R"("launch": {"function": "Lookup", "blocks": "(B + 255) / 256"})",
          "program @reference(%table: f32[?V], %ids: i64[?B]) -> (y: f32[?B]) { %0 = "
          "gather(%table, %ids) {dim = 0} return %0 }\n",
          kLookup);
  }

  // Tries the op with a text in place of WRONG or NOTE.
  StatusOr<CheckReport> Try(const std::string& op, const std::string& wrong, bool thorough = false,
                            double seconds = 60) {
    const std::string device = GetParam();
    OPWIRE_ASSIGN_OR_RETURN(const jit::OpManifest manifest, jit::ReadManifest(folder_ / op));
    OPWIRE_ASSIGN_OR_RETURN(jit::CompileRequest request,
                            jit::RequestFor(manifest, manifest.variants[0], "emu",
                                            device == "emu:0" ? "emu32" : "emu64"));
    request.flags = {"-DWRONG=" + wrong, "-DNOTE=" + wrong};
    const Folder out;
    OPWIRE_ASSIGN_OR_RETURN(const jit::CompiledObject object,
                            jit::EmuCompiler({})->Compile(request, out.path()));
    TrialOptions options{.worker = OPWIRE_EXECUTOR,
                         .device = device,
                         .check = {.thorough = thorough, .seed = Seed()},
                         .seconds = seconds};
    return TryKernel(folder_ / op, "gpu", object.path, options);
  }
  static void Fails(const StatusOr<CheckReport>& report, const std::vector<std::string>& says) {
    EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition) << report.status();
    for (const std::string& part : says)
      EXPECT_NE(report.status().message().find(part), std::string::npos)
          << "expected '" << part << "' in: " << report.status();
  }

  Folder folder_;
  ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                testing::Message() << "repeat with OPWIRE_SEED=" << Seed()};
};
INSTANTIATE_TEST_SUITE_P(Waves, GpuTrial, ::testing::Values("emu:0", "emu:1"),
                         [](const auto& p) { return p.param[4] == '0' ? "Of32" : "Of64"; });

TEST_P(GpuTrial, KernelsThatAreRight) {
  ASSERT_OK_AND(const CheckReport quick, Try("sum", ""));
  EXPECT_EQ(quick.cases, 2);
  ASSERT_OK_AND(const CheckReport all, Try("sum", "", /*thorough=*/true));
  EXPECT_GE(all.cases, 2 * 2 * 6);
  ASSERT_EQ(all.worst.size(), 2u);
  ASSERT_OK_AND(const CheckReport lookup,
                Try("lookup", "ReportOutOfRange(report, 1, i)", /*thorough=*/true));
  EXPECT_GT(lookup.cases, 0);
}

TEST_P(GpuTrial, WrongResults) {
  Fails(Try("sum", "y[0] += 1"),
        {"user.sum@gpu, f64 M=7 N=13", "result y[0]: expected ", ", got ", "tolerance"});
  EXPECT_TRUE(Try("sum", "y[0] += M > 60").ok());
  Fails(Try("sum", "y[0] += M > 60", /*thorough=*/true),
        {"user.sum@gpu, f64 M=64 N=129", "result y[0]"});
  Fails(Try("sum", "y[0] += (reinterpret_cast<u64>(y) & 255) == 0 ? T(1e-13) : T(0)"),
        {"deterministic", "different bits"});
}

TEST_P(GpuTrial, ReadsAndWritesOutsideOfTensors) {
  Fails(Try("sum", "y[M * N] = 1"),
        {"user.sum@gpu, f64 M=7 N=13", "thread 0", "is not the kernel's"});
  Fails(Try("sum", "y[-1] = 1"), {"it wrote before the beginning of result y (f64[7, 13])"});
  Fails(Try("sum", "static_cast<T*>(workspace)[-1] = 1"),
        {"it wrote before the beginning of the workspace"});
  Fails(Try("sum", "const_cast<T*>(x)[3] = 7"), {"it wrote operand x (f64[7, 13])"});
  Fails(Try("sum", "y[0] += x[M * N] * 0"), {"is not the kernel's"});
  Fails(Try("sum", "*reinterpret_cast<int*>(8) = 1"),
        {"user.sum@gpu, f64 M=7 N=13", "block (0, 0, 0)"});
}

TEST_P(GpuTrial, Indices) {
  EXPECT_TRUE(Try("lookup", "y[i] = 0").ok())
      << "a quick trial has indices within their domain only";
  Fails(Try("lookup", "y[i] = 0", true), {"user.lookup@gpu", "V=", "it did not call out_of_range"});
}

TEST_P(GpuTrial, NoAnswer) {
  Fails(Try("sum", "for (volatile int zero = 0; zero == 0;) y[0] = y[0]", false, 2),
        {"gpu did not return within 2 s"});
  const Status wrong = Try("sum", "y[0] = Nothing()").status();
  EXPECT_NE(wrong.message().find("sum.cu:19"), std::string::npos)
      << "the line of the source: " << wrong;
}

TEST_P(GpuTrial, TheCommandChecksOnTheDeviceThatIsNamed) {
  const Folder cache;
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {OPWIRE_EXECUTOR, "build"});
    arguments.insert(arguments.end(), {"--cache", cache.path()});
    const auto result =
        jit::RunProcess({.argv = std::move(arguments),
                         .environment = {std::string("PATH=") + std::getenv("PATH")},
                         .seconds = 60});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : jit::ProcessResult();
  };
  const auto good = run({"--quick", "--device", GetParam(), folder_ / "sum"});
  EXPECT_EQ(good.exit_code, 0) << good.output << good.errors;
  for (const char* said : {"user.sum@gpu  emu emu", "2 cases agree with the reference (seed 1)"}) {
    EXPECT_NE(good.output.find(said), std::string::npos) << said << " in: " << good.output;
  }
  const auto none = run({"--device", "emu:7", folder_ / "sum"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.errors.find("emu:7"), std::string::npos) << none.errors;
}

}  // namespace
}  // namespace opwire::executor
