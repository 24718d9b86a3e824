// opwire._core: what the package's Python code is written over.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "frontend/cpp/placement.h"
#include "frontend/python/module/array.h"
#include "frontend/python/module/call.h"
#include "frontend/python/module/dlpack.h"
#include "frontend/python/module/dtypes.h"
#include "frontend/python/module/errors.h"
#include "frontend/python/module/interpreter.h"
#include "frontend/python/module/model_file.h"
#include "frontend/python/module/program.h"
#include "frontend/python/module/session.h"
#include "frontend/python/module/source.h"
#include "frontend/python/module/trace.h"
#include "frontend/python/module/transfer.h"
#include "ir/passes/gradient.h"
#include "ir/text/text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace opwire::python {
namespace {

// Ops are queued with the interpreter, which is free while one waits until they can be sent.
void WithoutInterpreter(absl::FunctionRef<void()> wait) {
  if (PyGILState_Check() == 0) return wait();
  const Released released;
  wait();
}

nb::dict FactsOf(const ExecutorFacts& e) {
  nb::dict facts, out;
  for (const auto& [key, value] : e.facts) facts[key.c_str()] = value;
  out["id"] = e.id;
  out["device"] = e.device;
  out["device_name"] = e.device_name;
  out["arch"] = e.arch;
  out["endpoint"] = e.control_endpoint;
  out["host"] = e.host;
  out["memory_bytes"] = e.memory_bytes;
  out["free_memory"] = e.free_memory;
  out["compute_units"] = e.compute_units;
  out["labels"] = nb::cast(e.labels);
  out["facts"] = facts;
  out["sessions"] = e.sessions;
  out["queued"] = e.queued;
  out["busy_ms"] = e.busy_ms;
  out["running"] = e.running;
  out["runs"] = e.runs;
  out["insecure"] = e.insecure;
  return out;
}

// An array of a tensor that the session has.
nb::object Held(PySession& s, Tensor t) {
  const DType dtype = t.dtype();
  const Encoding encoding = t.encoding();
  std::vector<int64_t> shape = t.shape();
  return Wrap(Array(s.shared_from_this(), std::move(t), dtype, std::move(shape), encoding));
}

void BindClient(nb::module_& m) {
  nb::class_<Client>(m, "Client")
      .def_static(
          "connect",
          [](std::vector<std::string> registries, bool embedded) {
            ClientOptions options;
            options.registries = std::move(registries);
            options.name = "python";
            options.embedded = embedded;
            options.interrupted = Interrupted;
            options.waiting = WithoutInterpreter;
            return Unwrap(Client::Connect(options));
          },
          "registries"_a, "embedded"_a)
      .def("start_if_none",
           [](Client& c, const std::string& device) {
             Check(Waiting([&] { return c.StartIfNone(device); }));
           })
      .def(
          "executors",
          [](Client& c, bool with_ops) {
            nb::list out;
            for (const ExecutorFacts& e : Unwrap(Waiting([&] { return c.Executors(with_ops); })))
              out.append(FactsOf(e));
            return out;
          },
          "with_ops"_a = false)
      .def(
          "open",
          [](Client& c, const std::string& device, const std::string& name, int64_t memory_bytes,
             int64_t ttl_s, const std::string& place) {
            SessionOptions options;
            options.device = device;
            options.name = name;
            options.memory_bytes = memory_bytes;
            options.ttl_s = ttl_s;
            return std::make_shared<PySession>(Unwrap(Waiting([&] { return c.Open(options); })),
                                               place);
          },
          "device"_a, "name"_a, "memory_bytes"_a, "ttl_s"_a, "place"_a);
  nb::class_<Wait>(m, "Wait")
      .def(nb::init<>())
      .def("leave", &Wait::Leave)
      .def("__enter__", &Wait::Enter)
      .def(
          "__exit__", [](Wait& w, nb::handle, nb::handle, nb::handle) { w.Exit(); },
          nb::arg().none(), nb::arg().none(), nb::arg().none());
  nb::class_<PySession>(m, "Session")
      .def_prop_ro("executor", [](PySession& s) { return s.session.executor(); })
      .def_prop_ro("place", [](PySession& s) { return s.place; })
      // Arrays, compiled functions and ops of the session, which hold it as its own object does.
      .def_prop_ro("users", [](PySession& s) { return s.weak_from_this().use_count() - 1; })
      .def("__enter__", [](PySession& s) { s.held.push_back(std::make_unique<Use>(s)); })
      .def(
          "__exit__",
          [](PySession& s, nb::handle, nb::handle, nb::handle) {
            const std::unique_ptr<Use> use = std::move(s.held.back());
            s.held.pop_back();
          },
          nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def("flush",
           [](PySession& s) {
             const Use use(s);
             use.Check(Waiting([&] { return use->Flush(); }));
           })
      .def(
          "info",
          [](PySession& s, const std::string& topic, const std::string& argument) {
            const Use use(s);
            return use.Unwrap(Waiting([&] { return use->Info(topic, argument); }));
          },
          "topic"_a, "argument"_a = "")
      .def("tensors",
           [](PySession& s) {
             const Use use(s);
             nb::list out;
             for (const TensorFacts& t : use.Unwrap(Waiting([&] { return use->List(); }))) {
               nb::dict d;
               d["id"] = t.id;
               d["name"] = t.name;
               d["dtype"] = IsValid(t.dtype) ? DTypeObject(t.dtype, t.encoding)
                                             : nb::none();  // of a run that failed
               d["shape"] = ShapeTuple(t.shape);
               d["bytes"] = t.bytes;
               d["usable"] = t.usable;
               out.append(d);
             }
             return out;
           })
      .def("find",
           [](PySession& s, const std::string& name) {
             const Use use(s);
             return Held(s, use.Unwrap(Waiting([&] { return use->Find(name); })));
           })
      .def("load_file",
           [](PySession& s, const std::string& path, const std::vector<std::string>& tensors) {
             const Use use(s);
             std::vector<nb::object> out;
             for (Tensor& t : use.Unwrap(Waiting([&] { return use->LoadFile(path, tensors); })))
               out.push_back(Held(s, std::move(t)));
             return out;
           })
      .def("load_header",
           [](PySession& s, const std::string& path) {
             const Use use(s);
             const StatusOr<FileHeader> header = Waiting([&] { return use->LoadHeader(path); });
             // None of its files, which may be one of this host's.
             if (absl::IsNotFound(header.status()) || absl::IsPermissionDenied(header.status()) ||
                 absl::IsFailedPrecondition(header.status()))
               return nb::object(nb::none());
             use.Check(header.status());
             return nb::object(ParseHeader(path, header->bytes, header->file_bytes));
           })
      .def("copy",
           [](PySession& s, nb::handle array) {
             const Array& a = EagerArray(array);
             const Use use(s);
             return Held(s, use.Unwrap(Waiting([&] { return use->Copy(a.tensor); })));
           })
      .def("rename",
           [](PySession& s, nb::handle array, const std::string& name) {
             Array& a = EagerArray(array);
             const Use use(s);
             use.Check(Waiting([&] { return use->Rename(a.tensor, name); }));
             a.tensor.Leave();
           })
      .def("free",
           [](PySession& s, nb::handle array) {
             Array& a = EagerArray(array);
             const Use use(s);
             use.Check(Waiting([&] { return use->Free(a.tensor); }));
             a.tensor = Tensor();
           })
      .def(
          "grant",
          [](PySession& s, nb::handle array, const std::string& session,
             const std::string& principal, const std::string& name) {
            Array& a = EagerArray(array);
            const Use use(s);
            return use.Unwrap(Waiting([&] {
              return use->Grant(a.tensor, {session, principal, name});
            }));
          },
          "array"_a, "session"_a, "principal"_a, "name"_a)
      .def("revoke",
           [](PySession& s, const std::string& capability) {
             const Use use(s);
             use.Check(Waiting([&] { return use->Revoke(capability); }));
           })
      .def(
          "take",
          [](PySession& s, const std::string& what, const std::optional<std::string>& session) {
            const Use use(s);
            return Held(s, use.Unwrap(Waiting([&] {
              return session ? use->Take(*session, what) : use->Take(what);
            })));
          },
          "what"_a, "session"_a.none() = nb::none())
      .def("leave",
           [](PySession& s) {
             const Use use(s);
             Waiting([&] { use->Leave(); });
           })
      .def(
          "close",
          [](PySession& s, bool free) {
            const Use use(s);
            use.Check(Waiting([&] { return use->Close(free); }));
          },
          "free"_a = false);
}

// Reversed operators come with the other operand first.
template <bool kReversed>
auto Binary(const char* name) {
  return [op = new PyOp(name)](nb::handle a, nb::handle b) {
    return kReversed ? op->Operator(b, a) : op->Operator(a, b);
  };
}

// What compares with arrays of at least `bytes`; null until it is set.
struct LargeComparison {
  PyObject* compare = nullptr;
  int64_t bytes = 0;
};
LargeComparison large_comparison;

bool IsLarge(const Array& a) {
  return a.trace == nullptr &&
         TensorBytes(a.dtype, a.encoding, a.shape).value_or(0) >= large_comparison.bytes;
}

// As Binary, but the function of set_large_comparison compares large arrays. If it returns None,
// they are compared as others are.
auto Comparison(const char* name) {
  return [name, plain = Binary<false>(name)](nb::handle a, nb::handle b) -> nb::object {
    const Array *const x = AsArray(a), *const y = AsArray(b);
    const bool traced = x->trace != nullptr || (y != nullptr && y->trace != nullptr);
    if (!traced && large_comparison.compare != nullptr &&
        (IsLarge(*x) || (y != nullptr && IsLarge(*y)))) {
      nb::object made = nb::handle(large_comparison.compare)(name, a, b);
      if (!made.is_none()) return made;
    }
    return plain(a, b);
  };
}

void BindArray(nb::module_& m) {
  nb::class_<Array> array(m, "Array");
  array.def_prop_ro("dtype", [](const Array& a) { return DTypeObject(a.dtype, a.encoding); })
      .def_prop_ro("shape", [](const Array& a) { return ShapeOf(a); })
      .def_prop_ro("ndim", [](const Array& a) { return a.shape.size(); })
      .def_prop_ro("size", &SizeOf)
      .def_prop_ro(
          "nbytes",
          [](const Array& a) -> nb::object {
            if (a.encoding == Encoding::kDense) return SizeOf(a) * nb::int_(DTypeBytes(a.dtype));
            return nb::int_(TensorBytes(a.dtype, a.encoding, a.shape).value_or(0));
          },
          "Bytes of its elements.")
      .def_prop_ro("traced", [](const Array& a) { return a.trace != nullptr; })
      .def_prop_rw(
          "weak", [](const Array& a) { return a.weak; }, [](Array& a, bool weak) { a.weak = weak; })
      .def_rw("stored", &Array::stored)
      .def_prop_ro("valid", [](const Array& a) { return a.trace != nullptr || a.tensor.valid(); })
      .def_prop_ro("session", [](const Array& a) { return a.session; })
      .def_prop_ro("id",
                   [](const Array& a) { return a.tensor.valid() ? a.tensor.id() : std::string(); })
      .def("_replace", &Replace);
  const auto both = [&](const char* name, const char* op) {
    array.def(fmt::format("__{}__", name).c_str(), Binary<false>(op), nb::is_operator(),
              nb::arg("other").none());
    array.def(fmt::format("__r{}__", name).c_str(), Binary<true>(op), nb::is_operator(),
              nb::arg("other").none());
  };
  both("add", "add");
  both("sub", "sub");
  both("mul", "mul");
  both("pow", "pow");
  both("and", "bitwise_and");
  both("or", "bitwise_or");
  both("xor", "bitwise_xor");
  for (const char* const name : {"eq", "ne", "lt", "le", "gt", "ge"})
    array.def(fmt::format("__{}__", name).c_str(), Comparison(name), nb::is_operator(),
              nb::arg("other").none());
  m.def("set_large_comparison", [](nb::object compare, int64_t bytes) {
    large_comparison = {compare.release().ptr(), bytes};
  });
  m.def("set_array_class", [](nb::handle c) { SetArrayClass(c); });
  m.def("set_default_session", [](nb::object f) { SetDefaultSession(std::move(f)); });
  m.def("set_converter", [](nb::object f) { SetConverter(std::move(f)); });
  m.def("set_package_folder", &SetPackageFolder);
  m.def("promote", [](nb::handle a, nb::handle b) {
    const DType t = Promote(DTypeOf(a), DTypeOf(b));
    return t == DType::kInvalid ? nb::none() : DTypeObject(t);
  });
  m.def("cast", [](nb::handle a, nb::handle to) { return Cast(a, DTypeOf(to)); });
  nb::class_<PyOp>(m, "Op")
      .def(nb::init<std::string>())
      .def(nb::init<std::shared_ptr<PySession>, std::string>())
      .def("__call__", &PyOp::Call, nb::arg("operands").none(), nb::arg("attrs"))
      .def("many", &PyOp::Many, nb::arg("operands").none(), nb::arg("attrs"))
      .def("two", &PyOp::Two, "a"_a.none(), "b"_a.none())
      .def("update", &PyOp::Update, nb::arg("operands").none(), nb::arg("attrs"));
  m.def("put", [](std::shared_ptr<PySession> s, nb::handle dtype, std::vector<int64_t> shape,
                  nb::handle buffer) {
    return Put(std::move(s), StoredTypeOf(dtype), std::move(shape), buffer);
  });
  m.def("fetch", &Fetch);
  m.def("read_header", &ReadHeader);
  BindTransfer(m);
  BindDLPack(m);
}

void BindTrace(nb::module_& m) {
  using Objects = std::vector<nb::object>;
  nb::class_<Trace>(m, "Trace")
      .def(nb::new_([](const std::string& name, bool check_nan) {
             return std::make_shared<Trace>(name, check_nan);
           }),
           "name"_a, "check_nan"_a = false)
      .def("nested", [](Trace& t, const std::string& name,
                        bool apart) { return std::make_shared<Trace>(t, name, apart); })
      .def_static("current", &Trace::Current)
      .def("__enter__", [](Trace& t) { t.Enter(); })
      .def(
          "__exit__", [](Trace& t, nb::handle, nb::handle, nb::handle) { t.Leave(); },
          nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def(
          "param",
          [](Trace& t, const std::string& name, nb::handle dtype, nb::sequence shape, bool inout,
             bool weak) { return t.Param(name, StoredTypeOf(dtype), shape, inout, weak); },
          "name"_a, "dtype"_a, "shape"_a, "inout"_a = false, "weak"_a = false)
      .def("declare", &Trace::Declare)
      .def_prop_ro("captured", [](Trace& t) { return t.captured(); })
      .def_prop_ro("complete", &Trace::complete)
      .def("constant",
           [](Trace& t, nb::handle dtype, const std::vector<int64_t>& shape, nb::bytes b) {
             return t.Constant(DTypeOf(dtype), shape, {b.c_str(), b.size()});
           })
      .def("inline",
           [](Trace& t, const TracedModule& module, const Objects& args, int counts,
              const std::vector<std::string>& counted) {
             return t.Inline(module, args, counts, counted);
           })
      .def("if_", [](Trace& t, nb::handle c, const Objects& in, const Trace& a,
                     const Trace& b) { return t.If(c, in, a, b); })
      .def("while_", [](Trace& t, const Objects& carried, const Objects& in, const Trace& c,
                        const Trace& b, int64_t most) { return t.While(carried, in, c, b, most); })
      .def("repeat", [](Trace& t, nb::handle n, const Objects& carried, const Objects& in,
                        const Trace& b) { return t.Repeat(n, carried, in, b); })
      .def("emit", [](Trace& t, const std::string& name, nb::handle a) { t.Emit(name, a); })
      .def_prop_rw("check_nan", &Trace::check_nan, &Trace::set_check_nan)
      .def_prop_ro("counted", &Trace::counted)
      .def("counts", &Trace::Counts)
      .def("result", [](Trace& t, const std::string& name, nb::handle a) { t.Return(name, a); })
      .def("results", &Trace::ReturnAll)
      .def("finish", &Trace::Finish);
  nb::class_<TracedModule>(m, "Module")
      .def_static("parse",
                  [](const std::string& text, const std::string& name) {
                    return TracedModule{Unwrap(Parse(text, name)), nullptr};
                  })
      .def("text", [](const TracedModule& of) { return Print(of.module); })
      .def("gradient",
           [](const TracedModule& of, const std::vector<std::string>& wrt, const std::string& loss,
              const std::string& nans) {
             std::vector<std::string> counted;
             Module module = Unwrap(Gradient(of.module, wrt,
                                             {.loss = loss,
                                              .ops = of.ops ? *of.ops : Catalogue(),
                                              .nans = nans,
                                              .counted = &counted}));
             return std::pair(TracedModule{std::move(module), of.ops}, std::move(counted));
           })
      .def_prop_ro("params",
                   [](const TracedModule& of) {
                     std::vector<std::string> names;
                     for (const Param& p : of.module.functions[0].params) names.push_back(p.name);
                     return names;
                   })
      .def_prop_ro("results",
                   [](const TracedModule& of) {
                     std::vector<std::string> names;
                     for (const Result& r : of.module.functions[0].results) names.push_back(r.name);
                     return names;
                   })
      .def_prop_ro("nodes",
                   [](const TracedModule& of) { return of.module.functions[0].nodes.size(); });
  BindExtents(m);
  m.def("call_key", &CallKey);
  nb::class_<PyProgram>(m, "Program")
      .def(nb::new_([](std::shared_ptr<PySession> s, const TracedModule& of,
                       const std::string& accuracy) {
             return std::make_shared<PyProgram>(std::move(s), of.module, accuracy);
           }),
           "session"_a, "module"_a, "accuracy"_a = "usual")
      .def("__call__", &PyProgram::Call, "args"_a, "on_emit"_a.none() = nb::none())
      .def("plan", &PyProgram::Plan, "args"_a)
      .def("profile", &PyProgram::Profile)
      .def("text", &PyProgram::Text);
}

}  // namespace
}  // namespace opwire::python

NB_MODULE(_core, m) {
  (void)opwire::python::IsForked();  // begins to watch
  m.attr("__version__") = OPWIRE_VERSION;
  m.def("is_forked", &opwire::python::IsForked);
  m.def("end_others", &opwire::python::EndOthers);
  nb::set_leak_warnings(
      false);  // element types, ops and the class of arrays live as long as the process
  opwire::python::BindDTypes(m);
  opwire::python::BindClient(m);
  opwire::python::BindArray(m);
  opwire::python::BindTrace(m);
}
