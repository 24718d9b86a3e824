// How rows are shared out: axes and accesses, then threads by what a row takes of registers and of
// instructions.
#include <algorithm>
#include <bit>

#include "kernels/fused/gpu_rows.h"
#include "kernels/ops/gpu/row_launch.h"

namespace opwire::fused {
namespace {

constexpr int64_t kMostElements = 64;  // that a thread has of a row,
constexpr int64_t kMostOnes = 16;  // those in accesses of one, unless the row is too long for that,
constexpr int64_t kHeldBytes = 128;  // what it holds of them,
constexpr int64_t kMostCode =
    2048;  // and cheap instructions that are written out for them, at the most
constexpr int64_t kBatchBytes = 64;  // of operands, on their way to a thread at a time
constexpr int kStreamedThreads = 512;
constexpr int64_t kLeastSteps = 4;   // of a block in a part of a row
constexpr int kRegisters = 65536;    // of a multiprocessor
constexpr int kThreads = 2048;       // the same
constexpr int kOtherRegisters = 48;  // beside what is held,
constexpr int kOnesRegisters = 24;   // in accesses of one,
constexpr int kCodeRegisters = 24;   // and where there is much code
constexpr int kSomeCode = 16,
              kMuchCode = 48;  // cheap instructions: from here on there is some, and much

bool IsOfElements(RowAccess access) {
  return access == RowAccess::kItems || access == RowAccess::kStrided;
}

// Axes, strides and accesses.
void SetAxes(const GpuRows& rows, std::span<const opw_tensor* const> tensors, GpuRowForm& form) {
  const opw_tensor& shape = *tensors[static_cast<size_t>(rows.program().shape_of())];
  const int prefix = shape.rank - 1;
  form.length = shape.shape[prefix];
  std::vector<std::vector<int64_t>> strides;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const opw_tensor& x = *tensors[t];
    const int shift = (rows.PlaceOf(t) == RowProgram::kShort ? prefix : shape.rank) - x.rank;
    std::vector<int64_t>& own = strides.emplace_back(static_cast<size_t>(prefix), 0);
    for (int a = std::max(0, shift); a < prefix; ++a)
      own[static_cast<size_t>(a)] = x.shape[a - shift] == 1 ? 0 : x.strides[a - shift];
    // Rows of one element have it where it is.
    const bool repeats =
        x.rank == 0 || (t < rows.operands() && form.length != 1 && x.shape[x.rank - 1] == 1);
    const bool of_row = rows.PlaceOf(t) != RowProgram::kElements || repeats;
    form.along.push_back(of_row ? 0 : form.length == 1 ? 1 : x.strides[x.rank - 1]);
    const bool constant =
        of_row && t < rows.operands() && std::ranges::all_of(own, [](int64_t s) { return s == 0; });
    form.access.push_back(constant                 ? RowAccess::kConstant
                          : of_row                 ? RowAccess::kOfRow
                          : form.along.back() == 1 ? RowAccess::kItems
                                                   : RowAccess::kStrided);
  }
  gpu::MergedAxes axes = gpu::Merge({shape.shape, shape.shape + prefix}, std::move(strides));
  form.rows = axes.elements;
  form.rank = gpu::RankClass(axes.rank);
  form.wide = form.rows > INT32_MAX;
  form.extents = std::move(axes.extents);
  form.strides = std::move(axes.strides);
}

// Bytes that an element takes of the operands that are held or read by a phase, at the most.
int64_t ReadBytes(const GpuRows& rows, const GpuRowForm& form, const RowPhases& phases) {
  int64_t most = 1;
  for (const RowPhases::Step& step : phases.steps) {
    int64_t bytes = 0;
    for (size_t t = 0; t < rows.operands(); ++t)
      bytes +=
          IsOfElements(form.access[t]) && GpuRows::Reads(step, t) ? DTypeBytes(rows.TypeOf(t)) : 0;
    most = std::max(most, bytes);
  }
  return most;
}
// Bytes of registers that an element takes between one phase and the next, at the most.
int64_t HeldBytes(const GpuRows& rows, const GpuRowForm& form, const RowPhases& phases) {
  const auto touches = [](const RowPhases::Step& step, int32_t kept) {
    const auto is = [&](const RowSlot& s) { return s.kind == RowSlot::kKept && s.index == kept; };
    return std::ranges::any_of(step.phase.in, is) || std::ranges::any_of(step.phase.out, is);
  };
  int64_t most = 0;
  for (size_t after = 1; after < phases.steps.size(); ++after) {
    int64_t bytes = 0;
    const auto spans = [&](const auto& uses) {
      return std::any_of(phases.steps.begin(), phases.steps.begin() + static_cast<int64_t>(after),
                         uses) &&
             std::any_of(phases.steps.begin() + static_cast<int64_t>(after), phases.steps.end(),
                         uses);
    };
    for (size_t t = 0; t < rows.operands(); ++t) {
      if (IsOfElements(form.access[t]) &&
          spans([&](const RowPhases::Step& s) { return GpuRows::Reads(s, t); }))
        bytes += std::max<int64_t>(DTypeBytes(rows.TypeOf(t)), form.items == 1 ? 4 : 1);
    }
    for (size_t k = 0; k < phases.kept.size(); ++k) {
      if (!phases.kept[k].to_reduce_only &&
          spans([&](const RowPhases::Step& s) { return touches(s, static_cast<int32_t>(k)); }))
        bytes += std::max<int64_t>(DTypeBytes(phases.kept[k].type), 4);
    }
    most = std::max(most, bytes);
  }
  return most;
}

int CodeOf(const RowPhases& phases) {
  int cost = 1;
  for (const ScalarProgram& p : phases.programs) {
    for (const Instruction& i : p.instructions()) cost += CostOf(i.prim);
  }
  return cost;
}

// Neighbours that one access takes: a power of two up to `most`, of which rows are whole numbers,
// and between which rows begin.
int ItemsOf(const GpuRowForm& form, int most) {
  int items = most;
  while (form.length % items != 0) items /= 2;
  for (size_t t = 0; t < form.access.size(); ++t) {
    if (form.access[t] != RowAccess::kItems) continue;
    while (std::ranges::any_of(form.strides[t], [&](int64_t s) { return s % items != 0; }))
      items /= 2;
  }
  return items;
}

int64_t FloorToPower(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}

// Threads that hold their rows, `limit` elements each at the most, where these are not too long for
// that. `vector`: elements of 16 bytes of the widest tensor.
bool Hold(const GpuRows& rows, int64_t limit, int vector, GpuRowForm& form) {
  const RowPhases& phases = rows.PhasesOf(form);
  const int64_t bytes = HeldBytes(rows, form, phases), code = CodeOf(phases);
  const int64_t most =
      std::min({limit, kHeldBytes / std::max<int64_t>(1, bytes), kMostCode / code});
  // Threads take vectors' worths, whatever they access at a time.
  const int worth = static_cast<int>(std::min<int64_t>(vector, FloorToPower(most)));
  const int64_t worths = (std::max<int64_t>(1, form.length) + worth - 1) / worth;
  const gpu::OnChipForm held =
      gpu::OnChipFormOf(worths, 16, /*heavy=*/false,
                        static_cast<int>(std::min<int64_t>(8, FloorToPower(most / worth))));
  if (held.vectors == 0) return false;
  form.items = std::min(form.items, worth);
  form.lanes = held.lanes;
  form.threads = held.threads;
  form.steps = held.vectors * worth / form.items;
  form.blocks = gpu::BlocksOf(held, form.rows);
  form.batch = static_cast<int>(std::clamp<int64_t>(
      FloorToPower(kBatchBytes / 2 / (ReadBytes(rows, form, phases) * form.items)), 1, form.steps));
  while (form.steps % form.batch != 0) form.batch /= 2;
  const int64_t elements = int64_t{held.vectors} * worth;
  const int64_t registers =
      (kOtherRegisters + bytes * elements / 4 + (form.items == 1 ? kOnesRegisters : 0) +
       (code > kMuchCode ? kCodeRegisters : 0)) *
      form.threads;
  form.resident = static_cast<int>(
      std::clamp<int64_t>((kRegisters + registers / 2) / registers, 1, kThreads / form.threads));
  return true;
}

// Parts of rows for `wanted` blocks, where rows are few: no shorter than kLeastSteps of a block's,
// so that a launch is worth it.
void CutRows(GpuRowForm& form, int64_t wanted) {
  const int64_t step = int64_t{form.threads} * form.items * form.steps;
  const int64_t parts = std::min({wanted / std::max<int64_t>(1, form.rows),
                                  form.length / (kLeastSteps * step), int64_t{form.threads}});
  if (parts < 2) return;
  form.cut = true;
  form.part_length = (form.length + parts * step - 1) / (parts * step) * step;
  form.parts = (form.length + form.part_length - 1) / form.part_length;
}

}  // namespace

