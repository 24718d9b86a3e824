// The executor as a state machine: messages and events in, messages and jobs out. It owns sessions,
// their tensors and programs, and schedules runs. It uses no socket, thread or clock. Shells
// (device_thread.h) and the simulator drive it.
//
//   core.OnMessage(now, peer, head, bulk);      // run socket or ring
//   core.OnControl(now, peer, uid, head);       // control socket
//   while (core.HasWork()) core.Work(now);      // one request, or one slice of a run
#ifndef OPWIRE_EXECUTOR_SERVE_CORE_H_
#define OPWIRE_EXECUTOR_SERVE_CORE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "executor/run/crash_record.h"
#include "executor/serve/gate.h"
#include "executor/serve/pinned_staging.h"
#include "executor/serve/transfers.h"
#include "executor/session/session.h"
#include "ir/wire/limits.h"
#include "kernels/device/device.h"
#include "kernels/select/variant.h"

namespace opwire::executor {

// A run that ended with an error, for the log.
struct FailedRun {
  uint64_t session = 0;
  std::string principal, program;
  Status why;
};

struct CoreOptions {
  std::string executor_id;
  uint64_t incarnation = 0;
  std::string run_endpoint;
  std::string ring_path;  // empty: no ring
  ExecutorLimits limits;
  bool share = false;  // serve principals other than the executor's own user
  bool no_arena = false;
  std::string data_directory;  // empty: no files
  Nanos slice = 500 * kMicrosecond;
  uint64_t token_seed = 0;  // 0: tokens from the system's random source; else a simulation's
  Nanos (*clock)() = &MonotonicNow;  // measures work
  std::function<void(const Status&)>
      on_device_fault;                           // the device has failed; on the core's thread
  std::function<void(FailedRun)> on_failed_run;  // on the core's thread
  std::function<std::string()>
      toolchains;  // the toolchains of kernels, as JSON, on any thread; empty: there are none
};

// The services that a shell provides to the core.
class Shell {
 public:
  virtual ~Shell() = default;
  // Never blocks. RESOURCE_EXHAUSTED: the peer has many unread messages. UNAVAILABLE: it has
  // disconnected.
  virtual Status Send(PeerId peer, Bytes head, Bytes bulk) = 0;
  // Whether several messages at once cost this peer's channel less than single ones.
  virtual bool Gathers(PeerId peer) const = 0;
  virtual void SendControl(PeerId peer, std::string head) = 0;
  // Runs `work` on another thread, then `done` on the core's, through OnJobDone.
  virtual void Submit(std::function<void()> work, std::function<void()> done) = 0;
  // Closes a peer's connection.
  virtual void Drop(PeerId peer) = 0;
};

// Counters for heartbeats and `opwire report`; written by the core, read by any thread.
struct CoreLoad {
  std::atomic<uint32_t> sessions{0};
  std::atomic<uint32_t> queued{0};
  std::atomic<int64_t> request_ns{0};  // recent device time of a request
  std::atomic<uint64_t> runs{0};
  std::atomic<uint64_t> failed{0};
  std::atomic<int64_t> free_memory{0};
  std::atomic<uint64_t> refused{
      0};  // messages that were malformed, or came from a peer without a session
};

class Core {
 public:
  Core(CoreOptions options, Device& device, std::shared_ptr<const KernelSet> kernels,
       CrashRecord* crash, Shell& shell);
  ~Core();

  void OnMessage(Nanos now, PeerId peer, Bytes head, Bytes bulk);
  // `has_ended`: whether the peer's process has ended; then the lease ends at once. Empty: not
  // known.
  void OnPeerGone(Nanos now, PeerId peer, std::function<bool()> has_ended = nullptr);
  // `principal`: as authenticated by the carrier. Bodies: Hello, Bye, Cancel, Info, CloseTransfer,
  // Revoke.
  void OnControl(Nanos now, PeerId peer, const std::string& principal, Bytes head);
  void OnJobDone(Nanos now, const std::function<void()>& done);
  // Handles leases, times to live, and unused memory. Call about once a second.
  void OnTick(Nanos now);
  // For sessions that begin afterwards; the others keep theirs.
  void SetKernels(std::shared_ptr<const KernelSet> kernels);
  // Accepts no new sessions afterwards.
  void Drain() { draining_ = true; }

  // Replies wait, to be sent together with others, or for clients that have much to read. Flush
  // sends as many as possible. Call it after some work. While replies wait, call it about every
  // millisecond.
  bool HasReplies() const { return !unsent_.empty(); }
  void Flush(Nanos now);

  bool HasWork() const { return !ready_.empty(); }
  // Processes one request of the session that has used the least device time, or one slice of its
  // run.
  void Work(Nanos now);
  // Whether nothing runs, waits for a worker, or waits to be read.
  bool Idle() const { return ready_.empty() && unsent_.empty() && jobs_ == 0; }

  // For the ring's shell: returns the segment of the session of a token's attachment. NOT_FOUND if
  // there is none.
  StatusOr<Segment*> SegmentOf(const Token& token);

