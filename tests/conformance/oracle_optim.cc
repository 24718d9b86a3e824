// Optimisers' steps, norms and scaling of lists.
#include <cmath>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

// A number and its error.
struct Near {
  Real v = 0, error = 0;
};

class Steps {
 public:
  explicit Steps(const OracleCall& c)
      : c_(c),
        name_(c.row->name == "adamw_copy" ? "adamw" : c.row->name),
        eps_(Eps(ComputingType(c.In(0).dtype))) {
    const auto named = [&](const char* attr) { return c.Float(c.row->FindAttr(attr)); };
    const auto flag = [&](const char* attr) { return c.Bool(c.row->FindAttr(attr)); };
    const Tensor& scale = c.In(c.row->FindOperand("grad_scale"));
    lr_ = c.In(c.row->FindOperand("lr")).values[0];
    factor_ = (flag("maximize") ? -1 : 1) / (scale.dtype == DType::kInvalid ? 1 : scale.values[0]);
    decay_ = named("weight_decay");
    decoupled_ = name_ == "lion" || (name_ == "adamw" && flag("decoupled"));
    if (name_ == "lamb")
      beta1_ = named("beta1"), beta2_ = named("beta2"), small_ = named("eps"),
      corrects_ = flag("bias_correction"), decay_ = 0, pull_ = named("weight_decay");
    if (name_ == "adamw" || name_ == "sgd" || name_ == "lamb")
      step_ = c.In(c.row->FindOperand("step")).values[0];
    if (name_ == "adamw" || name_ == "lion") beta1_ = named("beta1"), beta2_ = named("beta2");
    if (name_ == "adamw" || name_ == "adagrad") small_ = named("eps");
    if (name_ == "adamw") corrects_ = flag("bias_correction");
    if (name_ == "sgd")
      beta1_ = named("momentum"), dampening_ = named("dampening"), nesterov_ = flag("nesterov");
  }

  // Steps one element: updates `p` and `s`.
  void Take(Real grad, Near& p, Near (&s)[2], bool stateless) const {
    Near g{grad * factor_, 0};
    g.error = 2 * eps_ * std::fabs(g.v);
    if (!decoupled_ && decay_ != 0) {
      const Real added = decay_ * p.v;
      g.v += added;
      g.error += eps_ * (std::fabs(added) + std::fabs(g.v));
    }
    if (decoupled_) {
      p.error += 2 * eps_ * std::fabs(p.v);
      p.v *= 1 - lr_ * decay_;
    }
    if (name_ == "lamb") {
      const Near u = Update(p, g, s);
      const Real moved = lr_ * coefficient_.v * u.v;
      Add(p, {-moved, 4 * eps_ * std::fabs(moved) + lr_ * (std::fabs(coefficient_.v) * u.error +
                                                           coefficient_.error * std::fabs(u.v))});
    } else if (name_ == "adamw") {
      s[0] = Mixed(s[0], g, beta1_, 1 - beta1_);
      const Near square{g.v * g.v, 2 * std::fabs(g.v) * g.error + eps_ * g.v * g.v};
      s[1] = Mixed(s[1], square, beta2_, 1 - beta2_);
      const Real first = corrects_ ? 1 - std::pow(beta1_, step_) : 1,
                 second = corrects_ ? 1 - std::pow(beta2_, step_) : 1;
      Move(p, s[0], lr_ / first, Root(s[1]), std::sqrt(second));
    } else if (name_ == "sgd") {
      Near moves = g;
      if (!stateless) {
        s[0] = step_ == 1 ? g : Mixed(s[0], g, beta1_, 1 - dampening_);
        moves = nesterov_ ? Near{g.v + beta1_ * s[0].v,
                                 g.error + beta1_ * s[0].error +
                                     2 * eps_ * (std::fabs(g.v) + std::fabs(beta1_ * s[0].v))}
                          : s[0];
      }
      Add(p, {-lr_ * moves.v, lr_ * moves.error + 2 * eps_ * std::fabs(lr_ * moves.v)});
    } else if (name_ == "lion") {
      const Near c = Mixed(s[0], g, beta1_, 1 - beta1_);
      s[0] = Mixed(s[0], g, beta2_, 1 - beta2_);
      const Real sign = std::isnan(c.v) ? c.v : c.v > 0 ? 1 : c.v < 0 ? -1 : 0;
      const bool open = c.error > 0 && std::fabs(c.v) <= c.error;
      Add(p, {-lr_ * sign, eps_ * lr_ + (open ? 2 * lr_ : 0)});
    } else {  // adagrad
      s[0] = {s[0].v + g.v * g.v,
              2 * std::fabs(g.v) * g.error + eps_ * (std::fabs(s[0].v) + 2 * g.v * g.v)};
      Move(p, g, lr_, Root(s[0]), 1);
    }
  }

