// The situations of docs/cli.md, with real processes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "frontend/cpp/client.h"
#include "ir/wire/zmq_channel.h"
#include "registry/client/announcer.h"
#include "tests/cli/house.h"
#include "tests/cli/transcript.h"

namespace opwire {
using namespace client;
namespace {

constexpr const char* kDocument = "docs/cli.md";

constexpr const char* kDouble =
    "program @double(%x: f32[?n]) -> (y: f32[?n]) {\n"
    "  %0 = add(%x, %x)\n"
    "  return %0\n"
    "}\n";

TEST(Situations, NoRegistry) {
  House house;
  Transcript t(house);
  t.Type("opwire devices");
  t.Type("opwire devices --json");
  t.Compare(kDocument, "No registry");
}

TEST(Situations, StaleSocket) {
  House house;
  Transcript t(house);
  house.Signal(house.StartRegistry(), SIGKILL);
  t.Type("opwire devices");
  house.StartRegistry();
  t.Say("$ opwire-registry &");
  ASSERT_TRUE(House::Eventually(
      [&] { return house.Run("opwire devices").output.find("stale") == std::string::npos; }));
  t.Type("opwire devices");
  t.Compare(kDocument, "Stale socket");
}

TEST(Situations, UnknownOp) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  house.StartExecutor();
  house.Write("readout.opw",
              "program @readout(%x: f32[?n, 10]) -> (p: f32[?n, 10]) {\n"
              "  %0 = sofmax(%x) {dim = -1}\n"
              "  return %0\n"
              "}\n");
  t.Type("opwire ops matmull");
  t.Type("opwire run readout.opw --in x=random:7");
  t.Compare(kDocument, "Unknown op");
}

TEST(Situations, WrongShape) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  house.StartExecutor();
  house.Write("wrong.opw",
              "program @wrong(%x: f32[4, 8], %w: f32[6, 2]) -> (y: f32[4, 2]) {\n"
              "  %0 = matmul(%x, %w)\n"
              "  return %0\n"
              "}\n");
  house.Write("sum.opw",
              "program @sum(%x: f32[?n], %y: f32[?n]) -> (z: f32[?n]) {\n"
              "  %0 = add(%x, %y)\n"
              "  return %0\n"
              "}\n");
  house.Write("pair.opw",
              "program @pair(%x: f32[?a], %y: f32[?b]) -> (x: f32[?a], y: f32[?b]) {\n  return %x, "
              "%y\n}\n");
  house.Write(
      "row.opw",
      "program @row(%x: f32[?n, 8]) -> (y: f32[?n, 8]) {\n  %0 = relu(%x)\n  return %0\n}\n");
  ASSERT_EQ(house
                .Run("opwire run pair.opw --in x=random:1 --in y=random:2 --dim a=3 --dim b=4 "
                     "--out x=three.npy --out y=four.npy")
                .code,
            0);
  t.Type("opwire run wrong.opw");
  t.Type("opwire run sum.opw --in x=three.npy --in y=four.npy");
  t.Type("opwire run row.opw --in x=three.npy");
  t.Compare(kDocument, "Wrong shape");
}

TEST(Situations, NoSuchDevice) {
  House house;
  setenv("OPWIRE_CUDA_DRIVER", (house.runtime() + "/libcuda.so.1").c_str(),
         1);  // so that no machine has one
  Transcript t(house);
  house.StartRegistry();
  house.StartExecutor();
  t.Type("opwire ops --on cuda:0");
  t.Type("opwire-executor --device cuda:0");
  t.Compare(kDocument, "No such device");
}

TEST(Situations, OutOfMemory) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  house.StartExecutor();
  house.Write("huge.opw",
              "program @huge() -> (total: f32[]) {\n"
              "  %0 = full() {value = 1.0, shape = [1048576, 1048576]}\n"
              "  %1 = sum(%0)\n"
              "  return %1\n"
              "}\n");
  t.Type("opwire run huge.opw");
  t.Compare(kDocument, "Out of memory");
}

TEST(Situations, OverQuota) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  house.StartExecutor();
  house.Write("double.opw", kDouble);
  t.Type("opwire run double.opw --in x=random:7 --dim n=1000000 --memory 6MiB");
  t.Compare(kDocument, "Over quota");
}

