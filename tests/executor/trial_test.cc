// Findings of a trial: kernels that are right, and every kind of wrong kernel. Each runs in a
// process of its own.
#include "executor/ops/trial.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "kernels/jit/process.h"
#include "tests/folder.h"
#include "tests/jit/support.h"
#include "tests/seed.h"

namespace opwire::executor {
namespace {

// y = x + w, with a workspace, and a lookup. A file next to the object tells both what to do, so
// one compilation serves many kernels.
constexpr const char* kHead = R"(#include <opwire/abi.h>
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char mode[64];
static volatile int zero = 0;
static volatile char sink;

__attribute__((constructor)) static void Load() {
  Dl_info info;
  char path[4096];
  dladdr((void*)&Load, &info);
  snprintf(path, sizeof(path), "%s.mode", info.dli_fname);
  FILE* file = fopen(path, "r");
  if (!file || !fgets(mode, sizeof(mode), file)) abort();
  fclose(file);
  if (!strcmp(mode, "crash at load")) *(volatile int*)0 = 1;
  if (!strcmp(mode, "exit at load")) exit(0);
}
static int Is(const char* what) { return !strcmp(mode, what); }
)";

constexpr const char* kSumSource = R"(
static const char* Supports(const opw_call* c) {
  if (Is("crash in supports")) *(volatile int*)0 = 1;
  if (Is("refuse all")) return "it takes nothing";
  if (Is("refuse f64") && c->results[0].dtype == OPW_F64) return "no f64";
  return 0;
}
static int Prepare(const opw_call* c, void** state, int64_t* bytes) {
  if (Is("crash in prepare")) *(volatile int*)0 = 1;
  if (Is("fail in prepare")) return OPW_FAILED;
  *bytes = Is("endless workspace") ? INT64_MAX / 2 : (c->operands[1].elements * 8 + 63) / 64 * 64 + 64;
  return OPW_OK;
}
// "r w -" reads the byte before w, "w y +" writes the byte behind y.
static void Touch(const opw_call* c, int64_t size) {
  const opw_tensor* t = mode[2] == 'x' ? &c->operands[0] : mode[2] == 'w' ? &c->operands[1] : &c->results[0];
  char* data = mode[2] == 's' ? (char*)c->workspace : (char*)t->data;
  const int64_t bytes = mode[2] == 's' ? c->workspace_bytes : t->elements * size;
  volatile char* at = data + (mode[4] == '-' ? -1 : mode[4] == '+' ? bytes : 0);
  if (mode[0] == 'r') sink = *at;
  else *at = 1;
}
template <typename T>
static int Sum(const opw_call* c) {
  static int calls = 0;
  const T *x = (const T*)c->operands[0].data, *w = (const T*)c->operands[1].data;
  T* y = (T*)c->results[0].data;
  T* copy = (T*)c->workspace;
  const int64_t n = c->operands[1].elements, all = c->results[0].elements;
  for (int64_t i = 0; i < n; ++i) copy[i] = w[i];
  for (int64_t i = 0; i < all; ++i) y[i] = x[i] + copy[i % n];
  if (mode[1] == ' ' && mode[3] == ' ') Touch(c, sizeof(T));
  if (all == 0) return OPW_OK;
  if (Is("wrong")) y[all - 1] += 1;
  if (Is("wrong when large") && n > 32) y[all - 1] += 1;
  if (Is("wrong when empty")) y[all - 1] = NAN;
  if (Is("hides NaN")) for (int64_t i = 0; i < all; ++i) if (y[i] != y[i]) y[i] = 0;
  if (Is("unsteady") && ++calls % 2) y[0] = nextafter(y[0], (T)1e9);
  if (Is("null")) *(volatile int*)0 = 1;
  if (Is("abort")) abort();
  if (Is("divide")) sink = (char)(7 / zero);
  if (Is("exit")) exit(0);
  if (Is("_exit")) _exit(0);
  if (Is("kill")) raise(SIGKILL);
  if (Is("hang")) for (;;) sink = 0;
  if (Is("fails")) return OPW_FAILED;
  if (Is("prints")) { printf("hello"); fflush(stdout); (void)!write(1, "{\"cases\": 99}", 13); printf(" there"); }
  if (Is("floods")) for (int i = 0; i < 100000; ++i) puts("0123456789012345678901234567890123456789012345678901234567890123456789");
  if (Is("threads")) c->runtime->parallel_for(c->runtime, 64, 1, [](void*, int64_t begin, int64_t) { if (begin == 63) *(volatile int*)0 = 1; }, 0);
  return OPW_OK;
}
static int Run(const opw_call* c) { return c->results[0].dtype == OPW_F64 ? Sum<double>(c) : Sum<float>(c); }
#ifndef FLAGS
#define FLAGS OPW_DETERMINISTIC | OPW_CONTIGUOUS
#endif
#ifndef VERSION
#define VERSION OPW_ABI_VERSION
#endif
#ifndef NO_KERNEL
OPW_KERNEL = {VERSION, FLAGS, Supports, Prepare, 0, Run, 0};
#endif
)";

