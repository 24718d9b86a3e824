// The C++ frontend.
//
//   OPWIRE_ASSIGN_OR_RETURN(Client client, Client::Connect());
//   OPWIRE_ASSIGN_OR_RETURN(Session session, client.Open());  // on the executor that suits best
//   OPWIRE_ASSIGN_OR_RETURN(Program mlp, session.Load(ReadText("mlp.opw")));
//   OPWIRE_ASSIGN_OR_RETURN(Tensor w, session.Put(weights.view()));  // stays on the device
//   OPWIRE_ASSIGN_OR_RETURN(auto y, mlp.Call({x, w}));                        // arrays back
//
// A Session, and the objects from it, belong to one thread at a time; a Client may be shared. Every
// call returns a Status. Lost connections are UNAVAILABLE, and the message names the lost objects.
// Programs are uploaded again automatically, but tensors are lost.
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

namespace opwire::client {

class Session;
struct SessionState;

// A tensor on the device. Copies are the same tensor. When the last one ends, the session's next
// message frees it.
class Tensor {
 public:
  Tensor() = default;
  DType dtype() const;
  // Not dense: from a model's file. FetchInto fetches its bytes. A program that dequantises it
  // gives its elements.
  Encoding encoding() const;
  const std::vector<int64_t>& shape() const;
  int64_t bytes() const;
  // Its number in this client, for messages: "3:17".
  std::string id() const;
  // Gives up ownership: the tensor stays in the session (a named session's, for clients that attach
  // later).
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

// A tensor's bytes for reading, with their values at the call of Session::View. Later operations on
// the tensor do not change them.
//
// If the client shares memory with the executor, more than 64 KiB are not copied: they are in the
// session's segment. If the device's memory is the host's, they are the tensor's own bytes, and a
// run that writes the tensor meanwhile moves it first. Otherwise the device copied them to the
// segment, which takes memory of the host. A client on another host has fetched them.
//
// Copies are the same view. When the last one ends, the session's next message frees the memory.
// After the session has ended or was lost, the bytes can be read but may be other data.
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
  Arg(const Tensor& t) : value_(t) {}  // NOLINT: lets a braced list of arguments look like a call
  Arg(ArrayView v) : value_(std::move(v)) {}    // NOLINT: must outlive the call that sends it
  Arg(const Array& a) : value_(a.view()) {}     // NOLINT
  Arg(double scalar) : value_(scalar) {}        // NOLINT: becomes the 0-d parameter's type
  Arg(int64_t number) : value_(number) {}       // NOLINT: a dimension, or an integer scalar
  Arg(int number) : value_(int64_t{number}) {}  // NOLINT
  const std::variant<Tensor, ArrayView, double, int64_t>& value() const { return value_; }

 private:
  std::variant<Tensor, ArrayView, double, int64_t> value_;
};

enum class Want : uint8_t { kNothing = 0, kInline = 1, kTensor = 2 };

struct RunOptions {
  // By result; missing ones are kTensor. Results of inout parameters stay in their tensors:
  // kNothing or kInline.
  std::vector<Want> wants;
  int64_t deadline_us = 0;  // 0: none
  uint64_t trace_id = 0;
  std::string_view function;  // empty: the first
  bool profile = false;       // measure every step
  // Called with values that the program emits, in the order of the program, while a thread waits
  // for this session's runs. It must not use the session. Values that are emitted while the
  // connection is lost are lost.
  std::function<void(std::string_view name, const Array& value)> on_emit;
};

// The time of one step of a profiled run, all its calls together.
struct StepCost {
  int function = -1;  // in the module: the one that owns the node; -1: the one that was run
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
  ~PendingRun();  // the reply is dropped, because no caller waits for it
  // DEADLINE_EXCEEDED when the reply has not come in time: wait again, or Cancel.
  StatusOr<RunResult> Wait(int64_t timeout_us = -1);
  // Whether it has ended; waits at most `timeout_us` for that.
  bool Ready(int64_t timeout_us = 0);
  // Asks the executor to stop it. Wait then returns CANCELLED, unless it had ended.
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
  // Returns the executor's plan, as JSON (executor/plan/describe.h). sizes: of the module's
  // dimension symbols, in their order.
  StatusOr<std::string> Plan(std::span<const int64_t> sizes, std::string_view function = "") const;
  // Sends the run. Waits only for credit.
  StatusOr<PendingRun> Start(const std::vector<Arg>& args, const RunOptions& options = {}) const;
  const Module& module() const;

