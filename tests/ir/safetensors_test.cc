// safetensors headers: the contents of a file that is created here, and that each way to break it
// is refused with its byte and reason.
#include "ir/files/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/assert_ok.h"

namespace opwire {
namespace {

std::string SafetensorsFile(std::string_view json, size_t data) {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>(json.size() >> 8 * i & 0xff);
  return bytes + std::string(json) + std::string(data, '\0');
}
StatusOr<SafetensorsHeader> ReadSafetensors(const std::string& bytes) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                          static_cast<int64_t>(bytes.size()));
}
std::string SafetensorsRefusal(std::string_view json, size_t data) {
  return MessageOf(ReadSafetensors(SafetensorsFile(json, data)).status());
}

constexpr std::string_view kWholeHeader =
    R"({"__metadata__": {"format": "pt", "a\u00e9\ud83d\ude00\n": "\"\\\/"}, "w.b": {"shape": [2, 3], "dtype": "BF16", "data_offsets": [4, 16]},)"
    R"( "s": {"dtype":"F32","shape":[],"data_offsets":[0,4]}, "e": {"dtype":"I64","shape":[0, 7],"data_offsets":[16,16]}, "f": {"dtype":"F4","shape":[2],"data_offsets":[16,17]}}   )";

TEST(Safetensors, SaysWhatTheFileHolds) {
  const auto header = ReadSafetensors(SafetensorsFile(kWholeHeader, 17));
  ASSERT_OK(header.status());
  EXPECT_EQ(header->data_offset, static_cast<int64_t>(8 + kWholeHeader.size()));
  EXPECT_EQ(header->metadata.size(), 2u);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->metadata.at("a\xc3\xa9\xf0\x9f\x98\x80\n"), "\"\\/");
  ASSERT_EQ(header->tensors.size(), 4u);
  const FileTensor& w = header->tensors[0];
  EXPECT_EQ(w.name, "w.b");
  EXPECT_EQ(w.dtype, DType::kBF16);
  EXPECT_EQ(w.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(w.offset, header->data_offset + 4);
  EXPECT_EQ(w.bytes, 12);
  EXPECT_EQ(header->tensors[1].shape, std::vector<int64_t>());
  EXPECT_EQ(header->tensors[2].bytes, 0);
  EXPECT_EQ(MessageOf(FindTensor(header->tensors, "f").status()),
            "tensor f is of F4, which is no element type or encoding here");
  EXPECT_TRUE(ReadSafetensors(SafetensorsFile("{}", 0)).ok());
}

// Only their own tensors are lost.
TEST(Safetensors, UnknownTypesAndManyAxesCostNoOtherTensor) {
  const auto header = ReadSafetensors(SafetensorsFile(
      R"({"a":{"dtype":"F8_E4M3FNUZ","shape":[3],"data_offsets":[0,3]},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]},)"
      R"("c":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[7,8]}})",
      8));
  ASSERT_OK(header.status());
  EXPECT_EQ(MessageOf(FindTensor(header->tensors, "a").status()),
            "tensor a is of F8_E4M3FNUZ, which is no element type or encoding here");
  ASSERT_OK_AND(const FileTensor* const b, FindTensor(header->tensors, "b"));
  EXPECT_EQ(b->offset, header->data_offset + 3);
  EXPECT_EQ(MessageOf(FindTensor(header->tensors, "c").status()),
            "tensor c is of U8 with 17 axes, which is no element type or encoding here");
}

