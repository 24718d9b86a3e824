// Choosing the fastest of several ways on a device, once.
#include "kernels/ops/gpu/tune.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "kernels/select/choices.h"
#include "tests/assert_ok.h"

namespace opwire::gpu {
namespace {

class TuneTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND(device_, OpenDevice("emu:0", {})); }
  Code CodeWith(std::shared_ptr<Choices> choices) {
    return Code(static_cast<GpuDevice&>(*device_), nullptr, "", std::move(choices));
  }
  // Way 1 is the fastest, way 2 fails.
  Status Launch(int way, std::span<char* const> memory) {
    ++launches_;
    EXPECT_EQ(memory.size(), 2u);
    if (way == 2) return Internal("it cannot");
    std::this_thread::sleep_for(std::chrono::milliseconds(way == 1 ? 1 : 30));
    return absl::OkStatus();
  }
  int Fastest(Code& code, const std::string& key, int ways) {
    return FastestOf(
        code, key, ways, {{DType::kBF16, 3 << 20}, {DType::kU8, 0}},
        [this](int way, std::span<char* const> memory) { return Launch(way, memory); });
  }

  std::unique_ptr<Device> device_;
  int launches_ = 0;
};

TEST_F(TuneTest, TheFastestIsMeasuredOnceAndKept) {
  const auto choices = Choices::Open("", "tune");
  Code code = CodeWith(choices);
  EXPECT_EQ(Fastest(code, "some product", 3), 1);
  ASSERT_NE(choices->Find("some product"), nullptr);
  const int measured = launches_;
  EXPECT_GT(measured, 6);
  EXPECT_EQ(Fastest(code, "some product", 3), 1);
  EXPECT_EQ(launches_, measured);
  EXPECT_EQ(Fastest(code, "some product", 1), 0) << "of fewer ways than were there";
  EXPECT_EQ(Fastest(code, "another", 1), 0);
  EXPECT_EQ(launches_, measured) << "one way needs no measuring";
}

TEST_F(TuneTest, WithoutChoicesTheFirstIsTaken) {
  Code code = CodeWith(nullptr);
  EXPECT_EQ(Fastest(code, "some product", 3), 0);
  EXPECT_EQ(launches_, 0);
}

TEST_F(TuneTest, MemoryHoldsRandomNumbers) {
  Code code = CodeWith(Choices::Open("", "tune"));
  constexpr int kCount = (5 << 20) / 4;
  FastestOf(code, "numbers", 2, {{DType::kF32, 4 * kCount}},
            [&](int, std::span<char* const> memory) -> Status {
              std::vector<float> x(kCount);
              OPWIRE_RETURN_IF_ERROR(device_->Copy(x.data(), memory[0], 4 * kCount, 0));
              OPWIRE_RETURN_IF_ERROR(device_->Synchronize());
              double sum = 0, squares = 0;
              for (const float v : x) sum += v, squares += v * v;
              EXPECT_NEAR(sum / kCount, 0, 0.01);
              EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.01);
              return absl::OkStatus();
            });
}

}  // namespace
}  // namespace opwire::gpu
