// What the ops that oneDNN serves share: its engine, threads and the copies of 16-bit floats. Throws what oneDNN throws. Not for files built for an
// instruction set.
#ifndef OPWIRE_KERNELS_OPS_ONEDNN_H_
#define OPWIRE_KERNELS_OPS_ONEDNN_H_

#include <omp.h>

#include <dnnl.hpp>

#include "kernels/ops/call.h"
#include "kernels/ops/elementwise/fast.h"
#include "kernels/select/isa.h"

namespace opwire::ops {

inline constexpr int64_t kOneDnnCallWork = int64_t{1} << 28;  // multiplications of a call, for each thread: some 5 ms

// Of parts of a workspace.
inline int64_t AlignedBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

inline const dnnl::engine& OneDnnEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// A number of threads, which oneDNN fixes when it makes a primitive, for the time that this lives.
class OneDnnThreads {
 public:
  explicit OneDnnThreads(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~OneDnnThreads() { omp_set_num_threads(before_); }
  OneDnnThreads(const OneDnnThreads&) = delete;
  // What a call that is prepared will run with.
  static int Of(const opw_call* c) { return c->runtime != nullptr ? c->runtime->threads : omp_get_max_threads(); }

 private:
  const int before_;
};

// Casts of whole tensors to f32 and back, by the loops of the widest instruction set here; null: neither.
inline const FastCasts* WidestCasts() {
  const Isa& isa = Isa::Detect();
  return isa.avx512 ? &FastCastsAvx512() : isa.avx2 ? &FastCastsAvx2() : nullptr;
}
inline void CastAll(const opw_call* c, ElementwiseLoop loop, void* to, int64_t to_bytes, const void* from, int64_t from_bytes, int64_t n) {
  constexpr int64_t kGrain = 16384;
  ParallelFor(c, n, kGrain, [&](int64_t begin, int64_t end) {
    const void* const in[] = {static_cast<const char*>(from) + begin * from_bytes};
    loop(static_cast<char*>(to) + begin * to_bytes, in, end - begin, 0);
  });
}

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_ONEDNN_H_
