// A compiled function in a session.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_PROGRAM_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_PROGRAM_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "frontend/python/module/array.h"

namespace opwire::python {

class PyProgram {
 public:
  // Accuracy: "exact", "usual" or "fast", of the passes that run first; "" for none.
  PyProgram(std::shared_ptr<PySession> session, Module module, const std::string& accuracy);
  ~PyProgram();

  // Sends the run and does not wait for it; with on_emit(name, dtype, shape, bytes) it waits and hears what the program emits. Arguments: arrays, or numbers for parameters of rank 0. Arrays
  // of inout parameters are given away: the results that replace them have their memory.
  nanobind::object Call(nanobind::list args, nanobind::handle on_emit);
  std::string Plan();  // executor/plan/describe.h, as JSON
  // The run's steps: (function, node, label, nanoseconds).
  nanobind::list Profile(nanobind::list args);
  std::string Text() const;  // behind the passes

 private:
  // Arguments of a run; raises where one does not suit its parameter.
  std::vector<Arg> ArgsOf(nanobind::list args) const;
  nanobind::object ResultsOf(nanobind::list args, std::vector<Tensor> made) const;

  std::shared_ptr<PySession> session_;
  Program program_;
  std::vector<ResultType> results_;
  std::vector<int> inout_of_;  // by result: the parameter that it replaces; -1: none
};

// What tells calls apart whose arguments are arrays on devices and Python's numbers: of an array its session, type and shape, of a number its type. None where another is among them.
nanobind::object CallKey(nanobind::tuple args);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_PROGRAM_H_
