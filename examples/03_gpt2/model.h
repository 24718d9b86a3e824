// GPT-2 as programs: its loss on a batch, written in plain ops, and its training as one request,
// with generated gradients.
//
//   Gpt2Config config;  // 124M parameters
//   OPWIRE_ASSIGN_OR_RETURN(const Module train, Gpt2Training(config));
//   OPWIRE_ASSIGN_OR_RETURN(Program program, session.Load(train));
//   OPWIRE_ASSIGN_OR_RETURN(std::vector<Tensor> state, PutGpt2State(session, config));   // state.h
#ifndef OPWIRE_EXAMPLES_03_GPT2_MODEL_H_
#define OPWIRE_EXAMPLES_03_GPT2_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/module.h"

namespace opwire::examples {

struct Gpt2Config {
  int64_t layers = 12, heads = 12, width = 768, positions = 1024,
          vocabulary = 50304;  // a multiple of 64 is faster than the 50257 of the original
  int64_t batch = 16;
  DType dtype = DType::kBF16;  // that the model computes in
  // The optimiser has f32 copies of the weights, and f32 means of gradients and of their squares;
  // otherwise all of these have the model's type.
  bool masters = true;
};

struct Gpt2Weight {
  std::string name;
  std::vector<int64_t> shape;
  float mean, deviation;  // of the normal distribution that it begins as
  bool decays;            // matrices do, norms and biases do not
};
// Before the layers: the embeddings of tokens (which also give the logits) and of positions. By
// layer: two layer norms; linear layers to queries, keys and values, of attention's result, to the
// wider layer and back. After the layers: a norm. Initial values as of Radford et al. 2019 and
// nanoGPT: deviation 0.02; of weights into the residual stream 0.02 / sqrt(2 * layers).
std::vector<Gpt2Weight> Gpt2Weights(const Gpt2Config& config);

// program @loss(tokens: i32[batch, positions], targets: i32[batch * positions], weights...) ->
// (loss: f32[]): the mean cross entropy.
StatusOr<Module> Gpt2Loss(const Gpt2Config& config);

// program @train(steps: i64[], inout state..., tokens: i32[?n], rates: f32[?s], first: i64[],
// windows: i64[]) -> (the same state): `steps` steps of AdamW from number `first` on. Step i reads
// window i mod `windows` of the tokens, batch * positions of them, at rates[i], and emits its
// "loss". The state is what Gpt2State lists.
StatusOr<Module> Gpt2Training(const Gpt2Config& config);

struct Gpt2StateTensor {
  std::string name;  // "w.h0.mlp.fc", "master.", "mean.", "square."
  size_t weight;     // of Gpt2Weights
  DType dtype;
  bool begins_as_weight;  // otherwise with zeros
};
// By kind, then by weight.
std::vector<Gpt2StateTensor> Gpt2State(const Gpt2Config& config);

}  // namespace opwire::examples

#endif  // OPWIRE_EXAMPLES_03_GPT2_MODEL_H_
