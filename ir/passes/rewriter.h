// Rewrites a function, node by node in order: each old node is kept, replaced by a value, or left
// out.
//
//   Rewriter r(context, function);
//   for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
//     const Node& node = r.Begin(n);                     // with operands that are new values
//     if (IsNegOfNeg(node) && r.Replace(x)) continue;
//     r.Keep();
//   }
//   r.Finish();
#ifndef OPWIRE_IR_PASSES_REWRITER_H_
#define OPWIRE_IR_PASSES_REWRITER_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/passes/pass.h"

namespace opwire {

class Rewriter {
 public:
  Rewriter(PassContext& context, uint32_t function);

  const Function& old() const { return old_; }
  DimTable& dims() const { return context_.module.dims; }
  const OpDef* FindRow(std::string_view op) const { return context_.ops.Find(op); }
  const OpDef& RowOf(uint32_t node) const {
    return *context_.typing.functions[function_].nodes[node].row;
  }
  // All attributes of the op definition, with defaults.
  const std::vector<AttrValue>& AttrsOf(uint32_t node) const {
    return context_.typing.functions[function_].nodes[node].attrs;
  }

  // Begins the next old node, which must then be kept, replaced or dropped.
  Node& Begin(uint32_t node);
  // Keeps the node, with any changes. Returns its first result. It may have more results than
  // before, after the original ones.
  ValueId Keep();
  // Replaces its only result by `v`, a new value of the same type, for later nodes. Returns false
  // without a change if that is not allowed. The rules of inout parameters (verify.h) may require a
  // value of its own there, or %w would be read after its lifetime.
  bool Replace(ValueId v);
  // The same for all its results, for any number of them. Returns false, too, if one of them
  // replaces an inout parameter.
  bool ReplaceAll(const std::vector<ValueId>& values);
  // Like Replace. Also replaces the value of operand `i` by `operand` for later nodes, a new node's
  // value of its type. REQUIRES: ReadFirst(i).
  bool ReplaceWithOperand(ValueId v, int i, ValueId operand);
  // REQUIRES: no kept node reads its results.
  void Drop();

  // Appends a new node before the current one, with its source location. Returns the value of its
  // only result. kAbsent if the catalogue does not accept it or the module would exceed its limit
  // of nodes. The removal of dead nodes handles unused appended nodes.
  ValueId Append(std::string_view op, std::vector<ValueId> operands,
                 std::vector<NamedAttr> attrs = {});
  // The same with all results; empty if the catalogue does not accept it. Absent operands at the
  // end may be left out.
  std::vector<ValueId> AppendAll(std::string_view op, std::vector<ValueId> operands,
                                 std::vector<NamedAttr> attrs = {});
  // Whether another node may be appended within the module's limits.
  bool HasRoom() const { return static_cast<int64_t>(new_.nodes.size()) - current_ < room_; }
  // The same for a complete node, with its results' types. REQUIRES: HasRoom().
  std::vector<ValueId> AppendNode(Node node);
  // Removes nodes and blobs that were appended since Begin.
  void TakeBack();
  // Like Replace. If that is not allowed, or `v` is kAbsent because no node could be appended,
  // calls TakeBack and returns false.
  bool ReplaceOrTakeBack(ValueId v);

  // The new value of an old one. REQUIRES: it is a parameter, or its node was kept or replaced.
  ValueId Renamed(ValueId old) const { return renamed_[static_cast<size_t>(old)]; }
  // The numbers of new values and of new nodes.
  size_t size() const { return types_.size(); }
  uint32_t nodes() const { return static_cast<uint32_t>(new_.nodes.size()); }
  // Of new values.
  const TensorType& TypeOf(ValueId v) const { return types_[v]; }
  // The node whose first result it is. Null for parameters and further results. Also null if the
  // node reads an inout parameter that the current node may no longer read.
  const Node* Producer(ValueId v) const;
  // How often new nodes read a new value, so far.
  uint32_t Reads(ValueId v) const { return reads_[static_cast<size_t>(v)]; }
  // Whether only the current node reads its operand `i`, and reads it once.
  bool ReadOnce(int i) const;
  // Whether it is the first reader of its operand `i`, which replaces no inout parameter.
  bool ReadFirst(int i) const;
  // All attributes of a new node.
  std::vector<AttrValue> Resolved(const Node& node) const;
  // Returns nothing if the module would exceed its limits.
  std::optional<BlobRef> AddBlob(std::string bytes);
  const std::string& Blob(BlobRef b) const { return context_.module.blobs[b.index]; }

  // Stores the new function in the module.
  void Finish();

 private:
  struct Use {
    uint32_t first = 0, last = 0;  // nodes that read it
    uint32_t count = 0;            // by nodes
    bool returned = false;
    bool replaces = false;  // an inout parameter
  };

  void Define(const Node& node);
  // Whether `v` may replace the result that is the old value `from`, starting with the current
  // node.
  bool MayBecome(size_t from, ValueId v) const;

  PassContext& context_;
  const uint32_t function_;
  const Function old_;
  Function new_;
  std::vector<uint32_t> first_result_;  // by old node
  std::vector<Use> uses_;               // by old value
  std::vector<uint32_t>
      read_until_;  // by parameter: the last old node that may read it; UINT32_MAX: any
  std::vector<ValueId> renamed_;   // old value to new
  std::vector<TensorType> types_;  // by new value
  std::vector<int32_t> producer_;  // by new value: the node that makes it, -1 for parameters
  std::vector<bool> first_;        // by new value: its node's first result
  std::vector<bool> replaces_;     // by new value: it is an inout parameter's storage
  std::vector<uint32_t> reads_;    // by new value
  uint32_t current_ = 0;
  size_t begun_ = 0, begun_blobs_ = 0;  // the numbers of new nodes and blobs at the last Begin
  int64_t room_ = 0;                    // nodes that may be added to the old ones
  int64_t blob_bytes_ = 0;
  Node node_;  // the current one
};

// Bitwise: NaN equals itself, -0 does not equal 0; blobs by their bytes.
bool SameBits(const AttrValue& a, const AttrValue& b, std::span<const std::string> blobs = {});

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_REWRITER_H_