constexpr const char* kLookup = R"(
static int Run(const opw_call* c) {
  const float* table = (const float*)c->operands[0].data;
  const int64_t* ids = (const int64_t*)c->operands[1].data;
  float* y = (float*)c->results[0].data;
  const int64_t n = c->operands[0].elements;
  for (int64_t i = 0; i < c->results[0].elements; ++i) {
    const int64_t id = ids[i] < 0 ? ids[i] + n : ids[i];
    if ((uint64_t)id < (uint64_t)n || Is("unchecked")) {
      y[i] = table[id];
      continue;
    }
    y[i] = 0;
    if (!Is("silent")) c->runtime->out_of_range(c->runtime, 1, i);
  }
  if (Is("cries") && c->results[0].elements) c->runtime->out_of_range(c->runtime, 1, 0);
  return OPW_OK;
}
OPW_KERNEL = {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, 0, 0, 0, Run, 0};
)";

class Trial : public ::testing::Test {
 protected:
  // Each is compiled once for all tests.
  static void SetUpTestSuite() {
    folder_ = new Folder;
    const auto write = [](const std::string& name, const char* signature, const char* indices,
                          const char* types, const char* reference, const std::string& source) {
      folder_->Write(
          name + "/op.json",
          fmt::format(R"({{"name": "{0}", "signature": "{1}", "types": {2}, "indices": {3},
        "reference": "reference.opw", "variants": {{"own": {{"sources": ["{0}.cc"]}}}}}})",
                      name, signature, types, indices));
      folder_->Write(name + "/reference.opw", reference);
      folder_->Write(name + "/" + name + ".cc", source);
    };
    write("sum", "x: T[M, N], w: T[N] -> y: T[M, N]", "{}", R"({"T": ["f32", "f64"]})",
          "program @reference(%x: T[?M, ?N], %w: T[?N]) -> (y: T[?M, ?N]) { %0 = add(%x, %w) "
          "return %0 }\n",
          std::string(kHead) + kSumSource);
    write("lookup", "table: f32[V], ids: i64[B] -> y: f32[B]", R"({"ids": "V"})", "{}",
          "program @reference(%table: f32[?V], %ids: i64[?B]) -> (y: f32[?B]) { %0 = "
          "gather(%table, %ids) {dim = 0} return %0 }\n",
          std::string(kHead) + kLookup);
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string Object(const std::string& op, const std::vector<std::string>& flags = {}) {
    std::string name = op;
    for (const std::string& f : flags) name += f;
    const std::string out = *folder_ / ("objects/" + name);
    std::filesystem::create_directories(out);
    for (const auto& entry : std::filesystem::directory_iterator(out)) {
      if (entry.path().extension() == ".so") return entry.path();
    }
    jit::CompileRequest request;
    request.name = op;
    request.directory = *folder_ / op;
    request.sources = {op + ".cc"};
    request.flags = flags;
    request.arch = jit::HostArch();
    const auto object = jit::HostCompiler({})->Compile(request, out);
    EXPECT_TRUE(object.ok()) << object.status();
    if (!object.ok()) return "";
    std::filesystem::rename(object->path, out + "/op.so");
    return out + "/op.so";
  }
  static StatusOr<CheckReport> Try(const std::string& op, const std::string& mode,
                                   bool thorough = false, double seconds = 30,
                                   const std::vector<std::string>& flags = {}) {
    const std::string object = Object(op, flags);
    folder_->Write(object.substr(folder_->path().size() + 1) + ".mode", mode);
    TrialOptions options{.worker = OPWIRE_EXECUTOR,
                         .check = {.thorough = thorough, .seed = Seed()},
                         .seconds = seconds};
    return TryKernel(*folder_ / op, "own", object, options);
  }
  static void Fails(const StatusOr<CheckReport>& report, const std::vector<std::string>& says) {
    EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition) << report.status();
    for (const std::string& part : says)
      EXPECT_NE(report.status().message().find(part), std::string::npos)
          << "expected '" << part << "' in: " << report.status();
    EXPECT_LT(report.status().message().size(), 2000u);
  }

  static Folder* folder_;
  ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                testing::Message() << "repeat with OPWIRE_SEED=" << Seed()};
};
Folder* Trial::folder_ = nullptr;

