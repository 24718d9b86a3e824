// An expression over the closed list of primitives, evaluated for a block of elements in one
// computing type: the meaning of every elementwise op.
//
//   Interpreter<float> in(body.nodes());
//   const float* result = in.Run(n, load, &divided);   // load(operand, float* block) fills a block
#ifndef OPWIRE_IR_SCALAR_INTERPRET_H_
#define OPWIRE_IR_SCALAR_INTERPRET_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "ir/ops/expr.h"
#include "ir/scalar/primitives.h"

namespace opwire::ops {

template <typename C>
class Interpreter {
 public:
  static constexpr int64_t kBlock = 64;

  explicit Interpreter(const std::vector<ExprNode>& nodes)
      : nodes_(nodes), stack_(new C[Depth(nodes) * kBlock]) {}

  // The root's values for n <= kBlock elements. `divided` is set where an integer was divided by
  // zero.
  template <typename LoadOperand>
  const C* Run(int64_t n, const LoadOperand& load, bool* divided) {
    C* top = stack_.get();  // one past the blocks in use
    for (const ExprNode& node : nodes_) {
      const int arity = InfoOf(node.prim).arity;
      C* const a = top - arity * kBlock;
      const C* const b = a + kBlock;
      const C* const c = b + kBlock;
      if (node.prim == Prim::kIn) {
        load(node.index, a);
      } else if (node.prim == Prim::kConst) {
        std::fill_n(a, n, static_cast<C>(node.value));
      } else if (arity == 1) {
        for (int64_t i = 0; i < n; ++i) a[i] = Unary(node.prim, a[i]);
      } else if (arity == 2) {
        for (int64_t i = 0; i < n; ++i) a[i] = Binary(node.prim, a[i], b[i], divided);
      } else {
        for (int64_t i = 0; i < n; ++i) a[i] = a[i] != C{0} ? b[i] : c[i];
      }
      top = a + kBlock;
    }
    return stack_.get();
  }

 private:
  static int64_t Depth(const std::vector<ExprNode>& nodes) {
    int64_t depth = 0, most = 0;
    for (const ExprNode& n : nodes) most = std::max(most, depth += 1 - InfoOf(n.prim).arity);
    return most;
  }

  const std::vector<ExprNode>& nodes_;
  std::unique_ptr<C[]> stack_;
};

}  // namespace opwire::ops

#endif  // OPWIRE_IR_SCALAR_INTERPRET_H_
