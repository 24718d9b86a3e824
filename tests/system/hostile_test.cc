// Any bytes on any socket or ring, clients that do not read, floods of connections: the executor
// and the registry continue, and so do their other clients. --messages sets their number.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "ir/wire/ring.h"
#include "ir/wire/zmq_channel.h"
#include "tests/seed.h"
#include "tests/system/processes.h"

namespace opwire::client {
namespace {

class HostileTest : public SystemTest {
 protected:
  HostileTest()
      : trace_(__FILE__, __LINE__, testing::Message() << "repeat with OPWIRE_SEED=" << Seed()),
        random_(Seed()) {}

  void Begin(std::vector<std::string> flags = {}) {
    registry_ = StartRegistry();
    executor_ = StartExecutor("e1", std::move(flags));
    auto session = good_.Open();
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    auto twice = session_.Load(kTwice);
    ASSERT_TRUE(twice.ok()) << twice.status();
    twice_ = *std::move(twice);
  }
  // Both processes live, answer new clients, and the good client's session is unchanged.
  void StillWorks() {
    ASSERT_TRUE(Alive(executor_)) << "the executor died";
    ASSERT_TRUE(Alive(registry_)) << "the registry died";
    auto y = twice_.Call({Values({1, 2})});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ((*y)[0].values<float>()[1], 4);
    Client fresh = Connect("fresh");
    ASSERT_OK_AND(Session session, fresh.Open());
    ASSERT_OK_AND(Program twice, session.Load(kTwice));
    ASSERT_TRUE(twice.Call({Values({1})}).ok());
  }

  // Returns requests as a client would send them, for later damage.
  std::vector<std::string> RealRequests(const Spoken& s) {
    std::vector<std::string> out;
    const auto add = [&](auto body) {
      out.push_back(EncodeRequest(random_() % 20 ? seq_ : random_() % 3, std::move(body)));
    };
    const auto id = [&] { return std::make_unique<fb::TensorId>(s.attachment, 0, random_() % 4); };
    fb::HelloT hello;
    hello.major = kProtocolMajor;
    hello.session = "hostile";
    hello.token = s.token;
    add(hello);
    fb::CancelT cancel;
    cancel.token = s.token;
    cancel.seq = 1;
    add(cancel);
    fb::InfoT info;
    info.topic = "explain";
    info.argument = "matmul";
    add(info);
    fb::WriteChunkT write;
    write.ticket = random_();
    add(write);
    fb::ReadChunkT read;
    read.size = 100;
    add(read);
    add(fb::CloseTransferT());
    fb::PutT put;
    put.id = id();
    put.type = std::make_unique<fb::TensorTypeT>();
    put.type->dtype = 2;
    put.type->shape = {static_cast<int64_t>(random_() % 5)};
    put.bytes_follow = random_() % 2;
    add(std::move(put));
    fb::GetT get;
    get.id = id();
    add(std::move(get));
    fb::CopyT copy;
    copy.from = id();
    copy.to = id();
    add(std::move(copy));
    fb::PrintT print;
    print.id = id();
    add(std::move(print));
    add(fb::ListT());
    fb::SealT seal;
    seal.id = id();
    add(std::move(seal));
    fb::RunT run;
    run.slot = random_() % 2;
    run.bindings.emplace_back(static_cast<fb::BindingKind>(random_() % 5), random_() % 17,
                              random_() % 4, 0, s.attachment, random_() % 16, random_() % 64);
    run.results.emplace_back(static_cast<fb::ResultKind>(random_() % 4), 0, random_() % 5);
    run.shapes.assign(random_() % 4, static_cast<int64_t>(random_() % 5));
    run.payload.resize(random_() % 64);
    fb::BatchT batch;
    batch.runs.push_back(std::make_unique<fb::RunT>(run));
    add(std::move(run));
    add(std::move(batch));
    add(fb::PutProgramT());
    fb::SaveT save;
    save.id = id();
    save.path = "../x";
    add(std::move(save));
    fb::QueryT query;
    query.op = "add";
    add(query);
    add(fb::WatchT());
    fb::RegisterT reg;
    reg.claim.resize(16);
    reg.info = std::make_unique<fb::ExecutorInfoT>();
    reg.info->id = "zz" + std::to_string(random_() % 8);
    reg.info->control_endpoint = "ipc:///nowhere";
    reg.info->device = "not-a-device";
    add(std::move(reg));
    return out;
  }
  std::string RandomBytes(size_t most) {
    std::string s(random_() % (most + 1), '\0');
    for (char& c : s) c = static_cast<char>(random_());
    return s;
  }
  std::string RandomMessage(const Spoken& s) {
    switch (random_() % 8) {
      case 0:
        return RandomBytes(300);
      case 1:
        return random_() % 50 ? RandomBytes(4000) : RandomBytes(kMaxFrameBytes);
      default:
        break;
    }
    const auto real = RealRequests(s);
    ++seq_;
    std::string m = real[random_() % real.size()];
    switch (random_() % 5) {
      case 0:
      case 1:
        break;  // in the wrong place, order or state
      case 2:
        m.resize(random_() % m.size());
        break;
      default:
        for (uint64_t flips = 1 + random_() % 5; flips > 0; --flips)
          m[random_() % m.size()] ^= static_cast<char>(1 << random_() % 8);
    }
    return m;
  }
  std::string RandomBulk() {
    if (random_() % 3) return "";
    if (random_() % 2) return RandomBytes(300);
    std::string program = program_;
    for (uint64_t flips = random_() % 4; flips > 0; --flips)
      program[random_() % program.size()] ^= static_cast<char>(1 << random_() % 8);
    return program;
  }

