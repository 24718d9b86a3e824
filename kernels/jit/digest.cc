// Over libsodium.
#include "kernels/jit/digest.h"

#include <sodium.h>

#include "kernels/jit/files.h"

namespace opwire::jit {
namespace {

static_assert(sizeof(crypto_hash_sha256_state) <= 128);
crypto_hash_sha256_state* StateIn(unsigned char* bytes) {
  return reinterpret_cast<crypto_hash_sha256_state*>(bytes);
}

std::string HexOf(const unsigned char (&hash)[crypto_hash_sha256_BYTES]) {
  char text[2 * sizeof(hash) + 1];
  return sodium_bin2hex(text, sizeof(text), hash, sizeof(hash));
}

void Update(unsigned char* state, std::string_view bytes) {
  crypto_hash_sha256_update(StateIn(state), reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

}  // namespace

Digest::Digest() { crypto_hash_sha256_init(StateIn(state_)); }

Digest& Digest::Add(int64_t number) {
  Update(state_, {reinterpret_cast<const char*>(&number), sizeof(number)});
  return *this;
}

Digest& Digest::Add(std::string_view field) {
  Add(static_cast<int64_t>(field.size()));
  Update(state_, field);
  return *this;
}

Digest& Digest::Add(const std::vector<std::string>& fields) {
  Add(static_cast<int64_t>(fields.size()));
  for (const std::string& field : fields) Add(std::string_view(field));
  return *this;
}

std::string Digest::Hex() {
  unsigned char hash[crypto_hash_sha256_BYTES];
  crypto_hash_sha256_final(StateIn(state_), hash);
  return HexOf(hash);
}

std::string Sha256(std::string_view bytes) {
  unsigned char hash[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(hash, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return HexOf(hash);
}

StatusOr<std::string> Sha256OfFile(const std::string& path) {
  OPWIRE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return Sha256(bytes);
}

}  // namespace opwire::jit
