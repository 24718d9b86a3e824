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
#include "ir/files/gguf.h"
#include "ir/files/safetensors.h"

namespace opwire::python {
namespace nb = nanobind;

namespace {

// What a format leaves to its writer may be no UTF-8: a token of half a character.
nb::object TextOf(const std::string& text) {
  nb::object made = nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
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
  for (size_t i = 0; i < list.size(); ++i) PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), ObjectOf(static_cast<T>(list[i])).release().ptr());
  return made;
}

nb::list TensorsOf(const std::vector<FileTensor>& tensors) {
  nb::list out;
  for (const FileTensor& t : tensors) {
    nb::object type = t.dtype == DType::kInvalid ? nb::none() : DTypeObject(t.dtype, t.encoding);
    out.append(nb::make_tuple(TextOf(t.name), type, ShapeTuple(t.shape), t.offset, t.bytes, TextOf(t.type)));
  }
  return out;
}

bool IsGguf(const std::string& path) { return path.ends_with(".gguf"); }

// As ParseHeader; nothing where the header goes on behind `file`.
std::optional<nb::tuple> Parse(const std::string& path, std::span<const uint8_t> file, int64_t file_bytes, bool whole) {
  const auto failed = [&](const Status& status) {
    if (absl::IsOutOfRange(status) && !whole) return;
    Raise(absl::Status(absl::StatusCode::kInvalidArgument, fmt::format("{}: {}", path, MessageOf(status))));
  };
  nb::dict metadata;
  if (IsGguf(path)) {
    const StatusOr<GgufHeader> header = ParseGguf(file, file_bytes);
    if (!header.ok()) return failed(header.status()), std::nullopt;
    for (const auto& [key, value] : header->values) metadata[key.c_str()] = std::visit([](const auto& v) { return ObjectOf(v); }, value);
    return nb::make_tuple(metadata, TensorsOf(header->tensors));
  }
  const StatusOr<SafetensorsHeader> header = ParseSafetensors(file, file_bytes);
  if (!header.ok()) return failed(header.status()), std::nullopt;
  for (const auto& [key, value] : header->metadata) metadata[TextOf(key)] = TextOf(value);
  return nb::make_tuple(metadata, TensorsOf(header->tensors));
}

[[noreturn]] void RaiseErrno(const std::string& path) {
  PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
  throw nb::python_error();
}

}  // namespace

nb::tuple ParseHeader(const std::string& path, std::span<const uint8_t> file, int64_t file_bytes) { return *Parse(path, file, file_bytes, true); }

nb::tuple ReadHeader(const std::string& path) {
  constexpr int64_t kFirst = 1 << 20;
  const OwnedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st;
  if (fd.get() < 0 || fstat(fd.get(), &st) != 0) RaiseErrno(path);
  if (!S_ISREG(st.st_mode)) throw nb::value_error(fmt::format("{}: expected a regular file", path).c_str());
  const int64_t most = std::min<int64_t>(st.st_size, IsGguf(path) ? kGgufMaxHeader : kSafetensorsMaxHeader);
  std::vector<uint8_t> head;
  for (int64_t bytes = std::min(kFirst, most);; bytes = std::min(4 * bytes, most)) {
    auto have = static_cast<int64_t>(head.size());
    head.resize(static_cast<size_t>(bytes));
    while (have < bytes) {
      const ssize_t n = pread(fd.get(), head.data() + have, static_cast<size_t>(bytes - have), have);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) RaiseErrno(path);
      if (n == 0) throw nb::value_error(fmt::format("{}: it ends {} bytes early", path, bytes - have).c_str());
      have += n;
    }
    if (auto parsed = Parse(path, head, st.st_size, bytes == most)) return *std::move(parsed);
  }
}

}  // namespace opwire::python
