// CPUID through the compiler's own reading of it, which includes the operating system's part.
#include "kernels/select/isa.h"

#include <cpuid.h>

namespace opwire {
namespace {

Isa Read() {
  Isa isa;
  isa.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
  isa.avx512 = isa.avx2 && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
  isa.avx512_vnni = isa.avx512 && __builtin_cpu_supports("avx512vnni");
  isa.avx512_bf16 = isa.avx512 && __builtin_cpu_supports("avx512bf16");
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (isa.avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    isa.avx512_fp16 = (d >> 23 & 1) != 0;
    isa.amx_bf16 = (d >> 22 & 1) != 0;
  }
  return isa;
}

}  // namespace

const Isa& Isa::Detect() {
  static const Isa isa = Read();
  return isa;
}

std::string Isa::Missing(const std::string& set) const {
  if (set == "avx2" && !avx2) return "needs avx2, fma and f16c";
  if (set == "avx512" && !avx512) return "needs avx512f, bw, dq and vl";
  if (set == "avx512vnni" && !avx512_vnni) return "needs avx512f, bw, dq, vl and vnni";
  return "";
}

std::string Isa::ToString() const {
  std::string s = "x86-64";
  if (avx2) s += " avx2";
  if (avx512) s += " avx512f";
  if (avx512_vnni) s += " avx512_vnni";
  if (avx512_bf16) s += " avx512_bf16";
  if (avx512_fp16) s += " avx512_fp16";
  if (amx_bf16) s += " amx_bf16";
  return s;
}

}  // namespace opwire
