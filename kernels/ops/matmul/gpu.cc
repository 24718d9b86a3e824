// Matrix products, alone and as linear layers, on GPUs: kernels of our own, and which variants there are.
#include "kernels/ops/matmul/gpu.h"

#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/matmul/gpu_params.h"

namespace opwire::gpu {
namespace {

constexpr std::string_view kFile = "kernels/ops/matmul/gpu.cuh";
constexpr int64_t kTile = 64, kMostBlocks = 65535;

opw::matmul::Params ParamsOf(const Product& product) {
  const ops::MatmulShapes& s = product.shapes;
  opw::matmul::Params p{};
  p.m = s.m, p.n = s.n, p.k = s.k;
  p.x_m = s.x_m, p.x_k = s.x_k, p.y_k = s.y_k, p.y_n = s.y_n, p.z_m = s.z_m, p.z_n = s.z_n;
  p.bias_n = product.bias_n;
  p.adds = product.adds;
  p.batches = s.Batches();
  const auto list = [&](const int64_t* strides) { return std::vector<int64_t>(strides, strides + s.batch_rank); };
  p.batch = AxesOf<3, 16>(Merge(list(s.batch), {list(s.x_batch), list(s.y_batch), list(s.z_batch)}));
  return p;
}

Status Launch(const Call& call, const Product& product, const std::string& body, int resident, int64_t columns, int64_t blocks_y, Plan& plan) {
  OPWIRE_ASSIGN_OR_RETURN(const Function f, call.code.Get({kFile, body, "matmul::Params", 256, resident}));
  const opw::matmul::Params p = ParamsOf(product);
  std::vector<Field> fields = {{&p.x, product.x}, {&p.y, product.y}, {&p.z, product.z}};
  if (product.bias) fields.push_back({&p.bias, *product.bias});
  plan.LaunchBytes(f, {.blocks = BlocksFor(p.n, columns), .threads = 256, .blocks_y = blocks_y, .blocks_z = std::min<int64_t>(p.batches, kMostBlocks)}, &p, sizeof p, fields);
  return absl::OkStatus();
}

// So few rows are bound by reading y, whatever the unit that multiplies.
constexpr int64_t kMostRows = 2;
// Columns that leave most of a device idle, each read by 32 threads alone, may be no longer than this.
constexpr int64_t kFewColumns = 256, kLongestOfFew = 16384;

Product LinearOf(const opw_call* c) {
  const opw_tensor &x = ops::Operand(c, 0), &weight = ops::Operand(c, 1), &bias = ops::Operand(c, 2), &y = c->results[0];
  Product p{.shapes = ops::MatmulShapes(x, false, weight, true, y), .type = ops::TypeOf(x), .result = ops::TypeOf(y), .x = Operand(c->starts[0]), .y = Operand(c->starts[1]), .z = Result(0)};
  if (!ops::Absent(bias)) p.bias = Operand(c->starts[2]), p.bias_n = bias.strides[0];
  p.activation = ops::ActivationOf(c->attrs[0]);
  p.tf32 = p.type == DType::kF32 && ops::Text(c->attrs[1]) == "tf32";
  return p;
}

// Each kind of product as each kind of variant.
template <Product (*kOf)(const opw_call*)>
void Add(VariantTable& table, const std::shared_ptr<Code>& code, std::string_view op) {
  AddGpu(table, code, op, {.name = "portable", .tier = Tier::kReference, .plan = [](const Call& call, Plan& plan) { return PlanTiles(call, kOf(call.c), plan); }});
  AddGpu(table, code, op,
         {.name = "vector",
          .priority = 1,
          .dtypes = kFloats,
          .supports = [](const opw_call* c) { return SupportsVectors(kOf(c).shapes, kMostRows); },
          .plan = [](const Call& call, Plan& plan) { return PlanVectors(call, kOf(call.c), plan); }});
  if (code->device().driver().vendor() != Vendor::kCuda) return;
  AddGpu(table, code, op,
         {.name = "cublaslt",
          .dtypes = kFloats,
          .supports = [](const opw_call* c) { return c->results[0].contiguous == 0 ? "needs a contiguous result" : SupportsCublasLt(kOf(c)); },
          .plan = [](const Call& call, Plan& plan) { return PlanCublasLt(call, kOf(call.c), plan); },
          .without = WithoutCublasLt});
}

}  // namespace

Product MatmulOf(const opw_call* c) {
  const DType type = ops::TypeOf(ops::Operand(c, 0));
  return {.shapes = ops::MatmulShapes(c),
          .type = type,
          .result = type,
          .x = Operand(c->starts[0]),
          .y = Operand(c->starts[1]),
          .z = Result(0),
          .tf32 = type == DType::kF32 && ops::Text(c->attrs[2]) == "tf32"};
}

Status PlanTiles(const Call& call, const Product& p, Plan& plan) {
  const std::string body = fmt::format("matmul::Tiles<{}, {}, {}>", CodeName(p.type), CodeName(p.result), static_cast<int>(p.activation));
  constexpr int kResident = 2;  // 128 registers a thread: without a bound compilers spill to have fewer
  return Launch(call, p, body, kResident, kTile, std::min(BlocksFor(p.shapes.m, kTile), kMostBlocks), plan);
}

const char* SupportsVectors(const ops::MatmulShapes& s, int64_t most) {
  if (s.m > most) return most == kMostRows ? "more than 2 rows" : "more than 8 rows";
  if ((s.x_k != 1 || s.y_k != 1) && s.k > 1) return "x's rows or y's columns are not contiguous";
  if (s.n * s.Batches() < kFewColumns && s.k > kLongestOfFew) return "few columns, and long ones";
  return nullptr;
}

Status PlanVectors(const Call& call, const Product& p, Plan& plan) {
  const std::string body = fmt::format("matmul::Vectors<{}, {}, {}>", CodeName(p.type), p.shapes.m, static_cast<int>(p.activation));
  return Launch(call, p, body, 0, 8, 1, plan);
}

void AddMatmulGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  Add<MatmulOf>(table, code, "matmul");
  Add<LinearOf>(table, code, "linear");
}

}  // namespace opwire::gpu
