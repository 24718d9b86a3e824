// The interpreter, which one thread at a time has. What nanobind offers for it ends the process
// where a daemon thread wants it back while it is being shut down: Python ends such a thread by
// unwinding its stack, which C++ destructors do not let through. Here the thread stops for good
// instead, as Python does from 3.14 on.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_INTERPRETER_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_INTERPRETER_H_

#include <nanobind/nanobind.h>

namespace opwire::python {

// Without the interpreter for a scope, so that other threads run. REQUIRES: this thread has it.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released();
  Released(const Released&) = delete;

 private:
  PyThreadState* const state_;
};

// With it for a scope, whether this thread has it already or not.
class Acquired {
 public:
  Acquired();
  ~Acquired() { PyGILState_Release(state_); }
  Acquired(const Acquired&) = delete;

 private:
  PyGILState_STATE state_;
};

// From now on threads other than this one do not get the interpreter; returns when none is about
// to. To be called by this thread, with the interpreter, before it is shut down.
void EndOthers();
// Whether that was called: others may hold locks for good.
bool OthersEnded();

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_INTERPRETER_H_
