// The text form of programs (.opw), described in docs/text-form.md.
//
//   std::string text = Print(module);
//   StatusOr<Module> same = Parse(text, "mlp.opw");   // Equal(module, *same)
#ifndef OPWIRE_IR_TEXT_TEXT_H_
#define OPWIRE_IR_TEXT_TEXT_H_

#include <string>
#include <string_view>

#include "ir/base/status.h"
#include "ir/program/module.h"

namespace opwire {

// Any module can be printed; one that the verifier accepts is printed without loss. Equal modules give equal text.
std::string Print(const Module& module);

// Types of results are inferred, so a program that names ops wrongly or gives them what they do not take is an error here; the
// rest is for VerifyModule. Errors read "mlp.opw:3:8: expected X, got Y". Any bytes are safe to parse.
StatusOr<Module> Parse(std::string_view text, std::string_view filename);

}  // namespace opwire

#endif  // OPWIRE_IR_TEXT_TEXT_H_
