// By the parser and the table of passes.
#include "tests/passes/programs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text/text.h"
#include "tests/assert_ok.h"

namespace opwire {

Module Parsed(const std::string& text) {
  auto m = Parse(text, "test.opw");
  EXPECT_TRUE(m.ok()) << m.status();
  return m.ok() ? *std::move(m) : Module();
}

PipelineOptions OnlyPasses(std::initializer_list<std::string_view> names) {
  PipelineOptions options;
  for (const PassRow& pass : PassTable()) {
    if (std::ranges::find(names, pass.name) == names.end()) options.skip.emplace_back(pass.name);
  }
  return options;
}

}  // namespace opwire
