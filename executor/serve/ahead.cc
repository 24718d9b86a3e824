// One thread for the list, and further threads that wait for compilers.
#include "executor/serve/ahead.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/base/json.h"
#include "ir/wire/clock.h"
#include "ir/wire/log.h"

namespace opwire::executor {
namespace {

constexpr int kNice = 10;  // runs come first, and ops that users wait for

constexpr std::string_view NameOf(AheadBuild::State state) {
  switch (state) {
    case AheadBuild::State::kOff:
      return "off";
    case AheadBuild::State::kCompiling:
      return "compiling";
    case AheadBuild::State::kReady:
      return "ready";
    case AheadBuild::State::kIncomplete:
      return "incomplete";
  }
  return "";
}

double SecondsSince(Nanos began) { return static_cast<double>(MonotonicNow() - began) / kSecond; }

}  // namespace

AheadBuild::AheadBuild(std::string reason) { progress_.reason = std::move(reason); }

AheadBuild::AheadBuild(std::shared_ptr<gpu::Code> code, Units units)
    : code_(std::move(code)), units_(std::move(units)) {}

AheadBuild::~AheadBuild() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

void AheadBuild::Start(int processes) {
  if (!code_) return;
  std::lock_guard lock(mutex_);
  began_ = MonotonicNow();
  progress_.state = State::kCompiling;
  thread_ = std::thread([this, processes] { Run(processes); });
}

bool AheadBuild::Settled() const {
  std::lock_guard lock(mutex_);
  return progress_.state != State::kCompiling;
}

AheadBuild::Progress AheadBuild::progress() const {
  std::lock_guard lock(mutex_);
  Progress now = progress_;
  if (now.state == State::kCompiling) now.seconds = SecondsSince(began_);
  return now;
}

std::string AheadBuild::Facts() const {
  const Progress p = progress();
  return DumpJson({{"state", NameOf(p.state)},
                   {"kernels", p.kernels},
                   {"ready", p.ready},
                   {"units", p.units},
                   {"cached_units", p.cached_units},
                   {"seconds", p.seconds},
                   {"reason", p.reason}});
}

// The processes that compile have the priority of the threads that start them.
void AheadBuild::Run(int processes) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
  const StatusOr<std::vector<gpu::AheadUnit>> units = units_();
  if (!units.ok()) return Finish(units.status());
  {
    std::lock_guard lock(mutex_);
    progress_.units = units->size();
    for (const gpu::AheadUnit& unit : *units) progress_.kernels += unit.size();
  }
  std::vector<std::thread> others;  // they have the priority of this thread
  for (size_t i = 1; i < std::min(units->size(), static_cast<size_t>(std::max(processes, 1))); ++i)
    others.emplace_back([&] { Compile(*units); });
  Compile(*units);
  for (std::thread& t : others) t.join();
  Finish(absl::OkStatus());
}

void AheadBuild::Compile(const std::vector<gpu::AheadUnit>& units) {
  for (size_t u; !ended_ && (u = next_++) < units.size();) {
    const StatusOr<jit::CacheEntry> entry = code_->Prepare(units[u]);
    std::lock_guard lock(mutex_);
    if (entry.ok()) {
      progress_.ready += units[u].size();
      progress_.cached_units += !entry->built;
      continue;
    }
    if (progress_.reason.empty()) progress_.reason = MessageOf(entry.status());
    if (absl::IsFailedPrecondition(entry.status())) return;  // there is no compiler, or no cache
  }
}

void AheadBuild::Finish(const Status& failure) {
  std::lock_guard lock(mutex_);
  Progress& p = progress_;
  if (!failure.ok()) p.reason = MessageOf(failure);
  p.seconds = SecondsSince(began_);
  p.state = p.reason.empty() && p.ready == p.kernels ? State::kReady : State::kIncomplete;
  if (ended_) return;
  const std::string ready = fmt::format("{} of {}", p.ready, p.kernels),
                    seconds = fmt::format("{:.2f}", p.seconds);
  if (p.state == State::kReady)
    Log(LogLevel::kInfo, "compiled ahead",
        {{"kernels", ready},
         {"cached_units", fmt::format("{} of {}", p.cached_units, p.units)},
         {"seconds", seconds}});
  else
    Log(LogLevel::kWarning, "not all kernels are compiled ahead",
        {{"kernels", ready}, {"why", p.reason}});
}

}  // namespace opwire::executor
