// Optimisers, norms and scaling of lists: one tensor after the other, in f32, of f64 in f64.
#include <ATen/ops/stack.h>

#include <cmath>
#include <vector>

#include "kernels/torch/module/call.h"

namespace opwire::torch_module {
namespace {

// The 0-d operand; `otherwise` if it is absent.
double Scalar(const Call& call, int i, double otherwise) {
  const at::Tensor t = call.In(i);
  return t.defined() ? t.item().toDouble() : otherwise;
}

// A step of an op whose first two lists are parameters and gradients, followed by `states` lists of
// states. The operand at `scale_operand` is grad_scale, the next one is skip. step(p, g, m, v)
// changes the parameter and the existing states, in the computing type.
template <typename F>
void Step(const Call& call, int states, int scale_operand, int maximize, double l2, const F& step) {
  const std::vector<at::Tensor> params = call.List(0), grads = call.List(1);
  const size_t count = params.size();
  std::vector<std::vector<at::Tensor>> held;
  for (int s = 0; s < states; ++s) held.push_back(call.List(2 + s));
  const bool stateless = states == 0 || held[0].empty();
  const double gradient = (call.Bool(maximize) ? -1 : 1) / Scalar(call, scale_operand, 1);
  const bool skip = Scalar(call, scale_operand + 1, 0) != 0;
  for (size_t k = 0; k < count; ++k) {
    const at::ScalarType type = ComputingType(params[k]);
    at::Tensor p = params[k].to(type, false, true), now[2];
    for (size_t s = 0; !stateless && s < held.size(); ++s)
      now[s] = held[s][k].to(type, false, true);
    if (!skip) {
      at::Tensor g = grads[k].to(type).mul(gradient);
      if (l2 != 0) g = g.add(p, l2);
      step(p, g, now[0], now[1]);
    }
    call.Out(static_cast<int>(k)).copy_(p);
    for (size_t s = 0; !stateless && s < held.size(); ++s)
      call.Out(static_cast<int>((1 + s) * count + k)).copy_(now[s]);
  }
}

void Adamw(const Call& call) {
  const double beta1 = call.Float(0), beta2 = call.Float(1), eps = call.Float(2),
               decay = call.Float(3);
  const bool decoupled = call.Bool(4), corrects = call.Bool(5);
  const double lr = Scalar(call, 4, 0), number = Scalar(call, 5, 0);
  // In f64 few bits of 1 - beta^step would be left.
  const auto correction = [&](long double beta) {
    return corrects ? static_cast<double>(1 - std::pow(beta, static_cast<long double>(number))) : 1;
  };
  const double rate = lr / correction(beta1), root = 1 / std::sqrt(correction(beta2));
  Step(call, 2, 6, 6, decoupled ? 0 : decay,
       [&](at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor& v) {
         if (decoupled) p.mul_(1 - lr * decay);
         m.mul_(beta1).add_(g, 1 - beta1);
         v.mul_(beta2).add_(g.square(), 1 - beta2);
         p.sub_(m.mul(rate).div_(v.sqrt().mul_(root).add_(eps)));
       });
}

void AdamwCopy(const Call& call) {
  Adamw(call);
  const int count = static_cast<int>(call.List(0).size());
  for (int k = 0; k < count; ++k) call.Out(3 * count + k).copy_(call.Out(k));
}

void Sgd(const Call& call) {
  const double momentum = call.Float(0), dampening = call.Float(1), lr = Scalar(call, 3, 0);
  const bool nesterov = call.Bool(2), first = Scalar(call, 4, 0) == 1;
  Step(call, 1, 5, 4, call.Float(3),
       [&](at::Tensor& p, const at::Tensor& g, at::Tensor& buffer, at::Tensor&) {
         at::Tensor moves = g;
         if (buffer.defined()) {
           if (first)
             buffer.copy_(g);
           else
             buffer.mul_(momentum).add_(g, 1 - dampening);
           moves = nesterov ? g.add(buffer, momentum) : buffer;
         }
         p.sub_(moves, lr);
       });
}

void Lion(const Call& call) {
  const double beta1 = call.Float(0), beta2 = call.Float(1), decay = call.Float(2),
               lr = Scalar(call, 3, 0);
  Step(call, 1, 4, 3, 0, [&](at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor&) {
    const at::Tensor direction = m.mul(beta1).add_(g, 1 - beta1);
    p.mul_(1 - lr * decay).sub_(direction.where(direction.isnan(), direction.sign()), lr);
    m.mul_(beta2).add_(g, 1 - beta2);
  });
}

void Adagrad(const Call& call) {
  const double eps = call.Float(0), lr = Scalar(call, 3, 0);
  Step(call, 1, 4, 2, call.Float(1),
       [&](at::Tensor& p, const at::Tensor& g, at::Tensor& sums, at::Tensor&) {
         sums.add_(g.square());
         p.sub_(g.mul(lr).div_(sums.sqrt().add_(eps)));
       });
}

void L2Norm(const Call& call) {
  const at::Tensor norms = call.Out(1);
  std::vector<at::Tensor> squares;
  for (const at::Tensor& x : call.List(0))
    squares.push_back(x.to(norms.scalar_type()).square().sum());
  if (squares.empty()) {
    call.Out(0).zero_();
    return;
  }
  const at::Tensor each = at::stack(squares);
  norms.copy_(each.sqrt());
  call.Out(0).copy_(each.sum().sqrt());
}

void Scale(const Call& call) {
  const std::vector<at::Tensor> xs = call.List(0);
  const double factor = Scalar(call, 1, 1);
  const at::Tensor overflow = call.Out(static_cast<int>(xs.size()));
  overflow.zero_();
  for (size_t k = 0; k < xs.size(); ++k) {
    const at::Tensor y = call.Out(static_cast<int>(k));
    y.copy_(xs[k].to(ComputingType(xs[k])).mul(factor));
    overflow.logical_or_(y.isfinite().logical_not().any());
  }
}

}  // namespace

const Row kOptimRows[] = {{"adamw", Adamw}, {"adamw_copy", AdamwCopy}, {"sgd", Sgd},
                          {"lion", Lion},   {"adagrad", Adagrad},      {"l2_norm", L2Norm},
                          {"scale", Scale}, {nullptr, nullptr}};

}  // namespace opwire::torch_module
