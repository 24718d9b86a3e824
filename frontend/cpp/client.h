// The C++ frontend.
//
//   OPWIRE_ASSIGN_OR_RETURN(Client client, Client::Connect());
//   OPWIRE_ASSIGN_OR_RETURN(Session session, client.Open());  // on the executor that suits best
//   OPWIRE_ASSIGN_OR_RETURN(Program mlp, session.Load(ReadText("mlp.opw")));
//   OPWIRE_ASSIGN_OR_RETURN(Tensor w, session.Put(weights.view()));  // stays on the device
//   OPWIRE_ASSIGN_OR_RETURN(auto y, mlp.Call({x, w}));                        // arrays back
//
// A Session, and what came from it, belongs to one thread at a time; a Client may be shared. Every
// call returns a Status: lost connections are UNAVAILABLE, and what was lost with them is named.
// Programs are uploaded again by themselves, tensors are gone.
#ifndef OPWIRE_FRONTEND_CPP_CLIENT_H_
#define OPWIRE_FRONTEND_CPP_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "frontend/cpp/array.h"
#include "ir/ops/declaration.h"
#include "ir/passes/pass.h"
#include "ir/program/module.h"

namespace opwire {

class Session;
struct SessionState;

// A tensor on the device. Copies are the same tensor; the last one's end frees it with the
// session's next message.
class Tensor {
 public:
  Tensor() = default;
  DType dtype() const;
  // Not dense: of a model's file. Its bytes can be fetched with FetchInto, its elements by a
  // program that dequantises it.
  Encoding encoding() const;
  const std::vector<int64_t>& shape() const;
  int64_t bytes() const;
  // Of this client's counter, for messages: "3:17".
  std::string id() const;
  // Gives up ownership: the tensor stays in the session (a named one's, for who attaches later).
  void Leave();
  bool valid() const { return state_ != nullptr; }
  // Whether this is its only handle.
  bool unique() const { return state_.use_count() == 1; }
  bool operator==(const Tensor&) const = default;

 private:
  friend class Session;
  friend class Program;
  friend struct SessionState;
  struct State;
  std::shared_ptr<State> state_;
};

// A tensor's bytes to read, as they were when Session::View was called: nothing that is done with
// the tensor afterwards changes them.
//
// More than 64 KiB are not copied to a client that shares memory with the executor; they lie in the
// session's segment. Where the device's memory is the host's they are the tensor's own, and a run
// that writes the tensor meanwhile moves it first; else the device has copied them there, which
// takes memory of the host's. A client elsewhere has fetched them.
//
// Copies are the same view. The last one's end gives the memory back with the session's next
// message. Once the session has ended or was lost, the bytes can be read but may have become
// others'.
class TensorView {
 public:
  TensorView() = default;
  bool valid() const { return state_ != nullptr; }
  const ArrayView& array() const;
  std::span<const uint8_t> bytes() const {
    return {static_cast<const uint8_t*>(array().data), static_cast<size_t>(array().bytes)};
  }
  // REQUIRES: sizeof(T) is the element size.
  template <typename T>
  std::span<const T> values() const {
    return {static_cast<const T*>(array().data), static_cast<size_t>(array().bytes) / sizeof(T)};
  }

 private:
  friend class Session;
  friend struct SessionState;
  struct State;
  std::shared_ptr<const State> state_;
};

// One argument of a run.
class Arg {
 public:
  Arg(const Tensor& t) : value_(t) {}         // NOLINT: a braced list of arguments reads as a call
  Arg(ArrayView v) : value_(std::move(v)) {}  // NOLINT: must outlive the call that sends it
  Arg(const Array& a) : value_(a.view()) {}   // NOLINT
  Arg(double scalar) : value_(scalar) {}      // NOLINT: becomes the 0-d parameter's type
  Arg(int64_t number) : value_(number) {}     // NOLINT: a dimension, or an integer scalar
  Arg(int number) : value_(int64_t{number}) {}  // NOLINT
  const std::variant<Tensor, ArrayView, double, int64_t>& value() const { return value_; }

