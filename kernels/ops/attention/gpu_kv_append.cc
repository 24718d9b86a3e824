// kv_append on GPUs.
#include <fmt/format.h>

#include "kernels/ops/attention/gpu_kv_append_params.h"
#include "kernels/ops/attention/kv_append.h"
#include "kernels/ops/gpu/families.h"
#include "kernels/ops/gpu/plan.h"

namespace opwire::gpu::attention {
namespace {

Status PlanAppend(const Call& call, Plan& plan) {
  const ops::attention::AppendShapes s(call.c);
  const int64_t bytes = DTypeBytes(ops::TypeOf(s.y));
  const std::string body = fmt::format("attention::Append<{}, {}, {}>", BitsName(bytes),
                                       CodeName(ops::TypeOf(s.position)), s.paged);
  Kernel* const f = call.code.Get(
      {"kernels/ops/attention/gpu_kv_append.cuh", body, "attention::AppendParams", 256});
  opw::attention::AppendParams p{};
  p.slices = s.batches * s.heads;
  p.heads = s.heads;
  p.rows = s.rows;
  p.new_rows = s.new_rows;
  p.columns = s.columns;
  p.positions = s.one() ? 1 : s.batches;
  p.places = s.places();
  if (s.paged) {
    p.pages = s.pages(), p.row_pages = s.table.shape[1];
    plan.Copy(Result(0), Operand(0), s.y.elements * bytes);
    plan.Launch(
        f,
        {.blocks = std::min<int64_t>(
             BlocksFor(std::max<int64_t>(1, s.added.elements * bytes), 16 * 256), INT32_MAX),
         .threads = 256},
        p,
        {{&p.cache, Operand(0)},
         {&p.added, Operand(1)},
         {&p.position, Operand(2)},
         {&p.table, Operand(3)},
         {&p.y, Result(0)},
         {&p.reporter, Reports()}});
    return absl::OkStatus();
  }
  // As many as a device holds, which take elements in turn: whether the cache is updated where it
  // is, and so how many there are, is known when it runs.
  const int64_t blocks = std::min<int64_t>(BlocksFor(s.y.elements * bytes, 16 * 256),
                                           int64_t{8} * call.multiprocessors());
  plan.Launch(f, {.blocks = blocks, .threads = 256}, p,
              {{&p.cache, Operand(0)},
               {&p.added, Operand(1)},
               {&p.position, Operand(2)},
               {&p.y, Result(0)},
               {&p.reporter, Reports()}});
  return absl::OkStatus();
}

}  // namespace

void AddKvAppendGpu(VariantTable& table, const std::shared_ptr<Code>& code) {
  AddGpu(table, code, "kv_append",
         {.flags = OPW_DETERMINISTIC | OPW_CONTIGUOUS | OPW_INPLACE, .plan = PlanAppend});
}

}  // namespace opwire::gpu::attention
