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

// It takes a slot of the session only while it is among those used last: a session has 256 slots,
// and a process may compile more functions than that.
class PyProgram {
 public:
  // Accuracy: "exact", "usual" or "fast", of the passes that run first; "" for none.
  PyProgram(std::shared_ptr<PySession> session, Module module, const std::string& accuracy);
  ~PyProgram();

  // Sends the run and does not wait for it; with on_emit(name, dtype, shape, bytes) it waits and
  // hears what the program emits. Arguments: arrays, or numbers for parameters of rank 0. Arrays of
  // inout parameters are given away: the results that replace them have their memory.
  nanobind::object Call(nanobind::list args, nanobind::handle on_emit);
  // As JSON (executor/plan/describe.h), at the sizes that the arguments have.
  std::string Plan(nanobind::list args);
  // The run's steps: (function, node, label, nanoseconds).
  nanobind::list Profile(nanobind::list args);
  std::string Text();  // behind the passes

 private:
  // Arguments of a run; raises where one does not suit its parameter.
  std::vector<Arg> ArgsOf(nanobind::list args) const;
  nanobind::object ResultsOf(nanobind::list args, std::vector<Tensor> made) const;
  // Finds the types of its results for these sizes.
  void Bind(std::vector<int64_t> sizes);
  // The same for these arguments.
  const std::vector<ResultType>& TypesFor(const std::vector<Arg>& args);
  // What the arguments have for each of the symbols.
  std::vector<int64_t> SizesOf(const std::vector<Arg>& args) const;

  // Loaded, and the one used last. REQUIRES: the session is held.
  void Load(const Use& use);

  static constexpr size_t kMostLoaded = 80;
  std::shared_ptr<PySession> session_;
  Module module_;
  LoadOptions options_;
  std::optional<Program> program_;
  std::list<PyProgram*>::iterator place_;  // in session_->loaded, where program_ is there
  struct Place {
    size_t param, axis;
  };
  std::vector<Place> symbols_;       // where each is an extent
  std::vector<int64_t> sizes_;       // of the symbols, in the call before
  std::vector<ResultType> results_;  // for these
  std::vector<int> inout_of_;        // by result: the parameter that it replaces; -1: none
};

// What tells calls apart whose arguments are arrays on devices and Python's numbers: of an array
// its session, type and shape, of a number its type. None where another is among them, or no array,
// which would tell the session.
nanobind::object CallKey(nanobind::tuple args);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_PROGRAM_H_
