// Cuts text into tokens; any bytes give some.
#include "ir/text/lexer.h"

#include <algorithm>

namespace opwire::text {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNamePart(char c) { return IsLetter(c) || IsDigit(c) || c == '.'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

Token NextToken(std::string_view s, size_t i) {
  const auto at = [&](size_t k) { return k < s.size() ? s[k] : '\0'; };
  while (i < s.size()) {
    if (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r') {
      ++i;
    } else if (s[i] == '/' && at(i + 1) == '/') {
      i = std::min(s.find('\n', i), s.size());
    } else {
      break;
    }
  }
  const size_t begin = i;
  const auto token = [&](TokenKind kind) { return Token{kind, s.substr(begin, i - begin), begin}; };
  if (i >= s.size()) return token(TokenKind::kEnd);
  const auto digits = [&] {
    while (IsDigit(at(i))) ++i;
  };
  if (IsLetter(s[i])) {
    while (i < s.size() && IsNamePart(s[i])) ++i;
    return token(TokenKind::kName);
  }
  if (s[i] == '0' && at(i + 1) == 'x') {
    for (i += 2; IsHex(at(i)); ++i) {
    }
    return token(TokenKind::kInt);
  }
  if (IsDigit(s[i])) {
    TokenKind kind = TokenKind::kInt;
    digits();
    if (at(i) == '.') {
      kind = TokenKind::kFloat;
      ++i;
      digits();
    }
    const size_t sign = at(i + 1) == '-' || at(i + 1) == '+';
    if ((at(i) == 'e' || at(i) == 'E') && IsDigit(at(i + 1 + sign))) {
      kind = TokenKind::kFloat;
      i += 1 + sign;
      digits();
    }
    return token(kind);
  }
  if (s[i] == '"') {
    for (++i; i < s.size() && s[i] != '"' && s[i] != '\n'; ++i) {
      if (s[i] == '\\' && at(i + 1) != '\n') ++i;
    }
    if (i < s.size() && s[i] == '"') ++i;
    i = std::min(i, s.size());
    return token(TokenKind::kString);
  }
  i += s[i] == '-' && at(i + 1) == '>' ? 2 : 1;
  return token(TokenKind::kMark);
}

std::string Position(std::string_view s, size_t offset) {
  const std::string_view before = s.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t start = before.rfind('\n');
  return std::to_string(line) + ":" +
         std::to_string(before.size() - (start == before.npos ? 0 : start + 1) + 1);
}

}  // namespace opwire::text