  // Requests that are in order reach further: the executor's error names the number that it
  // expects.
  void Learn(const ClientChannel::Message& m) {
    AlignedBytes memory;
    auto reply = DecodeReply(AsBytes(m.head), memory);
    ASSERT_TRUE(reply.ok()) << "what it sends is a message: " << reply.status();
    ++answered_;
    --awaited_;
    const std::string text = MessageOf(StatusOf(**reply)), expected = "expected request ";
    if (const size_t at = text.find(expected); at != std::string::npos)
      seq_ = std::strtoull(text.c_str() + at + expected.size(), nullptr, 10);
    else if ((*reply)->code() == 0)
      ++accepted_;
  }
  // Reads some of the received messages; false if the connection is lost.
  bool ReadSome(ClientChannel& channel, Nanos timeout) {
    ClientChannel::Message m;
    auto came = channel.Receive(m, timeout);
    while (came.ok() && *came) {
      Learn(m);
      if (timeout == 0 && random_() % 10 == 0) return true;  // sometimes the rest stays unread
      came = channel.Receive(m, awaited_ > 0 ? timeout : 0);
    }
    if (timeout > 0) awaited_ = 0;  // not every message has an answer
    return came.ok();
  }
  // Sometimes waits for all answers, and so learns the next number.
  bool Exchange(ClientChannel& channel, int i, const Spoken& s) {
    const Status sent = channel.Send(AsBytes(RandomMessage(s)), AsBytes(RandomBulk()));
    awaited_ += sent.ok();
    return ReadSome(channel, i % 2 == 0 || !sent.ok() ? 20 * kMillisecond : 0);
  }

  // Floods one socket. If the other side closes the connection, opens it again.
  void Flood(const std::string& endpoint, const Spoken& s, bool attach) {
    std::unique_ptr<Dealer> dealer;
    for (int i = 0; i < system_options.messages; ++i) {
      if (!dealer || random_() % 200 == 0) {
        auto made = Dealer::Connect(context_, endpoint);
        ASSERT_TRUE(made.ok()) << made.status();
        dealer = *std::move(made);
        if (attach) (void)dealer->Send(AsBytes(AttachBytes(s)));
      }
      if (!Exchange(*dealer, i, s)) dealer.reset();
      if (i % 1000 == 999) StillWorks();
      if (HasFatalFailure()) return;
    }
    StillWorks();
    Count();
  }
  void Count() {
    EXPECT_GT(accepted_, 20) << "the flood reached nothing";
    std::printf("%d random messages: %d answers read, %d of them no refusal\n",
                system_options.messages, answered_, accepted_);
  }

