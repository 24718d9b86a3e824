// The tests; with --client=WHAT instead a client that other processes kill: "unnamed", "named" or
// "busy".
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/system/processes.h"

namespace opwire::client {
namespace {

int Fail(const Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

int BeClient(std::string_view what) {
  auto client = Client::Connect();
  if (!client.ok()) return Fail(client.status());
  SessionOptions options;
  if (what == "named") options.name = "kept";
  auto session = client->Open(options);
  if (!session.ok()) return Fail(session.status());
  auto tensor = session->Put(Values({1, 2, 3, 4}).view(), "w");
  if (!tensor.ok()) return Fail(tensor.status());
  auto heavy = session->Load(kHeavy);
  if (!heavy.ok()) return Fail(heavy.status());
  std::printf("ready\n");
  std::fflush(stdout);
  const Array x = Array::Random(DType::kF32, {256, 256}, 1);
  while (what == "busy") {
    auto result = heavy->Call({x});
    if (!result.ok()) return Fail(result.status());
  }
  while (true) pause();
}

}  // namespace
}  // namespace opwire::client

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--client=")) return opwire::client::BeClient(arg.substr(9));
    if (arg.starts_with("--messages="))
      opwire::client::system_options.messages = std::atoi(argv[i] + 11);
    if (arg.starts_with("--rounds="))
      opwire::client::system_options.rounds = std::atoi(argv[i] + 9);
  }
  return RUN_ALL_TESTS();
}
