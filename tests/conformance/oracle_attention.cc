// Attention and its gradient.
#include <cmath>
#include <optional>

#include "tests/conformance/oracle.h"

namespace opwire::conformance {
namespace {

// One key that a query sees.
struct Seen {
  int64_t at;  // its row in key and value
  Real score, error;
};

class Attention {
 public:
  // Query, key and value are the operands from `first` on.
  Attention(const OracleCall& c, int first, int mask)
      : Attention(c, c.In(first), c.In(first + 1), c.In(first + 2), c.In(mask), c.Bool(0),
                  c.Int(1)) {}
  Attention(const OracleCall& c, const Tensor& q, const Tensor& k, const Tensor& v,
            const Tensor& mask, bool causal, int64_t window)
      : c_(c),
        q_(q),
        k_(k),
        v_(v),
        mask_(mask),
        rank_(q.rank()),
        causal_(causal),
        window_(window),
        scale_(c.Float(2)) {
    if (scale_ == 0) scale_ = 1 / std::sqrt(std::fmax(static_cast<Real>(q_.shape.back()), 1));
    eps_ = Eps(ComputingType(q_.dtype));
  }

  // Of the query at `index` of [..., Hq, Sq], which is row `row` of query.
  void Query(const Extents& index, int64_t row, Expected* e) const {
    const std::vector<Seen> seen = SeenBy(index, row);
    Real most = -INFINITY, total = 0, off = 0;
    for (const Seen& s : seen) most = std::fmax(most, s.score);
    std::vector<Real> p, relative;
    for (const Seen& s : seen) {
      p.push_back(std::exp(s.score - most));
      relative.push_back(
          s.error +
          (2 * std::fabs(s.score - most) + 16 + static_cast<Real>(k_.shape[rank_ - 2]) / 4) * eps_);
      total += p.back();
      off += p.back() * relative.back();
    }
    // A weight is rounded by the largest score of its block and those before, where it may be next
    // above a power of two.
    const Real rounding = ComputingType(q_.dtype) == q_.dtype ? 0 : Ulp(q_.dtype, 1) / 2;
    const Real terms = static_cast<Real>(seen.size()),
               tiny = std::ldexp(eps_, q_.dtype == DType::kF64 ? -970 : -103);
    const int64_t columns = v_.shape.back();
    for (int64_t l = 0; l < columns && !seen.empty(); ++l) {
      Real sum = 0, magnitude = 0, error = 0;
      for (size_t j = 0; j < seen.size(); ++j) {
        const Real v = v_.values[seen[j].at * columns + l];
        sum += p[j] * v;
        magnitude += (p[j] + tiny) * std::fabs(v);
        error += p[j] * (relative[j] + rounding) * std::fabs(v);
      }
      const Real y = sum / total;
      e->results[0].tensor.values[row * columns + l] = y;
      e->results[0].error[row * columns + l] =
          (error + std::fabs(y) * off + (2 * terms + 8) * eps_ * magnitude) / total +
          Ulp(q_.dtype, y) / 2 + tiny;
    }
    const Real log_sum = most + std::log(total);
    e->results[1].tensor.values[row] = seen.empty() ? -INFINITY : log_sum;
    e->results[1].error[row] =
        seen.empty() ? 0
                     : off / total + (terms + 8 + 2 * std::fabs(most) + 2 * std::log(total)) * eps_;
  }