  RunGate& gate() { return gate_; }
  Transfers& transfers() { return transfers_; }
  CoreLoad& load() { return load_; }
  // Any thread: returns the run to which a Cancel refers.
  StatusOr<RunIdentity> IdentityOf(const fb::Cancel& cancel);

 private:
  friend class InfoWriter;
  struct AttachmentRef {
    uint64_t session;
    uint32_t attachment;
  };

  // core.cc: messages and scheduling.
  void Accept(Nanos now, PeerId peer, Session& s, Attachment& a, std::unique_ptr<QueuedRequest> q);
  bool Waits(const Session& s, const Attachment& a, uint64_t seq) const;
  void Attach(Nanos now, PeerId peer, const fb::Attach& attach, uint64_t seq);
  void Refuse(PeerId peer, uint64_t seq, const Status& status);
  // Counts invalid messages, and drops a peer that sends many of them. Refusals that wait for such
  // a peer could fill the memory.
  void CountInvalid(PeerId peer);
  // Sends to the attachment's client, if it has one, after earlier waiting replies.
  void Deliver(const Session& s, Attachment& a, Bytes head, Bytes bulk);
  void Disconnect(Nanos now, Attachment& a);  // it has lost its connection
  void ClearOutbox(Attachment& a);
  void Process(Nanos now, Session& s);
  // Waits for device work of a suspended run. The device does no other work before.
  void WaitForSuspended();
  void UpdateReady(Session& s);  // Adds the session to the ready ones, or removes it.
  // Frees tensors and ends transfers as the request asks.
  void Release(Session& s, const fb::Request& request);
  void Reply(Session& s, const QueuedRequest& q, const Status& status, fb::ReplyBody type,
             flatbuffers::Offset<void> body, Bytes bulk = {}) {
    Reply(s, q, status, type, body, bulk, builder_);
  }
  // `body` was built in `builder`, which is empty afterwards.
  void Reply(Session& s, const QueuedRequest& q, const Status& status, fb::ReplyBody type,
             flatbuffers::Offset<void> body, Bytes bulk, flatbuffers::FlatBufferBuilder& builder);
  void ReplyStatus(Session& s, const QueuedRequest& q, const Status& status);
  void ReplySmall(Session& s, const QueuedRequest& q, StatusOr<fb::ReplyT> reply, Bytes bulk = {});
  void Pop(Session& s);
  std::unique_ptr<QueuedRequest> NewRequest();
  void Recycle(std::unique_ptr<QueuedRequest> q);

  // core_run.cc
  void ProcessRun(Nanos now, Session& s, const QueuedRequest& q, const fb::Run& run);
  Status BeginRun(Nanos now, Session& s, const QueuedRequest& q,
                  std::shared_ptr<const Program> program, const fb::Run& run, bool& wait);
  // Runs a slice of the active run.
  bool Emit(const Emission& e);
  Run::Outcome RunSlice(Nanos now, Session& s, const QueuedRequest& q, Nanos deadline);
  void ContinueRun(Nanos now, Session& s);
  void ProcessBatch(Nanos now, Session& s, const QueuedRequest& q, const fb::Batch& batch);
  // Whether a batch's reply has room for that many more bytes.
  bool HasRoom(const Session& s, int64_t bytes) const;
  Status BeginOfBatch(Nanos now, Session& s, const QueuedRequest& q, const fb::Run& run,
                      bool& wait);
  static Nanos DeadlineOf(Nanos arrival, const fb::Run& run);
  void NoteFailure(const Session& s, uint32_t attachment, const fb::Run& run, const Status& why);
  void FailResults(Session& s, uint32_t attachment, const fb::Run& run, const Status& why);
  void FailResults(Session& s, const QueuedRequest& q, const Status& why);
  void FailInouts(Session& s, uint32_t attachment, const fb::Run& run, const Status& why);
  StatusOr<std::shared_ptr<const Program>> ProgramOf(const Session& s, uint32_t attachment,
                                                     const fb::Run& run) const;

  // core_program.cc
  void ProcessProgram(Session& s, const QueuedRequest& q, const fb::PutProgram& body);
  // Runs `work` on a worker, then `go_on` for the session's head request, if both still exist. It
  // replies, or submits more.
  void SubmitFor(Session& s, std::function<void()> work,
                 std::function<void(Session&, const QueuedRequest&)> go_on);

