// A core with a shell that records its messages, clients that talk to it, and short ways to write
// runs.
//
//   Client c = Hello();
//   Load(c, 1, "program @f(%x: f32[2]) -> (y: f32[2]) { ... }");
//   Answer a = Ask(c, RunOf(1).Array({1, 2}).Inline());
//   EXPECT_EQ(a.Floats(0), (std::vector<float>{2, 4}));
#ifndef OPWIRE_TESTS_EXECUTOR_FIXTURE_H_
#define OPWIRE_TESTS_EXECUTOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "executor/plan/schedule.h"
#include "executor/serve/core.h"

namespace opwire::executor {

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

class FakeShell : public Shell {
 public:
  struct Message {
    PeerId peer;
    std::string head, bulk;
    bool control;
  };
  struct Job {
    std::function<void()> work, done;
  };
  Status Send(PeerId peer, Bytes head, Bytes bulk) override;
  bool Gathers(PeerId) const override { return gathers; }
  void SendControl(PeerId peer, std::string head) override {
    sent.push_back({peer, std::move(head), "", true});
  }
  void Submit(std::function<void()> work, std::function<void()> done) override {
    jobs.push_back({std::move(work), std::move(done)});
  }
  void Drop(PeerId peer) override { dropped.push_back(peer); }

  std::deque<Message> sent;
  std::deque<Job> jobs;
  std::vector<PeerId> dropped;
  std::set<PeerId> deaf;  // do not read: sends fail
  bool gathers = false;   // replies wait for a Flush
  bool discard = false;   // counts nothing, keeps nothing
};

struct Client {
  PeerId peer = 0;
  std::vector<uint8_t> token;
  uint32_t attachment = 0;
  uint64_t session = 0;
  uint64_t next_seq = 1;
};

// A reply, unpacked.
struct Answer {
  bool came = false;
  Status status = Internal("no reply came");
  fb::ReplyT reply;
  std::string bulk;

  bool ok() const { return status.ok(); }
  absl::StatusCode code() const { return status.code(); }
  const fb::RunReplyT& run() const { return *reply.body.AsRunReply(); }
  const fb::TensorReplyT& tensor() const { return *reply.body.AsTensorReply(); }
  std::vector<float> Floats(size_t result) const;
  std::vector<float> BulkFloats() const;
};

// A run being written. Bindings in the order of the parameters, then result slots in the order of
// the results.
struct RunOf {
  fb::RunT run;
  explicit RunOf(uint32_t slot, uint32_t function = 0) {
    run.slot = slot;
    run.function = function;
  }
  RunOf& Tensor(const Client& c, uint64_t counter) {
    return Bind(0, 0, 0, c.attachment, counter, 0);
  }
  RunOf& Scalar(float value);
  RunOf& Dim(int64_t n) { return Bind(2, 0, 0, 0, static_cast<uint64_t>(n), 0); }
  RunOf& Array(const std::vector<float>& values) {
    return Array(values, {static_cast<int64_t>(values.size())});
  }
  RunOf& Array(const std::vector<float>& values, const std::vector<int64_t>& shape);
  RunOf& Bind(uint8_t kind, uint8_t dtype, uint8_t rank, uint32_t attachment, uint64_t value,
              uint64_t size) {
    run.bindings.emplace_back(static_cast<fb::BindingKind>(kind), dtype, rank, 0, attachment, value,
                              size);
    return *this;
  }
  RunOf& None() { return Result(0, 0); }
  RunOf& Inline() { return Result(1, 0); }
  RunOf& Keep(uint64_t counter) { return Result(2, counter); }
  RunOf& Result(uint8_t kind, uint64_t counter) {
    run.results.emplace_back(static_cast<fb::ResultKind>(kind), 0, counter);
    return *this;
  }
  RunOf& Deadline(uint64_t us) {
    run.deadline_us = us;
    return *this;
  }
};

class CoreTest : public ::testing::Test {
 protected:
  CoreTest();
  ~CoreTest() override;

  // Starts a new core with the present options_.
  void Restart();
  // Starting with the next Restart: a CPU with this much memory and its kernels, whatever device
  // OPWIRE_TEST_DEVICE names.
  void UseHost(int64_t memory_bytes);

  Client Hello(const std::string& name = "", const std::string& principal = "uid:1",
               uint64_t memory_bytes = 0);
  // Returns the reply to a Hello, without attaching.
  Answer TryHello(fb::HelloT hello, const std::string& principal = "uid:1");
  template <typename BodyT>
  Answer Control(BodyT body, const std::string& principal = "uid:1") {
    const std::string head = EncodeRequest(1, std::move(body));
    core_->OnControl(now_, kControlPeer, principal, AsBytes(head));
    return Take(kControlPeer, 1);
  }
  void Attach(const Client& c);

