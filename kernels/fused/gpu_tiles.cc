// Which tensors a tile holds, and the kernel's three parts: fetching them, computing, and putting
// them back.
#include "kernels/fused/gpu_tiles.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/fused/gpu_body.h"
#include "kernels/ops/gpu/code.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::fused {
namespace {

using Reach = GpuTileForm::Reach;

constexpr int64_t kNarrow = 8;             // below it planes are no tiles
constexpr int64_t kManyShared = 36 << 10;  // bytes that leave room for several blocks
constexpr int64_t kMostShared = 48 << 10;

// Of a tile's rows: columns lie in banks of their own.
int64_t PadOf(int64_t bytes) { return bytes < 4 ? 4 / bytes : 1; }

}  // namespace

std::optional<GpuTileForm> TileFormOf(const ScalarProgram& program,
                                      std::span<const opw_tensor* const> tensors) {
  const size_t inputs = program.inputs().size();
  std::vector<const opw_tensor*> order = {tensors[inputs]};  // the outputs' shape is walked
  order.insert(order.end(), tensors.begin(), tensors.end());
  gpu::MergedAxes axes = gpu::Merge(order);
  axes.strides.erase(axes.strides.begin());
  const auto last = static_cast<size_t>(axes.rank - 1);
  const auto bytes_of = [&](size_t t) { return DTypeBytes(TypeOfTensor(program, t)); };
  const auto lies_along = [&](size_t t) {
    return axes.strides[t][last] == 1 || (t < inputs && axes.strides[t][last] == 0);
  };
  size_t across = last;
  int64_t most = 0;
  for (size_t a = 0; a < last; ++a) {
    int64_t bytes = 0;  // an element, of those that lie along it and not along the last
    for (size_t t = 0; t < tensors.size(); ++t)
      bytes += axes.strides[t][a] == 1 && !lies_along(t) ? bytes_of(t) : 0;
    if (bytes > most) most = bytes, across = a;
  }
  if (across == last || axes.extents[across] < kNarrow || axes.extents[last] < kNarrow)
    return std::nullopt;

  GpuTileForm form{.rows = axes.extents[across], .columns = axes.extents[last]};
  for (size_t t = 0; t < tensors.size(); ++t) {
    std::vector<int64_t>& s = axes.strides[t];
    const bool constant = t < inputs && std::ranges::all_of(s, [](int64_t x) { return x == 0; });
    form.reach.push_back(constant        ? Reach::kConstant
                         : s[last] == 1  ? Reach::kAlong
                         : lies_along(t) ? Reach::kShared
                                         : Reach::kTurned);
    form.across.push_back(s[across]);
    form.along.push_back(s[last]);
    s.erase(s.begin() + static_cast<int64_t>(last));
    s.erase(s.begin() + static_cast<int64_t>(across));
  }
  axes.extents.erase(axes.extents.begin() + static_cast<int64_t>(last));
  axes.extents.erase(axes.extents.begin() + static_cast<int64_t>(across));
  const auto shared_bytes = [&](int64_t side) {
    int64_t bytes = 0;
    for (size_t t = 0; t < tensors.size(); ++t)
      bytes +=
          form.reach[t] == Reach::kTurned ? side * (side + PadOf(bytes_of(t))) * bytes_of(t) : 0;
    return bytes;
  };
  form.side = shared_bytes(64) <= kManyShared ? 64 : 32;
  if (shared_bytes(form.side) > kMostShared) return std::nullopt;
  gpu::MergedAxes planes = gpu::Merge(std::move(axes.extents), std::move(axes.strides));
  form.rank = gpu::RankClass(planes.rank);
  form.planes = planes.elements;
  form.extents = std::move(planes.extents);
  form.strides = std::move(planes.strides);
  if (form.blocks() > INT32_MAX) return std::nullopt;
  return form;
}

std::vector<GpuTileForm> FormsBeside(const GpuTileForm& rule) {
  constexpr struct { int side, threads; } kOthers[] = {{64, 512}, {64, 256}, {32, 256}, {32, 128}};
  std::vector<GpuTileForm> out;
  for (const auto [side, threads] : kOthers) {
    if (side > rule.side || (side == rule.side && threads == rule.threads)) continue;
    out.push_back(rule);
    out.back().side = side;
    out.back().threads = threads;
    if (out.back().blocks() > INT32_MAX) out.pop_back();
  }
  return out;
}

