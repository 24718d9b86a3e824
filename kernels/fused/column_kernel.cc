// Parts of rows, blocks of columns and their buffers.
#include "kernels/fused/column_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/fused/driver.inc.h"
#include "kernels/fused/reduce_kernel.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::fused {

struct ColumnKernel::Code {
  const ColumnProgram program;
  Functions functions;
  std::vector<uint8_t> types;   // of the operands, then the results
  std::vector<size_t> reduced;  // by output: the type that its reduction computes in
  const size_t operands;

  Code(const ColumnProgram& p, ScalarProgram computed, std::function<void()> worth_it)
      : program(p),
        functions({std::move(computed)}, std::move(worth_it)),
        operands(p.scalar.inputs().size()) {
    for (const DType type : p.scalar.inputs()) types.push_back(static_cast<uint8_t>(type));
    for (size_t o = 0; o < p.results.size(); ++o) {
      types.push_back(static_cast<uint8_t>(p.scalar.OutputType(static_cast<int>(o))));
      reduced.push_back(
          static_cast<size_t>(functions.programs()[0].OutputType(static_cast<int>(o))));
    }
  }
};

namespace {

using Code = ColumnKernel::Code;

constexpr int64_t kTileElements = 8192;
constexpr int64_t kBlock = 4096;   // columns of a range
constexpr int64_t kMany = 8;       // rows of a tile that are reduced by themselves,
constexpr int64_t kTogether = 16;  // and of tiles of fewer that are reduced together
constexpr int64_t kJoined = 128;   // rows of fewer columns are computed together
constexpr int64_t kPartElements = int64_t{128}
                                  << 10;     // of a range at least, where there are so many rows,
constexpr int64_t kLong = int64_t{4} << 20;  // and at the most, which takes milliseconds,
constexpr int64_t kEnough = 256;             // unless this many ranges keep all threads busy

// What `prepare` makes of a call's sizes.
struct Plan {
  Layout l;  // the reduced axes, then those of the columns
  int64_t rows = 1, columns = 1;
  int64_t line = 1;  // columns along the last axis
  int64_t span = 1;  // of which blocks are cut: a line where that is long, else all columns
  bool joined = false;
  uint32_t direct = 0;  // by tensor: a run of a tile's elements lies next to each other, or is one
  int64_t block = 1, blocks = 1;            // columns
  int64_t tile = 1;                         // rows that are computed before they are reduced
  int64_t part = 1, parts = 1;              // rows
  std::array<int64_t, kMaxTensors> packed;  // in the arena: a tensor's elements; -1: none
  int64_t above = 1;  // rows in front of a tile's in the arena: what all above came to, and 2: the
                      // last few of them
  std::array<int64_t, kMaxOutputs>
      reducing;  // the same: those rows, and below them a tile's elements,
  std::array<int64_t, kMaxOutputs> partials;  // and in the workspace what parts came to
};

const Code& CodeOf(const opw_call* c) { return *static_cast<const Code*>(c->context); }
const opw_tensor& ShapeOf(const Code& code, const opw_call* c) {
  const auto t = static_cast<size_t>(code.program.shape_of);
  return t < code.operands ? c->operands[t] : c->results[t - code.operands];
}
bool Reduces(const Code& code, size_t tensor) {
  return tensor >= code.operands && code.program.results[tensor - code.operands];
}
int64_t ReducedBytes(const Code& code, size_t output) {
  return DTypeBytes(static_cast<DType>(code.reduced[output]));
}

const char* Supports(const opw_call* c) {
  const Code& code = CodeOf(c);
  if (const char* why =
          SupportsTypes(c, static_cast<int>(code.operands),
                        static_cast<int>(code.types.size() - code.operands), code.types.data()))
    return why;
  return code.program.WhyNoExtremes(ShapeOf(code, c));
}

// Axes that are merged on either side only; those of the columns are one at least.
void SetColumnAxes(const Code& code, const opw_call* c, const opw_tensor& shape, Plan& plan) {
  Layout& l = plan.l;
  bool of_columns = false;
  const auto set = [&](int a, bool reduced) {
    const int64_t extent = shape.shape[a];
    (reduced ? plan.rows : plan.columns) *= extent;
    const bool last_chance = a == shape.rank - 1 && !of_columns;
    if (extent == 1 && !last_chance) return;
    int64_t strides[kMaxTensors];
    for (int t = 0; t < l.tensors; ++t) {
      const opw_tensor& x = TensorOf(l, c, t);
      const int axis = a - (shape.rank - x.rank);
      const bool repeats = Reduces(code, static_cast<size_t>(t)) || axis < 0 ||
                           (x.shape[axis] == 1 && (extent != 1 || t < l.inputs));
      strides[t] = repeats ? 0 : x.strides[axis] * l.bytes[t];
    }
    if (reduced || of_columns) {
      AddAxis(l, extent, strides);
      return;
    }
    of_columns = true;
    l.shape[l.rank++] = extent;
    for (int t = 0; t < l.tensors; ++t) l.strides[t][l.rank - 1] = strides[t];
  };
  for (const bool reduced : {true, false}) {
    for (int a = 0; a < shape.rank; ++a) {
      if (code.program.ReducesAxis(a) == reduced) set(a, reduced);
    }
  }
}

// Bytes of the arena that a tile takes, and where its buffers lie.
int64_t Place(const Code& code, Plan& plan) {
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t here = at;
    at += Padded(bytes);
    return here;
  };
  plan.above = plan.tile < kMany ? 2 : 1;
  for (size_t t = 0; t < code.types.size(); ++t) {
    const bool reductions = Reduces(code, t);
    plan.packed[t] = reductions || (plan.direct >> t & 1) != 0
                         ? -1
                         : take(plan.tile * plan.block * plan.l.bytes[t]);
    if (reductions)
      plan.reducing[t - code.operands] =
          take((plan.above + plan.tile) * plan.block * ReducedBytes(code, t - code.operands));
  }
  return at;
}

