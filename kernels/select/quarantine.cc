// One line per death. Short appends are atomic, so executors may share the file.
#include "kernels/select/quarantine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "kernels/select/context_file.h"

namespace opwire {
namespace {

constexpr size_t kMaxRecordBytes = 1 << 20;

}  // namespace

Quarantined Quarantine(KernelSet& set, const std::string& directory, std::string_view context,
                       std::string_view died) {
  if (directory.empty()) return {};
  const auto& labels = set.variants.labels();
  const std::string path = directory + "/" + ContextFileName("deaths", context);
  const bool one_more = died == kFusedLabel || std::ranges::find(labels, died) != labels.end();
  if (!one_more && access(path.c_str(), F_OK) != 0) return {};
  const OwnedFd fd = OpenToAppend(path);
  if (one_more) {
    const std::string line = std::string(died) + "\n";
    (void)!write(fd.get(), line.data(), line.size());  // earlier deaths count even if this fails
  }
  std::string text(kMaxRecordBytes, '\0');
  text.resize(
      static_cast<size_t>(std::max<ssize_t>(pread(fd.get(), text.data(), text.size(), 0), 0)));
  std::map<std::string, int, std::less<>> deaths;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
    ++deaths[text.substr(at, end - at)];
  Quarantined out;
  for (const auto& [label, n] : deaths) {
    if (n < kQuarantineDeaths) continue;
    const std::string why = fmt::format(
        "quarantined: executors died in it {} times; remove {} to try it again", n, path);
    if (label != kFusedLabel) {
      set.variants.Withdraw(label, why);
    } else if (set.fuser) {
      set.fuser = nullptr;
      out.why_not_fused = why;
    }
  }
  return out;
}

}  // namespace opwire
