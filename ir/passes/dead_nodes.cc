// What nobody reads goes, and the bytes that it held.
#include <vector>

#include "ir/passes/rewriter.h"

namespace opwire {
namespace {

std::vector<bool> Needed(const PassContext& context, uint32_t function) {
  const Function& f = context.module.functions[function];
  const ValueTypes values(f);
  std::vector<bool> read(values.size()), needed(f.nodes.size());
  for (const Result& r : f.results) read[r.value] = true;
  for (size_t n = f.nodes.size(); n-- > 0;) {
    const Node& node = f.nodes[n];
    bool stays = context.typing.functions[function].nodes[n].row->effects != Effects::kPure || !node.calls.empty();
    for (size_t r = 0; !stays && r < node.results.size(); ++r) stays = read[values.first_result[n] + r];
    if (!stays) continue;
    needed[n] = true;
    for (ValueId v : node.operands) {
      if (v != kAbsent) read[v] = true;
    }
  }
  return needed;
}

// In the order in which nodes refer to them.
void RemoveDeadBlobs(PassContext& context) {
  Module& m = context.module;
  std::vector<uint32_t> place(m.blobs.size(), UINT32_MAX);
  std::vector<std::string> kept;
  for (Function& f : m.functions) {
    for (Node& node : f.nodes) {
      for (NamedAttr& a : node.attrs) {
        auto* const blob = std::get_if<BlobRef>(&a.value);
        if (blob == nullptr) continue;
        if (place[blob->index] == UINT32_MAX) {
          place[blob->index] = static_cast<uint32_t>(kept.size());
          kept.push_back(std::move(m.blobs[blob->index]));
        }
        blob->index = place[blob->index];
      }
    }
  }
  context.changes += static_cast<int64_t>(m.blobs.size() - kept.size());
  m.blobs = std::move(kept);
}

}  // namespace

void RemoveDeadNodes(PassContext& context) {
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) {
    const std::vector<bool> needed = Needed(context, f);
    Rewriter r(context, f);
    for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
      r.Begin(n);
      if (needed[n]) r.Keep();
      else r.Drop();
    }
    r.Finish();
  }
  RemoveDeadBlobs(context);
}

}  // namespace opwire
