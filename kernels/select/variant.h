// Variants: the kernels that can serve an op on a device, and why one is chosen.
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

// Longer calls are not measured before they run: they would hold up others.
inline constexpr double kMeasureBelowNs = 300'000;
// How much faster a variant must be than the one before it in the fixed order, to take its place,
inline constexpr double kFasterBy = 1.1;
// and by more than what a clock of tens of nanoseconds may make up.
inline constexpr double kFasterByNs = 100;

// What groups of elementwise nodes are called where variants have labels.
inline constexpr std::string_view kFusedLabel = "fused";

// Candidates of a higher tier are preferred to all of a lower one.
enum class Tier : uint8_t { kReference = 0, kLibtorch = 1, kProduction = 2, kPinned = 3 };
std::string_view TierName(Tier tier);

// Where a variant's code comes from.
enum class Origin : uint8_t { kPrebuilt = 0, kCached = 1, kBuilt = 2 };
std::string_view OriginName(Origin origin);

// An order of an operand's bytes of the kernel's own, which it reads faster than the tensor's:
// pieces of equal size, made once of a tensor that stays and kept beside it. In a call whose
// operand is such, opw_tensor::packed is 1 and its data the first piece. Results have the same
// bits, but for those of NaNs.
struct Packing {
  struct Size {
    int64_t pieces = 0;  // none: the tensor is taken as it lies
    int64_t bytes = 0;   // of a piece
  };
  std::string_view name;  // packings of one name make the same bytes
  int operand;            // of the row
  Size (*size)(const opw_tensor& of);
  // Pieces [begin, end) of all, to where the first of all goes. On any thread.
  void (*pack)(const opw_tensor& from, int64_t begin, int64_t end, void* to);
};

struct Variant {
  std::string op;    // a row of the catalogue
  std::string name;  // unique within the op: "reference", "avx512", "onednn"
  Tier tier = Tier::kReference;
  int priority = 0;         // within the tier, higher first
  DTypeSet dtypes;          // of the row's first type variable; all of the row's where it has none
  std::string unavailable;  // why this machine cannot run it ("needs avx512bf16"); empty: it can
  std::string source;       // "builtin", or the folder of a user's op
  opw_kernel kernel{};
  const Packing* packing = nullptr;  // that it also takes; null: none
  Origin origin = Origin::kPrebuilt;
  std::shared_ptr<const void>
      holds;                // what the kernel's code or context lies in; null: this program
  uint32_t label = 0;       // its number among the table's labels
  std::string build;        // which code it is, where the name does not tell: of a user's variant
  std::string restriction;  // where its `supports` refuses much of what the types allow: "only
                            // where m, n and k are at most 64"
  std::string wider;  // the variant of the same code for a wider instruction set, which goes first
                      // wherever it runs
  // Where its library is opened when it is first needed: why that cannot be, empty where it can.
  // Without `open` only what is known by now.
  std::function<std::string(bool open)> library;
};

// What an operator wants of the choice. Entries are "OP@VARIANT", or a variant's name for all ops
// that have it.
struct Steering {
  std::vector<std::string> prefer;  // before all others that can run
  std::vector<std::string> forbid;  // never, a pin included
  bool deterministic = false;  // only variants that give equal bits whatever the number of threads,
                               // in their fixed order
};

struct Candidate {
  const Variant* variant;
  bool chosen;
  std::string reason;  // why it was or was not chosen
};

class VariantTable {
 public:
  // `ops` outlives the table. `labels` are those of the table before this one, whose numbers stay.
  explicit VariantTable(const OpCatalogue& ops = Catalogue(), std::vector<std::string> labels = {})
      : ops_(&ops), labels_(std::move(labels)) {
    for (const std::string& label : labels_)
      label_of_.emplace(label, static_cast<uint32_t>(label_of_.size()));
  }

  // REQUIRES: op names a row and (op, name) is new.
  void Add(Variant v);

  // The variant that runs a call of this op: the first by (tier, priority, name) that is available,
  // takes the element type and whose `supports` gives no reason. With a pin only that one;
  // FAILED_PRECONDITION lists those that can run, UNIMPLEMENTED when none can. `dtype` is that of
  // the row's first type variable (kInvalid where it has none). `asks`, where given, is told of
  // each variant before its code is called.
  using Asks = std::function<void(const Variant&)>;
  StatusOr<const Variant*> Choose(std::string_view op, DType dtype, const opw_call& call,
                                  std::string_view pin, const Asks& asks = nullptr) const;
  // The same, but among the variants of the best tier that can run the call the fastest goes first:
  // by what was measured for its class of calls, or is now. A call that is expected to take long
  // (kMeasureBelowNs) is chosen for without that.
  StatusOr<const Variant*> Choose(std::string_view op, DType dtype, const opw_call& call,
                                  std::string_view pin, Choices& choices, double expected_ns,
                                  const Asks& asks) const;

  // The same before shapes are known: the first that may run.
  StatusOr<const Variant*> FirstRunnable(std::string_view op, DType dtype,
                                         std::string_view pin) const;

  // Every variant of the op for this element type, in order of preference, without shapes. Opens
  // the libraries of those that can run.
  std::vector<Candidate> Explain(std::string_view op, DType dtype) const;

  // In order of op, then preference.
  std::span<const Variant> variants() const { return variants_; }
  std::span<const Variant> Of(std::string_view op) const;
  // "matmul@onednn", by Variant::label; of variants that were there once, too.
  const std::vector<std::string>& labels() const { return labels_; }
  // INVALID_ARGUMENT, with the nearest names, for an entry that names no variant of the table; with
  // `user_ops` only where it cannot name one of a user's op either, which may come later.
  Status CheckSteering(const Steering& steering, bool user_ops) const;
  // The variant of this label is not chosen any more, for this reason, unless it is a reference or
  // there already is one. One that is not in the table is none.
  void Withdraw(std::string_view label, const std::string& reason);
  // Changes what Choose takes into account; sorts anew.
  void Steer(const Steering& steering);

 private:
  StatusOr<const Variant*> Pick(std::string_view op, DType dtype, const opw_call* call,
                                std::string_view pin, const Asks& asks) const;

  const OpCatalogue* ops_;
  std::vector<Variant> variants_;
  std::vector<std::string> labels_;
  std::unordered_map<std::string, uint32_t> label_of_;
};

// What a user's op has for a backend that this executor does not run.
struct OtherBackend {
  std::string op, variant, backend, arch;
  std::string reason;  // why it cannot be built; empty: it was compiled for that architecture
  bool tried = false;  // else it waits for its turn
};

// What an executor can run at one time. It never changes once it is in force: a session keeps the
// one that it began with.
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
// What kernels that are compiled for the device need.
struct KernelOptions {
  std::string cache;                      // the build cache's directory; empty: the user's
  std::string worker = "/proc/self/exe";  // the program whose `--jit-worker` compiles
  std::shared_ptr<Choices>
      choices;  // where a GPU's kernels keep what they measure; null: they measure nothing
  std::shared_ptr<gpu::Code> code;  // of this device, a GPU: compiles in place of the two above;
                                    // null: the table's own does
};
// All variants built into this program for the device, which outlives the table; unavailable ones
// are in it with their reason.
VariantTable BuildVariantTable(Device& device, const KernelOptions& options = {});
// Null where the device has no kernels.
std::shared_ptr<fused::Fuser> BuildFuser(Device& device, const KernelOptions& options = {});

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_VARIANT_H_
