// Handwritten digits for the examples, and what they begin with.
#ifndef OPWIRE_EXAMPLES_DATA_DIGITS_H_
#define OPWIRE_EXAMPLES_DATA_DIGITS_H_

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "frontend/cpp/array.h"
#include "ir/base/status.h"

namespace opwire::examples {
using namespace client;

inline constexpr int64_t kPixels = 64, kHidden = 64, kDigits = 10;

// The network's weights by name, with their shapes.
inline const std::vector<std::pair<std::string, std::vector<int64_t>>>& DigitWeights() {
  static const auto* const shapes = new std::vector<std::pair<std::string, std::vector<int64_t>>>{
      {"w1", {kPixels, kHidden}}, {"b1", {kHidden}}, {"w2", {kHidden, kDigits}}, {"b2", {kDigits}}};
  return *shapes;
}

// Uniform in +-sqrt(6 / inputs), as He et al. 2015 for relu; biases are 0.
inline Array InitialWeight(std::vector<int64_t> shape, std::mt19937_64& random) {
  Array a(DType::kF32, shape);
  const float bound = shape.size() == 2 ? std::sqrt(6.0f / static_cast<float>(shape[0])) : 0.0f;
  std::uniform_real_distribution<float> uniform(-bound, bound);
  for (float& v : a.values<float>()) v = shape.size() == 2 ? uniform(random) : 0.0f;
  return a;
}

// The rows of `all` that `order` names, from `first`.
inline Array Rows(const Array& all, const std::vector<int64_t>& order, size_t first, size_t count) {
  std::vector<int64_t> shape = all.shape();
  const size_t row = all.bytes().size() / static_cast<size_t>(shape[0]);
  shape[0] = static_cast<int64_t>(count);
  Array out(all.dtype(), shape);
  for (size_t i = 0; i < count; ++i) {
    std::copy_n(
        all.bytes().begin() + static_cast<ptrdiff_t>(static_cast<size_t>(order[first + i]) * row),
        row, out.bytes().begin() + static_cast<ptrdiff_t>(i * row));
  }
  return out;
}

// A file of the examples.
inline StatusOr<std::string> ReadExample(const std::string& path) {
  std::ifstream in(path);
  if (!in)
    return NotFound("{} cannot be read; name the directory of the examples: --examples DIRECTORY",
                    path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace opwire::examples

#endif  // OPWIRE_EXAMPLES_DATA_DIGITS_H_
