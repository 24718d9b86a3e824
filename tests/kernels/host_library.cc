// Spawns the compiler.
#include "tests/kernels/host_library.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>

extern char** environ;

namespace opwire {
namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() : path_(fs::temp_directory_path() / "opwire-fused-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) abort();
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

StatusOr<jit::CompiledObject> TestToolchain::Compile(const jit::CompileRequest& request, const std::string& directory) {
  fs::create_directories(fs::path(directory) / "opwire");
  fs::copy_file(fs::path(OPWIRE_SOURCE) / "kernels/abi.h", fs::path(directory) / "opwire/abi.h",
                fs::copy_options::overwrite_existing);
  const std::string source = directory + "/unit.cc", object = directory + "/unit.so", log = directory + "/log";
  std::ofstream(source) << request.text;
  std::vector<std::string> argv = {facts_.path,
                                   "-std=c++20",
                                   "-O3",
                                   "-fPIC",
                                   "-shared",
                                   "-fvisibility=hidden",
                                   "-ffp-contract=off",
                                   "-fno-math-errno",
                                   "-march=" + request.arch,
                                   "-I" + directory,
                                   source,
                                   "-o",
                                   object};
  argv.insert(argv.end(), request.flags.begin(), request.flags.end());
  std::vector<char*> pointers;
  for (std::string& a : argv) pointers.push_back(a.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT, 0600);
  const auto begun = std::chrono::steady_clock::now();
  pid_t pid = 0;
  const int error = posix_spawn(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return FailedPrecondition("{} cannot be started", pointers[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  std::ifstream in(log);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (status != 0) return InvalidArgument("{}", text.substr(0, 4000));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  return jit::CompiledObject{.path = object, .log = text, .seconds = seconds.count()};
}

StatusOr<jit::CacheEntry> TestCache::Get(jit::Toolchain& toolchain, const jit::CompileRequest& request) {
  OPWIRE_ASSIGN_OR_RETURN(const jit::CompiledObject object,
                          toolchain.Compile(request, fmt::format("{}/{}", folder_.path(), builds_++)));
  return jit::CacheEntry{.name = request.name, .object = object.path, .seconds = object.seconds, .built = true};
}

}  // namespace opwire
