// Runs steps over blocks that stay in the first cache.
#include "kernels/fused/interpreter.h"

#include <algorithm>

#include "ir/scalar/scalar.h"
#include "kernels/fused/driver.inc.h"
#include "kernels/fused/steps.h"

namespace opwire::fused {

struct Interpreter::Code {
  Steps made;
  std::vector<uint8_t> types;  // the inputs', then the outputs'
  int inputs = 0, outputs = 0;
  int64_t block = 0;  // elements
};

namespace {

constexpr int64_t kArena = int64_t{64} << 10;
constexpr int64_t kLongestBlock = 512;

uint64_t ArgumentBits(const opw_attr& a, DType type) {
  uint64_t bits = 0;
  ops::VisitType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (a.kind == OPW_ATTR_FLOAT)
      ops::Store<T>(&bits, 0, a.value.f);
    else
      ops::Store<T>(&bits, 0, a.value.i);
  });
  return bits;
}

// One call of RowFunction: where its slots lie.
class Frame {
 public:
  Frame(const Interpreter::Code& code, const Rows& rows) : code_(code), rows_(rows) {
    for (size_t i = 0; i < code.made.arguments.size(); ++i) {
      const ArgumentUse& use = code.made.arguments[i];
      arguments_[i] = ArgumentBits(rows.arguments[use.index], use.type);
    }
  }

  uint32_t RunBlock(int64_t at, int64_t n) {
    uint32_t flags = 0;
    for (const Step& step : code_.made.steps) {
      const void* from[3];
      unsigned repeated = 0;
      for (int i = 0; i < step.operands; ++i) {
        from[i] = Find(step.from[i], at);
        if (Repeated(step.from[i])) repeated |= 1u << i;
      }
      flags |= step.run(step, const_cast<void*>(Find(step.to, at)), from, n, repeated);
    }
    return flags;
  }

 private:
  bool Repeated(const Slot& s) const {
    return s.kind == Slot::kConstant || s.kind == Slot::kArgument ||
           (s.kind == Slot::kInput && (rows_.repeated >> s.index & 1) != 0);
  }
  const void* Find(const Slot& s, int64_t at) {
    switch (s.kind) {
      case Slot::kInput:
        return rows_.in[s.index] + (Repeated(s) ? 0 : at * kBytesOf[code_.types[s.index]]);
      case Slot::kConstant:
        return &code_.made.constants[s.index];
      case Slot::kArgument:
        return &arguments_[s.index];
      case Slot::kBlock:
        return arena_ + s.index * code_.block * 8;
      case Slot::kOutput:
        return rows_.out[s.index] + at * kBytesOf[code_.types[code_.inputs + s.index]];
    }
    return nullptr;
  }

  const Interpreter::Code& code_;
  const Rows& rows_;
  uint64_t arguments_[kMaxArguments];
  alignas(64) char arena_[kArena];
};

uint32_t RunRows(const Rows& rows) {
  const auto& code = *static_cast<const Interpreter::Code*>(rows.context);
  Frame frame(code, rows);
  uint32_t flags = 0;
  for (int64_t at = 0; at < rows.n; at += code.block)
    flags |= frame.RunBlock(at, std::min(code.block, rows.n - at));
  return flags;
}

const Interpreter::Code& CodeOf(const opw_call* c) {
  return *static_cast<const Interpreter::Code*>(c->context);
}
const char* Supports(const opw_call* c) {
  const Interpreter::Code& code = CodeOf(c);
  return SupportsTypes(c, code.inputs, code.outputs, code.types.data());
}
int Prepare(const opw_call* c, void** state, int64_t*) {
  return PrepareLayout(c, CodeOf(c).inputs, CodeOf(c).outputs, state);
}
int Run(const opw_call* c) { return RunLayout(c, RunRows); }

}  // namespace

Interpreter::Interpreter(const ScalarProgram& program, const Isa& isa) {
  auto code = std::make_unique<Code>();
  code->made = MakeSteps(program, isa);
  code->inputs = static_cast<int>(program.inputs().size());
  code->outputs = static_cast<int>(program.outputs().size());
  for (const DType type : program.inputs()) code->types.push_back(static_cast<uint8_t>(type));
  for (int i = 0; i < code->outputs; ++i)
    code->types.push_back(static_cast<uint8_t>(program.OutputType(i)));
  code->block = std::min(kLongestBlock, kArena / 8 / std::max(1, code->made.blocks));
  code_ = std::move(code);
}
Interpreter::~Interpreter() = default;

RowFunction Interpreter::function() const { return RunRows; }

opw_kernel Interpreter::kernel() const {
  return {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, Supports, Prepare, ReleaseLayout, Run,
          code_.get()};
}

}  // namespace opwire::fused
