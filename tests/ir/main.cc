// Runs the tests; with --update-golden, writes the golden files of the present protocol version
// first.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/ir/golden.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    opwire::update_golden |= std::string_view(argv[i]) == "--update-golden";
  return RUN_ALL_TESTS();
}
