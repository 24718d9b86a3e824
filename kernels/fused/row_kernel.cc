// Tiles, parts and their buffers.
#include "kernels/fused/row_kernel.h"

#include <algorithm>
#include <array>

#include "kernels/fused/driver.inc.h"
#include "kernels/fused/reduce_kernel.h"
#include "kernels/fused/row_phases.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::fused {

struct RowKernel::Code {
  const RowPhases phases;
  Functions functions;
  std::vector<RowProgram::Place> places;  // of the operands, then the results
  std::vector<uint8_t> types;             // the same
  size_t operands = 0;
  int shape_of = 0;
  bool has_extremes;  // rows of no elements have none

  Code(const RowProgram& program, RowPhases made, std::function<void()> worth_it)
      : phases(std::move(made)),
        functions(phases.programs, std::move(worth_it)),
        places(program.operand_places()),
        operands(places.size()),
        shape_of(program.shape_of()),
        has_extremes(program.HasExtremes()) {
    places.insert(places.end(), program.result_places().begin(), program.result_places().end());
    for (const DType type : program.OperandTypes()) types.push_back(static_cast<uint8_t>(type));
    for (size_t i = operands; i < places.size(); ++i)
      types.push_back(
          static_cast<uint8_t>(program.scalar().OutputType(static_cast<int>(i - operands))));
  }
};

namespace {

using Code = RowKernel::Code;

constexpr int64_t kTileElements = 16384;
constexpr int64_t kTileRows = 1024;
constexpr int64_t kJoinedRow = 128;                   // shorter rows run through a phase together
constexpr int64_t kPartElements = 4096;               // of a row that is reduced in parts
constexpr int64_t kFewRows = 16;                      // these leave threads idle
constexpr int64_t kBatchElements = int64_t{1} << 18;  // of rows in parts, at a time,
constexpr int64_t kRowBatchBytes = int64_t{2} << 20;  // and of their values; or one row
constexpr size_t kMaxSlots = 64;                      // kept values, and values of the row

// What `prepare` makes of a call's sizes.
struct Plan {
  Layout l;  // the last axis is the row's, also of one element
  int64_t rows = 1, length = 1;
  uint32_t direct = 0;          // by tensor: elements of a row lie next to each other, or are one
  uint32_t contiguous = 0;      // by tensor: they lie next to each other
  bool joined = false;          // rows of a tile run through a phase together
  int64_t tile_rows = 0;        // of a tile; 0: rows are worked through in parts
  int64_t part = 0, parts = 1;  // elements of a part
  int64_t batch = 0;            // rows in parts, at a time
  // In the arena of a tile or a part, by tensor, kept value and value of the row; -1: none.
  std::array<int64_t, kMaxTensors> packed;
  std::array<int64_t, kMaxSlots> kept, values, expanded;
  // In the workspace.
  std::array<int64_t, kMaxSlots> kept_at, values_at;
  int64_t partials_at = 0;
};

// Sizes and places of what a tile of so many rows, or a part of a row, takes of the arena.
struct ArenaLayout {
  const RowPhases& phases;
  const Layout& l;
  std::span<const RowProgram::Place> places;
  Plan& plan;

