// NVRTC and hipRTC in worker processes. If a library is absent, its tests skip with the reason that
// the probe gives.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "kernels/embedded.h"
#include "kernels/jit/build_id.h"
#include "kernels/jit/rtc_protocol.h"
#include "kernels/jit/toolchain.h"
#include "tests/jit/support.h"

namespace opwire::jit {
namespace {

namespace fs = std::filesystem;

// Uses every part of <opwire/gpu.h>.
constexpr const char* kEverything = R"(
#include <opwire/gpu.h>
using namespace opw;
template <typename T> __device__ void Scale(const T* x, T* y, i64 n) {
  constexpr int kSize = Pack<T>::kSize;
  for (i64 i = Index() * kSize; i + kSize <= n; i += Stride() * kSize) {
    Pack<T> p = Load16(x + i);
    for (int k = 0; k < kSize; ++k) FromFloat(Fma(ToFloat(p.v[k]), 2.0f, 1.0f), p.v[k]);
    Store16(y + i, p);
  }
}
OPW_GLOBAL(256) scale_f32(const float* x, float* y, i64 n) { Scale(x, y, n); }
OPW_GLOBAL(256) scale_f16(const f16* x, f16* y, i64 n) { Scale(x, y, n); }
OPW_GLOBAL(256) scale_bf16(const bf16* x, bf16* y, i64 n) { Scale(x, y, n); }
OPW_GLOBAL(1024) reduce(const float* x, float* y, double* d, i64* c) {
  const float v = x[Index()];
  const float sum = BlockReduce(v, Sum(), 0.0f);
  const float most = BlockReduce(v, Max(), v);
  const float least = BlockReduce(v, Min(), v);
  const double dsum = BlockReduce(static_cast<double>(v), Sum(), 0.0);
  const i64 count = BlockReduce(static_cast<i64>(v > 0), Sum(), i64{0});
  WarpBarrier();
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 900
  __shared__ float own;
  own = v;
  ClusterBarrier();
  y[1] = *InBlock(&own, 1);
  ClusterArrive();
  ClusterWait();
#endif
#if defined(OPW_CUDA) && __CUDA_ARCH__ >= 800
  float tile[4] = {};
  const u32 rows[4] = {}, columns[2] = {};
  MultiplyTile<bf16>(tile, rows, columns);
  MultiplyTile<f16>(tile, rows, columns);
  y[2] = tile[0];
#endif
  y[Index()] = sum + most + least + ShuffleXor(v, 1) + ShuffleFrom(v, 0) + ShuffleUp(v, 1) + WarpReduce(v, Max()) + Lane() + Warp();
  y[0] = Exp(v) + Log(v) + Log1p(v) + Sqrt(v) + Tanh(v) + Erf(v) + Floor(v) + Abs(v) + FloatOf(BitsOf(v));
  d[0] = Exp(dsum) + Log(dsum) + Log1p(dsum) + Sqrt(dsum) + Tanh(dsum) + Erf(dsum) + Floor(dsum) + Abs(dsum) + Fma(dsum, dsum, dsum);
  c[0] = count;
  static_assert(sizeof(i8) == 1 && sizeof(u8) == 1 && sizeof(i16) == 2 && sizeof(u16) == 2 && sizeof(i32) == 4 && sizeof(u32) == 4 && sizeof(u64) == 8, "");
  static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2 && sizeof(Quad) == 16 && sizeof(Pack<f16>) == 16 && alignof(Pack<float>) == 16, "");
}
)";

CompileRequest Unit(const std::string& text, const std::string& arch) {
  CompileRequest request;
  request.name = "test.unit";
  request.text = text;
  request.arch = arch;
  return request;
}

struct Case {
  const char* name;
  std::unique_ptr<Toolchain> (*make)(ToolchainOptions);
  std::vector<const char*> architectures;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class Rtc : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    toolchain_ = GetParam().make({});
    if (!toolchain_->facts().available()) GTEST_SKIP() << toolchain_->facts().reason;
  }
  std::unique_ptr<Toolchain> toolchain_;
};