 private:
  std::variant<Tensor, ArrayView, double, int64_t> value_;
};

enum class Want : uint8_t { kNothing = 0, kInline = 1, kTensor = 2 };

struct RunOptions {
  // By result; shorter lists are filled with kTensor. Results of inout parameters stay in their
  // tensors: kNothing or kInline.
  std::vector<Want> wants;
  int64_t deadline_us = 0;  // 0: none
  uint64_t trace_id = 0;
  std::string_view function;  // empty: the first
  bool profile = false;       // measure every step
  // Gets what the program emits, while somebody waits for this session's runs, in the order of the
  // program. It must not use the session. What is emitted while the connection is lost is lost.
  std::function<void(std::string_view name, const Array& value)> on_emit;
};

// What one step of a profiled run took, all its calls together.
struct StepCost {
  int function = -1;  // of the module, that the node is of; -1: the one that was run
  int node = -1;      // beyond the function's nodes for a copy of a result
  std::string label;  // "op@variant"
  int64_t ns = 0;
};

struct RunResult {
  struct Output {
    Tensor tensor;               // Want::kTensor
    std::optional<Array> array;  // Want::kInline
  };
  std::vector<Output> outputs;  // by result
  bool divided_by_zero = false;
  int64_t queue_ns = 0;  // on the executor, before it began
  int64_t run_ns = 0;    // on the device
  std::vector<StepCost> profile;
};

// A run in flight.
class PendingRun {
 public:
  PendingRun(PendingRun&&) noexcept;
  PendingRun& operator=(PendingRun&&) noexcept;
  ~PendingRun();  // nobody waits: the reply is dropped
  // DEADLINE_EXCEEDED when the reply has not come in time: wait again, or Cancel.
  StatusOr<RunResult> Wait(int64_t timeout_us = -1);
  // Whether it has ended; waits so long for that.
  bool Ready(int64_t timeout_us = 0);
  // Asks the executor to stop it; Wait then says CANCELLED, unless it had ended.
  Status Cancel();

 private:
  friend class Program;
  friend class Session;
  struct State;
  explicit PendingRun(std::unique_ptr<State> s);
  std::unique_ptr<State> state_;
};

class Program {
 public:
  Program() = default;
  // Runs and waits.
  StatusOr<RunResult> Run(const std::vector<Arg>& args, const RunOptions& options = {}) const;
  // Runs, waits, and fetches every result that is not an inout parameter's.
  StatusOr<std::vector<Array>> Call(const std::vector<Arg>& args) const;
  // How the executor runs it, as JSON (executor/plan/describe.h). sizes: of the module's dimension
  // symbols, in their order.
  StatusOr<std::string> Plan(std::span<const int64_t> sizes, std::string_view function = "") const;
  // Sends the run; waits only for credit.
  StatusOr<PendingRun> Start(const std::vector<Arg>& args, const RunOptions& options = {}) const;
  const Module& module() const;

 private:
  friend class Session;
  friend struct SessionState;
  struct State;
  std::shared_ptr<State> state_;
};

// Memory of the session that the client fills in place: on one host the segment itself, elsewhere a
// buffer that Seal sends.
struct Writable {
  Tensor tensor;
  std::span<uint8_t> bytes;
};

// What a queued run gives, known before it runs.
struct ResultType {
  DType dtype = DType::kInvalid;
  std::vector<int64_t> shape;
};

// A queued run that failed.
struct QueueFailure {
  uint64_t mark = 0;  // as given to Enqueue
  Status status;
};

struct TensorFacts {
  std::string id, name;
  DType dtype = DType::kInvalid;
  Encoding encoding = Encoding::kDense;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  bool usable = false;
};

// The beginning of a model's file.
struct FileHeader {
  std::vector<uint8_t> bytes;
  int64_t file_bytes = 0;  // of the whole file
};

// Who may take a granted tensor.
struct GrantOptions {
  std::string session;  // the one of this name; empty: all of the principal's
  std::string
      principal;     // "uid:1001", "key:ada", as `opwire sessions` has it; empty: this client's own
  std::string name;  // to take it by, beside the capability; empty: the tensor's own
};

struct LoadOptions {
  // The passes (ir/passes/pipeline.h) run first, and change results as far as this allows; a
  // function that was called may be gone then. Nodes in errors and profiles are those of what is
  // left, Program::module(). None: the program runs as it is written.
  std::optional<Accuracy> passes = Accuracy::kUsual;
};

class Session {
 public:
  Session() = default;

