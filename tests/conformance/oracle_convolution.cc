// Convolution and its gradients, scattered product by product from the side that is convolved.
#include <cmath>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

// Every product of a convolution: calls f(flat position in input, in weight, in output).
template <typename F>
void ForProducts(const OracleCall& c, const Extents& input, const Extents& weight,
                 const Extents& output, const F& f) {
  const int axes = static_cast<int>(weight.size()) - 2;
  const bool transposed = c.Bool(3);
  const int64_t groups = c.Int(5);
  const auto along = [&](int attr, int64_t none) {  // of each axis
    const Ints& list = c.IntList(attr);
    Ints all(static_cast<size_t>(axes), none);
    for (size_t a = 0; a < all.size() && !list.empty(); ++a)
      all[a] = list.size() == 1 ? list[0] : list[a];
    return all;
  };
  const Ints stride = along(0, 1), padding = along(1, 0), dilation = along(2, 1);
  // The tensor that kernels slide over, and the one with an element a position of theirs.
  const Extents &wide = transposed ? output : input, &steps = transposed ? input : output;
  const int64_t of_group = weight[0] / groups;
  if (Count(steps) == 0 || Count(weight) == 0) return;
  Extents at(steps.size(), 0), met(wide.size(), 0);
  do {  // batch, a channel, a position
    Extents kernel(weight.size(), 0);
    kernel[0] = at[1];
    for (kernel[1] = 0; kernel[1] < weight[1]; ++kernel[1]) {
      std::fill(kernel.begin() + 2, kernel.end(), 0);
      for (;;) {
        met[0] = at[0];
        met[1] = at[1] / of_group * weight[1] + kernel[1];
        bool inside = true;
        for (int a = 0; a < axes; ++a) {
          met[a + 2] = at[a + 2] * stride[a] + kernel[a + 2] * dilation[a] - padding[a];
          inside = inside && met[a + 2] >= 0 && met[a + 2] < wide[a + 2];
        }
        if (inside)
          f(Flat(transposed ? steps : wide, transposed ? at : met), Flat(weight, kernel),
            Flat(transposed ? wide : steps, transposed ? met : at));
        int a = axes - 1;
        while (a >= 0 && ++kernel[a + 2] == weight[a + 2]) kernel[a-- + 2] = 0;
        if (a < 0) break;
      }
    }
  } while (NextIndex(steps, &at));
}

// Sums of products of two tensors, with how many there are and how large.
struct Sums {
  explicit Sums(Expected::Result* r)
      : result(r), magnitude(r->tensor.values.size()), terms(r->tensor.values.size()) {}
  void Add(int64_t at, Real term) {
    result->tensor.values[at] += term;
    magnitude[at] += std::fabs(term);
    terms[at] += 1;
  }
  void Finish() {
    const DType type = result->tensor.dtype;
    const Real eps = Eps(ComputingType(type));
    for (size_t i = 0; i < terms.size(); ++i) {
      const Real parts =
          DTypeBytes(type) == 2 ? Ulp(type, magnitude[i]) / 2 : 0;  // that are rounded
      result->error.push_back(WithRounding(type, result->tensor.values[i],
                                           (terms[i] + 2) * eps * magnitude[i] + parts));
    }
  }
  Expected::Result* const result;
  std::vector<Real> magnitude, terms;
};

}  // namespace

bool ComputeConvolution(const OracleCall& c, Expected* e) {
  if (c.row->family != "convolution") return false;
  const bool backward = c.row->name == "convolution_backward";
  const Tensor &input = c.In(backward ? 1 : 0), &weight = c.In(backward ? 2 : 1);
  Sums first(&e->results[0]);
  if (!backward) {
    const Extents& shape = e->result().shape;
    ForProducts(c, input.shape, weight.shape, shape, [&](int64_t i, int64_t w, int64_t y) {
      first.Add(y, input.values[i] * weight.values[w]);
    });
    std::vector<Real> rounded;  // what a narrow sum may be off before its bias is added
    if (c.In(2).dtype != DType::kInvalid) {
      Extents index(shape.size(), 0);
      for (int64_t i = 0; i < e->result().elements(); ++i, NextIndex(shape, &index)) {
        rounded.push_back(DTypeBytes(input.dtype) == 2 ? Ulp(input.dtype, e->result().values[i]) / 2
                                                       : 0);
        first.Add(i, c.In(2).values[index[1]]);
      }
    }
    first.Finish();
    for (size_t i = 0; i < rounded.size(); ++i) e->error()[i] += rounded[i];
    return true;
  }
  const Tensor& grad = c.In(0);
  Sums second(&e->results[1]);
  ForProducts(c, input.shape, weight.shape, grad.shape, [&](int64_t i, int64_t w, int64_t y) {
    first.Add(i, grad.values[y] * weight.values[w]);
    second.Add(w, grad.values[y] * input.values[i]);
  });
  first.Finish();
  second.Finish();
  return true;
}

}  // namespace opwire::conformance