  uint64_t seq_ = 1;
  int answered_ = 0, accepted_ = 0, awaited_ = 0;
  const testing::ScopedTrace trace_;
  std::mt19937_64 random_;
  const std::string program_ = Serialise(*Parse(kTwice, "twice.opw"));
  Client good_ = Connect("good");
  Session session_;
  Program twice_;
  pid_t registry_ = -1, executor_ = -1;
};

TEST_F(HostileTest, TheRunSocket) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  const Spoken s = SayHello(ControlEndpoint("e1"));
  Flood(s.run_endpoint, s, true);
}

TEST_F(HostileTest, TheControlSocket) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  Flood(ControlEndpoint("e1"), SayHello(ControlEndpoint("e1")), false);
}

TEST_F(HostileTest, TheRegistrySocket) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  Flood("ipc://" + directory_ + "/registry", SayHello(ControlEndpoint("e1")), false);
}

TEST_F(HostileTest, TheRing) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  const Spoken s = SayHello(ControlEndpoint("e1"));
  RingToken token;
  std::copy(s.token.begin(), s.token.end(), token.begin());
  std::unique_ptr<RingChannel> ring;
  for (int i = 0; i < system_options.messages; ++i) {
    if (!ring || random_() % 200 == 0) {
      auto made = RingChannel::Connect(s.ring_path, token);
      ASSERT_TRUE(made.ok()) << made.status();
      ring = *std::move(made);
      (void)ring->Send(AsBytes(AttachBytes(s)));
    }
    if (!Exchange(*ring, i, s)) ring.reset();
  }
  StillWorks();
  Count();
}

// A client that writes what only the executor should write: positions, lengths, flags, and the
// session's memory.
TEST_F(HostileTest, TheMemoryOfTheRing) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  const Spoken s = SayHello(ControlEndpoint("e1"));
  for (int round = 0; round < std::max(10, system_options.messages / 100); ++round) {
    const OwnedFd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    s.ring_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(
        connect(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(send(socket_fd.get(), s.token.data(), s.token.size(), MSG_NOSIGNAL), 16);
    int64_t segment_bytes = 0;
    iovec io{&segment_bytes, sizeof(segment_bytes)};
    int fds[4];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ASSERT_GT(recvmsg(socket_fd.get(), &message, MSG_CMSG_CLOEXEC), 0);
    std::memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fds));
    const OwnedFd memory(fds[0]), wake_server(fds[1]), wake_client(fds[2]), segment(fds[3]);
    // Sealed: a client cannot truncate it under the executor.
    EXPECT_NE(ftruncate(memory.get(), 0), 0);
    EXPECT_NE(ftruncate(segment.get(), 0), 0);
    const off_t size = lseek(memory.get(), 0, SEEK_END);
    auto* base = static_cast<uint8_t*>(mmap(nullptr, static_cast<size_t>(size),
                                            PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0));
    ASSERT_NE(base, MAP_FAILED);
    for (int i = 0; i < 200; ++i) {
      const size_t at =
          random_() % 3 ? random_() % 16384 : random_() % static_cast<size_t>(size - 8);
      const uint64_t value = random_() % 2 ? random_() : random_() % 4096;
      std::memcpy(base + at, &value, sizeof(value));
      const uint64_t one = 1;
      ASSERT_EQ(write(wake_server.get(), &one, sizeof(one)), 8);
    }
    munmap(base, static_cast<size_t>(size));
  }
  StillWorks();
}

// Bytes that are neither ZeroMQ nor a token.
TEST_F(HostileTest, RawBytesOnEverySocket) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  const Spoken s = SayHello(ControlEndpoint("e1"));
  for (const std::string& path :
       {directory_ + "/registry", directory_ + "/e1.ctl", directory_ + "/e1.run", s.ring_path}) {
    for (int i = 0; i < std::max(20, system_options.messages / 50); ++i) {
      const OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      path.copy(address.sun_path, sizeof(address.sun_path) - 1);
      ASSERT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0)
          << path;
      std::string bytes = RandomBytes(2000);
      // The greeting of the protocol, then random bytes: for example, a frame of 2 GiB.
      if (random_() % 2)
        bytes = std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 16) + std::string(48, '\0') + bytes;
      (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
  StillWorks();
}

