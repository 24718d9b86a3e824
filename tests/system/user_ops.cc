// Writes ops, calls them, and asks executors about them.
#include "tests/system/user_ops.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/jit/support.h"

namespace opwire::client {

namespace fs = std::filesystem;

UserOpsTest::UserOpsTest() { unsetenv("OPWIRE_CXX"); }

void UserOpsTest::CountCompilations(const std::string& before) {
  const std::string path = directory_ + "/counting-cxx";
  WriteFile(path, fmt::format("#!/bin/sh\nif [ \"$1\" = -v ]; then exec g++ -v; fi\necho call >> "
                              "'{}/calls'\n{}\nexec g++ \"$@\"\n",
                              directory_, before));
  chmod(path.c_str(), 0755);
  setenv("OPWIRE_CXX", path.c_str(), 1);
}

int UserOpsTest::Compilations() const { return jit::CountLines(directory_ + "/calls"); }

void UserOpsTest::WriteFile(const std::string& path, const std::string& text) const {
  fs::create_directories(fs::path(path).parent_path());
  // As editors do it: a concurrent reader sees the old file or the new one.
  std::ofstream(path + ".new", std::ios::binary) << text;
  chmod((path + ".new").c_str(), 0644);
  fs::rename(path + ".new", path);
}

std::string UserOpsTest::WriteOp(const std::string& name, int factor, const std::string& body) {
  const std::string folder = ops() + "/" + name;
  std::string reference = "program @reference(%x: f32[?N]) -> (y: f32[?N]) {\n  %0 = add(%x, %x)\n";
  for (int i = 1; i < factor - 1; ++i) reference += fmt::format("  %{} = add(%{}, %x)\n", i, i - 1);
  WriteFile(folder + "/reference.opw", reference + fmt::format("  return %{}\n}}\n", factor - 2));
  WriteFile(
      folder + "/own.cc",
      fmt::format(R"(#include <opwire/abi.h>
#include <stdlib.h>
static int Run(const opw_call* c) {{
  const float* x = (const float*)c->operands[0].data;
  float* y = (float*)c->results[0].data;
  const int64_t n = c->results[0].elements;
  {}
  return OPW_OK;
}}
OPW_KERNEL = {{OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_CONTIGUOUS, 0, 0, 0, Run, 0}};
)",
                  body.empty()
                      ? fmt::format("for (int64_t i = 0; i < n; ++i) y[i] = {} * x[i];", factor)
                      : body));
  WriteFile(
      folder + "/op.json",
      fmt::format(R"({{"name": "{}", "doc": "{} times x.", "signature": "x: f32[N] -> y: f32[N]",
  "reference": "reference.opw", "variants": {{"own": {{"sources": ["own.cc"]}}}}}})",
                  name, factor));
  return folder;
}

pid_t UserOpsTest::StartWithOps(const std::string& name, std::vector<std::string> flags,
                                const std::string& device) {
  flags.insert(flags.end(), {"--ops", ops(), "--cache", cache()});
  return StartExecutor(name, std::move(flags), device);
}

Session UserOpsTest::Open(const std::string& executor) {
  SessionOptions options;
  options.device = executor;
  StatusOr<Session> session = Unavailable("not tried");
  // A dead executor is still listed for a moment.
  Eventually([&] { return (session = Connect().Open(options)).ok(); });
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : Session();
}

std::string UserOpsTest::Text(const std::string& name, const std::string& pin) {
  return fmt::format("program @p(%x: f32[?n]) -> (y: f32[?n]) {{ %0 = user.{}{}(%x) return %0 }}",
                     name, pin.empty() ? "" : "@" + pin);
}

UserOpsTest::Result UserOpsTest::Call(const Program& program, const std::vector<float>& x) {
  RunOptions options;
  options.profile = true;
  options.wants = {Want::kInline};
  const Array values = Values(x);
  auto result = program.Run({values}, options);
  if (!result.ok()) return {result.status(), {}, ""};
  return {absl::OkStatus(), ToFloats(*result->outputs[0].array),
          result->profile.empty() ? "" : result->profile[0].label};
}

UserOpsTest::Result UserOpsTest::Call(Session& session, const std::string& name,
                                      const std::vector<float>& x, const std::string& pin) {
  auto program = session.Load(Text(name, pin));
  if (!program.ok()) return {program.status(), {}, ""};
  return Call(*program, x);
}

bool UserOpsTest::Becomes(const std::string& name, float one, const std::string& variant) {
  Result last;
  const bool became = Eventually([&] {
    last = CallNow(name, {1});
    return last.status.ok() && last.y == std::vector<float>{one} &&
           last.ran == "user." + name + "@" + variant;
  });
  EXPECT_TRUE(became) << "user." << name << ": " << last.status << ", ran " << last.ran
                      << ", 1 became " << (last.y.empty() ? 0 : last.y[0]) << "; report "
                      << InReport(name, variant) << "; " << Info("toolchains")["folders"];
  return became;
}

nlohmann::json UserOpsTest::Info(const std::string& topic, const std::string& argument) {
  Session session = Open();
  const auto text = session.Info(topic, argument);
  return text.ok() ? json::parse(*text) : json{{"error", text.status().ToString()}};
}

nlohmann::json UserOpsTest::InReport(const std::string& name, const std::string& variant) {
  const json ops = Info("report")["ops"];
  for (const json& op : ops) {
    if (op["op"] != "user." + name) continue;
    for (const json& v : op["variants"]) {
      if (v["name"] == variant) return v;
    }
  }
  return nullptr;
}

std::string UserOpsTest::Problem(const std::string& folder) {
  const json folders = Info("toolchains")["folders"];
  for (const json& f : folders) {
    if (f["folder"] == fs::canonical(folder).string()) return f["problem"];
  }
  return "no such folder";
}

}  // namespace opwire::client
