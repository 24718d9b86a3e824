// ZeroMQ channels: peers that leave, do not read, or send messages that no client sends.
#include "ir/wire/zmq_channel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <thread>

#include "ir/wire/message.h"

namespace opwire {
namespace {

constexpr Nanos kPatience = 20 * kSecond;

std::string Text(Bytes b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }

class ZmqChannelTest : public ::testing::Test {
 protected:
  ZmqChannelTest() {
    char path[] = "/tmp/opwire-test-XXXXXX";
    directory_ = mkdtemp(path);
    auto router = Router::Bind(context_, "ipc://" + directory_ + "/run");
    EXPECT_TRUE(router.ok()) << router.status();
    router_ = *std::move(router);
  }
  ~ZmqChannelTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Dealer> Connect(const ZmqOptions& options = {}) {
    auto dealer = Dealer::Connect(context_, router_->endpoint(), options);
    EXPECT_TRUE(dealer.ok()) << dealer.status();
    return *std::move(dealer);
  }
  void WaitForAny() {
    const int fds[] = {router_->fd(), router_->monitor_fd()};
    PollReadable(fds, kPatience);
  }
  // Returns the next message. Its bytes live until the next call.
  Incoming Next() {
    Incoming m{};
    const Nanos until = MonotonicNow() + kPatience;
    while (!router_->Receive(m)) {
      if (MonotonicNow() > until) {
        ADD_FAILURE() << "no message came";
        return {};
      }
      WaitForAny();
    }
    return m;
  }
  PeerId Greet(Dealer& dealer, const std::string& text = "hello") {
    EXPECT_TRUE(dealer.Send(AsBytes(text)).ok());
    const Incoming m = Next();
    EXPECT_EQ(Text(m.head), text);
    return m.peer;
  }
  // Returns whether this peer's connection ends. Skips the messages that arrive meanwhile.
  bool WaitGone(PeerId peer) {
    std::vector<PeerId> gone;
    const Nanos until = MonotonicNow() + kPatience;
    while (MonotonicNow() < until) {
      Incoming m;
      while (router_->Receive(m)) {
      }
      router_->TakeGone(gone);
      if (std::find(gone.begin(), gone.end(), peer) != gone.end()) return true;
      WaitForAny();
    }
    return false;
  }

  std::string directory_;
  ZmqContext context_;
  std::unique_ptr<Router> router_;
};

// A peer that speaks ZMTP, but not our protocol.
class RawPeer {
 public:
  explicit RawPeer(const std::string& endpoint, const std::string& name = "")
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_DEALER)) {
    const int linger = 2000;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof(linger));
    if (!name.empty()) zmq_setsockopt(socket_, ZMQ_ROUTING_ID, name.data(), name.size());
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~RawPeer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Send(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_GE(zmq_send(socket_, frames[i].data(), frames[i].size(),
                         i + 1 < frames.size() ? ZMQ_SNDMORE : 0),
                0);
    }
  }

 private:
  void* context_;
  void* socket_;
};

