// Runs the passes over a program until none finds anything to do, and tells what each did.
//
//   StatusOr<PipelineReport> report = RunPasses(module, {.skip = {"share"}});
//
// The module is verified before, and after each pass that changed it. Where extents are counts held
// in values (from(%v, n)) only passes of users run, as ours renumber values.
#ifndef OPWIRE_IR_PASSES_PIPELINE_H_
#define OPWIRE_IR_PASSES_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/passes/pass.h"

namespace opwire {

// A user's pass: the program's text to another's, of the same parameters, results and symbols.
struct OwnPass {
  std::string name;
  std::function<StatusOr<std::string>(const std::string& text)> run;
};

struct PipelineOptions {
  Limits limits = {};
  const OpCatalogue& ops = Catalogue();
  std::vector<OwnPass> own = {};       // behind ours, in this order
  std::vector<std::string> skip = {};  // passes by name
  std::string after = {};              // ends with this one's first run; empty: at the fixed point
  Accuracy accuracy = Accuracy::kUsual;
  // Sizes for the figures of the report: ("b", 64). A symbol that is not named has 64, or what of
  // its bounds and multiple is nearest.
  std::vector<std::pair<std::string, int64_t>> sizes = {};
};

// What a run of the entry function takes.
struct ProgramCost {
  int64_t nodes = 0;  // those of called functions at each call; loops are taken to go round once
  int64_t bytes_moved = 0;  // that nodes read and write: each operand and result once, views none
  int64_t peak_bytes =
      0;  // of values between nodes, by the order they stand in; parameters and results apart
  bool operator==(const ProgramCost&) const = default;
};

struct PassReport {
  std::string pass;
  int round = 0;
  int64_t changes = 0;
  int64_t nanos = 0;  // verification apart
  ProgramCost before, after;
};

inline constexpr int kMostRounds = 100;

struct PipelineReport {
  std::vector<PassReport>
      runs;  // in order; the last round, in which nothing changed, is not among them
  int64_t verify_nanos = 0;
  bool done = true;  // false: after kMostRounds there was still something to do
};

// INVALID_ARGUMENT for names of passes that do not exist, and what VerifyModule says of the module.
// Where a user's pass fails or leaves what is no program with the same parameters and results, its
// error begins with its name; one of ours would be INTERNAL. The module is then unspecified.
StatusOr<PipelineReport> RunPasses(Module& module, const PipelineOptions& options = {});

// A size for each dimension symbol: the one named, else 64 or what its bounds allow near it.
// OUT_OF_RANGE where a name's size is outside its bounds.
StatusOr<std::vector<int64_t>> SizesOf(const DimTable& dims,
                                       std::span<const std::pair<std::string, int64_t>> named);
// What a node's row says of it at these sizes.
OpCost CostOf(const OpRow& row, const Node& node, const ValueTypes& values, const DimValues& sizes);
// Of a verified module, at the sizes that the options name.
StatusOr<ProgramCost> CostOf(const Module& module, const Typing& typing,
                             const PipelineOptions& options);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_PIPELINE_H_