  // Returns lamb's coefficient of a tensor, for its next steps.
  const Near& Trust(const Tensor& params, const Tensor& grads, const Tensor& m, const Tensor& v) {
    Real p = 0, u = 0, off = 0;
    for (int64_t i = 0; i < params.elements(); ++i) {
      const Real g = grads.values[i] * factor_;
      Near s[2] = {{m.values[i], 0}, {v.values[i], 0}};
      const Near update = Update({params.values[i], 0}, {g, 2 * eps_ * std::fabs(g)}, s);
      p += params.values[i] * params.values[i];
      u += update.v * update.v;
      off += update.error * update.error;
    }
    coefficient_ = {1, 0};
    if (p == 0 || u == 0) return coefficient_;
    const Real sums = (6 + static_cast<Real>(params.elements()) / 64) * eps_,
               ratio = std::sqrt(p / u), apart = std::sqrt(off / u);
    const Real least = c_.Float(c_.row->FindAttr("min_coefficient")),
               most = c_.Float(c_.row->FindAttr("max_coefficient"));
    coefficient_ = {ratio < least ? least : ratio > most ? most : ratio, 0};
    coefficient_.error = ratio * (2 * sums + 2 * apart) + 2 * eps_ * coefficient_.v;
    return coefficient_;
  }

 private:
  // Returns lamb's update, from the new values of its states.
  Near Update(const Near& p, const Near& g, Near (&s)[2]) const {
    s[0] = Mixed(s[0], g, beta1_, 1 - beta1_);
    s[1] = Mixed(s[1], {g.v * g.v, 2 * std::fabs(g.v) * g.error + eps_ * g.v * g.v}, beta2_,
                 1 - beta2_);
    Near u;
    Move(u, s[0], -1 / (corrects_ ? 1 - std::pow(beta1_, step_) : 1), Root(s[1]),
         std::sqrt(corrects_ ? 1 - std::pow(beta2_, step_) : 1));
    u.error = std::fabs(u.error);
    const Real added = pull_ * p.v;
    return {u.v + added, u.error + eps_ * (2 * std::fabs(added) + std::fabs(u.v))};
  }
  // a x + b y.
  Near Mixed(const Near& x, const Near& y, Real a, Real b) const {
    const Real left = a * x.v, right = b * y.v;
    return {left + right, std::fabs(a) * x.error + std::fabs(b) * y.error +
                              2 * eps_ * (std::fabs(left) + std::fabs(right)) +
                              Ulp(DType::kF32, 0)};
  }
  Near Root(const Near& x) const {
    const Real root = std::sqrt(x.v);
    const Real error = x.v > 2 * x.error ? x.error / root : std::sqrt(3 * x.error);
    return {root, error + eps_ * root};
  }
  static void AddTo(Near& p, const Near& by) {
    p.v += by.v;
    p.error += by.error;
  }
  void Add(Near& p, const Near& by) const {
    p.error += eps_ * (std::fabs(p.v) + std::fabs(by.v));
    AddTo(p, by);
  }
  // p - rate x / (root / by + eps).
  void Move(Near& p, const Near& x, Real rate, const Near& root, Real by) const {
    const Real below = root.v / by + small_,
               below_error = root.error / by + 4 * eps_ * (root.v / by) + 2 * eps_ * below;
    const Real moved = rate * x.v / below, least = std::fmax(below - below_error, below / 2);
    Add(p, {-moved, 8 * eps_ * std::fabs(moved) + rate * x.error / least +
                        std::fabs(moved) * below_error / least});
  }

  const OracleCall& c_;
  const std::string name_;
  const Real eps_;
  Real lr_ = 0, factor_ = 1, decay_ = 0, step_ = 0, beta1_ = 0, beta2_ = 0, small_ = 0,
       dampening_ = 0, pull_ = 0;
  Near coefficient_;
  bool decoupled_ = false, corrects_ = false, nesterov_ = false;
};

