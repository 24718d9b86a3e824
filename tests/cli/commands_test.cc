// Every command as a first-time user sees it: help with examples, JSON, exit codes, sessions with
// names, `opwire up`.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/cli/house.h"
#include "tests/cli/transcript.h"

namespace opwire {
namespace {

using nlohmann::json;

constexpr const char* kCount =
    "program @count(inout %total: f32[4], %x: f32[4]) -> (total: f32[4], twice: f32[4]) {\n"
    "  %0 = add(%total, %x)\n"
    "  %1 = add(%x, %x)\n"
    "  return %0, %1\n"
    "}\n";

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Commands : public testing::Test {
 protected:
  void StartBoth() {
    house_.StartRegistry();
    house_.StartExecutor();
    house_.Write("count.opw", kCount);
  }
  // The command ends with this code, and its error contains this part.
  void Expect(const std::string& command, int code, const std::string& part) {
    const House::Result r = house_.Run(command);
    EXPECT_EQ(r.code, code) << command << "\n" << r.output;
    EXPECT_TRUE(Has(r.output, part)) << command << "\n" << r.output << "lacks: " << part;
  }
  json Json(const std::string& command, int code = 0) {
    const House::Result r = house_.Run(command);
    EXPECT_EQ(r.code, code) << command << "\n" << r.output;
    json j = json::parse(r.output, nullptr, false);
    EXPECT_FALSE(j.is_discarded()) << command << "\n" << r.output;
    return j;
  }
  House house_;
};

TEST_F(Commands, HelpHasAnExample) {
  for (const char* command :
       {"up", "devices", "ops", "explain", "report", "run", "opt", "keys", "sessions", "grants"}) {
    const House::Result r = house_.Run(fmt::format("opwire {} --help", command));
    EXPECT_EQ(r.code, 0);
    EXPECT_TRUE(Has(r.output, fmt::format("Examples:\n  opwire {}", command))) << r.output;
  }
  for (const char* program : {"opwire", "opwire-executor", "opwire-registry"})
    Expect(fmt::format("{} --version", program), 0, fmt::format("{} 0.", program));
  Expect("opwire --help", 0,
         "Exit codes: 0 done, 1 the run failed, 2 usage, 3 nothing reachable, 4 refused.");
  Expect("opwire", 2, "Examples:");
}

TEST_F(Commands, ExplainShowsHowAProgramRuns) {
  house_.Write("train.opw",
               "program @train(%n: i64[], inout %w: f32[?b, 8]) -> (w: f32[?b, 8], s: f32[?b]) {\n"
               "  %0 = repeat(%n, [%w], []) calls(@step)\n"
               "  %1 = sum(%0) {dims = [1]}\n"
               "  return %0, %1\n}\n"
               "function @step(%iteration: i64[], inout %w: f32[?b, 8]) -> (w: f32[?b, 8]) {\n"
               "  %0 = exp(%w)\n  emit(%iteration) {name = \"iteration\"}\n  return %0\n}\n");
  const nlohmann::json plan = Json("opwire explain train.opw --dim b=3 --json", 0);
  EXPECT_EQ(plan["function"], "train");
  EXPECT_EQ(plan["loops"], 1);
  ASSERT_EQ(plan["count"], 6);
  const std::string ops[] = {"repeat", "repeat", "exp", "emit", "repeat", "sum"};
  const int targets[] = {-1, 5, 0, -1, 1, 0};
  for (size_t i = 0; i < 6; ++i) {
    const nlohmann::json& step = plan["steps"][i];
    EXPECT_EQ(step["op"], ops[i]) << i;
    EXPECT_EQ(step["function"], i == 2 || i == 3 ? "step" : "train") << i;
    EXPECT_EQ(step.value("goes_to", 0), targets[i]) << i;
  }
  EXPECT_EQ(plan["steps"][2]["writes"],
            nlohmann::json::parse(R"([{"to": "inout w", "at": 0, "bytes": 96}])"));
  EXPECT_EQ(plan["steps"][5]["writes"],
            nlohmann::json::parse(R"([{"to": "result s", "at": 0, "bytes": 12}])"));
  Expect("opwire explain train.opw", 0, "6 steps with loops (1)");
  house_.Write("halves.opw",
               "program @halves(%x: f32[8]) -> (y: f32[8]) {\n  %0 = neg(%x)\n  %1 = neg(%0)\n  %2 "
               "= sqrt(%1)\n  return %2\n}\n");
  EXPECT_EQ(Json("opwire explain halves.opw --json", 0)["steps"][0]["op"], "sqrt");
  // Its flops and bytes; and its measured time, because two of its variants compete.
  house_.Write("small.opw",
               "program @small(%x: f32[8, 8], %w: f32[8, 8]) -> (y: f32[8, 8], z: f32[8, 8]) {\n  "
               "%0 = matmul(%x, %w)\n  %1 = exp(%x)\n  %2 = mul(%1, %1)\n  return %0, %2\n}\n");
  const nlohmann::json small = Json("opwire explain small.opw --json", 0)["steps"];
  EXPECT_EQ(small[0]["flops"], 2 * 8 * 8 * 8);
  EXPECT_EQ(small[0]["moved"], 3 * 256);
  EXPECT_GT(small[0].value("measured_ns", 0.0), 0);
  EXPECT_EQ(small[1]["op"], "fused");
  EXPECT_EQ(small[1]["moved"], 2 * 256) << "nothing between the two";
  EXPECT_GE(small[1]["flops"], 2 * 64);
  EXPECT_FALSE(small[1].contains("measured_ns"));
  EXPECT_EQ(Json("opwire explain halves.opw --json --no-passes", 0)["steps"][0]["op"], "fused");
  Expect("opwire explain halves.opw --no-passes --exact", 2, "excludes");
  Expect("opwire explain train.opw", 0, "with b = 64");
  std::string params, results, nodes, values;
  for (int i = 0; i < 20; ++i) {
    params += fmt::format("{}%w{}: f32[{}]", i ? ", " : "", i, 1 + i);
    results += fmt::format("{0}r{1}: f32[{2}]", i ? ", " : "", i, 1 + i);
    nodes += fmt::format("  %n{0} = sin(%w{0})\n", i);
    values += fmt::format("{}%n{}", i ? ", " : "", i);
  }
  house_.Write("many.opw", fmt::format("program @many({}) -> ({}) {{\n{}  return {}\n}}\n", params,
                                       results, nodes, values));
  Expect("opwire explain many.opw", 0, "%0, %1, %2, %3, %4, %5 and 14 more  fused");
  Expect("opwire explain many.opw", 0, "result r4, result r5 and 14 more  ");
  Expect("opwire explain train.opw --dim c=3", 2, "no dimension c");
  Expect("opwire explain nofile.opw", 2, "nofile.opw cannot be read");
  Expect("opwire explain train.opw f32", 2, "expected nothing behind a program's file, got 'f32'");
  Expect("opwire explain matmul --dim b=3", 2,
         "--dim b=3: expected a program's file as well, got 'matmul'");
}

TEST_F(Commands, OptPrintsProgramsAndWhatPassesDid) {
  house_.Write("count.opw", kCount);
  const House::Result text = house_.Run("opwire opt count.opw");
  EXPECT_EQ(text.code, 0) << text.output;
  house_.Write("again.opw", text.output);
  EXPECT_EQ(house_.Run("opwire opt again.opw").output, text.output)
      << "what comes out is a fixed point";
  EXPECT_TRUE(Json("opwire --json opt count.opw")["program"].get<std::string>().starts_with(
      "program @count"));
  EXPECT_EQ(Json("opwire --json opt count.opw --stats")["runs"][0]["pass"], "canonicalise");
  Expect("opwire opt nothing.opw", 2, "nothing.opw cannot be read");
  Expect("opwire opt count.opw --skip deed", 2, "no pass 'deed', did you mean dead?");
  Expect("opwire opt count.opw --after x", 2, "no pass 'x'");
  Expect("opwire opt count.opw --memory much", 2,
         "--memory: expected bytes such as 4096, 64MiB or 2GiB, got 'much'");
  Expect("opwire opt count.opw --memory 1GiB --after dead", 2,
         "--memory: expected it without --after");
  EXPECT_EQ(Json("opwire --json opt count.opw --stats --memory 1GiB")["recomputed"]["nodes"], 0);
  Expect("opwire opt count.opw --dim b=1", 2, "--dim b: the program has no dimension b");
  Expect("opwire opt count.opw --exact --fast-math", 2, "excludes");
  Expect("opwire opt count.opw --with ./none", 2,
         "--with ./none: expected a program that can be run");
  Expect("opwire opt count.opw --with /bin/false", 1, "pass /bin/false: it ended with exit code 1");
  house_.Write("flood", "#!/bin/sh\nexec cat /dev/zero\n");
  EXPECT_EQ(house_.Run("chmod +x flood").code, 0);
  Expect("opwire opt count.opw --with ./flood", 1,
         "expected at most 67108864 bytes of output, it wrote");
  Expect("opwire opt count.opw --with /bin/pwd", 2,
         "pass /bin/pwd: its output:1:1: expected program");
}

// If it floods the command, leaves a process, or is stopped with the command.
TEST_F(Commands, WhatAPassStartedEndsWithIt) {
  house_.Write("count.opw", kCount);
  house_.Write("flood", "#!/bin/sh\n(echo $$ >group; cat /dev/zero)\n");
  house_.Write("leave", "#!/bin/sh\necho $$ >group\nsleep 1000 &\nexec cat\n");
  house_.Write("wait", "#!/bin/sh\necho $$ >group\nsleep 1000\n");
  ASSERT_EQ(house_.Run("chmod +x flood leave wait").code, 0);
  const auto is_gone = [&] {
    return House::Eventually([&] { return house_.Run("kill -0 -- -$(cat group)").code != 0; });
  };
  Expect("opwire opt count.opw --with ./flood", 1,
         "expected at most 67108864 bytes of output, it wrote");
  EXPECT_TRUE(is_gone());
  EXPECT_EQ(house_.Run("opwire opt count.opw --with ./leave").code, 0);
  EXPECT_TRUE(is_gone());
  ASSERT_EQ(house_.Run("rm group").code, 0);
  const pid_t opt = house_.Start("exec opwire opt count.opw --with ./wait");
  EXPECT_TRUE(House::Eventually([&] { return house_.Run("test -s group").code == 0; }));
  house_.Signal(opt, SIGINT);
  EXPECT_EQ(house_.Wait(opt).code, 128 + SIGINT);
  EXPECT_TRUE(is_gone());
}

TEST_F(Commands, OptAddsGradients) {
  house_.Write("loss.opw",
               "program @f(%x: f32[2, 3], %w: f32[3], %b: f32[3]) -> (loss: f32[]) { %0 = mul(%x, "
               "%w) %1 = add(%0, %b) %2 = sum(%1) return %2 }");
  const House::Result r = house_.Run("opwire opt loss.opw --grad w,b");
  EXPECT_EQ(r.code, 0) << r.output;
  EXPECT_TRUE(Has(r.output, "-> (loss: f32[], grad.w: f32[3], grad.b: f32[3])")) << r.output;
  Expect("opwire opt loss.opw --grad v", 2, "gradient: the program has no parameter v");
  Expect("opwire opt loss.opw --grad w --loss gain", 2, "gradient: the program has no result gain");
  Expect("opwire opt loss.opw --loss loss", 2, "--loss loss: expected --grad beside it");
}

// The kernels are those that users get.
TEST_F(Commands, OptAddsGradientsOfLoops) {
  StartBoth();
  house_.Write(
      "loop.opw",
      "program @f(%x: f32[8, 8], %w: f32[8, 8]) -> (loss: f32[]) { %n = full() {value = 3.0, dtype "
      "= i64} %y = repeat(%n, [%x], [%w]) calls(@step) %s = sum(%y) return %s }\n"
      "function @step(%iteration: i64[], inout %x: f32[8, 8], %w: f32[8, 8]) -> (x: f32[8, 8]) { "
      "%0 = "
      "matmul(%x, %w) %1 = sin(%0) return %1 }");
  house_.Write("steps.opw",
               "program @f(%x: f32[8, 8], %w: f32[8, 8]) -> (loss: f32[]) { %0 = matmul(%x, %w) %1 "
               "= sin(%0) %2 = matmul(%1, %w) %3 = sin(%2) %4 = matmul(%3, %w) %5 = sin(%4) %6 = "
               "sum(%5) return %6 }");
  const auto gradients = [&](const std::string& name) {
    const House::Result r =
        house_.Run(fmt::format("opwire opt {0}.opw --grad x,w > {0}.grad.opw && opwire run "
                               "{0}.grad.opw --in x=random:1 --in w=random:2 | grep grad",
                               name));
    EXPECT_EQ(r.code, 0) << r.output;
    return r.output;
  };
  const std::string loop = gradients("loop");
  EXPECT_TRUE(Has(loop, "grad.w: f32[8, 8] = ")) << loop;
  EXPECT_EQ(loop, gradients("steps"));
  house_.Write(
      "unknown.opw",
      "program @f(%n: i64[], %x: f32[8]) -> (loss: f32[]) { %y = repeat(%n, [%x], []) calls(@step) "
      "%s = sum(%y) return %s }\n"
      "function @step(%iteration: i64[], %x: f32[8]) -> (x: f32[8]) { %0 = sin(%x) return %0 }");
  Expect("opwire opt unknown.opw --grad x", 1,
         "gradient: expected a constant number of iterations, got one that only a run knows, for "
         "repeat "
         "(node %0 of \"f\")");
}

TEST_F(Commands, WrongUsageIsTwo) {
  house_.Write("count.opw", kCount);
  Expect("opwire device", 2, "no command 'device', did you mean devices?");
  Expect("opwire frobnicate", 2,
         "expected up, devices, ops, explain, report, run, opt, new-op, build, cache, keys, "
         "sessions, grants");
  Expect("opwire run", 2, "opwire run --help");
  Expect("opwire run nofile.opw", 2, "nofile.opw cannot be read");
  house_.Write("bell.opw", "program @f() -> () {\n  %0 = \x1b[2J\n}\n");
  Expect("opwire run bell.opw", 1, "\\x1b[2J");
  house_.Write("marks.opw", "program @f() -> () {\n  %0 = \xe2\x80\xae\xc2\x9b\n}\n");
  Expect("opwire run marks.opw", 1, "\\u202e\\u009b");
  Expect("opwire run count.opw --in x", 2, "expected NAME=VALUE");
  Expect("opwire run count.opw --in x=1.npy --in x=2.npy", 2, "given twice");
  Expect("opwire run count.opw --in totl=random", 2, "did you mean total?");
  Expect("opwire run count.opw --in total=random", 2, "pass --in x=FILE.npy or --in x=random:SEED");
  Expect("opwire run count.opw --in total=random:a --in x=random", 2,
         "expected a whole number, got 'a'");
  Expect("opwire run count.opw --in total=nofile.npy --in x=random", 2, "nofile.npy");
  Expect("opwire run count.opw --in total=random --in x=random --out y=y.npy", 2, "no result y");
  Expect("opwire run count.opw --in total=random --in x=random --out twice=no/y.npy", 2,
         "no directory no");
  Expect("opwire run count.opw --in total=random --in x=random --dim b=3", 2, "no dimension b");
  Expect("opwire run count.opw --in total=@w --in x=random", 2, "pass --session NAME");
  Expect("opwire run count.opw --in total=random --in x=random --memory 1x", 2,
         "expected bytes such as");
  Expect("opwire run count.opw --repeat 0", 2, "--repeat");
  Expect("opwire explain", 2, "expected an op");
  Expect("opwire explain matmull f32", 2, "did you mean matmul?");
  Expect("opwire explain matmul f33", 2, "expected an element type");
  Expect("opwire devices --registry here", 2,
         "expected ipc://PATH, tcp://HOST:PORT or tcp://KEY@HOST:PORT");
  Expect("opwire up --data nowhere", 2, "expected a directory that exists");
  EXPECT_EQ(Json("opwire frobnicate --json", 2)["error"]["exit"], 2);
  EXPECT_EQ(Json("opwire run nofile.opw --json", 2)["error"]["code"], "INVALID_ARGUMENT");
}

TEST_F(Commands, EveryCommandSpeaksJson) {
  EXPECT_EQ(Json("opwire devices --json", 3)["error"]["code"], "UNAVAILABLE");
  StartBoth();
  EXPECT_EQ(Json("opwire devices --json")[0]["id"], "cpu-0");
  EXPECT_GT(Json("opwire --json ops").size(), 50u);
  EXPECT_EQ(Json("opwire ops matmul --json")[0]["op"], "matmul");
  const json candidates = Json("opwire explain matmul f32 --json")["candidates"];
  EXPECT_EQ(std::count_if(candidates.begin(), candidates.end(),
                          [](const json& c) { return c["chosen"] == true; }),
            1)
      << candidates;
  EXPECT_EQ(Json("opwire explain --placement count.opw --json")[0]["fits"], true);
  EXPECT_EQ(Json("opwire report --json")["executor"], "cpu-0");
  EXPECT_EQ(Json("opwire sessions --json").size(), 0u);
  EXPECT_EQ(Json("opwire grants --json").size(), 0u);
  EXPECT_EQ(Json("opwire run count.opw --json")["parameters"][0]["mode"], "inout");
  const json ran =
      Json("opwire run count.opw --in total=random:1 --in x=random:2 --json --profile");
  EXPECT_EQ(ran["results"][1]["shape"], json({4}));
  EXPECT_EQ(ran["profile"].size(), 2u);
  EXPECT_EQ(ran["profile"][0]["function_name"], "");
  // The passes have removed the first function by then, so the second one has its number.
  house_.Write(
      "rounds.opw",
      "program @rounds(%n: i64[], %x: f32[4]) -> (y: f32[4]) {\n  %one = full() {value = 1.0, "
      "dtype = i64}\n  %a = repeat(%one, [%x], []) calls(@first)\n"
      "  %b = repeat(%n, [%a], []) calls(@second)\n  return %b\n}\n"
      "function @first(%i: i64[], %x: f32[4]) -> (x: f32[4]) {\n  %0 = neg(%x)\n  return %0\n}\n"
      "function @second(%i: i64[], %x: f32[4]) -> (x: f32[4]) {\n  %0 = sin(%x)\n  return %0\n}\n");
  const json rounds =
      Json("opwire run rounds.opw --in n=2 --in x=random:1 --json --profile")["profile"];
  EXPECT_TRUE(std::ranges::any_of(rounds, [](const json& c) {
    return c["function_name"] == "second" && c["value"] == "%0" &&
           c["label"].get<std::string>().starts_with("sin@");
  })) << rounds;
}

TEST_F(Commands, TablesForPeople) {
  StartBoth();
  Expect("opwire devices", 0, "cpu-0  cpu");
  Expect("opwire ops", 0, "\nsoftmax ");
  Expect("opwire ops matmul", 0, "transpose_x");
  Expect("opwire ops addscalar", 0, "add(x: ");  // an alias
  Expect("opwire explain matmul", 0, "every candidate and why: opwire explain matmul");
  Expect("opwire explain matmul f32", 0, "reference");
  Expect("opwire explain relu bool", 2, "not bool");
  Expect("opwire explain --placement --on cuda:1", 0, "it is cpu, not cuda:1");
  Expect("opwire report", 0, "limits");
  Expect("opwire run count.opw", 0, "  inout total: f32[4]\n  x: f32[4]\n");
  Expect("opwire run count.opw --in total=random --in x=random --profile", 0, "add@");
  Expect("opwire sessions", 0, "no sessions");
  Expect("opwire grants", 0, "no grants");
  Expect("opwire grants --revoke 12", 2, "capability: expected 32 hexadecimal digits, got 2");
  Expect("opwire grants --revoke 0123456789abcdefg123456789abcdef", 2,
         "got another character at 16");
}

TEST_F(Commands, RandomInputsTakeTheSizesOfTheOthers) {
  StartBoth();
  house_.Write("sum.opw",
               "program @sum(%x: f32[?n], %y: f32[?n]) -> (z: f32[?n]) {\n  %0 = add(%x, %y)\n  "
               "return %0\n}\n");
  Expect("opwire run sum.opw --in x=random:1 --in y=random:2 --dim n=5 --out z=five.npy", 0,
         "z: f32[5]");
  Expect("opwire run sum.opw --in x=five.npy --in y=random:2", 0, "z: f32[5]");
}

TEST_F(Commands, SessionsWithNamesOutliveCommands) {
  StartBoth();
  Expect(
      "opwire run count.opw --session s --in total=random:1 --in x=random:2 --out total=@total "
      "--out twice=@twice",
      0, "ran on cpu-0");
  Expect("opwire run count.opw --session s --in total=@total --in x=@twice", 0, "ran on cpu-0");
  const json held = Json("opwire sessions --json");
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0]["name"], "s");
  EXPECT_EQ(held[0]["tensors"], 2);  // tensors that the commands made and did not keep are freed
  EXPECT_EQ(held[0]["runs"], 2);
  Expect("opwire run count.opw --session s --in total=@totl --in x=@twice", 1,
         "it has total, twice");
  Expect("opwire run count.opw --session s --in total=@total --in x=@twice --out twice=@twice", 4,
         "has a tensor 'twice' already");
  Expect("opwire sessions --end t", 1, "no executor holds a session 't'");
  Expect("opwire sessions --end s", 0, "ended session s on cpu-0");
  Expect("opwire sessions", 0, "no sessions");
}