std::string GpuSource(const ScalarProgram& program, const GpuTileForm& form) {
  const size_t inputs = program.inputs().size(), tensors = form.reach.size();
  const bool raises = Raises(program);
  const GpuBody body(program);
  std::string pointers, shared, fetched, fetch, hold, arrays, load, compute, put, put_back;
  bool fetches = false, puts_back = false;
  for (size_t t = 0; t < tensors; ++t) {
    const std::string_view type = gpu::CodeName(TypeOfTensor(program, t));
    const bool input = t < inputs;
    const Reach reach = form.reach[t];
    if (reach == Reach::kConstant) {
      pointers +=
          fmt::format("  const {0} c{1} = *static_cast<const {0}*>(p.data[{1}]);\n", type, t);
      compute += fmt::format("{}c{}", t ? ", " : "", t);
      continue;
    }
    const bool turned = reach == Reach::kTurned;
    const std::string across = form.across[t] == 1 ? "1" : fmt::format("p.across[{}]", t),
                      along = turned                   ? fmt::format("p.along[{}]", t)
                              : reach == Reach::kAlong ? "1"
                                                       : "0";
    const std::string place = fmt::format("p{}[i * {} + j * {}]", t, across, along),
                      tile = fmt::format("s{}[j][i]", t);
    pointers += fmt::format(
        "  {0}{1}* const p{2} = static_cast<{0}{1}*>(p.data[{2}]) + at[{2}] + i0 * p.across[{2}] + "
        "j0 * p.along[{2}];\n",
        input ? "const " : "", type, t);
    if (turned)
      shared += fmt::format("  __shared__ {0} s{1}[kSide][kSide + {2}];\n", type, t,
                            PadOf(DTypeBytes(TypeOfTensor(program, t))));
    if (input && turned) {
      fetches = true;
      fetched += fmt::format("    {} v{}[kTogether][kParts];\n", type, t);
      fetch += fmt::format("      if (inside) v{}[k][part] = {};\n", t, place);
      hold += fmt::format("      if (inside) {} = v{}[k][part];\n", tile, t);
      compute += fmt::format("{}{}", t ? ", " : "", tile);
    } else if (input) {
      arrays += fmt::format("    {} a{}[kTogether][kParts];\n", type, t);
      load += fmt::format("      if (inside) a{}[k][part] = {};\n", t, place);
      compute += fmt::format("{}a{}[k][part]", t ? ", " : "", t);
    } else {
      const bool rounds = body.RoundsLate(t - inputs);
      compute += fmt::format(fmt::runtime(rounds ? "{}b{}[0]" : "{}b{}.v[0]"), t ? ", " : "", t);
      put += rounds ? fmt::format("      StoreRounded<{0}, 1>(&{1}, b{2});\n", type,
                                  turned ? tile : place, t)
                    : fmt::format("      StoreVector<{0}, 1>(&{1}, b{2});\n", type,
                                  turned ? tile : place, t);
      arrays += rounds ? fmt::format("    float b{}[1];\n", t)
                       : fmt::format("    Vector<{}, 1> b{};\n", type, t);
      if (turned) {
        puts_back = true;
        put_back += fmt::format("      if (inside) {} = {};\n", place, tile);
      }
    }
  }
  if (program.arguments() > 0) compute += ", p.arguments";
  if (raises) compute += ", flags";
  // For some elements of a tile, a warp's along its rows or its columns: `before` and `behind` what
  // is done to each, the first to all of these before the second to any.
  const auto each = [](bool along_rows, std::string_view arrays, std::string_view before,
                       std::string_view behind) {
    const auto loop = [&](std::string_view what) {
      if (what.empty()) return std::string();
      return fmt::format(
          "#pragma unroll\n"
          "    for (int k = 0; k < kTogether; ++k) {{\n"
          "#pragma unroll\n"
          "    for (int part = 0; part < kParts; ++part) {{\n"
          "      const int {} = first + (u + k) * kWarps, {} = lane + 32 * part;\n"
          "      const bool inside = i < rows && j < columns;\n{}"
          "    }}\n"
          "    }}\n",
          along_rows ? "j" : "i", along_rows ? "i" : "j", what);
    };
    return fmt::format(
        "#pragma unroll 1\n  for (int u = 0; u < kPerWarp; u += kTogether) {{\n{}{}{}  }}\n",
        arrays, loop(before), loop(behind));
  };
  const std::string apply =
      fmt::format("      if (!inside) continue;\n      Apply({});\n{}", compute, put);
  return fmt::format(
      "namespace opw::OPW_KERNEL {{\n"
      "constexpr int kTensors = {tensors}, kSide = {side}, kWarps = {threads} / 32, kPerWarp = "
      "kSide / kWarps, kParts = kSide / 32, kTogether = 4;\n"
      "struct Params {{\n"
      "  void* data[kTensors];\n"
      "  Reporter reporter;\n"
      "  i64 rows, columns, across[kTensors], along[kTensors];\n"
      "  u64 arguments[{arguments}];\n"
      "  Axes<kTensors, {rank}> planes;\n"
      "}};\n"
      "OPW_DEVICE void Apply({parameters}) {{\n{body}}}\n"
      "}}\n"
      "extern \"C\" __global__ void __launch_bounds__({threads}) OPW_KERNEL(OPW_PARAM "
      "opw::OPW_KERNEL::Params p) {{\n"
      "  using namespace opw;\n"
      "  using namespace opw::OPW_KERNEL;\n"
      "  AwaitPrevious();\n"
      "{shared}"
      "  const u32 down = static_cast<u32>((p.rows + kSide - 1) / kSide), wide = "
      "static_cast<u32>((p.columns + kSide - 1) / kSide);\n"
      "  const u32 rest = blockIdx.x / down, plane = rest / wide;\n"
      "  const i64 i0 = static_cast<i64>(blockIdx.x - rest * down) * kSide, j0 = "
      "static_cast<i64>(rest - plane * wide) * kSide;\n"
      "  const int rows = static_cast<int>(p.rows - i0 < kSide ? p.rows - i0 : kSide), columns = "
      "static_cast<int>(p.columns - j0 < kSide ? p.columns - j0 : kSide);\n"
      "  const int lane = static_cast<int>(threadIdx.x) % 32, first = "
      "static_cast<int>(threadIdx.x) / 32;\n"
      "  i64 at[kTensors];\n"
      "  OffsetsAt<false>(p.planes, plane, at);\n"
      "{pointers}{flags}{fetch}{compute}{put_back}{raise}"
      "}}\n",
      fmt::arg("tensors", tensors), fmt::arg("side", form.side), fmt::arg("threads", form.threads),
      fmt::arg("arguments", std::max(1, program.arguments())), fmt::arg("rank", form.rank),
      fmt::arg("parameters", body.Parameters()), fmt::arg("body", body.Statements()),
      fmt::arg("shared", shared), fmt::arg("pointers", pointers),
      fmt::arg("flags", raises ? "  u32 flags = 0;\n" : ""),
      fmt::arg("fetch", fetches ? each(true, fetched, fetch, hold) + "  __syncthreads();\n" : ""),
      fmt::arg("compute", each(false, arrays, load, apply)),
      fmt::arg("put_back", puts_back ? "  __syncthreads();\n" + each(true, "", put_back, "") : ""),
      fmt::arg("raise", raises ? "  Raise(p.reporter, flags);\n" : ""));
}

std::vector<std::byte> GpuParams(const ScalarProgram& program, const GpuTileForm& form,
                                 std::span<const opw_attr> arguments) {
  ParamBytes out(form.reach.size());
  out.Put(form.rows);
  out.Put(form.columns);
  for (const int64_t stride : form.across) out.Put(stride);
  for (const int64_t stride : form.along) out.Put(stride);
  for (const uint64_t bits : ArgumentBits(program, arguments)) out.Put(bits);
  out.PutAxes(form.rank, form.extents, form.strides);
  return out.Take();
}

}  // namespace opwire::fused
