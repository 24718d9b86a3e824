// Of nodes that do the same to the same values only the first stays.
#include <algorithm>
#include <bit>
#include <unordered_map>

#include "ir/passes/rewriter.h"

namespace opwire {
namespace {

bool Same(const Node& a, const Node& b, const std::vector<std::string>& blobs) {
  const auto same_attr = [&](const NamedAttr& x, const NamedAttr& y) {
    return x.name == y.name && SameBits(x.value, y.value, blobs);
  };
  return a.op == b.op && a.version == b.version && a.operands == b.operands &&
         a.segments == b.segments && a.pin == b.pin && a.results == b.results &&
         std::ranges::equal(a.attrs, b.attrs, same_attr);
}

size_t HashOf(const Node& node, const std::vector<std::string>& blobs) {
  size_t h = std::hash<std::string>()(node.op);
  for (ValueId v : node.operands) h = h * 1000003 + static_cast<size_t>(v) + 1;
  for (const TensorType& t : node.results) {
    for (Dim d : t.shape) h = h * 1000003 + d.index;
  }
  // Constants differ in nothing else.
  for (const NamedAttr& a : node.attrs) {
    const auto mix = [&](double value) {
      h = h * 1000003 + std::hash<uint64_t>()(std::bit_cast<uint64_t>(value));
    };
    if (const auto* value = std::get_if<double>(&a.value)) mix(*value);
    if (const auto* values = std::get_if<Doubles>(&a.value)) std::ranges::for_each(*values, mix);
    if (const auto* blob = std::get_if<BlobRef>(&a.value))
      h = h * 1000003 + std::hash<std::string>()(blobs[blob->index]);
  }
  return h;
}

}  // namespace

void ShareEqualNodes(PassContext& context) {
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) {
    Rewriter r(context, f);
    std::unordered_multimap<size_t, ValueId> made;  // results of nodes of one
    for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
      const Node& node = r.Begin(n);
      const bool shareable =
          r.RowOf(n).effects == Effects::kPure && node.calls.empty() && node.results.size() == 1;
      if (!shareable) {
        r.Keep();
        continue;
      }
      const size_t hash = HashOf(node, context.module.blobs);
      bool replaced = false;
      for (auto [it, end] = made.equal_range(hash); it != end && !replaced; ++it) {
        const Node* const same = r.Producer(it->second);
        replaced =
            same != nullptr && Same(*same, node, context.module.blobs) && r.Replace(it->second);
      }
      if (!replaced) made.emplace(hash, r.Keep());
    }
    r.Finish();
  }
}

}  // namespace opwire
