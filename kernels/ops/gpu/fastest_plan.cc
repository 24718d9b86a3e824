// Runs each plan on separate memory.
#include "kernels/ops/gpu/fastest_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/jit/digest.h"
#include "kernels/ops/gpu/tune.h"

namespace opwire::gpu {
namespace {

constexpr int64_t kMostTuned = int64_t{4} << 30;  // bytes of memory to measure in

// Bytes from a tensor's first element to the end of its last.
int64_t SpanOf(const opw_tensor& t) {
  int64_t last = 0;
  for (int a = 0; a < t.rank; ++a) last += (t.shape[a] - 1) * t.strides[a];
  return t.elements == 0 ? 0 : (last + 1) * DTypeBytes(static_cast<DType>(t.dtype));
}

}  // namespace

std::string KeyOf(std::string_view kind, std::string_view text,
                  std::span<const opw_tensor* const> tensors) {
  std::string sizes;
  for (const opw_tensor* t : tensors)
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ",",
                         std::bit_width(static_cast<uint64_t>(t->elements)));
  return fmt::format("{} {} [{}]", kind, jit::Sha256(std::string(text)).substr(0, 32), sizes);
}

int FastestPlan(Code& code, const OpDef& row, const opw_call* c, const TuningCandidates& candidates,
                const std::function<Status(int way, Plan& plan)>& plan_of) {
  if (code.choices() == nullptr) return 0;
  std::vector<opw_tensor> operands(c->operands, c->operands + c->starts[row.operands.size()]),
      results(c->results, c->results + row.CountResults(c->starts));
  std::vector<Scratch> scratch;
  int64_t bytes = 0;
  for (const std::vector<opw_tensor>* list : {&operands, &results}) {
    for (const opw_tensor& t : *list)
      bytes += scratch.emplace_back(static_cast<DType>(t.dtype), SpanOf(t)).bytes;
  }
  if (bytes < candidates.least_bytes || bytes > kMostTuned) return 0;
  const std::string key = candidates.key();
  if (const std::optional<int> known = KnownWay(code, key, candidates.count))
    return *known;  // the other ways' kernels are not compiled then
  std::vector<std::unique_ptr<Plan>> plans;
  std::vector<Status> planned;
  int64_t workspace = 1;
  for (int way = 0; way < candidates.count; ++way) {
    planned.push_back(
        plan_of(way, *plans.emplace_back(std::make_unique<Plan>(code.device(), row, c))));
    workspace = std::max(workspace, plans.back()->workspace_bytes());
  }
  scratch.emplace_back(DType::kU8, workspace);
  return FastestOf(code, key, candidates.count, scratch,
                   [&](int way, std::span<char* const> memory) -> Status {
                     OPWIRE_RETURN_IF_ERROR(planned[static_cast<size_t>(way)]);
                     size_t next = 0;
                     for (opw_tensor& t : operands) t.data = memory[next++];
                     for (opw_tensor& t : results) t.data = memory[next++];
                     opw_call own = *c;
                     own.operands = operands.data(), own.results = results.data(),
                     own.workspace = memory[next], own.workspace_bytes = workspace;
                     return plans[static_cast<size_t>(way)]->Run(&own);
                   });
}

}  // namespace opwire::gpu
