// Products on Hopper's tensor cores: plans for gpu_hopper.cuh.
#include <fmt/format.h>

#include "kernels/ops/matmul/gpu.h"
#include "kernels/ops/matmul/gpu_params.h"

namespace opwire::gpu::matmul {
namespace {

constexpr std::string_view kFile = "kernels/ops/matmul/gpu_hopper.cuh";
// As in gpu_hopper.cuh.
constexpr int kRows = 128, kStages = 4, kRowBytes = 128, kBlocks = 2, kThreads = 384;
// Numbers of columns of a tile for which there are instances.
constexpr int kColumns[] = {256, 224, 192, 128};
// With fewer rows most of a cluster's tiles is empty, and a separate pass over sums costs less.
constexpr int64_t kFewestRows = 128;

// Selects the number of columns with the least time. The time of a tile is proportional to its
// columns, plus 16 columns for its start.
int ColumnsFor(int64_t rows, int64_t columns, int64_t clusters) {
  int best = kColumns[0];
  int64_t least = INT64_MAX;
  for (const int each : kColumns) {
    const int64_t tiles = BlocksFor(rows, kBlocks * kRows) * BlocksFor(columns, each),
                  time = (tiles + clusters - 1) / clusters * (each + 16);
    if (time < least) least = time, best = each;
  }
  return best;
}

}  // namespace

const char* SupportsTilesOfHopper(const Product& p) {
  const ops::matmul::MatmulShapes& s = p.shapes;
  if (s.batch_rank > 0) return "a batch whose matrices differ";
  if (s.m < kFewestRows) return "fewer than 128 rows";
  if (s.k == 0) return "nothing to sum";
  if (std::max({s.m, s.n, s.k}) > INT32_MAX) return "extents of 2^31";
  constexpr int64_t kWide = 8;  // elements of 16 bytes
  if ((s.x_k != 1 || s.y_k != 1) && s.k > 1) return "x's rows or y's columns are not contiguous";
  if (s.x_m % kWide != 0 || s.x_m < s.k || s.y_n % kWide != 0 || s.y_n < s.k)
    return "x's rows or y's columns do not begin at 16 bytes";
  if (s.n % kWide != 0 || s.z_n != 1 || s.z_m % kWide != 0)
    return "rows of the result do not begin at 16 bytes";
  return p.bias_n == 1 ? nullptr : "the bias is not contiguous";
}

const char* SupportsHopper(const Product& p) {
  return CublasLtFinishes(p) ? "cuBLASLt has all of it" : SupportsTilesOfHopper(p);
}

std::vector<Field> HopperForm::FieldsAt(const opw::matmul::HopperParams* at,
                                        const Product& p) const {
  const ops::matmul::MatmulShapes& s = p.shapes;
  const int64_t bytes = DTypeBytes(p.type);
  return {{&at->x, p.x, GpuDevice::Tiled{bytes, s.m, s.k, s.x_m, kRows}},
          {&at->y, p.y, GpuDevice::Tiled{bytes, s.n, s.k, s.y_n, columns / kBlocks}}};
}

HopperForm HopperFormOf(const Product& p, int multiprocessors) {
  const ops::matmul::MatmulShapes& s = p.shapes;
  const int64_t clusters = multiprocessors / kBlocks;
  HopperForm form{.columns = ColumnsFor(s.m, s.n, clusters), .grid = {}, .params = {}};
  form.params.m = s.m, form.params.n = s.n, form.params.k = s.k, form.params.z_m = s.z_m;
  const int64_t tiles = BlocksFor(s.m, kBlocks * kRows) * BlocksFor(s.n, form.columns);
  form.grid = {.blocks = std::min(tiles, clusters) * kBlocks,
               .threads = kThreads,
               .shared = kStages * (kRows + form.columns) * kRowBytes + 1024};
  return form;
}

Status PlanHopper(const Call& call, const Product& p, Plan& plan) {
  const HopperForm form = HopperFormOf(p, call.multiprocessors());
  const std::string body = fmt::format("matmul::HopperProduct<{}, {}, {}>", CodeName(p.type),
                                       form.columns, static_cast<int>(p.activation));
  Kernel* const f = call.code.Get({kFile, body, "matmul::HopperParams", kThreads, 1, kBlocks});
  std::vector<Field> fields = form.FieldsAt(&form.params, p);
  fields.push_back({&form.params.z, p.z});
  if (p.bias) fields.push_back({&form.params.bias, *p.bias});
  plan.LaunchBytes(f, form.grid, &form.params, sizeof form.params, fields);
  plan.UnlessAligned(std::make_shared<Fallback>(
      call, [p](const Call& c, Plan& own) { return PlanTiles(c, p, own); }));
  return absl::OkStatus();
}

}  // namespace opwire::gpu::matmul
