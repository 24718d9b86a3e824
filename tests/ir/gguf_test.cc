// GGUF headers: the contents of a file that is created here, and that each way to break it is
// refused with its byte and reason.
#include "ir/files/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "ir/base/type.h"
#include "tests/assert_ok.h"

namespace opwire {
namespace {

// The bytes of a file, written front to back.
class GgufFile {
 public:
  template <typename T>
  GgufFile& Add(T v) {
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof(v));
    return *this;
  }
  GgufFile& Text(std::string_view text) {
    Add<uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  GgufFile& Begin(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes_ += "GGUF";
    return Add<uint32_t>(version).Add<uint64_t>(tensors).Add<uint64_t>(keys);
  }
  GgufFile& Tensor(std::string_view name, const std::vector<uint64_t>& innermost_first,
                   uint32_t type, uint64_t offset) {
    Text(name).Add<uint32_t>(static_cast<uint32_t>(innermost_first.size()));
    for (const uint64_t d : innermost_first) Add<uint64_t>(d);
    return Add<uint32_t>(type).Add<uint64_t>(offset);
  }
  // Appends zeros up to a multiple of the alignment, and `bytes` more.
  GgufFile& Data(size_t bytes, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment + bytes);
    return *this;
  }
  size_t size() const { return bytes_.size(); }
  std::string bytes_;
};

StatusOr<GgufHeader> ReadGguf(const std::string& bytes) {
  return ParseGguf({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                   static_cast<int64_t>(bytes.size()));
}
std::string GgufRefusal(const GgufFile& file) { return MessageOf(ReadGguf(file.bytes_).status()); }

// Returns a file with two tensors after values of all types.
GgufFile WholeGguf(uint32_t version = 3) {
  GgufFile f;
  f.Begin(3, 14, version);
  f.Text("general.architecture").Add<uint32_t>(8).Text("llama");
  f.Text("u8").Add<uint32_t>(0).Add<uint8_t>(200);
  f.Text("i8").Add<uint32_t>(1).Add<int8_t>(-3);
  f.Text("u16").Add<uint32_t>(2).Add<uint16_t>(60000);
  f.Text("i16").Add<uint32_t>(3).Add<int16_t>(-300);
  f.Text("u32").Add<uint32_t>(4).Add<uint32_t>(4'000'000'000);
  f.Text("i32").Add<uint32_t>(5).Add<int32_t>(-5);
  f.Text("f32").Add<uint32_t>(6).Add<float>(1e-5f);
  f.Text("bool").Add<uint32_t>(7).Add<uint8_t>(1);
  f.Text("u64").Add<uint32_t>(10).Add<uint64_t>(~uint64_t{0});
  f.Text("f64").Add<uint32_t>(12).Add<double>(0.1);
  f.Text("tokens").Add<uint32_t>(9).Add<uint32_t>(8).Add<uint64_t>(3).Text("a").Text("").Text(
      "\xff\n");
  f.Text("scores").Add<uint32_t>(9).Add<uint32_t>(6).Add<uint64_t>(2).Add<float>(0.5f).Add<float>(
      -2);
  f.Text("flags").Add<uint32_t>(9).Add<uint32_t>(7).Add<uint64_t>(2).Add<uint8_t>(0).Add<uint8_t>(
      1);
  f.Tensor("blk.0.ffn_up.weight", {64, 3}, 3, 0);  // q4_1: 120 bytes
  f.Tensor("norm.weight", {5}, 0, 128);
  f.Tensor("output.weight", {256, 2}, 12, 160);  // Q4_K: 288
  return f.Data(160 + 288);
}

TEST(Gguf, TensorsOfUnknownTypesGoToTheNext) {
  GgufFile f;
  f.Begin(4, 0).Tensor("later", {7, 3}, 41, 32).Tensor("known", {5}, 0, 0);
  f.Tensor("last", {1}, 4'000'000'000, 96).Tensor("nothing", {0}, 0, 96).Data(96 + 9);
  const auto header = ReadGguf(f.bytes_);
  ASSERT_OK(header.status());
  const std::vector<FileTensor>& t = header->tensors;
  EXPECT_EQ(t[0].type, "type 41");
  EXPECT_EQ(t[0].dtype, DType::kInvalid);
  EXPECT_EQ(t[0].shape, (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(t[0].bytes, 64);
  EXPECT_EQ(t[1].bytes, 20);
  EXPECT_EQ(t[2].type, "type 4000000000");
  EXPECT_EQ(t[2].bytes, 9);
  EXPECT_EQ(MessageOf(FindTensor(t, "later").status()),
            "tensor later is of type 41, which is no element type or encoding here");
  ASSERT_OK(FindTensor(t, "known").status());
}

TEST(Gguf, SaysWhatTheFileHolds) {
  for (const uint32_t version : {2u, 3u}) {
    const GgufFile file = WholeGguf(version);
    const auto header = ReadGguf(file.bytes_);
    ASSERT_OK(header.status());
    EXPECT_EQ(header->version, version);
    EXPECT_EQ(header->alignment, 32);
    EXPECT_EQ(header->values.size(), 14u);
    EXPECT_EQ(header->values.at("general.architecture"), GgufValue(std::string("llama")));
    EXPECT_EQ(header->values.at("u8"), GgufValue(uint64_t{200}));
    EXPECT_EQ(header->values.at("i8"), GgufValue(int64_t{-3}));
    EXPECT_EQ(header->values.at("u32"), GgufValue(uint64_t{4'000'000'000}));
    EXPECT_EQ(header->values.at("i16"), GgufValue(int64_t{-300}));
    EXPECT_EQ(header->values.at("f32"), GgufValue(static_cast<double>(1e-5f)));
    EXPECT_EQ(header->values.at("bool"), GgufValue(true));
    EXPECT_EQ(header->values.at("u64"), GgufValue(~uint64_t{0}));
    EXPECT_EQ(header->values.at("f64"), GgufValue(0.1));
    EXPECT_EQ(header->values.at("tokens"), GgufValue(std::vector<std::string>{"a", "", "\xff\n"}));
    EXPECT_EQ(header->values.at("scores"), GgufValue(std::vector<double>{0.5, -2}));
    EXPECT_EQ(header->values.at("flags"), GgufValue(std::vector<bool>{false, true}));
    ASSERT_EQ(header->tensors.size(), 3u);
    const FileTensor& up = header->tensors[0];
    EXPECT_EQ(up.name, "blk.0.ffn_up.weight");
    EXPECT_EQ(up.type, "Q4_1");
    EXPECT_EQ(up.dtype, DType::kI8);
    EXPECT_EQ(up.encoding, Encoding::kQ4_1);
    EXPECT_EQ(up.shape, (std::vector<int64_t>{3, 64}));
    EXPECT_EQ(up.bytes, 120);
    EXPECT_EQ(up.bytes, TensorBytes(up.dtype, up.encoding, up.shape));
    EXPECT_EQ(up.offset, header->data_offset);
    EXPECT_EQ(header->data_offset % 32, 0);
    EXPECT_EQ(header->tensors[1].dtype, DType::kF32);
    EXPECT_EQ(header->tensors[1].offset, header->data_offset + 128);
    EXPECT_EQ(header->tensors[2].dtype, DType::kInvalid);
    EXPECT_EQ((*FindTensor(header->tensors, "norm.weight"))->bytes, 20);
    EXPECT_EQ(MessageOf(FindTensor(header->tensors, "output.weight").status()),
              "tensor output.weight is of Q4_K, which is no element type or encoding here");
    EXPECT_EQ(FindTensor(header->tensors, "output.weight").status().code(),
              absl::StatusCode::kUnimplemented);
    EXPECT_EQ(MessageOf(FindTensor(header->tensors, "x").status()),
              "none of the file's 3 tensors is called x");
  }
}

TEST(Gguf, BeginningsOfAFileAskForMore) {
  const GgufFile file = WholeGguf();
  const auto parse = [&](size_t n) {
    return ParseGguf({reinterpret_cast<const uint8_t*>(file.bytes_.data()), n},
                     static_cast<int64_t>(file.size()));
  };
  const auto end =
      static_cast<size_t>(ReadGguf(file.bytes_)->tensors[2].declared) + 8 + 13 + 4 + 16 + 4 + 8;
  for (size_t n = 0; n < end; ++n)
    EXPECT_EQ(parse(n).status().code(), absl::StatusCode::kOutOfRange) << n;
  for (size_t n = end; n <= file.size(); ++n) EXPECT_TRUE(parse(n).ok());
  // A file that ends there is invalid.
  for (size_t n = 0; n < file.size() - 31; ++n)
    EXPECT_EQ(ReadGguf(file.bytes_.substr(0, n)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << n;
}

TEST(Gguf, AlignmentIsTheFiles) {
  GgufFile f;
  f.Begin(2, 1)
      .Text("general.alignment")
      .Add<uint32_t>(4)
      .Add<uint32_t>(64)
      .Tensor("a", {2}, 24, 64)
      .Tensor("b", {3}, 25, 0)
      .Data(64 + 2, 64);
  const auto header = ReadGguf(f.bytes_);
  ASSERT_OK(header.status());
  EXPECT_EQ(header->data_offset % 64, 0);
  EXPECT_EQ(header->tensors[0].offset, header->data_offset + 64);
  for (const uint32_t wrong : {0u, 4u, 48u, 1u << 21}) {
    GgufFile g;
    g.Begin(0, 1).Text("general.alignment").Add<uint32_t>(4).Add<uint32_t>(wrong);
    EXPECT_EQ(GgufRefusal(g), fmt::format("gguf: byte {}: expected general.alignment to be a power "
                                          "of two from 8 to 1048576, got {}",
                                          g.size(), wrong));
  }
}

TEST(Gguf, FilesMayHoldNothing) {
  EXPECT_TRUE(ReadGguf(GgufFile().Begin(0, 0).bytes_).ok());
  EXPECT_TRUE(ReadGguf(GgufFile().Begin(0, 0).Data(0).bytes_).ok());
  EXPECT_TRUE(ReadGguf(GgufFile().Begin(1, 0).Tensor("none", {0, 4}, 0, 0).Data(0).bytes_).ok());
}

TEST(Gguf, RefusesWhatIsBroken) {
  const auto of = [](const std::function<void(GgufFile&)>& write) {
    GgufFile f;
    write(f);
    return GgufRefusal(f);
  };
  using std::string;
  EXPECT_EQ(of([](GgufFile& f) { f.bytes_ = "GGUF"; }),
            "gguf: byte 0: expected a header of 24 bytes at least, got a file of 4");
  EXPECT_EQ(of([](GgufFile& f) { f.bytes_ = string("GGML") + string(40, '\0'); }),
            "gguf: byte 0: expected GGUF, got GGML");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 0, 1); }),
            "gguf: byte 4: expected version 2 or 3, got 1");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 0, 4); }),
            "gguf: byte 4: expected version 2 or 3, got 4");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 0, 3u << 24); }),
            "gguf: byte 4: expected a little-endian file, got a big-endian one");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(65537, 0); }),
            "gguf: byte 8: expected at most 65536 tensors, got 65537");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, ~uint64_t{0}); }),
            "gguf: byte 16: expected at most 65536 key-values, got 18446744073709551615");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 1).Add<uint64_t>(1 << 20); }),
            "gguf: byte 32: expected a key of 1048576 bytes, but the file ends at 32");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 1).Add<uint64_t>(~uint64_t{0}); }),
            "gguf: byte 32: expected a key of 18446744073709551615 bytes, but the file ends at 32");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 1).Text("").Add<uint32_t>(0); }),
            "gguf: byte 24: expected a key of 1 to 65535 bytes, got 0");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 1).Text("a b").Add<uint32_t>(0); }),
            "gguf: byte 24: expected a key of ASCII, got a b");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 1).Text("k").Add<uint32_t>(13); }),
            "gguf: byte 33: expected a value's type of 0 to 12, got 13");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(0, 1).Text("k").Add<uint32_t>(7).Add<uint8_t>(2); }),
            "gguf: byte 37: expected 0 or 1 for a bool, got 2");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(0, 1).Text("k").Add<uint32_t>(9).Add<uint32_t>(9).Add<uint64_t>(1);
            }),
            "gguf: byte 37: expected an array of numbers, bools or strings, got one of arrays");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(0, 1).Text("k").Add<uint32_t>(9).Add<uint32_t>(99).Add<uint64_t>(1);
            }),
            "gguf: byte 37: expected an array's type of 0 to 12, got 99");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(0, 1).Text("k").Add<uint32_t>(9).Add<uint32_t>(0).Add<uint64_t>(5'000'000);
            }),
            "gguf: byte 41: expected at most 4194304 elements of arrays in all, got 5000000");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(0, 1).Text("k").Add<uint32_t>(9).Add<uint32_t>(10).Add<uint64_t>(4);
            }),
            "gguf: byte 49: expected an array of 32 bytes, but the file ends at 49");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(0, 2)
                  .Text("k")
                  .Add<uint32_t>(0)
                  .Add<uint8_t>(1)
                  .Text("k")
                  .Add<uint32_t>(0)
                  .Add<uint8_t>(1);
            }),
            "gguf: byte 38: key k is there twice");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(1, 0).Tensor("", {1}, 0, 0); }),
            "gguf: byte 24: expected a tensor's name of 1 to 64 bytes of UTF-8, got ");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(1, 0).Tensor(string(65, 'n'), {1}, 0, 0); }).substr(0, 70),
            "gguf: byte 24: expected a tensor's name of 1 to 64 bytes of UTF-8, got");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(1, 0).Tensor("t", {}, 0, 0); }),
            "gguf: byte 33: tensor t: expected rank 1 to 4, got 0");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(1, 0).Tensor("t", {1, 1, 1, 1, 1}, 0, 0);
            }),
            "gguf: byte 33: tensor t: expected rank 1 to 4, got 5");
  EXPECT_EQ(
      of([](GgufFile& f) { f.Begin(1, 0).Tensor("t", {1ull << 63}, 0, 0); }),
      "gguf: byte 37: tensor t: expected extents of at most 2^63 - 1, got 9223372036854775808");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(1, 0).Tensor("t", {48}, 8, 0); }),
            "gguf: byte 45: tensor t: expected rows of whole blocks of 32 for Q8_0, got 48");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(1, 0).Tensor("t", {1ull << 40, 1ull << 40}, 0, 0);
            }),
            "gguf: byte 53: tensor t: F32[1099511627776, 1099511627776] has more than 2^63 bytes");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(1, 0).Tensor("t", {1}, 0, 4).Data(64); }),
            "gguf: byte 49: tensor t: expected an offset that is a multiple of 32, got 4");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(1, 0).Tensor("t", {1}, 0, 1 << 20).Data(64); }),
            "gguf: byte 49: tensor t: expected an offset within the file's 128 bytes, got 1048576");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(1, 0).Tensor("t", {16}, 0, 0).Data(60); }),
            "gguf: byte 24: tensor t has 64 bytes at 64, but the file has tensors from 64 to 124");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(2, 0).Tensor("t", {9}, 0, 0).Tensor("u", {1}, 0, 32).Data(96);
            }),
            "gguf: byte 57: tensor u at 128 overlaps t, which ends at 132");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(2, 0).Tensor("t", {1}, 0, 0).Tensor("t", {1}, 0, 32).Data(64);
            }),
            "gguf: byte 57: tensor t is there twice");
  EXPECT_EQ(of([](GgufFile& f) {
              f.Begin(2, 0).Tensor("t", {1}, 0, 0).Tensor("u", {1}, 0, 64).Data(96);
            }),
            "gguf: byte 100: 60 bytes before tensor u belong to none");
  EXPECT_EQ(of([](GgufFile& f) { f.Begin(1, 0).Tensor("t", {1}, 0, 0).Data(64); }),
            "gguf: byte 68: 60 bytes at the end of the file belong to no tensor");
}

}  // namespace
}  // namespace opwire
