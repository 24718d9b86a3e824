// Binding and packing.
#include "executor/run/packed_operands.h"

#include <algorithm>

namespace opwire::executor {
namespace {

constexpr int64_t kBytesAtOnce = int64_t{4} << 20;

}  // namespace

void PackedOperands::Bind(Instance& instance, absl::FunctionRef<void*(int)> data_of,
                          absl::FunctionRef<const BufferRef*(int)> block_of) {
  for (size_t i = 0; i < instance.packables().size(); ++i) {
    const Packable& p = instance.packables()[i];
    instance.BindPackable(i, data_of(p.param), /*packed=*/false);
    const BufferRef* const block = block_of(p.param);
    if (!block) continue;
    if (auto copy = PackedCopies::Of(*block, *p.packing, *p.tensor)) {
      instance.BindPackable(i, copy->data(), /*packed=*/true);
      held_.push_back(std::move(copy));
    } else if (PackedCopies::Pays(*block, p.often)) {
      wanted_.push_back({i, *block});
    }
  }
}

bool PackedOperands::Wanted(const Instance& instance, uint32_t step) const {
  const auto at = std::ranges::lower_bound(
      wanted_, step, {}, [&](const Operand& o) { return instance.packables()[o.number].step; });
  return at != wanted_.end() && instance.packables()[at->number].step == step;
}

void PackedOperands::Work(Instance& instance, uint32_t step, PackedCopies& copies, Device& device) {
  const auto at = std::ranges::lower_bound(
      wanted_, step, {}, [&](const Operand& o) { return instance.packables()[o.number].step; });
  const Packable& p = instance.packables()[at->number];
  const std::shared_ptr<PackedCopy> copy = copies.Make(at->block, *p.packing, *p.tensor);
  if (!copy) {
    wanted_.erase(at);
    return;
  }
  struct Job {
    const Packable& p;
    void* to;
    int64_t first;
  } job{p, copy->data(), copy->done()};
  const int64_t n = std::min(copy->pieces() - copy->done(),
                             std::max<int64_t>(1, kBytesAtOnce / p.packing->size(*p.tensor).bytes));
  opw_runtime* const runtime = device.runtime();
  runtime->parallel_for(
      runtime, n, std::max<int64_t>(1, n / (4 * runtime->threads)),
      [](void* context, int64_t begin, int64_t end) {
        const Job& j = *static_cast<const Job*>(context);
        j.p.packing->pack(*j.p.tensor, j.first + begin, j.first + end, j.to);
      },
      &job);
  if (device.stop().load(std::memory_order_relaxed) != 0) return;  // ranges may have been left out
  copy->Add(n);
  if (copy->done() < copy->pieces()) return;
  instance.BindPackable(at->number, copy->data(), /*packed=*/true);
  held_.push_back(copy);
  wanted_.erase(at);
}

void PackedOperands::End() {
  held_.clear();
  wanted_.clear();
}

}  // namespace opwire::executor
