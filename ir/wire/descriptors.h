// How many descriptors the parts of a server may hold, and whether a client has some left. ZeroMQ
// ends the process, or waits for ever, when it gets none.
#ifndef OPWIRE_IR_WIRE_DESCRIPTORS_H_
#define OPWIRE_IR_WIRE_DESCRIPTORS_H_

#include <cstdint>

#include "ir/base/status.h"

namespace opwire {

// Raises the process's soft limit to its hard limit, at most 65,536. Returns the soft limit.
int64_t RaiseDescriptorLimit();

struct DescriptorBudget {
  int connections = 0;  // of each of two sockets
  int rings = 0;
  int accepted = 0;  // for BoundAcceptedDescriptors
};
// Of a limit; `sessions` have one each. RESOURCE_EXHAUSTED for a limit below 256.
StatusOr<DescriptorBudget> BudgetDescriptors(int64_t limit, int64_t sessions);

// UNAVAILABLE, with the process's limit, unless `count` more descriptors can be opened now.
Status CheckFreeDescriptors(int count);

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_DESCRIPTORS_H_
