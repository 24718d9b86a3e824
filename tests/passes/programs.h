// Programs from text, and passes by their names.
#ifndef OPWIRE_TESTS_PASSES_PROGRAMS_H_
#define OPWIRE_TESTS_PASSES_PROGRAMS_H_

#include <initializer_list>
#include <string>
#include <string_view>

#include "ir/passes/pipeline.h"

namespace opwire {

// An empty module and a failed expectation where it does not parse.
Module Parsed(const std::string& text);

// Runs of these passes and no others.
PipelineOptions OnlyPasses(std::initializer_list<std::string_view> names);

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_PROGRAMS_H_
