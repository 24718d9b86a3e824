// The text form of programs (.opw), described in docs/text-form.md.
//
//   std::string text = Print(module);
//   StatusOr<Module> same = Parse(text, "mlp.opw");   // Equal(module, *same)
#ifndef OPWIRE_IR_TEXT_TEXT_H_
#define OPWIRE_IR_TEXT_TEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/ops/catalogue.h"
#include "ir/program/module.h"

namespace opwire {

// Any module can be printed; one that the verifier accepts is printed without loss. Equal modules
// give equal text.
std::string Print(const Module& module, const OpCatalogue& ops = Catalogue());

struct ParseOptions {
  const OpCatalogue& ops = Catalogue();
  // Names that stand for element types, so that one text serves several: {"T", DType::kF32}.
  std::vector<std::pair<std::string, DType>> types = {};
};

// Types of results are inferred, so a program that names ops wrongly or gives them what they do not
// take is an error here; the rest is for VerifyModule. Errors read "mlp.opw:3:8: expected X, got
// Y". Any bytes are safe to parse.
StatusOr<Module> Parse(std::string_view text, std::string_view filename,
                       const ParseOptions& options = {});

}  // namespace opwire

#endif  // OPWIRE_IR_TEXT_TEXT_H_
