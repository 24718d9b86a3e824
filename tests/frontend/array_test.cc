// Arrays in this process and their .npy files.
#include "frontend/cpp/array.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ir/base/dtype.h"

namespace opwire::client {
namespace {

class ArrayTest : public ::testing::Test {
 protected:
  ArrayTest() {
    char path[] = "/tmp/opwire-test-XXXXXX";
    directory_ = mkdtemp(path);
  }
  ~ArrayTest() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(ArrayTest, FilesKeepEveryType) {
  for (int t = 1; t < kDTypeCount; ++t) {
    const DType dtype = static_cast<DType>(t);
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {0}, {1}, {3, 0, 2}, {7}, {2, 3, 5}}) {
      const Array a = Array::Random(dtype, shape, 3);
      const std::string path = directory_ + "/a.npy";
      const Status written = a.WriteNpy(path);
      if (dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2) {
        EXPECT_EQ(written.code(), absl::StatusCode::kUnimplemented);
        continue;
      }
      ASSERT_TRUE(written.ok()) << written;
      auto back = Array::ReadNpy(path);
      ASSERT_TRUE(back.ok()) << DTypeName(dtype) << ": " << back.status();
      EXPECT_EQ(back->dtype(), dtype);
      EXPECT_EQ(back->shape(), shape);
      EXPECT_TRUE(std::equal(a.bytes().begin(), a.bytes().end(), back->bytes().begin(),
                             back->bytes().end()));
    }
  }
}

TEST_F(ArrayTest, RandomContentsAreReproducible) {
  const Array a = Array::Random(DType::kF32, {1000}, 7), b = Array::Random(DType::kF32, {1000}, 7),
              c = Array::Random(DType::kF32, {1000}, 8);
  EXPECT_TRUE(std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin()));
  EXPECT_FALSE(std::equal(a.bytes().begin(), a.bytes().end(), c.bytes().begin()));
  for (float v : a.values<float>()) EXPECT_TRUE(v >= -1 && v < 1);
}

TEST_F(ArrayTest, FilesThatAreNone) {
  EXPECT_EQ(Array::ReadNpy(directory_ + "/none").status().code(), absl::StatusCode::kNotFound);
  const std::string path = directory_ + "/bad.npy";
  ASSERT_TRUE(Array::Random(DType::kF32, {4}, 1).WriteNpy(path).ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(Array::ReadNpy(path).status().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(path) << "text";
  EXPECT_EQ(Array::ReadNpy(path).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace opwire::client