GpuRowForm GpuRows::FormOf(std::span<const opw_tensor* const> tensors, int multiprocessors,
                           bool aligned) const {
  GpuRowForm form;
  SetAxes(*this, tensors, form);
  int64_t widest = 1;
  for (size_t t = 0; t < tensors.size(); ++t)
    widest = std::max(widest, IsOfElements(form.access[t]) ? DTypeBytes(types_[t]) : 1);
  const int vector = static_cast<int>(16 / widest);
  form.items = aligned ? ItemsOf(form, vector) : 1;
  for (const bool keeps : {true, false}) {
    form.keeps = keeps;
    if (form.items == 1 && Hold(*this, kMostOnes, vector, form)) return form;
    if (Hold(*this, kMostElements, vector, form)) return form;
  }
  form.streamed = true;
  const int64_t code = CodeOf(anew_);
  form.steps = form.batch = static_cast<int>(
      std::clamp<int64_t>(FloorToPower(std::min((code > kSomeCode ? kBatchBytes / 2 : kBatchBytes) /
                                                    ReadBytes(*this, form, anew_),
                                                kMostCode / code) /
                                       form.items),
                          1, 8));
  form.threads = kStreamedThreads;
  form.resident = widest == 8 || code > kMuchCode ? 1 : 2;
  form.blocks = std::min<int64_t>(form.rows, int64_t{multiprocessors} * form.resident);
  if (aligned) CutRows(form, int64_t{multiprocessors} * form.resident);
  return form;
}

}  // namespace opwire::fused