TEST_F(Commands, AResultTakesThePlaceOfATensorThatAFailedRunLeft) {
  StartBoth();
  house_.Write("make.opw",
               "program @make(%x: f32[2]) -> (y: f32[2]) {\n  %0 = add(%x, %x)\n  return %0\n}\n");
  house_.Write("bad.opw",
               "program @bad(inout %w: f32[2], %i: i64[1]) -> (w: f32[2], y: f32[1]) {\n  %0 = "
               "add(%w, %w)\n  %1 = gather(%0, %i) {dim = 0}\n  return %0, %1\n}\n");
  house_.Write("index.opw",
               "program @index() -> (i: i64[1]) {\n  %0 = full() {shape = [1], dtype = i64, value "
               "= 7}\n  return %0\n}\n");
  Expect("opwire run make.opw --in x=random:1 --session s --out y=@w", 0, "ran on cpu-0");
  Expect("opwire run index.opw --session s --out i=@i", 0, "i: i64[1] = 7");
  Expect("opwire run bad.opw --session s --in w=@w --in i=@i", 1, "OUT_OF_RANGE");
  Expect("opwire run make.opw --session s --in x=@w", 1, "DATA_LOSS");
  Expect("opwire run make.opw --in x=random:1 --session s --out y=@w", 0, "ran on cpu-0");
  Expect("opwire run make.opw --session s --in x=@w", 0, "ran on cpu-0");
}

