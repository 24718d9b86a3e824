// How columns are shared out, and the kernel's text.
#include "kernels/fused/gpu_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernels/fused/gpu_body.h"
#include "kernels/fused/gpu_rows.h"
#include "kernels/ops/gpu/code.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::fused {
namespace {

using gpu::CodeName;
using Form = GpuColumnForm;

constexpr int64_t kStateBytes =
    128;  // that a thread reduces at a time, at the most; also what a block's shared memory allows
constexpr int64_t kBatchBytes = 128;  // of operands, on their way to a thread at a time,
constexpr int64_t kMostCode =
    1024;  // and cheap instructions that are written out for a batch, at the most
constexpr int64_t kRegisters = 65536;                                         // of a multiprocessor
constexpr int64_t kOtherRegisters = 40, kMuchCode = 48, kCodeRegisters = 24;  // as of rows
constexpr int kLeastBits =
    3;  // vectors of a row a block, as their logarithm, unless columns are fewer
constexpr int kMostBits = 5;

int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Axes, strides, and how many neighbours one access takes: `most` at the most.
void SetAxes(const GpuColumns& columns, std::span<const opw_tensor* const> tensors, int most,
             Form& form) {
  const ColumnProgram& program = columns.program();
  const opw_tensor& shape = *tensors[static_cast<size_t>(program.shape_of)];
  std::vector<int64_t> row_extents, column_extents;
  std::vector<std::vector<int64_t>> of_rows, of_columns;
  for (int a = 0; a < shape.rank; ++a)
    (program.ReducesAxis(a) ? row_extents : column_extents).push_back(shape.shape[a]);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const opw_tensor& x = *tensors[t];
    std::vector<int64_t>&rows = of_rows.emplace_back(), &across = of_columns.emplace_back();
    for (int a = 0; a < shape.rank; ++a) {
      const int own = a - (shape.rank - x.rank);
      const bool repeats = own < 0 || columns.Reduces(t) || x.shape[own] == 1;
      (program.ReducesAxis(a) ? rows : across).push_back(repeats ? 0 : x.strides[own]);
    }
  }
  gpu::MergedAxes rows = gpu::Merge(std::move(row_extents), std::move(of_rows)),
                  across = gpu::Merge(std::move(column_extents), std::move(of_columns));
  const auto last = static_cast<size_t>(across.rank - 1);
  int items = most;
  const auto parts = [&](size_t t) { return across.strides[t][last] == 1; };
  while (across.extents[last] % items != 0) items /= 2;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (columns.Reduces(t)) continue;
    if (!parts(t) && (t >= columns.operands() || across.strides[t][last] != 0)) items = 1;
    const auto odd = [&](int64_t s) { return s % items != 0; };
    while (parts(t) && (std::ranges::any_of(rows.strides[t], odd) ||
                        std::any_of(across.strides[t].begin(), across.strides[t].end() - 1, odd)))
      items /= 2;
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    form.access.push_back(columns.Reduces(t)      ? ColumnAccess::kReduce
                          : parts(t) && items > 1 ? ColumnAccess::kItems
                                                  : ColumnAccess::kOne);
    form.by_row.push_back(std::ranges::any_of(rows.strides[t], [](int64_t s) { return s != 0; }));
    across.strides[t][last] *= items;
  }
  form.items = items;
  form.reduction.columns = form.reduction.inner = across.elements;
  form.reduction.extent = form.reduction.count = rows.elements;
  form.reduction.vectors = across.elements / items;
  across.extents[last] /= items;
  form.row_rank = gpu::RankClass(rows.rank);
  form.column_rank = gpu::RankClass(across.rank);
  form.wide = std::max<int64_t>(rows.elements, form.reduction.vectors) > INT32_MAX;
  for (int64_t& extent : rows.extents)
    extent =
        std::max<int64_t>(1, extent);  // which a kernel divides by; of no rows it asks for none
  form.row_extents = std::move(rows.extents);
  form.row_strides = std::move(rows.strides);
  form.column_extents = std::move(across.extents);
  form.column_strides = std::move(across.strides);
}

