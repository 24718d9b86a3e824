// Reads as much of a file as its header takes.
#include "frontend/python/module/model_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "frontend/python/module/array.h"
#include "frontend/python/module/dtypes.h"
#include "frontend/python/module/errors.h"
#include "ir/base/owned_fd.h"
#include "ir/files/file_kind.h"
#include "ir/files/gguf.h"
#include "ir/files/read_header.h"
#include "ir/files/safetensors.h"

namespace opwire::python {
namespace nb = nanobind;

namespace {

// What a format leaves to its writer may be no UTF-8: a token of half a character.
nb::object TextOf(const std::string& text) {
  nb::object made = nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

nb::object ObjectOf(const std::string& v) { return TextOf(v); }
template <typename T>
nb::object ObjectOf(const T& v) {
  return nb::cast(v);
}
template <typename T>
nb::object ObjectOf(const std::vector<T>& list) {
  nb::object made = nb::steal(PyList_New(static_cast<Py_ssize_t>(list.size())));
  for (size_t i = 0; i < list.size(); ++i)
    PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i),
                    ObjectOf(static_cast<T>(list[i])).release().ptr());
  return made;
}

nb::list TensorsOf(const std::vector<FileTensor>& tensors) {
  nb::list out;
  for (const FileTensor& t : tensors) {
    nb::object type = t.dtype == DType::kInvalid ? nb::none() : DTypeObject(t.dtype, t.encoding);
    out.append(nb::make_tuple(TextOf(t.name), type, ShapeTuple(t.shape), t.offset, t.bytes,
                              TextOf(t.type)));
  }
  return out;
}

void Check(const std::string& path, const Status& parsed) {
  if (!parsed.ok())
    Raise(absl::Status(absl::StatusCode::kInvalidArgument,
                       fmt::format("{}: {}", path, MessageOf(parsed))));
}

nb::tuple TupleOf(const std::string& path, const StatusOr<GgufHeader>& header) {
  Check(path, header.status());
  nb::dict metadata;
  for (const auto& [key, value] : header->values)
    metadata[key.c_str()] = std::visit([](const auto& v) { return ObjectOf(v); }, value);
  return nb::make_tuple(metadata, TensorsOf(header->tensors));
}

nb::tuple TupleOf(const std::string& path, const StatusOr<SafetensorsHeader>& header) {
  Check(path, header.status());
  nb::dict metadata;
  for (const auto& [key, value] : header->metadata) metadata[TextOf(key)] = TextOf(value);
  return nb::make_tuple(metadata, TensorsOf(header->tensors));
}

// Of the two formats that name tensors.
bool IsGguf(const std::string& path, std::span<const uint8_t> file, int64_t file_bytes) {
  StatusOr<FileKind> kind = KindOfFile(
      file.first(std::min(file.size(), static_cast<size_t>(kKindBytes))), file_bytes, path);
  if (kind.ok() && *kind == FileKind::kNpy)
    kind = InvalidArgument(
        "it is an array of NumPy's, without names: load it by the store, or by numpy.load");
  Check(path, kind.status());
  return *kind == FileKind::kGguf;
}

[[noreturn]] void RaiseErrno(const std::string& path) {
  PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
  throw nb::python_error();
}

}  // namespace

nb::tuple ParseHeader(const std::string& path, std::span<const uint8_t> file, int64_t file_bytes) {
  return IsGguf(path, file, file_bytes) ? TupleOf(path, ParseGguf(file, file_bytes))
                                        : TupleOf(path, ParseSafetensors(file, file_bytes));
}

nb::tuple ReadHeader(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat st;
  if (fd.get() < 0 || fstat(fd.get(), &st) != 0) RaiseErrno(path);
  if (!S_ISREG(st.st_mode))
    throw nb::value_error(fmt::format("{}: expected a regular file", path).c_str());
  const auto read = [&](uint8_t* into, int64_t bytes, int64_t offset) -> Status {
    while (bytes > 0) {
      const ssize_t n = pread(fd.get(), into, static_cast<size_t>(bytes), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) RaiseErrno(path);
      if (n == 0) return InvalidArgument("it ends {} bytes early", bytes);
      into += n;
      bytes -= n;
      offset += n;
    }
    return absl::OkStatus();
  };
  std::vector<uint8_t> first(static_cast<size_t>(std::min<int64_t>(st.st_size, kKindBytes)));
  Check(path, read(first.data(), static_cast<int64_t>(first.size()), 0));
  return IsGguf(path, first, st.st_size)
             ? TupleOf(path, opwire::ReadHeader(ParseGguf, kGgufMaxHeader, st.st_size, read))
             : TupleOf(path, opwire::ReadHeader(ParseSafetensors, kSafetensorsMaxHeader, st.st_size,
                                                read));
}

}  // namespace opwire::python
