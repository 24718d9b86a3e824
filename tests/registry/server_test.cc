// The server over a real socket, with the directory that frontends ask.
#include "registry/server/server.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "ir/wire/endpoint.h"
#include "ir/wire/ring.h"
#include "registry/client/announcer.h"
#include "registry/client/directory.h"
#include "tests/registry/fixture.h"

namespace opwire {
namespace {

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    char path[] = "/tmp/opwire-test-XXXXXX";
    directory_ = mkdtemp(path);
    endpoint_ = "ipc://" + directory_ + "/registry";
  }
  ~ServerTest() override {
    Stop();
    std::filesystem::remove_all(directory_);
  }
  void Start(RegistryOptions options = {.beat = 100 * kMillisecond}) {
    auto server = RegistryServer::Start(endpoint_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stop_ = eventfd(0, EFD_CLOEXEC);
    thread_ = std::thread([this] { server_->Run(stop_); });
  }
  void Stop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    ASSERT_EQ(write(stop_, &one, sizeof(one)), 8);
    thread_.join();
    close(stop_);
    server_.reset();
  }
  std::unique_ptr<Dealer> Join(const std::string& id) {
    auto dealer = Dealer::Connect(context_, endpoint_);
    EXPECT_TRUE(dealer.ok());
    Announcer a(MakeInfo(id), ClaimOf(id));
    EXPECT_TRUE((*dealer)->Send(AsBytes(*a.OnTick(0, {}))).ok());
    ClientChannel::Message message;
    auto came = (*dealer)->Receive(message, 5 * kSecond);
    EXPECT_TRUE(came.ok() && *came) << came.status();
    a.OnReply(0, AsBytes(message.head));
    EXPECT_TRUE(a.registered());
    return *std::move(dealer);
  }
  // Returns whether a frontend sees this number of executors; waits up to ten seconds for it.
  bool Becomes(size_t count) {
    Directory directory(context_, {endpoint_});
    for (int i = 0; i < 200; ++i) {
      auto reply = directory.Query({});
      if (reply.ok() && reply->executors.size() == count) return true;
      PollReadable({}, 50 * kMillisecond);
    }
    return false;
  }

  std::string directory_, endpoint_;
  ZmqContext context_;
  std::unique_ptr<RegistryServer> server_;
  std::thread thread_;
  int stop_ = -1;
};

TEST_F(ServerTest, ServesAndForgetsTheSilent) {
  Start();
  auto e1 = Join("e1");
  EXPECT_TRUE(Becomes(1));
  // No heartbeat arrives for it.
  EXPECT_TRUE(Becomes(0));
}

TEST_F(ServerTest, WatchersHearOfChanges) {
  Start();
  auto watcher = Dealer::Connect(context_, endpoint_);
  ASSERT_TRUE(watcher.ok());
  ASSERT_TRUE((*watcher)->Send(AsBytes(EncodeRequest(5, fb::WatchT()))).ok());
  ASSERT_TRUE((*watcher)->Send(AsBytes(EncodeRequest(6, fb::QueryT()))).ok());
  ClientChannel::Message message;
  auto came = (*watcher)->Receive(message, 5 * kSecond);
  ASSERT_TRUE(came.ok() && *came);  // the answer to the query: the watch began
  auto e1 = Join("e1");
  came = (*watcher)->Receive(message, 5 * kSecond);
  ASSERT_TRUE(came.ok() && *came) << came.status();
  AlignedBytes memory;
  auto reply = DecodeReply(AsBytes(message.head), memory);
  ASSERT_TRUE(reply.ok());
  ASSERT_NE((*reply)->body_as_Change(), nullptr);
  EXPECT_EQ((*reply)->body_as_Change()->joined()->id()->str(), "e1");
}

TEST_F(ServerTest, TheEndpointIsTakenOnceAndStaleOnesAreCleared) {
  Start();
  EXPECT_EQ(RegistryServer::Start(endpoint_, {}).status().code(), absl::StatusCode::kAlreadyExists);
  Stop();
  // A socket without a listener, as kill -9 leaves it.
  const std::string path = IpcPath(endpoint_);
  unlink(path.c_str());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const OwnedFd left(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(left.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  Start();
  EXPECT_TRUE(Becomes(0));
}

TEST_F(ServerTest, TheDirectoryNamesWhoDoesNotAnswer) {
  Directory nobody(context_, {endpoint_});
  auto reply = nobody.Query({}, 500 * kMillisecond);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(MessageOf(reply.status()).find(endpoint_), std::string::npos) << reply.status();
  Start();
  // The first server that answers is used; those before it cost little.
  Directory both(context_, {"ipc://" + directory_ + "/none", endpoint_});
  EXPECT_TRUE(both.Query({}).ok());
  EXPECT_EQ(Directory(context_, {}).Query({}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace opwire
