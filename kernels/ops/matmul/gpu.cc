// Matrix products by kernels of our own on GPUs.
#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/matmul/gpu.h"
#include "kernels/ops/matmul/gpu_params.h"

namespace opwire::gpu {
namespace {

constexpr int64_t kTile = 64, kMostBlocks = 65535;

opw::matmul::Params ParamsOf(const ops::MatmulShapes& s) {
  opw::matmul::Params p{};
  p.m = s.m, p.n = s.n, p.k = s.k;
  p.x_m = s.x_m, p.x_k = s.x_k, p.y_k = s.y_k, p.y_n = s.y_n, p.z_m = s.z_m, p.z_n = s.z_n;
  p.batches = s.Batches();
  const auto list = [&](const int64_t* strides) { return std::vector<int64_t>(strides, strides + s.batch_rank); };
  p.batch = AxesOf<3, 16>(Merge(list(s.batch), {list(s.x_batch), list(s.y_batch), list(s.z_batch)}));
  return p;
}

Status Launch(const Call& call, const std::string& body, const opw::matmul::Params& p, int64_t columns, int64_t blocks_y, Plan& plan) {
  OPWIRE_ASSIGN_OR_RETURN(const Function f, call.code.Get({"kernels/ops/matmul/gpu.cuh", body, "matmul::Params", 256}));
  plan.Launch(f, {.blocks = BlocksFor(p.n, columns), .threads = 256, .blocks_y = blocks_y, .blocks_z = std::min<int64_t>(p.batches, kMostBlocks)}, p,
              {{&p.x, Operand(call.c->starts[0])}, {&p.y, Operand(call.c->starts[1])}, {&p.z, Result(0)}});
  return absl::OkStatus();
}

// So few rows are bound by reading y, whatever the unit that multiplies.
constexpr int64_t kMostRows = 2;
// Columns that leave most of a device idle, each read by 32 threads alone, may be no longer than this.
constexpr int64_t kFewColumns = 256, kLongestOfFew = 16384;

const char* SupportsVectors(const opw_call* c) {
  const ops::MatmulShapes s(c);
  if (s.m > kMostRows) return "more than 2 rows";
  if ((s.x_k != 1 || s.y_k != 1) && s.k > 1) return "x's rows or y's columns are not contiguous";
  if (s.n * s.Batches() < kFewColumns && s.k > kLongestOfFew) return "few columns, and long ones";
  return nullptr;
}

Status PlanVectors(const Call& call, Plan& plan) {
  const ops::MatmulShapes s(call.c);
  const std::string body = fmt::format("matmul::Vectors<{}, {}>", CodeName(ops::TypeOf(call.operand(0))), s.m);
  return Launch(call, body, ParamsOf(s), 8, 1, plan);
}

}  // namespace

Status PlanMatmulTiles(const Call& call, Plan& plan) {
  const ops::MatmulShapes s(call.c);
  const std::string body = fmt::format("matmul::Tiles<{}>", CodeName(ops::TypeOf(call.operand(0))));
  return Launch(call, body, ParamsOf(s), kTile, std::min(BlocksFor(s.m, kTile), kMostBlocks), plan);
}

void AddMatmulGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "matmul", {.name = "portable", .tier = Tier::kReference, .plan = PlanMatmulTiles});
  AddGpu(table, code, "matmul", {.name = "vector", .priority = 1, .dtypes = kFloats, .supports = SupportsVectors, .plan = PlanVectors});
  if (code->device().driver().vendor() == Vendor::kCuda) AddMatmulCublasLt(table, code);
}

}  // namespace opwire::gpu
