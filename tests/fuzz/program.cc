// Any bytes as a program: reading and verifying must end in a program or an error, and a program
// must survive writing and reading.
#include <cstdlib>

#include "ir/program/serialise.h"
#include "ir/verify/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  auto module = Deserialise({data, size});
  if (!module.ok()) return 0;
  const bool verified = VerifyModule(*module).ok();
  const std::string bytes = Serialise(*module);
  auto again = Deserialise({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (verified && (!again.ok() || !Equal(*module, *again))) std::abort();
  return 0;
}
