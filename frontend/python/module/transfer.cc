// Buffers.
#include "frontend/python/module/transfer.h"

#include <fmt/format.h>

#include "frontend/python/module/errors.h"

namespace opwire::python {
namespace nb = nanobind;

namespace {

constexpr int64_t kSmall = 64 << 10;

// A contiguous buffer of an object's for a scope.
class Buffer {
 public:
  Buffer(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  void* data() const { return view_.buf; }
  int64_t bytes() const { return view_.len; }

 private:
  Py_buffer view_;
};

void CheckBytes(const Buffer& buffer, int64_t expected) {
  if (buffer.bytes() != expected)
    throw nb::value_error(
        fmt::format("expected a buffer of {} bytes, got {}", expected, buffer.bytes()).c_str());
}

// Memory of a session's segment, as an object with a buffer.
struct SharedBytes {
  std::shared_ptr<PySession> session;
  TensorView view;
  ~SharedBytes() {
    if (IsForked() || OthersEnded()) return;
    const Use use = Use::ToEnd(*session);  // the view's end is a message's matter
    view = TensorView();
  }
};

int GetBuffer(PyObject* object, Py_buffer* out, int flags) {
  const SharedBytes& shared = *nb::inst_ptr<SharedBytes>(object);
  const auto bytes = shared.view.bytes();
  return PyBuffer_FillInfo(out, object, const_cast<uint8_t*>(bytes.data()),
                           static_cast<Py_ssize_t>(bytes.size()), /*readonly=*/1, flags);
}

PyType_Slot shared_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(GetBuffer)}, {0, nullptr}};

// Memory of this process. (A bytearray could be resized while an array of NumPy's reads it, which
// holds the object, but no view of it.)
struct FetchedBytes {
  client::Array array;
};

int GetFetched(PyObject* object, Py_buffer* out, int flags) {
  const auto bytes = nb::inst_ptr<FetchedBytes>(object)->array.bytes();
  return PyBuffer_FillInfo(out, object, bytes.data(), static_cast<Py_ssize_t>(bytes.size()),
                           /*readonly=*/0, flags);
}

PyType_Slot fetched_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(GetFetched)},
                               {0, nullptr}};

}  // namespace

Array& EagerArray(nb::handle h) {
  Array* const a = AsArray(h);
  if (a == nullptr)
    throw nb::type_error(
        fmt::format("expected an array, got {}", nb::type_name(h.type()).c_str()).c_str());
  if (a->trace)
    throw nb::value_error(
        "the value of a traced array is not known while its function is traced: it has a type and "
        "a shape only");
  if (!a->tensor.valid()) throw nb::value_error("this array was given away (donated) or freed");
  return *a;
}

nb::object Put(std::shared_ptr<PySession> session, PyDType type, std::vector<int64_t> shape,
               nb::handle object) {
  const Buffer buffer(object, PyBUF_C_CONTIGUOUS);
  const auto bytes = TensorBytes(type.type, type.encoding, shape);
  if (!bytes) throw nb::value_error("the array is too large, or its rows are no whole blocks");
  CheckBytes(buffer, *bytes);
  const Use use(*session);
  const ArrayView view{type.type, shape, buffer.data(), *bytes, type.encoding};
  Tensor made = use.Unwrap(Waiting([&] { return use->Put(view); }));
  return Wrap(Array(session, std::move(made), type.type, std::move(shape), type.encoding));
}

nb::object Fetch(nb::handle h) {
  const Array& a = EagerArray(h);
  if (a.encoding != Encoding::kDense) {
    throw nb::type_error(
        fmt::format(
            "an array of blocks, {}{}, has no elements to read: see opwire.dequantize_blocks",
            PythonName(a.dtype, a.encoding), ShapeToString(a.shape))
            .c_str());
  }
  const auto session = a.session;
  const Tensor tensor = a.tensor;
  const int64_t bytes = TensorBytes(a.dtype, Encoding::kDense, a.shape).value_or(0);
  const Use use(*session);
  if (bytes > kSmall) {
    TensorView view = use.Unwrap(Waiting([&] { return use->View(tensor); }));
    nb::object made = nb::inst_alloc(nb::type<SharedBytes>());
    new (nb::inst_ptr<SharedBytes>(made)) SharedBytes{session, std::move(view)};
    nb::inst_mark_ready(made);
    return made;
  }
  client::Array got = use.Unwrap(Waiting([&] { return use->Fetch(tensor); }));
  nb::object made = nb::inst_alloc(nb::type<FetchedBytes>());
  new (nb::inst_ptr<FetchedBytes>(made)) FetchedBytes{std::move(got)};
  nb::inst_mark_ready(made);
  return made;
}

void BindTransfer(nb::module_& m) {
  nb::class_<SharedBytes>(m, "SharedBytes", nb::type_slots(shared_slots));
  nb::class_<FetchedBytes>(m, "FetchedBytes", nb::type_slots(fetched_slots));
}

}  // namespace opwire::python
