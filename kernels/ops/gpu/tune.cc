// Measures ways in turn, by the host's clock around launches that are waited for together.
#include "kernels/ops/gpu/tune.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <random>

#include "ir/base/element.h"
#include "kernels/select/choices.h"

namespace opwire::gpu {
namespace {

constexpr int kRounds = 3;
constexpr double kNotably = 0.98;     // of way 0's time
constexpr double kRoundNs = 300'000;  // per way, at least

double Now() {
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Random numbers, repeated: a library's kernels take longer with them than with zeros.
Status Fill(GpuDevice& device, char* to, const Scratch& s) {
  constexpr int64_t kPiece = 1 << 20;
  const int64_t each = DTypeBytes(s.dtype), first = std::min(s.bytes, kPiece) / each * each;
  std::vector<char> piece(static_cast<size_t>(first));
  std::minstd_rand random(1);
  for (int64_t at = 0; at < first; at += each) {
    const uint64_t bits =
        ElementBits(s.dtype, static_cast<double>(random()) / (random.max() / 2.0) - 1);
    std::copy_n(reinterpret_cast<const char*>(&bits), each, piece.data() + at);
  }
  OPWIRE_RETURN_IF_ERROR(device.Copy(to, piece.data(), first, 0));
  OPWIRE_RETURN_IF_ERROR(device.Synchronize());
  for (int64_t done = first; first > 0 && done < s.bytes; done *= 2)
    OPWIRE_RETURN_IF_ERROR(device.Copy(to + done, to, std::min(done, s.bytes - done), 0));
  return absl::OkStatus();
}

// Returns the time of a launch in nanoseconds.
StatusOr<double> Time(GpuDevice& device, const std::function<Status()>& launch, int launches) {
  const double begun = Now();
  for (int i = 0; i < launches; ++i) OPWIRE_RETURN_IF_ERROR(launch());
  OPWIRE_RETURN_IF_ERROR(device.Synchronize());
  return (Now() - begun) / launches;
}

int WayOf(const Choice& c, int ways) {
  int way = 0;
  const std::string& name = c.order.front().first;
  std::from_chars(name.data(), name.data() + name.size(), way);
  return way >= 0 && way < ways ? way : 0;
}

}  // namespace

std::optional<int> KnownWay(const Code& code, const std::string& key, int ways) {
  const Choice* const known = code.choices() == nullptr ? nullptr : code.choices()->Find(key);
  return known == nullptr ? std::nullopt : std::optional(WayOf(*known, ways));
}

int FastestOf(Code& code, const std::string& key, int ways, const std::vector<Scratch>& scratch,
              const std::function<Status(int, std::span<char* const>)>& launch) {
  if (code.choices() == nullptr || ways < 2) return 0;
  if (const std::optional<int> known = KnownWay(code, key, ways)) return *known;
  GpuDevice& device = code.device();
  std::vector<std::unique_ptr<char, std::function<void(char*)>>> owners;
  std::vector<char*> memory;
  if (!device.Synchronize().ok()) return 0;
  for (const Scratch& s : scratch) {
    const StatusOr<void*> block =
        device.Allocate(std::max<int64_t>(s.bytes, 1), MemoryKind::kDevice);
    if (!block.ok()) return 0;
    owners.emplace_back(static_cast<char*>(*block), [&device](char* p) { device.Free(p); });
    memory.push_back(owners.back().get());
    if (!Fill(device, memory.back(), s).ok()) return 0;
  }
  std::vector<double> best(static_cast<size_t>(ways), 1e18);
  std::vector<int> launches(best.size(), 1);
  for (int round = 0; round <= kRounds; ++round) {
    for (size_t way = 0; way < best.size(); ++way) {
      if (launches[way] == 0) continue;
      const StatusOr<double> ns = Time(
          device, [&] { return launch(static_cast<int>(way), memory); }, launches[way]);
      if (!ns.ok())
        launches[way] = 0, best[way] = 1e18;
      else if (round == 0)
        launches[way] =
            static_cast<int>(std::clamp(kRoundNs / *ns, 2.0, 50.0));  // the first run warms up
      else
        best[way] = std::min(best[way], *ns);
    }
  }
  size_t fastest = static_cast<size_t>(std::ranges::min_element(best) - best.begin());
  if (best[fastest] == 1e18) return 0;
  if (best[fastest] > kNotably * best[0]) fastest = 0;
  Choice choice{{{std::to_string(fastest), best[fastest]}}};
  if (fastest != 0) choice.order.emplace_back("0", best[0]);
  return WayOf(*code.choices()->Keep(key, std::move(choice)), ways);
}

}  // namespace opwire::gpu
