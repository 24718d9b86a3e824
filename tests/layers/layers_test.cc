// Fails on an include in the wrong direction, and on any code except ir/wire that uses ZeroMQ.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <re2/re2.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace opwire {
namespace {

namespace fs = std::filesystem;

// By folder: the folders whose headers its files may include. The longest matching row decides.
const std::map<std::string, std::vector<std::string>> kMayInclude = {
    // clang-format off
    {"ir/wire", {"ir"}},
    {"ir/files", {"ir/base", "ir/ops", "ir/files"}},
    {"ir", {"ir/base", "ir/schema", "ir/ops", "ir/program", "ir/text", "ir/verify", "ir/scalar", "ir/passes"}},
    {"kernels", {"ir/base", "ir/schema", "ir/ops", "ir/program", "ir/text", "ir/verify", "ir/scalar", "ir/passes", "kernels"}},
    {"registry/state", {"ir", "registry/state"}},
    {"registry/client", {"ir", "registry/client"}},
    {"registry", {"ir", "registry"}},
    {"executor", {"ir", "kernels", "registry/client", "executor"}},
    {"frontend", {"ir", "registry/client", "frontend"}},
    {"examples", {"ir", "frontend", "examples"}},
    // clang-format on
};

bool Beneath(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

// Returns the row of a file; empty if it has none.
std::string RowOf(const std::string& file) {
  std::string best;
  for (const auto& [folder, may] : kMayInclude) {
    if (Beneath(file, folder) && folder.size() > best.size()) best = folder;
  }
  return best;
}

// Returns why the file may not include this; empty if it may. `quoted` distinguishes "x" from <x>.
std::string Wrong(const std::string& file, const std::string& include, bool quoted) {
  const bool zmq = include.starts_with("zmq");
  if (zmq) return Beneath(file, "ir/wire") ? "" : "only ir/wire speaks to ZeroMQ";
  if (include.find("..") != std::string::npos) return "includes are written from the top";
  const size_t slash = include.find('/');
  const std::string top = include.substr(0, slash);
  static const std::vector<std::string> kOurs = {"ir",       "kernels",  "registry", "executor",
                                                 "frontend", "examples", "tests"};
  if (std::find(kOurs.begin(), kOurs.end(), top) == kOurs.end()) {
    return quoted && slash == std::string::npos ? "includes are written from the top" : "";
  }
  const std::string row = RowOf(file);
  if (row.empty()) return "the folder has no row in the table of layers";
  for (const std::string& folder : kMayInclude.at(row)) {
    if (Beneath(include, folder)) return "";
  }
  return "a file of " + row + " may not include it";
}

std::vector<std::string> Sources(const fs::path& root) {
  std::vector<std::string> out;
  for (const char* top : {"ir", "kernels", "registry", "executor", "frontend", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc" || extension == ".cu")
        out.push_back(fs::relative(entry.path(), root));
    }
  }
  return out;
}

std::string ReadText(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Layers, IncludesPointTheRightWay) {
  const fs::path root = OPWIRE_SOURCE;
  const RE2 include(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  const std::vector<std::string> files = Sources(root);
  ASSERT_GT(files.size(), 100u) << "the sources are not where the test looks: " << root;
  size_t seen = 0;
  for (const std::string& file : files) {
    std::ifstream in(root / file);
    std::string line, quote, path;
    for (int number = 1; std::getline(in, line); ++number) {
      if (!RE2::PartialMatch(line, include, &quote, &path)) continue;
      ++seen;
      const std::string why = Wrong(file, path, quote == "\"");
      EXPECT_EQ(why, "") << fmt::format("{}:{}: includes {}", file, number, path);
    }
  }
  EXPECT_GT(seen, 500u);
}

TEST(Layers, WrongIncludesAreSeen) {
  const struct {
    const char *file, *include;
    bool wrong;
  } cases[] = {
      {"ir/base/dim.h", "kernels/abi.h", true},
      {"ir/base/dim.h", "ir/wire/message.h", true},
      {"ir/wire/ring.h", "ir/base/status.h", false},
      {"ir/wire/zmq_channel.cc", "zmq.h", false},
      {"ir/base/npy.cc", "zmq.h", true},
      {"kernels/ops/call.h", "executor/run/run.h", true},
      {"kernels/ops/call.h", "ir/ops/definitions.h", false},
      {"kernels/ops/call.h", "ir/wire/message.h", true},
      {"registry/state/state.h", "kernels/abi.h", true},
      {"registry/state/state.h", "registry/server/server.h", true},
      {"executor/run/run.h", "frontend/cpp/client.h", true},
      {"executor/run/run.h", "registry/server/server.h", true},
      {"executor/run/run.h", "registry/client/announcer.h", false},
      {"frontend/cpp/client.h", "executor/serve/core.h", true},
      {"frontend/cpp/client.h", "kernels/abi.h", true},
      {"frontend/cpp/client.h", "registry/state/state.h", true},
      {"frontend/cpp/client.h", "zmq.hpp", true},
      {"frontend/cpp/client.h", "ir/base/type.h", false},
      {"ir/base/dim.h", "tests/ir/random_program.h", true},
      {"executor/run/run.h", "lane.h", true},
      {"executor/run/run.h", "../plan/instance.h", true},
      {"examples/01_digits/main.cc", "executor/serve/core.h", true},
  };
  for (const auto& c : cases)
    EXPECT_EQ(!Wrong(c.file, c.include, true).empty(), c.wrong)
        << c.file << " includes " << c.include;
}

// The build says the same: ZeroMQ is found by cmake/ and linked by ir/ alone, there to one target.
TEST(Layers, OneTargetLinksZeroMq) {
  const fs::path root = OPWIRE_SOURCE;
  std::vector<std::string> linking;
  for (const char* top : {"ir", "kernels", "registry", "executor", "frontend", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (entry.path().filename() != "CMakeLists.txt") continue;
      const std::string text = ReadText(entry.path());
      for (size_t at = text.find("::ZMQ"); at != std::string::npos;
           at = text.find("::ZMQ", at + 1)) {
        const size_t target = text.rfind("opwire_library(", at);
        ASSERT_NE(target, std::string::npos);
        linking.push_back(text.substr(target, text.find('\n', target) - target));
      }
    }
  }
  EXPECT_EQ(linking, std::vector<std::string>{"opwire_library(opwire_wire"});
}

}  // namespace
}  // namespace opwire
