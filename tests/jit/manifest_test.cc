// Folders that are ops: the valid contents of a manifest, and that no file of another user's, or
// outside of the folder, is read.
#include "kernels/jit/manifest.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "kernels/jit/gpu_unit.h"
#include "tests/jit/support.h"
#include "tests/seed.h"

namespace opwire::jit {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kManifest = R"({
  "name": "scale", "version": 2, "doc": "x scaled.",
  "signature": "x: T[..., N], at: i64[N] -> y: T[..., k * N]",
  "types": {"T": ["f32", "f64"]},
  "attributes": {"k": {"type": "int", "default": 2, "doc": "How often."}, "by": {"type": "float", "default": 1.5}},
  "indices": {"at": "N"},
  "reference": "reference.opw",
  "variants": {
    "plain": {"sources": ["scale.cc"], "headers": ["inc/scale.h"], "flags": ["-funroll-loops"],
              "arch_flags": {"x86-64-v4": ["-mprefer-vector-width=512"]}, "libraries": ["m"], "priority": 3, "deterministic": false},
    "gpu": {"backend": ["cuda", "hip"], "sources": ["scale.cu"], "flags": ["-DBY=2", "--maxrregcount=40"], "min_arch": {"cuda": "sm_80"},
            "launch": [{"function": "Count<T, 4>", "blocks": ["leading", 2], "threads": 128, "shared": "4 * N"}, {"function": "ns::Scale<T>"}],
            "workspace": "8 * leading"}
  },
  "tests": [{"...": [2, 3], "N": 5, "attributes": {"k": 3, "by": 0.5}}, {"N": 0}],
  "bench": {"...": [64], "N": 1024},
  "tolerance": {"f32": 1e-4}
})";

class Manifest : public ::testing::Test {
 protected:
  Manifest() {
    folder_.Write("op.json", kManifest);
    folder_.Write("reference.opw", "program @reference() -> () { return }\n");
    folder_.Write("scale.cc", "int x;\n");
    folder_.Write("scale.cu", "int x;\n");
    folder_.Write("inc/scale.h", "#pragma once\n");
  }
  // Returns the error of the manifest with this patch (RFC 7386: null removes).
  Status With(const char* patch) {
    Json j = Json::parse(kManifest);
    j.merge_patch(Json::parse(patch));
    folder_.Write("op.json", j.dump());
    return ReadManifest(folder_.path()).status();
  }
  std::string path() const { return fs::canonical(folder_.path()).string() + "/op.json"; }

  Folder folder_;
};

void ExpectSays(const Status& status, absl::StatusCode code,
                const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts)
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "expected '" << part << "' in: " << status;
}

