// The state of Session, Tensor, Program and PendingRun: one attachment, its requests in flight, and
// its recovery after a loss.
#ifndef OPWIRE_FRONTEND_CPP_SESSION_STATE_H_
#define OPWIRE_FRONTEND_CPP_SESSION_STATE_H_

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/cpp/client.h"
#include "frontend/cpp/connection.h"
#include "frontend/cpp/copier.h"
#include "frontend/cpp/flight.h"
#include "frontend/cpp/placement.h"
#include "frontend/cpp/ssh.h"
#include "ir/verify/verify.h"
#include "registry/client/directory.h"

namespace opwire::client {

inline constexpr size_t kRequestBytes = 256;  // of a request without its body, frees and closes

inline fb::TensorId IdOf(uint32_t attachment, uint64_t counter) {
  return fb::TensorId(attachment, 0, counter);
}

struct Client::State {
  std::unique_ptr<SshHost> ssh;  // null: registries are on this host or have addresses of their own
  ZmqContext context;            // its sockets close before the ssh connection that they use
  ClientOptions options;
  std::vector<std::string> registries;
  bool own = false;  // no registry was named: the user's own is used

  StatusOr<std::vector<ExecutorFacts>> Executors(bool with_ops);
  StatusOr<fb::QueryReplyT> Query(const fb::QueryT& query);
};

struct Program::State {
  std::shared_ptr<SessionState> session;
  std::shared_ptr<const OpCatalogue>
      ops;  // the op definitions of the typing; null: the built-in ones
  Module module;
  Typing typing;
  std::string bytes;
  uint32_t slot = 0;
  uint64_t generation = 0;  // of the session that has it uploaded
  ~State();
};

struct Tensor::State {
  std::shared_ptr<SessionState> session;
  uint32_t attachment = 0;
  uint64_t counter = 0;
  uint64_t generation = 0;
  DType dtype = DType::kInvalid;
  Encoding encoding = Encoding::kDense;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  bool owned = true;
  uint64_t queue = 0;                // the number of the last queue that has a run with it
  uint64_t ticket = 0;               // of the transfer that fills it
  std::shared_ptr<uint8_t> segment;  // the memory that the client fills
  std::vector<uint8_t> staging;      // the bytes that Seal will send, if memory is not shared
  // UNIMPLEMENTED for an encoded tensor, which has no form as an array.
  Status CheckDense(std::string_view what) const;
  ~State();
};

struct TensorView::State {
  std::shared_ptr<SessionState> session;
  uint64_t generation = 0;
  uint64_t ticket =
      0;  // of the transfer that keeps the bytes in the segment; 0: they are `fetched`
  std::shared_ptr<uint8_t> segment;
  Array fetched;
  ArrayView array;
  ~State();
};

struct SessionState : std::enable_shared_from_this<SessionState> {
  std::shared_ptr<Client::State> client;
  SessionOptions options;
  std::optional<Module> placed_for;  // options.program's copy
  std::string executor_id;
  std::string control_endpoint;
  std::unique_ptr<Connection> connection;
  Flight flight;
  std::unordered_map<uint64_t, std::function<void(std::string_view, const Array&)>>
      on_emit;              // by ticket; a callback that runs may start another run
  uint64_t generation = 0;  // counts sessions: tensors of an earlier one are lost
  uint32_t attachment = 0;
  uint64_t next_counter = 1;
  uint32_t next_slot = 1;
  std::vector<fb::TensorId> frees;  // sent with the next message
  std::vector<uint64_t> closes;  // sent likewise: the tickets of transfers that ended (SendBuilt)
  std::vector<uint32_t> drops;   // slots of programs without handles
  int64_t live_tensors = 0;
  std::vector<std::weak_ptr<Program::State>> programs;
  flatbuffers::FlatBufferBuilder builder{1024};
  ClientChannel::Message incoming;
  struct Queue {
    flatbuffers::FlatBufferBuilder builder{16 << 10};
    std::vector<flatbuffers::Offset<fb::Run>> runs;
    std::vector<uint64_t> marks;      // parallel to runs
    std::vector<fb::TensorId> frees;  // of dropped tensors of these runs: sent with the message
                                      // after this queue's
    uint64_t generation = 0;
    uint64_t number = 1;  // differs between queues
    bool shared = false;  // a run has a tensor that another handle may own
  } queue;
  struct SentBatch {
    uint64_t ticket;
    std::vector<uint64_t> marks;
  };
  std::deque<SentBatch> batches;      // whose replies were not read yet
  std::deque<QueueFailure> failures;  // the oldest first
  bool sending = false;               // a request waits to be sent: no other may be built
  Nanos retry_at = 0;                 // no new session before
  Nanos backoff = 0;
  Status lost;                             // why there is no connection
  std::shared_ptr<const OpCatalogue> ops;  // null: not requested yet
  uint64_t ops_generation = 0;             // the session that has them

  ~SessionState();

  // ---- connection (session_connect.cc)
  Status Open();
  // Ensures that there is a session. A lost one is opened again, here or on another executor.
  Status Ensure();
  // The connection broke. Reconnects with the token, or ends the requests in flight with an error
  // that names the lost objects.
  void OnLost(const Status& why);
  Status SendAgain();
  // Ends this client's part in the session, as the end of its last owner does.
  void Leave();
  void EndHere();
  Status ConnectTo(const std::string& endpoint, const std::vector<uint8_t>* token,
                   Nanos ping_timeout);
  // Facts as JSON, from the control socket.
  StatusOr<std::string> Info(std::string_view topic, std::string_view argument = "",
                             DType dtype = DType::kInvalid);