  // Sends without working. Returns the sequence number.
  uint64_t Send(Client& c, fb::RequestT request, const std::string& bulk = "");
  template <typename BodyT>
  uint64_t Send(Client& c, BodyT body, const std::string& bulk = "") {
    fb::RequestT r;
    r.body.Set(std::move(body));
    return Send(c, std::move(r), bulk);
  }
  uint64_t Send(Client& c, const RunOf& run) { return Send(c, run.run); }
  // The same with a number of the test's own, as in a retry.
  void SendAs(const Client& c, uint64_t seq, fb::RequestT request, const std::string& bulk = "");

  void WorkAll();   // until no work is left, jobs included
  bool WorkOnce();  // one slice; false if there is no work
  void FinishJobs();
  Answer Take(PeerId peer, uint64_t seq);

  template <typename BodyT>
  Answer Ask(Client& c, BodyT body, const std::string& bulk = "") {
    const uint64_t seq = Send(c, std::move(body), bulk);
    WorkAll();
    return Take(c.peer, seq);
  }
  Answer Ask(Client& c, const RunOf& run) { return Ask(c, run.run); }

  Answer Load(Client& c, uint32_t slot, const std::string& text);
  Answer Put(Client& c, uint64_t counter, const std::vector<float>& values,
             std::vector<int64_t> shape = {-1});
  // Memory that the client fills.
  Answer Alloc(Client& c, uint64_t counter, DType dtype, std::vector<int64_t> shape);
  // Sends the bytes of a tensor that Alloc created, through the transfer of its answer.
  Answer FillAndSeal(Client& c, uint64_t counter, uint64_t ticket, const std::string& bytes);
  Answer PutTyped(Client& c, uint64_t counter, DType dtype, std::vector<int64_t> shape,
                  const std::string& bytes);
  Answer Get(Client& c, uint64_t counter);
  // Returns the bytes that Get left to a transfer, because no message is large enough for them.
  std::string Fetched(const fb::TensorReplyT& large);
  Answer Free(Client& c, std::vector<uint64_t> counters);
  // Cancels a request of this client.
  Answer Cancel(const Client& c, uint64_t seq);
  int64_t InUse();  // bytes of tensors that the executor holds
  std::string Info(const std::string& topic, const std::string& principal = "uid:1");

  // Runs a program once on random inputs. Returns the status, and bytes in order of the parameters
  // and results: the contents of its inout tensors after the run, and its other results. If it
  // fails, returns the error.
  using FillParam =
      std::function<void(const Param& p, std::string& bytes, std::mt19937_64& random)>;
  std::vector<std::string> Outcome(Client& c, const Module& m, uint64_t seed,
                                   const FillParam& fill = nullptr);

  static fb::TensorId Id(const Client& c, uint64_t counter) {
    return fb::TensorId(c.attachment, 0, counter);
  }
  static std::unique_ptr<fb::TensorId> IdPtr(const Client& c, uint64_t counter) {
    return std::make_unique<fb::TensorId>(c.attachment, 0, counter);
  }

  static constexpr PeerId kControlPeer = 1'000'000;
  // Every read of the clock takes a microsecond.
  static Nanos now_;
  static Nanos Clock() { return now_ += kMicrosecond; }

  CoreOptions options_;
  FakeShell shell_;
  std::unique_ptr<Device> device_;
  VariantTable variants_;
  std::shared_ptr<fused::Fuser> fuser_;  // starting with the next Restart; null: no groups
  std::unique_ptr<Core> core_;
  PeerId next_peer_ = 1;
};

// Returns the values to which Outcome binds a program's symbols; it draws them first.
std::vector<int64_t> RandomSymbols(const DimTable& dims, std::mt19937_64& random);

// Returns the steps of a program's first function on the CPU for these sizes, by label, groups as
// "fused(mul, add)".
std::vector<std::string> StepsOf(const std::string& text, std::vector<int64_t> symbols = {},
                                 bool fuses = false);

// Returns its plan there, with groups.
Schedule ScheduleOf(const std::string& text);

std::vector<std::string> WithoutVariants(std::vector<std::string> labels);

// With 128 x 128 matrices: each matmul takes several slices of the tests' clock.
inline constexpr const char* kSlow = R"(
program @slow(%x: f32[128, 128], inout %w: f32[128, 128]) -> (w: f32[128, 128], y: f32[128, 128]) {
  %0 = matmul(%x, %x)
  %1 = matmul(%0, %x)
  %2 = matmul(%1, %x)
  %3 = add(%w, %2)
  %4 = matmul(%2, %x)
  %5 = matmul(%4, %x)
  return %3, %5
})";

}  // namespace opwire::executor

#endif  // OPWIRE_TESTS_EXECUTOR_FIXTURE_H_
