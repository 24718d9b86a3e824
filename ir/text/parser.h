// The parser of the text form. Internal to ir/text: parse.cc reads programs, values.cc reads the
// values in them.
#ifndef OPWIRE_IR_TEXT_PARSER_H_
#define OPWIRE_IR_TEXT_PARSER_H_

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/program/module.h"
#include "ir/text/lexer.h"
#include "ir/text/text.h"

namespace opwire::text {

// Appends the bytes of hexadecimal digits; returns false if they are not pairs of digits.
bool HexToBytes(std::string_view digits, std::string* bytes);

class Parser {
 public:
  Parser(std::string_view text, std::string_view filename, const ParseOptions& options);
  StatusOr<Module> ParseModule();

 private:
  // The function that is being read.
  struct Scope {
    Function f;
    std::vector<TensorType> types;  // by ValueId; of dimensions without an element type
    std::unordered_map<std::string_view, ValueId> values;  // by name without '%'
    std::vector<std::pair<TensorType, size_t>>
        declared;  // results' types and their offsets in the text; without an element type: none
                   // stated
  };
  struct Call {
    size_t function, node;
    std::string_view callee;
    size_t offset;
  };
  struct Operands {
    std::vector<ValueId> ids;
    std::vector<uint32_t> segments;
  };

  // Tokens.
  const Token& Peek() const { return token_; }
  Token Take();
  bool TakeIf(std::string_view mark);
  Status Expect(std::string_view mark);
  StatusOr<std::string_view> TakeName(std::string_view what);
  // "file:3:8: expected `what`, got `token`", followed by `more`.
  Status Unexpected(std::string_view what, std::string_view more = "") const;
  Status ErrorAt(size_t offset, const Status& s) const;

  // parse.cc
  Status ParseHeader();
  Status ParseSymbol();
  Status ParseFunction(bool entry);
  Status ParseParam();
  Status ParseResult();
  Status ParseNode();
  Status ParseReturn();
  Status ParseBlob();
  StatusOr<ValueId> ParseValue();
  StatusOr<Operands> ParseOperands(const OpDef& row);
  Status ParseCalls();
  StatusOr<std::vector<NamedAttr>> ParseAttrs(const OpDef& row);
  StatusOr<const OpDef*> FindOp(const Token& name, bool* swap) const;
  Status Append(const OpDef& row, Node node, size_t offset, const std::vector<Token>& names);
  Status Define(const Token& name, ValueId id);

  // values.cc
  StatusOr<AttrValue> ParseAttrValue(AttrKind kind);
  template <typename T, typename Read>
  StatusOr<std::vector<T>> ParseList(Read read);
  StatusOr<int64_t> ParseInt();
  StatusOr<double> ParseFloat();
  StatusOr<bool> ParseBool();
  StatusOr<std::string> ParseString();
  StatusOr<DType> ParseElementType();
  StatusOr<TensorType> ParseType();
  StatusOr<BlobRef> ParseBlobRef();
  StatusOr<Dim> ParseDim();
  StatusOr<Dim> ParseSum();
  StatusOr<Dim> ParseProduct();
  StatusOr<Dim> ParseAtom();
  StatusOr<Dim> ParseSymbolUse();
  StatusOr<Dim> MakeDim(const DimNode& node, size_t offset);

  std::string_view text_;
  std::string_view filename_;
  const ParseOptions& options_;
  Token token_;
  Module module_;
  std::map<std::string_view, Dim> symbols_;  // by name without '?'
  std::vector<Call> calls_;
  Scope scope_;
  int depth_ = 0;  // of parentheses in dimensions
};

}  // namespace opwire::text

#endif  // OPWIRE_IR_TEXT_PARSER_H_
