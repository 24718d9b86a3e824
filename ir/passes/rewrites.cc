// Going over nodes with a table of rewrites.
#include "ir/passes/rewrites.h"

namespace opwire {
namespace {

Done ApplyAny(Rewriter& r, uint32_t n, Node& node, std::span<const Rewrite> rewrites,
              Accuracy allowed) {
  for (const Rewrite& rewrite : rewrites) {
    if (rewrite.op != node.op || rewrite.accuracy > allowed) continue;
    if (const Done done = rewrite.apply(r, node, r.AttrsOf(n)); done != Done::kNothing) return done;
  }
  return Done::kNothing;
}

}  // namespace

void ApplyRewrites(PassContext& context, std::span<const Rewrite> rewrites) {
  for (uint32_t f = 0; f < context.module.functions.size(); ++f) {
    Rewriter r(context, f);
    for (uint32_t n = 0; n < r.old().nodes.size(); ++n) {
      Node& node = r.Begin(n);
      const Done done =
          node.pin.empty() ? ApplyAny(r, n, node, rewrites, context.accuracy) : Done::kNothing;
      if (done == Done::kReplaced) continue;
      context.changes += done == Done::kEdited;
      r.Keep();
    }
    r.Finish();
  }
}

}  // namespace opwire