TEST_F(HostileTest, AClientThatNeverReads) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  for (const bool ring : {false, true}) {
    const Spoken s = SayHello(ControlEndpoint("e1"));
    std::unique_ptr<ClientChannel> channel;
    RingToken token;
    std::copy(s.token.begin(), s.token.end(), token.begin());
    if (ring)
      channel = *RingChannel::Connect(s.ring_path, token);
    else
      channel = *Dealer::Connect(context_, s.run_endpoint);
    ASSERT_OK(channel->Send(AsBytes(AttachBytes(s))));
    fb::PutT put;
    put.id = std::make_unique<fb::TensorId>(s.attachment, 0, 1);
    put.type = std::make_unique<fb::TensorTypeT>();
    put.type->dtype = static_cast<uint8_t>(DType::kU8);
    put.type->shape = {static_cast<int64_t>(kInlineBytes)};
    put.bytes_follow = true;
    ASSERT_OK(channel->Send(AsBytes(EncodeRequest(1, std::move(put))),
                            AsBytes(std::string(kInlineBytes, 'x'))));
    fb::GetT get;
    get.id = std::make_unique<fb::TensorId>(s.attachment, 0, 1);
    int refused = 0;
    for (uint64_t seq = 2; seq < 5000 && refused < 200; ++seq) {
      fb::GetT again;
      again.id = std::make_unique<fb::TensorId>(*get.id);
      if (!channel->Send(AsBytes(EncodeRequest(seq, std::move(again)))).ok()) {
        ++refused;
        PollReadable({}, kMillisecond);
      }
    }
    StillWorks();
  }
}

