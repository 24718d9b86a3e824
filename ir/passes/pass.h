// A pass: a program to an equal one that does less. One file each, all of them in one table, run by
// the pipeline (pipeline.h).
//
// What every pass keeps: the parameters, results and symbols of each function, and the values of
// the results as far as `accuracy` says. A node that goes takes its checks with it: constraints on
// extents that only it asked for, and reports of indices out of range that only it made. Nodes with
// effects stay, and those with a pinned variant as they are; what nobody reads goes all the same.
#ifndef OPWIRE_IR_PASSES_PASS_H_
#define OPWIRE_IR_PASSES_PASS_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/ops/catalogue.h"
#include "ir/program/module.h"
#include "ir/verify/verify.h"

namespace opwire {

// How far results may be from those of the program as it was written.
enum class Accuracy : uint8_t {
  kExact,  // equal to the bit, but for those of NaNs, and of bools that came as bytes other than 0
           // and 1
  kUsual,  // rounded fewer times, or elsewhere, within the bounds of the ops
  kFast,   // signs of zeros, and overflow on the way
};

struct PassContext {
  Module& module;        // verified,
  const Typing& typing;  // with this
  const OpCatalogue& ops;
  Limits limits = {};  // that no pass brings the module beyond
  Accuracy accuracy = Accuracy::kUsual;
  int64_t changes = 0;  // out: what the pass did, 0 where it left the module as it was
};

struct PassRow {
  std::string_view name;
  std::string_view doc;  // one line
  void (*run)(PassContext& context);
};

// In the order in which they run.
std::span<const PassRow> PassTable();

void FoldConstants(PassContext& context);
void Canonicalise(PassContext& context);
void InlineCalls(PassContext& context);
void Simplify(PassContext& context);
void SimplifyShapes(PassContext& context);
void FinishProducts(PassContext& context);
void JoinNorms(PassContext& context);
void JoinLosses(PassContext& context);
void DivideFolds(PassContext& context);
void ShareEqualNodes(PassContext& context);
void JoinLists(PassContext& context);
void RemoveDeadNodes(PassContext& context);

// Counts held in values, from(%v, n), name these by number, which passes of ours change.
bool HasCountsInValues(const Module& m);
// By function, whether one calls it.
std::vector<bool> CalledFunctions(const Module& module);
// Functions that were called and no longer are go, others may be run by name; how many went.
int64_t RemoveUncalled(Module& module, std::vector<bool> called_before);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_PASS_H_
