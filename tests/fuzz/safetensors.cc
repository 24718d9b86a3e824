// Any bytes as a safetensors file: tensors that fill the file, or an error; a beginning of the file
// gives the same, or asks for more.
#include "ir/files/safetensors.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  const auto file_bytes = static_cast<int64_t>(size);
  const auto header = ParseSafetensors({data, size}, file_bytes);
  if (absl::IsOutOfRange(header.status())) std::abort();
  const auto of_half = ParseSafetensors({data, size / 2}, file_bytes);
  if (!absl::IsOutOfRange(of_half.status()) && of_half.status() != header.status()) std::abort();
  if (!header.ok()) return 0;
  int64_t sum = 0;
  for (const FileTensor& t : header->tensors) {
    if (t.offset < header->data_offset || t.bytes < 0 || t.bytes > file_bytes - t.offset)
      std::abort();
    sum += t.bytes;
  }
  if (sum != file_bytes - header->data_offset) std::abort();
  return 0;
}
