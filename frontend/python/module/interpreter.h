// The interpreter, which one thread at a time holds. With nanobind's classes the process ends if a
// daemon thread takes it back during shutdown. The reason is that Python ends such a thread by
// unwinding its stack, which C++ destructors do not allow. Here the thread stops permanently
// instead, as in Python since 3.14.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_INTERPRETER_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_INTERPRETER_H_

#include <nanobind/nanobind.h>

namespace opwire::python {

// Releases the interpreter for a scope, so that other threads run. REQUIRES: this thread holds it.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released();
  Released(const Released&) = delete;

 private:
  PyThreadState* const state_;
};

// Holds the interpreter for a scope, whether this thread held it before or not.
class Acquired {
 public:
  Acquired();
  ~Acquired() { PyGILState_Release(state_); }
  Acquired(const Acquired&) = delete;

 private:
  PyGILState_STATE state_;
};

// Afterwards threads other than this one do not get the interpreter. Returns when no thread is
// about to take it. Call on this thread, with the interpreter, before it is shut down.
void EndOthers();
// Whether that was called: other threads may hold locks permanently.
bool OthersEnded();

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_INTERPRETER_H_
