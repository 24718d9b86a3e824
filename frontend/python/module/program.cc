// Converts arguments and results of compiled functions.
#include "frontend/python/module/program.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <deque>

#include "frontend/python/module/call.h"
#include "frontend/python/module/dtypes.h"
#include "frontend/python/module/errors.h"
#include "frontend/python/module/trace.h"
#include "frontend/python/module/transfer.h"
#include "ir/text/text.h"

namespace opwire::python {
namespace nb = nanobind;

PyProgram::PyProgram(std::shared_ptr<PySession> session, Module module, const std::string& accuracy)
    : session_(std::move(session)), module_(std::move(module)) {
  if (accuracy == "exact")
    options_.passes = Accuracy::kExact;
  else if (accuracy == "fast")
    options_.passes = Accuracy::kFast;
  else if (accuracy.empty())
    options_.passes = std::nullopt;
  else if (accuracy != "usual")
    throw nb::value_error(
        fmt::format("expected accuracy \"exact\", \"usual\" or \"fast\", got \"{}\"", accuracy)
            .c_str());
  {
    const Use use(*session_);
    Load(use);
  }
  const Function& f = module_.functions[0];
  for (const DimSymbol& symbol : module_.dims.symbols()) {
    const size_t before = symbols_.size();
    for (size_t i = 0; i < f.params.size() && symbols_.size() == before; ++i) {
      for (size_t axis = 0; axis < f.params[i].type.shape.size() && symbols_.size() == before;
           ++axis) {
        const DimNode& n = module_.dims.node(f.params[i].type.shape[axis]);
        if (n.kind == DimKind::kSymbol && static_cast<size_t>(n.value) == before)
          symbols_.push_back({i, axis});
      }
    }
    if (symbols_.size() == before)
      throw nb::value_error(
          fmt::format("@{}: ?{} is no extent of a parameter", f.name, symbol.name).c_str());
  }
  for (const Result& r : f.results) {
    int replaced = -1;
    for (size_t i = 0; i < f.params.size(); ++i) {
      if (f.params[i].mode == ParamMode::kInout && f.params[i].name == r.name)
        replaced = static_cast<int>(i);
    }
    inout_of_.push_back(replaced);
  }
  if (symbols_.empty()) Bind({});
}

void PyProgram::Bind(std::vector<int64_t> sizes) {
  const Function& f = module_.functions[0];
  const ValueTypes types(f);
  const DimValues values(module_.dims, sizes);
  std::vector<ResultType> results;
  for (const Result& r : f.results) {
    const TensorType& t = *types.types[static_cast<size_t>(r.value)];
    ResultType result{t.dtype, {}};
    for (const Dim d : t.shape) result.shape.push_back(Unwrap(values.Get(d)));
    results.push_back(std::move(result));
  }
  results_ = std::move(results);
  sizes_ = std::move(sizes);
}

std::vector<int64_t> PyProgram::SizesOf(const std::vector<Arg>& args) const {
  std::vector<int64_t> sizes;
  for (const Place& p : symbols_)
    sizes.push_back(std::get<Tensor>(args[p.param].value()).shape()[p.axis]);
  return sizes;
}

const std::vector<ResultType>& PyProgram::TypesFor(const std::vector<Arg>& args) {
  if (symbols_.empty()) return results_;
  if (std::vector<int64_t> sizes = SizesOf(args); results_.empty() || sizes != sizes_)
    Bind(std::move(sizes));
  return results_;
}

PyProgram::~PyProgram() {
  if (IsForked()) return;
  const Use use = Use::ToEnd(*session_);
  if (program_) session_->loaded.erase(place_);
  program_.reset();
}

void PyProgram::Load(const Use& use) {
  std::list<PyProgram*>& loaded = session_->loaded;
  if (program_) {
    loaded.splice(loaded.begin(), loaded, place_);
    return;
  }
  program_ = use.Unwrap(Waiting([&] { return use->Load(module_, options_); }));
  loaded.push_front(this);
  place_ = loaded.begin();
  if (loaded.size() <= kMostLoaded) return;
  loaded.back()->program_.reset();
  loaded.pop_back();
}

std::vector<Arg> PyProgram::ArgsOf(nb::list given) const {
  const Function& f = module_.functions[0];
  if (given.size() != f.params.size())
    throw nb::value_error(
        fmt::format("@{}: expected {} arguments, got {}", f.name, f.params.size(), given.size())
            .c_str());
  std::vector<Arg> args;
  args.reserve(given.size());
  for (size_t i = 0; i < f.params.size(); ++i) {
    const nb::handle h = PyList_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
    if (PyFloat_Check(h.ptr()) || PyLong_Check(h.ptr())) {
      args.push_back(NumberOf(f.params[i].type.dtype, h));
      continue;
    }
    Array& a = EagerArray(h);
    if (a.session != session_) {
      throw nb::value_error(
          fmt::format("@{}: %{} lies on {}, the function was compiled for {}: move it by to_device",
                      f.name, f.params[i].name, a.session->place, session_->place)
              .c_str());
    }
    args.emplace_back(a.tensor);
  }
  for (const int donated : inout_of_) {
    for (size_t i = 0; donated >= 0 && i < args.size(); ++i) {
      const Tensor* const other = std::get_if<Tensor>(&args[i].value());
      if (i == static_cast<size_t>(donated) || !other ||
          *other != std::get<Tensor>(args[static_cast<size_t>(donated)].value()))
        continue;
      throw nb::value_error(fmt::format("@{}: %{} is donated, and given as %{}, too", f.name,
                                        f.params[static_cast<size_t>(donated)].name,
                                        f.params[i].name)
                                .c_str());
    }
  }
  return args;
}

nb::object PyProgram::ResultsOf(nb::list args, std::vector<Tensor> made) const {
  nb::list out;
  for (size_t r = 0; r < results_.size(); ++r) {
    Tensor tensor = std::move(made[r]);
    if (inout_of_[r] >= 0) {
      const nb::handle h = PyList_GET_ITEM(args.ptr(), inout_of_[r]);
      tensor = std::exchange(AsArray(h)->tensor, Tensor());
    }
    out.append(Wrap(Array(session_, std::move(tensor), results_[r].dtype, results_[r].shape)));
  }
  return out;
}

nb::object PyProgram::Call(nb::list given, nb::handle on_emit) {
  const std::vector<Arg> args = ArgsOf(given);
  const Use use(*session_);
  Load(use);
  const std::vector<ResultType>& results = TypesFor(args);
  if (on_emit.is_none()) {
    const uint64_t mark = session_->sources.Add();
    std::vector<Tensor> made = use.Unwrap(use->Enqueue(*program_, args, results, mark));
    use.Check(use->Flush());
    return ResultsOf(std::move(given), std::move(made));
  }
  RunOptions options;
  std::deque<nb::object> emitted;
  bool hears = false;
  options.on_emit = [&](std::string_view name, const client::Array& value) {
    const Acquired held;
    if (PyErr_Occurred()) return;
    emitted.push_back(nb::make_tuple(nb::str(name.data(), name.size()), DTypeObject(value.dtype()),
                                     ShapeTuple(value.shape()),
                                     nb::bytes(value.bytes().data(), value.bytes().size())));
    if (hears)
      return;  // if on_emit itself waits for the session, later values come after the present call
    hears = true;
    for (; !emitted.empty() && !PyErr_Occurred(); emitted.pop_front()) {
      try {
        on_emit(*nb::borrow<nb::args>(emitted.front()));
      } catch (nb::python_error& e) {
        e.restore();  // ends the wait
      }
    }
    emitted.clear();
    hears = false;
  };
  RunResult result = use.Unwrap(Waiting([&]() -> StatusOr<RunResult> {
    OPWIRE_ASSIGN_OR_RETURN(PendingRun run, program_->Start(args, options));
    for (;;) {
      StatusOr<RunResult> got = run.Wait(50'000);
      if (got.ok() || !absl::IsDeadlineExceeded(got.status())) return got;
      if (Interrupted()) {
        OPWIRE_RETURN_IF_ERROR(run.Cancel());
        return Cancelled("interrupted");
      }
    }
  }));
  if (PyErr_Occurred()) throw nb::python_error();
  std::vector<Tensor> made;
  for (RunResult::Output& o : result.outputs) made.push_back(std::move(o.tensor));
  return ResultsOf(std::move(given), std::move(made));
}

nb::list PyProgram::Profile(nb::list given) {
  const std::vector<Arg> args = ArgsOf(given);
  const Use use(*session_);
  Load(use);
  RunOptions options;
  options.profile = true;
  const RunResult result = use.Unwrap(Waiting([&] { return program_->Run(args, options); }));
  nb::list out;
  for (const StepCost& c : result.profile)
    out.append(nb::make_tuple(c.function, c.node, c.label, c.ns));
  return out;
}

std::string PyProgram::Plan(nb::list given) {
  const std::vector<Arg> args = ArgsOf(given);
  const Use use(*session_);
  Load(use);
  // The passes may have removed some of the symbols.
  std::vector<int64_t> sizes;
  const std::vector<int64_t> all = SizesOf(args);
  for (const DimSymbol& left : program_->module().dims.symbols()) {
    const auto it = std::ranges::find(module_.dims.symbols(), left.name, &DimSymbol::name);
    sizes.push_back(all.at(static_cast<size_t>(it - module_.dims.symbols().begin())));
  }
  return use.Unwrap(Waiting([&] { return program_->Plan(sizes); }));
}

std::string PyProgram::Text() {
  const Use use(*session_);
  Load(use);
  return Print(program_->module());
}

nb::object CallKey(nb::tuple args) {
  if (Trace::Current()) return nb::none();
  char key[512];
  size_t at = 0;
  bool arrays = false;
  const auto append = [&](const void* from, size_t bytes) {
    if (at + bytes > sizeof key) return false;
    std::memcpy(key + at, from, bytes);
    at += bytes;
    return true;
  };
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.ptr()); ++i) {
    const nb::handle h = PyTuple_GET_ITEM(args.ptr(), i);
    bool fits;
    if (const Array* a = AsArray(h)) {
      if (a->trace) return nb::none();
      arrays = true;
      const PySession* const session = a->session.get();
      const uint8_t type[3] = {static_cast<uint8_t>(a->dtype), static_cast<uint8_t>(a->encoding),
                               static_cast<uint8_t>(a->shape.size())};
      fits = append(type, sizeof type) && append(&session, sizeof session) &&
             append(a->shape.data(), a->shape.size() * sizeof(int64_t));
    } else {
      const char type = PyFloat_Check(h.ptr())  ? 'f'
                        : PyBool_Check(h.ptr()) ? 'b'
                        : PyLong_Check(h.ptr()) ? 'i'
                                                : 0;
      if (type == 0) return nb::none();
      fits = append(&type, 1);
    }
    if (!fits) return nb::none();
  }
  return arrays ? nb::object(nb::bytes(key, at)) : nb::none();
}

}  // namespace opwire::python
