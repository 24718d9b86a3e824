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

// What a trace came to. `ops`: that its nodes are of; null: the built-in ones.
struct TracedModule {
  Module module;
  std::shared_ptr<const OpCatalogue> ops;
};

// Functions capture nothing: what the traced code uses of outside becomes a parameter behind its
// own. What that is shows when it is used, when parameters can no longer be added: then `captured`
// is more than was declared, what was traced is of no use, and it is traced again with all of them
// declared.
class Trace : public std::enable_shared_from_this<Trace> {
 public:
  // The entry of a module of its own.
  // check_nan: each floating value that is made counts its NaNs; `Counts` gives these numbers.
  explicit Trace(const std::string& name, bool check_nan = false);
  // A function that nodes of `outer` call, in its module; or, to find out what it captures, in one
  // of its own.
  Trace(const Trace& outer, const std::string& name, bool apart);

  // shape: ints, extents, and names of symbols, which stand for 2 and more: what is of extent 0 or
  // 1 is broadcast otherwise. weak: for a number.
  nanobind::object Param(const std::string& name, PyDType type, nanobind::sequence shape,
                         bool inout, bool weak);
  // A parameter for an array of outside.
  void Declare(nanobind::object array);
  // Those that were used, the declared ones first.
  const std::vector<nanobind::object>& captured() const { return captured_; }
  bool complete() const { return captured_.size() == declared_; }

  // The module's extents.
  DimTable& dims() { return f_.dims(); }
  // An extent of any trace's among them.
  Dim Adopt(const PyExtent& e);

  // The array as a value here. Raises where it belongs to a trace that has ended.
  Value Of(nanobind::handle array);
  // A scalar as a value, converted to dtype.
  Value Scalar(DType dtype, nanobind::handle number);
  std::vector<nanobind::object> Ops(const std::string& op,
                                    const std::vector<std::vector<Value>>& operands, bool lists,
                                    const std::vector<AttrArg>& attrs);
  nanobind::object Constant(DType dtype, const std::vector<int64_t>& shape, std::string bytes);
  // Ops of `ops`, which has the built-in ones too, may follow.
  void UseOps(std::shared_ptr<const OpCatalogue> ops);
  // counts: the result that counts NaNs of `counted`, which are then among this function's; -1:
  // none does.
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
  // What replaces an inout parameter has its name. All results are given in one call, as such a
  // parameter is not to be read when it has been replaced.
  void ReturnAll(const std::vector<std::string>& names,
                 const std::vector<nanobind::object>& arrays);
  // The counts of all values so far, i64[n], and what each is: "matmul f32[4, 8] (train.py:12)".
  // REQUIRES: n > 0.
  std::pair<nanobind::object, std::vector<std::string>> Counts();
  size_t counted() const { return counts_.size(); }
  bool check_nan() const { return check_nan_; }
  void set_check_nan(bool check) { check_nan_ = check; }
  TracedModule Finish();

  // The innermost function that this thread traces; nullptr: none.
  static std::shared_ptr<Trace> Current();
  void Enter();
  void Leave();

 private:
  using Names = absl::flat_hash_map<std::string, int>;

  // Of a new function: the same, or with a number behind it where another of the module has that.
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
      names_;  // of the module's functions: how many asked for each, in which there are no dots
  FunctionBuilder f_;
  bool check_nan_;
  std::vector<Value> counts_;         // i64[n] each
  std::vector<std::string> counted_;  // what each of their elements is of
  int params_ = 0;
  absl::flat_hash_map<std::string, Value> inouts_;
  size_t declared_ = 0;
  std::vector<nanobind::object> captured_;
  absl::flat_hash_map<PyObject*, Value> values_;  // of captured_
};

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_TRACE_H_
