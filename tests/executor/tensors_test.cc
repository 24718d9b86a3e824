// Tensors by request: transfers by chunks, names, lists, text, files below the data directory.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "ir/base/npy.h"
#include "kernels/device/host_facts.h"
#include "tests/executor/fixture.h"

namespace opwire::executor {
namespace {

namespace fs = std::filesystem;
using Floats = std::vector<float>;

class TensorsTest : public CoreTest {
 protected:
  TensorsTest() : c_(Hello()) {}
  // Returns memory that a transfer fills.
  Answer Alloc(uint64_t counter, int64_t floats) {
    return CoreTest::Alloc(c_, counter, DType::kF32, {floats});
  }
  Answer Seal(uint64_t counter) {
    fb::SealT seal;
    seal.id = IdPtr(c_, counter);
    return Ask(c_, std::move(seal));
  }
  Answer Close(uint64_t ticket) {
    fb::CloseTransferT close;
    close.ticket = ticket;
    return Control(std::move(close));
  }
  Client c_;
};

TEST_F(TensorsTest, TransfersFillAndRead) {
  const Answer a = Alloc(1, 300'000);
  ASSERT_TRUE(a.ok()) << a.status;
  const uint64_t ticket = a.tensor().ticket;
  ASSERT_NE(ticket, 0u);
  Floats values(300'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Bytes bytes{reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4};
  EXPECT_EQ(Get(c_, 1).code(), absl::StatusCode::kFailedPrecondition) << "not yet handed over";
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    ASSERT_TRUE(core_->transfers()
                    .Write(ticket, at, bytes.subspan(at, std::min(kChunkBytes, bytes.size() - at)))
                    .ok());
  }
  ASSERT_TRUE(Seal(1).ok());
  EXPECT_EQ(core_->transfers().Write(ticket, 0, bytes.first(4)).code(), absl::StatusCode::kNotFound)
      << "it ended with the seal";
  EXPECT_EQ(Seal(1).code(), absl::StatusCode::kFailedPrecondition);
  const Answer got = Get(c_, 1);
  ASSERT_TRUE(got.ok()) << got.status;
  EXPECT_TRUE(got.bulk.empty());
  std::string back;
  for (uint64_t at = 0; at < bytes.size(); at += kChunkBytes) {
    ASSERT_TRUE(
        core_->transfers()
            .Read(got.tensor().ticket, at, std::min<uint64_t>(kChunkBytes, bytes.size() - at), back)
            .ok());
  }
  EXPECT_TRUE(std::equal(back.begin(), back.end(), reinterpret_cast<const char*>(bytes.data()),
                         reinterpret_cast<const char*>(bytes.data()) + bytes.size()));
  // The bytes of a read stay unchanged, even after the tensor is freed.
  ASSERT_TRUE(Free(c_, {1}).ok());
  EXPECT_TRUE(core_->transfers().Read(got.tensor().ticket, 0, 4, back).ok());
  if (device_->info().host_memory) {  // on other devices the read has a copy
    EXPECT_GT(InUse(), 0);
  }
  EXPECT_TRUE(Close(got.tensor().ticket).ok());
  EXPECT_EQ(InUse(), 0);
}

TEST_F(TensorsTest, ChunksStayWithinTheirTransfer) {
  const uint64_t write = Alloc(1, 1000).tensor().ticket;
  Transfers& t = core_->transfers();
  const std::string four(4, 'x'), large(kChunkBytes + 1, 'x');
  EXPECT_TRUE(t.Write(write, 3996, AsBytes(four)).ok());
  for (const uint64_t at :
       {uint64_t{3997}, uint64_t{4000}, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 3}) {
    EXPECT_EQ(t.Write(write, at, AsBytes(four)).code(), kInvalid) << at;
  }
  EXPECT_EQ(t.Write(write, 0, AsBytes(large)).code(), kInvalid);
  std::string out;
  EXPECT_EQ(t.Read(write, 0, 4, out).code(), absl::StatusCode::kFailedPrecondition)
      << "one that fills cannot be read";
  EXPECT_EQ(t.Read(write + 1, 0, 4, out).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Put(c_, 2, Floats(20'000, 1)).ok());
  const uint64_t read = Get(c_, 2).tensor().ticket;
  EXPECT_EQ(t.Write(read, 0, AsBytes(four)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(t.Read(read, 80'000, 1, out).code(), kInvalid);
  EXPECT_EQ(t.Read(read, 0, UINT64_MAX, out).code(), kInvalid);
  EXPECT_TRUE(out.empty());
}

TEST_F(TensorsTest, TransfersEndWithTheirTensorAndTheirSession) {
  // Abandoned before the seal: neither memory nor transfers are left, however often.
  for (int i = 0; i < 200; ++i) {
    const Answer a = Alloc(1, 1000);
    ASSERT_TRUE(a.ok()) << "round " << i << ": " << a.status;
    ASSERT_TRUE(Free(c_, {1}).ok());
    EXPECT_EQ(core_->transfers().Write(a.tensor().ticket, 0, {}).code(),
              absl::StatusCode::kNotFound);
  }
  EXPECT_EQ(InUse(), 0);
  const uint64_t limit = static_cast<uint64_t>(options_.limits[LimitId::kTransfers]);
  std::vector<uint64_t> tickets;
  for (uint64_t i = 1; i <= limit; ++i) tickets.push_back(Alloc(i, 10).tensor().ticket);
  EXPECT_EQ(Alloc(limit + 1, 10).code(), absl::StatusCode::kResourceExhausted);
  fb::ByeT bye;
  bye.token = c_.token;
  ASSERT_TRUE(Control(std::move(bye)).ok());
  for (uint64_t t : tickets)
    EXPECT_EQ(core_->transfers().Write(t, 0, {}).code(), absl::StatusCode::kNotFound);
}

// A tensor of `floats` floats 0, 1, 2 and so on.
class ReadingTest : public TensorsTest {
 protected:
  ReadingTest() {
    options_.limits[LimitId::kTransfers] = 8;
    Restart();
    c_ = Hello();
  }
  void Count(const Client& c, uint64_t counter, int64_t floats) {
    Client& client = const_cast<Client&>(c);
    const Answer a = CoreTest::Alloc(client, counter, DType::kF32, {floats});
    ASSERT_TRUE(a.ok()) << a.status;
    std::iota(At(c, a), At(c, a) + floats, 0.0f);
    fb::SealT seal;
    seal.id = IdPtr(c, counter);
    ASSERT_TRUE(Ask(client, std::move(seal)).ok());
  }
  float* At(const Client& c, const Answer& a) {
    Token token;
    std::copy(c.token.begin(), c.token.end(), token.begin());
    return reinterpret_cast<float*>((*core_->SegmentOf(token))->base() + a.tensor().info->offset);
  }
  fb::GetT Range(uint64_t counter, uint64_t offset, uint64_t bytes) {
    fb::GetT get;
    get.id = IdPtr(c_, counter);
    get.offset = offset;
    get.bytes = bytes;
    return get;
  }
  Answer End(Client& c, std::vector<uint64_t> tickets) {
    fb::RequestT r;
    r.closes = std::move(tickets);
    r.body.Set(fb::FlushT());
    const uint64_t seq = Send(c, std::move(r));
    WorkAll();
    return Take(c.peer, seq);
  }
  bool IsOpen(const Answer& a) {
    std::string out;
    return core_->transfers().Read(a.tensor().ticket, 0, 4, out).ok();
  }
};

TEST_F(ReadingTest, RangesAreWhatTheTensorHasThere) {
  Count(c_, 1, 100'000);
  const Answer small = Ask(c_, Range(1, 4000, 8));
  EXPECT_EQ(small.BulkFloats(), (Floats{1000, 1001})) << small.status;
  EXPECT_EQ(small.tensor().info->bytes, 400'000u) << "of the tensor";
  const Answer large = Ask(c_, Range(1, 40'000, 200'000));
  ASSERT_TRUE(large.ok()) << large.status;
  for (int i = 0; i < 50'000; ++i) ASSERT_EQ(At(c_, large)[i], static_cast<float>(10'000 + i));
  std::string chunk;
  ASSERT_TRUE(core_->transfers().Read(large.tensor().ticket, 199'996, 4, chunk).ok());
  EXPECT_EQ(std::memcmp(chunk.data(), At(c_, large) + 49'999, 4), 0);
  EXPECT_EQ(core_->transfers().Read(large.tensor().ticket, 199'997, 4, chunk).code(), kInvalid)
      << "beyond the range";
  const Answer rest = Ask(c_, Range(1, 399'992, 0));
  EXPECT_EQ(rest.BulkFloats(), (Floats{99'998, 99'999})) << rest.status;
  EXPECT_TRUE(Ask(c_, Range(1, 400'000, 0)).ok()) << "nothing is left there";
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{400'001, 0},
                                      {0, 400'001},
                                      {1, 400'000},
                                      {UINT64_MAX, 2},
                                      {8, UINT64_MAX}}) {
    const Answer wrong = Ask(c_, Range(1, offset, bytes));
    EXPECT_EQ(wrong.code(), kInvalid) << offset << " " << bytes;
    EXPECT_NE(MessageOf(wrong.status).find("has 400000 bytes"), std::string::npos) << wrong.status;
  }
}

// Reads stay unchanged, whatever happens to the tensor.
TEST_F(ReadingTest, WhatIsReadStaysAsItWas) {
  Count(c_, 1, 50'000);
  const Answer whole = Get(c_, 1), part = Ask(c_, Range(1, 80'000, 100'000));
  ASSERT_TRUE(whole.ok() && part.ok()) << whole.status << part.status;
  const auto unchanged = [&](const char* after) {
    for (int i = 0; i < 50'000; ++i) ASSERT_EQ(At(c_, whole)[i], static_cast<float>(i)) << after;
    for (int i = 0; i < 25'000; ++i)
      ASSERT_EQ(At(c_, part)[i], static_cast<float>(20'000 + i)) << after;
  };
  ASSERT_TRUE(
      Load(c_, 1,
           "program @add(inout %x: f32[50000]) -> (x: f32[50000]) { %0 = add(%x, %x) return %0 }")
          .ok());
  const Answer run = Ask(c_, RunOf(1).Tensor(c_, 1).None());
  ASSERT_TRUE(run.ok()) << run.status;
  unchanged("a run that writes it");
  EXPECT_EQ(Ask(c_, Range(1, 400, 4)).BulkFloats(), Floats{200}) << "the run wrote the tensor";
  Count(c_, 2, 50'000);
  ASSERT_TRUE(Free(c_, {1, 2}).ok());
  unchanged("its end");
  Count(c_, 1, 70'000);
  unchanged("another tensor in its place");
  ASSERT_TRUE(End(c_, {whole.tensor().ticket, part.tensor().ticket}).ok());
  EXPECT_FALSE(IsOpen(whole) || IsOpen(part));
  ASSERT_TRUE(Free(c_, {1}).ok());
  EXPECT_EQ(InUse(), 0);
}

TEST_F(ReadingTest, TransfersEndWithTheRequestThatSaysSo) {
  Count(c_, 1, 50'000);
  const auto limit = static_cast<size_t>(options_.limits[LimitId::kTransfers]);
  std::vector<uint64_t> tickets;
  for (size_t i = 0; i < limit; ++i) tickets.push_back(Get(c_, 1).tensor().ticket);
  const Answer over = Get(c_, 1);
  EXPECT_EQ(over.code(), kExhausted) << over.status;
  EXPECT_NE(MessageOf(over.status).find(fmt::format("at most {} views", limit)), std::string::npos)
      << over.status;
  // The transfers close before the body runs, so that the body has their room. To close one twice,
  // or an unknown one, is no error.
  fb::RequestT r;
  r.closes = {tickets[0], tickets[0], 12345};
  r.body.Set(Range(1, 0, 0));
  const uint64_t seq = Send(c_, std::move(r));
  WorkAll();
  const Answer again = Take(c_.peer, seq);
  ASSERT_TRUE(again.ok()) << again.status;
  EXPECT_TRUE(IsOpen(again));
  tickets[0] = again.tensor().ticket;
  ASSERT_TRUE(End(c_, tickets).ok());
  ASSERT_TRUE(Free(c_, {1}).ok());
  EXPECT_EQ(InUse(), 0);
}

TEST_F(ReadingTest, ViewsTakeOfTheSegmentWhatTheyHold) {
  Client small = Hello("", "uid:1", 1 << 20);
  Count(small, 1, 200'000);
  fb::GetT get;
  get.id = IdPtr(small, 1);
  const Answer first = Ask(small, get);
  ASSERT_TRUE(first.ok()) << first.status;
  const Answer second = Ask(small, get);
  if (device_->info().host_memory) {
    EXPECT_TRUE(second.ok()) << "both are the tensor's own bytes";
    return;
  }
  EXPECT_EQ(second.code(), kExhausted);
  EXPECT_NE(MessageOf(second.status).find("takes 800000 bytes"), std::string::npos)
      << second.status;
  EXPECT_NE(MessageOf(second.status).find("of 1048576"), std::string::npos) << second.status;
  ASSERT_TRUE(End(small, {first.tensor().ticket}).ok());
  EXPECT_TRUE(Ask(small, get).ok());
}

TEST_F(ReadingTest, TransfersEndWithTheirClient) {
  Client a = Hello("named"), b = Hello("named");
  Count(a, 1, 50'000);
  const auto get = [&](Client& by) {
    fb::GetT g;
    g.id = IdPtr(a, 1);
    return Ask(by, std::move(g));
  };
  const Answer left = get(a), kept = get(b);
  ASSERT_TRUE(left.ok() && kept.ok());
  // A requested transfer that no client would end does not begin.
  fb::GetT late;
  late.id = IdPtr(a, 1);
  Send(a, std::move(late));
  fb::ByeT bye;
  bye.token = a.token;
  ASSERT_TRUE(Control(std::move(bye)).ok());
  WorkAll();
  EXPECT_FALSE(IsOpen(left));
  EXPECT_TRUE(IsOpen(kept));
  core_->OnPeerGone(now_, b.peer);
  now_ += kSecond;
  core_->OnTick(now_);
  EXPECT_TRUE(IsOpen(kept)) << "it may come back";
  now_ += options_.limits[LimitId::kLeaseSeconds] * kSecond;
  core_->OnTick(now_);
  EXPECT_FALSE(IsOpen(kept));
  Client c = Hello("named");
  ASSERT_EQ(c.session, a.session);
  // The whole limit is available for others.
  for (int64_t i = 0; i < options_.limits[LimitId::kTransfers]; ++i) ASSERT_TRUE(get(c).ok()) << i;
}

// Copies of gigabytes to and from a device do not block the executor: other requests run between
// the steps.
TEST_F(ReadingTest, LargeCopiesLetOthersIn) {
  if (device_->info().host_memory) return;  // no copies on such devices
  constexpr int64_t kFloats = 50 << 20;     // of 200 MiB: four steps
  Client other = Hello();
  const auto between = [&](uint64_t large, const char* what) {
    int steps = 0;
    ASSERT_TRUE(WorkOnce());
    const uint64_t seq = Send(other, fb::FlushT());
    for (; !Take(other.peer, seq).ok(); ++steps) ASSERT_TRUE(WorkOnce());
    EXPECT_LE(steps, 2) << what;
    EXPECT_FALSE(Take(c_.peer, large).came) << what << " is not done";
  };
  const Answer filled = Alloc(1, kFloats);
  ASSERT_TRUE(filled.ok()) << filled.status;
  constexpr int64_t kPeriod = 1'000'003;
  float* const fill = At(c_, filled);
  std::iota(fill, fill + kPeriod, 0.0f);
  for (int64_t i = kPeriod; i < kFloats; i += kPeriod)
    std::memcpy(fill + i, fill,
                static_cast<size_t>(std::min(kPeriod, kFloats - i)) * sizeof(float));
  fb::SealT seal;
  seal.id = IdPtr(c_, 1);
  uint64_t seq = Send(c_, seal);
  between(seq, "the seal");
  WorkAll();
  ASSERT_TRUE(Take(c_.peer, seq).ok());
  seq = Send(c_, Range(1, 0, 0));
  between(seq, "the get");
  // The next request of its client waits for it.
  const uint64_t behind = Send(c_, Range(1, 8, 8));
  WorkAll();
  const Answer got = Take(c_.peer, seq);
  ASSERT_TRUE(got.ok()) << got.status;
  const float* const there = At(c_, got);
  for (int64_t i = 0; i < kFloats; i += 997) ASSERT_EQ(there[i], static_cast<float>(i % kPeriod));
  EXPECT_EQ(Take(c_.peer, behind).BulkFloats(), (Floats{2, 3}));
  ASSERT_TRUE(End(c_, {got.tensor().ticket}).ok());

  // Cancelled between two steps, it holds no memory. Nor does it when its session ends.
  for (const bool cancel : {true, false}) {
    seq = Send(c_, Range(1, 0, 0));
    between(seq, "the get");
    if (cancel) {
      ASSERT_TRUE(Cancel(c_, seq).ok());
      WorkAll();
      EXPECT_EQ(Take(c_.peer, seq).code(), absl::StatusCode::kCancelled);
    } else {
      fb::ByeT bye;
      bye.token = c_.token;
      ASSERT_TRUE(Control(std::move(bye)).ok());
      WorkAll();
    }
  }
  EXPECT_EQ(InUse(), 0);
  EXPECT_TRUE(core_->Idle());
}

TEST_F(TensorsTest, WrongPutsTakeNothing) {
  const auto put = [&](auto change, const std::string& bytes = std::string(8, 'x')) {
    fb::PutT p;
    p.id = IdPtr(c_, 1);
    p.type = std::make_unique<fb::TensorTypeT>();
    p.type->dtype = static_cast<uint8_t>(DType::kF32);
    p.type->shape = {2};
    p.bytes_follow = true;
    change(p);
    const Answer a = Ask(c_, std::move(p), bytes);
    EXPECT_FALSE(a.ok());
    EXPECT_EQ(InUse(), 0);
    return a.code();
  };
  EXPECT_EQ(put([](fb::PutT& p) { p.id = nullptr; }), kInvalid);
  EXPECT_EQ(
      put([&](fb::PutT& p) { p.id = std::make_unique<fb::TensorId>(c_.attachment + 1, 0, 1); }),
      kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) { p.type = nullptr; }), kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) { p.type->dtype = 0; }), kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) { p.type->dtype = 200; }), kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) { p.type->encoding = 99; }), kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) { p.type->shape = {3}; }), kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) { p.type->shape = {-2}; }), kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) { p.type->shape.assign(17, 1); }), kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) { p.type->shape = {65536, 65536, 65536, 65536}; }), kInvalid);
  EXPECT_EQ(put([](fb::PutT& p) {
              p.type->shape = {65536, 65536, 65536};
              p.bytes_follow = false;
            }),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(put([](fb::PutT&) {}, ""), kInvalid);
}

TEST_F(TensorsTest, NamesAndLists) {
  ASSERT_TRUE(Put(c_, 1, {1, 2}).ok());
  fb::RenameT rename;
  rename.id = IdPtr(c_, 1);
  rename.name = "w1";
  ASSERT_TRUE(Ask(c_, std::move(rename)).ok());
  Alloc(2, 4);
  const Answer a = Ask(c_, fb::ListT());
  ASSERT_TRUE(a.ok());
  const auto& tensors = a.reply.body.AsListReply()->tensors;
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0]->name, "w1");  // those with names first
  EXPECT_EQ(tensors[0]->bytes, 8u);
  EXPECT_EQ(tensors[1]->state, static_cast<uint8_t>(TensorState::kWritable));
}

TEST_F(TensorsTest, ANameIsOneTensors) {
  const auto name = [&](uint64_t counter, const std::string& name) {
    fb::RenameT rename;
    rename.id = IdPtr(c_, counter);
    rename.name = name;
    return Ask(c_, std::move(rename));
  };
  const auto put = [&](uint64_t counter, const std::string& name) {
    fb::PutT p;
    p.id = IdPtr(c_, counter);
    p.type = std::make_unique<fb::TensorTypeT>();
    p.type->dtype = static_cast<uint8_t>(DType::kU8);
    p.type->shape = {1};
    p.bytes_follow = true;
    p.name = name;
    return Ask(c_, std::move(p), "x");
  };
  ASSERT_TRUE(put(1, "w").ok());
  ASSERT_TRUE(put(2, "").ok());
  const int64_t in_use = InUse();
  const Answer taken = name(2, "w");
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists) << taken.status;
  EXPECT_NE(MessageOf(taken.status).find("'w'"), std::string::npos) << taken.status;
  EXPECT_EQ(put(3, "w").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(name(1, "w").ok()) << "its own";
  EXPECT_TRUE(put(1, "w").ok()) << "in its own place";
  EXPECT_TRUE(name(1, "").ok());
  EXPECT_TRUE(name(2, "").ok()) << "many may have none";
  EXPECT_TRUE(name(2, "w").ok()) << "given up by the other";

  // Names that differ never become equal.
  const std::string longest(256, 'n');
  EXPECT_TRUE(name(1, longest).ok());
  for (const std::string& wrong : {longest + 'a', longest + 'b', std::string("a\nb"),
                                   std::string("\x7f"), std::string(1, '\0')}) {
    EXPECT_EQ(name(2, wrong).code(), kInvalid) << wrong;
    EXPECT_EQ(put(3, wrong).code(), kInvalid) << wrong;
  }
  EXPECT_NE(MessageOf(name(2, longest + 'a').status).find("at most 256 bytes, got 257"),
            std::string::npos);
  EXPECT_EQ(InUse(), in_use);
}

// The list is one message for any number of tensors and any names. The shell checks its size.
TEST_F(TensorsTest, LongListsFitIntoAMessage) {
  for (uint64_t i = 1; i <= 6000; ++i) {
    fb::PutT put;
    put.id = IdPtr(c_, i);
    put.type = std::make_unique<fb::TensorTypeT>();
    put.type->dtype = static_cast<uint8_t>(DType::kU8);
    put.type->shape.assign(16, 1);
    put.bytes_follow = true;
    put.name = fmt::format("{:n>256}", i);
    ASSERT_TRUE(Ask(c_, std::move(put), "x").ok());
  }
  const Answer a = Ask(c_, fb::ListT());
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_GT(a.reply.body.AsListReply()->tensors.size(), 500u);
}

TEST_F(TensorsTest, PrintedText) {
  ASSERT_TRUE(Put(c_, 1, {1, 2.5f, -3, 4, 5, 6}, {2, 3}).ok());
  const auto text = [&](uint64_t counter, uint32_t most = 0) {
    fb::PrintT print;
    print.id = IdPtr(c_, counter);
    print.max_elements = most;
    const Answer a = Ask(c_, std::move(print));
    return a.ok() ? a.reply.body.AsTextReply()->text : a.status.ToString();
  };
  EXPECT_EQ(text(1), "f32[2, 3]\n[[1, 2.5, -3],\n [4, 5, 6]]");
  ASSERT_TRUE(Put(c_, 2, {7}, {}).ok());
  EXPECT_EQ(text(2), "f32[]\n7");
  ASSERT_TRUE(Put(c_, 3, {}, {0, 4}).ok());
  EXPECT_EQ(text(3), "f32[0, 4]\n[]");
  Floats many(10'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
  ASSERT_TRUE(Put(c_, 4, many).ok());
  EXPECT_EQ(text(4), "f32[10000]\n[0, 1, 2, ..., 9997, 9998, 9999]");
  EXPECT_EQ(text(1, 2), "f32[2, 3]\n[[1, 2.5, -3],\n [4, 5, 6]]")
      << "too short to leave anything out";
  // Many axes of few elements, printed in full: the text is cut, so that the message is not too
  // large.
  ASSERT_TRUE(
      PutTyped(c_, 5, DType::kU8, std::vector<int64_t>(16, 2), std::string(65536, 'x')).ok());
  EXPECT_LT(text(5, UINT32_MAX).size(), kMaxFrameBytes);
  EXPECT_EQ(Ask(c_, fb::PrintT()).code(), absl::StatusCode::kNotFound);
}

class FilesTest : public TensorsTest {
 protected:
  FilesTest() {
    char path[] = "/tmp/opwire-test-XXXXXX";
    directory_ = mkdtemp(path);
    options_.data_directory = directory_;
    Restart();
    c_ = Hello();
  }
  ~FilesTest() override { fs::remove_all(directory_); }
  Answer Save(uint64_t counter, const std::string& path) {
    fb::SaveT save;
    save.id = IdPtr(c_, counter);
    save.path = path;
    return Ask(c_, std::move(save));
  }
  Answer LoadFile(uint64_t counter, const std::string& path, const std::string& tensor = "") {
    fb::LoadT load;
    load.id = IdPtr(c_, counter);
    load.path = path;
    load.tensor = tensor;
    return Ask(c_, std::move(load));
  }
  std::string Own() const { return directory_ + "/uid-1"; }
  std::string directory_;
};

TEST_F(FilesTest, RoundTrips) {
  ASSERT_TRUE(Put(c_, 1, {1, 2, 3, 4, 5, 6}, {2, 3}).ok());
  ASSERT_TRUE(Save(1, "w.npy").ok());
  const Answer a = LoadFile(2, "w.npy");
  ASSERT_TRUE(a.ok()) << a.status;
  EXPECT_EQ(a.tensor().info->type->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(Get(c_, 2).BulkFloats(), (Floats{1, 2, 3, 4, 5, 6}));
  struct stat st;
  ASSERT_EQ(stat((Own() + "/w.npy").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(Own()), fs::directory_iterator()), 1)
      << "nothing temporary is left";
  // Saves in an existing folder, but not in a missing one.
  fs::create_directory(Own() + "/run1");
  EXPECT_TRUE(Save(1, "run1/w.npy").ok());
  EXPECT_TRUE(LoadFile(3, "run1/w.npy").ok());
  EXPECT_EQ(Save(1, "run2/w.npy").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadFile(3, "none.npy").code(), absl::StatusCode::kNotFound);
  // Another principal has another directory.
  c_ = Hello("", "uid:2");
  EXPECT_EQ(LoadFile(4, "w.npy").code(), absl::StatusCode::kNotFound);
}

// A GGUF file of f32[2, 3] "w", 1 to 6, and i8:q8_0[1, 32] "q", whose elements are 2 times 0 to 31.
std::string ModelFile() {
  std::string bytes = "GGUF";
  const auto add = [&](auto v) { bytes.append(reinterpret_cast<const char*>(&v), sizeof(v)); };
  const auto tensor = [&](std::string_view name, uint64_t inner, uint64_t outer, uint32_t type,
                          uint64_t offset) {
    add(uint64_t{name.size()});
    bytes += name;
    add(uint32_t{2}), add(inner), add(outer), add(type), add(offset);
  };
  add(uint32_t{3}), add(uint64_t{2}), add(uint64_t{0});
  tensor("w", 3, 2, 0, 0);
  tensor("q", 32, 1, 8, 32);
  bytes.resize((bytes.size() + 31) / 32 * 32);
  for (const float v : {1, 2, 3, 4, 5, 6}) add(v);
  add(uint64_t{0});
  add(uint16_t{0x4000});  // 2 as f16
  for (int8_t i = 0; i < 32; ++i) add(i);
  return bytes;
}

TEST_F(FilesTest, ModelsTensorsByName) {
  ASSERT_TRUE(Put(c_, 1, {1}).ok());
  ASSERT_TRUE(Save(1, "first.npy").ok());  // creates the directory
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(Own() + "/" + name, std::ios::binary | std::ios::trunc) << bytes;
  };
  write("m.gguf", ModelFile());
  const Answer w = LoadFile(2, "m.gguf", "w");
  ASSERT_TRUE(w.ok()) << w.status;
  EXPECT_EQ(w.tensor().info->type->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(Get(c_, 2).BulkFloats(), (Floats{1, 2, 3, 4, 5, 6}));
  const Answer q = LoadFile(3, "m.gguf", "q");
  ASSERT_TRUE(q.ok()) << q.status;
  EXPECT_EQ(q.tensor().info->type->dtype, static_cast<uint8_t>(DType::kI8));
  EXPECT_EQ(q.tensor().info->type->encoding, static_cast<uint8_t>(Encoding::kQ8_0));
  EXPECT_EQ(q.tensor().info->type->shape, (std::vector<int64_t>{1, 32}));
  EXPECT_EQ(q.tensor().info->bytes, 34u);
  const std::string json = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string safe(8, '\0');
  safe[0] = static_cast<char>(json.size());
  write("m.safetensors", safe + json + std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  ASSERT_TRUE(LoadFile(4, "m.safetensors", "w").ok());
  EXPECT_EQ(Get(c_, 4).BulkFloats(), (Floats{1, 2}));
  // Names that are missing, or not allowed.
  EXPECT_EQ(MessageOf(LoadFile(5, "m.gguf", "x").status),
            "file m.gguf: none of the file's 2 tensors is called x");
  // Without a name the load returns the file's beginning, up to its tensors.
  const Answer head = LoadFile(6, "m.gguf");
  ASSERT_TRUE(head.ok()) << head.status;
  EXPECT_EQ(head.tensor().info->type->dtype, static_cast<uint8_t>(DType::kU8));
  EXPECT_EQ(head.tensor().file_bytes, ModelFile().size());
  EXPECT_EQ(head.tensor().info->bytes % 32, 0u);
  EXPECT_EQ(Get(c_, 6).bulk, ModelFile().substr(0, head.tensor().info->bytes));
  EXPECT_EQ(MessageOf(LoadFile(5, "first.npy", "w").status),
            "file first.npy: expected a file of GGUF or safetensors, which name tensors; tensor w "
            "was asked for");
  write("pointer.gguf", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_EQ(MessageOf(LoadFile(5, "pointer.gguf", "w").status),
            "file pointer.gguf: it is a pointer of Git LFS, not the file: get the file by `git lfs "
            "pull`");
  // A file that has changed is read again. A file that ends early is refused.
  const std::string good = ModelFile();
  for (size_t n = 0; n < good.size(); n += 7) {
    write("m.gguf", good.substr(0, n));
    ASSERT_EQ(LoadFile(5, "m.gguf", "w").code(), kInvalid) << n;
  }
  write("m.gguf", good);
  EXPECT_TRUE(LoadFile(5, "m.gguf", "w").ok());
}

TEST_F(FilesTest, PathsStayBeneath) {
  ASSERT_TRUE(Put(c_, 1, {1}).ok());
  ASSERT_TRUE(Save(1, "ok.npy").ok());
  const std::string outside = directory_ + "/secret.npy";
  fs::copy_file(Own() + "/ok.npy", outside);
  fs::create_symlink(outside, Own() + "/link.npy");
  fs::create_directory_symlink(directory_, Own() + "/up");
  fs::create_directory(Own() + "/sub");
  ASSERT_EQ(mkfifo((Own() + "/pipe").c_str(), 0600), 0);
  const std::vector<std::string> wrong = {"",
                                          "/etc/passwd",
                                          outside,
                                          "../secret.npy",
                                          "sub/../../secret.npy",
                                          "up/secret.npy",
                                          "link.npy",
                                          ".",
                                          "..",
                                          "sub/..",
                                          "pipe",
                                          "sub",
                                          "sub/",
                                          std::string("a\0b", 3),
                                          std::string(5000, 'x'),
                                          "/proc/self/environ",
                                          "up/uid-1/ok.npy"};
  for (const std::string& path : wrong) {
    const Answer loaded = LoadFile(2, path);
    EXPECT_FALSE(loaded.ok()) << path;
    EXPECT_NE(loaded.code(), absl::StatusCode::kInternal) << loaded.status;
  }
  for (const std::string& path :
       {std::string(), std::string("/tmp/opwire-escape.npy"), std::string("../escape.npy"),
        std::string("up/escape.npy"), std::string("sub/../../escape.npy"), std::string("."),
        std::string(".."), std::string("sub/"), std::string("sub")}) {
    EXPECT_FALSE(Save(1, path).ok()) << path;
  }
  EXPECT_FALSE(fs::exists(directory_ + "/escape.npy"));
  EXPECT_FALSE(fs::exists("/tmp/opwire-escape.npy"));
  // Saving over a link replaces the link, never its target.
  const auto before = fs::file_size(outside);
  ASSERT_TRUE(Put(c_, 3, Floats(100, 1)).ok());
  EXPECT_TRUE(Save(3, "link.npy").ok());
  EXPECT_EQ(fs::file_size(outside), before);
  EXPECT_FALSE(fs::is_symlink(Own() + "/link.npy"));
}

TEST_F(FilesTest, FilesThatAreNone) {
  ASSERT_TRUE(Put(c_, 1, {1}).ok());
  ASSERT_TRUE(Save(1, "ok.npy").ok());
  const auto write = [&](const std::string& bytes) {
    std::ofstream(Own() + "/bad.npy", std::ios::binary | std::ios::trunc) << bytes;
  };
  std::ifstream in(Own() + "/ok.npy", std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  for (size_t n = 0; n < good.size(); ++n) {
    write(good.substr(0, n));
    ASSERT_EQ(LoadFile(2, "bad.npy").code(), kInvalid) << n << " of " << good.size() << " bytes";
  }
  // A header that promises more than the quota, or than the file has.
  write(*MakeNpyHeader(DType::kF32, std::vector<int64_t>{int64_t{1} << 46}));
  EXPECT_EQ(LoadFile(2, "bad.npy").code(), kInvalid);
  EXPECT_EQ(Get(c_, 2).code(), absl::StatusCode::kNotFound);
}

// A load gets its memory before it reads. Without memory it reads nothing.
TEST_F(FilesTest, LoadsTakeTheirMemoryFirst) {
  constexpr int64_t kElements = 1 << 18, kBytes = 4 * kElements;
  fs::create_directory(Own());
  std::ofstream(Own() + "/big.npy", std::ios::binary)
      << *MakeNpyHeader(DType::kF32, std::vector<int64_t>{kElements})
      << std::string(static_cast<size_t>(kBytes), 'x');
  const auto begin = [&](Client& c, uint64_t counter) {
    fb::LoadT load;
    load.id = IdPtr(c, counter);
    load.path = "big.npy";
    const uint64_t seq = Send(c, std::move(load));
    while (WorkOnce()) {
    }
    return seq;
  };
  const auto step = [&] {
    FakeShell::Job job = std::move(shell_.jobs.front());
    shell_.jobs.pop_front();
    job.work();
    core_->OnJobDone(now_, job.done);
  };
  begin(c_, 1);
  EXPECT_EQ(InUse(), 0);
  step();
  EXPECT_EQ(InUse(), kBytes);
  ASSERT_EQ(shell_.jobs.size(), 1u) << "the elements are still to be read";
  step();
  EXPECT_EQ(InUse(), kBytes);
  EXPECT_EQ(core_->Idle(), true);
  ASSERT_TRUE(Free(c_, {1}).ok());
  EXPECT_EQ(InUse(), 0);

  core_->OnTick(now_);
  const int64_t free = core_->load().free_memory;
  Client small = Hello("", "uid:1", kBytes + 4096);
  ASSERT_TRUE(Put(small, 2, Floats(2048, 1)).ok());
  const uint64_t seq = begin(small, 3);
  step();
  EXPECT_TRUE(shell_.jobs.empty());
  const Answer over = Take(small.peer, seq);
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted) << over.status;
  EXPECT_NE(MessageOf(over.status).find(std::to_string(kBytes)), std::string::npos) << over.status;
  ASSERT_TRUE(Free(small, {2}).ok());

  // A load whose file ends early after all, and one whose session ends meanwhile, return the
  // memory.
  const uint64_t cut = begin(small, 3);
  step();
  fs::resize_file(Own() + "/big.npy", kBytes);
  step();
  EXPECT_EQ(Take(small.peer, cut).code(), kInvalid);
  EXPECT_EQ(InUse(), 0);
  fs::resize_file(Own() + "/big.npy", 2 * kBytes);
  begin(small, 3);
  step();
  fb::ByeT bye;
  bye.token = small.token;
  ASSERT_TRUE(Control(std::move(bye)).ok());
  WorkAll();
  core_->OnTick(now_);
  EXPECT_EQ(InUse(), 0);
  EXPECT_EQ(core_->load().free_memory.load(), free);
}

// If the device's memory is not the host's, loads go through two chunks of it, for tensors of any
// size.
TEST_F(FilesTest, LargeTensorsLandByTheChunk) {
  const bool lands = !device_->info().host_memory;
  constexpr int64_t kElements = (5 * PinnedStaging::kChunkBytes + 12) / 4, kBytes = 4 * kElements;
  fs::create_directory(Own());
  const std::string header = *MakeNpyHeader(DType::kU32, std::vector<int64_t>{kElements});
  std::string file = header;
  for (uint32_t i = 0; i < kElements; ++i) file.append(reinterpret_cast<const char*>(&i), 4);
  const auto write = [&](size_t bytes) {
    std::ofstream(Own() + "/big.npy", std::ios::binary | std::ios::trunc) << file.substr(0, bytes);
  };
  write(file.size());
  const auto on_host = [&] {
    return nlohmann::json::parse(Info("stats"))["host_memory_in_use"].get<int64_t>() -
           (lands ? 0 : InUse());
  };
  const auto begin = [&](uint64_t counter) {
    fb::LoadT load;
    load.id = IdPtr(c_, counter);
    load.path = "big.npy";
    const uint64_t seq = Send(c_, std::move(load));
    while (WorkOnce()) {
    }
    FakeShell::Job opens = std::move(shell_.jobs.front());
    shell_.jobs.pop_front();
    opens.work();
    core_->OnJobDone(now_, opens.done);
    return seq;
  };
  const int64_t before = on_host();
  const uint64_t good = begin(1);
  const int64_t takes = lands ? 2 * PinnedStaging::kChunkBytes : 0;
  EXPECT_LE(on_host() - before, takes + 4096);
  EXPECT_GE(on_host() - before, takes);
  WorkAll();
  ASSERT_TRUE(Take(c_.peer, good).ok());
  ASSERT_TRUE(Save(1, "same.npy").ok());
  std::ifstream in(Own() + "/same.npy", std::ios::binary);
  EXPECT_TRUE((std::string{std::istreambuf_iterator<char>(in), {}} == file))
      << "all chunks, each in its place";
  ASSERT_TRUE(Free(c_, {1}).ok());
  // Cut the file during the load, in a later chunk.
  const uint64_t cut = begin(2);
  write(header.size() + 3 * PinnedStaging::kChunkBytes + 100);
  WorkAll();
  EXPECT_EQ(MessageOf(Take(c_.peer, cut).status),
            fmt::format("file big.npy: expected {} bytes at least, it ends after {}", file.size(),
                        header.size() + 3 * PinnedStaging::kChunkBytes + 100));
  EXPECT_EQ(InUse(), 0);
  EXPECT_EQ(Get(c_, 2).code(), absl::StatusCode::kNotFound);
  // End its session during the load.
  write(file.size());
  begin(3);
  EXPECT_GE(InUse(), kBytes);
  fb::ByeT bye;
  bye.token = c_.token;
  ASSERT_TRUE(Control(std::move(bye)).ok());
  WorkAll();
  now_ += 2 * kSecond;
  core_->OnTick(now_);
  EXPECT_EQ(nlohmann::json::parse(Info("stats"))["host_memory_in_use"], 0)
      << "chunks that no load has go, too";
  EXPECT_EQ(nlohmann::json::parse(Info("stats"))["memory_in_use"], 0);
}

TEST_F(FilesTest, LoadsWithoutRoomOnTheHostAreRefused) {
  if (device_->info().host_memory) GTEST_SKIP() << "a load needs no memory beside the tensor's";
  if (AvailableMemory() / 100 > device_->info().memory_bytes / 2)
    GTEST_SKIP() << "the device is full before a hundredth of the host's memory is";
  ASSERT_TRUE(Put(c_, 1, {1}).ok());
  ASSERT_TRUE(Save(1, "w.npy").ok());
  options_.limits[LimitId::kHostMemoryPercent] = 1;
  options_.limits[LimitId::kTransfers] = 100'000;
  Restart();
  c_ = Hello();
  // Tensors that clients still fill are on the host.
  std::vector<uint64_t> filled;
  for (uint64_t i = 10; Alloc(i, PinnedStaging::kChunkBytes / 4).ok(); ++i) filled.push_back(i);
  ASSERT_FALSE(filled.empty());
  const Answer refused = LoadFile(2, "w.npy");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(MessageOf(refused.status).find("out of the host's memory: a load takes 8388608 bytes"),
            std::string::npos)
      << refused.status;
  for (const uint64_t id : filled)
    ASSERT_TRUE(Free(c_, {id}).ok());  // one message holds some of them
  EXPECT_EQ(InUse(), 0);
  EXPECT_TRUE(LoadFile(2, "w.npy").ok());
}

TEST_F(FilesTest, WithoutADirectoryOrNumPyType) {
  ASSERT_TRUE(PutTyped(c_, 1, DType::kF8E4M3, {2}, "ab").ok());
  EXPECT_EQ(Save(1, "x.npy").code(), absl::StatusCode::kUnimplemented);
  options_.data_directory.clear();
  Restart();
  c_ = Hello();
  ASSERT_TRUE(Put(c_, 1, {1}).ok());
  EXPECT_EQ(Save(1, "x.npy").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(LoadFile(2, "x.npy").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FilesTest, NoTwoPrincipalsShareADirectory) {
  const std::vector<std::string> principals = {"uid:1", "key:uid-1", "uid:11", "key:a",
                                               "key:A", "key:a_",    "tcp"};
  float value = 0;
  for (const std::string& principal : principals) {
    c_ = Hello("", principal);
    ASSERT_TRUE(Put(c_, 1, {++value}).ok());
    ASSERT_TRUE(Save(1, "w.npy").ok()) << principal;
  }
  value = 0;
  for (const std::string& principal : principals) {
    c_ = Hello("", principal);
    ASSERT_TRUE(LoadFile(1, "w.npy").ok()) << principal;
    EXPECT_EQ(Get(c_, 1).BulkFloats(), Floats{++value}) << principal;
  }
}

// Two workers save under one name: afterwards the file is one of the two, whole.
TEST_F(FilesTest, OfTwoSavesAtOnceOneIsThere) {
  Client other = Hello();
  for (int round = 0; round < 20; ++round) {
    const auto counter = static_cast<uint64_t>(2 * round + 1);
    Client* const both[] = {&c_, &other};
    ASSERT_TRUE(Put(c_, counter, Floats(30'000, 1)).ok());
    ASSERT_TRUE(Put(other, counter, Floats(20'000, 2)).ok());
    for (Client* c : both) {
      fb::SaveT save;
      save.id = IdPtr(*c, counter);
      save.path = "same.npy";
      Send(*c, std::move(save));
    }
    while (core_->HasWork()) core_->Work(Clock());
    ASSERT_EQ(shell_.jobs.size(), 2u);
    std::thread one(shell_.jobs[0].work), two(shell_.jobs[1].work);
    one.join();
    two.join();
    for (auto& job : shell_.jobs) core_->OnJobDone(now_, job.done);
    shell_.jobs.clear();
    const Answer a = LoadFile(counter + 1, "same.npy");
    ASSERT_TRUE(a.ok()) << a.status;
    const int64_t n = a.tensor().info->type->shape.at(0);
    ASSERT_TRUE(n == 30'000 || n == 20'000) << n;
    ASSERT_TRUE(Free(c_, {counter, counter + 1}).ok());
    ASSERT_TRUE(Free(other, {counter}).ok());
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(Own()), fs::directory_iterator()), 1)
      << "nothing temporary is left";
}

// A file is whole even if its session ends, and its tensor is freed, during the save.
TEST_F(FilesTest, SavesOutliveTheirSession) {
  ASSERT_TRUE(Put(c_, 1, {1, 2, 3}).ok());
  fb::SaveT save;
  save.id = IdPtr(c_, 1);
  save.path = "late.npy";
  Send(c_, std::move(save));
  ASSERT_TRUE(WorkOnce());
  fb::ByeT bye;
  bye.token = c_.token;
  ASSERT_TRUE(Control(std::move(bye)).ok());
  FinishJobs();
  core_->OnTick(now_);
  c_ = Hello();
  ASSERT_TRUE(LoadFile(1, "late.npy").ok());
  EXPECT_EQ(Get(c_, 1).BulkFloats(), (Floats{1, 2, 3}));
}

}  // namespace
}  // namespace opwire::executor
