// One run of a program's function. Bindings are resolved to the session's tensors, steps are
// executed a slice at a time, and results are stored or put into the reply.
#ifndef OPWIRE_EXECUTOR_RUN_RUN_H_
#define OPWIRE_EXECUTOR_RUN_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "executor/plan/cursor.h"
#include "executor/plan/instance.h"
#include "executor/run/crash_record.h"
#include "executor/run/packed_operands.h"
#include "executor/run/scratch_arena.h"
#include "executor/store/store.h"
#include "ir/wire/clock.h"
#include "ir/wire/message.h"
#include "kernels/device/device.h"

namespace opwire::executor {

// Why the stop word of the device is set.
enum class StopReason : uint32_t { kNone = 0, kCancelled = 1, kDeadline = 2, kDraining = 3 };

// A value that is sent to the client.
struct Emission {
  std::string_view name;
  DType dtype;
  Encoding encoding;
  std::span<const int64_t> shape;
  Bytes bytes;
};

// The environment of runs. Used by the device thread only.
struct RunEnvironment {
  Device* device = nullptr;
  ScratchArenas* arenas = nullptr;
  CrashRecord* crash = nullptr;  // may be null
  int64_t max_instances = 64;
  bool no_arena = false;
  Nanos (*clock)() = &MonotonicNow;
  // Buffer for results and emitted values that go into a message, if the device's memory is not the
  // host's: kMaxFrameBytes of pinned host memory.
  uint8_t* inline_results = nullptr;
  // Takes a value that the program emits. Returns false if there is no room for it now. Without
  // this function, values are dropped.
  std::function<bool(const Emission&)> emit;
  // Called when the device has failed and accepts no more work. It need not return. May be empty.
  std::function<void(const Status&)> on_fault;
  PackedCopies* packed = nullptr;  // null: kernels read all tensors unpacked

  InstanceOptions instance_options() const {
    return {.runtime = device->runtime(),
            .device = device->info().host_memory ? nullptr : device,
            .no_arena = no_arena,
            .most = arenas->capacity(),
            .crash = crash};
  }
};

class Run {
 public:
  enum class Outcome : uint8_t { kMore, kDone };

  bool active() const { return program_ != nullptr; }

  // Resolves all bindings and takes the resources of the run; then active() is true. A failure has
  // no side effects. `message` must exist until Finish. UNAVAILABLE with `wait` set: no arena is
  // free, try again later.
  Status Begin(const RunEnvironment& env, Store& store, uint32_t attachment,
               std::shared_ptr<const Program> program, const fb::Run& message, bool& wait);
  // Runs steps for about `slice`. Returns kDone if the last step has ended or the run failed.
  // `alone`: no other work waits for the device. Then some work may still be pending there if there
  // are more steps, so that the device is busy meanwhile.
  Outcome Continue(const RunEnvironment& env, Nanos slice, bool alone);
  // Whether the device may have pending work of the run. Before anything except Continue, the
  // caller must call Await, which obeys a stop as Continue does.
  bool under_way() const { return unfinished_ > 0; }
  void Await(const RunEnvironment& env);
  // Whether the run emits a value for which there was no room. Until there is room, the run has
  // nothing to do.
  bool waits_to_emit() const { return waits_to_emit_ && !aborted_; }
  // Ends the run before its next step, with this error.
  void Abort(Status why) {
    failure_ = std::move(why);
    aborted_ = true;
  }
  // Stores results, poisons the tensors that a failed run had begun to write, and releases the
  // run's resources. Returns the status of the run. On success Reply can build the reply's body
  // until End.
  Status Finish(Store& store);
  flatbuffers::Offset<fb::RunReply> Reply(flatbuffers::FlatBufferBuilder& b, Nanos queued) const;
  // Whether it returned only tensors and reported nothing. Its reply is then not needed, unless a
  // thread waits for it. From Begin to End.
  bool silent() const;
  // The most bytes that Reply takes. From Begin to End.
  int64_t ReplyBytes() const;
  void End(const RunEnvironment& env);

