// The processor's instruction sets that kernels may use, detected once at run time.
#ifndef OPWIRE_KERNELS_SELECT_ISA_H_
#define OPWIRE_KERNELS_SELECT_ISA_H_

#include <string>

namespace opwire {

struct Isa {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // in addition to avx512
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;

  // Of this processor and this operating system.
  static const Isa& Detect();
  // Why a kernel built for the set cannot run here; empty: it can. `set` is "avx2", "avx512",
  // "avx512vnni" or "".
  std::string Missing(const std::string& set) const;
  // "x86-64 avx2 avx512f".
  std::string ToString() const;
};

}  // namespace opwire

#endif  // OPWIRE_KERNELS_SELECT_ISA_H_