  bool Packed(size_t t) const {
    return (plan.direct >> t & 1) == 0 || (Reduced(t) && (plan.contiguous >> t & 1) == 0);
  }
  bool Reduced(size_t t) const {
    return std::ranges::any_of(phases.steps, [&](const RowPhases::Step& step) {
      return std::ranges::any_of(step.reductions, [&](const RowReduction& f) {
        return f.from.kind == RowSlot::kTensor && f.from.index == static_cast<int32_t>(t);
      });
    });
  }
  bool OfRow(size_t t) const { return places[t] != RowProgram::kElements; }
  // Bytes of the arena.
  int64_t Place(int64_t elements, int64_t rows) {
    int64_t at = 0;
    const auto take = [&](int64_t count, int64_t bytes) {
      const int64_t here = at;
      at += Padded(count * bytes);
      return here;
    };
    const bool whole = plan.tile_rows > 0;
    for (size_t t = 0; t < places.size(); ++t)
      plan.packed[t] = Packed(t) ? take(OfRow(t) ? rows : elements, l.bytes[t]) : -1;
    for (size_t k = 0; k < phases.kept.size(); ++k)
      plan.kept[k] = whole || phases.kept[k].to_reduce_only
                         ? take(elements, DTypeBytes(phases.kept[k].type))
                         : -1;
    for (size_t v = 0; v < phases.values.size(); ++v) {
      plan.values[v] = whole ? take(rows, DTypeBytes(phases.values[v])) : -1;
      plan.expanded[v] = plan.joined ? take(elements, DTypeBytes(phases.values[v])) : -1;
    }
    return at;
  }
};

void SetRowAxes(Layout& l, const opw_call* c, const opw_tensor& shape,
                std::span<const RowProgram::Place> places) {
  const int prefix = shape.rank - 1;
  for (int a = 0; a < prefix; ++a) {
    if (shape.shape[a] == 1) continue;
    int64_t strides[kMaxTensors];
    for (int t = 0; t < l.tensors; ++t) {
      const opw_tensor& x = TensorOf(l, c, t);
      const int axis =
          a -
          ((places[static_cast<size_t>(t)] == RowProgram::kShort ? prefix : shape.rank) - x.rank);
      strides[t] = axis < 0 || x.shape[axis] == 1 ? 0 : x.strides[axis] * l.bytes[t];
    }
    AddAxis(l, shape.shape[a], strides);
  }
  l.shape[l.rank++] = shape.shape[prefix];
  for (int t = 0; t < l.tensors; ++t) {
    const opw_tensor& x = TensorOf(l, c, t);
    const bool of_row = places[static_cast<size_t>(t)] != RowProgram::kElements;
    const bool repeats = of_row || x.rank == 0 || (t < l.inputs && x.shape[x.rank - 1] == 1);
    l.strides[t][l.rank - 1] = repeats ? 0 : x.strides[x.rank - 1] * l.bytes[t];
  }
}

const Code& CodeOf(const opw_call* c) { return *static_cast<const Code*>(c->context); }

const char* Supports(const opw_call* c) {
  const Code& code = CodeOf(c);
  if (const char* why =
          SupportsTypes(c, static_cast<int>(code.operands),
                        static_cast<int>(code.places.size() - code.operands), code.types.data()))
    return why;
  const opw_tensor& shape = static_cast<size_t>(code.shape_of) < code.operands
                                ? c->operands[code.shape_of]
                                : c->results[static_cast<size_t>(code.shape_of) - code.operands];
  return code.has_extremes ? WhyNoExtremes(shape) : nullptr;
}

int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const Code& code = CodeOf(c);
  auto plan = std::make_unique<Plan>();
  Layout& l = plan->l;
  l = {};
  l.inputs = static_cast<int32_t>(code.operands);
  l.tensors = static_cast<int32_t>(code.places.size());
  for (int t = 0; t < l.tensors; ++t) l.bytes[t] = kBytesOf[code.types[static_cast<size_t>(t)]];
  SetRowAxes(l, c, TensorOf(l, c, code.shape_of), code.places);
  const int last = l.rank - 1;
  plan->length = l.shape[last];
  for (int a = 0; a < last; ++a) plan->rows *= l.shape[a];
  l.elements = plan->rows * plan->length;
  plan->joined = plan->length < kJoinedRow;
  for (int t = 0; t < l.tensors; ++t) {
    const uint32_t bit = 1u << t;
    if (code.places[static_cast<size_t>(t)] != RowProgram::kElements) {
      if (last == 0 || (last == 1 && l.strides[t][0] == l.bytes[t])) plan->direct |= bit;
      continue;
    }
    bool constant = t < l.inputs, dense = true;
    int64_t below = 1;
    for (int a = last; a >= 0; below *= l.shape[a--]) {
      constant = constant && l.strides[t][a] == 0;
      dense = dense && (l.strides[t][a] == below * l.bytes[t] || l.shape[a] == 1);
    }
    const bool repeated = t < l.inputs && l.strides[t][last] == 0;
    if (plan->joined ? constant : repeated) l.repeated |= bit;
    if (plan->joined ? dense : l.strides[t][last] == l.bytes[t]) plan->contiguous |= bit;
    if ((plan->contiguous & bit) != 0 || (plan->joined ? constant : repeated)) plan->direct |= bit;
  }