TEST_P(Rtc, ProbeTellsWhatItIs) {
  const ToolchainFacts& f = toolchain_->facts();
  EXPECT_EQ(f.path[0], '/');
  EXPECT_TRUE(Contains(f.version, "RTC ")) << f.version;
  EXPECT_EQ(f.identity.size(), 64u);
  EXPECT_EQ(GetParam().make({})->facts().identity, f.identity);
  EXPECT_EQ(f.architectures.size() > 3, toolchain_->name() == "nvrtc");
}

// A cache outlives an installation, so a library has one identity in all folders.
TEST(RtcIdentity, IsTheSameInAnotherFolder) {
  const std::unique_ptr<Toolchain> nvrtc = Nvrtc({});
  if (!nvrtc->facts().available()) GTEST_SKIP() << nvrtc->facts().reason;
  const Folder folder;
  const fs::path from = fs::path(nvrtc->facts().path).parent_path();
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("libnvrtc")) fs::copy_file(entry.path(), folder / name);
  }
  const char* old = std::getenv("OPWIRE_NVRTC");
  const std::string before = old ? old : "";
  setenv("OPWIRE_NVRTC", folder.path().c_str(), 1);
  const ToolchainFacts copy = Nvrtc({})->facts();
  EXPECT_TRUE(copy.path.starts_with(folder.path())) << copy.path;
  EXPECT_EQ(copy.identity, nvrtc->facts().identity);
  fs::copy_file("/proc/self/exe", folder / "libnvrtc-builtins.so.0");
  EXPECT_NE(Nvrtc({})->facts().identity, nvrtc->facts().identity);
  before.empty() ? unsetenv("OPWIRE_NVRTC") : setenv("OPWIRE_NVRTC", before.c_str(), 1);
}

TEST(BuildId, IsReadFromAnElfFileOnly) {
  const std::string own = BuildIdOf("/proc/self/exe");
  EXPECT_TRUE(own.empty() || own.size() >= 16) << own;
  const Folder folder;
  EXPECT_EQ(BuildIdOf(folder.Write("text", "no ELF file")), "");
  EXPECT_EQ(BuildIdOf(folder.Write("short",
                                   "\x7f"
                                   "ELF\2\1")),
            "");
  EXPECT_EQ(BuildIdOf(folder / "absent"), "");
}

TEST_P(Rtc, CompilesAUnitThatUsesTheWholeHeader) {
  for (const char* arch : GetParam().architectures) {
    Folder out;
    ASSERT_OK_AND(const CompiledObject object,
                  toolchain_->Compile(Unit(kEverything, arch), out.path()));
    const std::string bytes = Slurp(object.path);
    const bool ptx = std::string_view(arch).starts_with("compute_");
    EXPECT_TRUE(ptx ? Contains(bytes, ".entry scale_f16")
                    : bytes.starts_with("\x7f"
                                        "ELF") ||
                          bytes.starts_with("__CLANG_OFFLOAD_BUNDLE__"))
        << arch << " " << bytes.substr(0, 40);
    for (const char* kernel : {"scale_f32", "scale_f16", "scale_bf16", "reduce"})
      EXPECT_TRUE(Contains(bytes, kernel));
    EXPECT_TRUE(object.headers.empty());
  }
}

TEST_P(Rtc, SeesNoOtherHeader) {
  Folder out;
  for (const char* header :
       {"cuda_fp16.h", "hip/hip_fp16.h", "stdio.h", "cstdint", "opwire/abi.h"}) {
    const Status s =
        toolchain_
            ->Compile(Unit(std::string("#include <") + header + ">\n", GetParam().architectures[0]),
                      out.path())
            .status();
    EXPECT_TRUE(absl::IsInvalidArgument(s)) << s;
    EXPECT_TRUE(Contains(MessageOf(s), header)) << s;
  }
}