TEST_F(Commands, ScalarsReachInoutParameters) {
  StartBoth();
  house_.Write("next.opw",
               "program @next(inout %n: f32[], %by: f32[]) -> (n: f32[]) {\n  %1 = add(%n, %by)\n  "
               "return %1\n}\n");
  Expect("opwire run next.opw --in n=41 --in by=1", 0, "n: f32[] = 42");
}

TEST_F(Commands, UpStartsAndStops) {
  const json up = Json("opwire up --detach --json");
  ASSERT_TRUE(up.contains("pid"));
  Expect("opwire devices", 0, "cpu-0");
  Expect("opwire up", 4, "a registry runs already");
  kill(up["pid"].get<pid_t>(), SIGTERM);
  const auto registry_gone = [&] {
    const House::Result r = house_.Run("opwire devices");
    return Has(r.output, "no registry") || Has(r.output, "stale socket");
  };
  EXPECT_TRUE(House::Eventually(registry_gone));
  Expect("opwire up --device cuda:7", 4, "device 'cuda:7' cannot be bound");
}

TEST_F(Commands, UpContinuesItsLog) {
  const std::string log = house_.runtime() + "/up.log";
  const auto text = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::ofstream(log) << "said before\n";
  for (int i = 1; i <= 2; ++i) {  // its report of a failed start has no earlier output
    const House::Result r = house_.Run("opwire up --detach --device cuda:7");
    EXPECT_EQ(r.code, 4) << r.output;
    EXPECT_TRUE(Has(r.output, "device 'cuda:7' cannot be bound")) << r.output;
    EXPECT_FALSE(Has(r.output, "said before")) << r.output;
    EXPECT_TRUE(text(log).starts_with("said before\n")) << text(log);
  }
  std::ofstream(log) << std::string(2 << 20, 'x');
  house_.Run("opwire up --detach --device cuda:7");
  EXPECT_EQ(text(log + ".1").size(), 2u << 20);
  EXPECT_TRUE(Has(text(log), "device 'cuda:7' cannot be bound")) << text(log);
}

