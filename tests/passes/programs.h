// Programs from text, and passes by their names.
#ifndef OPWIRE_TESTS_PASSES_PROGRAMS_H_
#define OPWIRE_TESTS_PASSES_PROGRAMS_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include "ir/passes/pipeline.h"

namespace opwire {

// Returns an empty module, with a failed expectation, if it does not parse.
Module Parsed(const std::string& text);

// Returns options to run only these passes.
PipelineOptions OnlyPasses(std::initializer_list<std::string_view> names);

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_PROGRAMS_H_