  const fb::Run& message() const { return *message_; }
  Nanos ran() const { return ran_; }
  // The time when Continue ended.
  Nanos stopped() const { return stopped_; }
  Nanos expected() const { return instance_->took; }  // kNever: no run with these sizes yet
  const Program* program() const { return program_.get(); }

 private:
  struct Input {
    const Tensor* tensor;  // valid during Begin only
    void* data;
    std::span<const int64_t> shape;
  };
  struct Kept {
    int result;
    TensorKey key;
    BufferRef buffer;
  };
  struct Mutated {
    int param;
    TensorKey key;
  };

  Status Resolve(Store& store);
  // Whether the only write of an inout parameter is an update that failed and did not change it.
  bool IsLeftAlone(int param) const;
  Status BindSymbols(const Function& f);
  Status FindInstance(const RunEnvironment& env);
  Status CheckShapes(const Function& f) const;
  Status TakeInouts(Store& store, const Function& f);
  Status TakeResults(Store& store);
  // Copies inline operands to memory that the device can access: after the arena's scratch memory.
  Status Upload(const RunEnvironment& env);
  // Sends a value that the program emits. If the device has memory of its own, it first sends the
  // value before, then copies the new one while the device continues. Returns false if there is no
  // room.
  StatusOr<bool> Emit(const RunEnvironment& env, const Step& step, Graphs* graphs);
  // Waits for the value that is being copied, and sends it. Returns true if there is none.
  StatusOr<bool> HandOver(const RunEnvironment& env);
  // Waits for the device's work, and copies the inline results.
  Status FetchResults(const RunEnvironment& env);
  // Waits until at most the last chunk of work on the device is pending. With `all`, waits for that
  // too.
  Status LimitPending(const RunEnvironment& env, bool all);
  void NoteDone() { chunk_.reset(), unfinished_ = behind_ = 0; }
  void Lost(const RunEnvironment& env, const CrashRecord::Running& running,
            const Status& why) const;
  void ReadFlags(const RunEnvironment& env);
  const void* ResultData(size_t result) const;
  void Bind(const RunEnvironment& env, const Function& f);
  ErrorSite SiteOf(const Step& step) const;
  Status WhyStopped(uint32_t reason) const;

  std::shared_ptr<const Program> program_;
  const fb::Run* message_ = nullptr;
  uint32_t attachment_ = 0;
  Instance* instance_ = nullptr;
  ScratchArena* arena_ = nullptr;
  uint8_t* inline_results_ = nullptr;  // null: results are read at their own addresses
  Cursor cursor_;
  PackedOperands packed_;
  Nanos ran_ = 0, stopped_ = 0;
  uint32_t flags_ = 0;
  Status failure_;
  // The step, of the function that runs, which failed without a change of the tensor that it
  // updates.
  std::optional<uint32_t> left_alone_;
  bool aborted_ = false;
  bool ended_ = false;  // no more steps will run
  bool waits_to_emit_ = false;
  struct Copied {
    const Step* step;  // the step that emits
    const void* to;
    EventId done;
  };
  std::optional<Copied> copied_;   // a value that is being copied for the client
  std::optional<EventId> chunk_;   // after the last chunk of work on the device
  uint32_t unfinished_ = 0;        // steps that may be pending
  uint32_t behind_ = 0;            // those of them after chunk_
  std::vector<uint64_t> step_ns_;  // by step, the sum of its calls, if the run is profiled
  // These keep their capacity for later runs.
  std::vector<Input> inputs_;
  std::vector<int64_t> symbols_;
  std::vector<uint64_t> inline_;     // scalars and inline operands, each aligned
  uint8_t* inline_begin_ = nullptr;  // in inline_
  int64_t inline_bytes_ = 0;
  std::vector<BufferRef> held_;  // operands, so that they are not freed during the run
  std::vector<Kept> kept_;
  std::vector<Mutated> mutated_;
};

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_RUN_RUN_H_
