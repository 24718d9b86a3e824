// SHA-256 over a list of fields. Each is added with its length, so different lists never give the
// same input.
#ifndef OPWIRE_KERNELS_JIT_DIGEST_H_
#define OPWIRE_KERNELS_JIT_DIGEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace opwire::jit {

class Digest {
 public:
  Digest();
  Digest& Add(std::string_view field);
  Digest& Add(int64_t number);
  Digest& Add(const std::vector<std::string>& fields);
  std::string Hex();  // once, at the end

 private:
  alignas(8) unsigned char state_[128];  // libsodium's
};

// Of the bytes alone: the value that sha256sum prints.
std::string Sha256(std::string_view bytes);
// The same of a file. NOT_FOUND if it is not a readable file.
StatusOr<std::string> Sha256OfFile(const std::string& path);

}  // namespace opwire::jit

#endif  // OPWIRE_KERNELS_JIT_DIGEST_H_
