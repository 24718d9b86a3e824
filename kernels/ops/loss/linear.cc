// linear_cross_entropy and its gradient: logits of some rows at a time by oneDNN, and softmax's
// rows. f16 is converted to f32 copies, and so is bf16 if the processor does not multiply it.
#include <array>
#include <optional>

#include "kernels/ops/families.h"
#include "kernels/ops/loss/loss.h"
#include "kernels/ops/loss/target.h"
#include "kernels/ops/map_all.h"
#include "kernels/ops/matmul/onednn_product.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::loss {
namespace {

// Divides a call's rows into chunks: all except the last have `chunk` rows.
struct Sizes {
  int64_t rows, classes, depth, chunk;
  int input;  // the operand; weight is the next, target the one after
  Sizes(const opw_call* c, int first)
      : rows(Operand(c, first).shape[0]),
        classes(Operand(c, first + 1).shape[0]),
        depth(Operand(c, first).shape[1]),
        chunk(RowsAtATime(c, rows, classes * 4)),
        input(first) {}
};

// The products of chunks of one size.
struct Products {
  std::unique_ptr<matmul::OneDnnProduct> logits, grad_input, grad_weight,
      more_weight;  // the last one adds to the existing values
};

// The places of tensors that are stored one after the other in the workspace.
class Layout {
 public:
  int64_t Take(int64_t bytes) {
    const int64_t at = end_;
    end_ += AlignedBytes(bytes);
    return at;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = 0;
};

struct State {
  std::optional<Sizes> sizes;
  uint8_t type;                      // of the products
  std::array<Products, 2> products;  // of full chunks and of the last one
  int64_t input, weight;             // f32 copies
  int64_t losses, logits, d, grad_input, grad_weight, scratch;
};

const softmax::SoftmaxRows& Loops() {
  return Isa::Detect().avx512 ? softmax::SoftmaxRowsAvx512() : softmax::SoftmaxRowsAvx2();
}

template <int kFirst>
const char* Supports(const opw_call* c) {
  const opw_tensor &input = Operand(c, kFirst), &weight = Operand(c, kFirst + 1);
  if (!AllDense(c, kFirst == 0 ? 3 : 5, 2)) return "needs dense tensors";
  if (input.elements == 0 || weight.elements == 0) return "nothing to multiply";
  return Isa::Detect().avx512 || Isa::Detect().avx2 ? nullptr : "needs avx2";
}

template <int kFirst>
int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  constexpr bool kBackward = kFirst == 1;
  const uint8_t own = Operand(c, kFirst).dtype;
  auto s = std::make_unique<State>();
  const Sizes& z = s->sizes.emplace(c, kFirst);
  s->type = OPW_F32;
  if (matmul::OneDnnIsNative(own)) s->type = own;
  Layout layout;
  const bool copies = s->type != own, narrow = s->type != OPW_F32;
  s->input = layout.Take(copies ? z.rows * z.depth * 4 : 0);
  s->weight = layout.Take(copies ? z.classes * z.depth * 4 : 0);
  s->losses = layout.Take(kBackward ? 0 : z.rows * 8);
  s->logits = layout.Take(z.chunk * z.classes * 4);
  s->d = narrow && kBackward ? layout.Take(z.chunk * z.classes * 2) : s->logits;
  s->grad_input = layout.Take(kBackward && copies ? z.chunk * z.depth * 4 : 0);
  s->grad_weight = layout.Take(kBackward && own != OPW_F32 ? z.classes * z.depth * 4 : 0);
  int64_t scratch = 0;
  const int threads = ThreadsOf(c);
  const auto make = [&](std::unique_ptr<matmul::OneDnnProduct>& p,
                        const matmul::MatmulShapes& shapes, uint8_t result, bool adds) {
    p = matmul::OneDnnProduct::Make(
        {.shapes = shapes, .type = s->type, .result = result, .adds = adds}, threads);
    if (p != nullptr) scratch = std::max(scratch, p->scratch_bytes());
    return p != nullptr;
  };
  const int64_t sizes[] = {z.chunk, z.rows % z.chunk};
  for (int i = 0; i < 2; ++i) {
    const int64_t m = sizes[i];
    if (m == 0) continue;
    Products& p = s->products[i];
    if (!make(p.logits, {m, z.classes, z.depth, z.depth, 1, 1, z.depth, z.classes}, OPW_F32, false))
      return OPW_FAILED;
    if (!kBackward) continue;
    const matmul::MatmulShapes by_weight(m, z.depth, z.classes, z.classes, 1, z.depth, 1, z.depth),
        by_input(z.classes, z.depth, m, 1, z.classes, z.depth, 1, z.depth);
    if (!make(p.grad_input, by_weight, s->type, false) ||
        !make(p.grad_weight, by_input, OPW_F32, false) ||
        !make(p.more_weight, by_input, OPW_F32, true))
      return OPW_FAILED;
  }
  s->scratch = layout.Take(scratch);
  *workspace_bytes = layout.end();
  *state = s.release();
  return OPW_OK;
}

void Release(void* state) { delete static_cast<State*>(state); }

// Calls body(products, first row, rows, its logits) for each chunk until one fails or the run is
// stopped.
template <typename F>
int ForChunks(const opw_call* c, const State& s, const F& body) {
  const Sizes& z = *s.sizes;
  const opw_tensor &input = Operand(c, z.input), &weight = Operand(c, z.input + 1);
  char* const base = static_cast<char*>(c->workspace);
  const char *x = static_cast<const char*>(input.data), *w = static_cast<const char*>(weight.data);
  if (s.type != input.dtype) {
    CastAll(c, base + s.input, OPW_F32, x, input.dtype, input.elements);
    CastAll(c, base + s.weight, OPW_F32, w, weight.dtype, weight.elements);
    x = base + s.input;
    w = base + s.weight;
  }
  const int64_t row_bytes = z.depth * DTypeBytes(static_cast<DType>(s.type));
  for (int64_t first = 0; first < z.rows && !Stopped(c); first += z.chunk) {
    const int64_t rows = std::min(z.chunk, z.rows - first);
    const Products& p = s.products[rows == z.chunk ? 0 : 1];
    if (!p.logits->Run(c, x + first * row_bytes, w, nullptr, base + s.logits, base + s.scratch))
      return OPW_FAILED;
    const LogitRows logits{Loops(), DType::kF32, base + s.logits, first,
                           rows,    z.classes,   z.input + 2};
    if (!body(p, logits, x + first * row_bytes, w)) return OPW_FAILED;
  }
  return OPW_OK;
}

int Run(const opw_call* c) {
  const State& s = *static_cast<const State*>(c->state);
  double* const losses = reinterpret_cast<double*>(static_cast<char*>(c->workspace) + s.losses);
  const int code =
      ForChunks(c, s, [&](const Products&, const LogitRows& rows, const char*, const char*) {
        LossesOf(c, rows, losses, &c->results[1]);
        return true;
      });
  if (code == OPW_OK && !Stopped(c)) StoreLosses(c, losses, s.sizes->rows, 2);
  return code;
}

int RunBackward(const opw_call* c) {
  const State& s = *static_cast<const State*>(c->state);
  const Sizes& z = *s.sizes;
  const opw_tensor &grad_input = c->results[0], &grad_weight = c->results[1],
                   &log_sums = Operand(c, 4);
  char* const base = static_cast<char*>(c->workspace);
  const double count =
      ReductionOf(c) == Reduction::kMean ? static_cast<double>(CountTargets(c, 3, z.rows)) : 1.0;
  void* const sums = grad_weight.dtype == OPW_F32 ? grad_weight.data : base + s.grad_weight;
  const int code =
      ForChunks(c, s, [&](const Products& p, const LogitRows& rows, const char* x, const char* w) {
        GradientsOf(c, rows, count, &log_sums, rows.logits);
        if (s.d != s.logits)
          CastAll(c, base + s.d, s.type, rows.logits, OPW_F32, rows.rows * z.classes);
        char* const into = At(grad_input, rows.first * z.depth);
        const bool copies = s.type != grad_input.dtype;
        if (!p.grad_input->Run(c, base + s.d, w, nullptr, copies ? base + s.grad_input : into,
                               base + s.scratch))
          return false;
        if (copies)
          CastAll(c, into, grad_input.dtype, base + s.grad_input, OPW_F32, rows.rows * z.depth);
        matmul::OneDnnProduct& weights = rows.first == 0 ? *p.grad_weight : *p.more_weight;
        return weights.Run(c, base + s.d, x, nullptr, sums, base + s.scratch);
      });
  if (code == OPW_OK && sums != grad_weight.data)
    CastAll(c, grad_weight.data, grad_weight.dtype, sums, OPW_F32, grad_weight.elements);
  return code;
}

}  // namespace

void AddLinearLoss(VariantTable& table, const Isa& isa) {
  const DTypeSet types = {DType::kF32, DType::kF16, DType::kBF16};
  AddProduction(table, isa, "linear_cross_entropy", "onednn", "", 0, types,
                {OPW_ABI_VERSION, 0, Supports<0>, Prepare<0>, Release, Run});
  AddProduction(table, isa, "linear_cross_entropy_backward", "onednn", "", 0, types,
                {OPW_ABI_VERSION, 0, Supports<1>, Prepare<1>, Release, RunBackward});
}

}  // namespace opwire::ops::loss