 private:
  friend class Session;
  friend struct SessionState;
  struct State;
  std::shared_ptr<State> state_;
};

// Memory of the session that the client fills in place: the segment itself on the same host, else a
// buffer that Seal sends.
struct Writable {
  Tensor tensor;
  std::span<uint8_t> bytes;
};

// A result of a queued run, known before it runs.
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

// The sessions that may take a granted tensor.
struct GrantOptions {
  std::string session;  // the one of this name; empty: all of the principal's
  std::string
      principal;     // "uid:1001", "key:ada", as in `opwire sessions`; empty: this client's own
  std::string name;  // a name by which it can be taken, in addition to the capability; empty: the
                     // tensor's own
};

struct LoadOptions {
  // The passes (ir/passes/pipeline.h) that run first, and how much they may change results. They
  // may remove a called function. Nodes in errors and profiles are those of the result,
  // Program::module(). None: the program runs as written.
  std::optional<Accuracy> passes = Accuracy::kUsual;
};

class Session {
 public:
  Session() = default;

  // Returns the ops for its programs: the built-in ones and those of its executor's users. They do
  // not change during the session. For ModuleBuilder and Parse.
  StatusOr<std::shared_ptr<const OpCatalogue>> Ops();

  StatusOr<Program> Load(std::string_view text, std::string_view filename = "program",
                         const LoadOptions& options = {});
  StatusOr<Program> Load(Module module, const LoadOptions& options = {});

  StatusOr<Tensor> Put(const ArrayView& array, std::string_view name = "");
  StatusOr<Writable> Alloc(DType dtype, const std::vector<int64_t>& shape,
                           Encoding encoding = Encoding::kDense);
  Status Seal(const Writable& w);
  StatusOr<Array> Fetch(const Tensor& t);
  // Copies to the caller's memory, which has exactly the tensor's bytes.
  Status FetchInto(const Tensor& t, std::span<uint8_t> into);
  // RESOURCE_EXHAUSTED beyond the host's memory, the segment's size (the session's quota), or
  // --limit-transfers of views and transfers.
  StatusOr<TensorView> View(const Tensor& t);
  StatusOr<Tensor> Copy(const Tensor& t);
  Status Rename(const Tensor& t, std::string_view name);
  // Frees it now, whichever client made it. Other handles to it become invalid.
  Status Free(const Tensor& t);
  // The tensors in the session; and one of them by its name or id.
  StatusOr<std::vector<TensorFacts>> List();
  StatusOr<Tensor> Find(std::string_view name_or_id);
  StatusOr<std::string> Print(const Tensor& t, uint32_t max_elements = 0);
  // Files in the executor's --data directory. Saved as .npy; loaded from .npy, or from a .gguf or
  // .safetensors file the tensor of this name. No element passes through the client.
  Status Save(const Tensor& t, std::string_view path);
  StatusOr<Tensor> LoadFile(std::string_view path, std::string_view tensor = {});
  // Loads the tensors of these names. The requests are sent without waiting for each reply. Returns
  // all of them, or the first error.
  StatusOr<std::vector<Tensor>> LoadFile(std::string_view path,
                                         std::span<const std::string> tensors);
  // Returns the beginning of such a .gguf or .safetensors file, up to its tensors, for ParseGguf
  // and ParseSafetensors.
  StatusOr<FileHeader> LoadHeader(std::string_view path);

