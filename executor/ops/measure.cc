// Medians of repeated calls, on inputs that are in no cache.
#include "executor/ops/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>

#include "executor/ops/zoned_buffer.h"
#include "ir/ops/extents.h"
#include "kernels/select/failure.h"

namespace opwire::executor {
namespace {

constexpr int64_t kBenchElements = int64_t{1} << 22;

// Seconds.
template <typename F>
double Median(const F& f) {
  std::vector<double> seconds;
  double total = 0;
  f();
  while (seconds.size() < 5 || (total < 0.1 && seconds.size() < 200)) {
    const auto begun = std::chrono::steady_clock::now();
    f();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    total += seconds.back();
  }
  std::ranges::nth_element(seconds, seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2));
  return seconds[seconds.size() / 2];
}

// The manifest's sizes, or default ones.
StatusOr<jit::OpCase> CaseOf(const jit::OpManifest& op) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExtentNames(op.declaration));
  jit::OpCase c = op.bench;
  if (c.extents.empty() && c.leading.empty()) {
    const auto each = static_cast<int64_t>(
        std::pow(static_cast<double>(kBenchElements),
                 1.0 / static_cast<double>(std::max<size_t>(names.size(), 1))));
    for (const std::string& name : names) {
      if (name == "...")
        c.leading = {each};
      else
        c.extents[name] = each;
    }
  }
  if (c.attrs.empty()) {
    OPWIRE_ASSIGN_OR_RETURN(const std::vector<jit::OpCase> cases, CasesOf(op, /*thorough=*/false));
    c.attrs = cases.back().attrs;
  }
  return c;
}

int64_t BytesOf(const opw_tensor& t) {
  return t.elements * DTypeBytes(static_cast<DType>(t.dtype));
}

// Seconds of a call on a GPU. Waits only after 16 calls, so that the wait is a small part of the
// time.
StatusOr<double> SecondsOnDevice(Device& device, const std::function<Status()>& call) {
  constexpr int kCalls = 16;
  Status status;
  const double seconds = Median([&] {
    for (int i = 0; i < kCalls && status.ok(); ++i) status = call();
    if (status.ok()) status = device.Synchronize();
  });
  if (!status.ok()) return status;
  return seconds / kCalls;
}

StatusOr<Measurement> MeasureOnDevice(OpUnderTrial& trial, BoundOp& b,
                                      const std::vector<std::vector<uint8_t>>& inputs,
                                      Measurement m) {
  Device& device = trial.device();
  std::vector<ZonedBuffer> buffers;
  const auto add = [&](int64_t bytes) -> StatusOr<void*> {
    OPWIRE_ASSIGN_OR_RETURN(ZonedBuffer buffer,
                            ZonedBuffer::Make(device, "memory", bytes, 64, Guard::kBefore));
    buffers.push_back(std::move(buffer));
    return buffers.back().data();
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    OPWIRE_ASSIGN_OR_RETURN(void* const data, add(static_cast<int64_t>(inputs[i].size())));
    OPWIRE_RETURN_IF_ERROR(buffers.back().Fill(inputs[i]));
    b.instance->BindParam(static_cast<int>(i), data);
  }
  for (size_t r = 0; r < trial.op().row.results.size(); ++r) {
    OPWIRE_ASSIGN_OR_RETURN(void* const data, add(BytesOf(b.step().call.results[r])));
    b.instance->BindResult(static_cast<int>(r), data);
  }
  OPWIRE_ASSIGN_OR_RETURN(void* const scratch, add(b.instance->scratch_bytes()));
  b.instance->BindScratch(static_cast<uint8_t*>(scratch));
  OPWIRE_ASSIGN_OR_RETURN(void* const from, add(m.bytes / 2));
  OPWIRE_ASSIGN_OR_RETURN(void* const to, add(m.bytes / 2));
  OPWIRE_ASSIGN_OR_RETURN(m.seconds, SecondsOnDevice(device, [&] {
                            return b.step().run(&b.step().call) == OPW_OK ? absl::OkStatus()
                                                                          : TakeFailure();
                          }));
  OPWIRE_ASSIGN_OR_RETURN(m.copy_seconds, SecondsOnDevice(device, [&] {
                            return device.Copy(to, from, m.bytes / 2, 0);
                          }));
  return m;
}

}  // namespace

StatusOr<std::optional<Measurement>> Measure(OpUnderTrial& trial, const TypeBinding& types,
                                             std::mt19937_64& random, FaultReporter& faults) {
  const jit::OpManifest& op = trial.op();
  OPWIRE_ASSIGN_OR_RETURN(const jit::OpCase c, CaseOf(op));
  OPWIRE_ASSIGN_OR_RETURN(std::optional<BoundOp> own,
                          trial.Bind(types, c, trial.variant().name, faults));
  if (!own) return std::optional<Measurement>();
  Measurement m{.what = own->what};
  std::vector<std::vector<uint8_t>> inputs, outputs;
  for (size_t i = 0; i < own->shapes.size(); ++i) {
    inputs.push_back(trial.RandomInput(*own, i, Values::kOrdinary, random));
    m.bytes += static_cast<int64_t>(inputs.back().size());
  }
  for (size_t r = 0; r < op.row.results.size(); ++r)
    m.bytes += BytesOf(own->step().call.results[r]);
  if (!trial.on_host()) return MeasureOnDevice(trial, *own, inputs, std::move(m));
  OPWIRE_ASSIGN_OR_RETURN(std::optional<BoundOp> reference,
                          trial.Bind(types, c, "reference", faults));
  const auto run = [&](BoundOp& b) {
    std::vector<uint64_t> scratch(static_cast<size_t>(b.instance->scratch_bytes()) / 8 + 16);
    b.instance->BindScratch(
        reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64));
    for (size_t i = 0; i < inputs.size(); ++i)
      b.instance->BindParam(static_cast<int>(i), inputs[i].data());
    for (size_t r = 0; r < outputs.size(); ++r)
      b.instance->BindResult(static_cast<int>(r), outputs[r].data());
    return Median([&] { (void)b.step().run(&b.step().call); });
  };
  for (size_t r = 0; r < op.row.results.size(); ++r) {
    outputs.emplace_back(static_cast<size_t>(BytesOf(own->step().call.results[r])));
  }
  FaultReporter::Watched watched(
      faults, fmt::format("{}, {}: while it was measured", trial.Label(), m.what), {});
  m.seconds = run(*own);
  if (reference) m.reference_seconds = run(*reference);
  std::vector<uint8_t> from(static_cast<size_t>(m.bytes / 2), 1), to(from.size());
  struct Copy {
    uint8_t* to;
    const uint8_t* from;
  } copy{to.data(), from.data()};
  opw_runtime* const runtime = trial.device().runtime();
  m.copy_seconds = Median([&] {
    runtime->parallel_for(
        runtime, static_cast<int64_t>(from.size()), 1 << 18,
        [](void* context, int64_t begin, int64_t end) {
          const Copy& c = *static_cast<Copy*>(context);
          std::memcpy(c.to + begin, c.from + begin, static_cast<size_t>(end - begin));
        },
        &copy);
  });
  return std::optional(std::move(m));
}

}  // namespace opwire::executor