int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const Code& code = CodeOf(c);
  auto plan = std::make_unique<Plan>();
  Layout& l = plan->l;
  l = {};
  l.inputs = static_cast<int32_t>(code.operands);
  l.tensors = static_cast<int32_t>(code.types.size());
  for (int t = 0; t < l.tensors; ++t) l.bytes[t] = kBytesOf[code.types[static_cast<size_t>(t)]];
  SetColumnAxes(code, c, ShapeOf(code, c), *plan);
  l.elements = plan->rows * plan->columns;
  plan->joined = plan->columns < kJoined;
  const int last = l.rank - 1;
  plan->line = std::max<int64_t>(1, l.shape[last]);
  const bool in_line = plan->line == plan->columns || plan->line >= kJoined;
  plan->span = in_line ? plan->line : std::max<int64_t>(1, plan->columns);
  for (int t = 0; t < l.tensors; ++t) {
    const bool input = t < l.inputs;
    bool constant = input, dense = true;
    int64_t below = 1;
    for (int a = last; a >= 0; below *= l.shape[a--]) {
      constant = constant && l.strides[t][a] == 0;
      dense = dense && (l.strides[t][a] == below * l.bytes[t] || l.shape[a] == 1);
    }
    const bool repeated = plan->joined ? constant : in_line && input && l.strides[t][last] == 0;
    if (repeated) l.repeated |= 1u << t;
    if (repeated || (plan->joined ? dense : in_line && l.strides[t][last] == l.bytes[t]))
      plan->direct |= 1u << t;
  }

  const int64_t columns = std::max<int64_t>(1, plan->columns),
                rows = std::max<int64_t>(1, plan->rows);
  plan->block = std::min(plan->span, kBlock);
  plan->tile = std::clamp<int64_t>(kTileElements / plan->block, 1, rows);
  while (Place(code, *plan) > kArenaBytes) (plan->tile > 1 ? plan->tile : plan->block) /= 2;
  plan->blocks = ((plan->span - 1) / plan->block + 1) * std::max<int64_t>(1, columns / plan->span);
  const int64_t least = std::max<int64_t>(1, kPartElements / plan->block),
                most = std::max(least, kLong / plan->block);
  plan->part =
      std::clamp((rows - 1) / std::max<int64_t>(1, kEnough / plan->blocks) + 1, least, most);
  plan->part = ((plan->part - 1) / plan->tile + 1) * plan->tile;
  plan->parts = (rows - 1) / plan->part + 1;
  int64_t at = 0;
  for (size_t o = 0; o < code.reduced.size() && plan->parts > 1; ++o) {
    plan->partials[o] = at;
    if (code.program.results[o]) at += Padded(plan->parts * columns * ReducedBytes(code, o));
  }
  *workspace_bytes = at;
  *state = plan.release();
  return OPW_OK;
}