  ArenaLayout arena{code.phases, l, code.places, *plan};
  const auto fits = [&](int64_t elements, int64_t rows) {
    return elements <= kTileElements && arena.Place(elements, rows) <= kArenaBytes;
  };
  const bool few = plan->rows < kFewRows && l.elements > 4 * kTileElements;
  plan->tile_rows =
      std::min({kTileRows, std::max<int64_t>(plan->rows, 1),
                std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, plan->length))});
  while (plan->tile_rows > 1 && !fits(plan->tile_rows * plan->length, plan->tile_rows))
    plan->tile_rows = plan->tile_rows * 3 / 4;
  if (!few && fits(plan->tile_rows * plan->length, plan->tile_rows)) {
    *state = plan.release();
    return OPW_OK;
  }
  plan->tile_rows = 0;
  int64_t kept_bytes = 1;  // an element
  for (const RowPhases::Kept& kept : code.phases.kept)
    kept_bytes += kept.to_reduce_only ? 0 : DTypeBytes(kept.type);
  plan->batch =
      std::clamp<int64_t>(std::min(kBatchElements, kRowBatchBytes / kept_bytes) / plan->length, 1,
                          std::min<int64_t>(plan->rows, 256));
  plan->part = kPartElements;
  while (plan->part > 64 && arena.Place(plan->part, plan->batch) > kArenaBytes) plan->part -= 64;
  plan->parts = (plan->length - 1) / plan->part + 1;
  size_t reductions = 0;
  for (const RowPhases::Step& step : code.phases.steps)
    reductions = std::max(reductions, step.reductions.size());
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t here = at;
    at += Padded(bytes);
    return here;
  };
  for (size_t k = 0; k < code.phases.kept.size(); ++k)
    plan->kept_at[k] =
        code.phases.kept[k].to_reduce_only
            ? -1
            : take(plan->batch * plan->length * DTypeBytes(code.phases.kept[k].type));
  for (size_t v = 0; v < code.phases.values.size(); ++v)
    plan->values_at[v] = take(plan->batch * DTypeBytes(code.phases.values[v]));
  plan->partials_at = take(static_cast<int64_t>(reductions) * plan->batch * plan->parts * 8);
  *workspace_bytes = at;
  *state = plan.release();
  return OPW_OK;
}

// One run of a kernel.
class RowRun {
 public:
  explicit RowRun(const opw_call* c)
      : code_(CodeOf(c)),
        plan_(*static_cast<const Plan*>(c->state)),
        l_(plan_.l),
        c_(c),
        now_(code_.functions.Now()),
        job_{l_, c, nullptr, 0, 0} {}

  void Run() const {
    if (plan_.rows == 0) return;
    if (plan_.tile_rows == 0) return RunParts();
    const int64_t tiles = (plan_.rows - 1) / plan_.tile_rows + 1;
    ops::ParallelFor(c_, tiles,
                     std::max<int64_t>(1, kTileElements / 2 /
                                              std::max<int64_t>(1, plan_.tile_rows * plan_.length)),
                     [&](int64_t begin, int64_t end) {
                       alignas(64) char arena[kArenaBytes];
                       for (int64_t i = begin; i < end; ++i) RunTile(arena, i * plan_.tile_rows);
                     });
    code_.functions.Worked(l_.elements);
  }

