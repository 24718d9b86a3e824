// What the headers of GGUF and safetensors files say, as Python's objects.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_MODEL_FILE_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_MODEL_FILE_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>

namespace opwire::python {

// (metadata, tensors) of the beginning of a file, by the path's ending: a dict of its key-values,
// and of each tensor (name, element type, shape, offset, bytes, the type's name in the format);
// None for a type that there is none of here. Raises ValueError with the byte of what is wrong.
nanobind::tuple ParseHeader(const std::string& path, std::span<const uint8_t> file,
                            int64_t file_bytes);
// Of a file of this host. Raises OSError where it cannot be read.
nanobind::tuple ReadHeader(const std::string& path);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_MODEL_FILE_H_
