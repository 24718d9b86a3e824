// Uses system calls. Nothing here uses the tested code, except for the helper's own work.
#include "tests/jit/support.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/jit/unit_lock.h"

namespace opwire::jit {

namespace fs = std::filesystem;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int CountLines(const std::string& path) {
  const std::string text = Slurp(path);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string FakeCompiler(const Folder& folder, const std::string& body) {
  return folder.Write("fake-cxx",
                      "#!/bin/sh\nif [ \"$1\" = -v ]; then echo 'gcc version 99 (fake)' >&2; exit "
                      "0; fi\necho call >> '" +
                          (folder / "calls") + "'\n" + body + "\n",
                      0755);
}

std::string CountingCompiler(const Folder& folder, const std::string& before) {
  return folder.Write("counting-cxx",
                      "#!/bin/sh\nif [ \"$1\" = -v ]; then exec g++ -v; fi\necho call >> '" +
                          (folder / "calls") + "'\n" + before + "\nexec g++ \"$@\"\n",
                      0755);
}

CompileRequest OpIn(const Folder& folder, int number) {
  folder.Write("op.cc",
               "#include <opwire/abi.h>\n#include \"a.h\"\nextern \"C\" "
               "__attribute__((visibility(\"default\"))) int number() { "
               "return kNumber; }\n");
  folder.Write("a.h", "#pragma once\n#include \"b.h\"\n");
  SetNumber(folder, number);
  CompileRequest request;
  request.name = "test.op";
  request.directory = folder.path();
  request.sources = {"op.cc"};
  request.arch = HostArch();
  return request;
}

void SetNumber(const Folder& folder, int number) {
  folder.Write("b.h", "#pragma once\nconstexpr int kNumber = " + std::to_string(number) + ";\n");
  usleep(25'000);
}

int Call(const std::string& object) {
  void* library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    ADD_FAILURE() << dlerror();
    return -1;
  }
  const auto number = reinterpret_cast<int (*)()>(dlsym(library, "number"));
  const int value = number ? number() : -1;
  dlclose(library);
  return value;
}

std::unique_ptr<BuildCache> OpenCache(const std::string& directory) {
  auto cache = BuildCache::Open({.directory = directory});
  EXPECT_TRUE(cache.ok()) << cache.status();
  return cache.ok() ? *std::move(cache) : nullptr;
}

Process::Process(std::vector<std::string> arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  arguments.insert(arguments.begin(), "/proc/self/exe");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  fd_ = ends[0];
}

Process::Process(Process&& o) noexcept
    : pid_(std::exchange(o.pid_, -1)), fd_(std::exchange(o.fd_, -1)), code_(o.code_) {}

Process::~Process() {
  if (pid_ > 0) Kill();
  if (fd_ >= 0) close(fd_);
}

void Process::Kill() {
  kill(pid_, SIGKILL);
  Wait();
}

void Process::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  pid_ = -1;
}

std::string Process::Finish() {
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = read(fd_, buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<size_t>(n));
  Wait();
  return out;
}

std::string Process::ReadLine() {
  std::string out;
  for (char c; read(fd_, &c, 1) == 1 && c != '\n';) out += c;
  return out;
}

// --get CACHE COMPILER FOLDER...: gets the op of each folder and prints a line "built|found|CODE
// MESSAGE" for it. --hold LOCK: takes a unit's lock and keeps it.
int HelperMain(int argc, char** argv) {
  if (argc == 3 && !std::strcmp(argv[1], "--hold")) {
    auto lock = UnitLock::Acquire(argv[2], 10);
    if (!lock.ok()) return 1;
    lock->NoteHolder();
    std::printf("held\n");
    std::fflush(stdout);
    while (true) pause();
  }
  if (argc < 5 || std::strcmp(argv[1], "--get") != 0) return 2;
  auto cache = BuildCache::Open({.directory = argv[2]});
  if (!cache.ok()) return 1;
  const auto compiler = HostCompiler({.compiler = argv[3]});
  for (int i = 4; i < argc; ++i) {
    CompileRequest request;
    request.name = "test.op";
    request.directory = argv[i];
    request.sources = {"op.cc"};
    request.arch = HostArch();
    const auto entry = (*cache)->Get(*compiler, request);
    std::string line = entry.ok() ? entry->built ? "built" : "found" : entry.status().ToString();
    std::replace(line.begin(), line.end(), '\n', ' ');
    std::printf("%s\n", line.c_str());
  }
  return 0;
}

}  // namespace opwire::jit