 private:
  // Some rows, or a part of one, and where their buffers lie.
  struct Tile {
    int64_t row, rows, column, columns;
    char* arena;
    char* kept[kMaxSlots];    // their first element
    char* values[kMaxSlots];  // of the tile's first row
    uint32_t packed = 0;      // by tensor: its buffer is filled
    uint64_t expanded = 0;    // by value of the row
  };

  const RowPhases& phases() const { return code_.phases; }
  int64_t KeptBytes(int32_t k) const {
    return DTypeBytes(phases().kept[static_cast<size_t>(k)].type);
  }
  int64_t ValueBytes(int32_t v) const {
    return DTypeBytes(phases().values[static_cast<size_t>(v)]);
  }
  bool Direct(int32_t t) const { return (plan_.direct >> t & 1) != 0; }
  bool Contiguous(int32_t t) const { return (plan_.contiguous >> t & 1) != 0; }

  void RunTile(char* arena, int64_t row) const {
    Tile tile{row, std::min(plan_.tile_rows, plan_.rows - row), 0, plan_.length, arena, {}, {}};
    for (size_t k = 0; k < phases().kept.size(); ++k) tile.kept[k] = arena + plan_.kept[k];
    for (size_t v = 0; v < phases().values.size(); ++v) tile.values[v] = arena + plan_.values[v];
    for (const RowPhases::Step& step : phases().steps) {
      if (step.phase.of_row) {
        RunOfRow(step.phase, tile);
        continue;
      }
      ReduceRows(step, RowSlot::kTensor, tile);  // before results lie there
      RunElements(step.phase, tile);
      ReduceRows(step, RowSlot::kKept, tile);
    }
  }
  void ReduceRows(const RowPhases::Step& step, RowSlot::Kind from, Tile& tile) const {
    for (const RowReduction& f : step.reductions) {
      if (f.from.kind != from) continue;
      const auto reduction =
          LoopsOf(f.kind).rows[static_cast<size_t>(phases().values[static_cast<size_t>(f.value)])];
      RowWalk walk(l_, tile.row);
      // Rows of an operand may lie apart.
      const int64_t at_once =
          from == RowSlot::kTensor && Contiguous(f.from.index) && !plan_.joined ? 1 : tile.rows;
      for (int64_t r = 0; r < tile.rows; r += at_once, walk.Next())
        reduction(tile.values[f.value] + r * ValueBytes(f.value), ReducedAt(f, tile, walk), at_once,
                  plan_.length, static_cast<double>(plan_.length));
    }
  }

  // What is reduced, of the row that the walk is at.
  const char* ReducedAt(const RowReduction& f, Tile& tile, const RowWalk& walk) const {
    if (f.from.kind == RowSlot::kKept) return tile.kept[f.from.index];
    const int32_t t = f.from.index;
    if (Contiguous(t))
      return job_.Data(t) + walk.offsets[t] + tile.column * l_.strides[t][l_.rank - 1];
    Pack(t, tile);
    return tile.arena + plan_.packed[static_cast<size_t>(t)];
  }
  // Fills an operand's buffer, once a tile.
  void Pack(int32_t t, Tile& tile) const {
    if ((tile.packed >> t & 1) != 0) return;
    job_.Transfer(t, RowWalk(l_, tile.row), tile.column, tile.rows * tile.columns,
                  tile.arena + plan_.packed[static_cast<size_t>(t)]);
    tile.packed |= 1u << t;
  }