  // Adds what that query gives to the gradients' sums, and to their errors.
  void QueryBackward(const Extents& index, int64_t row, Expected* e) const {
    const Tensor &grad = c_.In(0), &output = c_.In(4);
    const int64_t depth = q_.shape.back(), value_depth = v_.shape.back();
    const bool shared =
        q_.shape[rank_ - 3] !=
        k_.shape[rank_ - 3];  // what each head gives may be rounded before they are added
    const Real log_sum = c_.In(5).values[row], dot = (static_cast<Real>(value_depth) + 4) * eps_;
    const Real terms = 2 *
                       (static_cast<Real>(q_.shape[rank_ - 2]) *
                            std::fmax(1, static_cast<Real>(q_.shape[rank_ - 3])) +
                        static_cast<Real>(k_.shape[rank_ - 2]) + 8) *
                       eps_;
    Real delta = 0, delta_size = 0;
    for (int64_t l = 0; l < value_depth; ++l) {
      const Real product =
          grad.values[row * value_depth + l] * output.values[row * value_depth + l];
      delta += product;
      delta_size += std::fabs(product);
    }
    const auto add = [&](int result, int64_t at, Real value, Real error) {
      e->results[static_cast<size_t>(result)].tensor.values[at] += value;
      e->results[static_cast<size_t>(result)].error[at] += error;
    };
    for (const Seen& s : SeenBy(index, row)) {
      const Real p = std::exp(s.score - log_sum),
                 p_off =
                     p * (s.error +
                          (2 * std::fabs(s.score - log_sum) + 2 * std::fabs(log_sum) + 16) * eps_) +
                     Rounding(p);
      Real product = 0, size = delta_size;
      for (int64_t l = 0; l < value_depth; ++l) {
        const Real g = grad.values[row * value_depth + l], v = v_.values[s.at * value_depth + l];
        product += g * v;
        size += std::fabs(g * v);
        add(2, s.at * value_depth + l, p * g,
            (p_off + terms * p) * std::fabs(g) + (shared ? Rounding(p * g) : 0));
      }
      const Real slope = p * (product - delta),
                 slope_off = p_off * std::fabs(product - delta) + p * dot * size + Rounding(slope),
                 scale = std::fabs(scale_);
      for (int64_t l = 0; l < depth; ++l) {
        const Real q = q_.values[row * depth + l], k = k_.values[s.at * depth + l];
        add(0, row * depth + l, scale_ * slope * k,
            scale * (slope_off + terms * std::fabs(slope)) * std::fabs(k));
        add(1, s.at * depth + l, scale_ * slope * q,
            scale * (slope_off + terms * std::fabs(slope)) * std::fabs(q) +
                (shared ? Rounding(scale_ * slope * q) : 0));
      }
    }
  }

 private:
  // What rounding to a narrow element type may take from a factor of the second product.
  Real Rounding(Real factor) const {
    return ComputingType(q_.dtype) == q_.dtype ? 0 : Ulp(q_.dtype, factor) / 2;
  }

  std::vector<Seen> SeenBy(const Extents& index, int64_t row) const {
    const int64_t keys = k_.shape[rank_ - 2], depth = q_.shape.back(),
                  own = index.back() + keys - q_.shape[rank_ - 2];
    Extents key(index.begin(), index.end() - 1), score = index;
    key.back() = key.back() * k_.shape[rank_ - 3] / q_.shape[rank_ - 3];
    const int64_t head = Flat({k_.shape.begin(), k_.shape.end() - 2}, key);
    score.push_back(0);
    std::vector<Seen> seen;
    for (int64_t& j = score.back(); j < keys; ++j) {
      if ((causal_ && j > own) || (window_ > 0 && j <= own - window_)) continue;
      const Real mask =
          mask_.dtype == DType::kInvalid ? 0 : mask_.values[BroadcastFlat(mask_.shape, score)];
      if (mask_.dtype == DType::kBool ? mask == 0 : mask == -INFINITY) continue;
      const Real added = mask_.dtype == DType::kBool ? 0 : mask;
      Seen s{head * keys + j, 0, 0};
      for (int64_t l = 0; l < depth; ++l) {
        const Real product = scale_ * q_.values[row * depth + l] * k_.values[s.at * depth + l];
        s.score += product;
        s.error += (static_cast<Real>(depth) + 4) * eps_ * std::fabs(product);
      }
      s.score += added;
      s.error += eps_ * (std::fabs(added) + std::fabs(s.score));
      seen.push_back(s);
    }
    return seen;
  }

  const OracleCall& c_;
  const Tensor &q_, &k_, &v_, &mask_;
  const int rank_;
  const bool causal_;
  const int64_t window_;
  Real scale_, eps_;
};

// The first of the first operand that has one.
void Report(Expected* e, int operand, int64_t position) {
  if (e->bad_operand >= 0 &&
      (e->bad_position < position || (e->bad_position == position && e->bad_operand <= operand)))
    return;
  e->bad_operand = operand;
  e->bad_position = position;
}

// A call of kv_attention as one of attention: caches with their positions in order, and a mask of
// those that each query sees.
struct Gathered {
  Tensor key, value, mask;

