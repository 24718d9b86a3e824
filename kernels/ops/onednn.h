// Shared by the ops that use oneDNN: its engine and threads. Throws oneDNN's exceptions. Not for
// files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_ONEDNN_H_
#define OPWIRE_KERNELS_OPS_ONEDNN_H_

#include <omp.h>

#include <cstdint>
#include <dnnl.hpp>

namespace opwire::ops {

inline constexpr int64_t kOneDnnCallWork =
    int64_t{1} << 28;  // multiplications of a call, for each thread: about 5 ms

inline constexpr int64_t kOneDnnThreadWork =
    int64_t{1} << 18;  // multiplications that are worth a thread: about 5 us, several times the
                       // cost of synchronising with another one

inline const dnnl::engine& OneDnnEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// A number of threads, which oneDNN fixes when it makes a primitive, as long as this object exists.
class OneDnnThreads {
 public:
  explicit OneDnnThreads(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~OneDnnThreads() { omp_set_num_threads(before_); }
  OneDnnThreads(const OneDnnThreads&) = delete;

 private:
  const int before_;
};

}  // namespace opwire::ops

#endif  // OPWIRE_KERNELS_OPS_ONEDNN_H_
