// The process that compiles with NVRTC and hipRTC, so that a compiler that crashes, hangs or eats
// memory takes nothing with it.
#ifndef OPWIRE_KERNELS_JIT_WORKER_H_
#define OPWIRE_KERNELS_JIT_WORKER_H_

namespace opwire::jit {

// `PROGRAM --jit-worker KIND`: reads a request from standard input, writes the answer to standard
// output, and gives the exit code. To be called first thing in main, where argv[1] is
// "--jit-worker".
int WorkerMain(int argc, char** argv);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_WORKER_H_
