// Matrix products, alone and as linear layers, on GPUs: our own kernels, and the list of variants.
#include "kernels/ops/matmul/gpu.h"

#include <fmt/format.h>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/matmul/gpu_params.h"
#include "kernels/ops/norm/gpu.h"

namespace opwire::gpu::matmul {
namespace {

constexpr std::string_view kFile = "kernels/ops/matmul/gpu.cuh";
constexpr int64_t kTile = 64, kMostBlocks = 65535;

opw::matmul::Params ParamsOf(const Product& product) {
  const ops::matmul::MatmulShapes& s = product.shapes;
  opw::matmul::Params p{};
  p.m = s.m, p.n = s.n, p.k = s.k;
  p.x_m = s.x_m, p.x_k = s.x_k, p.y_k = s.y_k, p.y_n = s.y_n, p.z_m = s.z_m, p.z_n = s.z_n;
  p.bias_n = product.bias_n;
  p.adds = product.adds;
  if (product.norm) p.eps = product.norm->eps;
  if (product.scaled) p.scale_m = product.scaled->m, p.scale_n = product.scaled->n;
  p.batches = s.Batches();
  const auto list = [&](const int64_t* strides) {
    return std::vector<int64_t>(strides, strides + s.batch_rank);
  };
  p.batch =
      AxesOf<3, 16>(Merge(list(s.batch), {list(s.x_batch), list(s.y_batch), list(s.z_batch)}));
  return p;
}

Status Launch(const Call& call, const Product& product, const std::string& body, int resident,
              int64_t columns, int64_t blocks_y, Plan& plan, bool awaits = false) {
  Kernel* const f = call.code.Get({.file = kFile,
                                   .call = body,
                                   .params = "matmul::Params",
                                   .blocks = resident,
                                   .awaits = awaits});
  const opw::matmul::Params p = ParamsOf(product);
  std::vector<Field> fields = {{&p.x, product.x}, {&p.y, product.y}, {&p.z, product.z}};
  if (product.bias) fields.push_back({&p.bias, *product.bias});
  if (product.scaled)
    fields.insert(fields.end(), {{&p.scale_x, product.scaled->x}, {&p.scale_y, product.scaled->y}});
  if (product.norm && product.norm->weight)
    fields.push_back({&p.norm_weight, *product.norm->weight});
  plan.LaunchBytes(f,
                   {.blocks = BlocksFor(p.n, columns),
                    .threads = 256,
                    .blocks_y = blocks_y,
                    .blocks_z = std::min<int64_t>(p.batches, kMostBlocks)},
                   &p, sizeof p, fields);
  return absl::OkStatus();
}

// Up to this many rows a product is bound by reading y, whatever the unit that multiplies. The
// second number is for rows that are also normalised.
constexpr int64_t kMostRows = 2, kMostNormalised = 8;
// With fewer columns than kFewColumns, each read by only 32 threads, most of a device is idle. Such
// columns may not be longer than kLongestOfFew.
constexpr int64_t kFewColumns = 256, kLongestOfFew = 16384;

// Of x [..., K], weight [N, K] and bias [N], which are operands 0, `weight_at` and the next one.
// The attributes starting with `attrs` are activation and precision.
Product LinearWith(const opw_call* c, int weight_at, int attrs) {
  const opw_tensor &x = ops::Operand(c, 0), &weight = ops::Operand(c, weight_at),
                   &bias = ops::Operand(c, weight_at + 1), &y = c->results[0];
  Product p{.shapes = ops::matmul::MatmulShapes(x, false, weight, true, y),
            .type = ops::TypeOf(x),
            .result = ops::TypeOf(y),
            .x = Operand(c->starts[0]),
            .y = Operand(c->starts[weight_at]),
            .z = Result(0)};
  if (!ops::Absent(bias)) p.bias = Operand(c->starts[weight_at + 1]), p.bias_n = bias.strides[0];
  p.activation = ops::matmul::ActivationOf(c->attrs[attrs]);
  p.tf32 = p.type == DType::kF32 && ops::Text(c->attrs[attrs + 1]) == "tf32";
  return p;
}
Product LinearOf(const opw_call* c) { return LinearWith(c, 1, 0); }

Product ScaledMatmulOf(const opw_call* c) {
  const auto step = [](const opw_tensor& scale) {
    return scale.rank == 0 ? int64_t{0} : scale.strides[0];
  };
  const opw_tensor &scale_x = ops::Operand(c, 2), &scale_y = ops::Operand(c, 3);
  return {.shapes = ops::matmul::MatmulShapes(c, /*merge=*/scale_x.rank == 0),
          .type = ops::TypeOf(ops::Operand(c, 0)),
          .result = ops::TypeOf(c->results[0]),
          .x = Operand(0),
          .y = Operand(1),
          .z = Result(0),
          .scaled =
              Product::Scaled{ops::TypeOf(ops::Operand(c, 1)), Operand(2), Operand(3),
                              step(scale_x), step(scale_y), scale_x.rank == 0, scale_y.rank == 0}};
}

Product RmsNormLinearOf(const opw_call* c) {
  Product p = LinearWith(c, 2, 1);
  p.norm = {.weight = std::nullopt, .eps = c->attrs[0].value.f};
  if (!ops::Absent(ops::Operand(c, 1))) p.norm->weight = Operand(c->starts[1]);
  return p;
}
// Writes the norm into the workspace, and multiplies it.
template <Status (*kMultiply)(const Call&, const Product&, Plan&)>
Status PlanNormFirst(const Call& call, Plan& plan) {
  Product p = RmsNormLinearOf(call.c);
  const opw_tensor& x = call.operand(0);
  if (p.shapes.k > 0) {
    const Source normal = Workspace(plan.TakeWorkspace(x.elements * DTypeBytes(p.type)));
    const norm::NormRows rows{.type = p.type,
                              .rows = x.elements / p.shapes.k,
                              .extent = p.shapes.k,
                              .eps = p.norm->eps,
                              .layer = false,
                              .x = p.x,
                              .y = normal,
                              .weight = p.norm->weight};
    OPWIRE_RETURN_IF_ERROR(norm::PlanNormRows(call, rows, plan));
    p.x = normal;
  }
  p.norm.reset();
  return kMultiply(call, p, plan);
}

// Adds each kind of product as each kind of variant.
template <Product (*kOf)(const opw_call*)>
void Add(VariantTable& table, const std::shared_ptr<Code>& code, std::string_view op) {
  AddGpu(table, code, op,
         {.name = "portable", .tier = Tier::kReference, .plan = [](const Call& call, Plan& plan) {
            return PlanTiles(call, kOf(call.c), plan);
          }});
  AddGpu(
      table, code, op,
      {.name = "vector",
       .priority = 1,
       .dtypes = kFloats,
       .supports = [](const opw_call* c) { return SupportsVectors(kOf(c).shapes, kMostRows); },
       .plan = [](const Call& call, Plan& plan) { return PlanVectors(call, kOf(call.c), plan); }});
  if (code->device().driver().vendor() != Vendor::kCuda) return;
  AddGpu(
      table, code, op,
      {.name = "cublaslt",
       .dtypes = kFloats,
       .supports =
           [](const opw_call* c) {
             return c->results[0].contiguous == 0 ? "needs a contiguous result"
                                                  : SupportsCublasLt(kOf(c));
           },
       .plan = [](const Call& call, Plan& plan) { return PlanCublasLt(call, kOf(call.c), plan); },
       .without = WithoutCublasLt});
}

void AddScaled(VariantTable& table, const std::shared_ptr<Code>& code) {
  constexpr std::string_view kOp = "scaled_matmul";
  AddGpu(table, code, kOp,
         {.name = "portable", .tier = Tier::kReference, .plan = [](const Call& call, Plan& plan) {
            return PlanTiles(call, ScaledMatmulOf(call.c), plan);
          }});
  if (code->device().driver().vendor() != Vendor::kCuda) return;
  AddGpu(table, code, kOp,
         {.name = "cublaslt",
          .supports =
              [](const opw_call* c) {
                return c->results[0].contiguous == 0 ? "needs a contiguous result"
                                                     : SupportsCublasLt(ScaledMatmulOf(c));
              },
          .plan = [](const Call& call,
                     Plan& plan) { return PlanCublasLt(call, ScaledMatmulOf(call.c), plan); },
          .without = WithoutCublasLt});
}

constexpr DTypeSet kHopperTypes{DType::kF16, DType::kBF16};

}  // namespace

Product MatmulOf(const opw_call* c) {
  const DType type = ops::TypeOf(ops::Operand(c, 0));
  return {.shapes = ops::matmul::MatmulShapes(c),
          .type = type,
          .result = type,
          .x = Operand(c->starts[0]),
          .y = Operand(c->starts[1]),
          .z = Result(0),
          .tf32 = type == DType::kF32 && ops::Text(c->attrs[2]) == "tf32"};
}

Status PlanTiles(const Call& call, const Product& p, Plan& plan) {
  const std::string body = fmt::format("matmul::Tiles<{}, {}, {}, {}>", CodeName(p.type),
                                       CodeName(p.scaled ? p.scaled->y_type : p.type),
                                       CodeName(p.result), static_cast<int>(p.activation));
  constexpr int kResident =
      2;  // 128 registers per thread: without a bound compilers spill to use fewer
  return Launch(call, p, body, kResident, kTile,
                std::min(BlocksFor(p.shapes.m, kTile), kMostBlocks), plan);
}

const char* SupportsVectors(const ops::matmul::MatmulShapes& s, int64_t most) {
  if (s.m > most) return most == kMostRows ? "more than 2 rows" : "more than 8 rows";
  if ((s.x_k != 1 || s.y_k != 1) && s.k > 1) return "x's rows or y's columns are not contiguous";
  if (s.n * s.Batches() < kFewColumns && s.k > kLongestOfFew) return "few columns, and long ones";
  return nullptr;
}

Status PlanVectors(const Call& call, const Product& p, Plan& plan) {
  // All of a short column at once; for long ones fewer loads at a time keep a device busy.
  const int64_t each = BlocksFor(p.shapes.k * DTypeBytes(p.type), 16 * 32);
  const int batch = p.shapes.m == 1 && (each <= 4 || each > 8) ? 4 : 8;
  const std::string body =
      fmt::format("matmul::Vectors<{}, {}, {}, {}, {}>", CodeName(p.type), p.shapes.m, batch,
                  static_cast<int>(p.activation), p.norm.has_value());
  const int resident = p.shapes.m == 1 && DTypeBytes(p.type) <= 4 && !p.norm
                           ? batch == 4 ? 4 : 3
                           : 0;  // a sum needs few registers
  return Launch(call, p, body, resident, 8, 1, plan, /*awaits=*/true);
}

Status PlanFinish(const Call& call, const Product& p, const Product& sums, Plan& plan) {
  opw::matmul::FinishParams f{};
  f.n = p.shapes.n;
  f.elements = p.shapes.m * p.shapes.n * p.shapes.Batches();
  f.bias_n = p.bias_n;
  const std::string body =
      fmt::format("matmul::Finish<{}, {}, {}, {}>", CodeName(p.type), CodeName(sums.result),
                  CodeName(p.result), static_cast<int>(p.activation));
  Kernel* const function = call.code.Get({kFile, body, "matmul::FinishParams", 256});
  std::vector<Field> fields = {{&f.x, sums.z}, {&f.y, p.z}};
  if (p.bias) fields.push_back({&f.bias, *p.bias});
  plan.LaunchBytes(function,
                   {.blocks = std::min<int64_t>(BlocksFor(f.elements, 256, 4), INT32_MAX)}, &f,
                   sizeof f, fields);
  return absl::OkStatus();
}

void AddMatmulGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  Add<MatmulOf>(table, code, "matmul");
  Add<LinearOf>(table, code, "linear");
  AddScaled(table, code);
  if (code->hopper()) {
    AddGpu(table, code, "linear",
           {.name = "hopper",
            .priority = 1,
            .dtypes = kHopperTypes,
            .supports = [](const opw_call* c) { return SupportsHopper(LinearOf(c)); },
            .plan = [](const Call& call,
                       Plan& plan) { return PlanHopper(call, LinearOf(call.c), plan); }});
  }
  constexpr std::string_view kNormFirst = "rms_norm_linear";
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  AddGpu(table, code, kNormFirst,
         {.name = "portable",
          .tier = Tier::kReference,
          .flags = flags,
          .plan = PlanNormFirst<PlanTiles>});
  AddGpu(table, code, kNormFirst,
         {.name = "vector",
          .priority = 1,
          .flags = flags,
          .supports =
              [](const opw_call* c) {
                return SupportsVectors(RmsNormLinearOf(c).shapes, kMostNormalised);
              },
          .plan = [](const Call& call,
                     Plan& plan) { return PlanVectors(call, RmsNormLinearOf(call.c), plan); }});
  if (code->hopper()) {
    AddGpu(table, code, kNormFirst,
           {.name = "hopper",
            .priority = 1,
            .dtypes = kHopperTypes,
            .flags = flags,
            .supports = [](const opw_call* c) { return SupportsHopper(RmsNormLinearOf(c)); },
            .plan = PlanNormFirst<PlanHopper>});
  }
  if (code->device().driver().vendor() != Vendor::kCuda) return;
  AddGpu(table, code, kNormFirst,
         {.name = "cublaslt",
          .flags = flags,
          .supports = [](const opw_call* c) { return SupportsCublasLt(RmsNormLinearOf(c)); },
          .plan = PlanNormFirst<PlanCublasLt>,
          .without = WithoutCublasLt});
}

}  // namespace opwire::gpu::matmul
