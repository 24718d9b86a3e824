// Runs the passes over a program until none changes it, and reports the changes of each.
//
//   StatusOr<PipelineReport> report = RunPasses(module, {.skip = {"share"}});
//
// The module is verified before, and after each pass that changed it. If extents are counts held in
// values (from(%v, n)), only users' passes run, because ours renumber values.
#ifndef OPWIRE_IR_PASSES_PIPELINE_H_
#define OPWIRE_IR_PASSES_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/passes/pass.h"

namespace opwire {

// A user's pass: takes the program's text and returns that of another one with the same parameters,
// results and symbols.
struct OwnPass {
  std::string name;
  std::function<StatusOr<std::string>(const std::string& text)> run;
};

struct PipelineOptions {
  Limits limits = {};
  const OpCatalogue& ops = Catalogue();
  std::vector<OwnPass> own = {};       // after ours, in this order
  std::vector<std::string> skip = {};  // passes by name; former names are accepted until 0.3.0
  std::string after = {};  // stops after this one's first run; empty: at the fixed point
  Accuracy accuracy = Accuracy::kUsual;
  // Sizes for the figures of the report: ("b", 64). A symbol without a name here has 64, or the
  // nearest size within its bounds and multiple.
  std::vector<std::pair<std::string, int64_t>> sizes = {};
};

// The cost of a run of the entry function.
struct ProgramCost {
  int64_t nodes = 0;  // those of called functions count at each call; loops count as one iteration
  int64_t bytes_moved =
      0;  // bytes that nodes read and write: each operand and result once, without views
  int64_t peak_bytes =
      0;  // of values between nodes, in the order of the nodes; without parameters and results
  bool operator==(const ProgramCost&) const = default;
};

struct PassReport {
  std::string pass;
  int round = 0;
  int64_t changes = 0;
  int64_t nanos = 0;  // without verification
  ProgramCost before, after;
};

inline constexpr int kMostRounds = 100;

struct PipelineReport {
  std::vector<PassReport> runs;  // in order; the last round, without changes, is not among them
  int64_t verify_nanos = 0;
  bool done = true;  // false: after kMostRounds there were still changes
};

// INVALID_ARGUMENT for names of passes that do not exist. Errors of VerifyModule for the module. If
// a user's pass fails, or its output is not a program with the same parameters and results, the
// error begins with its name. The same error of our own pass is INTERNAL. The module is then
// unspecified.
StatusOr<PipelineReport> RunPasses(Module& module, const PipelineOptions& given = {});

// Returns a size for each dimension symbol: the named one, else 64 or the nearest one within its
// bounds. OUT_OF_RANGE if a given size is outside its symbol's bounds.
StatusOr<std::vector<int64_t>> SizesOf(const DimTable& dims,
                                       std::span<const std::pair<std::string, int64_t>> named);
// Returns the cost by the node's op definition at these sizes.
OpCost CostOf(const OpDef& row, const Node& node, const ValueTypes& values, const DimValues& sizes);
// For a verified module, at the sizes in the options.
StatusOr<ProgramCost> CostOf(const Module& module, const Typing& typing,
                             const PipelineOptions& options);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_PIPELINE_H_