// As fast as the sockets accept them; the clients disappear in the middle.
TEST_F(HostileTest, FloodsOnEverySocket) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  const Spoken s = SayHello(ControlEndpoint("e1"));
  fb::InfoT info;
  info.topic = "report";
  fb::QueryT query;
  query.with_ops = true;
  fb::FlushT flush;
  const std::pair<std::string, std::string> floods[] = {
      {s.run_endpoint, EncodeRequest(1, flush)},
      {s.run_endpoint, std::string(100'000, 'x')},
      {ControlEndpoint("e1"), EncodeRequest(1, info)},
      {ControlEndpoint("e1"), std::string(1000, 'x')},
      {"ipc://" + directory_ + "/registry", EncodeRequest(1, query)},
      {"ipc://" + directory_ + "/registry", std::string(1000, 'x')}};
  for (const auto& [endpoint, message] : floods) {
    for (const bool attached : {false, true}) {
      auto dealer = *Dealer::Connect(context_, endpoint);
      if (attached) ASSERT_OK(dealer->Send(AsBytes(AttachBytes(s))));
      const Nanos begun = MonotonicNow();
      int sent = 0;
      while (MonotonicNow() < begun + 200 * kMillisecond ||
             (sent <= 300 && MonotonicNow() < begun + 20 * kSecond))
        sent += dealer->Send(AsBytes(message)).ok();
      EXPECT_GT(sent, 300) << "of " << message.size() << " bytes to " << endpoint
                           << (attached ? ", attached: " : ": ") << dealer->Send(AsBytes(message));
    }
    StillWorks();
  }
}

TEST_F(HostileTest, ConnectionsWithoutEnd) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  const Spoken s = SayHello(ControlEndpoint("e1"));
  std::vector<OwnedFd> held;
  for (const std::string& path :
       {directory_ + "/registry", directory_ + "/e1.ctl", directory_ + "/e1.run", s.ring_path}) {
    SCOPED_TRACE(path);
    for (int i = 0; i < 800; ++i) {
      OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ASSERT_GE(fd.get(), 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      path.copy(address.sun_path, sizeof(address.sun_path) - 1);
      if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
        PollReadable({}, kMillisecond);
      // Half of them have a right token: each gets a ring, and does not use it.
      if (path == s.ring_path && i % 2)
        (void)!send(fd.get(), s.token.data(), s.token.size(), MSG_NOSIGNAL);
      held.push_back(std::move(fd));
    }
    // The existing client continues.
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(twice_.Call({Values({1})}).ok());
  }
  // No process spins on connections that it cannot accept.
  Eventually([] { return false; },
             3 * kSecond);  // longer than the time limit for silent connections
  const double before = ProcessorSeconds(executor_), registry_before = ProcessorSeconds(registry_);
  Eventually([] { return false; }, 2 * kSecond);
  EXPECT_LT(ProcessorSeconds(executor_) - before, 1.0) << "of 2 s of idle time";
  EXPECT_LT(ProcessorSeconds(registry_) - registry_before, 1.0) << "of 2 s of idle time";
  held.clear();
  EXPECT_TRUE(Eventually([&] {
    Client fresh = Connect("fresh");
    auto session = fresh.Open();
    return session.ok() && session->on_ring();
  }));
  StillWorks();
}

// With a limit that leaves few descriptors to each part. Connections take all of them.
TEST_F(HostileTest, FewDescriptors) {
  EXPECT_EQ(Wait(Start({"/bin/bash", "-c", "ulimit -n 200 && exec " OPWIRE_EXECUTOR})), 1);
  EXPECT_EQ(Wait(Start({"/bin/bash", "-c", "ulimit -n 200 && exec " OPWIRE_REGISTRY_PROGRAM})), 1);
  Start({"/bin/bash", "-c", "ulimit -n 300 && exec " OPWIRE_REGISTRY_PROGRAM " --beat-ms 100"});
  const pid_t executor =
      Start({"/bin/bash", "-c", "ulimit -n 300 && exec " OPWIRE_EXECUTOR " --name e1"});
  ASSERT_TRUE(Eventually([&] { return Registered().contains("e1"); }));
  std::vector<OwnedFd> held;
  const auto hold = [&](const std::string& path, const std::vector<uint8_t>& token) {
    OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      PollReadable({}, kMillisecond);
    (void)!send(fd.get(), token.data(), token.size(), MSG_NOSIGNAL);
    held.push_back(std::move(fd));
  };
  for (int i = 0; i < 15; ++i) {
    fb::HelloT hello;
    hello.session = "s" + std::to_string(i);
    const Spoken s = SayHello(ControlEndpoint("e1"), std::move(hello));
    for (int k = 0; k < 20; ++k) hold(s.ring_path, s.token);
  }
  for (const char* name : {"/registry", "/e1.ctl", "/e1.run"}) {
    for (int i = 0; i < 400; ++i) hold(directory_ + name, {});
  }
  EXPECT_TRUE(Alive(executor));
  held.clear();
  EXPECT_TRUE(Eventually([&] {
    Client fresh = Connect("fresh");
    auto session = fresh.Open();
    if (!session.ok()) return false;
    auto twice = session->Load(kTwice);
    return twice.ok() && twice->Call({Values({1})}).ok();
  }));
}

// While the ring's door is crowded, a new client is served without a ring.
TEST_F(HostileTest, ACrowdedDoorKeepsNobodyOut) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  const Spoken s = SayHello(ControlEndpoint("e1"));
  std::vector<OwnedFd> held;
  for (int i = 0; i < 800; ++i) {
    OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    s.ring_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      PollReadable({}, kMillisecond);
    (void)!send(fd.get(), s.token.data(), s.token.size(), MSG_NOSIGNAL);
    held.push_back(std::move(fd));
  }
  StillWorks();
  const double before = ProcessorSeconds(executor_);
  Eventually([] { return false; }, 2 * kSecond);
  EXPECT_LT(ProcessorSeconds(executor_) - before, 1.0) << "of 2 s of idle time";
}

}  // namespace
}  // namespace opwire::client