TEST_F(Trial, KernelsThatAreRight) {
  ASSERT_OK_AND(const CheckReport quick, Try("sum", "right"));
  EXPECT_EQ(quick.cases, 2);
  EXPECT_EQ(quick.refused, 0);
  ASSERT_OK_AND(const CheckReport all, Try("sum", "right", /*thorough=*/true));
  EXPECT_GE(all.cases, 2 * 2 * 6);
  ASSERT_EQ(all.worst.size(), 2u);
  EXPECT_NE(all.worst[0].find("f64: "), std::string::npos) << all.worst[0];
  ASSERT_OK_AND(const CheckReport lookup, Try("lookup", "right", /*thorough=*/true));
  EXPECT_GT(lookup.cases, 0);
  // One type less is allowed, not an error.
  ASSERT_OK_AND(const CheckReport some, Try("sum", "refuse f64"));
  EXPECT_EQ(some.cases, 1);
  EXPECT_EQ(some.refused, 1);
}

TEST_F(Trial, WrongResults) {
  Fails(Try("sum", "wrong"),
        {"user.sum@own, f64 M=7 N=13", "result y[90]: expected ", ", got ", "tolerance"});
  EXPECT_TRUE(Try("sum", "wrong when large").ok());
  Fails(Try("sum", "wrong when large", /*thorough=*/true),
        {"user.sum@own, f64 M=64 N=129", "result y["});
  EXPECT_TRUE(Try("sum", "hides NaN").ok());
  Fails(Try("sum", "hides NaN", /*thorough=*/true),
        {"with NaN and infinities", "expected nan, got 0"});
  Fails(Try("sum", "unsteady"), {"M=7 N=13", "deterministic", "different bits"});
  // The manifest says that it is deterministic, its flags do not.
  Fails(Try("sum", "right", false, 30, {"-DFLAGS=OPW_CONTIGUOUS"}), {"OPW_DETERMINISTIC"});
}

TEST_F(Trial, ReadsAndWritesOutsideOfTensors) {
  const struct {
    char letter;
    const char* name;
  } buffers[] = {{'x', "operand x (f64[7, 13])"},
                 {'w', "operand w (f64[13])"},
                 {'y', "result y (f64[7, 13])"},
                 {'s', "the workspace"}};
  for (const auto& buffer : buffers) {
    for (const char access : {'r', 'w'}) {
      for (const char side : {'-', '+'}) {
        const std::string mode = fmt::format("{} {} {}", access, buffer.letter, side);
        SCOPED_TRACE(mode);
        const auto report = Try("sum", mode);
        Fails(report, {"user.sum@own, f64 M=7 N=13", buffer.name});
        const std::string said = MessageOf(report.status());
        const char* const expected = side == '+' ? " behind "
                                     : said.find("it left") != said.npos
                                         ? "1 bytes before its beginning"
                                         : "before the beginning";
        EXPECT_NE(said.find(expected), std::string::npos) << said;
      }
    }
  }
  for (const char letter : {'x', 'w'})
    Fails(Try("sum", fmt::format("w {} 0", letter)),
          {fmt::format("it wrote operand {} (", letter), "at byte 0"});
  EXPECT_TRUE(Try("sum", "r x 0").ok());
}

TEST_F(Trial, Crashes) {
  Fails(Try("sum", "null"), {"user.sum@own, f64 M=7 N=13: a segmentation fault"});
  Fails(Try("sum", "abort"), {"user.sum@own, f64 M=7 N=13: an abort"});
  Fails(Try("sum", "divide"), {"user.sum@own, f64 M=7 N=13: an arithmetic fault"});
  Fails(Try("sum", "threads"), {"user.sum@own, f64 M=7 N=13: a segmentation fault"});
  Fails(Try("sum", "crash in supports"),
        {"user.sum@own", "in supports or prepare", "a segmentation fault"});
  Fails(Try("sum", "crash in prepare"),
        {"user.sum@own", "in supports or prepare", "a segmentation fault"});
  Fails(Try("sum", "crash at load"), {"user.sum@own: while it was loaded: a segmentation fault"});
  Fails(Try("sum", "exit at load"), {"its process ended with exit code 0"});
  Fails(Try("sum", "exit"), {"its process ended with exit code 0"});
  Fails(Try("sum", "_exit"), {"its process ended with exit code 0"});
  // The sender of the signal is unknown, so this says nothing about the kernel.
  EXPECT_TRUE(absl::IsInternal(Try("sum", "kill").status()));
}

TEST_F(Trial, NoAnswer) {
  Fails(Try("sum", "hang", false, 1), {"own did not return within 1 s"});
  Fails(Try("sum", "fails"), {"user.sum@own, f64 M=7 N=13: it returned 1"});
  Fails(Try("sum", "refuse all"), {"user.sum@own", "refused every case", "it takes nothing"});
  EXPECT_FALSE(Try("sum", "fail in prepare").ok());
  EXPECT_FALSE(Try("sum", "endless workspace").ok());
}