// One run of a kernel.
class ColumnRun {
 public:
  explicit ColumnRun(const opw_call* c)
      : code_(CodeOf(c)),
        plan_(*static_cast<const Plan*>(c->state)),
        l_(plan_.l),
        c_(c),
        now_(code_.functions.Now()[0]),
        job_{l_, c, nullptr, 0, 0} {}

  void Run() const {
    if (plan_.columns == 0) return;
    ops::ParallelFor(
        c_, plan_.parts * plan_.blocks,
        std::max<int64_t>(
            1, kPartElements / 8 /
                   (std::max<int64_t>(1, std::min(plan_.part, plan_.rows)) * plan_.block)),
        [&](int64_t begin, int64_t end) {
          alignas(64) char arena[kArenaBytes];
          for (int64_t u = begin; u < end; ++u)
            RunPart(arena, u / plan_.blocks, ColumnOf(u % plan_.blocks));
        });
    if (plan_.parts > 1) {
      ops::ParallelFor(c_, plan_.blocks,
                       std::max<int64_t>(1, kPartElements / 8 / (plan_.parts * plan_.block)),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t b = begin; b < end; ++b) {
                           const int64_t column = ColumnOf(b);
                           EachReduce([&](size_t o) {
                             Finish(o, column, Partial(o, 0, column), plan_.parts, plan_.columns);
                           });
                         }
                       });
    }
    code_.functions.Worked(l_.elements);
  }

 private:
  // Where a block begins.
  int64_t ColumnOf(int64_t block) const {
    const int64_t of_span = (plan_.span - 1) / plan_.block + 1;
    return block / of_span * plan_.span + block % of_span * plan_.block;
  }
  int64_t Width(int64_t column) const {
    return std::min(plan_.block, plan_.span - column % plan_.span);
  }
  template <typename F>
  void EachReduce(const F& visit) const {
    for (size_t o = 0; o < code_.reduced.size(); ++o) {
      if (code_.program.results[o]) visit(o);
    }
  }
  const ops::reduce::ReduceLoops& LoopsOf(size_t output) const {
    return fused::LoopsOf(*code_.program.results[output]);
  }
  char* Partial(size_t output, int64_t part, int64_t column) const {
    return static_cast<char*>(c_->workspace) + plan_.partials[output] +
           (part * plan_.columns + column) * ReducedBytes(code_, output);
  }
  // Rows of partial results of a block, `stride` apart, to the result.
  void Finish(size_t output, int64_t column, const char* from, int64_t rows, int64_t stride) const {
    const opw_tensor& y = c_->results[output];
    LoopsOf(output).finish_columns[y.dtype](
        static_cast<char*>(y.data) + column * l_.bytes[code_.operands + output], from, rows,
        Width(column), stride, static_cast<double>(plan_.rows));
  }
  // Takes the rows at `from` in, those of a tile behind what came of the ones above.
  void Reduce(size_t output, char* to, int64_t rows, int64_t width) const {
    LoopsOf(output).partial_columns[code_.reduced[output]](to, to, rows, width, width, 1);
  }

  // Takes a tile in. One by one its rows would each be rounded by what all those above came to:
  // many are reduced by themselves first, few with those of the tiles before them, as far as
  // `joins` says.
  void ReduceTile(size_t output, char* to, int64_t rows, int64_t width, bool joins) const {
    char* const below = to + width * ReducedBytes(code_, output);
    if (plan_.above == 1) {
      if (rows >= kMany) Reduce(output, below, std::exchange(rows, 1), width);
      return Reduce(output, to, 1 + rows, width);
    }
    Reduce(output, below, 1 + rows, width);
    if (!joins) return;
    Reduce(output, to, 2, width);
    Reduce(output, below, 0, width);
  }

  void RunPart(char* arena, int64_t part, int64_t column) const {
    const int64_t width = Width(column), first = part * plan_.part,
                  end = std::min(plan_.rows, first + plan_.part);
    const int64_t together = std::max<int64_t>(1, kTogether / plan_.tile);  // tiles
    EachReduce([&](size_t o) {
      for (int64_t r = 0; r < plan_.above; ++r)
        Reduce(o, arena + plan_.reducing[o] + r * width * ReducedBytes(code_, o), 0, width);
    });
    for (int64_t row = first; row < end; row += plan_.tile) {
      const int64_t rows = std::min(plan_.tile, end - row);
      RunTile(arena, row, rows, column, width);
      const bool joins = row + rows == end || (row - first) / plan_.tile % together == together - 1;
      EachReduce([&](size_t o) { ReduceTile(o, arena + plan_.reducing[o], rows, width, joins); });
    }
    EachReduce([&](size_t o) {
      const char* const own = arena + plan_.reducing[o];
      if (plan_.parts == 1)
        Finish(o, column, own, 1, width);
      else
        std::memcpy(Partial(o, part, column), own,
                    static_cast<size_t>(width * ReducedBytes(code_, o)));
    });
  }

  // The elements of some rows and columns.
  void RunTile(char* arena, int64_t row, int64_t rows, int64_t column, int64_t width) const {
    const auto buffered = [&](int t) { return plan_.packed[static_cast<size_t>(t)] >= 0; };
    for (int t = 0; t < l_.inputs; ++t) {
      if (buffered(t)) Move(t, row, rows, column, width, arena);
    }
    const int last = l_.rank - 1;
    const int64_t runs = plan_.joined ? 1 : rows, n = plan_.joined ? rows * width : width;
    Rows call{now_.context, c_->attrs, n, l_.repeated, false, l_.far && width == plan_.columns,
              {},           {}};
    // What is direct lies in one line of each row.
    const int64_t lines = plan_.columns / plan_.line, at_line = column / plan_.line,
                  in_line = column % plan_.line;
    std::optional<RowWalk> walk(std::in_place, l_, row * lines + at_line);
    for (int64_t r = 0; r < runs; ++r) {
      for (int t = 0; t < l_.tensors; ++t) {
        const auto o = static_cast<size_t>(t - l_.inputs);
        char* at;
        if (Reduces(code_, static_cast<size_t>(t)))
          at = arena + plan_.reducing[o] + (plan_.above + r) * width * ReducedBytes(code_, o);
        else if (buffered(t))
          at = arena + plan_.packed[static_cast<size_t>(t)] + r * width * l_.bytes[t];
        else
          at = job_.Data(t) + walk->offsets[t] + in_line * l_.strides[t][last];
        job_.Point(call, t, at);
      }
      job_.Raise(now_.run(call));
      if (lines == 1)
        walk->Next();
      else
        walk.emplace(l_, (row + r + 1) * lines + at_line);
    }
    for (int t = l_.inputs; t < l_.tensors; ++t) {
      if (buffered(t)) Move(t, row, rows, column, width, arena);
    }
  }
  // Between a tensor and its buffer.
  void Move(int t, int64_t row, int64_t rows, int64_t column, int64_t width, char* arena) const {
    char* const block = arena + plan_.packed[static_cast<size_t>(t)];
    const auto move = [&](int64_t r, int64_t n) {
      const int64_t at = (row + r) * plan_.columns + column;
      job_.Transfer(t, RowWalk(l_, at / plan_.line), at % plan_.line, n,
                    block + r * width * l_.bytes[t]);
    };
    if (width == plan_.columns) return move(0, rows * width);
    for (int64_t r = 0; r < rows; ++r) move(r, width);
  }

  const Code& code_;
  const Plan& plan_;
  const Layout& l_;
  const opw_call* const c_;
  const Functions::One now_;
  const Job job_;
};

}  // namespace