TEST_F(Manifest, SaysWhatAnOpIs) {
  ASSERT_OK_AND(const OpManifest op, ReadManifest(folder_.path()));
  EXPECT_EQ(op.name(), "user.scale");
  EXPECT_EQ(op.row.version, 2);
  EXPECT_EQ(op.folder + "/op.json", path());
  ASSERT_EQ(op.variants.size(), 2u);
  const OpVariantSpec& plain = op.variants[0];
  EXPECT_EQ(plain.name, "plain");
  EXPECT_TRUE(plain.Serves("cpu") && !plain.Serves("cuda"));
  EXPECT_EQ(plain.headers, std::vector<std::string>{"inc/scale.h"});
  EXPECT_EQ(plain.priority, 3);
  EXPECT_FALSE(plain.deterministic);
  EXPECT_TRUE(op.variants[1].Serves("cuda") && op.variants[1].Serves("hip") &&
              !op.variants[1].Serves("cpu"));
  EXPECT_EQ(op.variants[1].min_arch.at("cuda"), "sm_80");
  ASSERT_EQ(op.tests.size(), 2u);
  EXPECT_EQ(op.tests[0].leading, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(op.tests[0].extents.at("N"), 5);
  ASSERT_EQ(op.tests[0].attrs.size(), 2u);
  EXPECT_EQ(std::get<int64_t>(op.tests[0].attrs[0].value), 3);
  EXPECT_EQ(op.bench.extents.at("N"), 1024);
  EXPECT_EQ(op.tolerance.at(DType::kF32), 1e-4);
  EXPECT_EQ(op.digest.size(), 64u);

  ASSERT_OK_AND(const CompileRequest host, RequestFor(op, plain, "cpu", "x86-64-v4"));
  EXPECT_EQ(host.name, "user.scale@plain");
  EXPECT_EQ(host.flags, (std::vector<std::string>{"-funroll-loops", "-mprefer-vector-width=512"}));
  EXPECT_EQ(host.libraries, std::vector<std::string>{"m"});
  ASSERT_OK_AND(const CompileRequest elsewhere, RequestFor(op, plain, "cpu", "x86-64-v3"));
  EXPECT_EQ(elsewhere.flags, std::vector<std::string>{"-funroll-loops"});
  ASSERT_OK_AND(const CompileRequest gpu, RequestFor(op, op.variants[1], "cuda", "sm_90a"));
  EXPECT_TRUE(gpu.sources.empty());
  EXPECT_EQ(gpu.flags, (std::vector<std::string>{"-DBY=2", "--maxrregcount=40"}));
  ASSERT_OK_AND(const CompileRequest emu, RequestFor(op, op.variants[1], "emu", "emu32"));
  EXPECT_EQ(emu.flags, std::vector<std::string>{"-DBY=2"});
  EXPECT_EQ(emu.text, gpu.text);
}

// The function gets operands, results, extents, attributes, workspace and reporter, with the types
// by name.
TEST_F(Manifest, WhatIsLaunchedOnGpus) {
  ASSERT_OK_AND(const OpManifest op, ReadManifest(folder_.path()));
  const OpVariantSpec& gpu = op.variants[1];
  EXPECT_TRUE(gpu.Serves("emu") && !op.variants[0].Serves("emu"));
  ASSERT_EQ(gpu.launches.size(), 2u);
  EXPECT_EQ(
      gpu.launches[0].blocks[0] + " " + gpu.launches[0].blocks[1] + " " + gpu.launches[0].blocks[2],
      "leading 2 1");
  EXPECT_EQ(gpu.launches[0].threads, 128);
  EXPECT_EQ(gpu.launches[0].shared, "4 * N");
  EXPECT_EQ(gpu.launches[1].threads, 256);
  EXPECT_EQ(gpu.workspace, "8 * leading");
  ASSERT_OK_AND(const std::string unit, GpuUnit(op, gpu, "int x;\n"));
  for (const std::string& expected :
       {std::string("#line 1 \"scale.cu\"\nint x;\n"),
        "__launch_bounds__(128) " + GpuKernelName(0, 0) + "(",
        "__launch_bounds__(256) " + GpuKernelName(1, 1) + "(",
        std::string("  using T = double;\n  Count<T, 4>(static_cast<const double*>(p.p0), "
                    "static_cast<const opw::i64*>(p.p1), static_cast<double*>(p.p2), p.p3, p.p4, "
                    "static_cast<opw::i64>(p.p5), static_cast<double>(p.p6), p.p7, p.p8);\n"),
        std::string("  using T = float;\n  ns::Scale<T>(static_cast<const float*>(p.p0), ")}) {
    EXPECT_NE(unit.find(expected), std::string::npos) << expected << "\nin\n" << unit;
  }
}

TEST_F(Manifest, ManifestAndReferenceAreJudgedWithTheCode) {
  ASSERT_OK_AND(const OpManifest before, ReadManifest(folder_.path()));
  folder_.Write("reference.opw", "program @other() -> () { return }\n");
  ASSERT_OK_AND(const OpManifest other, ReadManifest(folder_.path()));
  EXPECT_NE(other.digest, before.digest);
  folder_.Write("reference.opw", "program @reference() -> () { return }\n");
  ASSERT_OK(With(R"({"tolerance": {"f32": 0.5}})"));
  ASSERT_OK_AND(const OpManifest looser, ReadManifest(folder_.path()));
  EXPECT_NE(looser.digest, before.digest);
}

// Each key with a wrong value: the message begins with the file and names the key.
TEST_F(Manifest, EveryKeyThatIsWrongIsNamed) {
  const struct {
    const char* patch;
    std::vector<std::string> says;
  } rows[] = {
      {R"({"name": null})", {"\"name\""}},
      {R"({"name": 3})", {"\"name\""}},
      {R"({"name": ""})", {"name 'user.'"}},
      {R"({"name": "a.b"})", {"name 'user.a.b'"}},
      {R"({"name": "a-b"})", {"name 'user.a-b'"}},
      {R"({"name": "$(touch) x"})", {"name 'user.$(touch) x'"}},
      {R"({"name": "a\"; touch x; \""})", {"name 'user.a"}},
      {R"({"name": "a\nb"})", {"name 'user.a"}},
      {R"({"name": "a\u0000b"})", {"name 'user.a"}},
      {R"({"name": "../a"})", {"name 'user.../a'"}},
      {R"({"name": "-o"})", {"name 'user.-o'"}},
      {R"({"name": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"})",
       {"name", "at most 64"}},
      {R"({"version": 0})", {"version", "1 to 65535"}},
      {R"({"version": -1})", {"version", "1 to 65535"}},
      {R"({"version": 65536})", {"version", "1 to 65535"}},
      {R"({"version": "1"})", {"version", "1 to 65535"}},
      {R"({"doc": 1})", {"doc", "a string"}},
      {R"({"doc": "two\nlines"})", {"doc", "one line"}},
      {R"({"signature": null})", {"\"signature\" is missing"}},
      {R"({"signature": ["x"]})", {"signature", "a string"}},
      {R"({"signature": ""})", {"signature"}},
      {R"({"signature": "x: T[N]"})", {"signature", "'->'", "the end"}},
      {R"({"signature": "x: T[N] -> "})", {"signature", "a result's name"}},
      {R"({"signature": "x T[N] -> y: T[N]"})", {"signature: column 3", "':'"}},
      {R"({"signature": "x: T[N -> y: T[N]"})", {"signature: column"}},
      {R"({"signature": "x: T[N], x: T[N] -> y: T[N]"})", {"signature", "x stands twice"}},
      {R"({"signature": "x: U[N] -> y: T[N]"})", {"signature", "got U"}},
      {R"({"signature": "x: T[N], at: i64[N] -> y: T[M]"})", {"signature: y", "got M"}},
      {R"({"signature": "x: T[N], at: i64[N] -> y: T[..., N]"})", {"signature: y", "'...'"}},
      {R"({"signature": "x: T[99999999999999999999] -> y: T[1]"})",
       {"signature: column", "a number of at most"}},
      {R"({"signature": "x: T[N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N] -> y: T[N]"})",
       {"signature", "rank"}},
      {R"({"signature": "x: T[N]; rm -rf / -> y: T[N]"})", {"signature: column 8"}},
      {R"({"types": ["T"]})", {"types", "an object"}},
      {R"({"types": null})", {"signature", "got T"}},
      {R"({"types": {"T": []}})", {"types.T"}},
      {R"({"types": {"T": ["f33"]}})", {"types.T", "f33"}},
      {R"({"types": {"T": "f32"}})", {"types.T"}},
      {R"({"types": {"U": ["f32"]}})", {"types", "U is not in the signature"}},
      {R"({"types": {"f32": ["f32"]}})", {"types", "'f32'"}},
      {R"({"attributes": []})", {"attributes", "an object"}},
      {R"({"attributes": {"by": 1}})", {"attributes.by", "an object"}},
      {R"({"attributes": {"by": {"type": null}}})", {"attributes.by", "\"type\" is missing"}},
      {R"({"attributes": {"by": {"type": "complex"}}})", {"attributes.by.type", "complex"}},
      {R"({"attributes": {"by": {"default": "1"}}})", {"attributes.by.default", "float"}},
      {R"({"attributes": {"k": {"default": 18446744073709551615}}})",
       {"attributes.k.default", "int"}},
      {R"({"attributes": {"by": {"fallback": 1}}})", {"attributes.by", "fallback"}},
      {R"({"attributes": {"by it": {"type": "int"}}})", {"attribute 'by it'"}},
      {R"({"attributes": {"x": {"type": "int"}}})", {"x stands twice"}},
      {R"({"indices": {"at": "M"}})", {"indices: at", "no extent M"}},
      {R"({"indices": {"nowhere": "N"}})", {"indices", "no operand nowhere"}},
      {R"({"indices": {"x": "N"}})", {"indices: x", "i32 or i64"}},
      {R"({"indices": {"at": 3}})", {"indices.at", "a string"}},
      {R"({"reference": null})", {"\"reference\""}},
      {R"({"reference": 3})", {"\"reference\""}},
      {R"({"variants": null})", {"\"variants\""}},
      {R"({"variants": []})", {"\"variants\""}},
      {R"({"variants": {"plain": null, "gpu": null}})", {"\"variants\"", "one to 16"}},
      {R"({"variants": {"reference": {"sources": ["scale.cc"]}}})",
       {"variants.reference", "other than reference"}},
      {R"({"variants": {"a b": {"sources": ["scale.cc"]}}})", {"variants.a b", "an identifier"}},
      {R"({"variants": {"$(touch) x": {"sources": ["scale.cc"]}}})",
       {"variants.$(touch) x", "an identifier"}},
      {R"({"variants": {"plain": 1}})", {"variants.plain", "an object"}},
      {R"({"variants": {"plain": {"backend": "metal"}}})",
       {"variants.plain.backend", "cpu, cuda or hip", "metal"}},
      {R"({"variants": {"plain": {"backend": []}}})", {"variants.plain.backend", "at least one"}},
      {R"({"variants": {"plain": {"backend": 1}}})", {"variants.plain.backend"}},
      {R"({"variants": {"plain": {"sources": null}}})",
       {"variants.plain", "\"sources\" is missing"}},
      {R"({"variants": {"plain": {"sources": "scale.cc"}}})", {"variants.plain.sources", "a list"}},
      {R"({"variants": {"plain": {"sources": [1]}}})", {"variants.plain.sources", "strings"}},
      {R"({"variants": {"gpu": {"sources": ["scale.cu", "scale.cc"]}}})",
       {"variants.gpu.sources", "one file"}},
      {R"({"variants": {"plain": {"flags": "-O1"}}})", {"variants.plain.flags", "a list"}},
      {R"({"variants": {"plain": {"arch_flags": ["-O1"]}}})",
       {"variants.plain.arch_flags", "an object"}},
      {R"({"variants": {"plain": {"arch_flags": {"x86-64-v4": ["O1"]}}}})",
       {"variants.plain.arch_flags.x86-64-v4", "O1"}},
      {R"({"variants": {"plain": {"libraries": ["-lm"]}}})", {"variants.plain.libraries", "-lm"}},
      {R"({"variants": {"plain": {"libraries": ["../m"]}}})", {"variants.plain.libraries", "../m"}},
      {R"({"variants": {"plain": {"libraries": ["m; touch x"]}}})",
       {"variants.plain.libraries", "m; touch x"}},
      {R"({"variants": {"gpu": {"min_arch": {"metal": "x"}}}})",
       {"variants.gpu.min_arch", "metal"}},
      {R"({"variants": {"gpu": {"min_arch": {"cuda": 80}}}})", {"variants.gpu.min_arch.cuda"}},
      {R"({"variants": {"gpu": {"min_arch": {"cuda": "-sm"}}}})", {"variants.gpu.min_arch.cuda"}},
      {R"({"variants": {"plain": {"launch": {"function": "F"}}}})",
       {"variants.plain", "for cuda and hip"}},
      {R"({"variants": {"plain": {"workspace": 64}}})", {"variants.plain", "for cuda and hip"}},
      {R"({"variants": {"gpu": {"launch": null}}})", {"variants.gpu", "\"launch\" is missing"}},
      {R"({"variants": {"gpu": {"launch": 3}}})", {"variants.gpu.launch", "an object"}},
      {R"({"variants": {"gpu": {"launch": []}}})", {"variants.gpu.launch", "one launch"}},
      {R"({"variants": {"gpu": {"launch": [{"function": "F"}, {}]}}})",
       {"variants.gpu.launch[1]", "\"function\" is missing"}},
      {R"({"variants": {"gpu": {"launch": {"function": "F", "block": 1}}}})",
       {"variants.gpu.launch", "'block'", "blocks"}},
      {R"({"variants": {"gpu": {"launch": {"function": "F(); x"}}}})",
       {"variants.gpu.launch.function", "F(); x"}},
      {R"({"variants": {"gpu": {"launch": {"function": "F", "threads": 100}}}})",
       {"variants.gpu.launch.threads", "multiple of 64", "100"}},
      {R"({"variants": {"gpu": {"launch": {"function": "F", "blocks": [1, 1, 1, 1]}}}})",
       {"variants.gpu.launch.blocks", "up to three"}},
      {R"({"variants": {"gpu": {"launch": {"function": "F", "blocks": -1}}}})",
       {"variants.gpu.launch.blocks", "at least 0"}},
      {R"({"variants": {"gpu": {"launch": {"function": "F", "blocks": "N / Q"}}}})",
       {"variants.gpu.launch.blocks", "'N / Q'", "leading, N, k", "got Q"}},
      {R"({"variants": {"gpu": {"launch": {"function": "F", "blocks": "by"}}}})",
       {"variants.gpu.launch.blocks", "got by"}},
      {R"({"variants": {"gpu": {"launch": {"function": "F", "shared": "N +"}}}})",
       {"variants.gpu.launch.shared", "formula: column 4", "the end"}},
      {R"({"variants": {"gpu": {"workspace": "4 4"}}})",
       {"variants.gpu.workspace", "formula: column 3"}},
      {R"({"attributes": {"mode": {"type": "string", "default": "", "doc": "How."}}})",
       {"variants.gpu", "attribute mode", "got string"}},
      {R"({"variants": {"plain": {"priority": 1001}}})",
       {"variants.plain.priority", "-1000 to 1000"}},
      {R"({"variants": {"plain": {"priority": 1.5}}})", {"variants.plain.priority"}},
      {R"({"variants": {"plain": {"deterministic": "yes"}}})",
       {"variants.plain.deterministic", "true or false"}},
      {R"({"tests": {}})", {"tests", "a list"}},
      {R"({"tests": [3]})", {"tests[0]", "an object"}},
      {R"({"tests": [{}, {"N": -1}]})", {"tests[1].N", "0 to"}},
      {R"({"tests": [{"N": 67108865}]})", {"tests[0].N"}},
      {R"({"tests": [{"N": 1.5}]})", {"tests[0].N"}},
      {R"({"tests": [{"...": 3}]})", {"tests[0]", "a list of extents"}},
      {R"({"tests": [{"...": [-3]}]})", {"tests[0]", "a list of extents"}},
      {R"({"tests": [{"a b": 3}]})", {"tests[0]", "a b"}},
      {R"({"tests": [{"attributes": {"nothing": 3}}]})", {"tests[0].attributes", "nothing"}},
      {R"({"tests": [{"attributes": {"k": "x"}}]})", {"tests[0]", "k", "int"}},
      {R"({"tests": [{"attributes": 3}]})", {"tests[0].attributes"}},
      {R"({"bench": 3})", {"bench", "an object"}},
      {R"({"bench": {"N": "all"}})", {"bench.N"}},
      {R"({"tolerance": 0.1})", {"tolerance", "an object"}},
      {R"({"tolerance": {"float": 0.1}})", {"tolerance", "float"}},
      {R"({"tolerance": {"f32": -1}})", {"tolerance.f32"}},
      {R"({"tolerance": {"f32": "1e-3"}})", {"tolerance.f32"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.patch);
    const Status status = With(row.patch);
    ExpectSays(status, absl::StatusCode::kInvalidArgument, row.says);
    EXPECT_TRUE(MessageOf(status).starts_with(path())) << status;
  }
}

