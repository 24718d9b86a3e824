// Includes in place.
#include "kernels/jit/gpu_text.h"

#include <algorithm>

#include "kernels/embedded.h"

namespace opwire::jit {
namespace {

std::string_view GpuSource(std::string_view path) {
  for (const EmbeddedFile& f : GpuSources()) {
    if (f.path == path) return f.text;
  }
  return {};
}

}  // namespace

void AppendGpuSource(std::string_view file, std::set<std::string, std::less<>>& seen,
                     std::string& out) {
  if (!seen.emplace(file).second) return;
  std::string_view text = GpuSource(file);
  constexpr std::string_view kInclude = "#include \"";
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with(kInclude)) {
      const std::string_view name = line.substr(kInclude.size());
      AppendGpuSource(name.substr(0, name.find('"')), seen, out);
    } else {
      out += line;
      out += '\n';
    }
  }
}

}  // namespace opwire::jit