// Blocks, as reduce::ReduceColumns has them: rather narrow ones, down to 128 bytes of a row, than
// chunks, whose states another launch has to join; and rather clusters than chunks.
void Share(Form& form, int multiprocessors, int cluster_blocks) {
  opw::reduce::ReduceParams& p = form.reduction;
  const int64_t wanted = int64_t{4} * multiprocessors;
  const auto blocks = [&](int bits) { return CeilDiv(p.vectors, int64_t{1} << bits); };
  const auto slices = [](int bits) { return Form::kThreads >> bits; };
  int bits = kMostBits;
  while (bits > kLeastBits && blocks(bits) < wanted) --bits;
  while (bits > 0 && p.vectors <= int64_t{1} << (bits - 1)) --bits;
  while (slices(bits) > 1 && slices(bits) > p.extent) ++bits;
  form.blocks = blocks(bits);
  p.chunk = p.extent;
  p.chunks = 1;
  const int64_t unit = int64_t{8} * slices(bits),
                chunks = std::min<int64_t>(4 * wanted / form.blocks, p.extent / unit);
  if (4 * form.blocks < 3 * wanted && chunks > 1) {
    p.chunk = CeilDiv(CeilDiv(p.extent, chunks), unit) * unit;
    p.chunks = CeilDiv(p.extent, p.chunk);
    const int64_t units = multiprocessors / cluster_blocks * cluster_blocks;
    for (int b = kMostBits; cluster_blocks > 1 && b >= kLeastBits - 1; --b) {
      if (blocks(b) * cluster_blocks < units || p.extent < int64_t{8} * cluster_blocks * slices(b))
        continue;
      bits = b;
      form.cluster = cluster_blocks;
      form.blocks = blocks(b) * cluster_blocks;
      p.chunk = CeilDiv(p.extent, cluster_blocks);
      p.chunks = 1;
      break;
    }
  }
  p.lane_bits = bits;
}

}  // namespace

StatusOr<GpuColumns> GpuColumns::Make(const ColumnProgram& program) {
  OPWIRE_RETURN_IF_ERROR(program.scalar.Check());
  GpuColumns out(program);
  OPWIRE_RETURN_IF_ERROR(out.computed_.Check());
  return out;
}

DType GpuColumns::TypeOf(size_t tensor) const {
  return tensor < operands() ? program_.scalar.inputs()[tensor]
                             : program_.scalar.OutputType(static_cast<int>(tensor - operands()));
}
std::string GpuColumns::ReductionOf(size_t tensor) const {
  return ReduceName(*program_.results[tensor - operands()], TypeOf(tensor));
}
int64_t GpuColumns::StateBytes(size_t tensor) const {
  if (program_.results[tensor - operands()] == ReduceKind::kProd && kFloats.Has(TypeOf(tensor)))
    return 8;
  return std::max<int64_t>(4, DTypeBytes(TypeOf(tensor)));
}

GpuColumnForm GpuColumns::FormOf(std::span<const opw_tensor* const> tensors, int multiprocessors,
                                 int cluster_blocks) const {
  GpuColumnForm form;
  int64_t widest = 1, states = 0, code = 1, read = 1;
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (Reduces(t))
      states += StateBytes(t);
    else
      widest = std::max(widest, DTypeBytes(TypeOf(t)));
  }
  for (const Instruction& i : computed_.instructions()) code += CostOf(i.prim);
  int most = static_cast<int>(16 / widest);
  while (most > 1 && most * states > kStateBytes) most /= 2;
  SetAxes(*this, tensors, most, form);
  for (size_t t = 0; t < operands(); ++t)
    read += form.by_row[t] ? std::max<int64_t>(
                                 4, DTypeBytes(TypeOf(t)) *
                                        (form.access[t] == ColumnAccess::kItems ? form.items : 1))
                           : 0;
  const int64_t batch = std::min(kBatchBytes / read, kMostCode / (code * form.items));
  form.batch =
      static_cast<int>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(batch, 1, 8))));
  Share(form, multiprocessors, cluster_blocks);
  const int64_t registers = kOtherRegisters + (states * form.items + read * form.batch) / 4 +
                            (code > kMuchCode ? kCodeRegisters : 0);
  form.resident =
      static_cast<int>(std::clamp<int64_t>(kRegisters / (registers * Form::kThreads), 1, 4));
  return form;
}

