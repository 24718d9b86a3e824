// Any bytes as text: what parses must print to text that parses to the same, and survive the
// verifier.
#include "ir/text/text.h"

#include <cstdlib>

#include "ir/verify/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  auto module = Parse({reinterpret_cast<const char*>(data), size}, "fuzz.opw");
  if (!module.ok()) return 0;
  auto again = Parse(Print(*module), "again.opw");
  if (VerifyModule(*module).ok() && (!again.ok() || !Equal(*module, *again))) std::abort();
  return 0;
}