  // Shares the tensor as it is now with other sessions of the executor, read-only and without a
  // copy. Returns its capability: 32 hexadecimal digits. The bytes stay while a session holds them,
  // even if this session writes or frees the tensor, or ends. PERMISSION_DENIED for a tensor that
  // another session granted to this one; INVALID_ARGUMENT for a grant to this session alone;
  // RESOURCE_EXHAUSTED beyond --limit-grants.
  StatusOr<std::string> Grant(const Tensor& t, const GrantOptions& to = {});
  // Ends a grant. Sessions that took the tensor keep it.
  Status Revoke(std::string_view capability);
  // Takes a tensor that another session granted: by the capability, or by its name in a session of
  // the same principal. It counts in this session's quota. If it is bound to an `inout` parameter,
  // it first gets memory of its own. NOT_FOUND; PERMISSION_DENIED if it was granted to others;
  // RESOURCE_EXHAUSTED.
  StatusOr<Tensor> Take(std::string_view capability);
  StatusOr<Tensor> Take(std::string_view session, std::string_view name);

  // Queues a run without waiting for it, of a program of an op or two. Runs keep their order and
  // are sent as one batch. This happens when 256 are queued or their arguments fill a message. It
  // also happens when 32 are queued and the executor has answered all earlier batches, before any
  // other message of the session, or with Flush. Results are tensors of the given types, one for
  // each result of the program, and may be used at once. A failed run affects only runs that use
  // its results: any use returns its error. Arrays are copied. `mark` names the run in
  // QueueFailure.
  StatusOr<std::vector<Tensor>> Enqueue(const Program& program, const std::vector<Arg>& args,
                                        const std::vector<ResultType>& results, uint64_t mark = 0);
  // Sends queued runs, and reads the replies that have arrived.
  Status Flush();
  int64_t queued() const;
  // Returns the first queued run that failed with this status. Runs that use its results fail with
  // the same status. Considers the last 64 failed runs.
  std::optional<QueueFailure> FailureOf(const Status& status);
  // Asks the executor to stop all unfinished requests.
  Status CancelAll();

  // "report", "ops", "explain", "sessions", "stats" as JSON.
  StatusOr<std::string> Info(std::string_view topic, std::string_view argument = "",
                             DType dtype = DType::kInvalid);

  // Ends this client's part. An unnamed session, or with `free` any session, is freed at once, and
  // its runs are cancelled.
  Status Close(bool free = false);
  // The same for a process that is about to end. It waits at most one second: an executor that does
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
  const Module* program = nullptr;  // place the session where this can run
  int64_t memory_bytes = 0;         // quota; 0: the executor's default
  int64_t ttl_s = 0;
  bool ring = true;
};

struct ClientOptions {
  // "ipc://PATH", "tcp://HOST:PORT", or alone "ssh://[USER@]HOST[:PORT]": the user's registry on
  // that host. It is reached by the system's ssh, which asks for no password. If none runs there, a
  // registry and executors are started there. Empty: OPWIRE_REGISTRY, else the user's own.
  std::vector<std::string> registries;
  std::string name = "c++";  // for logs and `opwire sessions`
  // Starts a registry with an executor, if no registry was named and none of the user's own runs,
  // or none on the host of ssh. They end when they are unused.
  bool embedded = true;
  // How long to wait for executors of a registry that has just begun.
  int64_t patience_us = 3'000'000;
  // Called every 50 ms while a session waits without limit for the executor. True ends the wait
  // with CANCELLED. The reply is then dropped.
  std::function<bool()> interrupted;
  // Called with the function that waits for the executor, for callers that must release a lock
  // meanwhile. Without it, the function is called directly.
  std::function<void(absl::FunctionRef<void()>)> waiting;
  // Called with one line about started processes and the reason; without it the line goes to
  // standard error.
  std::function<void(std::string_view)> notice;
};

struct ExecutorFacts;

class Client {
 public:
  // Sends no message yet.
  static StatusOr<Client> Connect(const ClientOptions& options = {});

  // Opens a session on the executor that suits best (placement.h); tries the next one when one
  // refuses. UNAVAILABLE if there is no executor.
  StatusOr<Session> Open(const SessionOptions& options = {});
  // The first step of Open, for callers that look before: starts the user's own executors if none
  // runs and ClientOptions::embedded allows it.
  Status StartIfNone(std::string_view device = "");
  // Returns the registered executors.
  StatusOr<std::vector<ExecutorFacts>> Executors(bool with_ops = false);

 private:
  struct State;
  friend struct SessionState;
  std::shared_ptr<State> state_;
};

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_CLIENT_H_