// A rule weighs a second launch against multiprocessors with little to do by sizes alone; what an
// element costs decides it too.
std::vector<GpuColumnForm> GpuColumns::FormsBeside(const GpuColumnForm& rule, int multiprocessors,
                                                   int cluster_blocks) const {
  std::vector<GpuColumnForm> out;
  const auto slices = [](int bits) { return int64_t{Form::kThreads} >> bits; };
  const auto add = [&](Form form) {
    const auto same = [&](const Form& o) {
      return o.batch == form.batch && o.cluster == form.cluster && o.blocks == form.blocks &&
             o.reduction.lane_bits == form.reduction.lane_bits &&
             o.reduction.chunk == form.reduction.chunk;
    };
    if (!same(rule) && std::ranges::none_of(out, same)) out.push_back(std::move(form));
  };
  const auto cluster = [&](int bits) {
    Form form = rule;
    form.cluster = cluster_blocks;
    form.reduction.lane_bits = bits;
    form.blocks = CeilDiv(form.reduction.vectors, int64_t{1} << bits) * cluster_blocks;
    form.reduction.chunk = CeilDiv(form.reduction.extent, cluster_blocks);
    form.reduction.chunks = 1;
    if (form.reduction.chunk >= slices(bits)) add(std::move(form));
  };
  // As many chunks as keep the device busy `waves` times over.
  const auto chunks = [&](int bits, int waves, int batch) {
    Form form = rule;
    form.cluster = 1;
    form.batch = batch;
    form.reduction.lane_bits = bits;
    form.blocks = CeilDiv(form.reduction.vectors, int64_t{1} << bits);
    const int64_t unit = slices(bits) * batch,
                  wanted = int64_t{waves} * form.resident * multiprocessors / form.blocks;
    form.reduction.chunk =
        CeilDiv(CeilDiv(form.reduction.extent, std::max<int64_t>(1, wanted)), unit) * unit;
    form.reduction.chunks = CeilDiv(form.reduction.extent, form.reduction.chunk);
    add(std::move(form));
  };
  if (rule.reduction.extent == 0 || rule.reduction.vectors < 1 << kLeastBits) return out;
  if (cluster_blocks > 1) cluster(kLeastBits), cluster(kLeastBits + 1);
  for (const int bits : {kLeastBits + 1, kMostBits}) {
    if (rule.reduction.vectors < int64_t{1} << bits) continue;
    chunks(bits, 2, rule.batch), chunks(bits, 4, rule.batch);
  }
  if (rule.batch > 1) chunks(kLeastBits + 1, 4, rule.batch / 2);
  return out;
}

