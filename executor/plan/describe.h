// Writes a plan with its sizes as JSON, for `opwire explain FILE.opw`.
#ifndef OPWIRE_EXECUTOR_PLAN_DESCRIBE_H_
#define OPWIRE_EXECUTOR_PLAN_DESCRIBE_H_

#include <string>

#include "executor/plan/instance.h"

namespace opwire::executor {

inline constexpr size_t kMostInfoBytes = 800
                                         << 10;  // of facts as JSON, so that a message carries them

// {"function", "scratch_bytes", "scratch_bound": the least that any order of values takes, "loops",
// "count": of steps, "steps": the first of them, as many as a message carries}, a step being
//   {"function": whose node it is, "node": its number, "value": the name of its first result, "op",
//       "label": "matmul@onednn",
//    "group": of a fused one {"nodes": their numbers, "ops": theirs, "ends": why their neighbours
//        are none of it},
//    "flops", "moved": bytes that it reads and writes; of one that calls a kernel whose rivals were
//        measured on calls of its class also "measured_ns",
//    "writes": [{"to": "scratch" | "inout NAME" | "result NAME", "at": bytes from its begin,
//        "bytes"}], "graph": whether a graph may hold it}
// and for one of control, whose label names its action, also "goes_to": a step, or -1. The
// instance cannot run afterwards: it is bound to fake addresses.
std::string Describe(Instance& instance);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_PLAN_DESCRIBE_H_