StatusOr<std::unique_ptr<ColumnKernel>> ColumnKernel::Make(const ColumnProgram& program,
                                                           std::function<void()> worth_it) {
  OPWIRE_RETURN_IF_ERROR(program.scalar.Check());
  ScalarProgram computed = program.Computed();
  OPWIRE_RETURN_IF_ERROR(computed.Check());
  for (size_t o = 0; o < program.results.size(); ++o) {
    const DType type = program.scalar.OutputType(static_cast<int>(o));
    if (program.results[o] &&
        LoopsOf(*program.results[o]).finish_columns[static_cast<size_t>(type)] == nullptr)
      return InvalidArgument("output {}: no such reduction of {}", o, DTypeName(type));
  }
  return std::make_unique<ColumnKernel>(
      std::make_unique<Code>(program, std::move(computed), std::move(worth_it)));
}

ColumnKernel::ColumnKernel(std::unique_ptr<Code> code) : code_(std::move(code)) {}
ColumnKernel::~ColumnKernel() = default;

Functions& ColumnKernel::functions() { return code_->functions; }

opw_kernel ColumnKernel::kernel() const {
  return {OPW_ABI_VERSION,
          OPW_DETERMINISTIC | OPW_INPLACE,
          Supports,
          Prepare,
          [](void* state) { delete static_cast<Plan*>(state); },
          [](const opw_call* c) -> int {
            ColumnRun(c).Run();
            return OPW_OK;
          },
          code_.get()};
}

}  // namespace opwire::fused
