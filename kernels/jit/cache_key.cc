// Fields are added to the digests in a fixed order, each with its length, after the version of that
// order.
#include "kernels/jit/cache_key.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>

#include "kernels/abi.h"
#include "kernels/embedded.h"
#include "kernels/jit/digest.h"

namespace opwire::jit {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kKeyVersion = 1;
constexpr std::string_view kListTitle = "opwire headers 1\n";
constexpr int64_t kClockGrainNs = 10'000'000;  // file times advance by steps of up to 10 ms

// Names in the folder that an #include may refer to.
std::vector<std::string> HeaderNames(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const fs::path name = entry.path().filename();
    const std::string extension = name.extension();
    if (extension.empty() || extension.starts_with(".h") || extension == ".inc")
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

const std::string& OurHeaders() {
  static const std::string hex = [] {
    Digest digest;
    digest.Add(int64_t{OPW_ABI_VERSION});
    for (const EmbeddedFile& header : CompiledHeaders()) digest.Add(header.text);
    return digest.Hex();
  }();
  return hex;
}

StatusOr<Header> ReadHeader(const std::string& path) {
  const std::optional<FileStamp> before = StampOf(path);
  OPWIRE_ASSIGN_OR_RETURN(std::string sha256, Sha256OfFile(path));
  if (!before) return NotFound("{}: the file was removed", path);
  const bool settled = before->changed_ns + kClockGrainNs < RealTimeNs();
  return Header{path, settled ? *before : FileStamp{}, std::move(sha256)};
}

// Reads a number and the blank after it.
bool TakeNumber(std::string_view& line, int64_t& number) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || end == line.data() + line.size() || *end != ' ') return false;
  line.remove_prefix(static_cast<size_t>(end - line.data()) + 1);
  return true;
}

}  // namespace

int64_t RealTimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

StatusOr<UnitKey> UnitOf(const ToolchainFacts& facts, const CompileRequest& request) {
  Digest content;
  content.Add(kKeyVersion)
      .Add(std::string_view(OurHeaders()))
      .Add(std::string_view(facts.identity))
      .Add(std::string_view(request.arch))
      .Add(std::string_view(request.judged_by));
  content.Add(request.flags)
      .Add(request.libraries)
      .Add(std::string_view(request.text))
      .Add(request.sources);
  for (const std::string& source : request.sources) {
    auto bytes = ReadFile(request.directory + "/" + source);
    if (!bytes.ok())
      return Status(bytes.status().code(),
                    fmt::format("{}: {}", request.name, MessageOf(bytes.status())));
    content.Add(std::string_view(*bytes));
  }
  UnitKey key;
  key.content = content.Hex();
  Digest unit;
  unit.Add(std::string_view(key.content));
  if (!request.directory.empty())
    unit.Add(std::string_view(fs::absolute(request.directory).native()))
        .Add(HeaderNames(request.directory));
  key.unit = unit.Hex();
  return key;
}

StatusOr<std::vector<Header>> ReadHeaders(const std::vector<std::string>& paths, int64_t begun_ns) {
  std::vector<Header> headers;
  for (const std::string& path : paths) {
    OPWIRE_ASSIGN_OR_RETURN(Header header, ReadHeader(path));
    const std::optional<FileStamp> stamp = StampOf(path);
    if (!stamp || stamp->changed_ns + kClockGrainNs >= begun_ns)
      return Aborted("{}: changed while it was compiled", path);
    headers.push_back(std::move(header));
  }
  return headers;
}

std::optional<std::vector<Header>> Refresh(std::vector<Header> headers, bool& changed) {
  changed = false;
  for (Header& header : headers) {
    const std::optional<FileStamp> stamp = StampOf(header.path);
    if (stamp && *stamp == header.stamp) continue;
    auto fresh = ReadHeader(header.path);
    if (!fresh.ok()) return std::nullopt;
    header = *std::move(fresh);
    changed = true;
  }
  return headers;
}

std::string KeyOf(const UnitKey& unit, const std::vector<Header>& headers) {
  Digest digest;
  digest.Add(std::string_view(unit.content)).Add(static_cast<int64_t>(headers.size()));
  for (const Header& header : headers) digest.Add(std::string_view(header.sha256));
  return digest.Hex();
}

std::string WriteHeaders(const std::vector<Header>& headers) {
  std::string out(kListTitle);
  for (const Header& h : headers) {
    fmt::format_to(std::back_inserter(out), "{} {} {} {} {}\n", h.stamp.bytes, h.stamp.modified_ns,
                   h.stamp.changed_ns, h.sha256, h.path);
  }
  return out + "end\n";
}

std::optional<std::vector<Header>> ParseHeaders(std::string_view text) {
  constexpr size_t kHexDigits = 64;
  if (!text.starts_with(kListTitle)) return std::nullopt;
  text.remove_prefix(kListTitle.size());
  std::vector<Header> headers;
  while (true) {
    const size_t end = text.find('\n');
    if (end == text.npos) return std::nullopt;
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == "end") return text.empty() ? std::optional(std::move(headers)) : std::nullopt;
    Header h;
    if (!TakeNumber(line, h.stamp.bytes) || !TakeNumber(line, h.stamp.modified_ns) ||
        !TakeNumber(line, h.stamp.changed_ns))
      return std::nullopt;
    if (line.size() < kHexDigits + 2 || line[kHexDigits] != ' ') return std::nullopt;
    h.sha256 = line.substr(0, kHexDigits);
    h.path = line.substr(kHexDigits + 1);
    headers.push_back(std::move(h));
  }
}

}  // namespace opwire::jit
