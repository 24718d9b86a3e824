// The first program: sends one layer of a network to an executor and runs it there. Starts an
// executor if none runs.
#include <cstdio>

#include "frontend/cpp/client.h"

namespace {

using namespace opwire;
using namespace opwire::client;

constexpr const char* kLayer = R"(
  program @layer(%x: f32[?b, 4], %w: f32[4, 2], %bias: f32[2]) -> (y: f32[?b, 2]) {
    %0 = matmul(%x, %w)
    %1 = add(%0, %bias)
    %2 = relu(%1)
    return %2
  })";

Status First() {
  OPWIRE_ASSIGN_OR_RETURN(Client client, Client::Connect());
  OPWIRE_ASSIGN_OR_RETURN(Session session, client.Open());       // on the executor that suits best
  OPWIRE_ASSIGN_OR_RETURN(Program layer, session.Load(kLayer));  // checked and sent once

  const Array x = Array::Random(DType::kF32, {3, 4}, 1), w = Array::Random(DType::kF32, {4, 2}, 2);
  OPWIRE_ASSIGN_OR_RETURN(Tensor weights, session.Put(w.view()));  // stays on the device
  OPWIRE_ASSIGN_OR_RETURN(Tensor bias, session.Put(Array(DType::kF32, {2}).view()));

  OPWIRE_ASSIGN_OR_RETURN(std::vector<Array> y, layer.Call({x, weights, bias}));
  for (float v : y[0].values<float>()) std::printf("%g ", v);
  std::printf("\n");
  return absl::OkStatus();
}

}  // namespace

int main() {
  const Status status = First();
  if (!status.ok()) std::fprintf(stderr, "%s\n", MessageOf(status).c_str());
  return status.ok() ? 0 : 1;
}
