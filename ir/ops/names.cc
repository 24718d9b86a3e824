// Clipping of client strings and suggestions by edit distance.
#include "ir/ops/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace opwire {
namespace {

// Insertions, deletions, substitutions and swaps of neighbours between a and b, which are short.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before = previous;
    previous = row;
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// The first code point of `text`, which is not empty, and its bytes; 0 bytes: it is not UTF-8.
struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;
};
CodePoint FirstOf(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t value = lead & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<uint8_t>(text[i]);
    if ((next & 0xc0) != 0x80) return {};
    value = value << 6 | (next & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (value < kLeast[bytes] || value > 0x10ffff || surrogate) return {};
  return {value, bytes};
}

// Control characters, separators of lines, and what sets the direction of the text after it
// (Unicode's Bidi_Control).
bool Disturbs(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string Printable(std::string_view text, bool one_line) {
  std::string out;
  while (!text.empty()) {
    const CodePoint c = FirstOf(text);
    const size_t bytes = std::max<size_t>(c.bytes, 1);
    if (c.bytes == 0 || (Disturbs(c.value) && c.value < 0x80 && (one_line || c.value != '\n')))
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
    else if (c.value >= 0x80 && Disturbs(c.value))
      out += fmt::format("\\u{:04x}", c.value);
    else
      out += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return out;
}

std::string Clip(std::string_view text, size_t limit) {
  std::string out;
  for (char c : text.substr(0, limit)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > limit) out += "...";
  return out;
}

bool IsIdentifier(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '.';
  });
}

std::vector<std::string> NearestNames(std::string_view name,
                                      const std::vector<std::string_view>& names) {
  name = name.substr(0, 64);
  const size_t reach = std::max<size_t>(2, name.size() / 3);
  std::vector<std::pair<size_t, std::string_view>> found;
  for (std::string_view candidate : names) {
    const size_t longer = std::max(name.size(), candidate.size()),
                 shorter = std::min(name.size(), candidate.size());
    if (longer - shorter > reach) continue;
    const size_t distance = EditDistance(name, candidate);
    // Nothing in common is no suggestion.
    if (distance <= reach && distance < longer) found.emplace_back(distance, candidate);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() > 3) found.resize(3);
  std::vector<std::string> out;
  for (const auto& [distance, candidate] : found) out.emplace_back(candidate);
  return out;
}

std::string DidYouMean(const std::vector<std::string>& candidates) {
  return candidates.empty() ? "" : fmt::format(", did you mean {}?", fmt::join(candidates, ", "));
}

}  // namespace opwire
