// Variants: the kernels that can run an op on a device, and the reason for each choice.
//
//   VariantTable table = BuildVariantTable(*device);
//   // the best that supports these types and shapes
//   auto choice = table.Choose("matmul", call, Pin{});
//   for (const Candidate& c : table.Explain("matmul", DType::kF32)) ...
#ifndef OPWIRE_KERNELS_SELECT_VARIANT_H_
#define OPWIRE_KERNELS_SELECT_VARIANT_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/type.h"
#include "ir/ops/declaration.h"
#include "kernels/abi.h"

namespace opwire {

class Choices;
class Device;
namespace fused {
class Fuser;
}
namespace gpu {
class Code;
}

// Longer calls are not measured before they run: they would delay other sessions.
inline constexpr double kMeasureBelowNs = 300'000;
// A variant takes the place of the one before it in the fixed order if it is faster by this factor,
inline constexpr double kFasterBy = 1.1;
// and by more than the error of a clock with a resolution of tens of nanoseconds.
inline constexpr double kFasterByNs = 100;

// The label of groups of elementwise nodes, used like a variant's label.
inline constexpr std::string_view kFusedLabel = "fused";

// Candidates of a higher tier are preferred to all of a lower one.
enum class Tier : uint8_t { kReference = 0, kLibtorch = 1, kProduction = 2, kPinned = 3 };
std::string_view TierName(Tier tier);

// Where a variant's code comes from.
enum class Origin : uint8_t { kPrebuilt = 0, kCached = 1, kBuilt = 2 };
std::string_view OriginName(Origin origin);

// An operand's bytes in the kernel's own order, which it reads faster than the tensor's: pieces of
// equal size. They are made once from a tensor that stays, and kept in addition to it. In a call
// with such an operand opw_tensor::packed is 1 and its data points to the first piece. Results have
// the same bits, except for the bits of NaNs.
struct Packing {
  struct Size {
    int64_t pieces = 0;  // none: the tensor is used unchanged
    int64_t bytes = 0;   // of a piece
  };
  std::string_view name;  // packings of one name produce the same bytes
  int operand;            // index in the op definition
  Size (*size)(const opw_tensor& of);
  // Writes pieces [begin, end). `to` is the address of the first piece of all. On any thread.
  void (*pack)(const opw_tensor& from, int64_t begin, int64_t end, void* to);
};

struct Variant {
  std::string op;    // an op of the catalogue
  std::string name;  // unique within the op: "reference", "avx512", "onednn"
  Tier tier = Tier::kReference;
  int priority = 0;  // within the tier, higher first
  DTypeSet dtypes;   // of the definition's first type variable; all its types if it has no variable
  std::string unavailable;  // why this machine cannot run it ("needs avx512bf16"); empty if it can
  std::string source;       // "builtin", or the folder of a user's op
  opw_kernel kernel{};
  const Packing* packing = nullptr;  // that it also accepts; null: none
  Origin origin = Origin::kPrebuilt;
  std::shared_ptr<const void> holds;  // owner of the kernel's code or context; null: this program
  uint32_t label = 0;                 // its number among the table's labels
  std::string build;        // identifies the code if the name does not: of a user's variant
  std::string restriction;  // if its `supports` refuses many calls whose types it accepts: "only
                            // where m, n and k are at most 64"
  std::string wider;        // the variant of the same code for a wider instruction set, which is
                            // preferred wherever it runs
  // Set if its library is opened when it is first needed. Returns why that is impossible; empty if
  // it is possible. Without `open` it returns only the present knowledge.
  std::function<std::string(bool open)> library;
};

// An operator's settings for the choice. Entries are "OP@VARIANT", or a variant's name for all ops
// that have it.
struct Steering {
  std::vector<std::string> prefer;  // before all others that can run
  std::vector<std::string> forbid;  // never, a pin included
  bool deterministic = false;  // only variants whose bits do not depend on the number of threads,
                               // in their fixed order
};

struct Candidate {
  const Variant* variant;
  bool chosen;
  std::string reason;  // why it was or was not chosen
};

class VariantTable {
 public:
  // `ops` outlives the table. `labels` are the labels of the previous table; they keep their
  // numbers.
  explicit VariantTable(const OpCatalogue& ops = Catalogue(), std::vector<std::string> labels = {})
      : ops_(&ops), labels_(std::move(labels)) {
    for (const std::string& label : labels_)
      label_of_.emplace(label, static_cast<uint32_t>(label_of_.size()));
  }

