// A compiled function in a session.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_PROGRAM_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_PROGRAM_H_

#include <nanobind/nanobind.h>

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/python/module/array.h"

namespace opwire::python {

// It takes a slot of the session only while it is one of the last used functions. A session has 256
// slots, and a process may compile more functions than that.
class PyProgram {
 public:
  // Accuracy: "exact", "usual" or "fast", for the passes that run first; "" for no passes.
  PyProgram(std::shared_ptr<PySession> session, Module module, const std::string& accuracy);
  ~PyProgram();

  // Sends the run and does not wait for it. With on_emit(name, dtype, shape, bytes) it waits, and
  // calls on_emit with emitted values. Arguments: arrays, or numbers for parameters of rank 0.
  // Arrays of inout parameters become unusable: the results that replace them have their memory.
  nanobind::object Call(nanobind::list args, nanobind::handle on_emit);
  // Returns the plan as JSON (executor/plan/describe.h), at the sizes of the arguments.
  std::string Plan(nanobind::list args);
  // Returns the run's steps: (function, node, label, nanoseconds).
  nanobind::list Profile(nanobind::list args);
  std::string Text();  // after the passes

 private:
  // Returns the arguments of a run. Raises if one does not fit its parameter.
  std::vector<Arg> ArgsOf(nanobind::list args) const;
  nanobind::object ResultsOf(nanobind::list args, std::vector<Tensor> made) const;
  // Finds the types of its results for these sizes.
  void Bind(std::vector<int64_t> sizes);
  // The same for these arguments.
  const std::vector<ResultType>& TypesFor(const std::vector<Arg>& args);
  // Returns the value of each symbol from the arguments.
  std::vector<int64_t> SizesOf(const std::vector<Arg>& args) const;

  // Loads the program, and marks it as the last used one. REQUIRES: the session is held.
  void Load(const Use& use);

  static constexpr size_t kMostLoaded = 80;
  std::shared_ptr<PySession> session_;
  Module module_;
  LoadOptions options_;
  std::optional<Program> program_;
  std::list<PyProgram*>::iterator place_;  // in session_->loaded, if program_ is set
  struct Place {
    size_t param, axis;
  };
  std::vector<Place> symbols_;       // by symbol: a place of it in the parameters
  std::vector<int64_t> sizes_;       // of the symbols, in the previous call
  std::vector<ResultType> results_;  // for these sizes
  std::vector<int> inout_of_;        // by result: the parameter that it replaces; -1: none
};

// Returns a key of calls whose arguments are arrays on devices and Python's numbers: session, type
// and shape of each array, type of each number. None if there is another argument, or no array,
// which would determine the session.
nanobind::object CallKey(nanobind::tuple args);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_PROGRAM_H_
