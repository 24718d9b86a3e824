// A function that is being traced: ops on its arrays become nodes.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_TRACE_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_TRACE_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "frontend/python/module/array.h"
#include "frontend/python/module/dtypes.h"
#include "frontend/python/module/extent.h"
#include "ir/program/builder.h"

namespace opwire::python {

// The result of a trace. `ops`: the catalogue of its nodes; null: the built-in ones.
struct TracedModule {
  Module module;
  std::shared_ptr<const OpCatalogue> ops;
};

// Functions capture nothing: outside values that the traced code uses become parameters after its
// own. They are found when they are used, when it is too late to add parameters. Then `captured`
// has more values than were declared. The result of the trace is discarded, and the function is
// traced again with all of them declared.
class Trace : public std::enable_shared_from_this<Trace> {
 public:
  // The entry of a new module.
  // check_nan: the NaNs of each computed floating value are counted; `Counts` returns these
  // numbers.
  explicit Trace(const std::string& name, bool check_nan = false);
  // A function that nodes of `outer` call, in its module. With `apart`, in a module of its own, to
  // find the captured values.
  Trace(const Trace& outer, const std::string& name, bool apart);

  // shape: ints, extents, and names of symbols, which stand for extents of at least 2, because
  // extents 0 and 1 broadcast differently. weak: for a number.
  nanobind::object Param(const std::string& name, PyDType type, nanobind::sequence shape,
                         bool inout, bool weak);
  // Declares a parameter for an outside array.
  void Declare(nanobind::object array);
  // The outside arrays that were used, the declared ones first.
  const std::vector<nanobind::object>& captured() const { return captured_; }
  bool complete() const { return captured_.size() == declared_; }

  // The module's extents.
  DimTable& dims() { return f_.dims(); }
  // Returns an extent of any trace in this module's table.
  Dim Adopt(const PyExtent& e);

  // Returns the array as a value here. Raises if it belongs to a trace that has ended.
  Value Of(nanobind::handle array);
  // Returns a scalar as a value, converted to dtype.
  Value Scalar(DType dtype, nanobind::handle number);
  std::vector<nanobind::object> Ops(const std::string& op,
                                    const std::vector<std::vector<Value>>& operands, bool lists,
                                    const std::vector<AttrArg>& attrs);
  nanobind::object Constant(DType dtype, const std::vector<int64_t>& shape, std::string bytes);
  // Later ops may be of `ops`, which also has the built-in ones.
  void UseOps(std::shared_ptr<const OpCatalogue> ops);
  // counts: the result with the NaN counts of `counted`, which are then added to this function's;
  // -1: none.
  std::vector<nanobind::object> Inline(const TracedModule& of,
                                       const std::vector<nanobind::object>& arguments, int counts,
                                       const std::vector<std::string>& counted);
  std::vector<nanobind::object> If(nanobind::handle condition,
                                   const std::vector<nanobind::object>& inputs, const Trace& then,
                                   const Trace& otherwise);
  std::vector<nanobind::object> While(const std::vector<nanobind::object>& carried,
                                      const std::vector<nanobind::object>& inputs,
                                      const Trace& condition, const Trace& body, int64_t max_trips);
  std::vector<nanobind::object> Repeat(nanobind::handle times,
                                       const std::vector<nanobind::object>& carried,
                                       const std::vector<nanobind::object>& inputs,
                                       const Trace& body);
  void Emit(const std::string& name, nanobind::handle array);
  void Return(const std::string& name, nanobind::handle array);
  // The new value of an inout parameter has its name. All results are passed in one call, because
  // such a parameter must not be read after it was replaced.
  void ReturnAll(const std::vector<std::string>& names,
                 const std::vector<nanobind::object>& arrays);
  // Returns the NaN counts of all values so far, i64[n], and a label for each: "matmul f32[4, 8]
  // (train.py:12)". REQUIRES: n > 0.
  std::pair<nanobind::object, std::vector<std::string>> Counts();
  size_t counted() const { return counts_.size(); }
  bool check_nan() const { return check_nan_; }
  void set_check_nan(bool check) { check_nan_ = check; }
  TracedModule Finish();

  // Returns the innermost function that this thread traces; nullptr: none.
  static std::shared_ptr<Trace> Current();
  void Enter();
  void Leave();

 private:
  using Names = absl::flat_hash_map<std::string, int>;

  // Returns the name of a new function: `name`, with a number if another function of the module has
  // it.
  std::string NameOf(const std::string& name);
  std::vector<nanobind::object> WrapAll(const std::vector<Value>& values,
                                        const std::string& op = "");
  void Count(Value v, const std::string& op, const std::string& line);
  std::vector<Extent> ExtentsOf(const Array& a);
  std::vector<Value> OfAll(const std::vector<nanobind::object>& arrays);

  struct Building {
    ModuleBuilder builder;
    std::shared_ptr<const OpCatalogue> ops;  // as of TracedModule
  };

  std::shared_ptr<Building> module_;
  std::shared_ptr<Names>
      names_;  // of the module's functions: the number of uses of each; these names have no dots
  FunctionBuilder f_;
  bool check_nan_;
  std::vector<Value> counts_;         // i64[n] each
  std::vector<std::string> counted_;  // the labels of their elements
  int params_ = 0;
  absl::flat_hash_map<std::string, Value> inouts_;
  size_t declared_ = 0;
  std::vector<nanobind::object> captured_;
  absl::flat_hash_map<PyObject*, Value> values_;  // of captured_
};

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_TRACE_H_
