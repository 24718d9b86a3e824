// Ranks executors.
#include "frontend/cpp/placement.h"

#include <algorithm>
#include <iterator>

namespace opwire::client {
namespace {

// Returns why the executor cannot run the program, by its op list; empty: it can.
std::string MissingOp(const ExecutorFacts& e, const Module& program) {
  for (const Function& f : program.functions) {
    for (const Node& n : f.nodes) {
      const auto op = std::find_if(e.ops.begin(), e.ops.end(),
                                   [&](const OpFacts& o) { return o.name == n.op; });
      if (op == e.ops.end()) return fmt::format("it has no op {}", n.op);
      if (op->version < n.version)
        return fmt::format("its {} is version {}, the program's {}", n.op, op->version, n.version);
      if (!n.pin.empty() &&
          std::find(op->variants.begin(), op->variants.end(), n.pin) == op->variants.end()) {
        return fmt::format("it has no variant {}@{}", n.op, n.pin);
      }
    }
  }
  return "";
}

bool Accelerated(const ExecutorFacts& e) { return e.device != "cpu"; }
// Chosen only if the caller asks for it, or there is no other one.
bool ForChecks(const ExecutorFacts& e) { return e.device.starts_with("emu") || e.device == "null"; }

}  // namespace

std::shared_ptr<const OpCatalogue> CatalogueOf(const std::vector<ExecutorFacts>& executors) {
  std::vector<OpDeclaration> declarations;
  for (const ExecutorFacts& e : executors) {
    for (const OpFacts& op : e.ops) {
      auto told = DeclarationsFromJson(op.declaration);
      if (told.ok()) std::move(told->begin(), told->end(), std::back_inserter(declarations));
    }
  }
  return CatalogueOf(declarations);
}

std::vector<PlacementCandidate> Place(const std::vector<ExecutorFacts>& executors,
                                      const SessionOptions& options) {
  std::vector<PlacementCandidate> out;
  for (const ExecutorFacts& e : executors) {
    PlacementCandidate c{&e, false, "", absl::StatusCode::kUnavailable};
    const std::string kind = e.device.substr(0, e.device.find(':'));
    if (!options.device.empty() && options.device != e.device && options.device != kind &&
        options.device != e.id) {
      c.reason = fmt::format("it is {}, not {}", e.device, options.device);
    } else if (!options.label.empty() &&
               std::find(e.labels.begin(), e.labels.end(), options.label) == e.labels.end()) {
      c.reason = fmt::format("it lacks the label {}", options.label);
    } else if (options.memory_bytes > e.free_memory) {
      c.reason = fmt::format("it has {} bytes free of the {} asked for", e.free_memory,
                             options.memory_bytes);
      c.code = absl::StatusCode::kResourceExhausted;
    } else if (options.program) {
      c.reason = MissingOp(e, *options.program);
    }
    c.fits = c.reason.empty();
    out.push_back(std::move(c));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const PlacementCandidate& a, const PlacementCandidate& b) {
                     if (a.fits != b.fits) return a.fits;
                     const ExecutorFacts &x = *a.executor, &y = *b.executor;
                     if (ForChecks(x) != ForChecks(y)) return ForChecks(y);
                     const bool idle_x = x.busy_ms == 0 && x.queued == 0,
                                idle_y = y.busy_ms == 0 && y.queued == 0;
                     if (idle_x != idle_y) return idle_x;
                     if (Accelerated(x) != Accelerated(y)) return Accelerated(x);
                     if (x.queued_ns != y.queued_ns) return x.queued_ns < y.queued_ns;
                     if (x.queued != y.queued) return x.queued < y.queued;
                     if (x.sessions != y.sessions) return x.sessions < y.sessions;
                     return x.free_memory > y.free_memory;
                   });
  bool first = true;
  for (PlacementCandidate& c : out) {
    if (!c.fits) continue;
    c.reason = fmt::format(
        "{}{}, {} queued, {} sessions", first ? "chosen: " : "",
        c.executor->busy_ms ? fmt::format("busy for {} ms", c.executor->busy_ms) : "idle",
        c.executor->queued, c.executor->sessions);
    first = false;
  }
  return out;
}

}  // namespace opwire::client