// An executor of another release: it speaks only to say so.
TEST(Situations, VersionSkew) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  house.Write("double.opw", kDouble);
  ZmqContext context;
  auto control = Router::Bind(context, fmt::format("ipc://{}/cpu-2.ctl", house.runtime()));
  ASSERT_TRUE(control.ok()) << control.status();
  fb::ExecutorInfoT info;
  info.id = "cpu-2";
  info.incarnation = 1;
  info.device = "cpu";
  info.control_endpoint = (*control)->endpoint();
  auto add = std::make_unique<fb::OpEntryT>();
  add->name = "add";
  add->version = 1;
  info.ops.push_back(std::move(add));
  Announcer announcer(info, std::vector<uint8_t>(16, 1));
  auto registry = Dealer::Connect(context, fmt::format("ipc://{}/registry", house.runtime()));
  ASSERT_TRUE(registry.ok()) << registry.status();
  announcer.OnConnected(MonotonicNow());
  std::atomic<bool> stop{false};
  std::thread served([&] {
    while (!stop) {
      if (auto out = announcer.OnTick(MonotonicNow(), {})) (void)(*registry)->Send(AsBytes(*out));
      ClientChannel::Message reply;
      if (auto came = (*registry)->Receive(reply, 0); came.ok() && *came)
        announcer.OnReply(MonotonicNow(), AsBytes(reply.head));
      Incoming message;
      AlignedBytes memory;
      while ((*control)->Receive(message)) {
        auto request = DecodeRequest(message.head, memory);
        if (!request.ok()) continue;
        const fb::Hello* hello = (*request)->body_as_Hello();
        const std::string answer =
            hello ? EncodeError(
                        (*request)->seq(),
                        FailedPrecondition("protocol: the executor speaks {}.0, the client {}.{}; "
                                           "their major versions must match",
                                           kProtocolMajor + 1, hello->major(), hello->minor()))
                  : EncodeReply((*request)->seq(), fb::DoneT());
        (void)(*control)->Send(message.peer, AsBytes(answer));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_TRUE(House::Eventually([&] { return house.Run("opwire devices").code == 0; }));
  t.Type("opwire run double.opw --in x=random:7");
  stop = true;
  served.join();
  t.Compare(kDocument, "Version skew");
}

TEST(Situations, DeadExecutor) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  const pid_t executor = house.StartExecutor();
  house.Write("double.opw", kDouble);
  const std::string command = "opwire run double.opw --in x=random:7 --dim n=1000 --repeat 1000000";
  const pid_t client = house.Start("exec " + command);
  // While it runs.
  ASSERT_TRUE(House::Eventually(
      [&] { return house.Run("opwire sessions --json | grep -q '\"runs\": [1-9]'").code == 0; }));
  house.Signal(executor, SIGKILL);
  t.Quote(command, house.Wait(client));
  EXPECT_TRUE(House::Eventually([&] { return house.Run("opwire devices").code == 3; }));
  t.Type("opwire devices");
  t.Compare(kDocument, "Dead executor");
}

TEST(Situations, LostSession) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  const pid_t executor = house.StartExecutor();
  house.Write("count.opw",
              "program @count(inout %total: f32[4], %x: f32[4]) -> (total: f32[4]) {\n"
              "  %0 = add(%total, %x)\n"
              "  return %0\n"
              "}\n");
  t.Type(
      "opwire run count.opw --session train --in total=random:1 --in x=random:2 --out "
      "total=@total");
  t.Type("opwire run count.opw --session train --in total=@total --in x=random:3");
  house.Signal(executor, SIGKILL);
  ASSERT_TRUE(House::Eventually([&] { return house.Run("opwire devices").code == 3; }));
  house.StartExecutor();
  ASSERT_TRUE(
      House::Eventually([&] { return house.Run("opwire sessions").output == "no sessions\n"; }));
  t.Type("opwire run count.opw --session train --in total=@total --in x=random:3");
  t.Compare(kDocument, "Lost session");
}

TEST(Situations, ValuesOnTheWay) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  house.StartExecutor();
  house.Write("halve.opw",
              "program @halve(%n: i64[], %x: f32[4]) -> (y: f32[4]) {\n"
              "  %0 = repeat(%n, [%x], []) calls(@step)\n"
              "  return %0\n"
              "}\n"
              "function @step(%iteration: i64[], inout %x: f32[4]) -> (x: f32[4]) {\n"
              "  %0 = full() {value = 0.5}\n"
              "  %1 = mul(%x, %0)\n"
              "  %2 = sum(%1)\n"
              "  emit(%2) {name = \"sum\"}\n"
              "  return %1\n"
              "}\n");
  t.Type("opwire run halve.opw --in n=3 --in x=random:7");
  t.Type("opwire run halve.opw --in n=1000000000 --in x=random:7 --deadline-ms 50 2>&1 >/dev/null");
  t.Compare(kDocument, "Values on the way");
}

TEST(Situations, SharedTensors) {
  House house;
  Transcript t(house);
  house.StartRegistry();
  house.StartExecutor();
  ClientOptions options;
  options.registries = {fmt::format("ipc://{}/registry", house.runtime())};
  auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  SessionOptions model;
  model.name = "model";
  auto session = client->Open(model);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto w = session->Put(Array::Random(DType::kF32, {1024, 64}, 1).view(), "w"),
             b = session->Put(Array::Random(DType::kF32, {64}, 2).view(), "b");
  ASSERT_TRUE(w.ok() && b.ok()) << w.status() << b.status();
  ASSERT_TRUE(session->Grant(*w).ok());
  const auto lab = session->Grant(*w, {.session = "lab"}),
             ada = session->Grant(*b, {.principal = "key:ada", .name = "bias"});
  ASSERT_TRUE(lab.ok() && ada.ok()) << lab.status() << ada.status();
  t.Type("opwire grants");
  const auto revoke = [&] {
    t.Quote(fmt::format("opwire grants --revoke {}", kCapability),
            house.Run(fmt::format("opwire grants --revoke {}", *ada)));
  };
  revoke();
  revoke();
  t.Type("opwire grants");
  EXPECT_EQ(house.Run(fmt::format("opwire grants --revoke {} --json", *lab)).output,
            fmt::format("{{\n  \"executor\": \"cpu-0\",\n  \"revoked\": \"{}\"\n}}\n", *lab));
  EXPECT_EQ(house.Run("opwire grants --json | grep -c capability").output, "1\n");
  t.Compare(kDocument, "Shared tensors");
}

}  // namespace
}  // namespace opwire
