// Decoding: whatever the bytes are, a message that can be read whole, or a refusal.
#include "ir/wire/message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/seed.h"

namespace opwire {
namespace {

std::vector<std::string> Valid() {
  std::vector<std::string> all;
  fb::HelloT hello;
  hello.major = 1;
  hello.client = "client";
  hello.token.assign(16, 7);
  all.push_back(EncodeRequest(1, std::move(hello)));
  fb::RunT run;
  run.slot = 3;
  run.bindings = {fb::Binding(fb::BindingKind::Tensor, 1, 2, 0, 3, 4, 5),
                  fb::Binding(fb::BindingKind::Inline, 2, 1, 0, 0, 0, 8)};
  run.results = {fb::ResultSlot(fb::ResultKind::Inline, 0, 0)};
  run.shapes = {2};
  run.payload.assign(8, 1);
  all.push_back(EncodeRequest(2, run));
  fb::BatchT batch;
  batch.runs.push_back(std::make_unique<fb::RunT>(run));
  all.push_back(EncodeRequest(3, std::move(batch)));
  fb::RequestT frees;
  frees.frees = {fb::TensorId(1, 0, 2), fb::TensorId(1, 0, 3)};
  all.push_back(EncodeRequest(frees));
  return all;
}

// Reads every field, so that a sanitizer sees what the verifier let through.
void ReadWhole(const fb::Request& request) {
  fb::RequestT whole;
  request.UnPackTo(&whole);
  EXPECT_FALSE(EncodeRequest(whole).empty());
}

TEST(Message, TruncatedAtEachLength) {
  for (const std::string& valid : Valid()) {
    AlignedBytes memory;
    ASSERT_TRUE(DecodeRequest(AsBytes(valid), memory).ok());
    for (size_t length = 0; length < valid.size(); ++length) {
      // In memory of exactly this length, so that reading beyond it is seen.
      const std::string cut(valid.data(), length);
      if (const auto request = DecodeRequest(AsBytes(cut), memory); request.ok())
        ReadWhole(**request);
      else
        EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(Message, EachBitFlipped) {
  int taken = 0, refused = 0;
  for (const std::string& valid : Valid()) {
    for (size_t bit = 0; bit < 8 * valid.size(); ++bit) {
      std::string bytes = valid;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
      AlignedBytes memory;
      const auto request = DecodeRequest(AsBytes(bytes), memory);
      if (request.ok()) ReadWhole(**request);
      ++(request.ok() ? taken : refused);
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(Message, AtEachAlignment) {
  for (const std::string& valid : Valid()) {
    for (size_t skew = 0; skew < 16; ++skew) {
      std::vector<uint8_t> bytes(valid.size() + skew);
      std::memcpy(bytes.data() + skew, valid.data(), valid.size());
      AlignedBytes memory;
      const auto request = DecodeRequest({bytes.data() + skew, valid.size()}, memory);
      ASSERT_TRUE(request.ok()) << request.status();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.view().data()) % 8, 0u);
      // What was decoded is private: the sender may change its own bytes.
      const uint64_t seq = (*request)->seq();
      std::fill(bytes.begin(), bytes.end(), 0xff);
      EXPECT_EQ((*request)->seq(), seq);
      ReadWhole(**request);
    }
  }
}

TEST(Message, EmptyAndTooLarge) {
  AlignedBytes memory;
  EXPECT_EQ(DecodeRequest({}, memory).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DecodeReply({}, memory).status().code(), absl::StatusCode::kInvalidArgument);
  // A payload that makes the message exactly as large as a frame, and one step over.
  const auto sized = [](size_t payload) {
    fb::RunT run;
    run.payload.assign(payload, 1);
    return EncodeRequest(1, std::move(run));
  };
  const size_t overhead = sized(1 << 16).size() - (1 << 16);
  size_t payload = kMaxFrameBytes - overhead - 64;
  while (sized(payload + 1).size() <= kMaxFrameBytes) ++payload;
  EXPECT_TRUE(DecodeRequest(AsBytes(sized(payload)), memory).ok());
  const std::string over = sized(payload + 1);
  ASSERT_GT(over.size(), kMaxFrameBytes);
  const Status status = DecodeRequest(AsBytes(over), memory).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(status).find(std::to_string(over.size())), std::string::npos) << status;
}

// FlatBuffers' own verifier takes a union that names a kind and has no table.
TEST(Message, AKindWithoutABody) {
  AlignedBytes memory;
  for (fb::Body kind : fb::EnumValuesBody()) {
    flatbuffers::FlatBufferBuilder b;
    b.Finish(fb::CreateRequest(b, 1, 0, kind));
    EXPECT_EQ(DecodeRequest(AsBytes(b), memory).ok(), kind == fb::Body::NONE)
        << fb::EnumNameBody(kind);
  }
  for (fb::ReplyBody kind : fb::EnumValuesReplyBody()) {
    flatbuffers::FlatBufferBuilder b;
    b.Finish(fb::CreateReply(b, 1, 0, true, 0, 0, 0, kind));
    EXPECT_EQ(DecodeReply(AsBytes(b), memory).ok(), kind == fb::ReplyBody::NONE)
        << fb::EnumNameReplyBody(kind);
  }
}

TEST(Message, RandomBytes) {
  const uint64_t seed = Seed();
  OPWIRE_TRACE_SEED();
  std::mt19937_64 rng(seed);
  const std::vector<std::string> valid = Valid();
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = valid[rng() % valid.size()];
    for (uint64_t changes = 1 + rng() % 4; changes > 0; --changes)
      bytes[rng() % bytes.size()] = static_cast<char>(rng());
    AlignedBytes memory;
    if (const auto request = DecodeRequest(AsBytes(bytes), memory); request.ok())
      ReadWhole(**request);
    if (const auto reply = DecodeReply(AsBytes(bytes), memory); reply.ok())
      SiteOf(StatusOf(**reply));
  }
}

TEST(Message, ErrorsKeepCodeMessageAndSite) {
  const Status status = WithSite(DataLoss("lost\n{}", 5), {"mlp\nx", 4, "matmul", "model.py:3"});
  AlignedBytes memory;
  const std::string bytes = EncodeError(9, status);
  const auto reply = DecodeReply(AsBytes(bytes), memory);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ((*reply)->seq(), 9u);
  const Status back = StatusOf(**reply);
  EXPECT_EQ(back.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(MessageOf(back), "lost\n5");
  EXPECT_EQ(SiteOf(back).program, "mlp x");
  EXPECT_EQ(SiteOf(back).node, 4);
  EXPECT_EQ(SiteOf(back).op, "matmul");
  EXPECT_EQ(SiteOf(back).location, "model.py:3");
  EXPECT_LT(EncodeError(1, Internal("{}", std::string(1 << 20, 'x'))).size(), 8192u)
      << "no reply outgrows its frame";
}

}  // namespace
}  // namespace opwire
