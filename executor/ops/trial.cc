// Both sides of a trial.
#include "executor/ops/trial.h"

#include <unistd.h>

#include <csignal>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "executor/ops/guarded.h"
#include "ir/base/json.h"
#include "ir/ops/names.h"
#include "kernels/jit/library.h"
#include "kernels/jit/process.h"
#include "kernels/ops/gpu/user_kernel.h"

namespace opwire::executor {
namespace {

using nlohmann::json;

json Report(const CheckReport& r) {
  json measurements = json::array();
  for (const Measurement& m : r.measurements) {
    measurements.push_back({{"what", m.what},
                            {"seconds", m.seconds},
                            {"reference", m.reference_seconds},
                            {"copy", m.copy_seconds},
                            {"bytes", m.bytes}});
  }
  return {{"cases", r.cases},
          {"refused", r.refused},
          {"worst", r.worst},
          {"measurements", measurements}};
}

StatusOr<CheckReport> ReadReport(const std::string& text) {
  const json j = ParseJson(text);
  if (!j.is_object()) return FailedPrecondition("it ended in the middle of its report");
  if (j.contains("failure")) return FailedPrecondition("{}", j.value("failure", ""));
  if (j.contains("problem")) return Internal("{}", j.value("problem", ""));
  CheckReport r;
  r.cases = j.value("cases", 0);
  r.refused = j.value("refused", 0);
  r.worst = j.value("worst", std::vector<std::string>());
  for (const json& m : j.value("measurements", json::array())) {
    r.measurements.push_back({m.value("what", ""), m.value("seconds", 0.0),
                              m.value("reference", 0.0), m.value("copy", 0.0),
                              m.value("bytes", int64_t{0})});
  }
  return r;
}

StatusOr<std::shared_ptr<const jit::Library>> Load(const std::string& name,
                                                   const std::string& object, int report) {
  FaultReporter faults(report);
  FaultReporter::Watched watched(faults, name + ": while it was loaded", {});
  return jit::Library::Open(object);
}

StatusOr<CheckReport> Try(const json& request, int report) {
  OPWIRE_ASSIGN_OR_RETURN(const jit::OpManifest op, jit::ReadManifest(request.value("folder", "")));
  const std::string name = request.value("variant", "");
  const auto variant = std::ranges::find_if(
      op.variants, [&](const jit::OpVariantSpec& v) { return v.name == name; });
  if (variant == op.variants.end()) return NotFound("{} has no variant {}", op.name(), name);
  OPWIRE_ASSIGN_OR_RETURN(const auto host, OpenDevice("cpu", {}));
  const auto builtin =
      std::make_shared<const KernelSet>(KernelSet{.variants = BuildVariantTable(*host)});
  const std::string object = request.value("object", ""),
                    device_spec = request.value("device", "cpu");
  const CheckOptions options{request.value("thorough", false), request.value("measure", false),
                             request.value("seed", uint64_t{1}), report};
  if (device_spec == "cpu") {
    OPWIRE_ASSIGN_OR_RETURN(const auto library,
                            Load(fmt::format("{}@{}", op.name(), name), object, report));
    return CheckKernel(op, *variant, library->kernel(), {*host, *host, builtin}, options);
  }
  auto device = OpenDevice(device_spec, {});
  if (!device.ok()) return Internal("it cannot be tried: {}", MessageOf(device.status()));
  OPWIRE_ASSIGN_OR_RETURN(const auto kernel, gpu::UserKernel::Load(op, *variant, object, **device));
  return CheckKernel(op, *variant, kernel->kernel(), {**device, *host, builtin}, options);
}

// What libraries it needs is the user's affair; the rest is how a GPU and its driver are found.
std::vector<std::string> Environment(bool gpu) {
  constexpr std::string_view kBeginnings[] = {
      "LD_LIBRARY_PATH=", "OPWIRE_", "CUDA_", "HIP_", "ROCR_", "TMPDIR="};
  const auto beginnings = std::span(kBeginnings).first(gpu ? std::size(kBeginnings) : 1);
  std::vector<std::string> out;
  for (char** e = environ; *e; ++e) {
    if (std::ranges::any_of(
            beginnings, [&](std::string_view b) { return std::string_view(*e).starts_with(b); }))
      out.emplace_back(*e);
  }
  return out;
}

}  // namespace

StatusOr<CheckReport> TryKernel(const std::string& folder, const std::string& variant,
                                const std::string& object, const TrialOptions& options) {
  const json request{{"folder", folder},
                     {"variant", variant},
                     {"object", object},
                     {"device", options.device},
                     {"thorough", options.check.thorough},
                     {"measure", options.check.measure},
                     {"seed", options.check.seed}};
  const jit::ProcessOptions process{.argv = {options.worker, "--try-op"},
                                    .input = DumpJson(request),
                                    .environment = Environment(options.device != "cpu"),
                                    .seconds = options.seconds};
  OPWIRE_ASSIGN_OR_RETURN(const jit::ProcessResult result, jit::RunProcess(process));
  if (result.signal == SIGKILL && !result.timed_out)
    return Internal("the trial of {} was killed", variant);  // by whom is not the kernel's affair
  if (result.timed_out)
    return FailedPrecondition("{} did not return within {} s", variant, options.seconds);
  if (!result.output.empty()) return ReadReport(result.output);
  return FailedPrecondition("its process ended with {}{}", result.Describe(),
                            result.errors.empty() ? "" : ": " + Clip(result.errors, 256));
}

int TrialMain() {
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  const json request = ParseJson(input);
  if (!request.is_object()) return 2;
  // Standard output is for the report alone: what a kernel prints goes where errors go.
  const int out = dup(STDOUT_FILENO);
  if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 2;
  const StatusOr<CheckReport> report = Try(request, out);
  const bool of_machine =
      absl::IsInternal(report.status()) || absl::IsResourceExhausted(report.status());
  const std::string text =
      report.ok() ? DumpJson(Report(*report))
                  : DumpJson({{of_machine ? "problem" : "failure", MessageOf(report.status())}});
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(out, text.data() + at, text.size() - at);
    if (n <= 0) return 2;
    at += static_cast<size_t>(n);
  }
  return report.ok() ? 0 : 1;
}

}  // namespace opwire::executor
