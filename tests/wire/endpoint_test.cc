// Addresses, the runtime directory, stale sockets, and the table of limits.
#include "ir/wire/endpoint.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "ir/wire/limits.h"

namespace opwire {
namespace {

namespace fs = std::filesystem;

class EndpointTest : public ::testing::Test {
 protected:
  EndpointTest() {
    char path[] = "/tmp/opwire-test-XXXXXX";
    directory_ = mkdtemp(path);
    for (const char* name : {"OPWIRE_RUNTIME_DIR", "XDG_RUNTIME_DIR"}) {
      const char* value = std::getenv(name);
      before_.push_back({name, value ? value : "", value != nullptr});
      unsetenv(name);
    }
  }
  ~EndpointTest() override {
    for (const auto& b : before_) {
      if (b.set)
        setenv(b.name, b.value.c_str(), 1);
      else
        unsetenv(b.name);
    }
    fs::remove_all(directory_);
  }
  struct Variable {
    const char* name;
    std::string value;
    bool set;
  };
  std::vector<Variable> before_;
  std::string directory_;
};

TEST_F(EndpointTest, Addresses) {
  constexpr auto kOk = absl::StatusCode::kOk, kInvalid = absl::StatusCode::kInvalidArgument;
  const size_t longest = sizeof(sockaddr_un::sun_path) - 16;
  const std::pair<std::string, absl::StatusCode> cases[] = {
      {"ipc:///run/opwire/registry", kOk},
      {"ipc://relative", kOk},
      {"ipc://", kInvalid},
      {"ipc://" + std::string(longest, 'x'), kOk},
      {"ipc://" + std::string(longest + 1, 'x'), kInvalid},
      {"tcp://127.0.0.1:5555", kOk},
      {"tcp://[::1]:5555", kOk},
      {"tcp://" + std::string(64, '5') + "@[::1]:5555", kOk},
      {"tcp://::1:5555", kInvalid},
      {"tcp://[::1:5555", kInvalid},
      {"tcp://[]:5555", kInvalid},
      {"tcp://" + std::string(64, '5') + "@host:5555", kOk},
      {"tcp://" + std::string(63, '5') + "@host:5555", kInvalid},
      {"tcp://" + std::string(64, 'x') + "@host:5555", kInvalid},
      {"tcp://@host:5555", kInvalid},
      {"tcp://:5555", kInvalid},
      {"tcp://host:0", kOk},
      {"tcp://host:*", kOk},
      {"tcp://host:65535", kOk},
      {"tcp://host:65536", kInvalid},
      {"tcp://host:-1", kInvalid},
      {"tcp://host:80x", kInvalid},
      {"tcp://host:", kInvalid},
      {"tcp://host", kInvalid},
      {"tcp://", kInvalid},
      {"", kInvalid},
      {"/run/opwire", kInvalid},
      {"inproc://x", kInvalid},
      {"IPC:///x", kInvalid},
  };
  for (const auto& [endpoint, code] : cases)
    EXPECT_EQ(CheckEndpoint(endpoint).code(), code) << endpoint;
  EXPECT_EQ(IpcPath("ipc:///a/b"), "/a/b");
}

TEST_F(EndpointTest, NamesOfHostsBecomeNumbers) {
  const auto resolved = [](const std::string& endpoint) {
    const StatusOr<ZmqAddress> made = Resolve(endpoint);
    return made.ok() ? made->address + (made->ipv6 ? " by IPv6" : "") : made.status().ToString();
  };
  EXPECT_EQ(resolved("tcp://127.0.0.1:7000"), "tcp://127.0.0.1:7000");
  EXPECT_EQ(resolved("tcp://localhost:7000"), "tcp://127.0.0.1:7000");
  EXPECT_EQ(resolved("tcp://localhost:*"), "tcp://127.0.0.1:*");
  EXPECT_EQ(resolved("tcp://[::1]:7000"), "tcp://[::1]:7000 by IPv6");
  EXPECT_EQ(resolved("tcp://*:7000"), "tcp://*:7000");
  EXPECT_EQ(resolved("tcp://lo:7000"), "tcp://lo:7000");
  EXPECT_EQ(resolved("ipc:///run/opwire/registry"), "ipc:///run/opwire/registry");
  EXPECT_EQ(Resolve("tcp://no-such-host.invalid:7000").status().code(),
            absl::StatusCode::kUnavailable);
  for (const char* broken : {"tcp://host", "tcp://", "tcp:/", "t", "", "tcp://:7000", "inproc://x"})
    EXPECT_EQ(Resolve(broken).status().code(), absl::StatusCode::kInvalidArgument) << broken;
}

TEST_F(EndpointTest, ALongRuntimeDirectoryNamesTheVariableToSet) {
  const std::string path = directory_ + "/" + std::string(90, 'd');
  setenv("OPWIRE_RUNTIME_DIR", path.c_str(), 1);
  const StatusOr<std::string> made = RuntimeDirectory();
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(made.status().message().find("set OPWIRE_RUNTIME_DIR to one of at most 83 characters"),
            std::string::npos)
      << made.status();
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(EndpointTest, TheRuntimeDirectoryIsOnesOwn) {
  setenv("XDG_RUNTIME_DIR", directory_.c_str(), 1);
  EXPECT_EQ(*RuntimeDirectory(), directory_ + "/opwire");
  EXPECT_EQ(*DefaultRegistryEndpoint(), "ipc://" + directory_ + "/opwire/registry");
  struct stat st;
  ASSERT_EQ(stat((directory_ + "/opwire").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
  setenv("OPWIRE_RUNTIME_DIR", (directory_ + "/own").c_str(), 1);
  EXPECT_EQ(*RuntimeDirectory(), directory_ + "/own");
  setenv("OPWIRE_RUNTIME_DIR", "", 1);
  EXPECT_EQ(*RuntimeDirectory(), directory_ + "/opwire") << "empty is as unset";
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  setenv("OPWIRE_RUNTIME_DIR", "own", 1);
  EXPECT_EQ(*RuntimeDirectory(), directory_ + "/own") << "others may have another directory";
  fs::current_path(before);

  const auto refused = [&](const std::string& path) {
    setenv("OPWIRE_RUNTIME_DIR", path.c_str(), 1);
    return RuntimeDirectory().status().code();
  };
  ASSERT_EQ(chmod((directory_ + "/own").c_str(), 0750), 0);
  EXPECT_EQ(refused(directory_ + "/own"), absl::StatusCode::kPermissionDenied)
      << "others may enter";
  std::ofstream(directory_ + "/file") << "x";
  EXPECT_EQ(refused(directory_ + "/file"), absl::StatusCode::kPermissionDenied);
  fs::create_directory_symlink(directory_ + "/opwire", directory_ + "/link");
  EXPECT_EQ(refused(directory_ + "/link"), absl::StatusCode::kPermissionDenied)
      << "a link may come to point elsewhere";
  EXPECT_EQ(refused(directory_ + "/no/parent"), absl::StatusCode::kUnavailable);
}

TEST_F(EndpointTest, StaleSocketsAreClearedAndLiveOnesKept) {
  const std::string path = directory_ + "/socket", endpoint = "ipc://" + path;
  EXPECT_TRUE(ClearStaleSocket(endpoint).ok()) << "nothing there";
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 4), 0);
  EXPECT_EQ(ClearStaleSocket(endpoint).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(fs::exists(path));
  close(fd);
  EXPECT_TRUE(ClearStaleSocket(endpoint).ok());
  EXPECT_FALSE(fs::exists(path));
  std::ofstream(path) << "a file of the user";
  EXPECT_EQ(ClearStaleSocket(endpoint).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(fs::exists(path));
}

TEST(Limits, OneRowEachInTheOrderOfTheirNumbers) {
  std::set<std::string_view> names;
  const ExecutorLimits defaults;
  for (int i = 0; i < kLimitCount; ++i) {
    const ExecutorLimit& row = kExecutorLimits[static_cast<size_t>(i)];
    EXPECT_EQ(static_cast<int>(row.id), i);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-"), std::string_view::npos)
        << row.name;
    EXPECT_FALSE(row.doc.empty()) << row.name;
    EXPECT_GT(row.fallback, 0) << row.name;
    EXPECT_EQ(defaults[row.id], row.fallback) << row.name;
  }
  ExecutorLimits changed;
  changed[LimitId::kRank] = 3;
  EXPECT_EQ(changed[LimitId::kRank], 3);
  EXPECT_EQ(changed[LimitId::kParameters], defaults[LimitId::kParameters]);
}

}  // namespace
}  // namespace opwire