void TakeSteps(const OracleCall& c, Expected* e) {
  Steps steps(c);
  const size_t places = c.starts[1];
  const bool lamb = c.row->name == "lamb";
  const bool copies = c.row->name == "adamw_copy";
  const size_t states = lamb || copies ? 2 : (e->results.size() / places) - 1;
  const Tensor& skip = c.In(c.row->FindOperand("skip"));
  const bool skips = skip.dtype != DType::kInvalid && skip.values[0] != 0;
  for (size_t t = 0; t < places; ++t) {
    const auto in = [&](size_t list) -> const Tensor& { return c.operands[c.starts[list] + t]; };
    const auto out = [&](size_t list) -> Expected::Result& {
      return e->results[list * places + t];
    };
    for (size_t l = 0; l <= states + copies; ++l) out(l).error.resize(out(l).tensor.elements());
    if (lamb) {
      const Near trust = skips ? Near{1, 0} : steps.Trust(in(0), in(1), in(2), in(3));
      e->results.back().tensor.values[t] = trust.v;
      e->results.back().error.push_back(trust.error);
    }
    for (int64_t i = 0; i < in(0).elements(); ++i) {
      Near p{in(0).values[i], 0}, s[2];
      for (size_t k = 0; k < states; ++k) s[k].v = in(2 + k).values[i];
      if (!skips) steps.Take(in(1).values[i], p, s, states == 0);
      for (size_t l = 0; l <= states; ++l) {
        const Near& now = l == 0 ? p : s[l - 1];
        out(l).tensor.values[i] = now.v;
        // The result is rounded. If lion's sign is open, the possible values may be in a range with
        // a larger spacing.
        out(l).error[i] =
            skips ? 0 : now.error + Ulp(out(l).tensor.dtype, std::fabs(now.v) + now.error) / 2;
      }
      if (!copies) continue;
      Expected::Result& copy = out(3);
      const Real off = out(0).error[i];
      copy.tensor.values[i] = p.v;
      copy.error[i] = skips ? 0 : off + Ulp(copy.tensor.dtype, std::fabs(p.v) + off) / 2;
    }
  }
}

void ListNorms(const OracleCall& c, Expected* e) {
  const Real eps = Eps(e->results[0].tensor.dtype);
  Real all = 0, count = 0;
  const auto set = [&](Expected::Result& r, size_t i, Real sum, Real n) {
    r.error.resize(r.tensor.values.size());
    const Real root = std::sqrt(sum);
    r.tensor.values[i] = root;
    r.error[i] =
        root * eps * (6 + n / 64) +
        std::sqrt(n) * std::ldexp(Real{1}, e->results[0].tensor.dtype == DType::kF64 ? -511 : -63);
  };
  for (size_t t = 0; t < c.operands.size(); ++t) {
    Real own = 0;
    for (Real x : c.operands[t].values) own += x * x;
    set(e->results[1], t, own, static_cast<Real>(c.operands[t].elements()));
    all += own;
    count += static_cast<Real>(c.operands[t].elements());
  }
  set(e->results[0], 0, all, count);
}

void ScaleList(const OracleCall& c, Expected* e) {
  const Real factor = c.In(1).values[0], eps = Eps(ComputingType(c.In(0).dtype));
  bool overflow = false;
  for (size_t t = 0; t < c.starts[1]; ++t) {
    Expected::Result& y = e->results[t];
    for (int64_t i = 0; i < c.operands[t].elements(); ++i) {
      const Real v = c.operands[t].values[i] * factor;
      y.tensor.values[i] = v;
      y.error.push_back(eps * std::fabs(v) + Ulp(y.tensor.dtype, v) / 2);
      overflow |= !std::isfinite(Rounded(y.tensor.dtype, v));
    }
  }
  e->results.back().tensor.values[0] = overflow;
}

}  // namespace

bool ComputeOptim(const OracleCall& c, Expected* e) {
  if (c.row->family != "optim") return false;
  if (c.row->name == "l2_norm")
    ListNorms(c, e);
  else if (c.row->name == "scale")
    ScaleList(c, e);
  else
    TakeSteps(c, e);
  return true;
}

}  // namespace opwire::conformance
