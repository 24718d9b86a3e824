// Cases that end in every way. test_run_shard.py chooses among them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

TEST(Sample, Passes) {}
TEST(Sample, PassesToo) { std::printf("no end of line"); }
TEST(Sample, Fails) { EXPECT_EQ(1, 2) << "what the case says"; }
TEST(Sample, FailsAtLength) {
  EXPECT_EQ(1, 2) << "what the case says";
  for (int i = 0; i < 300; ++i) std::printf("line %d\n", i);
}
TEST(Sample, FailsAfterALot) {
  const std::string line(1000, 'x');
  std::printf("the first line\n");
  for (int i = 0; i < 3000; ++i) std::printf("%s\n", line.c_str());
  EXPECT_EQ(1, 2) << "what the case says";
}
TEST(Sample, Crashes) {
  std::printf("before the crash\n");
  std::fflush(stdout);
  std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler ends the process in another way
  raise(SIGSEGV);
}
TEST(Sample, Exits) { _exit(3); }
TEST(Sample, Hangs) {
  for (;;) pause();
}
TEST(Sample, Skips) { GTEST_SKIP() << "for a reason"; }
TEST(Sample, FailsTheProcess) {
  std::atexit([] { _exit(66); });  // as a sanitizer does
}
TEST(Sample, DISABLED_Never) { FAIL(); }

class Numbered : public testing::TestWithParam<int> {};
TEST_P(Numbered, IsOdd) { EXPECT_EQ(GetParam() % 2, 1); }
INSTANTIATE_TEST_SUITE_P(Some, Numbered, testing::Values(1, 2, 3));

}  // namespace
