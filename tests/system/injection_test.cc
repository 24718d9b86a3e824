// Hostile text through every string that the wire has, at an executor that compiles: nothing runs,
// nothing is written, nothing is built.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "ir/program/serialise.h"
#include "ir/text/text.h"
#include "tests/system/user_ops.h"

namespace opwire::client {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = "opwire-pwned";

class InjectionTest : public UserOpsTest {
 protected:
  void Begin() {
    CountCompilations();
    WriteOp("twice", 2);
    fs::create_directory(directory_ + "/data");
    StartRegistry();
    executor_ = StartWithOps(
        "e1", {"--data", directory_ + "/data", "--limit-sessions-per-principal", "512"});
    ASSERT_TRUE(Becomes("twice", 2));
    compilations_ = Compilations();
    ASSERT_GT(compilations_, 0);
    objects_ = Objects();
    ASSERT_GT(objects_, 0);
  }

  int Objects() const {
    int n = 0;
    for (const auto& entry : fs::recursive_directory_iterator(cache()))
      n += entry.is_regular_file();
    return n;
  }

  std::vector<std::string> Corpus() const {
    const std::string path = directory_ + "/" + kMarker, touch = "touch " + path;
    std::vector<std::string> out = {"$(" + touch + ")",
                                    "`" + touch + "`",
                                    ";" + touch + ";",
                                    "|" + touch,
                                    "&&" + touch + "&",
                                    "\";" + touch + ";\"",
                                    "';" + touch + ";'",
                                    "\n" + touch + "\n",
                                    std::string("x\0", 2) + ";" + touch,
                                    "x\");system(\"" + touch + "\");//",
                                    "*/ int x = system(\"" + touch + "\"); /*",
                                    "#include \"" + path + "\"\n",
                                    "twice@$(" + touch + ")",
                                    "-o" + path,
                                    "-o",
                                    "--output=" + path,
                                    "@" + path,
                                    "-fplugin=" + path,
                                    "-wrapper " + touch,
                                    path,
                                    "../" + std::string(kMarker),
                                    "../../../../.." + path,
                                    "data/../../" + std::string(kMarker),
                                    "./../ops/" + std::string(kMarker),
                                    "../ops/twice/op.json",
                                    "../cache",
                                    "..",
                                    ".",
                                    "/",
                                    "~/" + std::string(kMarker),
                                    "$HOME/" + std::string(kMarker),
                                    "file://" + path,
                                    "%s%s%s%s%n%n%n%n",
                                    "{}{0}{:n}{{",
                                    "%99999999d",
                                    "\xff\xfe\xc0\x80",
                                    "\x1b]0;x\x07",
                                    "\r\n\r\n",
                                    std::string(1, '\0'),
                                    "",
                                    " ",
                                    "\"}],\"folders\":[{\"folder\":\"" + path,
                                    std::string(100'000, 'A'),
                                    std::string(65'536, '\0'),
                                    std::string(3'000, '\n'),
                                    std::string(5'000, '/'),
                                    std::string(70'000, '['),
                                    "user.twice\nuser.twice",
                                    "user.",
                                    "user.twice.twice",
                                    "user.Twice"};
    return out;
  }

  // One request and its answer: anything but silence and an error of the executor's own will do.
  template <typename BodyT>
  Status Ask(Dealer& dealer, uint64_t seq, BodyT body, const std::string& bulk = "") {
    OPWIRE_RETURN_IF_ERROR(
        dealer.Send(AsBytes(EncodeRequest(seq, std::move(body))), AsBytes(bulk)));
    while (true) {
      ClientChannel::Message m;
      OPWIRE_ASSIGN_OR_RETURN(const bool came, dealer.Receive(m, 20 * kSecond));
      if (!came) {
        ADD_FAILURE() << "no answer";
        return Unavailable("no answer");
      }
      AlignedBytes memory;
      OPWIRE_ASSIGN_OR_RETURN(const fb::Reply* reply, DecodeReply(AsBytes(m.head), memory));
      if (reply->seq() != seq) continue;  // that of an Attach
      ++answers_;
      Status status = StatusOf(*reply);
      EXPECT_FALSE(absl::IsInternal(status)) << status;
      refused_ += !status.ok();
      return status;
    }
  }

  void NothingCameOfIt() {
    EXPECT_TRUE(Alive(executor_));
    EXPECT_EQ(Compilations(), compilations_) << "a request made it compile";
    EXPECT_EQ(Objects(), objects_) << "a request changed the cache";
    EXPECT_FALSE(fs::exists(kMarker)) << "in the directory of the test";
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      const bool own = entry.path().string().starts_with(directory_ + "/data/");
      EXPECT_TRUE(own || entry.path().filename().string().find(kMarker) == std::string::npos)
          << entry.path();
    }
    EXPECT_EQ(CallNow("twice", {1}).ran, "user.twice@own");
    std::printf("%d answers, of which %d refused\n", answers_, refused_);
    EXPECT_GT(refused_, 0);
  }

  pid_t executor_ = -1;
  int compilations_ = 0, objects_ = 0, answers_ = 0, refused_ = 0;
};

TEST_F(InjectionTest, ThroughTheClient) {
  Begin();
  Session session = Open();
  const Array x = Values({1});
  for (const std::string& hostile : Corpus()) {
    SCOPED_TRACE(hostile.substr(0, 60));
    const auto tell = [&](const Status& s) {
      ++answers_;
      refused_ += !s.ok();
      EXPECT_FALSE(absl::IsInternal(s) || absl::IsUnavailable(s)) << s;
    };
    std::string quoted;
    for (char c : hostile)
      quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    tell(session.Load(hostile).status());
    tell(session
             .Load("program @" + hostile +
                   "(%x: f32[?n]) -> (y: f32[?n]) { %0 = user.twice(%x) return %0 }")
             .status());
    tell(session
             .Load("program @p(%x: f32[?n]) -> (y: f32[?n]) { %0 = " + hostile + "(%x) return %0 }")
             .status());
    tell(session
             .Load("program @p(%x: f32[?n]) -> (y: f32[?n]) { %0 = user.twice@" + hostile +
                   "(%x) return %0 }")
             .status());
    tell(session
             .Load("program @p(%x: f32[?n]) -> (y: f32[?n]) { %0 = user.twice(%x) loc(\"" + quoted +
                       "\") return %0 }",
                   hostile)
             .status());
    for (const char* topic : {"explain", "report", "toolchains", "declarations"})
      tell(session.Info(topic, hostile).status());
    tell(session.Info(hostile, hostile).status());
    auto tensor = session.Put(x.view(), hostile);
    tell(tensor.status());
    auto plain = session.Put(x.view());
    ASSERT_OK(plain.status());
    tell(session.Rename(*plain, hostile));
    tell(session.Save(*plain, hostile));
    tell(session.LoadFile(hostile).status());
    tell(session.Find(hostile).status());
    SessionOptions options;
    options.name = hostile;
    ClientOptions client;
    client.name = hostile;
    auto connected = Client::Connect(client);
    if (connected.ok()) tell(connected->Open(options).status());
  }
  NothingCameOfIt();
}

TEST_F(InjectionTest, ThroughTheWire) {
  Begin();
  Session session = Open();
  ASSERT_OK_AND(const auto ops, session.Ops());
  ASSERT_OK_AND(const Module good, Parse("program @p(%x: f32[?n]) -> (y: f32[?n]) { %0 = "
                                         "user.twice@own(%x) loc(\"a:1\") return %0 }",
                                         "p", {.ops = *ops}));
  ASSERT_OK_AND(auto control, Dealer::Connect(context_, ControlEndpoint("e1")));
  ASSERT_OK_AND(auto registry, Dealer::Connect(context_, "ipc://" + directory_ + "/registry"));
  const Spoken s = SayHello(ControlEndpoint("e1"));
  ASSERT_OK_AND(auto run, Dealer::Connect(context_, s.run_endpoint));
  ASSERT_OK(run->Send(AsBytes(AttachBytes(s))));
  uint64_t seq = 1;
  const auto ask = [&](auto body, const std::string& bulk = "") {
    const Status status = Ask(*run, seq++, std::move(body), bulk);
    EXPECT_EQ(MessageOf(status).find("expected request"), std::string::npos) << status;
    return status;
  };
  const auto id = [&](uint64_t counter) {
    return std::make_unique<fb::TensorId>(s.attachment, 0, counter);
  };
  uint64_t counter = 1;
  for (const std::string& hostile : Corpus()) {
    SCOPED_TRACE(hostile.substr(0, 60));
    // Every string of a program.
    const auto load = [&](const std::function<void(Module&)>& change) {
      Module module = good;
      change(module);
      return ask(fb::PutProgramT(), Serialise(module));
    };
    EXPECT_FALSE(load([&](Module& m) { m.functions[0].nodes[0].op = hostile; }).ok());
    EXPECT_FALSE(load([&](Module& m) { m.functions[0].nodes[0].op = "user." + hostile; }).ok());
    (void)load([&](Module& m) { m.functions[0].nodes[0].pin = hostile; });
    (void)load([&](Module& m) { m.functions[0].nodes[0].location = hostile; });
    (void)load([&](Module& m) { m.functions[0].name = hostile; });
    (void)load([&](Module& m) { m.functions[0].params[0].name = hostile; });
    (void)load([&](Module& m) { m.functions[0].results[0].name = hostile; });
    EXPECT_FALSE(load([&](Module& m) { m.features = {hostile}; }).ok());
    EXPECT_FALSE(load([&](Module& m) {
                   m.functions[0].nodes[0].attrs.push_back({hostile, std::string(hostile)});
                 }).ok());
    EXPECT_FALSE(ask(fb::PutProgramT(), hostile).ok());
    // Names and paths of tensors.
    fb::PutT put;
    put.id = id(++counter);
    put.type = std::make_unique<fb::TensorTypeT>();
    put.type->dtype = static_cast<uint8_t>(DType::kF32);
    put.type->shape = {1};
    put.bytes_follow = true;
    put.name = hostile;
    (void)ask(std::move(put), "1234");
    fb::RenameT rename;
    rename.id = id(counter);
    rename.name = hostile;
    (void)ask(std::move(rename));
    fb::SaveT save;
    save.id = id(counter);
    save.path = hostile;
    (void)ask(std::move(save));
    fb::LoadT load_file;
    load_file.id = id(++counter);
    load_file.path = hostile;
    EXPECT_FALSE(ask(std::move(load_file)).ok() && hostile.find('/') != std::string::npos);
    // The control socket.
    fb::HelloT hello;
    hello.major = kProtocolMajor;
    hello.client = hello.session = hostile;
    (void)Ask(*control, 1, std::move(hello));
    fb::InfoT info;
    info.topic = info.argument = hostile;
    EXPECT_FALSE(Ask(*control, 2, std::move(info)).ok());
    for (const char* topic : {"explain", "report", "ops", "sessions", "toolchains"}) {
      fb::InfoT about;
      about.topic = topic;
      about.argument = hostile;
      (void)Ask(*control, 3, std::move(about));
    }
    // The registry: what an executor tells, and what clients ask.
    fb::RegisterT reg;
    reg.claim.resize(16);
    reg.info = std::make_unique<fb::ExecutorInfoT>();
    reg.info->id = "zz";
    reg.info->incarnation = counter;
    reg.info->control_endpoint = reg.info->device_name = reg.info->arch = hostile;
    reg.info->device = "cpu";
    reg.info->labels = {hostile};
    auto entry = std::make_unique<fb::OpEntryT>();
    entry->name = hostile;
    entry->declaration = hostile;
    reg.info->ops.push_back(std::move(entry));
    (void)Ask(*registry, counter, std::move(reg));
    fb::QueryT query;
    query.op = query.label = query.device = query.after = hostile;
    (void)Ask(*registry, counter, std::move(query));
  }
  // Files came from Save alone, in the directory that is meant for them.
  NothingCameOfIt();
}

}  // namespace
}  // namespace opwire::client