TEST_F(Manifest, UnknownKeysNameTheNearest) {
  ExpectSays(With(R"({"signatur": "x"})"), absl::StatusCode::kInvalidArgument,
             {path(), "unknown key 'signatur'", "signature"});
  ExpectSays(With(R"({"variant": {}})"), absl::StatusCode::kInvalidArgument,
             {path(), "unknown key 'variant'", "variants"});
  ExpectSays(With(R"({"variants": {"plain": {"source": []}}})"), absl::StatusCode::kInvalidArgument,
             {path(), "variants.plain: unknown key 'source'", "sources"});
}

TEST_F(Manifest, OptionsNameNoOutputAndNoFileOfOptions) {
  for (const char* flag : {"", "-", "x.cc", "@options", "-o", "-ox.so", "--output=x.so", "--output",
                           "-Wl,-o,x.so", "-Wl,@options", "-Xlinker", "-MF", "-MFx", "-save-temps",
                           "-wrapper", "-fplugin=x.so", "-DX\nY", "; touch x"}) {
    SCOPED_TRACE(flag);
    const Json patch = {{"variants", {{"plain", {{"flags", {flag}}}}}}};
    ExpectSays(With(patch.dump().c_str()), absl::StatusCode::kInvalidArgument,
               {path(), "variants.plain.flags", "expected an option"});
  }
  for (const char* flag : {"-funroll-loops", "-O2", "-DNAME=$(touch x)", "-fopenmp", "-ffast-math",
                           "-mavx2", "-Wl,-z,now", "-std=c++17"}) {
    const Json patch = {{"variants", {{"plain", {{"flags", {flag}}}}}}};
    EXPECT_TRUE(With(patch.dump().c_str()).ok()) << flag;
  }
}

