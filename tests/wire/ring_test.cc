// Rings: records of all sizes, and a peer that writes any bytes, dies, or sleeps.
#include "ir/wire/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <random>
#include <thread>

#include "ir/wire/message.h"
#include "tests/seed.h"

namespace opwire {
namespace {

constexpr size_t kCapacity = 4 << 20;  // of one direction
constexpr size_t kControl = 4096;      // of one direction's control words, both before the data

OwnedFd Duplicate(int fd) { return OwnedFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

class RingTest : public ::testing::Test {
 protected:
  RingTest() { Open(); }
  ~RingTest() override { Unmap(); }
  void Open() {
    Unmap();
    client_.reset();
    auto server = RingEnd::Create();
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const RingEnd::Handles h = server_->handles();
    auto client =
        RingEnd::Open(Duplicate(h.memory), Duplicate(h.wake_server), Duplicate(h.wake_client));
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    shared_ = static_cast<uint8_t*>(
        mmap(nullptr, 2 * (kControl + kCapacity), PROT_READ | PROT_WRITE, MAP_SHARED, h.memory, 0));
    ASSERT_NE(shared_, MAP_FAILED);
  }
  void Unmap() {
    if (shared_) munmap(shared_, 2 * (kControl + kCapacity));
    shared_ = nullptr;
  }
  // Sets words and records of the direction to the server, as a hostile client can reach them.
  void SetWritten(uint64_t value) { std::memcpy(shared_, &value, sizeof(value)); }
  void SetRecord(uint32_t head, uint32_t bulk) {
    std::memcpy(shared_ + 2 * kControl, &head, sizeof(head));
    std::memcpy(shared_ + 2 * kControl + 4, &bulk, sizeof(bulk));
  }
  // Sets the position that the reader of the server's replies claims to have read.
  void SetRead(uint64_t value) { std::memcpy(shared_ + kControl + 64, &value, sizeof(value)); }

  std::unique_ptr<RingEnd> server_, client_;
  uint8_t* shared_ = nullptr;
  std::string head_, bulk_;
};

TEST_F(RingTest, AWriterOutlivesTheReaderThatItWouldWake) {
  ASSERT_TRUE(server_->Park());
  server_.reset();
  EXPECT_TRUE(client_->Write(AsBytes(std::string("anybody?")), {}).ok());
  sigset_t pending;
  sigpending(&pending);
  EXPECT_FALSE(sigismember(&pending, SIGPIPE));
}

TEST_F(RingTest, RecordsOfAllSizesInOrderAcrossTheWrap) {
  const uint64_t seed = Seed();
  OPWIRE_TRACE_SEED();
  std::mt19937_64 rng(seed);
  std::deque<std::pair<std::string, std::string>> in_flight;
  const auto random = [&] {
    const uint64_t most = rng() % 4 == 0 ? kMaxFrameBytes : 300;
    std::string s(rng() % (most + 1), '\0');
    for (size_t i = 0; i < s.size(); i += 97) s[i] = static_cast<char>(rng());
    return s;
  };
  uint64_t total = 0;
  for (int full = 0; total < 64 << 20 || full == 0;) {
    std::pair<std::string, std::string> record = {random(), random()};
    const Status written = client_->Write(AsBytes(record.first), AsBytes(record.second));
    if (written.ok()) {
      total += record.first.size() + record.second.size();
      in_flight.push_back(std::move(record));
      if (rng() % 2) continue;
    } else {
      ASSERT_EQ(written.code(), absl::StatusCode::kResourceExhausted) << written;
      ASSERT_FALSE(in_flight.empty());
      ++full;
    }
    for (uint64_t n = rng() % (in_flight.size() + 1); n > 0; --n) {
      const auto got = server_->Read(head_, bulk_);
      ASSERT_TRUE(got.ok() && *got) << got.status();
      ASSERT_TRUE(head_ == in_flight.front().first && bulk_ == in_flight.front().second);
      in_flight.pop_front();
    }
  }
}

TEST_F(RingTest, ExactlyFull) {
  // Three records of 1 MiB with their header and padding, and one that fills the rest to the last
  // byte.
  const std::string large(kMaxFrameBytes, 'x');
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_->Write(AsBytes(large), {}).ok());
  const size_t rest = kCapacity - 3 * (8 + kMaxFrameBytes) - 8;
  const std::string last(rest, 'y');
  EXPECT_EQ(client_->Write(AsBytes(last), AsBytes("1")).code(),
            absl::StatusCode::kResourceExhausted)
      << "one byte over";
  ASSERT_TRUE(client_->Write(AsBytes(last), {}).ok());
  EXPECT_EQ(client_->Write({}, {}).code(), absl::StatusCode::kResourceExhausted)
      << "nothing more, not even an empty record";
  for (int i = 0; i < 4; ++i) {
    const auto got = server_->Read(head_, bulk_);
    ASSERT_TRUE(got.ok() && *got);
    EXPECT_EQ(head_, i < 3 ? large : last);
  }
  EXPECT_FALSE(*server_->Read(head_, bulk_));
  EXPECT_TRUE(client_->Write({}, {}).ok());
  EXPECT_TRUE(*server_->Read(head_, bulk_));
  EXPECT_EQ(head_ + bulk_, "");
}

TEST_F(RingTest, FramesBeyondTheLimitAreNotWritten) {
  const std::string over(kMaxFrameBytes + 1, 'x');
  EXPECT_EQ(client_->Write(AsBytes(over), {}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(client_->Write({}, AsBytes(over)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(*server_->Read(head_, bulk_));
}

TEST_F(RingTest, NumbersThatMakeNoSenseBreakTheRingForGood) {
  struct Case {
    uint64_t written;
    uint32_t head, bulk;
  };
  const Case cases[] = {
      {kCapacity + 8, 8, 0},    // more than the ring holds
      {uint64_t{0} - 8, 0, 0},  // less than was read
      {UINT64_MAX, 0, 0},
      {8, 1, 0},  // a record longer than the written bytes
      {16, 8, 1},
      {16, UINT32_MAX, 0},
      {16, UINT32_MAX, UINT32_MAX},  // sums that would wrap in 32 bits
      {4 << 20, kMaxFrameBytes + 1, 0},
      {4 << 20, 0, kMaxFrameBytes + 1},
      {4, 0, 0},  // half a header
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.written << " " << c.head << " " << c.bulk);
    Open();
    SetRecord(c.head, c.bulk);
    SetWritten(c.written);
    EXPECT_EQ(server_->Read(head_, bulk_).status().code(), absl::StatusCode::kUnavailable);
    SetWritten(0);
    SetRecord(0, 0);
    EXPECT_EQ(server_->Read(head_, bulk_).status().code(), absl::StatusCode::kUnavailable)
        << "for good";
    EXPECT_EQ(server_->Write(AsBytes("x"), {}).code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(RingTest, AReaderThatClaimsToHaveReadTheFuture) {
  ASSERT_TRUE(server_->Write(AsBytes("x"), {}).ok());
  SetRead(1000);
  EXPECT_EQ(server_->Write(AsBytes("x"), {}).code(), absl::StatusCode::kUnavailable);
  SetRead(0);
  EXPECT_EQ(server_->Write(AsBytes("x"), {}).code(), absl::StatusCode::kUnavailable) << "for good";
}

// A peer changes a record all the time: the reader gets one of its states, or an error of a broken
// ring, and never reads beyond the bounds.
TEST_F(RingTest, BytesThatChangeWhileTheyAreRead) {
  for (int i = 0; i < 300; ++i) {
    Open();
    std::atomic<bool> begun{false}, stop{false};
    std::thread hostile([&] {
      for (uint32_t n = 0; !stop; ++n) {
        SetRecord(n % 3 == 0 ? 64 : n * 2654435761u, n % 5 == 0 ? 0 : n);
        shared_[2 * kControl + 8 + n % 64] = static_cast<uint8_t>(n);
        begun = true;
      }
    });
    while (!begun) std::this_thread::yield();
    SetWritten(72);
    const auto got = server_->Read(head_, bulk_);
    stop = true;
    hostile.join();
    if (got.ok())
      EXPECT_LE(head_.size() + bulk_.size(), 64u);
    else
      EXPECT_EQ(got.status().code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(RingTest, AParkedReaderIsWoken) {
  for (int i = 0; i < 200; ++i) {
    std::thread writer([&] { EXPECT_TRUE(client_->Write(AsBytes("wake"), {}).ok()); });
    bool got = false;
    while (!got) {
      if (server_->Park()) {
        pollfd p{server_->fd(), POLLIN, 0};
        ASSERT_GT(poll(&p, 1, 20'000), 0) << "the wake-up was lost";
      }
      server_->Unpark();
      const auto read = server_->Read(head_, bulk_);
      ASSERT_TRUE(read.ok());
      got = *read;
    }
    writer.join();
    EXPECT_EQ(head_, "wake");
  }
}

TEST_F(RingTest, MemoryThatCouldShrinkIsRefused) {
  const auto open = [&](int memory) {
    return RingEnd::Open(OwnedFd(memory), Duplicate(server_->handles().wake_server),
                         Duplicate(server_->handles().wake_client))
        .status()
        .code();
  };
  const auto make = [](size_t bytes, int seals) {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    if (seals) {
      EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    }
    return fd;
  };
  constexpr size_t kBytes = 2 * (kControl + kCapacity);
  EXPECT_EQ(open(make(kBytes, 0)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(open(make(kBytes, F_SEAL_GROW)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(open(make(kBytes - 1, F_SEAL_SHRINK | F_SEAL_GROW)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(open(make(kBytes + 1, F_SEAL_SHRINK | F_SEAL_GROW)),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(open(make(kBytes, F_SEAL_SHRINK | F_SEAL_GROW)), absl::StatusCode::kOk);
  EXPECT_EQ(open(-1), absl::StatusCode::kInvalidArgument);
}

// A server's door for one client, as the executor's host thread serves it.
class DoorTest : public ::testing::Test {
 protected:
  DoorTest() {
    char path[] = "/tmp/opwire-test-XXXXXX";
    directory_ = mkdtemp(path);
    path_ = directory_ + "/ring";
    listener_ = OwnedFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(listen(listener_.get(), 4), 0);
  }
  ~DoorTest() override { std::filesystem::remove_all(directory_); }
  std::string directory_, path_;
  OwnedFd listener_;
};

TEST_F(DoorTest, WhatWasWrittenBeforeAPeersDeathStillArrives) {
  std::thread executor([&] {
    OwnedFd client(accept(listener_.get(), nullptr, nullptr));
    RingToken token;
    EXPECT_EQ(recv(client.get(), token.data(), token.size(), MSG_WAITALL), 16);
    EXPECT_EQ(token[3], 9);
    auto end = RingEnd::Create();
    ASSERT_TRUE(end.ok());
    OwnedFd segment(memfd_create("segment", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(segment.get(), 4096), 0);
    ASSERT_TRUE(SendRing(client.get(), **end, segment.get(), 4096).ok());
    ASSERT_TRUE((*end)->Write(AsBytes("last words"), AsBytes("bulk")).ok());
  });
  RingToken token{};
  token[3] = 9;
  auto channel = RingChannel::Connect(path_, token);
  executor.join();
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ((*channel)->segment_bytes(), 4096);
  (*channel)->segment().get()[4095] = 1;
  ClientChannel::Message m;
  const auto got = (*channel)->Receive(m, kNever);
  ASSERT_TRUE(got.ok() && *got) << got.status();
  EXPECT_EQ(m.head, "last words");
  EXPECT_EQ(m.bulk, "bulk");
  EXPECT_EQ((*channel)->Receive(m, kNever).status().code(), absl::StatusCode::kUnavailable)
      << "its end is noticed";
}

TEST_F(DoorTest, WhatIsToldAllTheTimeIsWaitedForAsleep) {
  constexpr int kRecords = 1000;
  std::thread executor([&] {
    OwnedFd client(accept(listener_.get(), nullptr, nullptr));
    RingToken token;
    EXPECT_EQ(recv(client.get(), token.data(), token.size(), MSG_WAITALL), 16);
    auto end = RingEnd::Create();
    ASSERT_TRUE(end.ok());
    OwnedFd segment(memfd_create("segment", MFD_CLOEXEC));
    ASSERT_TRUE(SendRing(client.get(), **end, segment.get(), 0).ok());
    std::string head, bulk;
    while (!*(*end)->Read(head, bulk)) sched_yield();
    for (int i = 0; i < kRecords; ++i) {
      const Nanos begun = MonotonicNow();
      while (MonotonicNow() - begun < 30 * kMicrosecond) {
      }
      ASSERT_TRUE((*end)->Write(AsBytes(std::to_string(i)), {}).ok());
    }
  });
  auto channel = RingChannel::Connect(path_, {});
  ASSERT_TRUE(channel.ok()) << channel.status();
  ASSERT_TRUE((*channel)->Send(AsBytes("go on"), {}).ok());
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  for (int i = 0; i < kRecords; ++i) {
    ClientChannel::Message m;
    const auto got = (*channel)->Receive(m, kNever);
    ASSERT_TRUE(got.ok() && *got) << got.status();
    EXPECT_EQ(m.head, std::to_string(i));
    (*channel)->MayNap();
  }
  getrusage(RUSAGE_THREAD, &after);
  EXPECT_GT(after.ru_nvcsw - before.ru_nvcsw, 20) << "it looked all the time";
  executor.join();
}

TEST_F(DoorTest, DoorsThatGiveNothing) {
  std::thread executor([&] { OwnedFd client(accept(listener_.get(), nullptr, nullptr)); });
  EXPECT_EQ(RingChannel::Connect(path_, {}).status().code(), absl::StatusCode::kUnavailable);
  executor.join();
  EXPECT_EQ(RingChannel::Connect(directory_ + "/none", {}).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(RingChannel::Connect(std::string(200, 'x'), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace opwire