  // ---- requests (session_requests.cc)
  // Sends a request. `builder` is empty: `body` writes to it and returns its offset. Returns the
  // ticket.
  template <typename F>
  StatusOr<uint64_t> Send(fb::Body type, F&& body, Bytes bulk = {}) {
    OPWIRE_RETURN_IF_ERROR(Ensure());
    OPWIRE_RETURN_IF_ERROR(SendQueue());
    builder.Clear();
    const flatbuffers::Offset<void> at = body(builder);
    return SendBuilt(type, at, bulk);
  }
  // Sends `body`, which is in `builder`, together with frees and closes since the last request.
  StatusOr<uint64_t> SendBuilt(fb::Body type, flatbuffers::Offset<void> body, Bytes bulk);
  size_t RidersBytes() const;
  // Sends frees and closes in messages of their own, unless a body of this size leaves room for
  // them.
  Status SendRiders(size_t body_bytes);
  // Waits until a request of this size may be sent. CANCELLED: the client was interrupted.
  Status WaitForCredit(size_t bytes);
  // Sends `body`, which is in `b`, with the first of `frees` and `closes`.
  StatusOr<uint64_t> SendWith(flatbuffers::FlatBufferBuilder& b, fb::Body type,
                              flatbuffers::Offset<void> body, Bytes bulk, size_t free_count,
                              size_t close_count);
  template <typename BodyT>
  StatusOr<uint64_t> SendT(BodyT body, Bytes bulk = {}) {
    fb::BodyUnion u;
    u.Set(std::move(body));
    return Send(
        u.type, [&](flatbuffers::FlatBufferBuilder& b) { return u.Pack(b); }, bulk);
  }
  // Receives until the request ended or the deadline passed. Returns true when it ended.
  StatusOr<bool> Pump(uint64_t ticket, Nanos timeout);
  // Handles `incoming`: calls Flight::OnMessage, and passes emitted values to the run's callback.
  StatusOr<bool> Dispatch(Status& stray);
  // Returns the reply, valid until the next Wait, or the executor's error. Waits without limit:
  // losses are detected.
  StatusOr<const fb::Reply*> Wait(uint64_t ticket, std::string* bulk = nullptr);
  template <typename BodyT>
  StatusOr<const fb::Reply*> Ask(BodyT body, std::string* bulk_out = nullptr, Bytes bulk = {}) {
    OPWIRE_ASSIGN_OR_RETURN(const uint64_t ticket, SendT(std::move(body), bulk));
    return Wait(ticket, bulk_out);
  }

  // ---- tensors (session_tensors.cc)
  Tensor Make(DType dtype, std::vector<int64_t> shape, int64_t bytes, uint64_t counter);
  Status Check(const Tensor::State& t) const;
  StatusOr<Tensor> Copy(const Tensor::State& t);
  // Frees a tensor with the next message; after the queued runs if they use it.
  void Free(const Tensor::State& t);
  // Requests a tensor of a file. Returns the ticket, and the tensor, which Describe will complete.
  StatusOr<std::pair<uint64_t, Tensor>> SendLoad(std::string_view path, std::string_view tensor);
  // Also returns the file's size.
  StatusOr<std::pair<Tensor, int64_t>> LoadFile(std::string_view path, std::string_view tensor);
  StatusOr<Tensor> Take(fb::TakeT take);
  // Sets the facts about a tensor that the executor made, from its reply.
  Status Describe(const fb::Reply& reply, Tensor& t) const;

  // ---- their bytes (session_transfers.cc)
  Status Upload(uint64_t ticket, Bytes bytes);
  Status Download(uint64_t ticket, std::span<uint8_t> into);
  StatusOr<Array> Fetch(const Tensor::State& t);
  Status FetchInto(const Tensor::State& t, std::span<uint8_t> into);
  StatusOr<uint64_t> SendGet(const Tensor::State& t, size_t offset, size_t bytes);
  Status FetchPieces(const Tensor::State& t, std::span<uint8_t> into, size_t piece);
  Status TakePiece(uint64_t request, const Tensor::State& t, std::span<uint8_t> into,
                   Copier& copier);
  StatusOr<std::shared_ptr<TensorView::State>> View(const Tensor::State& t);
  // Sends pending frees and closes, and does not wait.
  void Flush();

  // ---- programs (session_programs.cc)
  StatusOr<std::shared_ptr<const OpCatalogue>> Ops();
  Status EnsureUploaded(Program::State& p);
  // Puts large arrays among the arguments first, into `moved` (empty if there is none). The caller
  // must hold these until the run is sent, or queued with them as tensors of the queue.
  Status Move(const std::vector<Arg>& args, std::vector<Tensor>& moved);
  StatusOr<flatbuffers::Offset<fb::Run>> BuildRun(flatbuffers::FlatBufferBuilder& into,
                                                  Program::State& p, const std::vector<Arg>& args,
                                                  const RunOptions& options,
                                                  std::vector<Tensor>& kept,
                                                  const std::vector<Tensor>& moved);
  // Asks the executor to stop the request of this number.
  Status Cancel(uint64_t seq);
  StatusOr<RunResult> ReadRun(const fb::RunReply& reply, std::vector<Tensor>& kept);

  // ---- runs without a waiting caller (session_queue.cc)
  // Sends queued runs, and drops of programs. Called before any other message.
  Status SendQueue();
  // Sends the queued runs, if there are enough and the executor has answered all earlier batches.
  // It runs these while more are queued.
  Status SendEarly();
  // Takes replies to batches that have arrived.
  void TakeBatches();
  void NoteFailure(uint64_t mark, Status status);
  void ClearQueue();
};

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_SESSION_STATE_H_