// Names by tensor: p its address, r where a thread's columns begin in row 0, a elements that were
// read, o those that are alike in all rows, b what is stored, f what is reduced and s the states.
std::string GpuColumns::Source(const GpuColumnForm& form) const {
  GpuPart part{std::vector<bool>(computed_.instructions().size()), {}};
  for (const auto& reduction : program_.results) part.passed.push_back(reduction.has_value());
  const GpuBody body(computed_, &part);
  const bool raises = Raises(computed_);
  std::string pointers, states, begins, arrays, loads, results, declared, call, takes, stores, puts,
      given, taken, aligned = "true";
  const auto add = [&](const std::string& argument) {
    call += (call.empty() ? "" : ", ") + argument;
  };
  for (size_t t = 0; t < tensors(); ++t) {
    const std::string_view type = CodeName(TypeOf(t));
    const bool input = t < operands(), items = form.access[t] == ColumnAccess::kItems;
    if (form.access[t] == ColumnAccess::kReduce) {
      const std::string reduction = ReductionOf(t);
      states += fmt::format(
          "  {0}::State s{1}[kItems];\n#pragma unroll\n  for (int i = 0; i < kItems; ++i) s{1}[i] "
          "= {0}::Identity();\n",
          reduction, t);
      given += fmt::format(", s{}", t);
      taken += fmt::format(", {}::State (&s{})[kItems]", reduction, t);
      declared += fmt::format("          {} f{};\n",
                              CodeName(computed_.OutputType(static_cast<int>(t - operands()))), t);
      takes += fmt::format("          {0}::Take(s{1}[i], Load(f{1}), 0);\n", reduction, t);
      puts += fmt::format(
          "{}  reduction.y = p.data[{}];\n  reduce::PutColumns<{}, {}, {}, kThreads, "
          "kBlocks>(reduction, "
          "block, s{});\n",
          puts.empty() ? "" : "  __syncthreads();\n", t, reduction, form.final(), !form.final(), t);
      add(fmt::format("f{}", t));
      continue;
    }
    pointers += fmt::format("  {0}{1}* const p{2} = static_cast<{0}{1}*>(p.data[{2}]);\n",
                            input ? "const " : "", type, t);
    begins += fmt::format("    {0}{1}* const r{2} = p{2} + across[{2}];\n", input ? "const " : "",
                          type, t);
    if (items)
      aligned +=
          fmt::format(" && Aligned<{0}, kItems>(static_cast<const {0}*>(p.data[{1}]))", type, t);
    if (input) {
      const std::string whole = items ? fmt::format("Wide<{}, kItems>", type) : std::string(type);
      const auto load = [&](std::string_view at) {
        return items ? fmt::format("LoadColumns<kItems, kAligned>(r{}{})", t, at)
                     : fmt::format("r{}[{}]", t, at.empty() ? "0" : at.substr(3));
      };
      if (form.by_row[t]) {
        arrays += fmt::format("      {} a{}[kBatch];\n", whole, t);
        loads += fmt::format("        a{}[b] = {};\n", t, load(fmt::format(" + at[{}]", t)));
        add(fmt::format(fmt::runtime(items ? "a{}[b].Get(i)" : "a{}[b]"), t));
      } else {
        begins += fmt::format("    const {} o{} = {};\n", whole, t, load(""));
        add(fmt::format(fmt::runtime(items ? "o{}.Get(i)" : "o{}"), t));
      }
      continue;
    }
    const bool rounds = body.RoundsLate(t - operands());
    stores += fmt::format("        StoreColumns<{0}, kItems, kAligned>(r{1} + at[{1}], b{1});\n",
                          type, t);
    results += rounds ? fmt::format("        float b{}[kItems];\n", t)
                      : fmt::format("        Vector<{}, kItems> b{};\n", type, t);
    add(fmt::format(fmt::runtime(rounds ? "b{}[i]" : "b{}.v[i]"), t));
  }
  if (computed_.arguments() > 0) add("p.arguments");
  if (raises) add("flags"), given += ", flags", taken += ", u32& flags";
  const std::string row =
      "        const i64 row = first + b * slices;\n"
      "        if (row >= end) continue;\n";
  const std::string offsets = fmt::format(
      "        i64 at[kTensors];\n        OffsetsAt<{}>(p.rows, row, at);\n", form.wide);
  return fmt::format(
      "namespace opw::OPW_KERNEL {{\n"
      "constexpr int kTensors = {tensors}, kItems = {items}, kBatch = {batch}, kThreads = "
      "{threads}, kBlocks = {cluster};\n"
      "struct Params {{\n"
      "  void* data[kTensors];\n"
      "  Reporter reporter;\n"
      "  reduce::ReduceParams reduction;\n"
      "  u64 arguments[{arguments}];\n"
      "  Axes<kTensors, {row_rank}> rows;\n"
      "  Axes<kTensors, {column_rank}> columns;\n"
      "}};\n"
      "OPW_DEVICE void Apply({parameters}) {{\n{body}}}\n"
      "// A thread's columns, in each of its rows below `end` of a chunk.\n"
      "template <bool kAligned>\n"
      "OPW_DEVICE void Work(const Params& p, i64 vector, i64 chunk, i64 end{taken}) {{\n"
      "  const int t = static_cast<int>(threadIdx.x), slices = kThreads >> p.reduction.lane_bits;\n"
      "{pointers}"
      "  i64 across[kTensors];\n"
      "  OffsetsAt<{wide}>(p.columns, vector, across);\n"
      "{begins}"
      "#pragma unroll 1\n"
      "  for (i64 first = chunk * p.reduction.chunk + (t >> p.reduction.lane_bits); first < end; "
      "first += "
      "kBatch * slices) {{\n"
      "{arrays}{loads}"
      "#pragma unroll\n"
      "    for (int b = 0; b < kBatch; ++b) {{\n"
      "{row}{store_offsets}{results}"
      "#pragma unroll\n"
      "      for (int i = 0; i < kItems; ++i) {{\n"
      "{declared}"
      "          Apply({call});\n"
      "{takes}"
      "      }}\n"
      "{stores}"
      "    }}\n"
      "  }}\n"
      "}}\n"
      "}}\n"
      "extern \"C\" __global__ void {cluster_dims}__launch_bounds__({threads}, {resident}) "
      "OPW_KERNEL(OPW_PARAM opw::OPW_KERNEL::Params p) {{\n"
      "  using namespace opw;\n"
      "  using namespace opw::OPW_KERNEL;\n"
      "  AwaitPrevious();\n"
      "  const i64 block = blockIdx.x / kBlocks, chunk = kBlocks > 1 ? blockIdx.x % kBlocks : "
      "blockIdx.y;\n"
      "  const i64 vector = reduce::FirstVector(p.reduction, block) + "
      "(static_cast<int>(threadIdx.x) & "
      "((1 << p.reduction.lane_bits) - 1)), end = reduce::ChunkEnd(p.reduction, chunk);\n"
      "{states}{flags}"
      "  if (vector < p.reduction.vectors && p.reduction.extent > 0) {{\n"
      "    if ({aligned}) Work<true>(p, vector, chunk, end{given});\n"
      "{otherwise}"
      "  }}\n"
      "{raise}"
      "  reduce::ReduceParams reduction = p.reduction;\n"
      "{puts}"
      "}}\n",
      fmt::arg("tensors", tensors()), fmt::arg("items", form.items), fmt::arg("batch", form.batch),
      fmt::arg("threads", Form::kThreads), fmt::arg("cluster", form.cluster),
      fmt::arg("arguments", std::max(1, computed_.arguments())),
      fmt::arg("row_rank", form.row_rank), fmt::arg("column_rank", form.column_rank),
      fmt::arg("parameters", body.Parameters()), fmt::arg("body", body.Statements()),
      fmt::arg("cluster_dims",
               form.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", form.cluster) : ""),
      fmt::arg("resident", form.resident), fmt::arg("pointers", pointers), fmt::arg("given", given),
      fmt::arg("taken", taken), fmt::arg("states", states),
      fmt::arg("flags", raises ? "  u32 flags = 0;\n" : ""), fmt::arg("wide", form.wide),
      fmt::arg("begins", begins), fmt::arg("arrays", arrays),
      fmt::arg("loads", loads.empty()
                            ? ""
                            : "#pragma unroll\n      for (int b = 0; b < kBatch; ++b) {\n" + row +
                                  offsets + loads + "      }\n"),
      fmt::arg("row", row), fmt::arg("store_offsets", stores.empty() ? "" : offsets),
      fmt::arg("results", results), fmt::arg("declared", declared), fmt::arg("call", call),
      fmt::arg("takes", takes), fmt::arg("stores", stores), fmt::arg("aligned", aligned),
      fmt::arg("otherwise", aligned == "true"
                                ? std::string()
                                : "    else Work<false>(p, vector, chunk, end" + given + ");\n"),
      fmt::arg("raise", raises ? "  Raise(p.reporter, flags);\n" : ""), fmt::arg("puts", puts));
}

std::vector<std::byte> GpuColumns::Params(const GpuColumnForm& form,
                                          std::span<const opw_attr> arguments) const {
  ParamBytes out(tensors());
  out.Put(form.reduction);
  for (const uint64_t bits : ArgumentBits(program_.scalar, arguments)) out.Put(bits);
  out.PutAxes(form.row_rank, form.row_extents, form.row_strides);
  out.PutAxes(form.column_rank, form.column_extents, form.column_strides);
  return out.Take();
}

}  // namespace opwire::fused
