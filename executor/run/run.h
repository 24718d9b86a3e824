// One run of a program's function: bindings resolved against the session's tensors, steps executed
// a slice at a time, results stored or put into the reply.
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
#include "executor/run/lane.h"
#include "executor/run/packed_operands.h"
#include "executor/store/store.h"
#include "ir/wire/clock.h"
#include "ir/wire/message.h"
#include "kernels/device/device.h"

namespace opwire {

// Why the stop word of the device is set.
enum class StopReason : uint32_t { kNone = 0, kCancelled = 1, kDeadline = 2, kDraining = 3 };

// A value on its way to the client.
struct Emission {
  std::string_view name;
  DType dtype;
  Encoding encoding;
  std::span<const int64_t> shape;
  Bytes bytes;
};

// What runs use; the device thread's.
struct RunEnvironment {
  Device* device = nullptr;
  Lanes* lanes = nullptr;
  CrashRecord* crash = nullptr;  // may be null
  int64_t max_instances = 64;
  bool no_arena = false;
  Nanos (*clock)() = &MonotonicNow;
  // Results on their way into a message, where the device's memory is not the host's: kInlineBytes
  // of the host's, and alignment.
  uint8_t* inline_results = nullptr;
  // Takes a value that the program emits; false where there is no room for it now. Without it they
  // go nowhere.
  std::function<bool(const Emission&)> emit;
  // Is told that the device does nothing more; need not return. May be empty.
  std::function<void(const Status&)> on_fault;
  PackedCopies* packed = nullptr;  // null: kernels read all tensors as they lie

  InstanceOptions instance_options() const {
    return {.runtime = device->runtime(),
            .device = device->info().host_memory ? nullptr : device,
            .no_arena = no_arena,
            .most = lanes->capacity(),
            .crash = crash};
  }
};

class Run {
 public:
  enum class Outcome : uint8_t { kMore, kDone };

  bool active() const { return program_ != nullptr; }

  // Resolves everything and takes what the run needs, or fails and leaves no trace; then active().
  // `message` stays until Finish. UNAVAILABLE with `wait` set: no lane is free, try again later.
  Status Begin(const RunEnvironment& env, Store& store, uint32_t attachment,
               std::shared_ptr<const Program> program, const fb::Run& message, bool& wait);
  // Runs steps for about `slice`; kDone when the last has ended or the run failed. `alone`: nobody
  // waits for the device, so where there is more to do, a little may still be under way there, for
  // it to go on with meanwhile.
  Outcome Continue(const RunEnvironment& env, Nanos slice, bool alone);
  // Whether the device may still be at it. Who wants to do anything else with the device or the run
  // than go on calls Await first, which heeds a stop as Continue does.
  bool under_way() const { return unfinished_ > 0; }
  void Await(const RunEnvironment& env);
  // It emits a value for which there was no room: there is nothing to do until there is.
  bool waits_to_emit() const { return waits_to_emit_ && !aborted_; }
  // Ends the run before its next step, with this error.
  void Abort(Status why) {
    failure_ = std::move(why);
    aborted_ = true;
  }
  // Stores results, poisons what a failed run had begun to write, and gives back what it held. The
  // status of the run; on success the reply's body can be built with Reply until End.
  Status Finish(Store& store);
  flatbuffers::Offset<fb::RunReply> Reply(flatbuffers::FlatBufferBuilder& b, Nanos queued) const;
  // Whether it gave nothing but tensors and met nothing on its way: where nobody waits for it,
  // nobody needs its reply. From Begin to End.
  bool silent() const;
  // What Reply takes at the most. From Begin to End.
  int64_t ReplyBytes() const;
  void End(const RunEnvironment& env);

  const fb::Run& message() const { return *message_; }
  Nanos ran() const { return ran_; }
  // When Continue ended.
  Nanos stopped() const { return stopped_; }
  Nanos expected() const { return instance_->took; }  // kNever: it never ran with these sizes
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
  // Whether the only write of an inout parameter is an update that failed and left it as it was.
  bool IsLeftAlone(int param) const;
  Status BindSymbols(const Function& f);
  Status FindInstance(const RunEnvironment& env);
  Status CheckShapes(const Function& f) const;
  Status TakeInouts(Store& store, const Function& f);
  Status TakeResults(Store& store);
  // Puts inline operands where the device reaches them: behind the lane's scratch memory.
  Status Upload(const RunEnvironment& env);
  // Hands a value over that the program emits, or where the device has memory of its own, lets it
  // be copied while the device goes on, once the one before it was handed over; false where there
  // is no room.
  StatusOr<bool> Emit(const RunEnvironment& env, const Step& step, Graphs* graphs);
  // Waits for the value that is copied, and hands it over; true where there is none.
  StatusOr<bool> HandOver(const RunEnvironment& env);
  // Waits for the device's work, with the inline results fetched; reads what it met.
  Status Settle(const RunEnvironment& env);
  // Sees to it that little is under way: all but the last of what was put on the device is done
  // then. With `all`, that too.
  Status Catch(const RunEnvironment& env, bool all);
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
  Lane* lane_ = nullptr;
  uint8_t* inline_results_ = nullptr;  // null: results are read where they are
  Cursor cursor_;
  PackedOperands packed_;
  Nanos ran_ = 0, stopped_ = 0;
  uint32_t flags_ = 0;
  Status failure_;
  // The step, of the function that runs, which failed without a change of what it updates.
  std::optional<uint32_t> left_alone_;
  bool aborted_ = false;
  bool ended_ = false;  // no more steps are to be done
  bool waits_to_emit_ = false;
  struct Copied {
    const Step* step;  // that emits
    const void* to;
    EventId done;
  };
  std::optional<Copied> copied_;   // a value on its way to the client
  std::optional<EventId> chunk_;   // behind what was last put on the device in one go
  uint32_t unfinished_ = 0;        // steps whose end is not known,
  uint32_t behind_ = 0;            // and those of them behind chunk_
  std::vector<uint64_t> step_ns_;  // by step, of all its calls, where the run is profiled
  // These keep their capacity from run to run.
  std::vector<Input> inputs_;
  std::vector<int64_t> symbols_;
  std::vector<uint64_t> inline_;     // scalars and inline operands, each aligned
  uint8_t* inline_begin_ = nullptr;  // in inline_
  int64_t inline_bytes_ = 0;
  std::vector<BufferRef> held_;  // operands, so that no free ends them during the run
  std::vector<Kept> kept_;
  std::vector<Mutated> mutated_;
};

}  // namespace opwire

#endif  // OPWIRE_EXECUTOR_RUN_RUN_H_
