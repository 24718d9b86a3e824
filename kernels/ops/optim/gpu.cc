// The optim family on GPUs: launches over as many tensors as their parameters have room for.
#include <fmt/format.h>

#include <cmath>

#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/optim/gpu_params.h"
#include "kernels/ops/optim/optim.h"

namespace opwire::gpu::optim {
namespace {

using ops::optim::OptimRule;
using ops::optim::StepRow;
using opw::optim::kTensors;

constexpr std::string_view kFile = "kernels/ops/optim/gpu.cuh";
constexpr int64_t kBlocksEach =
    8;  // per multiprocessor, as many as it can hold; they take chunks in turn

int64_t ChunkOf(const opw_tensor& t) {
  return opw::optim::kChunkVectors * (16 / DTypeBytes(ops::TypeOf(t)));
}

// Calls fill(index in the launch, index in the list) for as many tensors of a call's first list as
// a launch has room for; empty tensors are skipped. Then calls launch(grid, launch's first chunk).
template <typename Fill, typename Launch>
Status ForLaunches(const Call& call, opw::optim::Tensors& tensors, const Fill& fill,
                   const Launch& launch) {
  const int64_t places = ops::ListSize(call.c, 0), chunk = ChunkOf(call.operand(0));
  int64_t before = 0;
  tensors = {};
  for (int64_t place = 0; place < places; ++place) {
    const int64_t elements = call.c->operands[call.c->starts[0] + place].elements;
    if (elements > 0) {
      tensors.elements[tensors.count] = elements;
      fill(tensors.count, place);
      ++tensors.count;
      tensors.first[tensors.count] =
          tensors.first[tensors.count - 1] + static_cast<unsigned>((elements + chunk - 1) / chunk);
    }
    if (tensors.count == 0 || (tensors.count < kTensors && place + 1 < places)) continue;
    const int64_t chunks = tensors.first[tensors.count];
    OPWIRE_RETURN_IF_ERROR(
        launch(Grid{.blocks = std::min(chunks, kBlocksEach * call.multiprocessors()),
                    .threads = opw::optim::kThreads},
               before));
    before += chunks;
    tensors = {};
  }
  return absl::OkStatus();
}

// Plans launches of `body`; `more` adds to a launch's fields, by its first chunk.
template <int kLists, typename More>
Status PlanStepOf(const Call& call, const StepRow& row, const std::string& body, Plan& plan,
                  const More& more) {
  const auto& starts = call.c->starts;
  const int64_t places = ops::ListSize(call.c, 0);
  const ops::optim::StepAttrs a = ops::optim::AttrsOf(row, call.c);
  Kernel* const f = call.code.Get(
      {kFile, body, fmt::format("optim::StepParams<{}>", kLists), opw::optim::kThreads});
  opw::optim::StepParams<kLists> p{};
  static_assert(sizeof p <= 4096);
  p.sign = a.maximize ? -1 : 1;
  p.weight_decay = a.weight_decay;
  p.beta1 = a.beta1;
  p.rest1 = a.rest1;
  p.beta2 = a.beta2;
  p.rest2 = 1 - a.beta2;
  p.eps = a.eps;
  p.log_beta1 = std::log(a.beta1);
  p.log_beta2 = std::log(a.beta2);
  std::vector<Field> fields;
  const auto fill = [&](int at, int64_t place) {
    p.places[at] = static_cast<int>(place);
    for (int l = 0; l < kLists; ++l)
      fields.push_back({&p.in[l][at], Operand(static_cast<uint32_t>(starts[l] + place))});
    for (int l = 0; l < kLists - 1; ++l)
      fields.push_back({&p.out[l][at], Result(static_cast<uint32_t>(l * places + place))});
    if (row.copies)
      fields.push_back(
          {&p.copies[at], Result(static_cast<uint32_t>((kLists - 1) * places + place))});
  };
  return ForLaunches(call, p.tensors, fill, [&](const Grid& grid, int64_t before) {
    more(p, before, fields);
    fields.push_back({&p.lr, Operand(starts[row.lr])});
    if (row.step >= 0) fields.push_back({&p.step, Operand(starts[row.step])});
    if (!ops::Absent(call.operand(row.grad_scale)))
      fields.push_back({&p.grad_scale, Operand(starts[row.grad_scale])});
    if (!ops::Absent(call.operand(row.skip)))
      fields.push_back({&p.skip, Operand(starts[row.skip])});
    plan.LaunchBytes(f, grid, &p, sizeof p, fields);
    fields.clear();
    return absl::OkStatus();
  });
}

// The sums, the coefficients and the step of lamb.
Status PlanLamb(const Call& call, Plan& plan) {
  const StepRow& row = ops::optim::kStepRows[ops::optim::kLambRow];
  const ops::optim::StepAttrs a = ops::optim::AttrsOf(row, call.c);
  const DType own = ops::TypeOf(call.operand(0));
  const std::string_view type = CodeName(own), state = CodeName(ops::TypeOf(call.operand(2)));
  const std::string rule =
      fmt::format("optim::Lamb<{}, {}>", own == DType::kF64 ? "f64" : "f32", a.bias_correction);
  const int64_t places = ops::ListSize(call.c, 0), each = own == DType::kF64 ? 8 : 4;
  const ops::optim::Chunks chunks(&call.c->operands[call.c->starts[0]], places,
                                  ChunkOf(call.operand(0)));
  const int64_t sums = plan.TakeWorkspace(std::max<int64_t>(1, chunks.count()) * 2 * each);
  const Source coefficients = Result(static_cast<uint32_t>(3 * places));
  OPWIRE_RETURN_IF_ERROR(
      PlanStepOf<4>(call, row, fmt::format("optim::LambSums<{}, {}, {}>", type, state, rule), plan,
                    [&](auto& p, int64_t before, std::vector<Field>& fields) {
                      p.sums_apart = chunks.count();
                      fields.push_back({&p.sums, Workspace(sums + before * each)});
                    }));
  Kernel* const f = call.code.Get({kFile, fmt::format("optim::LambCoefficients<{}>", type),
                                   "optim::CoefficientParams", opw::optim::kThreads});
  OPWIRE_ASSIGN_OR_RETURN(void* const first,
                          plan.Upload(chunks.first.data(),
                                      static_cast<int64_t>(chunks.first.size() * sizeof(int64_t))));
  opw::optim::CoefficientParams q{};
  q.least = a.least;
  q.most = a.most;
  q.tensors = places;
  std::vector<Field> fields = {
      {&q.sums, Workspace(sums)}, {&q.first, Fixed(first)}, {&q.coefficients, coefficients}};
  if (!ops::Absent(call.operand(row.skip)))
    fields.push_back({&q.skip, Operand(call.c->starts[row.skip])});
  plan.LaunchBytes(
      f, {.blocks = std::min<int64_t>(places, INT32_MAX), .threads = opw::optim::kThreads}, &q,
      sizeof q, fields);
  return PlanStepOf<4>(call, row,
                       fmt::format("optim::Step<{}, {}, {}, optim::kNoDecay>", type, state, rule),
                       plan, [&](auto& p, int64_t, std::vector<Field>& more) {
                         more.push_back({&p.coefficients, coefficients});
                       });
}

template <int kRow>
Status PlanStep(const Call& call, Plan& plan) {
  constexpr const StepRow& kStep = ops::optim::kStepRows[kRow];
  const int states = ops::optim::StatesOf(kStep, call.c);
  const ops::optim::StepAttrs a = ops::optim::AttrsOf(kStep, call.c);
  const DType own = ops::TypeOf(call.operand(0));
  const std::string_view type = CodeName(own),
                         state = states > 0 ? CodeName(ops::TypeOf(call.operand(2))) : type;
  const std::string_view compute = own == DType::kF64 ? "f64" : "f32";
  std::string rule;
  switch (kStep.rule) {
    case OptimRule::kAdamw:
      rule = fmt::format("optim::Adamw<{}, {}>", compute, a.bias_correction);
      break;
    case OptimRule::kSgd:
      rule = fmt::format("optim::Sgd<{}, {}>", compute, states == 0 ? 0 : a.nesterov ? 2 : 1);
      break;
    case OptimRule::kLion:
      rule = fmt::format("optim::Lion<{}>", compute);
      break;
    case OptimRule::kAdagrad:
      rule = fmt::format("optim::Adagrad<{}>", compute);
      break;
    case OptimRule::kLamb:
      break;  // PlanLamb
  }
  const std::string copy =
      kStep.copies ? fmt::format(", {}", CodeName(ops::TypeOf(ops::optim::CopyOf(call.c, 0)))) : "";
  const std::string body = fmt::format("optim::Step<{}, {}, {}, optim::{}{}>", type, state, rule,
                                       a.weight_decay == 0 ? "kNoDecay"
                                       : a.decoupled       ? "kDecoupled"
                                                           : "kL2",
                                       copy);
  const auto nothing = [](auto&, int64_t, std::vector<Field>&) {};
  if (states == 2) return PlanStepOf<4>(call, kStep, body, plan, nothing);
  return states == 1 ? PlanStepOf<3>(call, kStep, body, plan, nothing)
                     : PlanStepOf<2>(call, kStep, body, plan, nothing);
}

Status PlanScale(const Call& call, Plan& plan) {
  const int64_t places = ops::ListSize(call.c, 0);
  const Source overflow = Result(static_cast<uint32_t>(places));
  Kernel* const f =
      call.code.Get({kFile, fmt::format("optim::Scale<{}>", CodeName(ops::TypeOf(call.operand(0)))),
                     "optim::ScaleParams", opw::optim::kThreads});
  plan.Zero(overflow, 1);
  opw::optim::ScaleParams p{};
  std::vector<Field> fields;
  const auto fill = [&](int at, int64_t place) {
    fields.push_back({&p.in[at], Operand(static_cast<uint32_t>(call.c->starts[0] + place))});
    fields.push_back({&p.out[at], Result(static_cast<uint32_t>(place))});
  };
  return ForLaunches(call, p.tensors, fill, [&](const Grid& grid, int64_t) {
    fields.push_back({&p.factor, Operand(call.c->starts[1])});
    fields.push_back({&p.overflow, overflow});
    plan.LaunchBytes(f, grid, &p, sizeof p, fields);
    fields.clear();
    return absl::OkStatus();
  });
}

Status PlanL2Norm(const Call& call, Plan& plan) {
  const std::string_view type = CodeName(ops::TypeOf(call.operand(0)));
  const int64_t places = ops::ListSize(call.c, 0),
                each = ops::TypeOf(call.operand(0)) == DType::kF64 ? 8 : 4;
  const ops::optim::Chunks chunks(&call.c->operands[call.c->starts[0]], places,
                                  ChunkOf(call.operand(0)));
  const int64_t sums = plan.TakeWorkspace(std::max<int64_t>(1, chunks.count()) * each);
  Kernel* const squares = call.code.Get({kFile, fmt::format("optim::Squares<{}>", type),
                                         "optim::SquareParams", opw::optim::kThreads});
  Kernel* const norms = call.code.Get(
      {kFile, fmt::format("optim::Norms<{}>", type), "optim::NormParams", opw::optim::kThreads});
  opw::optim::SquareParams p{};
  std::vector<Field> fields;
  const auto fill = [&](int at, int64_t place) {
    fields.push_back({&p.in[at], Operand(static_cast<uint32_t>(call.c->starts[0] + place))});
  };
  OPWIRE_RETURN_IF_ERROR(ForLaunches(call, p.tensors, fill, [&](const Grid& grid, int64_t before) {
    fields.push_back({&p.sums, Workspace(sums + before * each)});
    plan.LaunchBytes(squares, grid, &p, sizeof p, fields);
    fields.clear();
    return absl::OkStatus();
  }));
  OPWIRE_ASSIGN_OR_RETURN(void* const first,
                          plan.Upload(chunks.first.data(),
                                      static_cast<int64_t>(chunks.first.size() * sizeof(int64_t))));
  opw::optim::NormParams n{};
  n.tensors = places;
  const Grid grid{.blocks = std::min<int64_t>(places + 1, INT32_MAX),
                  .threads = opw::optim::kThreads};
  plan.Launch(norms, grid, n,
              {{&n.sums, Workspace(sums)},
               {&n.first, Fixed(first)},
               {&n.norms, Result(1)},
               {&n.norm, Result(0)}});
  return absl::OkStatus();
}

}  // namespace

void AddOptimGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  const uint32_t flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | OPW_INPLACE;
  AddGpu(table, code, ops::optim::kStepRows[0].name, {.flags = flags, .plan = PlanStep<0>});
  AddGpu(table, code, ops::optim::kStepRows[1].name, {.flags = flags, .plan = PlanStep<1>});
  AddGpu(table, code, ops::optim::kStepRows[2].name, {.flags = flags, .plan = PlanStep<2>});
  AddGpu(table, code, ops::optim::kStepRows[3].name, {.flags = flags, .plan = PlanStep<3>});
  AddGpu(table, code, ops::optim::kStepRows[ops::optim::kLambRow].name,
         {.flags = flags, .plan = PlanLamb});
  AddGpu(table, code, ops::optim::kStepRows[ops::optim::kCopyRow].name,
         {.flags = flags, .plan = PlanStep<ops::optim::kCopyRow>});
  AddGpu(table, code, "l2_norm", {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS, .plan = PlanL2Norm});
  AddGpu(table, code, "scale", {.flags = flags, .plan = PlanScale});
}

}  // namespace opwire::gpu::optim
