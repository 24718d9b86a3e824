// What training GPT-2 begins with, as tensors of a session.
#ifndef OPWIRE_EXAMPLES_03_GPT2_STATE_H_
#define OPWIRE_EXAMPLES_03_GPT2_STATE_H_

#include <cstdint>
#include <vector>

#include "examples/03_gpt2/model.h"
#include "frontend/cpp/client.h"

namespace opwire::examples {
using namespace client;

Array Gpt2InitialWeight(const Gpt2Weight& weight, uint64_t seed);  // f32
// Gpt2State, in the session; weight i is drawn with seed i.
StatusOr<std::vector<Tensor>> PutGpt2State(Session& session, const Gpt2Config& config);

}  // namespace opwire::examples

#endif  // OPWIRE_EXAMPLES_03_GPT2_STATE_H_