  Gathered(const OracleCall& c, Expected* e) {
    const Tensor &query = c.In(0), &length = c.In(3), &table = c.In(4);
    const bool paged = table.dtype != DType::kInvalid;
    const size_t heads = query.shape.size() - 3;
    const int64_t page = c.In(1).shape[heads + 1], pages = c.In(1).shape[0],
                  in_row = paged ? table.shape[1] : 1, positions = page * in_row;
    const int64_t batches = Count(
                      {query.shape.begin(), query.shape.begin() + static_cast<int64_t>(heads)}),
                  queries = query.shape[heads + 1], window = c.Int(1);
    const bool any = c.In(1).shape[heads] > 0 && query.shape[heads] * queries > 0;
    Extents shape(query.shape.begin(), query.shape.begin() + static_cast<int64_t>(heads));
    mask = {DType::kBool, shape, {}};
    mask.shape.insert(mask.shape.end(), {1, queries, positions});
    std::vector<Real> page_of;  // of each batch's pages; negative: not there
    for (int64_t b = 0; b < batches; ++b) {
      const int64_t at = length.shape.empty() ? 0 : b;
      Real n = length.values[at] + (length.values[at] < 0 ? static_cast<Real>(positions + 1) : 0);
      if (n < 0 || n > static_cast<Real>(positions)) {
        if (any) Report(e, 3, at);
        n = 0;
      }
      std::vector<bool> wanted(in_row);
      for (int64_t i = 0; i < queries; ++i) {
        const Real own = n - static_cast<Real>(queries - i);
        for (int64_t j = 0; j < positions; ++j) {
          const bool seen = j < n && (!c.Bool(0) || j <= own) &&
                            (window == 0 || j > own - static_cast<Real>(window));
          mask.values.push_back(seen);
          if (seen && paged) wanted[j / page] = true;
        }
      }
      for (int64_t i = 0; i < in_row; ++i) {
        Real found = paged ? table.values[b * in_row + i] : static_cast<Real>(b);
        if (paged && found < 0) found += static_cast<Real>(pages);
        const bool there = !paged || (found >= 0 && found < static_cast<Real>(pages));
        if (!there && wanted[i] && any) Report(e, 4, b * in_row + i);
        page_of.push_back(there ? found : -1);
      }
    }
    for (int64_t at = 0; at < static_cast<int64_t>(mask.values.size()); ++at) {
      const int64_t j = at % positions, b = at / positions / queries;
      if (page_of[b * in_row + j / page] < 0) mask.values[at] = 0;
    }
    key = Gather(c.In(1), shape, page_of, in_row, page);
    value = Gather(c.In(2), shape, page_of, in_row, page);
  }

 private:
  static Tensor Gather(const Tensor& cache, Extents shape, const std::vector<Real>& page_of,
                       int64_t in_row, int64_t page) {
    const size_t rank = cache.shape.size();
    const int64_t heads = cache.shape[rank - 3], depth = cache.shape[rank - 1],
                  batches = Count(shape);
    shape.insert(shape.end(), {heads, page * in_row, depth});
    Tensor out{cache.dtype, shape, {}};
    for (int64_t b = 0; b < batches; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t j = 0; j < page * in_row; ++j) {
          const Real from = page_of[b * in_row + j / page];
          for (int64_t l = 0; l < depth; ++l) {
            out.values.push_back(
                from < 0
                    ? 0
                    : cache.values[((static_cast<int64_t>(from) * heads + h) * page + j % page) *
                                       depth +
                                   l]);
          }
        }
      }
    }
    return out;
  }
};