TEST_P(Rtc, OpensNoPath) {
  Folder out;
  out.Write("near.h", "");
  for (const char* include :
       {"#include \"/usr/include/stdint.h\"", " # include </usr/include/stdint.h>",
        "#include \"../near.h\"", "#include"}) {
    const Status s =
        toolchain_
            ->Compile(Unit(std::string("int a;\n") + include, GetParam().architectures[0]),
                      out.path())
            .status();
    EXPECT_TRUE(absl::IsInvalidArgument(s)) << include << s;
  }
}

TEST_P(Rtc, ErrorsNameUnitAndLine) {
  Folder out;
  const Status s = toolchain_
                       ->Compile(Unit("#include <opwire/gpu.h>\nOPW_GLOBAL(32) k(float* x) { x[0] "
                                      "= undeclared_thing; }\n",
                                      GetParam().architectures[0]),
                                 out.path())
                       .status();
  EXPECT_TRUE(absl::IsInvalidArgument(s)) << s;
  for (const char* part : {"test.unit", "undeclared_thing"})
    EXPECT_TRUE(Contains(MessageOf(s), part)) << s;
}

TEST_P(Rtc, RefusesWhatNoKeyWouldKnow) {
  Folder out;
  for (const char* flag : {"-I/usr/include", "--include-path=/usr/include", "-include",
                           "--pre-include=x", "-isystem", "x", "@x", ""}) {
    CompileRequest request = Unit(kEverything, GetParam().architectures[0]);
    request.flags = {flag};
    EXPECT_TRUE(absl::IsInvalidArgument(toolchain_->Compile(request, out.path()).status())) << flag;
  }
  for (const char* arch : {"", "x86-64-v3", "sm_", "sm_90;x", "gfx", "sm_1", "gfx1"}) {
    EXPECT_FALSE(toolchain_->Compile(Unit(kEverything, arch), out.path()).ok()) << arch;
  }
  CompileRequest sources = Unit("", GetParam().architectures[0]);
  sources.sources = {"a.cu"};
  EXPECT_TRUE(absl::IsInvalidArgument(toolchain_->Compile(sources, out.path()).status()));
}

TEST_P(Rtc, TimeLimit) {
  Folder out;
  const auto hurried = GetParam().make({.seconds = 0.0001});
  EXPECT_TRUE(Contains(hurried->facts().reason, "no end within")) << hurried->facts().reason;
}

TEST_P(Rtc, GoesThroughTheCache) {
  Folder cache_folder;
  const auto cache = OpenCache(cache_folder / "cache");
  const CompileRequest request =
      Unit("#include <opwire/gpu.h>\nOPW_GLOBAL(32) k(float* x) { x[opw::Index()] = 1; }\n",
           GetParam().architectures[0]);
  ASSERT_OK_AND(const CacheEntry built, cache->Get(*toolchain_, request));
  EXPECT_TRUE(built.built);
  const auto found = cache->Find(*toolchain_, request);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key, built.key);
  CompileRequest other = request;
  other.arch = GetParam().architectures[1];
  EXPECT_FALSE(cache->Find(*toolchain_, other));
}

INSTANTIATE_TEST_SUITE_P(All, Rtc,
                         ::testing::Values(Case{"nvrtc", Nvrtc, {"sm_80", "sm_90a", "compute_90"}},
                                           Case{"hiprtc", Hiprtc, {"gfx90a", "gfx1030"}}),
                         [](const auto& info) { return std::string(info.param.name); });

