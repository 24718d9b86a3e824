// What equal calls share: made once, by one of those that ask for it together, and gone with the
// last that holds it.
#include "kernels/ops/gpu/by_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/assert_ok.h"

namespace opwire::gpu {
namespace {

TEST(ByCall, IsMadeOnceAndGoesWithItsLastHolder) {
  ByCall<int> ints;
  int made = 0;
  const auto make = [&]() -> StatusOr<std::unique_ptr<int>> {
    return std::make_unique<int>(++made);
  };
  ASSERT_OK_AND(std::shared_ptr<const int> a, ints.Get("a", make));
  ASSERT_OK_AND(const std::shared_ptr<const int> again, ints.Get("a", make));
  ASSERT_OK_AND(const std::shared_ptr<const int> b, ints.Get("b", make));
  EXPECT_EQ(a, again);
  EXPECT_EQ(*b, 2);
  ASSERT_OK_AND(std::shared_ptr<const int> c, ints.Get("c", make));
  c = nullptr;
  ASSERT_OK_AND(c, ints.Get("c", make));
  EXPECT_EQ(*c, 4) << "nobody held it";
}

TEST(ByCall, WhatFailsIsAskedForAgain) {
  ByCall<int> ints;
  EXPECT_EQ(
      ints.Get("a", []() -> StatusOr<std::unique_ptr<int>> { return Unimplemented("not here"); })
          .status(),
      Unimplemented("not here"));
  ASSERT_OK_AND(
      const std::shared_ptr<const int> a,
      ints.Get("a", []() -> StatusOr<std::unique_ptr<int>> { return std::make_unique<int>(7); }));
  EXPECT_EQ(*a, 7);
}

TEST(ByCall, ThreadsWaitForTheOneThatMakesIt) {
  ByCall<int> ints;
  std::atomic<int> made = 0;
  std::vector<std::shared_ptr<const int>> got(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&, i] {
      got[i] = ints.Get(i % 2 == 0 ? "even" : "odd",
                        [&]() -> StatusOr<std::unique_ptr<int>> {
                          std::this_thread::sleep_for(std::chrono::milliseconds(20));
                          return std::make_unique<int>(++made);
                        })
                   .value();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(made, 2);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], got[i % 2]);
}

}  // namespace
}  // namespace opwire::gpu