  // All parts of a phase, then the next, of some rows at a time.
  void RunParts() const {
    char* const workspace = static_cast<char*>(c_->workspace);
    for (int64_t row = 0; row < plan_.rows; row += plan_.batch) {
      const int64_t rows = std::min(plan_.batch, plan_.rows - row);
      for (const RowPhases::Step& step : phases().steps) {
        if (step.phase.of_row) {
          alignas(64) char arena[kArenaBytes];
          Tile tile{row, rows, 0, plan_.length, arena, {}, {}};
          for (size_t v = 0; v < phases().values.size(); ++v)
            tile.values[v] = workspace + plan_.values_at[v];
          RunOfRow(step.phase, tile);
          continue;
        }
        ops::ParallelFor(c_, rows * plan_.parts, 1, [&](int64_t begin, int64_t end) {
          alignas(64) char arena[kArenaBytes];
          for (int64_t i = begin; i < end; ++i)
            RunPart(step, arena, row, i / plan_.parts, i % plan_.parts);
        });
        for (size_t f = 0; f < step.reductions.size(); ++f) {
          const RowReduction& reduction = step.reductions[f];
          const auto type =
              static_cast<size_t>(phases().values[static_cast<size_t>(reduction.value)]);
          LoopsOf(reduction.kind)
              .finish[type](workspace + plan_.values_at[static_cast<size_t>(reduction.value)],
                            Partial(f, 0, 0, type), rows, plan_.parts,
                            static_cast<double>(plan_.length));
        }
      }
    }
    code_.functions.Worked(l_.elements);
  }
  char* Partial(size_t reduction, int64_t row, int64_t part, size_t type) const {
    const int64_t bytes = LoopsOf(ReduceKind::kMax)
                              .partial_bytes[type];  // of the computing type, whatever is reduced
    return static_cast<char*>(c_->workspace) + plan_.partials_at +
           (static_cast<int64_t>(reduction) * plan_.batch * plan_.parts) * 8 +
           (row * plan_.parts + part) * bytes;
  }
  void RunPart(const RowPhases::Step& step, char* arena, int64_t first_row, int64_t row,
               int64_t part) const {
    char* const workspace = static_cast<char*>(c_->workspace);
    const int64_t column = part * plan_.part;
    Tile tile{first_row + row, 1,  column, std::min(plan_.part, plan_.length - column),
              arena,           {}, {}};
    for (size_t k = 0; k < phases().kept.size(); ++k) {
      const RowPhases::Kept& kept = phases().kept[k];
      tile.kept[k] = kept.to_reduce_only
                         ? arena + plan_.kept[k]
                         : workspace + plan_.kept_at[k] +
                               (row * plan_.length + column) * DTypeBytes(kept.type);
    }
    for (size_t v = 0; v < phases().values.size(); ++v)
      tile.values[v] = workspace + plan_.values_at[v] + row * DTypeBytes(phases().values[v]);
    ReducePart(step, RowSlot::kTensor, tile, row, part);
    RunElements(step.phase, tile);
    ReducePart(step, RowSlot::kKept, tile, row, part);
  }
  void ReducePart(const RowPhases::Step& step, RowSlot::Kind from, Tile& tile, int64_t row,
                  int64_t part) const {
    for (size_t f = 0; f < step.reductions.size(); ++f) {
      if (step.reductions[f].from.kind != from) continue;
      const auto type =
          static_cast<size_t>(phases().values[static_cast<size_t>(step.reductions[f].value)]);
      LoopsOf(step.reductions[f].kind)
          .partial[type](Partial(f, row, part, type),
                         ReducedAt(step.reductions[f], tile, RowWalk(l_, tile.row)), 1,
                         tile.columns, 1);
    }
  }

  Rows RowsOf(const RowPhase& phase, int64_t n) const {
    return {
        now_[static_cast<size_t>(phase.program)].context, c_->attrs, n, 0, false, false, {}, {}};
  }
  void Call(const RowPhase& phase, const Rows& rows) const {
    job_.Raise(now_[static_cast<size_t>(phase.program)].run(rows));
  }