// Returns the status with a worker that is not a valid one.
Status WithWorker(const std::string& body, bool probe_works = true) {
  Folder folder, out;
  const std::string fields =
      EncodeFields({std::string(kDone), "/lib", "NVRTC 1.0", "identity", "sm_80"});
  folder.Write("answer", fields);
  const std::string probe = "request=$(tr -d '\\0'); case \"$request\" in *probe*) cat '" +
                            (folder / "answer") + "'; exit 0;; esac\n";
  const std::string worker = folder.Write(
      "worker", "#!/bin/sh\n" + (probe_works ? probe : std::string()) + body + "\n", 0755);
  const auto nvrtc = Nvrtc({.seconds = 0.5, .worker = worker});
  if (!nvrtc->facts().available()) return FailedPrecondition("{}", nvrtc->facts().reason);
  return nvrtc->Compile(Unit("x", "sm_80"), out.path()).status();
}

TEST(RtcWorker, DeathsAreErrors) {
  const Status crashed = WithWorker("echo falling >&2; kill -SEGV $$");
  EXPECT_TRUE(absl::IsInternal(crashed)) << crashed;
  EXPECT_TRUE(Contains(MessageOf(crashed), "signal 11") && Contains(MessageOf(crashed), "falling"))
      << crashed;
  EXPECT_TRUE(absl::IsDeadlineExceeded(WithWorker("sleep 100")));
  EXPECT_TRUE(absl::IsInternal(WithWorker("exit 1")));
  EXPECT_TRUE(absl::IsInternal(WithWorker("echo garbage")));
  EXPECT_TRUE(absl::IsInternal(WithWorker("head -c 20000000 /dev/zero")));
  EXPECT_TRUE(absl::IsInternal(WithWorker("exit 0")));
}

TEST(RtcWorker, ProbeThatFailsIsAReason) {
  for (const char* body : {"kill -SEGV $$", "sleep 100", "echo garbage", "exit 0"}) {
    const Status s = WithWorker(body, /*probe_works=*/false);
    EXPECT_TRUE(absl::IsFailedPrecondition(s)) << s;
    EXPECT_TRUE(Contains(MessageOf(s), "nvrtc")) << s;
  }
  EXPECT_TRUE(Contains(Nvrtc({.worker = "/no/such/worker"})->facts().reason, "/no/such/worker"));
}

// Lessons: "no nvcc: import dies" - here every searched place is listed.
TEST(RtcWorker, AbsentLibraryNamesThePlaces) {
  Folder empty;
  const char* old = std::getenv("OPWIRE_NVRTC");
  const std::string before = old ? old : "";
  setenv("OPWIRE_NVRTC", empty.path().c_str(), 1);
  const ToolchainFacts facts = Nvrtc({})->facts();
  before.empty() ? unsetenv("OPWIRE_NVRTC") : setenv("OPWIRE_NVRTC", before.c_str(), 1);
  EXPECT_FALSE(facts.available());
  for (const char* part :
       {"OPWIRE_NVRTC", "libnvrtc.so.13", "nvidia/cu13/lib", "cannot open shared object file"})
    EXPECT_TRUE(Contains(facts.reason, part)) << facts.reason;
}

TEST(RtcWorker, AnswersNobodyElse) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--jit-worker"}, {"--jit-worker", "nvrtc", "x"}}) {
    Process worker(arguments);
    EXPECT_EQ(worker.Finish(), "");
    EXPECT_EQ(worker.code(), 2);
  }
}

TEST(RtcWorker, FieldsComeBack) {
  const Fields fields = {"", "a", std::string("\0\n", 2), std::string(100'000, 'x')};
  const std::string bytes = EncodeFields(fields);
  EXPECT_EQ(DecodeFields(bytes), fields);
  EXPECT_FALSE(DecodeFields(bytes.substr(0, bytes.size() - 1)));
  EXPECT_FALSE(DecodeFields("abc"));
  EXPECT_FALSE(DecodeFields(std::string(8, '\xff')));
}

TEST(RtcWorker, HeadersAreEmbeddedWhole) {
  EXPECT_TRUE(GpuHeader().ends_with("#endif  // OPWIRE_GPU_H_\n"));
  EXPECT_TRUE(AbiHeader().ends_with("#endif /* OPWIRE_KERNELS_ABI_H_ */\n"));
}

}  // namespace
}  // namespace opwire::jit
