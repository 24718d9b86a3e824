// What the documents quote from code: the first program, the limits, the three terminals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>

#include "ir/wire/limits.h"
#include "ir/wire/message.h"
#include "tests/cli/house.h"
#include "tests/cli/transcript.h"

namespace opwire {
namespace {

TEST(Documents, TheFirstProgramIsTheExample) {
  const std::string readme = ReadDocument("README.md");
  const std::string text = BlockOf(readme, "The first program", ""), code = BlockOf(readme, "The first program", "cpp");
  ASSERT_FALSE(text.empty());
  ASSERT_FALSE(code.empty());
  EXPECT_NE(ReadDocument("examples/00_first/layer.opw").find(text), std::string::npos) << text;
  EXPECT_NE(ReadDocument("examples/00_first/main.cc").find(code), std::string::npos) << code;
}

TEST(Documents, ThreeTerminals) {
  House house;
  Transcript t(house);
  t.Say("$ opwire-registry &");
  house.StartRegistry();
  t.Say("$ opwire-executor --device cpu --name cpu-0 &");
  house.StartExecutor();
  ASSERT_EQ(house.Run("ln -s " OPWIRE_SOURCE "/examples examples").code, 0);
  t.Type("opwire devices");
  t.Type("opwire run examples/01_digits/mlp.opw");
  t.Type("opwire run examples/01_digits/mlp.opw --in images=examples/data/digits.npy --out probabilities=probs.npy");
  const House::Result first = house.Run("first");
  EXPECT_EQ(first.code, 0) << first.output;
  t.Compare("README.md", "Three terminals");
}

TEST(Documents, LimitsAreTheTable) {
  std::string table = "| flag | default | |\n|---|---|---|\n";
  for (const ExecutorLimit& row : kExecutorLimits)
    table += fmt::format("| `--limit-{}` | {} | {} |\n", row.name, row.fallback, row.doc);
  const std::string protocol = ReadDocument("docs/protocol.md");
  EXPECT_NE(protocol.find(table), std::string::npos) << "docs/protocol.md should hold:\n" << table;
  EXPECT_NE(protocol.find(fmt::format("Protocol {}.{}", kProtocolMajor, kProtocolMinor)), std::string::npos);
}

}  // namespace
}  // namespace opwire
