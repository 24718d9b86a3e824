// Any bytes as a GGUF file: the result is tensors inside the file, or an error. A prefix of the
// file gives the same result, or asks for more bytes.
#include "ir/files/gguf.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  const auto file_bytes = static_cast<int64_t>(size);
  const auto header = ParseGguf({data, size}, file_bytes);
  if (absl::IsOutOfRange(header.status())) std::abort();
  const auto of_half = ParseGguf({data, size / 2}, file_bytes);
  if (!absl::IsOutOfRange(of_half.status()) && of_half.status() != header.status()) std::abort();
  if (!header.ok()) return 0;
  for (const FileTensor& t : header->tensors) {
    if (t.offset < header->data_offset || t.bytes < 0 || t.bytes > file_bytes - t.offset ||
        t.offset % header->alignment != 0)
      std::abort();
  }
  return 0;
}
