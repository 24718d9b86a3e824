// TCP with keys: which clients may connect, as which user, and the rights of each role.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "ir/wire/trust.h"
#include "ir/wire/zmq_channel.h"
#include "registry/client/directory.h"
#include "tests/system/processes.h"

namespace opwire::client {
namespace {

class KeysTest : public SystemTest {
 protected:
  // The server's user, and a guest whom the server knows.
  void SetUp() override {
    server_ = *CreateKeyPair(directory_ + "/server.key");
    guest_ = *CreateKeyPair(directory_ + "/guest.key");
    Authorize("execute");
    Use("server");
    registry_ = ServeOn({OPWIRE_REGISTRY_PROGRAM, "--listen", "tcp://127.0.0.1:*", "--beat-ms",
                         "100", "--authorized", directory_ + "/authorized"},
                        "endpoint");
    executor_ = ServeOn({OPWIRE_EXECUTOR, "--name", "e1", "--listen", "tcp://127.0.0.1:*",
                         "--registry", registry_, "--authorized", directory_ + "/authorized"},
                        "control");
  }
  // Sets the client's own key for later connections.
  void Use(const std::string& who) {
    setenv("OPWIRE_KEY", (directory_ + "/" + who + ".key").c_str(), 1);
  }
  void Authorize(const std::string& role) {
    std::ofstream(directory_ + "/authorized")
        << "# who may come\n\n"
        << KeyToHex(guest_.public_key) << " guest " << role << "  # a friend\n";
  }
  // Starts a server and waits for the address that it logs.
  std::string ServeOn(std::vector<std::string> argv, const std::string& field) {
    const pid_t pid = Start(std::move(argv));
    std::string address;
    EXPECT_TRUE(Eventually([&] {
      std::ifstream in(LogOf(pid));
      const std::string log(std::istreambuf_iterator<char>(in), {});
      const std::string mark = "\"" + field + "\":\"";
      const size_t at = log.find(mark);
      if (at == std::string::npos) return false;
      address = log.substr(at + mark.size(), log.find('"', at + mark.size()) - at - mark.size());
      return true;
    }));
    return address;
  }
  StatusOr<Session> OpenAs(const std::string& who) {
    Use(who);
    auto client = Client::Connect({.registries = {registry_}});
    if (!client.ok()) return client.status();
    // The executor registers within a moment.
    StatusOr<Session> session = Unavailable("not tried");
    Eventually([&] {
      session = client->Open();
      return session.status().message() != "no executor is registered";
    });
    return session;
  }

  KeyPair server_, guest_;
  std::string registry_, executor_;
};

TEST_F(KeysTest, TheAddressNamesTheServersKey) {
  EXPECT_TRUE(registry_.starts_with("tcp://" + KeyToHex(server_.public_key) + "@127.0.0.1:"))
      << registry_;
  EXPECT_TRUE(executor_.starts_with("tcp://" + KeyToHex(server_.public_key) + "@127.0.0.1:"))
      << executor_;
}

TEST_F(KeysTest, TheServersUserAndThoseItKnowsWork) {
  for (const char* who : {"server", "guest"}) {
    ASSERT_OK_AND(Session session, OpenAs(who));
    ASSERT_OK_AND(Program twice, session.Load(kTwice));
    ASSERT_OK_AND(const auto y, twice.Call({Values({1, 2})}));
    EXPECT_EQ(ToFloats(y[0]), (Floats{2, 4}));
    ASSERT_OK_AND(const std::string sessions, session.Info("sessions"));
    EXPECT_NE(sessions.find(std::string(who) == "server" ? "key:self" : "key:guest"),
              std::string::npos)
        << sessions;
  }
}

TEST_F(KeysTest, SessionsOfOneNameBelongToTheirKeys) {
  Use("server");
  ASSERT_OK_AND(Session one, OpenAs("server"));
  SessionOptions named;
  named.name = "w";
  ASSERT_OK_AND(Client as_server, Client::Connect({.registries = {registry_}}));
  ASSERT_OK_AND(Session a, as_server.Open(named));
  ASSERT_OK_AND(Tensor t, a.Put(Values({1}).view(), "secret"));
  Use("guest");
  ASSERT_OK_AND(Client as_guest, Client::Connect({.registries = {registry_}}));
  ASSERT_OK_AND(Session b, as_guest.Open(named));
  EXPECT_EQ(b.Find("secret").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(KeysTest, UnknownKeysAndNoKeysAreTurnedAway) {
  ASSERT_TRUE(CreateKeyPair(directory_ + "/stranger.key").ok());
  const Status stranger = OpenAs("stranger").status();
  EXPECT_EQ(stranger.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(stranger.message().find("does not take this key"), std::string::npos) << stranger;
  const Status none = OpenAs("nobody").status();
  EXPECT_NE(none.message().find("opwire keys"), std::string::npos) << none;
  // Without encryption, and with the key of another server.
  Use("guest");
  ZmqContext context;
  const std::string plain = "tcp://" + registry_.substr(registry_.find('@') + 1);
  for (const std::string& address : {plain, WithKey(plain, guest_.public_key)}) {
    EXPECT_EQ(Directory(context, {address}).Query({}).status().code(),
              absl::StatusCode::kUnavailable)
        << address;
  }
  EXPECT_TRUE(Directory(context, {registry_}).Query({}).ok());
}

TEST_F(KeysTest, RolesAreReadAnew) {
  Authorize("use");
  const Status looks = OpenAs("guest").status();
  EXPECT_EQ(looks.code(), absl::StatusCode::kPermissionDenied) << looks;
  EXPECT_NE(looks.message().find("key:guest has the role use"), std::string::npos) << looks;
  Use("guest");
  EXPECT_EQ(Wait(Start({OPWIRE_EXECUTOR, "--name", "e2", "--registry", registry_})), 5)
      << "only admins register";
  Authorize("admin");
  EXPECT_TRUE(OpenAs("guest").ok());
  std::ofstream(directory_ + "/authorized") << "not a key\n";
  EXPECT_FALSE(OpenAs("guest").ok());
  EXPECT_TRUE(OpenAs("server").ok());
}

TEST_F(KeysTest, FilesThatOthersCanReachAreRefused) {
  chmod((directory_ + "/server.key").c_str(), 0644);
  EXPECT_EQ(ReadKeyPair(directory_ + "/server.key").status().code(),
            absl::StatusCode::kPermissionDenied);
  chmod((directory_ + "/authorized").c_str(), 0666);
  EXPECT_EQ(ReadAuthorizedKeys(directory_ + "/authorized").status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CreateKeyPair(directory_ + "/guest.key").status().code(),
            absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace opwire::client
