// Names by SHA-256, so that contexts need not be fit for file names.
#include "kernels/select/context_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>

namespace opwire {

std::string ContextFileName(std::string_view kind, std::string_view context) {
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, reinterpret_cast<const unsigned char*>(context.data()),
                     context.size());
  std::string name = fmt::format("{}-", kind);
  for (int i = 0; i < 16; ++i) name += fmt::format("{:02x}", digest[i]);
  return name;
}

OwnedFd OpenToAppend(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  return OwnedFd(fd >= 0 ? fd : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

}  // namespace opwire
