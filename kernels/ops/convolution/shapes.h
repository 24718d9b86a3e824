// A convolution's extents and strides: the tensor that each call computes, and its two operands.
// Not for files built for an instruction set.
#ifndef OPWIRE_KERNELS_OPS_CONVOLUTION_SHAPES_H_
#define OPWIRE_KERNELS_OPS_CONVOLUTION_SHAPES_H_

#include <algorithm>
#include <cstdint>

#include "kernels/ops/call.h"

namespace opwire::ops::convolution {

// One of
//
//   y[n, g, c, o] = sum over j, k of x[n, g, j, i] w[g, c, j, k]      made = kY
//   x[n, g, j, i] = sum over c, k of y[n, g, c, o] w[g, c, j, k]      made = kX
//   w[g, c, j, k] = sum over n, o of x[n, g, j, i] y[n, g, c, o]      made = kW
//
// with i = o * stride - padding + k * dilation, if that is in x. A convolution computes y, a
// transposed one x. The gradients by their inputs compute the other of the two, those by weights
// compute w. There are three spatial axes; the first ones that a call lacks have one element.
struct ConvolutionShapes {
  static constexpr int kAxes = 3;
  enum Tensor { kX, kW, kY };
  // Strides in elements, 0 for broadcast axes. `outer` is the stride of the batch; for w of c in
  // all groups.
  struct Place {
    const opw_tensor* tensor;
    int64_t outer, channel, axes[kAxes];
  };

  Tensor made;
  int64_t batch, groups, x_channels, y_channels;  // channels of one group
  int64_t x_extents[kAxes], kernel[kAxes], y_extents[kAxes];
  int64_t stride[kAxes], padding[kAxes], dilation[kAxes];
  Place places[3];

  static ConvolutionShapes Forward(const opw_call* c) {
    return {c, IsTransposed(c) ? kX : kY, Operand(c, 0), Operand(c, 1), c->results[0]};
  }
  static ConvolutionShapes GradInput(const opw_call* c) {
    return {c, IsTransposed(c) ? kY : kX, c->results[0], Operand(c, 2), Operand(c, 0)};
  }
  static ConvolutionShapes GradWeight(const opw_call* c) {
    return {c, kW, Operand(c, 1), c->results[1], Operand(c, 0)};
  }

  int64_t XPositions() const { return x_extents[0] * x_extents[1] * x_extents[2]; }
  int64_t YPositions() const { return y_extents[0] * y_extents[1] * y_extents[2]; }
  int64_t KernelPositions() const { return kernel[0] * kernel[1] * kernel[2]; }
  // If any of them has no elements, the result is zeros, or empty.
  bool Nothing() const {
    return std::ranges::any_of(places, [](const Place& p) { return p.tensor->elements == 0; });
  }

  // Whether y has the extents that convolving x gives, as libraries require. False if a transposed
  // convolution's output_padding is a stride or more.
  bool IsWhole() const {
    for (int a = 0; a < kAxes; ++a) {
      if ((x_extents[a] + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1 !=
          y_extents[a])
        return false;
    }
    return true;
  }

  static bool IsTransposed(const opw_call* c) { return c->attrs[3].value.i != 0; }

 private:
  static int64_t Along(const opw_attr& list, int axis, int64_t otherwise) {
    return list.count == 0 ? otherwise : list.value.ints[list.count == 1 ? 0 : axis];
  }

  // `input` is convolved by `weight`, as the attributes say, to `output`. Any of the three may be
  // the result.
  ConvolutionShapes(const opw_call* c, Tensor result, const opw_tensor& input,
                    const opw_tensor& weight, const opw_tensor& output)
      : made(result) {
    const opw_tensor &x = IsTransposed(c) ? output : input, &y = IsTransposed(c) ? input : output;
    groups = c->attrs[5].value.i;
    batch = x.shape[0];
    x_channels = weight.shape[1], y_channels = weight.shape[0] / groups;
    const int there = weight.rank - 2;
    const auto place = [&](Tensor t, const opw_tensor& tensor, int64_t* extents) {
      Place& p = places[t] = {&tensor, Stride(tensor, 0), Stride(tensor, 1), {}};
      for (int a = 0; a < kAxes; ++a) {
        const int axis = a - (kAxes - there);
        extents[a] = axis < 0 ? 1 : tensor.shape[axis + 2];
        p.axes[a] = axis < 0 ? 0 : Stride(tensor, axis + 2);
      }
    };
    place(kX, x, x_extents);
    place(kW, weight, kernel);
    place(kY, y, y_extents);
    for (int a = 0; a < kAxes; ++a) {
      const int axis = a - (kAxes - there);
      stride[a] = axis < 0 ? 1 : Along(c->attrs[0], axis, 1);
      padding[a] = axis < 0 ? 0 : Along(c->attrs[1], axis, 0);
      dilation[a] = axis < 0 ? 1 : Along(c->attrs[2], axis, 1);
    }
  }
  static int64_t Stride(const opw_tensor& t, int axis) {
    return t.shape[axis] == 1 ? 0 : t.strides[axis];
  }
};

}  // namespace opwire::ops::convolution

#endif  // OPWIRE_KERNELS_OPS_CONVOLUTION_SHAPES_H_
