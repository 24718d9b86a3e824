// Builds functions of a module, one op at a time, with types inferred by the catalogue.
//
//   ModuleBuilder m;
//   FunctionBuilder f = m.Function("mlp");
//   Value x = f.In("x", DType::kF32, {f.Symbol("b"), 64}), w = f.In("w", DType::kF32, {64, 10});
//   f.Return("y", f.Op("softmax", {f.Op("matmul", {x, w})}, {{"dim", -1}}));
//   StatusOr<Module> module = m.Finish();
//
// The first error is permanent: later calls return values that carry it, and Finish returns it.
#ifndef OPWIRE_IR_PROGRAM_BUILDER_H_
#define OPWIRE_IR_PROGRAM_BUILDER_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program/module.h"

namespace opwire {

// A value of the function being built.
struct Value {
  ValueId id = kAbsent;
};

// An extent: a number or an expression.
struct Extent {
  Extent(int64_t n) : number(n) {}         // NOLINT: shapes are written `{64, 10}`
  Extent(int n) : number(n) {}             // NOLINT
  Extent(Dim d) : dim(d), is_dim(true) {}  // NOLINT
  int64_t number = 0;
  Dim dim;
  bool is_dim = false;
};

// An attribute by name: {"dim", -1}, {"eps", 1e-5}, {"dims", Ints{0, 1}}.
struct AttrArg {
  AttrArg(std::string_view n, int v) : name(n), value(int64_t{v}) {}
  AttrArg(std::string_view n, int64_t v) : name(n), value(v) {}
  AttrArg(std::string_view n, double v) : name(n), value(v) {}
  AttrArg(std::string_view n, bool v) : name(n), value(v) {}
  AttrArg(std::string_view n, const char* v) : name(n), value(std::string(v)) {}
  AttrArg(std::string_view n, AttrValue v) : name(n), value(std::move(v)) {}
  std::string name;
  AttrValue value;
};

class ModuleBuilder;

class FunctionBuilder {
 public:
  Dim Symbol(std::string_view name, int64_t lower = 0, int64_t upper = kMaxExtent,
             int64_t multiple = 1);
  DimTable& dims();

  Value In(std::string_view name, DType dtype, const std::vector<Extent>& shape,
           Encoding encoding = Encoding::kDense);
  Value Inout(std::string_view name, DType dtype, const std::vector<Extent>& shape);
  // A parameter that binds a symbol which is no extent of a tensor parameter.
  Dim DimParam(std::string_view name, Dim symbol);

  // Returns one result. `operands` may contain Value{} for an absent one.
  Value Op(std::string_view op, const std::vector<Value>& operands,
           const std::vector<AttrArg>& attrs = {});
  // Returns all results of an op that has more than one.
  std::vector<Value> Ops(std::string_view op, const std::vector<Value>& operands,
                         const std::vector<AttrArg>& attrs = {});
  // For ops with list operands: the values of each operand of the op definition. An operand with
  // one value is a list of one.
  std::vector<Value> OpsWithLists(std::string_view op,
                                  const std::vector<std::vector<Value>>& operands,
                                  const std::vector<AttrArg>& attrs = {});
  Value OpWithLists(std::string_view op, const std::vector<std::vector<Value>>& operands,
                    const std::vector<AttrArg>& attrs = {});

  // Control flow (Control in ir/ops/catalogue.h). The called functions must be complete.
  //
  //   FunctionBuilder f = m.Function("train"), step = m.Function("step");
  //   Value iteration = step.In("iteration", DType::kI64, {}), w = step.Inout("w", DType::kF32, {64});
  //   step.Return("w", step.Op("mul", {w, step.Scalar(DType::kF32, 0.5)}));
  //   Value w0 = f.Inout("w", DType::kF32, {64}), n = f.In("n", DType::kI64, {});
  //   f.Return("w", f.Repeat(n, {w0}, {}, step)[0]);
  std::vector<Value> If(Value condition, const std::vector<Value>& inputs,
                        const FunctionBuilder& then, const FunctionBuilder& otherwise);
  std::vector<Value> While(const std::vector<Value>& carried, const std::vector<Value>& inputs,
                           const FunctionBuilder& condition, const FunctionBuilder& body,
                           int64_t max_trips);
  std::vector<Value> Repeat(Value times, const std::vector<Value>& carried,
                            const std::vector<Value>& inputs, const FunctionBuilder& body);
  void Emit(std::string_view name, Value v);

  // Appends the nodes of the entry of another module, from Gradient or Parse, with these values
  // instead of its parameters. Returns its results. Functions that it calls are added to the
  // module, with its name before theirs. Its symbols are extents of the values. Its `inout`
  // parameters are only read: their new values are among the results. INVALID_ARGUMENT if a value
  // does not have the type of its parameter. UNIMPLEMENTED if the entry has dimensions as
  // parameters, or extents that come from values.
  std::vector<Value> Inline(const Module& module, const std::vector<Value>& arguments);

  // A value without a producer, for a function that is built only to inspect its nodes. Finish
  // refuses it.
  Value Outside(TensorType type);

  // A 0-d constant.
  Value Scalar(DType dtype, double value);

  // Bytes for the attribute `value` of constant.
  BlobRef Blob(std::string bytes);

  // Sets the last node's variant, or its location in the user's source.
  void Pin(std::string_view variant);
  void Location(std::string_view where);

  void Return(std::string_view name, Value v);
  // Whether a node after the producer of `v` uses `operand`.
  bool UsesBehind(Value v, Value operand) const;
  const TensorType& TypeOf(Value v) const;

 private:
  friend class ModuleBuilder;
  struct State;
  explicit FunctionBuilder(State* s) : s_(s) {}
  Value Param(std::string_view name, ParamMode mode, DType dtype, const std::vector<Extent>& shape,
              Encoding encoding = Encoding::kDense);
  std::vector<Value> Append(std::string_view op, std::vector<ValueId> operands,
                            std::vector<uint32_t> segments, const std::vector<AttrArg>& attrs,
                            std::vector<uint32_t> calls = {},
                            std::vector<TensorType> declared = {});
  std::vector<Value> Call(std::string_view op, const std::vector<std::vector<Value>>& operands,
                          std::vector<const FunctionBuilder*> functions,
                          const std::vector<AttrArg>& attrs = {},
                          std::vector<TensorType> declared = {});
  Value One(std::string_view op, const std::vector<Value>& results);
  State* s_;  // owned by the ModuleBuilder
};

class ModuleBuilder {
 public:
  // `ops` outlives this object.
  explicit ModuleBuilder(const OpCatalogue& ops = Catalogue());
  ~ModuleBuilder();
  ModuleBuilder(ModuleBuilder&&) noexcept;

  // REQUIRES: the builder outlives the returned object.
  FunctionBuilder Function(std::string_view name);
  // Later ops are those of `ops`, which must have all ops that were used so far.
  void UseOps(std::shared_ptr<const OpCatalogue> ops);
  // Returns the verified module, or the first error.
  StatusOr<Module> Finish();

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace opwire

#endif  // OPWIRE_IR_PROGRAM_BUILDER_H_
