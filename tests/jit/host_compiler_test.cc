// The host's C++ compiler: its input, its output, and the text of its failures.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/jit/depfile.h"
#include "kernels/jit/files.h"
#include "kernels/jit/library.h"
#include "kernels/jit/toolchain.h"
#include "tests/jit/support.h"

namespace opwire::jit {
namespace {

// An environment variable for the length of a test.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { old_.empty() ? unsetenv(name_) : setenv(name_, old_.c_str(), 1); }

 private:
  const char* name_;
  std::string old_;
};

Status CompileWith(const std::string& compiler, ToolchainOptions options = {}) {
  Folder source, out;
  options.compiler = compiler;
  return HostCompiler(options)->Compile(OpIn(source), out.path()).status();
}

TEST(HostCompiler, BuildsASharedLibraryAndListsItsHeaders) {
  Folder source, out;
  const auto cxx = HostCompiler({});
  ASSERT_TRUE(cxx->facts().available()) << cxx->facts().reason;
  EXPECT_EQ(cxx->facts().identity.size(), 64u);
  EXPECT_TRUE(Contains(cxx->facts().version, " 1") || Contains(cxx->facts().version, " 2"))
      << cxx->facts().version;
  ASSERT_OK_AND(const CompiledObject object, cxx->Compile(OpIn(source, 7), out.path()));
  EXPECT_EQ(object.path, out / "object");
  EXPECT_EQ(Call(object.path), 7);
  const auto has = [&](const std::string& path) {
    return std::find(object.headers.begin(), object.headers.end(), path) != object.headers.end();
  };
  EXPECT_TRUE(has(source / "a.h"));
  EXPECT_TRUE(has(source / "b.h"));
  EXPECT_FALSE(has(source / "op.cc"));
  bool system = false;
  for (const std::string& h : object.headers) {
    EXPECT_FALSE(h.ends_with("opwire/abi.h"));
    EXPECT_EQ(h[0], '/');
    system |= h.ends_with("/stdint.h");
  }
  EXPECT_TRUE(system);
}

TEST(HostCompiler, TextFlagsLibrariesAndSeveralSources) {
  Folder source, out, out2;
  const auto cxx = HostCompiler({});
  CompileRequest text;
  text.name = "test.text";
  text.text =
      "#include <opwire/abi.h>\nstatic int Run(const opw_call*) { return OPW_OK; }\nOPW_KERNEL = "
      "{OPW_ABI_VERSION, 0, 0, 0, 0, "
      "Run, 0};\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) int number() { return TILE; }\n";
  text.flags = {"-O1", "-DTILE=64"};
  text.libraries = {"m"};
  text.arch = HostArch();
  ASSERT_OK_AND(const CompiledObject one, cxx->Compile(text, out.path()));
  EXPECT_EQ(Call(one.path), 64);
  ASSERT_OK(Library::Open(one.path).status());

  source.Write("sub dir/half.c",
               "#include \"half.h\"\nint half(int x) { return (x) / 2 + (sizeof('a') == 4 ? 0 : "
               "100); } /* C's own */\n");
  source.Write("sub dir/half.h", "int half(int x);\n");
  source.Write("main.cc",
               "extern \"C\" int half(int);\nextern \"C\" __attribute__((visibility(\"default\"))) "
               "int number() { return half(84); }\n");
  CompileRequest two;
  two.name = "test.two";
  two.directory = source.path();
  two.sources = {"main.cc", "sub dir/half.c"};
  two.arch = HostArch();
  ASSERT_OK_AND(const CompiledObject object, cxx->Compile(two, out2.path()));
  EXPECT_EQ(Call(object.path), 42);
  EXPECT_NE(std::find(object.headers.begin(), object.headers.end(), source / "sub dir/half.h"),
            object.headers.end());
}

TEST(HostCompiler, ReadsTheLanguageOfMake) {
  EXPECT_EQ(Prerequisites("object: a.cc \\\n /b\\ c/d.h \\\n  /e$$f.h /g\\#.h\nx: y\n"),
            (std::vector<std::string>{"a.cc", "/b c/d.h", "/e$f.h", "/g#.h"}));
  EXPECT_TRUE(Prerequisites("nothing").empty());
}

// Lessons: "no nvcc: import dies" - here the probe gives a reason.
TEST(HostCompiler, NoCompilerInPathIsAReason) {
  Folder empty, source, out;
  Setting path("PATH", empty.path()), cxx("CXX", ""), own("OPWIRE_CXX", "");
  const auto none = HostCompiler({});
  EXPECT_FALSE(none->facts().available());
  for (const char* name : {"c++", "g++", "clang++"})
    EXPECT_TRUE(Contains(none->facts().reason, name)) << none->facts().reason;
  const Status s = none->Compile(OpIn(source), out.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(s)) << s;
  EXPECT_TRUE(Contains(MessageOf(s), none->facts().reason));
}

TEST(HostCompiler, TheUsersChoiceComesFirstAndIsNotReplaced) {
  Folder folder;
  const std::string fake = FakeCompiler(folder, "exit 1");
  {
    Setting cxx("CXX", "/no/such"), own("OPWIRE_CXX", fake);
    EXPECT_EQ(HostCompiler({})->facts().path, fake);
    EXPECT_EQ(HostCompiler({})->facts().version, "fake-cxx 99");
  }
  Setting cxx("CXX", fake), own("OPWIRE_CXX", "/no/such/compiler");
  EXPECT_FALSE(HostCompiler({})->facts().available());
  Setting unset("OPWIRE_CXX", "");
  EXPECT_EQ(HostCompiler({})->facts().path, fake);
}

// Lessons: "the root cause is masked by an attribute error later" - here one error with command,
// exit code and the log's last lines.
TEST(HostCompiler, ErrorsNameCommandEndAndLog) {
  Folder source, out;
  CompileRequest request = OpIn(source);
  source.Write("op.cc", "#include <opwire/abi.h>\nint f() { return undeclared_thing; }\n");
  const Status s = HostCompiler({})->Compile(request, out.path()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(s)) << s;
  for (const char* part : {"test.op", "exit code 1", "command: /", "-march=", "undeclared_thing"})
    EXPECT_TRUE(Contains(MessageOf(s), part)) << part << "\n" << s;
}

TEST(HostCompiler, MissingLibraryOrSymbolFailsWhenItIsBuilt) {
  Folder source, out;
  CompileRequest request = OpIn(source);
  request.libraries = {"no_such_library"};
  EXPECT_TRUE(Contains(HostCompiler({})->Compile(request, out.path()).status().ToString(),
                       "no_such_library"));
}

TEST(HostCompiler, ACompilerThatCrashes) {
  Folder folder;
  const Status s = CompileWith(FakeCompiler(folder, "echo on my way >&2; kill -SEGV $$"));
  EXPECT_TRUE(absl::IsInternal(s)) << s;
  EXPECT_TRUE(Contains(MessageOf(s), "signal 11") && Contains(MessageOf(s), "on my way")) << s;
  const Status ice = CompileWith(FakeCompiler(
      folder, "echo 'op.cc:1: internal compiler error: Segmentation fault' >&2; exit 4"));
  EXPECT_TRUE(absl::IsInternal(ice)) << ice;
}

TEST(HostCompiler, ACompilerThatHangs) {
  Folder folder;
  const Status s = CompileWith(FakeCompiler(folder, "sleep 100 & wait"), {.seconds = 0.3});
  EXPECT_TRUE(absl::IsDeadlineExceeded(s)) << s;
  EXPECT_TRUE(Contains(MessageOf(s), "no end within")) << s;
  folder.Write("fake-cxx", "#!/bin/sh\nsleep 100\n", 0755);  // also when it is asked for its
                                                             // version
  const auto hanging = HostCompiler({.seconds = 0.2, .compiler = folder / "fake-cxx"});
  EXPECT_TRUE(Contains(hanging->facts().reason, "no end within")) << hanging->facts().reason;
}

TEST(HostCompiler, ACompilerThatFloods) {
  Folder folder;
  const Status s = CompileWith(FakeCompiler(
      folder,
      "head -c 30000000 /dev/zero | tr '\\0' 'y' | fold -w 100 >&2; echo the end >&2; exit 1"));
  EXPECT_TRUE(absl::IsInvalidArgument(s));
  EXPECT_LT(MessageOf(s).size(), 8000u);
  EXPECT_TRUE(Contains(MessageOf(s), "the end")) << s;
}

TEST(HostCompiler, ACompilerThatMultiplies) {
  Folder folder;
  const Status s = CompileWith(FakeCompiler(folder,
                                            "f() { [ \"$1\" -le 0 ] && { sleep 100; return; }; f "
                                            "$(($1-1)) & f $(($1-1)) & wait; }; f 5"),
                               {.seconds = 0.5});
  EXPECT_TRUE(absl::IsDeadlineExceeded(s)) << s;
}

TEST(HostCompiler, ACompilerThatFillsTheDisk) {
  Folder folder;
  const Status s =
      CompileWith(FakeCompiler(folder, "trap '' XFSZ; head -c 10000000 /dev/zero > big || exit 1"),
                  {.file_bytes = 100'000});
  EXPECT_TRUE(absl::IsResourceExhausted(s)) << s;
}

TEST(HostCompiler, ACompilerThatMakesNothing) {
  Folder folder;
  EXPECT_TRUE(absl::IsInternal(CompileWith(FakeCompiler(folder, "exit 0"))));
}

TEST(HostCompiler, HostileNamesReachNoShell) {
  Folder source, out;
  const std::string marker = out / "marker";
  const auto cxx = HostCompiler({});
  CompileRequest request = OpIn(source, 5);
  request.name = "x\"; touch " + marker + "; $(touch " + marker + ")`touch " + marker + "`\n'";
  request.flags = {"-DA=$(touch " + marker + ")", "-DB=`touch " + marker + "`",
                   "-DC='\"; touch " + marker + "; \"", "-DD=a\nb|touch " + marker};
  ASSERT_OK_AND(const CompiledObject object, cxx->Compile(request, out.path()));
  EXPECT_EQ(Call(object.path), 5);
  source.Write("$(touch marker);.cc", Slurp(source / "op.cc"));
  request.sources = {"$(touch marker);.cc"};
  EXPECT_TRUE(cxx->Compile(request, out.path()).ok());
  EXPECT_FALSE(StampOf(marker) || StampOf(out / "marker") || StampOf("marker"));
}

TEST(HostCompiler, HostileRequestsAreRefused) {
  Folder source, out;
  const auto cxx = HostCompiler({});
  const CompileRequest good = OpIn(source);
  const auto refused = [&](const std::function<void(CompileRequest&)>& change) {
    CompileRequest request = good;
    change(request);
    return absl::IsInvalidArgument(cxx->Compile(request, out.path()).status());
  };
  for (const std::string& name :
       {std::string("-o"), std::string("../op.cc"), std::string("/etc/passwd"),
        std::string("a/../../op.cc"), std::string(""), std::string("op.cc\0.cc", 9),
        std::string("op\n.cc"), std::string("op.so"), std::string("@op.cc")}) {
    const bool at = name == "@op.cc";  // is a missing file, not a list of arguments
    EXPECT_TRUE(refused([&](CompileRequest& r) { r.sources = {name}; }) || at) << name;
  }
  for (const std::string& flag :
       {std::string("x"), std::string(""), std::string("-"), std::string("@file"),
        std::string("; touch x"), std::string("-DX\0Y", 5), std::string("-march=native"),
        std::string("-mtune=native")}) {
    EXPECT_TRUE(refused([&](CompileRequest& r) { r.flags = {flag}; })) << flag;
  }
  for (const char* library : {"", "-m", "m -o x", "../m", ":x"})
    EXPECT_TRUE(refused([&](CompileRequest& r) { r.libraries = {library}; })) << library;
  for (const char* arch : {"", "native", "-x", "a b", "x;y", "no-such-arch"})
    EXPECT_TRUE(refused([&](CompileRequest& r) { r.arch = arch; })) << arch;
  EXPECT_TRUE(refused([](CompileRequest& r) { r.text = "int x;"; }));
  EXPECT_TRUE(refused([](CompileRequest& r) { r.sources.clear(); }));
}

// Lessons: "cache poisoned by a framework or compiler upgrade".
TEST(HostCompiler, IdentityFollowsTheCompiler) {
  Folder folder;
  const std::string path = folder.Write("cxx", "#!/bin/sh\necho 'gcc version 1' >&2\n", 0755);
  const std::string first = HostCompiler({.compiler = path})->facts().identity;
  EXPECT_EQ(HostCompiler({.compiler = path})->facts().identity, first);
  folder.Write("cxx", "#!/bin/sh\necho 'gcc version 2' >&2\n", 0755);
  const std::string second = HostCompiler({.compiler = path})->facts().identity;
  EXPECT_NE(second, first);
  folder.Write("cxx", "#!/bin/sh\n# patched\necho 'gcc version 2' >&2\n", 0755);
  EXPECT_NE(HostCompiler({.compiler = path})->facts().identity, second);
}

// Lessons: "wrong arch", "CPU SIMD chosen from CPU names".
TEST(HostCompiler, BuildsForArchitecturesThatThisMachineMayLack) {
#ifdef __x86_64__
  Folder out;
  for (const char* arch : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    CompileRequest request;
    request.name = "test.arch";
    request.text =
        "#if defined(__AVX512F__)\nint level = 4;\n#elif defined(__AVX2__)\nint level = "
        "3;\n#else\nint level = "
        "2;\n#endif\nstatic_assert(sizeof(level));\n";
    request.text += std::string("#if ") +
                    (arch[8] == '4'   ? "!defined(__AVX512F__)"
                     : arch[8] == '3' ? "!defined(__AVX2__) || defined(__AVX512F__)"
                                      : "defined(__AVX2__)") +
                    "\n#error wrong level\n#endif\n";
    request.arch = arch;
    EXPECT_TRUE(HostCompiler({})->Compile(request, out.path()).ok()) << arch;
  }
  EXPECT_TRUE(HostArch().starts_with("x86-64-v"));
#endif
}

}  // namespace
}  // namespace opwire::jit