  // One element of each of the tile's rows.
  void RunOfRow(const RowPhase& phase, Tile& tile) const {
    Rows rows = RowsOf(phase, tile.rows);
    const auto tensor = [&](int32_t t) {
      return Direct(t) ? job_.Data(t) + tile.row * l_.bytes[t]
                       : tile.arena + plan_.packed[static_cast<size_t>(t)];
    };
    for (size_t i = 0; i < phase.in.size(); ++i) {
      const RowSlot slot = phase.in[i];
      rows.in[i] = slot.kind == RowSlot::kTensor ? tensor(slot.index) : tile.values[slot.index];
      if (slot.kind == RowSlot::kTensor && !Direct(slot.index)) MoveOfRow(slot.index, tile);
    }
    for (size_t o = 0; o < phase.out.size(); ++o)
      rows.out[o] = phase.out[o].kind == RowSlot::kTensor ? tensor(phase.out[o].index)
                                                          : tile.values[phase.out[o].index];
    Call(phase, rows);
    for (const RowSlot& slot : phase.out) {
      if (slot.kind == RowSlot::kTensor && !Direct(slot.index)) MoveOfRow(slot.index, tile);
    }
  }
  // Between a tensor of rows and its buffer.
  void MoveOfRow(int32_t t, const Tile& tile) const {
    const int64_t bytes = l_.bytes[t];
    char* buffer = tile.arena + plan_.packed[static_cast<size_t>(t)];
    RowWalk walk(l_, tile.row);
    for (int64_t r = 0; r < tile.rows; ++r, buffer += bytes, walk.Next()) {
      char* const there = job_.Data(t) + walk.offsets[t];
      if (t < l_.inputs)
        __builtin_memcpy(buffer, there, static_cast<size_t>(bytes));
      else
        __builtin_memcpy(there, buffer, static_cast<size_t>(bytes));
    }
  }

  void RunElements(const RowPhase& phase, Tile& tile) const {
    const int64_t elements = tile.rows * tile.columns;
    if (elements == 0 || phase.program < 0) return;
    for (const RowSlot& slot : phase.in) {
      if (slot.kind == RowSlot::kTensor && !Direct(slot.index)) Pack(slot.index, tile);
      if (plan_.joined && slot.kind == RowSlot::kValue && (tile.expanded >> slot.index & 1) == 0) {
        Expand(slot.index, tile);
        tile.expanded |= uint64_t{1} << slot.index;
      }
    }
    const int last = l_.rank - 1;
    const bool streams = Streams(phase);
    const int64_t runs = plan_.joined ? 1 : tile.rows;
    Rows rows = RowsOf(phase, plan_.joined ? elements : tile.columns);
    RowWalk walk(l_, tile.row);
    for (int64_t r = 0; r < runs; ++r) {
      const auto tensor = [&](int32_t t) {
        return Direct(t) ? job_.Data(t) + walk.offsets[t] + tile.column * l_.strides[t][last]
                         : tile.arena + plan_.packed[static_cast<size_t>(t)] +
                               r * tile.columns * l_.bytes[t];
      };
      const auto kept = [&](int32_t k) { return tile.kept[k] + r * tile.columns * KeptBytes(k); };
      rows.repeated = 0;
      for (size_t i = 0; i < phase.in.size(); ++i) {
        const RowSlot slot = phase.in[i];
        if (slot.kind == RowSlot::kTensor) {
          rows.in[i] = tensor(slot.index);
          rows.repeated |= (l_.repeated >> slot.index & 1) << i;
        } else if (slot.kind == RowSlot::kKept) {
          rows.in[i] = kept(slot.index);
        } else if (plan_.joined) {
          rows.in[i] = tile.arena + plan_.expanded[static_cast<size_t>(slot.index)];
        } else {
          rows.in[i] = tile.values[slot.index] + r * ValueBytes(slot.index);
          rows.repeated |= 1u << i;
        }
      }
      rows.stream = streams;
      rows.far = l_.far;
      for (size_t o = 0; o < phase.out.size(); ++o) {
        rows.out[o] = phase.out[o].kind == RowSlot::kTensor ? tensor(phase.out[o].index)
                                                            : kept(phase.out[o].index);
        rows.stream = rows.stream && (reinterpret_cast<uintptr_t>(rows.out[o]) & 63) == 0;
      }
      Call(phase, rows);
      walk.Next();
    }
    for (const RowSlot& slot : phase.out) {
      if (slot.kind == RowSlot::kTensor && !Direct(slot.index))
        job_.Transfer(slot.index, RowWalk(l_, tile.row), tile.column, elements,
                      tile.arena + plan_.packed[static_cast<size_t>(slot.index)]);
    }
  }
  // Whether a phase writes nothing but large tensors, which no operand shares.
  bool Streams(const RowPhase& phase) const {
    return std::ranges::all_of(phase.out, [&](const RowSlot& slot) {
      if (slot.kind != RowSlot::kTensor || !Direct(slot.index) ||
          l_.elements * l_.bytes[slot.index] < kStreamBytes)
        return false;
      for (int t = 0; t < l_.inputs; ++t) {
        if (job_.Data(t) == job_.Data(slot.index)) return false;
      }
      return true;
    });
  }

