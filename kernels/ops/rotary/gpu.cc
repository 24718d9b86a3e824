// rotary_embedding on GPUs: how rows are shared out.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/rotary/gpu_params.h"
#include "kernels/ops/rotary/shapes.h"

namespace opwire::gpu::rotary {
namespace {

template <typename E>
StatusOr<void*> UploadFrequencies(const ops::rotary::RotaryShapes& s, Plan& plan) {
  std::vector<E> frequencies(static_cast<size_t>(s.pairs));
  for (int64_t i = 0; i < s.pairs; ++i)
    frequencies[static_cast<size_t>(i)] = static_cast<E>(s.Frequency(i));
  return plan.Upload(frequencies.data(), s.pairs * static_cast<int64_t>(sizeof(E)));
}

Status PlanRotary(const Call& call, Plan& plan) {
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 1 << 20;  // beyond it threads loop
  const opw_tensor &x = call.operand(0), &positions = call.operand(1);
  const ops::rotary::RotaryShapes s(call.c);
  const DType type = ops::TypeOf(x);
  opw::rotary::Params p{};
  p.scale = s.scale;
  p.depth = s.depth;
  p.rotated = s.rotated;
  p.angles = s.angles;
  p.copies = s.rows / s.angles;
  std::vector<int64_t> own, shared;
  std::vector<std::vector<int64_t>> own_strides(2), shared_strides(1);
  for (int a = 0; a < s.rank; ++a) {
    if (s.own[a]) {
      own.push_back(x.shape[a]);
      own_strides[0].push_back(x.strides[a]);
      own_strides[1].push_back(s.positions[a]);
    } else {
      shared.push_back(x.shape[a]);
      shared_strides[0].push_back(x.strides[a]);
    }
  }
  p.own = AxesOf<2, 16>(Merge(std::move(own), std::move(own_strides)));
  p.shared = AxesOf<1, 16>(Merge(std::move(shared), std::move(shared_strides)));
  int64_t items = 16 / DTypeBytes(type);
  if (s.pairs % items != 0 || s.depth % items != 0) items = 1;
  const int64_t threads = s.angles * (s.pairs + s.depth - s.rotated) / items;
  // All copies of a position by one thread, unless that would leave the device idle.
  const int64_t parts =
      std::clamp<int64_t>(BlocksFor(int64_t{2048} * call.multiprocessors(), threads), 1,
                          std::min<int64_t>(p.copies, 65535));
  p.each = BlocksFor(p.copies, parts);
  OPWIRE_ASSIGN_OR_RETURN(void* const frequencies, type == DType::kF64
                                                       ? UploadFrequencies<double>(s, plan)
                                                       : UploadFrequencies<float>(s, plan));
  const std::string_view index = ops::Absent(positions) ? "i64" : CodeName(ops::TypeOf(positions));
  Kernel* const f = call.code.Get(
      {"kernels/ops/rotary/gpu.cuh",
       fmt::format("rotary::Rotate<{}, {}, {}, {}>", CodeName(type), index, s.interleaved, items),
       "rotary::Params", kThreads});
  std::vector<Field> fields = {
      {&p.x, Operand(0)}, {&p.y, Result(0)}, {&p.frequencies, Fixed(frequencies)}};
  if (!ops::Absent(positions)) fields.push_back({&p.positions, Operand(1)});
  const Grid grid{.blocks = std::min(BlocksFor(threads, kThreads), kMostBlocks),
                  .threads = kThreads,
                  .blocks_y = BlocksFor(p.copies, p.each)};
  plan.LaunchBytes(f, grid, &p, sizeof p, fields);
  return absl::OkStatus();
}

}  // namespace

void AddRotaryGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "rotary_embedding",
         {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | OPW_INPLACE, .plan = PlanRotary});
}

}  // namespace opwire::gpu::rotary