TEST_F(Trial, WhatItPrintsIsNoReport) {
  ASSERT_OK_AND(const CheckReport prints, Try("sum", "prints"));
  EXPECT_EQ(prints.cases, 2);
  ASSERT_OK_AND(const CheckReport floods, Try("sum", "floods"));
  EXPECT_EQ(floods.cases, 2);
}

TEST_F(Trial, Indices) {
  EXPECT_TRUE(Try("lookup", "silent").ok()) << "a quick trial has indices within their domain only";
  Fails(Try("lookup", "silent", true), {"user.lookup@own", "V=", "it did not call out_of_range"});
  Fails(Try("lookup", "unchecked", true), {"user.lookup@own", "V="});
  Fails(Try("lookup", "cries"),
        {"user.lookup@own", "it called out_of_range for indices within their domain"});
}

TEST_F(Trial, ObjectsThatAreNoKernel) {
  Fails(Try("sum", "right", false, 30, {"-DNO_KERNEL"}), {"OPW_KERNEL"});
  Fails(Try("sum", "right", false, 30, {"-DVERSION=99"}), {"interface 1, got 99"});
  const std::string text = folder_->Write("objects/text.so", "not a library");
  Fails(TryKernel(*folder_ / "sum", "own", text, {.worker = OPWIRE_EXECUTOR}),
        {"it does not load"});
  EXPECT_FALSE(
      TryKernel(*folder_ / "sum", "other", Object("sum"), {.worker = OPWIRE_EXECUTOR}).ok());
  EXPECT_TRUE(absl::IsNotFound(
                  TryKernel(*folder_ / "sum", "own", text, {.worker = "/nonexistent"}).status()) ||
              absl::IsInternal(
                  TryKernel(*folder_ / "sum", "own", text, {.worker = "/nonexistent"}).status()));
}

// The command, from a folder to figures, and its entries in the cache.
TEST_F(Trial, TheCommandBuildsChecksAndMeasures) {
  Folder ops, cache;
  const auto write = [&](const std::string& name, const char* result) {
    ops.Write(
        name + "/op.json",
        fmt::format(
            R"({{"name": "{}", "signature": "x: f32[N] -> y: f32[N]", "reference": "reference.opw",
      "variants": {{"own": {{"sources": ["own.cc"]}}}}, "bench": {{"N": 1000}}}})",
            name));
    ops.Write(name + "/reference.opw",
              "program @reference(%x: f32[?N]) -> (y: f32[?N]) { %0 = add(%x, %x) return %0 }\n");
    ops.Write(name + "/own.cc", fmt::format(R"(#include <opwire/abi.h>
static int Run(const opw_call* c) {{
  for (int64_t i = 0; i < c->results[0].elements; ++i) ((float*)c->results[0].data)[i] = {} * ((const float*)c->operands[0].data)[i];
  return OPW_OK;
}}
OPW_KERNEL = {{OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, 0, 0, 0, Run, 0}};
)",
                                            result));
  };
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), OPWIRE_EXECUTOR);
    arguments.insert(arguments.end(), {"--cache", cache.path()});
    const auto result =
        jit::RunProcess({.argv = std::move(arguments),
                         .environment = {std::string("PATH=") + std::getenv("PATH")},
                         .seconds = 60});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : jit::ProcessResult();
  };
  write("good", "2");
  const auto good = run({"build", ops / "good"});
  EXPECT_EQ(good.exit_code, 0) << good.output << good.errors;
  for (const char* said :
       {"user.good@own  cpu ", ": built in ", "cases agree with the reference, between guard pages",
        "GB/s", "x the time of a copy", "x as fast as the reference"}) {
    EXPECT_NE(good.output.find(said), std::string::npos) << said << " in: " << good.output;
  }
  EXPECT_NE(run({"build", "--quick", ops / "good"}).output.find(": cached"), std::string::npos);
  write("wrong", "3");
  write("broken", "nothing *");
  const auto all = run({"build", "--quick", ops.path()});
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_NE(all.output.find("user.wrong@own, - N="), std::string::npos) << all.output;
  EXPECT_NE(all.output.find("result y[0]: expected"), std::string::npos) << all.output;
  EXPECT_NE(all.output.find("error: "), std::string::npos)
      << "the compiler's message: " << all.output;
  EXPECT_EQ(run({"build", ops / "nowhere"}).exit_code, 2);
  const auto list = run({"cache", "list"});
  EXPECT_NE(list.output.find("2 objects"), std::string::npos) << list.output;
  EXPECT_NE(list.output.find("refused: user.wrong@own"), std::string::npos) << list.output;
  EXPECT_NE(run({"cache", "prune"}).output.find("removed 2 objects"), std::string::npos);
  EXPECT_NE(run({"cache", "list"}).output.find("0 objects"), std::string::npos);
}

}  // namespace
}  // namespace opwire::executor
