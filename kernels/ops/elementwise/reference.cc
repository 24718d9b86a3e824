// Every elementwise op, by interpretation of its body.
#include <array>
#include <cassert>
#include <memory>
#include <utility>
#include <vector>

#include "ir/ops/catalogue.h"
#include "ir/scalar/interpret.h"
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/families.h"

namespace opwire::ops::elementwise {
namespace {

constexpr int kMaxOperands = 3;

// State of a run in addition to the call.
struct Program {
  std::vector<ExprNode> nodes;
  bool saturate;
  int (*run)(const Program&, const opw_call*);
};

// Copies and selections move bits, so NaNs keep theirs.
bool OnlyMoves(const std::vector<ExprNode>& nodes) {
  return std::ranges::all_of(
      nodes, [](const ExprNode& n) { return n.prim == Prim::kIn || n.prim == Prim::kSelect; });
}

template <typename C, typename LoadBlock, typename StoreBlock>
int RunRanges(const Program& p, const opw_call* c, const LoadBlock& load, const StoreBlock& store) {
  const opw_tensor& result = c->results[0];
  ParallelFor(c, result.elements, kReferenceGrain, [&](int64_t begin, int64_t end) {
    Interpreter<C> interpreter(p.nodes);
    Walk<kMaxOperands + 1> walk(result.rank, result.shape);
    walk.SetBroadcast(kMaxOperands, result);
    for (const ExprNode& n : p.nodes) {
      if (n.prim == Prim::kIn) walk.SetBroadcast(n.index, Operand(c, n.index));
    }
    walk.Start(begin);
    bool divided = false;
    int64_t offsets[kMaxOperands + 1][Interpreter<C>::kBlock];
    for (int64_t at = begin; at < end;) {
      const int64_t n = std::min(end - at, Interpreter<C>::kBlock);
      for (int64_t i = 0; i < n; ++i, walk.Next()) {
        for (int t = 0; t <= kMaxOperands; ++t) offsets[t][i] = walk.offset(t);
      }
      const C* const values = interpreter.Run(
          n, [&](int operand, C* block) { load(Operand(c, operand), offsets[operand], n, block); },
          &divided);
      store(values, offsets[kMaxOperands], n);
      at += n;
    }
    if (divided) c->runtime->raise(c->runtime, OPW_FLAG_DIVIDE);
  });
  return OPW_OK;
}

// C is the computing type of the op's main type variable. A bool operand in addition to it (a
// condition) reads as 1 or 0.
template <typename C>
int RunComputed(const Program& p, const opw_call* c) {
  const auto load = [](const opw_tensor& t, const int64_t* offsets, int64_t n, C* block) {
    VisitType(TypeOf(t), [&](auto tag) {
      using T = typename decltype(tag)::Type;
      if constexpr (std::is_same_v<ComputeOf<T>, C> || std::is_same_v<T, Bool>) {
        for (int64_t i = 0; i < n; ++i) block[i] = static_cast<C>(Load<T>(t.data, offsets[i]));
      }
    });
  };
  const opw_tensor& result = c->results[0];
  const auto store = [&](const C* values, const int64_t* offsets, int64_t n) {
    VisitType(TypeOf(result), [&](auto tag) {
      using T = typename decltype(tag)::Type;
      for (int64_t i = 0; i < n; ++i)
        static_cast<T*>(result.data)[offsets[i]] = Convert<T>(values[i], p.saturate);
    });
  };
  return RunRanges<C>(p, c, load, store);
}

template <typename U>
int RunMoved(const Program& p, const opw_call* c) {
  const auto load = [](const opw_tensor& t, const int64_t* offsets, int64_t n, U* block) {
    if (DTypeBytes(TypeOf(t)) != sizeof(U)) {  // the condition
      for (int64_t i = 0; i < n; ++i) block[i] = Load<Bool>(t.data, offsets[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) block[i] = static_cast<const U*>(t.data)[offsets[i]];
    }
  };
  void* const data = c->results[0].data;
  const auto store = [data](const U* values, const int64_t* offsets, int64_t n) {
    for (int64_t i = 0; i < n; ++i) static_cast<U*>(data)[offsets[i]] = values[i];
  };
  return RunRanges<U>(p, c, load, store);
}

// Ops with a body, in the catalogue's order. opw_kernel's functions have no context, so each op has
// its own `prepare`, a template over the op's index in this list.
constexpr size_t kMaxRows = 96;
const std::vector<const OpDef*>& Rows() {
  static const auto* const rows = [] {
    auto* const list = new std::vector<const OpDef*>();
    for (const OpDef& r : Catalogue().rows()) {
      if (!r.body.Empty()) list->push_back(&r);
    }
    return list;
  }();
  return *rows;
}

template <size_t kRow>
int Prepare(const opw_call* c, void** state, int64_t*) {
  const OpDef& row = *Rows()[kRow];
  auto program = std::make_unique<Program>();
  program->nodes = row.body.nodes();
  const int saturate = row.FindAttr("saturate");
  program->saturate = saturate >= 0 && c->attrs[saturate].value.i != 0;
  // The last operand has the main type: a condition comes first.
  const DType type = TypeOf(Operand(c, static_cast<int>(row.operands.size()) - 1));
  if (OnlyMoves(program->nodes)) {
    program->run = VisitBits(DTypeBytes(type),
                             [](auto tag) { return &RunMoved<typename decltype(tag)::Type>; });
  } else {
    program->run = VisitType(
        type, [](auto tag) { return &RunComputed<ComputeOf<typename decltype(tag)::Type>>; });
  }
  *state = program.release();
  return OPW_OK;
}

void Release(void* state) { delete static_cast<Program*>(state); }

int Run(const opw_call* c) {
  const Program& p = *static_cast<const Program*>(c->state);
  return p.run(p, c);
}

template <size_t... kRow>
constexpr auto Prepares(std::index_sequence<kRow...>) {
  return std::array{&Prepare<kRow>...};
}

}  // namespace

void AddElementwiseReference(VariantTable& table) {
  static constexpr auto kPrepares = Prepares(std::make_index_sequence<kMaxRows>());
  assert(Rows().size() <= kMaxRows);
  for (size_t i = 0; i < Rows().size(); ++i) {
    AddReference(
        table, Rows()[i]->name,
        {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, nullptr, kPrepares[i], Release, Run});
  }
}

}  // namespace opwire::ops::elementwise
