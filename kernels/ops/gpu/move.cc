// Copies by the elementwise kernel, or a transposition where the contiguous axes differ.
#include "kernels/ops/gpu/move.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/ops/gpu/fused.h"
#include "kernels/ops/shape/gpu_params.h"

namespace opwire::gpu {
namespace {

constexpr int64_t kMostBlocks = 65535;

// The axis of the merged ones along which a tensor is contiguous; -1: none.
int ContiguousAxis(const MergedAxes& m, size_t tensor) {
  for (int a = m.rank - 1; a >= 0; --a) {
    if (m.strides[tensor][static_cast<size_t>(a)] == 1) return a;
  }
  return -1;
}

Status PlanTranspose(const Call& call, const Move& move, const MergedAxes& m, int x_axis,
                     int y_axis, Plan& plan) {
  const auto stride = [&](size_t tensor, int axis) {
    return m.strides[tensor][static_cast<size_t>(axis)];
  };
  opw::shape::TransposeParams p{};
  p.rows = m.extents[static_cast<size_t>(y_axis)];
  p.columns = m.extents[static_cast<size_t>(x_axis)];
  p.x_row = stride(1, y_axis);
  p.y_column = stride(0, x_axis);
  std::vector<int64_t> extents, xs, ys;
  for (int a = 0; a < m.rank; ++a) {
    if (a == x_axis || a == y_axis) continue;
    extents.push_back(m.extents[static_cast<size_t>(a)]);
    xs.push_back(stride(1, a));
    ys.push_back(stride(0, a));
  }
  const MergedAxes batch = Merge(std::move(extents), {std::move(xs), std::move(ys)});
  p.batches = batch.elements;
  p.batch = AxesOf<2, 16>(batch);
  int64_t tall = 64, wide = 64;
  int resident = 4;  // as registers for whole tiles allow
  std::string body = fmt::format("shape::Transpose<{}>", CodeName(move.type));
  if (DTypeBytes(move.type) == 8) {
    tall = wide = 32;  // kTile
  } else if (DTypeBytes(move.type) == 2) {
    wide = 128;
    if (((p.rows | p.columns | p.x_row | p.y_column) & 7) != 0) {
      wide = 112;  // 128 with the additional elements of a frame
      body = fmt::format("shape::TransposeByFrames<{}, {}>", tall, wide);
    }
  }
  if (!call.code.device().info().arch.starts_with("sm_")) resident = 0;
  Kernel* const f =
      call.code.Get({"kernels/ops/shape/gpu.cuh", body, "shape::TransposeParams", 256, resident});
  plan.Launch(f,
              {.blocks = std::min<int64_t>(BlocksFor(p.rows, tall), INT32_MAX),
               .threads = 256,
               .blocks_y = std::min<int64_t>(BlocksFor(p.columns, wide), kMostBlocks),
               .blocks_z = std::min<int64_t>(p.batches, kMostBlocks)},
              p, {{&p.x, move.from}, {&p.y, move.to}});
  return absl::OkStatus();
}

}  // namespace

DType BitsType(DType type) {
  switch (DTypeBytes(type)) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kU16;
    case 4:
      return DType::kU32;
    default:
      return DType::kU64;
  }
}

Status PlanMove(const Call& call, const Move& m, Plan& plan) {
  Move move = m;
  move.type = BitsType(m.type);
  const MergedAxes axes = Merge(move.extents, {move.to_strides, move.from_strides});
  if (axes.elements == 0) return absl::OkStatus();
  const int y_axis = ContiguousAxis(axes, 0), x_axis = ContiguousAxis(axes, 1);
  constexpr int64_t kShort = 8;  // below it planes are too narrow
  if (x_axis >= 0 && y_axis >= 0 && x_axis != y_axis && axes.rank <= 16 &&
      axes.extents[static_cast<size_t>(x_axis)] >= kShort &&
      axes.extents[static_cast<size_t>(y_axis)] >= kShort) {
    return PlanTranspose(call, move, axes, x_axis, y_axis, plan);
  }
  fused::ScalarProgram program;
  program.AddOutput(program.AddInput(move.type));
  const auto rank = static_cast<uint8_t>(axes.rank);
  const opw_tensor to{nullptr,
                      axes.extents.data(),
                      axes.strides[0].data(),
                      axes.elements,
                      static_cast<uint8_t>(move.type),
                      0,
                      rank,
                      0};
  const opw_tensor from{nullptr,
                        axes.extents.data(),
                        axes.strides[1].data(),
                        axes.elements,
                        static_cast<uint8_t>(move.type),
                        0,
                        rank,
                        0};
  const opw_tensor* const tensors[] = {&from, &to};
  const Source sources[] = {move.from, move.to};
  return PlanFused(call.code, call.row.name, program, tensors, sources, plan);
}

}  // namespace opwire::gpu