// A peer whose socket exists before it connects, so that a test can find the router's descriptor
// for it.
class SocketPeer {
 public:
  explicit SocketPeer(int family = AF_UNIX) : fd_(socket(family, SOCK_STREAM, 0)) {}
  ~SocketPeer() { close(fd_); }
  void Connect(const std::string& endpoint) {
    if (endpoint.starts_with("ipc://")) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      endpoint.copy(address.sun_path, sizeof(address.sun_path) - 1, std::strlen("ipc://"));
      ASSERT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port =
          htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
      ASSERT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    }
    // ZMTP 3.0: a greeting without security, and the type of this socket.
    const std::string hello = "\xff" + std::string(8, '\0') + "\x7f\x03" + std::string(1, '\0') +
                              "NULL" + std::string(16 + 1 + 31, '\0');
    const std::string ready = "\x05READY\x0bSocket-Type" + std::string(3, '\0') +
                              "\x06"
                              "DEALER";
    Write(hello + "\x04" + static_cast<char>(ready.size()) + ready);
    char theirs[66];  // with the header of its description of itself
    ASSERT_EQ(recv(fd_, theirs, sizeof(theirs), MSG_WAITALL), std::ssize(theirs));
    std::vector<char> rest(static_cast<size_t>(theirs[65]));
    ASSERT_EQ(recv(fd_, rest.data(), rest.size(), MSG_WAITALL), std::ssize(rest));
  }
  void Send(const std::string& text) {
    Write(std::string(1, '\0') + static_cast<char>(text.size()) + text);
  }
  // Sends a frame that is not the last of its message; false: the connection has ended.
  bool SendPart(const std::string& bytes) {
    std::string head = "\x03";  // long, and more
    for (int shift = 56; shift >= 0; shift -= 8)
      head += static_cast<char>(bytes.size() >> shift & 0xff);
    for (std::string_view left : {std::string_view(head), std::string_view(bytes)}) {
      while (!left.empty()) {
        const ssize_t n = send(fd_, left.data(), left.size(), MSG_NOSIGNAL);
        if (n <= 0) return false;
        left.remove_prefix(static_cast<size_t>(n));
      }
    }
    return true;
  }
  // The number of its own descriptor stays in use.
  void Leave() { dup2(STDERR_FILENO, fd_); }
  bool Lost() {
    char bytes[256];
    ssize_t n;
    while ((n = recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    }
    return n == 0 || errno != EAGAIN;
  }

 private:
  void Write(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  const int fd_;
};

TEST_F(ZmqChannelTest, ManyPeersEachGetTheirOwnReplies) {
  std::vector<std::unique_ptr<Dealer>> dealers;
  for (int i = 0; i < 50; ++i) dealers.push_back(Connect());
  for (size_t i = 0; i < dealers.size(); ++i)
    EXPECT_TRUE(
        dealers[i]->Send(AsBytes("from " + std::to_string(i)), AsBytes(std::string(i, 'b'))).ok());
  std::set<PeerId> peers;
  for (size_t i = 0; i < dealers.size(); ++i) {
    const Incoming m = Next();
    EXPECT_TRUE(peers.insert(m.peer).second) << "two with one name";
    EXPECT_EQ(m.uid, getuid());
    const PeerId peer = m.peer;
    const std::string head = Text(m.head), bulk = Text(m.bulk);
    EXPECT_TRUE(router_->Send(peer, AsBytes("to" + head.substr(4)), AsBytes(bulk)).ok());
  }
  ClientChannel::Message m;
  for (size_t i = 0; i < dealers.size(); ++i) {
    const auto got = dealers[i]->Receive(m, kPatience);
    ASSERT_TRUE(got.ok() && *got) << got.status();
    EXPECT_EQ(m.head, "to " + std::to_string(i));
    EXPECT_EQ(m.bulk, std::string(i, 'b'));
    EXPECT_FALSE(*dealers[i]->Receive(m, 0)) << "and nothing else";
  }
}

TEST_F(ZmqChannelTest, ListensOnIpv6AndOnNames) {
  for (const char* host : {"127.0.0.1", "localhost", "[::1]", "*"}) {
    SCOPED_TRACE(host);
    auto router = Router::Bind(context_, fmt::format("tcp://{}:*", host));
    if (!router.ok() && host[0] == '[') continue;  // a machine without IPv6
    ASSERT_TRUE(router.ok()) << router.status();
    router_ = *std::move(router);
    const std::string port = router_->endpoint().substr(router_->endpoint().rfind(':'));
    const std::string to = host[0] == '*' ? "localhost" : host;
    auto dealer = Dealer::Connect(context_, fmt::format("tcp://{}{}", to, port));
    ASSERT_TRUE(dealer.ok()) << dealer.status();
    Greet(**dealer);
  }
}

TEST_F(ZmqChannelTest, PeersThatLeaveAreNoticed) {
  auto stays = Connect(), leaves = Connect();
  const PeerId first = Greet(*stays), second = Greet(*leaves);
  leaves.reset();
  EXPECT_TRUE(WaitGone(second));
  // The socket itself may learn of it a moment after its monitor.
  Incoming m;
  const Nanos until = MonotonicNow() + kPatience;
  while (!absl::IsUnavailable(router_->Send(second, AsBytes("x"))) && MonotonicNow() < until)
    router_->Receive(m);
  EXPECT_EQ(router_->Send(second, AsBytes("x")).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(router_->Send(first, AsBytes("x")).ok());
  EXPECT_EQ(router_->Send(0x7fffffff, AsBytes("x")).code(), absl::StatusCode::kUnavailable)
      << "one that never was";
}

TEST_F(ZmqChannelTest, AServerThatLeavesIsNoticedAfterItsLastWords) {
  auto dealer = Connect();
  const PeerId peer = Greet(*dealer);
  EXPECT_TRUE(router_->Send(peer, AsBytes("last words")).ok());
  ClientChannel::Message m;
  ASSERT_TRUE(*dealer->Receive(m, kPatience));
  EXPECT_EQ(m.head, "last words");
  router_.reset();
  const auto got = dealer->Receive(m, kPatience);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kUnavailable) << got.status();
  EXPECT_EQ(dealer->Send(AsBytes("x")).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ZmqChannelTest, NobodyAnswers) {
  auto dealer = Dealer::Connect(context_, "ipc://" + directory_ + "/none");
  ASSERT_TRUE(dealer.ok());
  ClientChannel::Message m;
  EXPECT_EQ((*dealer)->Receive(m, kPatience).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ZmqChannelTest, ASlowReaderIsToldOfAndTheOthersGoOn) {
  // Heartbeats do not pass unread messages, so the connection would be lost after a while.
  const ZmqOptions patient{.heartbeat = 60 * kSecond,
                           .heartbeat_timeout = 120 * kSecond,
                           .heartbeat_ttl = 120 * kSecond};
  auto router = Router::Bind(context_, "ipc://" + directory_ + "/patient", patient);
  ASSERT_TRUE(router.ok()) << router.status();
  router_ = *std::move(router);
  auto slow = Connect(patient), quick = Connect(patient);
  const PeerId to_slow = Greet(*slow), to_quick = Greet(*quick);
  const std::string large(64 << 10, 'x');
  Status status;
  int sent = 0;
  for (; sent < 100'000 && status.ok(); ++sent) status = router_->Send(to_slow, AsBytes(large));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << "after " << sent;
  EXPECT_TRUE(router_->Send(to_quick, AsBytes("x")).ok());
  ClientChannel::Message m;
  ASSERT_TRUE(*quick->Receive(m, kPatience));
  // All accepted messages arrive when it reads, and no refused ones.
  for (int i = 0; i < sent - 1; ++i) ASSERT_TRUE(*slow->Receive(m, kPatience)) << i;
  EXPECT_FALSE(*slow->Receive(m, 0));
}

// Such a connection must not make libzmq send a heartbeat.
TEST_F(ZmqChannelTest, PeersThatFloodAndLeave) {
  for (int i = 0; i < 3; ++i) {
    void* context = zmq_ctx_new();
    void* socket = zmq_socket(context, ZMQ_DEALER);
    const int none = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof(none));
    ASSERT_EQ(zmq_connect(socket, router_->endpoint().c_str()), 0);
    const std::string message(1000, 'x');
    const Nanos until = MonotonicNow() + 300 * kMillisecond;
    while (MonotonicNow() < until) zmq_send(socket, message.data(), message.size(), ZMQ_DONTWAIT);
    zmq_close(socket);
    zmq_ctx_term(context);
  }
  PollReadable({}, kSecond);
  int came = 0;
  Incoming m;
  for (const Nanos until = MonotonicNow() + kPatience; came < 3000 && MonotonicNow() < until;)
    came += router_->Receive(m);
  EXPECT_EQ(came, 3000) << "what the queue of each holds, at least";
  auto dealer = Connect();
  EXPECT_TRUE(dealer->Send(AsBytes("after")).ok());
  while (Text(Next().head) != "after") {
  }
}

TEST_F(ZmqChannelTest, APeerIsDropped) {
  auto dropped = Connect(), stays = Connect();
  const PeerId first = Greet(*dropped), second = Greet(*stays);
  router_->Drop(first);
  ClientChannel::Message m;
  EXPECT_EQ(dropped->Receive(m, kPatience).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(WaitGone(first));
  EXPECT_TRUE(router_->Send(second, AsBytes("x")).ok());
  EXPECT_TRUE(*stays->Receive(m, kPatience));
}

// Over tcp ZeroMQ holds the frames of a message until the last one arrives.
TEST_F(ZmqChannelTest, AMessageWithoutEndIsCutOff) {
  auto router = Router::Bind(context_, "tcp://127.0.0.1:*");
  ASSERT_TRUE(router.ok()) << router.status();
  router_ = *std::move(router);
  EXPECT_EQ(router_->LookAgain(), kNever) << "no one is there";
  const std::unique_ptr<Dealer> usual = Connect();
  const PeerId known = Greet(*usual);
  EXPECT_LT(router_->LookAgain(), kSecond);
  SocketPeer endless(AF_INET);
  ASSERT_NO_FATAL_FAILURE(endless.Connect(router_->endpoint()));
  std::atomic<int> sent{0};
  std::thread thread([&] {
    const std::string part(kMaxFrameBytes, 'a');
    for (; sent < 4096 && endless.SendPart(part); ++sent) usleep(5000);
  });
  // Meanwhile messages of the usual size arrive complete: in total more bytes than the bound.
  const std::string frame(kMaxFrameBytes, 'b');
  std::vector<PeerId> gone, left;
  for (int i = 0; i < 64; ++i) {
    EXPECT_TRUE(usual->Send(AsBytes(frame), AsBytes(frame)).ok());
    const Incoming m = Next();
    EXPECT_EQ(m.peer, known);
    router_->TakeGone(gone);
    left.insert(left.end(), gone.begin(), gone.end());
  }
  for (const Nanos until = MonotonicNow() + kPatience; MonotonicNow() < until && !endless.Lost();) {
    router_->TakeGone(gone);
    left.insert(left.end(), gone.begin(), gone.end());
    PollReadable({}, 20 * kMillisecond);
  }
  EXPECT_TRUE(endless.Lost());
  thread.join();
  EXPECT_LT(sent, 512) << "MiB";
  EXPECT_TRUE(left.empty()) << "the usual one stays";
  Greet(*usual, "still served");
}

// Another user's process, which may enter the directory and open the socket.
TEST_F(ZmqChannelTest, OtherUsersAreTurnedAwayWhereOnlyOnesOwnMayCome) {
  if (getuid() != 0) GTEST_SKIP() << "only root becomes another user";
  std::filesystem::permissions(directory_, std::filesystem::perms::all);
  for (const bool own_user_only : {false, true}) {
    const std::string path = fmt::format("{}/{}", directory_, own_user_only);
    auto router = Router::Bind(context_, "ipc://" + path, {.own_user_only = own_user_only});
    ASSERT_TRUE(router.ok()) << router.status();
    router_ = *std::move(router);
    std::filesystem::permissions(path, std::filesystem::perms::all);
    const pid_t child = fork();
    if (child == 0) {  // speaks ZeroMQ's greeting, and reports the end of the connection
      sockaddr_un address{.sun_family = AF_UNIX};
      path.copy(address.sun_path, sizeof(address.sun_path) - 1);
      const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
      char byte;
      const bool there = setuid(65534) == 0 &&
                         connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
      _exit(!there ? 2 : read(fd, &byte, 1) == 1 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), own_user_only ? 1 : 0);
    const std::unique_ptr<Dealer> own = Connect();
    Greet(*own);
  }
}

TEST_F(ZmqChannelTest, ConnectionsThatSayNothingAreShutDown) {
  auto router =
      Router::Bind(context_, "ipc://" + directory_ + "/curt", {.silence = 200 * kMillisecond});
  ASSERT_TRUE(router.ok()) << router.status();
  router_ = *std::move(router);
  auto speaks = Connect(), silent = Connect();
  const PeerId peer = Greet(*speaks);
  ClientChannel::Message m;
  std::vector<PeerId> gone;
  Status status;
  for (const Nanos until = MonotonicNow() + kPatience; status.ok() && MonotonicNow() < until;) {
    router_->TakeGone(gone);
    EXPECT_TRUE(gone.empty());
    status = silent->Receive(m, 10 * kMillisecond).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(router_->Send(peer, AsBytes("x")).ok());
  EXPECT_TRUE(*speaks->Receive(m, kPatience));
}

// Descriptors are reused: the end of one connection is not attributed to another one.
TEST_F(ZmqChannelTest, PeersThatComeAndGoAreNotMixedUp) {
  std::vector<PeerId> gone;
  for (int i = 0; i < 100; ++i) {
    Connect()->Receive(*std::make_unique<ClientChannel::Message>(), kMillisecond).IgnoreError();
    auto dealer = Connect();
    const PeerId peer = Greet(*dealer, "one");
    router_->TakeGone(gone);
    EXPECT_EQ(std::count(gone.begin(), gone.end(), peer), 0) << i;
    Greet(*dealer, "two");
    dealer.reset();
    ASSERT_TRUE(WaitGone(peer)) << i;
  }
}

// Returns the descriptors of connections that were accepted at an endpoint, in this process.
std::set<int> AcceptedAt(const std::string& endpoint) {
  std::set<int> out;
  for (int fd = 0; fd < 256; ++fd) {
    sockaddr_un address{};
    socklen_t size = sizeof(address) - 1;
    int listens = 1;
    socklen_t of_listens = sizeof(listens);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        endpoint != std::string("ipc://") + address.sun_path)
      continue;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &of_listens) == 0 && !listens)
      out.insert(fd);
  }
  return out;
}

// A peer that gets the descriptor of a peer that left is not dropped or reported as gone, while
// messages of the latter wait.
TEST_F(ZmqChannelTest, WhoLeftIsNotTakenForWhoCame) {
  const Nanos while_it_arrives = 50 * kMillisecond;
  const auto wait_for = [&](size_t accepted) {
    for (const Nanos until = MonotonicNow() + kPatience;
         AcceptedAt(router_->endpoint()).size() != accepted;) {
      ASSERT_LT(MonotonicNow(), until);
      PollReadable({}, kMillisecond);
    }
  };
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const bool left_was_met = i & 1, came_speaks = i & 2;
    SocketPeer leaves, came;
    leaves.Connect(router_->endpoint());
    wait_for(1);
    const std::set<int> descriptor = AcceptedAt(router_->endpoint());
    if (left_was_met) {
      leaves.Send("leaves");
      ASSERT_EQ(Text(Next().head), "leaves");
    }
    for (int k = 0; k < 20; ++k) leaves.Send("leaves");
    PollReadable({}, while_it_arrives);
    leaves.Leave();
    wait_for(0);
    came.Connect(router_->endpoint());
    wait_for(1);
    ASSERT_EQ(AcceptedAt(router_->endpoint()), descriptor);
    for (int k = 0; came_speaks && k < 20; ++k) came.Send("came");
    PollReadable({}, while_it_arrives);
    came.Send("greeting");
    std::vector<PeerId> gone, now;
    PeerId peer = 0;
    for (int messages = 20 + (came_speaks ? 20 : 0) + 1; messages > 0; --messages) {
      const Incoming m = Next();
      ASSERT_FALSE(m.head.empty());
      if (Text(m.head) == "leaves")
        router_->Drop(m.peer);
      else
        peer = m.peer;
      router_->TakeGone(now);
      gone.insert(gone.end(), now.begin(), now.end());
    }
    EXPECT_EQ(std::count(gone.begin(), gone.end(), peer), 0);
    EXPECT_TRUE(router_->Send(peer, AsBytes("x")).ok());
    PollReadable({}, while_it_arrives);
    EXPECT_FALSE(came.Lost());
    // A Drop of this peer itself takes effect when no message waits.
    Incoming none;
    EXPECT_FALSE(router_->Receive(none));
    router_->Drop(peer);
    if (!came.Lost()) came.Send("more");
    EXPECT_TRUE(WaitGone(peer));
    EXPECT_TRUE(came.Lost());
    wait_for(0);
  }
}

TEST_F(ZmqChannelTest, WhatNoClientSendsIsDropped) {
  {
    RawPeer raw(router_->endpoint());
    raw.Send({"head", "bulk", "third"});
    raw.Send(std::vector<std::string>(9, "frame"));
    raw.Send(std::vector<std::string>(1000, ""));
    raw.Send({"head", "bulk"});
    const Incoming good = Next();
    EXPECT_EQ(Text(good.head), "head");
    EXPECT_EQ(Text(good.bulk), "bulk");
  }
  {
    // A name that a peer chooses could be another's.
    RawPeer named(router_->endpoint(), "me");
    named.Send({"from a name"});
    RawPeer after(router_->endpoint());
    after.Send({"after"});
    EXPECT_EQ(Text(Next().head), "after");
  }
  {
    // A frame over the limit ends its connection.
    RawPeer large(router_->endpoint());
    large.Send({std::string(kMaxFrameBytes, 'a')});
    const Incoming m = Next();
    EXPECT_EQ(m.head.size(), kMaxFrameBytes);
    const PeerId peer = m.peer;
    large.Send({std::string(kMaxFrameBytes + 1, 'a')});
    EXPECT_TRUE(WaitGone(peer));
  }
  auto dealer = Connect();
  Greet(*dealer, "still served");
}

TEST_F(ZmqChannelTest, AnEndpointInUseIsRefusedAndAStaleOneTaken) {
  const std::string endpoint = router_->endpoint();
  EXPECT_EQ(Router::Bind(context_, endpoint).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(Router::Bind(context_, "ipc:///nowhere/at/all").ok());
}

}  // namespace
}  // namespace opwire
