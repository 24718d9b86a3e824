// Ops that make values on GPUs.
#include <fmt/format.h>

#include <cstring>

#include "ir/base/element.h"
#include "kernels/ops/create/gpu_params.h"
#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/move.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu::create {
namespace {

using ops::TypeOf;

constexpr std::string_view kFile = "kernels/ops/create/gpu.cuh";
constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;  // beyond it threads loop

Status PlanZeros(const Call& call, Plan& plan) {
  plan.Zero(Result(0), ops::BytesOf(call.result()));
  return absl::OkStatus();
}

Status PlanFull(const Call& call, Plan& plan) {
  const opw_tensor& y = call.result();
  const DType bits = BitsType(TypeOf(y));
  const opw::create::FillParams p{nullptr, y.elements,
                                  ElementBits(TypeOf(y), call.attr(1).value.f)};
  Kernel* const f = call.code.Get(
      {kFile, fmt::format("create::Fill<{}>", CodeName(bits)), "create::FillParams", kThreads});
  plan.Launch(
      f,
      {.blocks = std::min(BlocksFor(y.elements, kThreads, 16 / DTypeBytes(bits)), kMostBlocks),
       .threads = kThreads},
      p, {{&p.y, Result(0)}});
  return absl::OkStatus();
}

Status PlanBytes(const opw_tensor& y, const void* bytes, Plan& plan) {
  OPWIRE_ASSIGN_OR_RETURN(void* const there, plan.Upload(bytes, ops::BytesOf(y)));
  plan.Copy(Result(0), Fixed(there), ops::BytesOf(y));
  return absl::OkStatus();
}

Status PlanValues(const Call& call, Plan& plan) {
  const opw_tensor& y = call.result();
  const size_t bytes = static_cast<size_t>(DTypeBytes(TypeOf(y)));
  std::vector<std::byte> values(static_cast<size_t>(y.elements) * bytes);
  for (int64_t i = 0; i < y.elements; ++i) {
    const uint64_t element = ElementBits(TypeOf(y), call.attr(0).value.floats[i]);
    std::memcpy(values.data() + static_cast<size_t>(i) * bytes, &element, bytes);
  }
  return PlanBytes(y, values.data(), plan);
}

const char* SupportsConstant(const opw_call* c) {
  return c->attrs[1].count == ops::BytesOf(c->results[0])
             ? nullptr
             : "the value's bytes are not as many as the type's";
}
Status PlanConstant(const Call& call, Plan& plan) {
  return PlanBytes(call.result(), call.attr(1).value.bytes, plan);
}

Status PlanArange(const Call& call, Plan& plan) {
  const opw_tensor& y = call.result();
  const opw::create::ArangeParams p{nullptr, nullptr, nullptr, y.elements};
  Kernel* const f = call.code.Get({kFile, fmt::format("create::Arange<{}>", CodeName(TypeOf(y))),
                                   "create::ArangeParams", kThreads});
  plan.Launch(
      f, {.blocks = std::min(BlocksFor(y.elements, kThreads), kMostBlocks), .threads = kThreads}, p,
      {{&p.start, Operand(0)}, {&p.step, Operand(1)}, {&p.y, Result(0)}});
  return absl::OkStatus();
}

// `body` takes the operands at these places as key, a and b.
Status PlanRandom(const Call& call, std::string_view body, uint32_t key, uint32_t a, uint32_t b,
                  int site, Plan& plan) {
  const opw_tensor& y = call.result();
  const opw::create::RandomParams p{nullptr, nullptr,    nullptr,
                                    nullptr, y.elements, call.attr(site).value.i};
  Kernel* const f = call.code.Get(
      {kFile,
       fmt::format(fmt::runtime(std::string("create::") + std::string(body)), CodeName(TypeOf(y))),
       "create::RandomParams", kThreads});
  const int64_t each = TypeOf(y) == DType::kF64 ? 2 : 4;
  plan.Launch(
      f,
      {.blocks = std::min(BlocksFor(y.elements, kThreads, each), kMostBlocks), .threads = kThreads},
      p, {{&p.key, Operand(key)}, {&p.a, Operand(a)}, {&p.b, Operand(b)}, {&p.y, Result(0)}});
  return absl::OkStatus();
}
Status PlanUniform(const Call& call, Plan& plan) {
  return PlanRandom(call, "Random<{}, false>", 0, 1, 2, 1, plan);
}
Status PlanNormal(const Call& call, Plan& plan) {
  return PlanRandom(call, "Random<{}, true>", 0, 1, 2, 1, plan);
}
Status PlanDropout(const Call& call, Plan& plan) {
  return PlanRandom(call, "Dropout<{}>", 2, 0, 1, 0, plan);
}

}  // namespace

void AddCreateGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const auto add = [&](std::string_view op, Status (*plan)(const Call&, Plan&),
                       const char* (*supports)(const opw_call*) = nullptr, uint32_t flags = 0) {
    AddGpu(
        table, code, op,
        {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | flags, .supports = supports, .plan = plan});
  };
  add("zeros", PlanZeros);
  add("full", PlanFull);
  add("values", PlanValues);
  add("constant", PlanConstant, SupportsConstant);
  add("arange", PlanArange);
  add("uniform", PlanUniform);
  add("normal", PlanNormal);
  add("dropout", PlanDropout, nullptr, OPW_INPLACE);
}

}  // namespace opwire::gpu::create