TEST_F(Manifest, NothingOutsideTheFolderIsNamed) {
  Folder elsewhere;
  elsewhere.Write("out.cc", "int x;\n");
  fs::create_symlink(elsewhere / "out.cc", folder_ / "link.cc");
  fs::create_symlink("scale.cc", folder_ / "within.cc");
  fs::create_directory_symlink(elsewhere.path(), folder_ / "linked");
  fs::create_directory(folder_ / "sub");
  const struct {
    const char* name;
    absl::StatusCode code;
  } rows[] = {
      {"../out.cc", absl::StatusCode::kInvalidArgument},
      {"inc/../../out.cc", absl::StatusCode::kInvalidArgument},
      {"/etc/passwd", absl::StatusCode::kInvalidArgument},
      {".", absl::StatusCode::kInvalidArgument},
      {"..", absl::StatusCode::kInvalidArgument},
      {"./scale.cc", absl::StatusCode::kInvalidArgument},
      {"inc//scale.h", absl::StatusCode::kInvalidArgument},
      {"", absl::StatusCode::kInvalidArgument},
      {"-o.cc", absl::StatusCode::kInvalidArgument},
      {"$(touch x).cc", absl::StatusCode::kInvalidArgument},
      {"a'b.cc", absl::StatusCode::kInvalidArgument},
      {"a\"b.cc", absl::StatusCode::kInvalidArgument},
      {"a\nb.cc", absl::StatusCode::kInvalidArgument},
      {"~/x.cc", absl::StatusCode::kInvalidArgument},
      {"link.cc", absl::StatusCode::kPermissionDenied},
      {"within.cc", absl::StatusCode::kPermissionDenied},
      {"linked/out.cc", absl::StatusCode::kPermissionDenied},
      {"sub", absl::StatusCode::kInvalidArgument},
      {"sub/", absl::StatusCode::kInvalidArgument},
      {"missing.cc", absl::StatusCode::kNotFound},
      {"sub/missing.cc", absl::StatusCode::kNotFound},
      {"scale.cc/x", absl::StatusCode::kInvalidArgument},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    ExpectSays(With(Json{{"variants", {{"plain", {{"sources", {row.name}}}}}}}.dump().c_str()),
               row.code, {path(), "variants.plain.sources"});
    ExpectSays(With(Json{{"variants", {{"plain", {{"headers", {row.name}}}}}}}.dump().c_str()),
               row.code, {path(), "variants.plain.headers"});
    ExpectSays(With(Json{{"reference", row.name}}.dump().c_str()), row.code, {path(), "reference"});
  }
  // A file that existed when the manifest was read.
  ASSERT_OK(With("{}"));
  ASSERT_OK_AND(const OpManifest op, ReadManifest(folder_.path()));
  fs::remove(folder_ / "scale.cc");
  fs::create_symlink(elsewhere / "out.cc", folder_ / "scale.cc");
  EXPECT_EQ(RequestFor(op, op.variants[0], "cpu", "x86-64-v3").status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(Manifest, WhatOthersMayWriteIsNotUsed) {
  const auto refuses = [&](const std::string& file, const char* says) {
    ExpectSays(ReadManifest(folder_.path()).status(), absl::StatusCode::kPermissionDenied,
               {fs::canonical(folder_.path()).string() + file, says});
  };
  for (const char* file :
       {"", "/op.json", "/reference.opw", "/scale.cc", "/scale.cu", "/inc", "/inc/scale.h"}) {
    const std::string path = folder_.path() + file;
    const fs::perms before = fs::status(path).permissions();
    for (const fs::perms bit : {fs::perms::group_write, fs::perms::others_write}) {
      SCOPED_TRACE(path);
      fs::permissions(path, bit, fs::perm_options::add);
      refuses(file, "others may write it");
      fs::permissions(path, before);
    }
    if (geteuid() != 0) continue;
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
    refuses(file, "belongs to user 65534");
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  }
  ASSERT_OK(ReadManifest(folder_.path()).status());
  // Nor a directory of op folders.
  Folder many;
  many.Write("a/op.json", kManifest);
  EXPECT_TRUE(OpFolders(many.path()).ok());
  fs::permissions(many.path(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(OpFolders(many.path()).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(Manifest, NoJson) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("nothing"), std::string("{\"name\": \"a\",}"),
        std::string("\xff\xfe{}"), std::string("{}\0", 3), std::string("1e999"),
        std::string(100'000, '['), std::string(100'000, '{')}) {
    folder_.Write("op.json", text);
    const Status status = ReadManifest(folder_.path()).status();
    ExpectSays(status, absl::StatusCode::kInvalidArgument, {path()});
    EXPECT_LT(status.message().size(), 1000u);
  }
  // Complete, but far too deep for the code that traverses it.
  std::string deep = R"({"name": )";
  deep += std::string(100'000, '[') + std::string(100'000, ']') + "}";
  for (const std::string& text :
       {deep, std::string(100'000, '[') + std::string(100'000, ']'), R"({"doc": )" + deep + "}"}) {
    folder_.Write("op.json", text);
    ExpectSays(ReadManifest(folder_.path()).status(), absl::StatusCode::kInvalidArgument,
               {path(), "deep"});
  }
  for (const char* text : {"null", "[]", "3", "\"x\""}) {
    folder_.Write("op.json", text);
    ExpectSays(ReadManifest(folder_.path()).status(), absl::StatusCode::kInvalidArgument,
               {path(), "an object"});
  }
}

TEST_F(Manifest, FilesAreOfAReasonableSize) {
  fs::resize_file(folder_ / "reference.opw", (16 << 20) + 1);
  ExpectSays(ReadManifest(folder_.path()).status(), absl::StatusCode::kInvalidArgument,
             {path(), "reference.opw", "at most"});
  fs::resize_file(folder_ / "op.json", (256 << 10) + 1);
  ExpectSays(ReadManifest(folder_.path()).status(), absl::StatusCode::kInvalidArgument,
             {path(), "at most"});
}

TEST_F(Manifest, OnlyFilesAreRead) {
  fs::remove(folder_ / "reference.opw");
  ASSERT_EQ(mkfifo((folder_ / "reference.opw").c_str(), 0600), 0);
  ExpectSays(ReadManifest(folder_.path()).status(), absl::StatusCode::kInvalidArgument,
             {path(), "expected a file"});  // and does not wait
  fs::remove(folder_ / "op.json");
  ExpectSays(ReadManifest(folder_.path()).status(), absl::StatusCode::kNotFound, {path()});
  fs::create_symlink("/etc/passwd", folder_ / "op.json");
  ExpectSays(ReadManifest(folder_.path()).status(), absl::StatusCode::kPermissionDenied,
             {path(), "symbolic link"});
  ExpectSays(ReadManifest(folder_ / "nothing").status(), absl::StatusCode::kNotFound, {"nothing"});
}

TEST(OpFoldersOf, ADirectory) {
  Folder many;
  ASSERT_OK_AND(const std::vector<std::string> none, OpFolders(many.path()));
  EXPECT_TRUE(none.empty());
  for (const char* name : {"b", "a", "c"}) many.Write(std::string(name) + "/op.json", kManifest);
  many.Write("d/readme.txt", "");
  ASSERT_OK_AND(const std::vector<std::string> folders, OpFolders(many.path()));
  const std::string at = fs::canonical(many.path()).string();
  EXPECT_EQ(folders, (std::vector<std::string>{at + "/a", at + "/b", at + "/c"}));
  ASSERT_OK_AND(const std::vector<std::string> one, OpFolders(many / "b"));
  EXPECT_EQ(one, std::vector<std::string>{at + "/b"});
  EXPECT_EQ(OpFolders(many / "e").status().code(), absl::StatusCode::kNotFound);
}

TEST(Architectures, AreOrderedWithinAFamily) {
  EXPECT_EQ(BelowArch("x86-64-v4", ""), "");
  EXPECT_EQ(BelowArch("x86-64-v4", "x86-64-v3"), "");
  EXPECT_EQ(BelowArch("x86-64-v3", "x86-64-v3"), "");
  EXPECT_EQ(BelowArch("x86-64-v2", "x86-64-v3"), "needs x86-64-v3, this is x86-64-v2");
  EXPECT_EQ(BelowArch("sm_90a", "sm_80"), "");
  EXPECT_EQ(BelowArch("sm_120", "sm_90"), "");
  EXPECT_NE(BelowArch("sm_75", "sm_80"), "");
  EXPECT_EQ(BelowArch("gfx942", "gfx90a"), "");
  EXPECT_NE(BelowArch("gfx906", "gfx90a"), "");
  EXPECT_NE(BelowArch("sm_90a", "gfx90a"), "");
}

// For any bytes in a manifest, reading it ends with a status.
TEST_F(Manifest, AnyBytes) {
  OPWIRE_TRACE_SEED();
  std::mt19937_64 random(Seed());
  const std::string good = Json::parse(kManifest).dump();
  int read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
          break;
        default:
          text[at] = "0\"{}[],:-/.$"[random() % 12];
          break;
      }
      if (text.empty()) text = "{";
    }
    folder_.Write("op.json", text);
    const auto op = ReadManifest(folder_.path());
    read += op.ok();
    if (!op.ok()) {
      EXPECT_TRUE(MessageOf(op.status()).starts_with(path())) << op.status();
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace opwire::jit
