// Quotes from code in the documents: the first program, the limits, the three terminals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "ir/wire/limits.h"
#include "ir/wire/message.h"
#include "kernels/jit/sanitized.h"
#include "tests/cli/house.h"
#include "tests/cli/transcript.h"

namespace opwire {
namespace {

TEST(Documents, TheFirstProgramIsTheExample) {
  const std::string readme = ReadDocument("README.md");
  const std::string text = BlockOf(readme, "The first program", ""),
                    code = BlockOf(readme, "The first program", "cpp");
  ASSERT_FALSE(text.empty());
  ASSERT_FALSE(code.empty());
  EXPECT_NE(ReadDocument("examples/00_first/layer.opw").find(text), std::string::npos) << text;
  EXPECT_NE(ReadDocument("examples/00_first/main.cc").find(code), std::string::npos) << code;
}

TEST(Documents, ThreeTerminals) {
  House house;
  Transcript t(house);
  t.Say("$ export OPWIRE_RUNTIME_DIR=$(mktemp -d)");
  t.Say("$ opwire-registry &");
  house.StartRegistry();
  t.Say("$ opwire-executor --device cpu --name cpu-0 &");
  house.StartExecutor();
  ASSERT_EQ(house.Run("ln -s " OPWIRE_SOURCE "/examples examples").code, 0);
  t.Type("opwire devices");
  t.Type("opwire run examples/01_digits/mlp.opw");
  t.Type(
      "opwire run examples/01_digits/mlp.opw --in images=examples/data/digits.npy --out "
      "probabilities=probs.npy");
  const House::Result first = house.Run("first");
  EXPECT_EQ(first.code, 0) << first.output;
  t.Compare("README.md", "Three terminals");
}

// The tutorial, followed step by step.
TEST(Documents, AnOpOfOnesOwn) {
  House house;
  const std::string page = "docs/user-ops.md", document = ReadDocument(page);
  const auto compare = [&](const std::string& heading,
                           const std::function<void(Transcript&)>& type) {
    Transcript t(house);
    type(t);
    t.Compare(page, heading);
  };
  compare("1. A folder that works", [&](Transcript& t) { t.Type("opwire new-op gelu_bias"); });
  house.Write("gelu_bias/reference.opw", BlockOf(document, "2. What it means", ""));
  house.Write("gelu_bias/gelu_bias.cc", BlockOf(document, "3. What computes it", "cpp"));
  house.Write("gelu_bias/op.json", BlockOf(document, "3. What computes it", "json"));
  compare("4. Build it and check it", [&](Transcript& t) { t.Type("opwire build gelu_bias"); });
  house.Write("layer.opw", BlockOf(document, "5. Call it", ""));
  compare("5. Call it", [&](Transcript& t) {
    t.Say("$ export OPWIRE_RUNTIME_DIR=$(mktemp -d)");
    t.Say("$ opwire-registry &");
    house.StartRegistry();
    t.Say("$ opwire-executor --device cpu --name cpu-0 --ops gelu_bias &");
    house.StartExecutor("--ops gelu_bias");
    t.Type("opwire run layer.opw --in x=random:1 --in bias=random:2 --dim b=3 --profile");
  });
  const auto folder = [&] {
    return house.Run("opwire report | grep ^folder | sed 's|/.*/gelu_bias|gelu_bias|'");
  };
  compare("6. Change it while it runs", [&](Transcript& t) {
    t.Type("sed -i 's/T(0.5)/T(0.25)/' gelu_bias/gelu_bias.cc");
    EXPECT_TRUE(House::Eventually([&] {
      return folder().output.find("expected") != std::string::npos;
    })) << folder().output;
    t.Quote("opwire report | grep ^folder", folder());
    t.Type("sed -i 's/T(0.25)/T(0.5)/' gelu_bias/gelu_bias.cc");
    EXPECT_TRUE(House::Eventually([&] {
      return folder().output.find("expected") == std::string::npos;
    })) << folder().output;
    t.Quote("opwire report | grep ^folder", folder());
  });
  if (jit::kSanitized) return;  // sanitizers do not support the emulator's fibers
  const char* const gpu = "7. The same on a GPU";
  house.Write("gelu_bias/gelu_bias.cu", BlockOf(document, gpu, "cpp"));
  house.Write("gelu_bias/op.json", BlockOf(document, gpu, "json"));
  compare(gpu, [&](Transcript& t) {
    t.Type("opwire build --on emu:0 --quick gelu_bias | grep -A3 'gpu  emu'");
  });
}

TEST(Documents, PassesAndOneOfOnesOwn) {
  House house;
  const std::string page = "docs/passes.md", document = ReadDocument(page);
  house.Write("mlp.opw", BlockOf(document, "What they do to a program", ""));
  Transcript t(house);
  t.Type("opwire opt mlp.opw");
  t.Type("opwire opt mlp.opw --stats --dim b=512");
  t.Compare(page, "What they do to a program");
  house.Write("fit.opw", BlockOf(document, "Gradients", ""));
  Transcript gradients(house);
  gradients.Type("opwire opt fit.opw --grad w,bias");
  gradients.Compare(page, "Gradients");
  house.Write("settle.opw", BlockOf(document, "Gradients through loops", ""));
  Transcript loops(house);
  loops.Type("opwire opt settle.opw --grad w");
  loops.Compare(page, "Gradients through loops");
  house.Write("gate.opw", BlockOf(document, "Gradients through branches", ""));
  Transcript branches(house);
  branches.Type("opwire opt gate.opw --grad w");
  branches.Compare(page, "Gradients through branches");
  house.Write("tower.opw", BlockOf(document, "Less memory for more work", ""));
  Transcript memory(house);
  memory.Type("opwire opt tower.opw --grad w,v --dim b=4096 --memory 7MiB --stats | tail -1");
  memory.Type("opwire opt tower.opw --grad w,v --dim b=4096 --memory 1MiB");
  memory.Compare(page, "Less memory for more work");
  house.Write("tanh-gelu", BlockOf(document, "A pass of your own", "sh"));
  ASSERT_EQ(house.Run("chmod +x tanh-gelu").code, 0);
  Transcript own(house);
  own.Type("opwire opt mlp.opw --with ./tanh-gelu | grep gelu");
  own.Compare(page, "A pass of your own");
}

TEST(Documents, LimitsAreTheTable) {
  std::string table = "| flag | default | |\n|---|---|---|\n";
  for (const ExecutorLimit& row : kExecutorLimits)
    table += fmt::format("| `--limit-{}` | {} | {} |\n", row.name, row.fallback, row.doc);
  const std::string protocol = ReadDocument("docs/protocol.md");
  EXPECT_NE(protocol.find(table), std::string::npos) << "docs/protocol.md should hold:\n" << table;
  EXPECT_NE(protocol.find(fmt::format("Protocol {}.{}", kProtocolMajor, kProtocolMinor)),
            std::string::npos);
}

}  // namespace
}  // namespace opwire