TEST_F(Commands, DevicesOfThisMachineAreListedWithReasons) {
  const json here = Json("opwire devices --here --json");
  std::map<std::string, json> by_name;
  for (const json& d : here) {
    EXPECT_FALSE(d["reason"].get<std::string>().empty()) << d;
    by_name[d["device"]] = d;
  }
  EXPECT_TRUE(by_name.at("cpu")["usable"]);
  EXPECT_TRUE(by_name.contains("cuda:0"));
  EXPECT_TRUE(by_name.contains("hip:0"));
  Expect("opwire devices --here", 0, "USABLE  WHAT IT IS, OR WHY NOT");
}

TEST_F(Commands, WhatCannotBeWrittenIsSaid) {
  StartBoth();
  for (const char* command :
       {"opwire devices", "opwire ops", "opwire ops --json", "opwire report", "opwire sessions"}) {
    Expect(fmt::format("{} > /dev/full", command), 1,
           "the output cannot be written: No space left on device");
  }
  house_.Write("twice.opw",
               "program @twice(%x: f32[]) -> (y: f32[]) {\n  %0 = add(%x, %x)\n  return %0\n}\n");
  Expect("opwire run twice.opw --in x=1 --out y=/dev/full", 4, "No space left on device");
  Expect("opwire run twice.opw --in x=1 --out y=.", 2, "is a directory");
  Expect(
      "opwire run twice.opw --in x=1 --out y=y.npy && opwire run twice.opw --in x=3 --out y=y.npy "
      "&& ls -A",
      0, "twice.opw\ny.npy\n");
  Expect("opwire run twice.opw --in x=1 --memory 1000TiB", 4, "bytes free of the");
}

