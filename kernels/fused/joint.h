// Several members that do the same to tensors of their own, as one kernel of the CPU.
//
//   JointKernel joint(functions, 148);       // of one program, as FusedKernel has them
//   // operands: the first member's inputs, the second's, ...; results and attributes likewise
//   const opw_kernel k = joint.kernel();
#ifndef OPWIRE_KERNELS_FUSED_JOINT_H_
#define OPWIRE_KERNELS_FUSED_JOINT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/abi.h"
#include "kernels/fused/functions.h"

namespace opwire::fused {

class JointKernel {
 public:
  // REQUIRES: the functions are of one program.
  JointKernel(std::shared_ptr<const Functions> functions, int members);

  // Each member's call is as FusedKernel's, and its results have the bits that they have there. The
  // context is this, which must outlive what uses the kernel.
  opw_kernel kernel() const;

 private:
  struct State;
  static const JointKernel& Of(const opw_call* c) {
    return *static_cast<const JointKernel*>(c->context);
  }
  // The part of the call that is a member's.
  opw_call CallOf(const opw_call* c, int member) const;
  static const char* Supports(const opw_call* c);
  static int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes);
  static void Release(void* state);
  static int Run(const opw_call* c);

  const std::shared_ptr<const Functions> functions_;
  const int members_, inputs_, outputs_, arguments_;
  std::vector<uint8_t> types_;  // the inputs', then the outputs'
};

}  // namespace opwire::fused

#endif  // OPWIRE_KERNELS_FUSED_JOINT_H_
