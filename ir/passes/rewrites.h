// Rewrites whose attributes have to be worked out, or that ask who else reads a value: tables of
// functions, named as the rules of rules.h are.
#ifndef OPWIRE_IR_PASSES_REWRITES_H_
#define OPWIRE_IR_PASSES_REWRITES_H_

#include <span>
#include <string_view>
#include <vector>

#include "ir/passes/rewriter.h"

namespace opwire {

enum class Done : uint8_t {
  kNothing,
  kReplaced,  // the node, by Rewriter::Replace
  kEdited,    // the node is to be kept with what changed in it
};

struct Rewrite {
  std::string_view text;
  std::string_view op;  // of the node
  // `attrs`: all of the row. The node has no pin.
  Done (*apply)(Rewriter& r, Node& node, const std::vector<AttrValue>& attrs);
  Accuracy accuracy = Accuracy::kExact;  // holds where so much, or more, is allowed
};

std::span<const Rewrite> ShapeRewrites();
std::span<const Rewrite> MatmulRewrites();
std::span<const Rewrite> NormRewrites();
std::span<const Rewrite> SplitRewrites();

// Each node of each function by the first of the rewrites that does something, of those that the
// context's accuracy allows.
void ApplyRewrites(PassContext& context, std::span<const Rewrite> rewrites);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_REWRITES_H_