  // The ops that its programs may name: the built-in ones and those of its executor's users. They
  // stay the same as long as the session lives; for ModuleBuilder and Parse.
  StatusOr<std::shared_ptr<const OpCatalogue>> Ops();

  StatusOr<Program> Load(std::string_view text, std::string_view filename = "program",
                         const LoadOptions& options = {});
  StatusOr<Program> Load(Module module, const LoadOptions& options = {});

  StatusOr<Tensor> Put(const ArrayView& array, std::string_view name = "");
  StatusOr<Writable> Alloc(DType dtype, const std::vector<int64_t>& shape,
                           Encoding encoding = Encoding::kDense);
  Status Seal(const Writable& w);
  StatusOr<Array> Fetch(const Tensor& t);
  // Into the caller's own memory, of exactly the tensor's bytes.
  Status FetchInto(const Tensor& t, std::span<uint8_t> into);
  // RESOURCE_EXHAUSTED beyond the host's memory, the segment's size (the session's quota), or
  // --limit-transfers of views and transfers.
  StatusOr<TensorView> View(const Tensor& t);
  StatusOr<Tensor> Copy(const Tensor& t);
  Status Rename(const Tensor& t, std::string_view name);
  // Frees it now, whoever made it; other handles to it are of no use.
  Status Free(const Tensor& t);
  // What the session holds; and one of these by its name or id.
  StatusOr<std::vector<TensorFacts>> List();
  StatusOr<Tensor> Find(std::string_view name_or_id);
  StatusOr<std::string> Print(const Tensor& t, uint32_t max_elements = 0);
  // Files in the executor's --data directory. Saved as .npy; loaded from .npy, or from a .gguf or
  // .safetensors file the tensor of this name. No element passes through the client.
  Status Save(const Tensor& t, std::string_view path);
  StatusOr<Tensor> LoadFile(std::string_view path, std::string_view tensor = {});
  // Those of these names, asked for without waiting for one after the other; or none, and the first
  // failure.
  StatusOr<std::vector<Tensor>> LoadFile(std::string_view path,
                                         std::span<const std::string> tensors);
  // The beginning of such a .gguf or .safetensors file, up to its tensors: what ParseGguf and
  // ParseSafetensors take.
  StatusOr<FileHeader> LoadHeader(std::string_view path);

  // Shares the tensor as it is now with other sessions of the executor, read-only and without a
  // copy; what it is taken by: 32 hexadecimal digits. The bytes stay when this session writes or
  // frees the tensor, or has ended, as long as somebody holds them. PERMISSION_DENIED for what
  // another session granted to this one; INVALID_ARGUMENT for a grant to this session alone;
  // RESOURCE_EXHAUSTED beyond --limit-grants.
  StatusOr<std::string> Grant(const Tensor& t, const GrantOptions& to = {});
  // Nobody takes it by this any more; who did keeps it.
  Status Revoke(std::string_view capability);
  // What another session granted: by the capability, or by its name in a session of the same
  // principal. It counts in this session's quota; an `inout` parameter that it is bound to gives it
  // memory of its own first. NOT_FOUND, PERMISSION_DENIED where it was granted to others,
  // RESOURCE_EXHAUSTED.
  StatusOr<Tensor> Take(std::string_view capability);
  StatusOr<Tensor> Take(std::string_view session, std::string_view name);

  // Several runs in one message and one reply, in order.
  struct BatchRun {
    Program program;
    std::vector<Arg> args;
    RunOptions options;
  };
  StatusOr<std::vector<RunResult>> RunBatch(const std::vector<BatchRun>& runs);

