// Any bytes to a registry, in a sequence of messages and ticks: a length byte before each message,
// its top bits the peer.
#include <algorithm>

#include "registry/state/state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace opwire;
  RegistryState state(1, 0, {});
  Nanos now = 0;
  while (size >= 2) {
    const PeerId peer = data[0] >> 6;
    const size_t length = std::min<size_t>(size - 2, (data[0] & 63u) * 256u + data[1]);
    state.OnMessage(now, peer, {data + 2, length});
    now += kSecond / 4;
    state.OnTick(now);
    data += 2 + length;
    size -= 2 + length;
  }
  state.OnTick(now + 10 * kSecond);
  if (state.executors() != 0) __builtin_trap();
  return 0;
}
