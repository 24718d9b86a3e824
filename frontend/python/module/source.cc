// Walks up frames.
#include "frontend/python/module/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

namespace opwire::python {
namespace {

constexpr size_t kRing = 1 << 16;
std::string* folder_of_package = nullptr;

// Whether code is the package's own; by the object that its file's name is, which all functions of
// a module share.
bool IsOwn(PyCodeObject* code) {
  static auto* const known = new std::unordered_map<PyObject*, bool>;
  PyObject* const name = code->co_filename;
  const auto it = known->find(name);
  if (it != known->end()) return it->second;
  const char* const text = PyUnicode_AsUTF8(name);
  const bool own = text != nullptr && folder_of_package != nullptr &&
                   std::string_view(text).starts_with(*folder_of_package);
  if (known->size() < 10'000) {
    Py_INCREF(name);  // so that no other string takes its place
    known->emplace(name, own);
  }
  return own;
}

}  // namespace

void SetPackageFolder(std::string folder) {
  folder_of_package = new std::string(std::move(folder));
}

SourceLine Here() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    if (!IsOwn(code)) {
      const SourceLine line{reinterpret_cast<PyObject*>(code), PyFrame_GetLasti(frame)};
      Py_DECREF(frame);
      return line;
    }
    Py_DECREF(code);
    PyFrameObject* const caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  return {};
}

std::string TextOf(const SourceLine& at) {
  if (at.code == nullptr) return "";
  auto* const code = reinterpret_cast<PyCodeObject*>(at.code);
  const char* const name = PyUnicode_AsUTF8(code->co_filename);
  return fmt::format("{}:{}", std::filesystem::path(name ? name : "?").filename().string(),
                     PyCode_Addr2Line(code, at.instruction));
}

Sources::~Sources() {
  for (const SourceLine& s : ring_) Py_XDECREF(s.code);
}

uint64_t Sources::Add() {
  const SourceLine line = Here();
  if (ring_.size() < kRing) {
    ring_.push_back(line);
  } else {
    Py_XDECREF(ring_[next_ % kRing].code);
    ring_[next_ % kRing] = line;
  }
  return next_++;
}

std::string Sources::Find(uint64_t number) const {
  if (number >= next_ || next_ - number > ring_.size()) return "";
  return TextOf(ring_[number % kRing]);
}

}  // namespace opwire::python
