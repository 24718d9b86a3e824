// A pass transforms a program to an equal one that does less work. Each has one file. All are in
// one table, and the pipeline runs them (pipeline.h).
//
// Every pass keeps the parameters, results and symbols of each function, and the values of the
// results to within `accuracy`. A removed node's checks are removed, too: constraints on extents
// that only it had, and reports of indices out of range that only it made. Nodes with effects stay,
// and those with a pinned variant are unchanged. Unused nodes are removed even if they have a pin.
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

// How much results may differ from those of the original program.
enum class Accuracy : uint8_t {
  kExact,  // bitwise equal, except for bits of NaNs, and for bools whose input bytes were not 0 or
           // 1
  kUsual,  // fewer or different roundings, within the bounds of the ops
  kFast,   // signs of zeros, and intermediate overflow
};

struct PassContext {
  Module& module;        // verified
  const Typing& typing;  // of the verification
  const OpCatalogue& ops;
  Limits limits = {};  // no pass makes the module exceed them
  Accuracy accuracy = Accuracy::kUsual;
  int64_t changes = 0;  // out: the number of changes; 0: the module is unchanged
};

struct PassRow {
  std::string_view name;
  std::string_view doc;  // one line
  void (*run)(PassContext& context);
  std::string_view former_name = {};  // which options may still have until 0.3.0
};

// In the order in which they run.
std::span<const PassRow> PassTable();

void FoldConstants(PassContext& context);
void Canonicalise(PassContext& context);
void InlineCalls(PassContext& context);
void Simplify(PassContext& context);
void SimplifyShapes(PassContext& context);
void FuseMatmulEpilogues(PassContext& context);
void JoinNorms(PassContext& context);
void JoinLosses(PassContext& context);
void SplitReductions(PassContext& context);
void ShareEqualNodes(PassContext& context);
void JoinLists(PassContext& context);
void RemoveDeadNodes(PassContext& context);

// Whether the module has counts in values, from(%v, n). These have the numbers of values, which our
// passes change.
bool HasCountsInValues(const Module& m);
// By function, whether another one calls it.
std::vector<bool> CalledFunctions(const Module& module);
// Removes functions that were called and no longer are. Others may be run by name. Returns the
// number of removed ones.
int64_t RemoveUncalled(Module& module, std::vector<bool> called_before);

}  // namespace opwire

#endif  // OPWIRE_IR_PASSES_PASS_H_
