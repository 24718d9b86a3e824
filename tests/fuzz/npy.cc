// Any bytes as the header of a .npy file: an array that fits into the file, or an error.
#include "ir/base/npy.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  const auto header = ParseNpyHeader({data, size}, static_cast<int64_t>(size));
  if (header.ok() && (header->data_offset < 0 || header->data_bytes < 0 ||
                      header->data_offset + header->data_bytes > static_cast<int64_t>(size))) {
    std::abort();
  }
  return 0;
}
