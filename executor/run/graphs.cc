// Cutting steps into segments.
#include "executor/run/graphs.h"

namespace opwire {
namespace {

constexpr uint64_t kMostNanos = 2'000'000;  // of a segment, by what steps are expected to take

}  // namespace

Graphs::Graphs(Device& device, const Instance& instance, bool ran) : device_(device), instance_(instance) {
  uint64_t takes = 0;
  for (uint32_t i = 0; i < instance.steps().size(); ++i) {
    const Step& step = instance.steps()[i];
    const uint32_t cost = step.cost_ns;
    if (segments_.empty() || takes + cost > kMostNanos || !step.captures || !segments_.back().captures) {
      segments_.push_back({i, i, step.captures, ran, std::nullopt});
      takes = 0;
    }
    takes += cost;
    segments_.back().end = i + 1;
    segment_of_.push_back(static_cast<uint32_t>(segments_.size() - 1));
  }
}

Graphs::~Graphs() {
  for (const Segment& s : segments_) {
    if (s.graph) device_.DestroyGraph(*s.graph);
  }
}

}  // namespace opwire
