// Models' weights are loaded from a file next to the executor, stay in their blocks, and are used
// without passing through the client.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "tests/system/processes.h"

namespace opwire::client {
namespace {

// A GGUF file of i8:q4_1[2, 64] "head.weight". Its elements are 0.5 q + 1. The nibbles q are 1 and
// 2 for the first row, 3 and 4 for the second.
std::string HeadFile() {
  std::string bytes = "GGUF";
  const auto add = [&](auto v) { bytes.append(reinterpret_cast<const char*>(&v), sizeof(v)); };
  const std::string name = "head.weight";
  add(uint32_t{3}), add(uint64_t{1}), add(uint64_t{0});
  add(uint64_t{name.size()});
  bytes += name;
  add(uint32_t{2}), add(uint64_t{64}), add(uint64_t{2}), add(uint32_t{3}), add(uint64_t{0});
  bytes.resize((bytes.size() + 31) / 32 * 32);
  for (const char nibbles : {'\x21', '\x43'}) {
    for (int block = 0; block < 2; ++block) {
      add(uint16_t{0x3800}), add(uint16_t{0x3c00});  // 0.5 and 1 as f16
      bytes.append(16, nibbles);
    }
  }
  return bytes;
}

Array Ones(int64_t rows) {
  return Array::Of(DType::kF32, {rows, 64},
                   std::span<const float>(Floats(static_cast<size_t>(rows) * 64, 1)));
}

class ModelsTest : public SystemTest {};

TEST_F(ModelsTest, WeightsStayInTheirBlocks) {
  const std::string data = directory_ + "/data", own = data + "/uid-" + std::to_string(getuid());
  std::filesystem::create_directories(own);
  std::ofstream(own + "/model.gguf", std::ios::binary) << HeadFile();
  StartRegistry();
  StartExecutor("e1", {"--data", data});
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open({}));
  ASSERT_OK_AND(const Tensor weight, session.LoadFile("model.gguf", "head.weight"));
  EXPECT_EQ(weight.encoding(), Encoding::kQ4_1);
  EXPECT_EQ(weight.shape(), (std::vector<int64_t>{2, 64}));
  EXPECT_EQ(weight.bytes(), 80);
  ASSERT_OK_AND(const Program head,
                session.Load("program @head(%x: f32[?n, 64], %w: i8:q4_1[2, 64], %i: i64[1]) -> "
                             "(y: f32[?n, 2], row: f32[1, 64]) {\n"
                             "  %0 = quantized_linear(%x, %w)\n  %1 = quantized_embedding(%w, "
                             "%i)\n  return %0, %1\n}\n"));
  const int64_t second = 1;
  const Array x = Ones(3), i = Array::Of(DType::kI64, {1}, std::span(&second, 1));
  ASSERT_OK_AND(const auto out, head.Call({x, weight, i}));
  // x is ones, which 8 bits represent exactly: 64 elements, half of them for each nibble.
  for (size_t k = 0; k < 6; ++k) EXPECT_NEAR(ToFloats(out.at(0))[k], k % 2 == 0 ? 112 : 176, 1e-3);
  EXPECT_EQ(out.at(1).values<float>()[0], 2.5f);
  EXPECT_EQ(out.at(1).values<float>()[16], 3.0f);
  // Its bytes come back unchanged; it cannot be fetched as an array.
  std::vector<uint8_t> bytes(80);
  ASSERT_OK(session.FetchInto(weight, bytes));
  EXPECT_EQ(std::memcmp(bytes.data(), HeadFile().data() + HeadFile().size() - 80, 80), 0);
  EXPECT_EQ(session.Fetch(weight).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(session.View(weight).status().code(), absl::StatusCode::kUnimplemented);
  // If the program needs another encoding, the error names both.
  ASSERT_OK_AND(const Program other,
                session.Load("program @other(%x: f32[1, 64], %w: i8:q8_0[2, 64]) -> (y: f32[1, 2]) "
                             "{\n  %0 = quantized_linear(%x, %w)\n  return %0\n}\n"));
  const auto refused = other.Call({Ones(1), weight});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(MessageOf(refused.status()).find("%w: expected i8:q8_0[2, 64], got i8:q4_1[2, 64]"),
            std::string::npos)
      << refused.status();
}

TEST_F(ModelsTest, ManyTensorsOfAFileComeInTheOrderOfTheirNamesOrNone) {
  constexpr int kTensors = 300;  // more than may be in flight
  const std::string data = directory_ + "/data", own = data + "/uid-" + std::to_string(getuid());
  std::filesystem::create_directories(own);
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i)
    header += fmt::format(R"({}"t{}":{{"dtype":"I32","shape":[],"data_offsets":[{},{}]}})",
                          i ? "," : "", i, 4 * i, 4 * i + 4);
  header += "}";
  const uint64_t bytes = header.size();
  std::ofstream file(own + "/many.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&bytes), sizeof bytes) << header;
  for (int32_t i = 0; i < kTensors; ++i) file.write(reinterpret_cast<const char*>(&i), sizeof i);
  file.close();
  StartRegistry();
  StartExecutor("e1", {"--data", data});
  Client client = Connect();
  ASSERT_OK_AND(Session session, client.Open({}));
  std::vector<std::string> names;
  for (int i = 0; i < kTensors; ++i) names.push_back(fmt::format("t{}", kTensors - 1 - i));
  {
    ASSERT_OK_AND(const std::vector<Tensor> all, session.LoadFile("many.safetensors", names));
    ASSERT_EQ(all.size(), names.size());
    for (size_t i = 0; i < all.size(); i += 37) {
      ASSERT_OK_AND(const Array value, session.Fetch(all[i]));
      EXPECT_EQ(value.values<int32_t>()[0], kTensors - 1 - static_cast<int>(i));
    }
  }
  for (const size_t bad : {size_t{0}, size_t{70}, names.size() - 1}) {
    std::vector<std::string> some = names;
    some[bad] = "other";
    EXPECT_EQ(MessageOf(session.LoadFile("many.safetensors", some).status()),
              "file many.safetensors: none of the file's 300 tensors is called other");
  }
  ASSERT_OK_AND(const std::vector<TensorFacts> left, session.List());
  EXPECT_TRUE(left.empty()) << left.size();
  EXPECT_EQ(session.LoadFile("many.safetensors", std::span<const std::string>()).value().size(),
            0u);
}

}  // namespace
}  // namespace opwire::client