TEST(Safetensors, BeginningsOfAFileAskForMore) {
  const std::string file = SafetensorsFile(kWholeHeader, 17);
  for (size_t n = 0; n <= file.size(); ++n) {
    const auto header = ParseSafetensors({reinterpret_cast<const uint8_t*>(file.data()), n},
                                         static_cast<int64_t>(file.size()));
    EXPECT_EQ(header.status().code(),
              n < 8 + kWholeHeader.size() ? absl::StatusCode::kOutOfRange : absl::StatusCode::kOk)
        << n;
    if (n == file.size()) break;
    EXPECT_EQ(ReadSafetensors(file.substr(0, n)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << n;
  }
}

TEST(Safetensors, RefusesWhatIsBroken) {
  const auto one = [](std::string_view fields, size_t data) {
    return SafetensorsRefusal(fmt::format(R"({{"t":{{{}}}}})", fields), data);
  };
  EXPECT_EQ(MessageOf(ReadSafetensors("abc").status()),
            "safetensors: byte 0: expected a length of 8 bytes, got a file of 3");
  EXPECT_EQ(
      MessageOf(ReadSafetensors(std::string(8, '\xff')).status()),
      "safetensors: byte 0: expected a header of at most 33554424 bytes, got 18446744073709551615");
  EXPECT_EQ(MessageOf(ReadSafetensors(SafetensorsFile("{}", 0).substr(0, 9)).status()),
            "safetensors: byte 0: the header has 2 bytes, but the file ends at 9");
  EXPECT_EQ(SafetensorsRefusal("", 0), "safetensors: byte 8: expected '{', got the header's end");
  EXPECT_EQ(SafetensorsRefusal("[]", 0), "safetensors: byte 8: expected '{', got []");
  EXPECT_EQ(SafetensorsRefusal("{}x", 0), "safetensors: byte 10: expected the header's end, got x");
  EXPECT_EQ(SafetensorsRefusal("{\"a\":1}", 0), "safetensors: byte 13: expected '{', got 1}");
  EXPECT_EQ(SafetensorsRefusal("{\"a\"}", 0), "safetensors: byte 12: expected ':', got }");
  EXPECT_EQ(SafetensorsRefusal("{a:1}", 0),
            "safetensors: byte 9: expected a tensor's name in quotes, got a:1}");
  EXPECT_EQ(SafetensorsRefusal("{\"a", 0),
            "safetensors: byte 11: expected the end of a string, got the header's end");
  EXPECT_EQ(SafetensorsRefusal("{\"\\x\":{}}", 0),
            "safetensors: byte 11: expected an escape of JSON, got x\":{}}");
  EXPECT_EQ(SafetensorsRefusal("{\"\\ud800\":{}}", 0),
            "safetensors: byte 16: expected the second half of a surrogate pair, got \":{}}");
  EXPECT_EQ(
      SafetensorsRefusal("{\"\\udc00\":{}}", 0),
      "safetensors: byte 16: expected the first half of a surrogate pair before this, got \":{}}");
  EXPECT_EQ(SafetensorsRefusal("{\"\xc0\x80\":{}}", 0),
            "safetensors: byte 9: expected a string of UTF-8");
  EXPECT_EQ(SafetensorsRefusal("{\"\n\":{}}", 0),
            "safetensors: byte 10: expected no control character in a string, got \\x0a\":{}}");
  EXPECT_EQ(SafetensorsRefusal(R"({"__metadata__":{"a":1}})", 0),
            "safetensors: byte 29: expected a value in quotes, got 1}}");
  EXPECT_EQ(SafetensorsRefusal(R"({"__metadata__":{"a":"","a":""}})", 0),
            "safetensors: byte 32: key a is there twice");
  EXPECT_EQ(SafetensorsRefusal(R"({"__metadata__":{},"__metadata__":{}})", 0),
            "safetensors: byte 27: __metadata__ is there twice");
  EXPECT_EQ(one(R"("dtype":"U8","shape":[1])", 1),
            "safetensors: byte 9: tensor t: data_offsets is missing");
  EXPECT_EQ(one(R"("dtype":"U8","dtype":"U8")", 1),
            "safetensors: byte 27: tensor t: dtype is there twice");
  EXPECT_EQ(one(R"("order":1)", 1),
            "safetensors: byte 14: tensor t: expected dtype, shape or data_offsets, got order");
  EXPECT_EQ(one(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1),
            "safetensors: byte 36: expected a whole number, got -1],\"data_offset...");
  EXPECT_EQ(one(R"("dtype":"U8","shape":[01],"data_offsets":[0,1])", 1),
            "safetensors: byte 36: expected a whole number, got 01],\"data_offset...");
  EXPECT_EQ(one(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])", 1),
            "safetensors: byte 37: expected ',' or ']', got .5],\"data_offset...");
  EXPECT_EQ(one(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])", 1),
            "safetensors: byte 36: expected a number below 2^63");
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_EQ(one(R"("dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1])", 1).substr(0, 53),
            "safetensors: byte 164: expected at most 64 numbers, g");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,1])", 1),
            "safetensors: byte 9: tensor t: F32[4294967296, 4294967296] takes more than 2^60 "
            "bytes, but data_offsets are 1 apart");
  EXPECT_EQ(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4),
            "safetensors: byte 9: tensor t: F32[2] takes 8 bytes, but data_offsets are 4 apart");
  EXPECT_EQ(one(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", 1),
            "safetensors: byte 9: tensor t: expected data_offsets to be where it begins and ends");
  EXPECT_EQ(
      one(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])", 1),
      "safetensors: byte 9: tensor t has 2 bytes at 61, but the file has tensors from 61 to 62");
  EXPECT_EQ(one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2),
            "safetensors: byte 61: 1 bytes before tensor t belong to none");
  EXPECT_EQ(one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])", 2),
            "safetensors: byte 62: 1 bytes at the end of the file belong to no tensor");
  EXPECT_EQ(
      SafetensorsRefusal(
          R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"u":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          2),
      "safetensors: byte 61: tensor u at 114 overlaps t, which ends at 115");
  EXPECT_EQ(
      SafetensorsRefusal(
          R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
          0),
      "safetensors: byte 61: tensor t is there twice");
}

}  // namespace
}  // namespace opwire
