// Convolution and its gradients as their definition says: one sum a result, in f64.
#include "ir/scalar/scalar.h"
#include "kernels/ops/call.h"
#include "kernels/ops/convolution/convolution.h"
#include "kernels/ops/convolution/shapes.h"
#include "kernels/ops/families.h"

namespace opwire::ops::convolution {
namespace {

// The position along an axis of x for position o of y and k of the kernel; -1: none.
int64_t OfX(const ConvolutionShapes& s, int a, int64_t o, int64_t k) {
  const int64_t i = o * s.stride[a] - s.padding[a] + k * s.dilation[a];
  return i >= 0 && i < s.x_extents[a] ? i : -1;
}
// The position of y for position i of x and k of the kernel; -1: none.
int64_t OfY(const ConvolutionShapes& s, int a, int64_t i, int64_t k) {
  const int64_t steps = i + s.padding[a] - k * s.dilation[a];
  return steps >= 0 && steps % s.stride[a] == 0 && steps / s.stride[a] < s.y_extents[a]
             ? steps / s.stride[a]
             : -1;
}

// The terms of one element of the result: products of elements of `a` and `b` over `extents`. The
// first extent is the batch or the channels.
struct Terms {
  int64_t extents[4];
  int64_t a_base, a_outer, b_base, b_outer;  // offsets, and strides along extents[0]
};

// Sums over the terms. place(axis, index) is a term's position along a spatial axis of `a`, or -1;
// for `b` the position is the index itself.
template <typename T, typename F>
double Sum(const opw_call* c, const ConvolutionShapes::Place& a, const ConvolutionShapes::Place& b,
           const Terms& t, const F& place) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t outer = 0; outer < t.extents[0]; ++outer) {
    for (int64_t i = 0; i < t.extents[1]; ++i) {
      const int64_t at0 = place(0, i);
      for (int64_t j = 0; j < t.extents[2] && at0 >= 0; ++j) {
        const int64_t at1 = place(1, j);
        for (int64_t k = 0; k < t.extents[3] && at1 >= 0; ++k) {
          const int64_t at2 = place(2, k);
          if (StoppedAt(c, count++)) return sum;
          if (at2 < 0) continue;
          const double x = Load<T>(a.tensor->data, t.a_base + outer * t.a_outer + at0 * a.axes[0] +
                                                       at1 * a.axes[1] + at2 * a.axes[2]);
          const double y = Load<T>(b.tensor->data, t.b_base + outer * t.b_outer + i * b.axes[0] +
                                                       j * b.axes[1] + k * b.axes[2]);
          sum += x * y;
        }
      }
    }
  }
  return sum;
}

// The element of the result at `at`, which is [batch or channel of y in all groups, channel,
// spatial axes].
template <typename T>
double Element(const opw_call* c, const ConvolutionShapes& s, const Walk<1>& at) {
  const ConvolutionShapes::Place &x = s.places[ConvolutionShapes::kX],
                                 &w = s.places[ConvolutionShapes::kW],
                                 &y = s.places[ConvolutionShapes::kY];
  const int64_t outer = at.index(0), channel = at.index(1);
  if (s.made == ConvolutionShapes::kY) {
    const int64_t group = channel / s.y_channels;
    const Terms t{{s.x_channels, s.kernel[0], s.kernel[1], s.kernel[2]},
                  outer * x.outer + group * s.x_channels * x.channel,
                  x.channel,
                  channel * w.outer,
                  w.channel};
    return Sum<T>(c, x, w, t, [&](int a, int64_t k) { return OfX(s, a, at.index(a + 2), k); });
  }
  if (s.made == ConvolutionShapes::kX) {
    const int64_t first = channel / s.x_channels * s.y_channels;  // of y's channels in its group
    const Terms t{{s.y_channels, s.kernel[0], s.kernel[1], s.kernel[2]},
                  outer * y.outer + first * y.channel,
                  y.channel,
                  first * w.outer + channel % s.x_channels * w.channel,
                  w.outer};
    return Sum<T>(c, y, w, t, [&](int a, int64_t k) { return OfY(s, a, at.index(a + 2), k); });
  }
  const int64_t group = outer / s.y_channels;
  const Terms t{{s.batch, s.y_extents[0], s.y_extents[1], s.y_extents[2]},
                (group * s.x_channels + channel) * x.channel,
                x.outer,
                outer * y.channel,
                y.outer};
  return Sum<T>(c, x, y, t, [&](int a, int64_t o) { return OfX(s, a, o, at.index(a + 2)); });
}

void Make(const opw_call* c, const ConvolutionShapes& s, const opw_tensor& bias) {
  const ConvolutionShapes::Place& z = s.places[s.made];
  const int64_t* const extents = s.made == ConvolutionShapes::kX   ? s.x_extents
                                 : s.made == ConvolutionShapes::kY ? s.y_extents
                                                                   : s.kernel;
  const int64_t shape[5] = {z.tensor->shape[0], z.tensor->shape[1], extents[0], extents[1],
                            extents[2]};
  const int64_t terms =
      s.made == ConvolutionShapes::kW
          ? s.batch * s.YPositions()
          : (s.made == ConvolutionShapes::kY ? s.x_channels : s.y_channels) * s.KernelPositions();
  VisitType(TypeOf(*z.tensor), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_floating_point_v<ComputeOf<T>>) {
      ParallelFor(c, z.tensor->elements,
                  std::max<int64_t>(1, kReferenceGrain / std::max<int64_t>(1, terms)),
                  [&](int64_t begin, int64_t end) {
                    Walk<1> walk(5, shape);
                    walk.SetStride(0, 0, z.outer);
                    walk.SetStride(0, 1, z.channel);
                    for (int a = 0; a < ConvolutionShapes::kAxes; ++a)
                      walk.SetStride(0, a + 2, z.axes[a]);
                    walk.Start(begin);
                    for (int64_t i = begin; i < end; ++i, walk.Next()) {
                      const double added =
                          Absent(bias) ? 0 : Load<T>(bias.data, walk.index(1) * bias.strides[0]);
                      Store<T>(z.tensor->data, walk.offset(0), Element<T>(c, s, walk) + added);
                    }
                  });
    }
  });
}

int Convolution(const opw_call* c) {
  Make(c, ConvolutionShapes::Forward(c), Operand(c, 2));
  return OPW_OK;
}

int ConvolutionBackward(const opw_call* c) {
  const opw_tensor absent{};
  Make(c, ConvolutionShapes::GradInput(c), absent);
  Make(c, ConvolutionShapes::GradWeight(c), absent);
  return OPW_OK;
}

}  // namespace

void AddConvolutionReference(VariantTable& table) {
  AddReference(table, "convolution",
               {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, Convolution});
  AddReference(
      table, "convolution_backward",
      {OPW_ABI_VERSION, OPW_DETERMINISTIC, nullptr, nullptr, nullptr, ConvolutionBackward});
}

}  // namespace opwire::ops::convolution