void AppendPages(const OracleCall& c, Expected* e) {
  const Tensor &cache = c.In(0), &added = c.In(1), &position = c.In(2), &table = c.In(3);
  const int64_t page = cache.shape[2], pages = cache.shape[0], in_row = table.shape[1],
                rows = added.shape[2];
  const Real places = static_cast<Real>(page * in_row - rows + 1);
  e->exact_zeros = true;
  e->result().values = cache.values;
  if (cache.elements() == 0) return;
  for (int64_t b = 0; b < std::max<int64_t>(1, position.elements()) && b < added.shape[0]; ++b) {
    const Real first = position.values[b] + (position.values[b] < 0 ? places : 0);
    if (position.elements() > 0 && (first < 0 || first >= places)) Report(e, 2, b);
  }
  Extents index(4, 0);
  for (int64_t at = 0; at < added.elements(); ++at, NextIndex(added.shape, &index)) {
    const Real given = position.values[position.shape.empty() ? 0 : index[0]],
               first = given + (given < 0 ? places : 0);
    if (first < 0 || first >= places) continue;
    const int64_t to = static_cast<int64_t>(first) + index[2],
                  entry = index[0] * in_row + to / page;
    const Real found =
        table.values[entry] + (table.values[entry] < 0 ? static_cast<Real>(pages) : 0);
    if (found < 0 || found >= static_cast<Real>(pages))
      Report(e, 3, entry);
    else
      e->result()
          .values[Flat(cache.shape, {static_cast<int64_t>(found), index[1], to % page, index[3]})] =
          added.values[at];
  }
}

void Append(const OracleCall& c, Expected* e) {
  if (c.In(3).dtype != DType::kInvalid) return AppendPages(c, e);
  const Tensor &cache = c.In(0), &added = c.In(1), &position = c.In(2);
  const size_t rank = cache.shape.size(), batch = rank - 3, rows = rank - 2;
  e->exact_zeros = true;
  e->result().values = cache.values;
  const Real places = static_cast<Real>(cache.shape[rows] - added.shape[rows] + 1);
  const auto first = [&](int64_t b) {
    return position.values[b] + (position.values[b] < 0 ? places : 0);
  };
  for (int64_t b = position.elements() - 1; b >= 0; --b) {
    if (first(b) >= 0 && first(b) < places) continue;
    e->bad_operand = 2;
    e->bad_position = b;
  }
  if (added.elements() == 0) return;
  Extents index(rank, 0);
  do {
    const int64_t b =
        position.shape.empty()
            ? 0
            : Flat(Extents(cache.shape.begin(), cache.shape.begin() + static_cast<int64_t>(batch)),
                   Extents(index.begin(), index.begin() + static_cast<int64_t>(batch)));
    if (first(b) < 0 || first(b) >= places) continue;
    Extents to = index;
    to[rows] += static_cast<int64_t>(first(b));
    e->result().values[static_cast<size_t>(Flat(cache.shape, to))] =
        added.values[static_cast<size_t>(Flat(added.shape, index))];
  } while (NextIndex(added.shape, &index));
}

}  // namespace

bool ComputeAttention(const OracleCall& c, Expected* e) {
  if (c.row->name == "kv_append") return Append(c, e), true;
  if (c.row->family != "attention") return false;
  for (Expected::Result& r : e->results) r.error.resize(r.tensor.elements());
  const bool backward = c.row->name == "scaled_dot_product_attention_backward";
  std::optional<Gathered> cached;
  if (c.row->name == "kv_attention") cached.emplace(c, e);
  const Attention attention =
      cached ? Attention(c, c.In(0), cached->key, cached->value, cached->mask, false, 0)
             : Attention(c, backward ? 1 : 0, backward ? 6 : 3);
  const Extents queries = backward ? c.In(5).shape : e->results[1].tensor.shape;
  Extents index(queries.size(), 0);
  for (int64_t row = 0; row < Count(queries); ++row, NextIndex(queries, &index)) {
    if (backward)
      attention.QueryBackward(index, row, e);
    else
      attention.Query(index, row, e);
  }
  for (size_t r = 0; backward && r < 3; ++r) {
    const DType type = c.In(1).dtype;
    for (int64_t i = 0; i < e->results[r].tensor.elements(); ++i) {
      Real& error = e->results[r].error[i];
      error = WithRounding(type, e->results[r].tensor.values[i], error) +
              std::ldexp(Eps(ComputingType(type)), -100);
    }
  }
  return true;
}

}  // namespace opwire::conformance
