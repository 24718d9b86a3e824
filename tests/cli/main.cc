// Runs the tests; with --update, rewrites the quotes of the documents instead of comparing them.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/cli/transcript.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    opwire::update_documents |= std::string_view(argv[i]) == "--update";
  return RUN_ALL_TESTS();
}
