// opwire keys: this user's key pair for connections over tcp.
#include "frontend/cli/cli.h"
#include "frontend/cli/facts.h"
#include "ir/wire/trust.h"

namespace opwire::cli {

Status Keys(const Common& common) {
  const std::string path = OwnKeyPath();
  auto pair = ReadKeyPair(path);
  const bool made = absl::IsNotFound(pair.status());
  if (made) pair = CreateKeyPair(path);
  if (!pair.ok()) return pair.status();
  const std::string key = KeyToHex(pair->public_key);
  if (common.json) {
    PrintJsonLine({{"public_key", key}, {"file", path}, {"made", made}});
    return absl::OkStatus();
  }
  fmt::print("public key: {}\n{} {}\n", key,
             made ? "its secret key is new in" : "its secret key is in", path);
  fmt::print(
      "next: to be let in elsewhere, have this line added to the file that --authorized names "
      "there: {} NAME execute\n",
      key);
  return absl::OkStatus();
}

}  // namespace opwire::cli
