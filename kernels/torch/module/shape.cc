// Rows that move elements: by their width, whatever their type is.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "kernels/torch/module/call.h"

namespace opwire::torch_module {
namespace {

void Reshape(const Call& call) {
  const at::Tensor y = call.Out(0, As::kBits);
  y.copy_(call.In(0, As::kBits).reshape(y.sizes()));
}

void Permute(const Call& call) {
  call.Out(0, As::kBits).copy_(call.In(0, As::kBits).permute(call.Ints(0)));
}

// copy_ broadcasts.
void Expand(const Call& call) { call.Out(0, As::kBits).copy_(call.In(0, As::kBits)); }

void Cat(const Call& call) {
  at::Tensor y = call.Out(0, As::kBits);
  at::cat_out(y, call.List(0, As::kBits), call.Int(0));
}

void Tile(const Call& call) {
  call.Out(0, As::kBits).copy_(call.In(0, As::kBits).tile(call.Ints(0)));
}

// Elements beyond the extent are 0.
void Slice(const Call& call) {
  const at::Tensor x = call.In(0, As::kBits), y = call.Out(0, As::kBits);
  const int64_t dim = at::maybe_wrap_dim(call.Int(0), x.dim()), extent = x.size(dim),
                length = call.Int(1), step = call.Int(2);
  if (y.numel() == 0) return;
  int64_t start = call.In(1).item().toLong();
  if (start < 0) start += extent;
  const int64_t fitting =
      start < 0 || start >= extent ? 0 : std::min(length, (extent - start - 1) / step + 1);
  if (fitting < length) {
    call.c->runtime->out_of_range(call.c->runtime, 1, 0);
    y.narrow(dim, fitting, length - fitting).zero_();
  }
  if (fitting > 0)
    y.narrow(dim, 0, fitting).copy_(x.slice(dim, start, start + (fitting - 1) * step + 1, step));
}

// The slices of x along dim that the call's operand 1 names, where dim stood.
void Select(const Call& call, int64_t dim) {
  const at::Tensor x = call.In(0, As::kBits), y = call.Out(0, As::kBits);
  const Indices index = CheckIndices(call, 1, x.size(dim));
  if (y.numel() == 0) return;
  if (x.size(dim) == 0) {
    y.zero_();
    return;
  }
  const at::Tensor selected = at::index_select(x, dim, index.values.reshape(-1));
  if (index.bad.defined())
    selected.index_fill_(dim, index.bad.reshape(-1).nonzero().reshape(-1), 0);
  y.copy_(selected.reshape(y.sizes()));
}
void IndexSelect(const Call& call) {
  Select(call, at::maybe_wrap_dim(call.Int(0), call.c->operands[call.c->starts[0]].rank));
}
void Embedding(const Call& call) { Select(call, 0); }

void Gather(const Call& call) {
  const at::Tensor x = call.In(0, As::kBits), y = call.Out(0, As::kBits);
  const int64_t dim = at::maybe_wrap_dim(call.Int(0), x.dim());
  const Indices index = CheckIndices(call, 1, x.size(dim));
  if (y.numel() == 0) return;
  if (x.size(dim) == 0) {
    y.zero_();
    return;
  }
  y.copy_(at::gather(x, dim, index.values));
  if (index.bad.defined()) y.masked_fill_(index.bad, 0);
}

// Narrow floats are summed in f32 and rounded once.
void ScatterAdd(const Call& call) {
  const at::Tensor x = call.In(0, As::kSigned), y = call.Out(0, As::kSigned);
  const int64_t dim = at::maybe_wrap_dim(call.Int(0), x.dim());
  const Indices index = CheckIndices(call, 1, x.size(dim));
  at::Tensor src = Wide(call.In(2, As::kSigned));
  for (int64_t a = 0; a < src.dim(); ++a) src = src.narrow(a, 0, index.values.size(a));
  if (index.bad.defined()) src = src.masked_fill(index.bad, 0);
  if (src.numel() == 0 || x.size(dim) == 0) {
    y.copy_(x);
    return;
  }
  y.copy_(Wide(x).scatter_add(dim, index.values, src));
}

void EmbeddingBackward(const Call& call) {
  const at::Tensor y = call.Out();
  if (y.numel() == 0) return;
  const Indices index = CheckIndices(call, 1, y.size(0));
  at::Tensor grad = Wide(call.In(0)).reshape({index.values.numel(), y.size(1)});
  if (index.bad.defined()) grad = grad.masked_fill(index.bad.reshape({-1, 1}), 0);
  const at::Tensor sums =
      at::zeros_like(y, y.options().dtype(grad.scalar_type()), at::MemoryFormat::Contiguous);
  if (grad.numel() > 0) sums.index_add_(0, index.values.reshape(-1), grad);
  y.copy_(sums);
}

void Choose(const Call& call) {
  const std::vector<at::Tensor> xs = call.List(1, As::kBits);
  const Indices index = CheckIndices(call, 0, static_cast<int64_t>(xs.size()));
  const at::Tensor y = call.Out(0, As::kBits);
  at::Tensor chosen = xs[0];
  for (size_t i = 1; i < xs.size(); ++i)
    chosen = xs[i].where(index.values.eq(static_cast<int64_t>(i)), chosen);
  y.copy_(chosen);
  if (index.bad.defined()) y.masked_fill_(index.bad, 0);
}

void OneHot(const Call& call) {
  const at::Tensor y = call.Out();
  if (y.numel() == 0) return;
  const Indices index = CheckIndices(call, 0, y.size(-1));
  y.zero_();
  const at::Tensor ones = index.bad.defined() ? index.bad.logical_not().to(y.scalar_type())
                                              : at::ones_like(index.values, y.options());
  y.scatter_(-1, index.values.unsqueeze(-1), ones.unsqueeze(-1));
}

}  // namespace

const Row kShapeRows[] = {{"reshape", Reshape},
                          {"recompute", Reshape},
                          {"permute", Permute},
                          {"expand", Expand},
                          {"cat", Cat},
                          {"tile", Tile},
                          {"slice", Slice},
                          {"index_select", IndexSelect},
                          {"embedding", Embedding},
                          {"gather", Gather},
                          {"scatter_add", ScatterAdd},
                          {"embedding_backward", EmbeddingBackward},
                          {"choose", Choose},
                          {"one_hot", OneHot},
                          {nullptr, nullptr}};

}  // namespace opwire::torch_module
