// The elementwise driver over what runs the program by now.
#include "kernels/fused/fused.h"

#include "kernels/fused/driver.inc.h"

namespace opwire::fused {

FusedKernel::FusedKernel(const ScalarProgram& program, std::function<void()> worth_it)
    : functions_({program}, std::move(worth_it)),
      inputs_(static_cast<int>(program.inputs().size())),
      outputs_(static_cast<int>(program.outputs().size())) {
  for (const DType type : program.inputs()) types_.push_back(static_cast<uint8_t>(type));
  for (int i = 0; i < outputs_; ++i) types_.push_back(static_cast<uint8_t>(program.OutputType(i)));
}

opw_kernel FusedKernel::kernel() const {
  return {OPW_ABI_VERSION,
          OPW_DETERMINISTIC | OPW_INPLACE,
          [](const opw_call* c) {
            return SupportsTypes(c, Of(c).inputs_, Of(c).outputs_, Of(c).types_.data());
          },
          [](const opw_call* c, void** state, int64_t*) {
            return PrepareLayout(c, Of(c).inputs_, Of(c).outputs_, state);
          },
          ReleaseLayout,
          [](const opw_call* c) {
            const Functions& functions = Of(c).functions_;
            const Functions::One now = functions.Now()[0];
            opw_call inner = *c;
            inner.context = now.context;
            const int code = RunLayout(&inner, now.run);
            functions.Worked(c->results[0].elements);
            return code;
          },
          this};
}

}  // namespace opwire::fused