TEST_F(Commands, CtrlCGivesTheSessionBack) {
  StartBoth();
  std::string text =
      "program @long(%x: f32[256, 256]) -> (y: f32[256, 256]) {\n  %0 = matmul(%x, %x)\n";
  for (int i = 1; i < 20'000; ++i) text += fmt::format("  %{} = matmul(%{}, %x)\n", i, i - 1);
  house_.Write("long.opw", text + "  return %19999\n}\n");
  const pid_t run = house_.Start("exec opwire run long.opw --in x=random:1");
  EXPECT_TRUE(House::Eventually([&] { return Has(house_.Run("opwire devices").output, "busy"); }));
  house_.Signal(run, SIGINT);
  EXPECT_EQ(house_.Wait(run).code, 128 + SIGINT);
  EXPECT_TRUE(
      House::Eventually([&] { return Has(house_.Run("opwire sessions").output, "no sessions"); }));
}

// The run emits values faster than the reader of the output takes them.
TEST_F(Commands, CtrlCEndsARunThatEmitsWithoutEnd) {
  StartBoth();
  house_.Write("endless.opw", R"(program @endless(%x: f32[4]) -> (y: f32[4]) {
  %y = while([%x], []) calls(@goes, @on) {max_trips = 1000000000}
  return %y
}
function @goes(%x: f32[4]) -> (again: bool[]) {
  %0 = full() {value = 1.0, dtype = bool}
  return %0
}
function @on(inout %x: f32[4]) -> (x: f32[4]) {
  %0 = sum(%x)
  emit(%0) {name = "s"}
  %1 = neg(%x)
  return %1
}
)");
  const pid_t run = house_.Start(
      "mkfifo out; (read line && touch begun; while read line; do sleep 0.002; done) < out & exec "
      "opwire run endless.opw --in x=random:1 > out");
  EXPECT_TRUE(House::Eventually([&] { return Has(house_.Run("ls").output, "begun"); }));
  EXPECT_EQ(house_.Run("sleep 1").code, 0);  // until many values wait
  house_.Signal(run, SIGINT);
  EXPECT_EQ(house_.Wait(run).code, 128 + SIGINT);
  EXPECT_TRUE(
      House::Eventually([&] { return Has(house_.Run("opwire sessions").output, "no sessions"); }));
}