  // REQUIRES: op is in the catalogue, and (op, name) is new.
  void Add(Variant v);

  // Returns the variant that runs a call of this op: the first by (tier, priority, name) that is
  // available, accepts the element type and whose `supports` gives no reason. With a pin only that
  // variant. FAILED_PRECONDITION lists those that can run; UNIMPLEMENTED if none can. `dtype` is
  // that of the definition's first type variable (kInvalid if it has none). `asks`, if given, is
  // called with each variant before its code is called.
  using Asks = std::function<void(const Variant&)>;
  StatusOr<const Variant*> Choose(std::string_view op, DType dtype, const opw_call& call,
                                  std::string_view pin, const Asks& asks = nullptr) const;
  // The same, but the fastest variant of the best tier that can run the call is preferred. The
  // times are measured once for its class of calls, at the latest now. A call that is expected to
  // take longer than kMeasureBelowNs uses the fixed order.
  StatusOr<const Variant*> Choose(std::string_view op, DType dtype, const opw_call& call,
                                  std::string_view pin, Choices& choices, double expected_ns,
                                  const Asks& asks) const;

  // The same before shapes are known: the first variant that may run.
  StatusOr<const Variant*> FirstRunnable(std::string_view op, DType dtype,
                                         std::string_view pin) const;

  // Every variant of the op for this element type, in order of preference, without shapes. Opens
  // the libraries of those that can run.
  std::vector<Candidate> Explain(std::string_view op, DType dtype) const;

  // In order of op, then preference.
  std::span<const Variant> variants() const { return variants_; }
  std::span<const Variant> Of(std::string_view op) const;
  // "matmul@onednn", by Variant::label; includes variants of earlier tables.
  const std::vector<std::string>& labels() const { return labels_; }
  // INVALID_ARGUMENT, with the nearest names, for an entry that names no variant of the table. With
  // `user_ops` an entry that may name a variant of a user's op is accepted: it may be added later.
  Status CheckSteering(const Steering& steering, bool user_ops) const;
  // Makes the variant of this label unavailable for this reason. No effect if it is a reference,
  // already has a reason, or is not in the table.
  void Withdraw(std::string_view label, const std::string& reason);
  // Changes the rules of Choose; sorts the table again.
  void Steer(const Steering& steering);

 private:
  StatusOr<const Variant*> Pick(std::string_view op, DType dtype, const opw_call* call,
                                std::string_view pin, const Asks& asks) const;

  const OpCatalogue* ops_;
  std::vector<Variant> variants_;
  std::vector<std::string> labels_;
  std::unordered_map<std::string, uint32_t> label_of_;
};

// A variant of a user's op for a backend that this executor does not run.
struct OtherBackend {
  std::string op, variant, backend, arch;
  std::string reason;  // why it cannot be built; empty: it was compiled for that architecture
  bool tried = false;  // false: its compilation is still waiting
};

// All that an executor can run at one time. It never changes once it is in force: a session keeps
// the set that it began with.
struct KernelSet {
  uint64_t epoch = 1;
  std::shared_ptr<const OpCatalogue> ops;   // null: the built-in ones
  std::vector<OpDeclaration> declarations;  // of those that are not built in
  std::vector<OtherBackend> other_backends;
  std::shared_ptr<Choices> choices;     // null: the fixed order
  std::shared_ptr<fused::Fuser> fuser;  // of elementwise groups; null: every node is a kernel
  VariantTable variants;

  const OpCatalogue& catalogue() const { return ops ? *ops : Catalogue(); }
};

// Whether this build has kernels for devices of a kind ("cpu").
bool HasKernels(std::string_view kind);
// Settings of kernels that are compiled for the device.
struct KernelOptions {
  std::string cache;                      // the build cache's directory; empty: the user's
  std::string worker = "/proc/self/exe";  // the program whose `--jit-worker` compiles
  std::shared_ptr<Choices>
      choices;  // storage for the measurements of a GPU's kernels; null: they measure nothing
  std::shared_ptr<gpu::Code> code;  // of this device, a GPU: compiles in place of the two above;
                                    // null: the table has its own
};
// All variants built into this program for the device, which outlives the table. Unavailable ones
// are included, with their reason.
VariantTable BuildVariantTable(Device& device, const KernelOptions& options = {});
// Null if the device has no kernels.
std::shared_ptr<fused::Fuser> BuildFuser(Device& device, const KernelOptions& options = {});

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_VARIANT_H_
