// Binding and packing.
#include "executor/run/packed_operands.h"

#include <algorithm>

namespace opwire {
namespace {

constexpr int64_t kBytesAtOnce = int64_t{4} << 20;

}  // namespace

void PackedOperands::Bind(Instance& instance, absl::FunctionRef<void*(int)> data_of, absl::FunctionRef<const BufferRef*(int)> block_of) {
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
  std::ranges::reverse(wanted_);
}

void PackedOperands::Work(Instance& instance, PackedCopies& copies, Device& device) {
  Wanted& w = wanted_.back();
  const Packable& p = instance.packables()[w.operand];
  const auto bind = [&](std::shared_ptr<const PackedCopy> copy) {
    instance.BindPackable(w.operand, copy->data(), /*packed=*/true);
    held_.push_back(std::move(copy));
  };
  // Another step, or another run meanwhile, may have had it packed.
  if (auto copy = PackedCopies::Of(w.block, *p.packing, *p.tensor)) {
    bind(std::move(copy));
    wanted_.pop_back();
    return;
  }
  if (!w.copy) w.copy = copies.Take(*p.packing, *p.tensor);
  if (!w.copy) {
    wanted_.pop_back();
    return;
  }
  const Packing::Size size = p.packing->size(*p.tensor);
  struct Job {
    const Packable& p;
    void* to;
    int64_t first;
  } job{p, w.copy->data(), w.done};
  const int64_t n = std::min(size.pieces - w.done, std::max<int64_t>(1, kBytesAtOnce / size.bytes));
  opw_runtime* const runtime = device.runtime();
  runtime->parallel_for(
      runtime, n, std::max<int64_t>(1, n / (4 * runtime->threads)),
      [](void* context, int64_t begin, int64_t end) {
        const Job& j = *static_cast<const Job*>(context);
        j.p.packing->pack(*j.p.tensor, j.first + begin, j.first + end, j.to);
      },
      &job);
  if (device.stop().load(std::memory_order_relaxed) != 0) return;  // ranges may have been left out
  w.done += n;
  if (w.done < size.pieces) return;
  PackedCopies::Keep(w.copy, w.block);
  bind(std::move(w.copy));
  wanted_.pop_back();
}

void PackedOperands::End() {
  held_.clear();
  wanted_.clear();
}

}  // namespace opwire
