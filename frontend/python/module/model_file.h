// The contents of headers of GGUF and safetensors files, as Python's objects.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_MODEL_FILE_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_MODEL_FILE_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>

namespace opwire::python {

// Returns (metadata, tensors) of the beginning of a file, by the path's ending. metadata is a dict
// of its key-values. Each tensor is (name, element type, shape, offset, bytes, the type's name in
// the format). An unsupported element type is given as None. Raises ValueError with the byte of
// the error.
nanobind::tuple ParseHeader(const std::string& path, std::span<const uint8_t> file,
                            int64_t file_bytes);
// The same for a file of this host. Raises OSError if it cannot be read.
nanobind::tuple ReadHeader(const std::string& path);

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_MODEL_FILE_H_