// Whichever process is killed, there is one registry, and no client starts a second one.
TEST_F(Commands, UpStartsAgainWhatWasKilled) {
  house_.Write("next.opw",
               "program @next(inout %n: f32[], %by: f32[]) -> (n: f32[]) {\n  %1 = add(%n, %by)\n  "
               "return %1\n}\n");
  const auto run = [&] { return house_.Run("opwire run next.opw --in n=41 --in by=1"); };
  const json up = Json("opwire up --detach --json");
  ASSERT_TRUE(up.contains("pid"));
  const auto supervisor = up["pid"].get<pid_t>();
  for (const std::string program : {"opwire-registry", "opwire-executor", "opwire-registry"}) {
    const std::vector<pid_t> before = house_.ChildrenOf(supervisor, program);
    ASSERT_EQ(before.size(), 1u) << program;
    kill(before[0], SIGKILL);
    House::Result r;
    EXPECT_TRUE(House::Eventually([&] {
      r = run();
      EXPECT_FALSE(Has(r.output, "nothing ran here")) << r.output;
      return r.code == 0;
    })) << program
        << ": " << r.output;
    EXPECT_TRUE(House::Eventually([&] {
      const std::vector<pid_t> after = house_.ChildrenOf(supervisor, program);
      return after.size() == 1 && after != before;
    })) << program;
  }
  kill(supervisor, SIGTERM);
  EXPECT_TRUE(
      House::Eventually([&] { return house_.ChildrenOf(supervisor, "opwire-registry").empty(); }));
  // After a kill -9 of the supervisor its children end too, and the next start succeeds.
  const json second = Json("opwire up --detach --json");
  ASSERT_TRUE(second.contains("pid"));
  kill(second["pid"].get<pid_t>(), SIGKILL);
  House::Result again;
  EXPECT_TRUE(House::Eventually([&] {
    again = house_.Run("opwire up --detach --json");
    return again.code == 0;
  })) << again.output;
  EXPECT_TRUE(House::Eventually([&] { return run().code == 0; }));
  const json third = json::parse(again.output, nullptr, false);
  ASSERT_TRUE(third.contains("pid")) << again.output;
  kill(third["pid"].get<pid_t>(), SIGTERM);
}