  // A value of each row for each of its elements, by whole blocks: what a row's last one writes too
  // far the next row's first, and at the end the padding, takes.
  void Expand(int32_t v, const Tile& tile) const {
    char* const to = tile.arena + plan_.expanded[static_cast<size_t>(v)];
    switch (ValueBytes(v)) {
      case 8:
        return ExpandAs<uint64_t>(to, tile.values[v], tile);
      case 4:
        return ExpandAs<uint32_t>(to, tile.values[v], tile);
      case 2:
        return ExpandAs<uint16_t>(to, tile.values[v], tile);
      default:
        return ExpandAs<uint8_t>(to, tile.values[v], tile);
    }
  }
  template <typename U>
  static void ExpandAs(char* to, const char* from, const Tile& tile) {
    typedef U Block __attribute__((vector_size(16)));
    for (int64_t r = 0; r < tile.rows; ++r, to += tile.columns * static_cast<int64_t>(sizeof(U))) {
      const Block block = reinterpret_cast<const U*>(from)[r] - Block{};
      for (int64_t i = 0; i < tile.columns; i += static_cast<int64_t>(sizeof(Block) / sizeof(U)))
        __builtin_memcpy(to + i * static_cast<int64_t>(sizeof(U)), &block, sizeof(Block));
    }
  }

  const Code& code_;
  const Plan& plan_;
  const Layout& l_;
  const opw_call* const c_;
  const std::span<const Functions::One> now_;
  const Job job_;
};

}  // namespace

bool RowKernel::Available() { return Isa::Detect().avx2; }

StatusOr<std::unique_ptr<RowKernel>> RowKernel::Make(const RowProgram& program,
                                                     std::function<void()> worth_it) {
  if (program.operands().size() > kMaxInputs)
    return ResourceExhausted("{} inputs, at most {}", program.operands().size(), kMaxInputs);
  OPWIRE_ASSIGN_OR_RETURN(RowPhases phases, SplitRows(program));
  if (phases.kept.size() > kMaxSlots || phases.values.size() > kMaxSlots) {
    return ResourceExhausted("{} kept values and {} of the row, at most {}", phases.kept.size(),
                             phases.values.size(), kMaxSlots);
  }
  return std::make_unique<RowKernel>(
      std::make_unique<Code>(program, std::move(phases), std::move(worth_it)));
}

RowKernel::RowKernel(std::unique_ptr<Code> code) : code_(std::move(code)) {}
RowKernel::~RowKernel() = default;

Functions& RowKernel::functions() { return code_->functions; }

opw_kernel RowKernel::kernel() const {
  return {OPW_ABI_VERSION,
          OPW_DETERMINISTIC | OPW_INPLACE,
          Supports,
          Prepare,
          [](void* state) { delete static_cast<Plan*>(state); },
          [](const opw_call* c) -> int {
            RowRun(c).Run();
            return OPW_OK;
          },
          code_.get()};
}

}  // namespace opwire::fused
