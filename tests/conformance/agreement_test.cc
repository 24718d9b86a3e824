// Random ops, and those that choose elements, give the same bits by every variant on every device
// that is checked.
#include <gtest/gtest.h>

#include "tests/conformance/harness.h"
#include "tests/conformance/prepare.h"
#include "tests/seed.h"

namespace opwire::conformance {
namespace {

TEST(Agreement, ExactOpsGiveEqualBitsByEveryVariant) {
  OPWIRE_TRACE_SEED();
  Random random(Seed());
  int compared = 0;
  for (const char* op : {"uniform", "normal", "dropout", "sample", "topk"}) {
    const OpDef& row = *Catalogue().Find(op);
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
      if (!TypesToCheck().Has(type)) continue;
      const auto runs = [&](const Variant& v) {
        return v.unavailable.empty() && v.dtypes.Has(type);
      };
      const std::vector<Case> cases = CasesOf(row, type, random);
      for (const auto& target : Targets()) PrepareKernels(*target, row, cases, runs);
      for (const Case& c : cases) {
        const BoundCase b = Bind(row, c).value();
        std::string first;
        for (const auto& target : Targets()) {
          for (const Variant& v : target->variants.Of(op)) {
            if (!runs(v)) continue;
            const Outcome out = RunCase(v, b, Layout::kDense, false, *target->device);
            if (first.empty()) first = out.bytes;
            EXPECT_EQ(out.bytes, first) << op << "@" << v.name << c.name << " on " << target->spec;
            ++compared;
          }
        }
      }
    }
  }
  if (TypesToCheck() == kAll && Targets()[0]->spec == "cpu") {
    EXPECT_GT(compared, 60);
  }
}

}  // namespace
}  // namespace opwire::conformance
