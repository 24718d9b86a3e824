// Whole models whose gradients by all their parameters are compared with libtorch's.
#ifndef OPWIRE_TESTS_PASSES_TORCH_MODELS_H_
#define OPWIRE_TESTS_PASSES_TORCH_MODELS_H_

#include <string>
#include <vector>

namespace opwire {

struct Model {
  std::string name;
  std::string text;           // in f64, with the result `loss`
  double low = -1, high = 1;  // of its floats
  int64_t index_limit = 1;    // of its tokens and targets
};

std::vector<Model> Models();

}  // namespace opwire

#endif  // OPWIRE_TESTS_PASSES_TORCH_MODELS_H_