TEST_F(Commands, TheTrainedNetworkReadsDigits) {
  StartBoth();
  const House::Result r = house_.Run("cd " OPWIRE_SOURCE
                                     " && opwire run examples/01_digits/mlp.opw --in "
                                     "images=examples/data/digits.npy --out probabilities=" +
                                     house_.work() + "/probs.npy");
  EXPECT_EQ(r.code, 0) << r.output;
  EXPECT_TRUE(Has(r.output, "digit: i64[1797] = 0 1 2 3 4 5")) << r.output;
  struct stat st;
  ASSERT_EQ(stat((house_.work() + "/probs.npy").c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 128 + 1797 * 10 * 4);
}

TEST_F(Commands, ALoopTrainsTheExamplesNetwork) {
  StartBoth();
  const House::Result r = house_.Run("digits_loop --examples " OPWIRE_SOURCE "/examples");
  EXPECT_EQ(r.code, 0) << r.output;
  EXPECT_NE(r.output.find("one request: 1320 steps on executor cpu-0"), std::string::npos)
      << r.output;
  EXPECT_NE(r.output.find("step   1320/1320  loss 0.0"), std::string::npos) << r.output;
  Expect("digits_loop --batch 0", 2, "expected [--epochs N]");
}

TEST_F(Commands, ALanguageModelLearnsTheAlphabet) {
  StartBoth();
  std::string text;
  while (text.size() < 4000) text += "abcdefghijklmnopqrstuvwxyz\n";
  const std::string
      path = house_.work() + "/alphabet.txt",
      small =
          " --layers 1 --heads 2 --width 32 --positions 16 --batch 4 --vocabulary 128 --steps 80";
  std::ofstream(path) << text;
  const House::Result r =
      house_.Run("gpt2 " + path + small + " --losses " + house_.work() + "/losses.txt");
  EXPECT_EQ(r.code, 0) << r.output;
  std::ifstream losses(house_.work() + "/losses.txt");
  const std::vector<double> lost{std::istream_iterator<double>(losses), {}};
  ASSERT_EQ(lost.size(), 80u) << r.output;
  EXPECT_NEAR(lost[0], std::log(128), 0.2);
  EXPECT_LT(lost.back(), lost[0] - 1);
  Expect("gpt2 " + house_.work() + "/none.txt", 1, "none.txt cannot be read");
  Expect("gpt2 " + path + " --heads 5", 2, "a divisor of the width");
  Expect("gpt2 " + path, 1, "expected more than the 16384 bytes of a step, got 4023");
}

}  // namespace
}  // namespace opwire
