// Tokens of the text form. Internal to ir/text.
#ifndef OPWIRE_IR_TEXT_LEXER_H_
#define OPWIRE_IR_TEXT_LEXER_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace opwire::text {

enum class TokenKind {
  kEnd,
  kName,    // letters, digits, '_' and '.', not first a digit
  kInt,     // 12, 0x7f
  kFloat,   // 1.5, 1e-05
  kString,  // with its quotes
  kMark,    // one character, or ->
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;
  size_t offset = 0;

  bool Is(std::string_view mark) const {
    return (kind == TokenKind::kMark || kind == TokenKind::kName) && text == mark;
  }
};

// The token at or after `offset`; blanks and // comments are skipped. A string without an end
// reaches to the end of its line.
Token NextToken(std::string_view text, size_t offset);

// "12:5", counted from 1, in bytes.
std::string Position(std::string_view text, size_t offset);

}  // namespace opwire::text

#endif  // OPWIRE_IR_TEXT_LEXER_H_
