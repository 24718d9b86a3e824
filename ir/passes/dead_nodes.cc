// Removes unused nodes, functions that only they called, and the bytes of their constants.
#include <algorithm>
#include <vector>

#include "ir/passes/rewriter.h"

namespace opwire {
namespace {

// By function, whether it or a function that it calls has an effect.
std::vector<bool> Acting(const PassContext& context) {
  const std::vector<Function>& functions = context.module.functions;
  std::vector<bool> acts(functions.size());
  // The depth of calls is limited, and they have no cycle.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t f = 0; f < functions.size(); ++f) {
      for (size_t n = 0; n < functions[f].nodes.size() && !acts[f]; ++n) {
        acts[f] = context.typing.functions[f].nodes[n].row->effects != Effects::kPure ||
                  std::ranges::any_of(functions[f].nodes[n].calls,
                                      [&](uint32_t callee) { return acts[callee]; });
        changed |= acts[f];
      }
    }
  }
  return acts;
}

std::vector<bool> Needed(const PassContext& context, const std::vector<bool>& acts,
                         uint32_t function) {
  const Function& f = context.module.functions[function];
  const ValueTypes values(f);
  std::vector<bool> read(values.size()), needed(f.nodes.size());
  for (const Result& r : f.results) read[r.value] = true;
  for (size_t n = f.nodes.size(); n-- > 0;) {
    const Node& node = f.nodes[n];
    bool stays = context.typing.functions[function].nodes[n].row->effects != Effects::kPure ||
                 std::ranges::any_of(node.calls, [&](uint32_t callee) { return acts[callee]; });
    for (size_t r = 0; !stays && r < node.results.size(); ++r)
      stays = read[values.first_result[n] + r];
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

std::vector<bool> CalledFunctions(const Module& m) {
  std::vector<bool> called(m.functions.size());
  for (const Function& f : m.functions) {
    for (const Node& node : f.nodes) {
      for (const uint32_t callee : node.calls) called[callee] = true;
    }
  }
  return called;
}

int64_t RemoveUncalled(Module& m, std::vector<bool> called_before) {
  const size_t all = m.functions.size();
  while (true) {
    const std::vector<bool> called = CalledFunctions(m);
    std::vector<uint32_t> place(m.functions.size());
    std::vector<Function> kept;
    std::vector<bool> kept_called;
    for (size_t f = 0; f < m.functions.size(); ++f) {
      place[f] = static_cast<uint32_t>(kept.size());
      if (called_before[f] && !called[f]) continue;
      kept.push_back(std::move(m.functions[f]));
      kept_called.push_back(called_before[f]);
    }
    const bool gone = kept.size() < m.functions.size();
    m.functions = std::move(kept);
    called_before = std::move(kept_called);
    if (!gone) return static_cast<int64_t>(all - m.functions.size());
    for (Function& f : m.functions) {
      for (Node& node : f.nodes) {
        for (uint32_t& callee : node.calls) callee = place[callee];
      }
    }
  }
}

void RemoveDeadNodes(PassContext& context) {
  const std::vector<bool> acts = Acting(context), called = CalledFunctions(context.module);
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) {
    const std::vector<bool> needed = Needed(context, acts, f);
    Rewriter r(context, f);
    for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
      r.Begin(n);
      if (needed[n])
        r.Keep();
      else
        r.Drop();
    }
    r.Finish();
  }
  context.changes += RemoveUncalled(context.module, called);
  RemoveDeadBlobs(context);
}

}  // namespace opwire