  // core_tensors.cc
  StatusOr<fb::ReplyT> PutTensor(Session& s, const QueuedRequest& q, const fb::Put& body);
  // These two copy step by step. After each step except the last, a later slice continues.
  void ProcessSeal(Session& s, const QueuedRequest& q, const fb::Seal& body);
  void ProcessGet(Session& s, const QueuedRequest& q, const fb::Get& body);
  StatusOr<Staged> BeginSeal(Session& s, const fb::Seal& body);
  StatusOr<fb::ReplyT> FinishSeal(Session& s, const fb::Seal& body);
  StatusOr<Staged> BeginGet(Session& s, const fb::Get& body);
  // `bulk` points into the staged bytes.
  StatusOr<fb::ReplyT> FinishGet(Session& s, const QueuedRequest& q, const fb::Get& body,
                                 Bytes& bulk);
  StatusOr<fb::ReplyT> RenameTensor(Session& s, const fb::Rename& body);
  StatusOr<fb::ReplyT> CopyTensor(Session& s, const QueuedRequest& q, const fb::Copy& body);
  StatusOr<fb::ReplyT> ListTensors(Session& s);
  StatusOr<fb::ReplyT> PrintTensor(Session& s, const fb::Print& body);
  void ProcessSave(Session& s, const QueuedRequest& q, const fb::Save& body);
  void ProcessLoad(Session& s, const QueuedRequest& q, const fb::Load& body);
  // Reads into the buffer, which becomes the tensor.
  Status ReadLoaded(Session& s, std::shared_ptr<const OpenedTensor> file, const BufferRef& buffer,
                    TensorKey key);
  StatusOr<uint64_t> OpenTransfer(Session& s, uint32_t attachment, const Staged& staged,
                                  bool writable);
  void CloseTransfer(uint64_t ticket);
  void CloseTransfersOf(Session& s, uint32_t attachment);
  // Ends the transfer that fills a writable tensor.
  void CloseFilling(Session& s, const Tensor& t);

  // core_grants.cc
  StatusOr<fb::ReplyT> GrantTensor(Session& s, const fb::Grant& body);
  Status RevokeGrant(Session& s, const fb::Revoke& body);
  // Finds the granting session among all sessions of the principal.
  Status RevokeOf(const std::string& principal, const fb::Revoke& body);
  StatusOr<fb::ReplyT> TakeTensor(Session& s, const QueuedRequest& q, const fb::Take& body);
  StatusOr<const Grant*> FindGrant(const Session& by, const fb::Take& body) const;

  // core_control.cc
  void SendToolchains(PeerId peer, uint64_t seq);
  StatusOr<std::string> Hello(Nanos now, uint64_t seq, const std::string& principal,
                              const fb::Hello& hello);
  Status Bye(Nanos now, const fb::Bye& bye);
  Status CancelQueued(const fb::Cancel& cancel);
  // Ends the unnamed session that has been without clients for the longest time: a principal's or,
  // with "", any. Returns false if there is none.
  bool EndLostSession(Nanos now, const std::string& principal);
  Session* FindSession(const std::string& principal,
                       const std::string& name) const;  // null: there is none
  // Counts the sessions of a principal or, with "", all, including ended ones whose tensors others
  // hold.
  int64_t CountSessions(const std::string& principal);
  StatusOr<Session*> SessionFor(Nanos now, const std::string& principal, const fb::Hello& hello);
  std::string HelloReplyFor(uint64_t seq, const Session& s, const Attachment& a) const;
  void EndAttachment(Nanos now, Session& s, Attachment& a);
  void EndSession(Session& s);
  Token NewToken();
  StatusOr<AttachmentRef> AttachmentOf(const flatbuffers::Vector<uint8_t>* token) const;

  const CoreOptions options_;
  Device& device_;
  std::shared_ptr<const KernelSet> kernels_;
  CrashRecord* const crash_;
  Shell& shell_;

  MemoryBudget budget_;                 // of the device
  MemoryBudget host_memory_;            // of the host, if the device has its own
  MemoryBudget& host_budget_;           // the budget of messages, programs and transfers
  std::optional<PackedCopies> packed_;  // if the device's memory is the host's
  ScratchArenas arenas_;
  PinnedStaging staging_;  // of loads, if the device's memory is not the host's
  RunEnvironment environment_;
  Session* emitting_ = nullptr;   // the session whose run continues
  Session* under_way_ = nullptr;  // the session whose run left work on the device
  RunGate gate_;
  Transfers transfers_;
  CoreLoad load_;
  const std::shared_ptr<FileHeaders> headers_;  // workers use it, too

  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> sessions_;
  // Ended while a worker used them: their memory stays until the worker is done.
  absl::flat_hash_map<uint64_t, std::unique_ptr<Session>> ended_;
  // Ended, but others hold tensors that they granted. They count as sessions until no session does.
  struct GrantedStore {
    std::string principal;
    std::weak_ptr<Store> store;
  };
  std::vector<GrantedStore> granted_stores_;
  std::mutex token_mutex_;  // held to change tokens_, and to read it on other threads
  absl::flat_hash_map<std::string, AttachmentRef> tokens_;
  absl::flat_hash_map<PeerId, AttachmentRef> peers_;
  absl::flat_hash_map<PeerId, int> invalid_messages_;  // invalid messages of a connection
  // Programs by hash: sessions that upload equal bytes share one.
  std::vector<std::weak_ptr<const Program>> programs_;
  absl::flat_hash_map<uint64_t, BufferRef> open_transfers_;  // by ticket

  std::vector<Session*> ready_;
  std::vector<AttachmentRef> unsent_;  // with an outbox that is not empty
  std::vector<std::unique_ptr<QueuedRequest>> spare_requests_;
  flatbuffers::FlatBufferBuilder builder_{4096};
  AlignedBytes decode_;
  Nanos virtual_now_ = 0;
  uint64_t next_session_ = 1;
  uint64_t token_counter_ = 0;
  int jobs_ = 0;
  bool draining_ = false;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_CORE_H_