  // Queues a run that nobody waits for, of a program of an op or two. Runs go in their order, as
  // one batch: when 256 are queued or their arguments fill a message, when 32 are and the executor
  // has answered all before, before anything else that the session sends, or with Flush. Results
  // are tensors of the types given, one a result of the program, and may be used at once. A run
  // that fails costs only those that use what it should have made: any use gives its error. Arrays
  // are copied. `mark` names the run in QueueFailure.
  StatusOr<std::vector<Tensor>> Enqueue(const Program& program, const std::vector<Arg>& args,
                                        const std::vector<ResultType>& results, uint64_t mark = 0);
  // Sends what is queued, and takes the replies that have come.
  Status Flush();
  int64_t queued() const;
  // The first queued run that failed with this status, which those that use its results fail with,
  // too. Of the last 64 that failed.
  std::optional<QueueFailure> FailureOf(const Status& status);
  // Asks the executor to stop all that was sent and has not ended.
  Status CancelAll();

  // "report", "ops", "explain", "sessions", "stats" as JSON.
  StatusOr<std::string> Info(std::string_view topic, std::string_view argument = "",
                             DType dtype = DType::kInvalid);

  // Ends this client's part; an unnamed session, or with `free` any, is freed at once, and what it
  // runs is cancelled.
  Status Close(bool free = false);
  // The same for a process that is about to end. It waits a second at most: an executor that does
  // not answer ends the session when the connection closes.
  void Leave();

  const std::string& executor() const;
  bool on_ring() const;

 private:
  friend class Client;
  friend struct SessionState;
  std::shared_ptr<SessionState> state_;
};

struct SessionOptions {
  std::string name;    // empty: unnamed
  std::string device;  // "cpu", "cuda:1", an executor's id; empty: any
  std::string label;
  const Module* program = nullptr;  // place where this can run
  int64_t memory_bytes = 0;         // quota; 0: the executor's default
  int64_t ttl_s = 0;
  bool ring = true;
};

struct ClientOptions {
  // "ipc://PATH", "tcp://HOST:PORT", or alone "ssh://[USER@]HOST[:PORT]": what runs there for that
  // user, by the system's ssh, which asks for no password and starts executors there where nothing
  // runs. Empty: OPWIRE_REGISTRY, else the user's own.
  std::vector<std::string> registries;
  std::string name = "c++";  // for logs and `opwire sessions`
  // Where no registry was named and none of the user's own runs, or none on the host that ssh
  // reaches, start one with an executor; they leave when nobody uses them.
  bool embedded = true;
  // How long to wait for executors of a registry that has just begun.
  int64_t patience_us = 3'000'000;
  // Asked every 50 ms while a session waits without end for the executor: true ends the wait as
  // CANCELLED, whose reply nobody will take.
  std::function<bool()> interrupted;
  // Runs what waits for the executor, for those who hold a lock meanwhile that others need. Without
  // one it runs as it is.
  std::function<void(absl::FunctionRef<void()>)> waiting;
  // Hears in one line what was started, and why; without one it goes to standard error.
  std::function<void(std::string_view)> notice;
};

struct ExecutorFacts;

class Client {
 public:
  // Talks to nobody yet.
  static StatusOr<Client> Connect(const ClientOptions& options = {});

  // A session on the executor that suits best (placement.h); tries the next when one refuses.
  // UNAVAILABLE when no executor is there.
  StatusOr<Session> Open(const SessionOptions& options = {});
  // What Open does first, for those that look before: starts executors of the user's own where
  // ClientOptions::embedded allows it and nothing runs.
  Status StartIfNone(std::string_view device = "");
  // Who is there, as registered.
  StatusOr<std::vector<ExecutorFacts>> Executors(bool with_ops = false);

 private:
  struct State;
  friend struct SessionState;
  std::shared_ptr<State> state_;
};

}  // namespace opwire

#endif  // OPWIRE_FRONTEND_CPP_CLIENT_H_
