// Writes a function anew, node by node in order: each old node is kept, replaced by a value, or
// left out.
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
  const OpRow* FindRow(std::string_view op) const { return context_.ops.Find(op); }
  const OpRow& RowOf(uint32_t node) const {
    return *context_.typing.functions[function_].nodes[node].row;
  }
  // All attributes of the row, defaults filled in.
  const std::vector<AttrValue>& AttrsOf(uint32_t node) const {
    return context_.typing.functions[function_].nodes[node].attrs;
  }

  // The next old node, which then is kept, replaced or dropped.
  Node& Begin(uint32_t node);
  // As it stands, with whatever was changed in it; its first result. It may have more results than
  // before, behind those.
  ValueId Keep();
  // Its only result is `v` from here on, a new value of the same type. False, and nothing happened,
  // where that is not allowed: the rules of inout parameters (verify.h) want a value of its own
  // there, or %w would be read behind its end.
  bool Replace(ValueId v);
  // The same of all its results, however many; false, too, where one of them replaces an inout
  // parameter.
  bool ReplaceAll(const std::vector<ValueId>& values);
  // As Replace, and what it has as operand `i` is `operand` from here on, a new node's value of its
  // type. REQUIRES: ReadFirst(i).
  bool ReplaceWithOperand(ValueId v, int i, ValueId operand);
  // REQUIRES: nothing that is kept reads its results.
  void Drop();

  // A new node before the one that was begun, at its place in the source; the value of its only
  // result, or kAbsent where the catalogue does not take it or the module would have more nodes
  // than its limits allow. What is appended and then not used is for the removal of dead nodes.
  ValueId Append(std::string_view op, std::vector<ValueId> operands,
                 std::vector<NamedAttr> attrs = {});
  // The same with all results, empty where the catalogue does not take it. Absent operands at the
  // end may be left out.
  std::vector<ValueId> AppendAll(std::string_view op, std::vector<ValueId> operands,
                                 std::vector<NamedAttr> attrs = {});
  // Whether another node may be appended, as the module's limits say.
  bool HasRoom() const { return static_cast<int64_t>(new_.nodes.size()) - current_ < room_; }
  // The same of a node that is whole, with its results' types. REQUIRES: HasRoom().
  std::vector<ValueId> AppendNode(Node node);
  // Takes nodes and blobs back that were appended since Begin.
  void TakeBack();
  // Replace; where that is not allowed, or `v` is kAbsent as nothing could be appended, TakeBack
  // and false.
  bool ReplaceOrTakeBack(ValueId v);

  // The new value that an old one became. REQUIRES: it is a parameter, or its node was kept or
  // replaced.
  ValueId Renamed(ValueId old) const { return renamed_[static_cast<size_t>(old)]; }
  // How many new values there are, and nodes.
  size_t size() const { return types_.size(); }
  uint32_t nodes() const { return static_cast<uint32_t>(new_.nodes.size()); }
  // Of new values.
  const TensorType& TypeOf(ValueId v) const { return types_[v]; }
  // The node that makes it as its first result; null for parameters and further results, and where
  // it reads an inout parameter that the node which was begun may not read any more.
  const Node* Producer(ValueId v) const;
  // How often new nodes read a new value, so far.
  uint32_t Reads(ValueId v) const { return reads_[static_cast<size_t>(v)]; }
  // Whether the node that was begun is all that reads its operand `i`, and reads it once.
  bool ReadOnce(int i) const;
  // Whether it is the first to read its operand `i`, which replaces no inout parameter.
  bool ReadFirst(int i) const;
  // All attributes of a new node.
  std::vector<AttrValue> Resolved(const Node& node) const;
  // Nothing where the module would hold more than its limits allow.
  std::optional<BlobRef> AddBlob(std::string bytes);
  const std::string& Blob(BlobRef b) const { return context_.module.blobs[b.index]; }

  // Puts the function in its place.
  void Finish();

 private:
  struct Use {
    uint32_t first = 0, last = 0;  // nodes that read it
    uint32_t count = 0;            // by nodes
    bool returned = false;
    bool replaces = false;  // an inout parameter
  };

  void Define(const Node& node);
  // Whether the result that is the old value `from` may be `v` from the current node on.
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
  size_t begun_ = 0, begun_blobs_ = 0;  // new nodes and blobs when it began
  int64_t room_ = 0;                    // nodes that may be added to the old ones
  int64_t blob_bytes_ = 0;
  Node node_;  // the current one
};

// Bit for bit: NaN is itself, -0 is not 0; blobs by their bytes.
bool SameBits(const AttrValue& a, const AttrValue& b, std::span<const std::string> blobs = {});

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_REWRITER_H_
