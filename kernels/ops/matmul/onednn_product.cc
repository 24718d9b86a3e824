// oneDNN's primitives, divided into pieces. The only file that its exceptions reach.
#include "kernels/ops/matmul/onednn_product.h"

#include <array>

#include "kernels/ops/matmul/pieces.h"
#include "kernels/ops/onednn.h"
#include "kernels/select/isa.h"

namespace opwire::ops::matmul {
namespace {

using dnnl::memory;

memory::data_type NameOf(uint8_t type) {
  return type == OPW_BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}
int64_t WidthOf(uint8_t type) { return type == OPW_BF16 ? 2 : 4; }

// A primitive for one piece of a product and one number of threads. oneDNN fixes the number when it
// makes a primitive.
struct Primitive {
  dnnl::matmul primitive;
  memory x, y, z, bias, scratchpad;
};
// For full pieces, and for the last ones if these have fewer positions; then for fewer columns.
using Primitives = std::array<std::array<Primitive, 2>, 2>;

// Extents of 1 get the stride that a dense tensor would have: oneDNN does not accept 0.
memory::desc Describe(memory::data_type type, const MatmulShapes& s, const int64_t* batch_strides,
                      int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  memory::dims dims, strides;
  for (int a = 0; a < s.batch_rank; ++a) {
    dims.push_back(batch_strides[a] == 0 ? 1 : s.batch[a]);
    strides.push_back(batch_strides[a] == 0 ? rows * columns : batch_strides[a]);
  }
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {rows == 1 ? columns : row_stride,
                                 columns == 1 && row_stride != 1 ? 1 : column_stride});
  return memory::desc(dims, type, strides);
}

dnnl::post_ops PostOps(const OneDnnSpec& spec) {
  dnnl::post_ops ops;
  if (spec.adds) ops.append_sum();
  switch (spec.activation) {
    case Activation::kNone:
    case Activation::kRelu:
      break;
    case Activation::kGelu:
      ops.append_eltwise(1, dnnl::algorithm::eltwise_gelu_erf, 0, 0);
      break;
    case Activation::kGeluTanh:
      ops.append_eltwise(1, dnnl::algorithm::eltwise_gelu_tanh, 0, 0);
      break;
    case Activation::kSilu:
      ops.append_eltwise(1, dnnl::algorithm::eltwise_swish, 1, 0);
      break;
  }
  return ops;
}

Primitive MakePrimitive(const OneDnnSpec& spec, const MatmulShapes& s) {
  const memory::desc x = Describe(NameOf(spec.type), s, s.x_batch, s.m, s.k, s.x_m, s.x_k);
  const memory::desc y = Describe(NameOf(spec.type), s, s.y_batch, s.k, s.n, s.y_k, s.y_n);
  const memory::desc z = Describe(NameOf(spec.result), s, s.z_batch, s.m, s.n, s.z_m, s.z_n);
  memory::dims ones(static_cast<size_t>(s.batch_rank) + 1, 1),
      dense(static_cast<size_t>(s.batch_rank) + 2, s.n);
  ones.push_back(s.n);
  dense.back() = 1;
  const memory::desc bias(ones, NameOf(spec.type), dense);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_post_ops(PostOps(spec));
  const dnnl::matmul::primitive_desc desc(
      spec.biased ? dnnl::matmul::desc(x, y, bias, z) : dnnl::matmul::desc(x, y, z), attr,
      OneDnnEngine());
  const auto of = [](const memory::desc& d) { return memory(d, OneDnnEngine(), nullptr); };
  return {dnnl::matmul(desc), of(x), of(y), of(z), of(bias), of(desc.scratchpad_desc())};
}

class Product final : public OneDnnProduct {
 public:
  Product(const OneDnnSpec& spec, int threads)
      : spec_(spec),
        pieces_(spec.shapes, kOneDnnCallWork * threads),
        threads_(Useful(threads)),
        stream_(OneDnnEngine()) {
    scratch_bytes_ = MakeFor(threads_, &primitives_);
  }

  int64_t scratch_bytes() const override { return scratch_bytes_; }

  bool Run(const opw_call* c, const void* x, const void* y, const void* bias, void* z,
           void* scratch) override try {
    if (const int threads = Useful(c->runtime->threads); threads_ != threads) Adapt(threads);
    const auto at = [](const void* base, int64_t offset, uint8_t type) {
      return static_cast<char*>(const_cast<void*>(base)) + offset * WidthOf(type);
    };
    pieces_.ForEach(c, spec_.shapes,
                    [&](int64_t x_offset, int64_t y_offset, int64_t z_offset, int64_t positions,
                        int64_t column, int64_t columns) {
                      Primitive& p =
                          primitives_[positions != pieces_.length][columns != pieces_.width];
                      p.x.set_data_handle(at(x, x_offset, spec_.type));
                      p.y.set_data_handle(at(y, y_offset, spec_.type));
                      p.z.set_data_handle(at(z, z_offset, spec_.result));
                      p.scratchpad.set_data_handle(scratch);
                      std::unordered_map<int, memory> with = {{DNNL_ARG_SRC, p.x},
                                                              {DNNL_ARG_WEIGHTS, p.y},
                                                              {DNNL_ARG_DST, p.z},
                                                              {DNNL_ARG_SCRATCHPAD, p.scratchpad}};
                      if (spec_.biased) {
                        p.bias.set_data_handle(at(bias, column, spec_.type));
                        with.emplace(DNNL_ARG_BIAS, p.bias);
                      }
                      p.primitive.execute(stream_, with);
                    });
    return true;
  } catch (const dnnl::error&) {
    return false;
  }

 private:
  // The number of threads, up to `threads`, for which the product has enough work. More threads
  // cost more than they gain, especially if other processes compute at the same time.
  int Useful(int threads) const {
    const MatmulShapes& s = spec_.shapes;
    const double work = static_cast<double>(s.Batches()) * static_cast<double>(s.m) *
                        static_cast<double>(s.n) * static_cast<double>(s.k);
    return std::clamp(
        static_cast<int>(std::min(work / static_cast<double>(kOneDnnThreadWork), 1e6)), 1, threads);
  }
  // Makes the primitives of all pieces for a number of threads. Returns the scratch memory that
  // they need.
  int64_t MakeFor(int threads, Primitives* primitives) const {
    const OneDnnThreads of_primitives(threads);
    const int64_t positions[] = {pieces_.length, pieces_.extent % pieces_.length},
                  columns[] = {pieces_.width, pieces_.columns % pieces_.width};
    int64_t bytes = 0;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        if (positions[i] == 0 || columns[j] == 0) continue;
        Primitive& p = (*primitives)[i][j] =
            MakePrimitive(spec_, pieces_.Of(spec_.shapes, positions[i], columns[j]));
        bytes = std::max(bytes, static_cast<int64_t>(p.scratchpad.get_desc().get_size()));
      }
    }
    return bytes;
  }
  // The primitives were made for a number of threads that differs from the run's. Makes them for
  // the run's, unless they need more scratch memory than was announced.
  void Adapt(int threads) {
    Primitives primitives;
    if (MakeFor(threads, &primitives) <= scratch_bytes_) primitives_ = std::move(primitives);
    threads_ = threads;
  }

  const OneDnnSpec spec_;
  const MatmulPieces pieces_;
  int threads_;
  dnnl::stream stream_;
  Primitives primitives_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace

const char* OneDnnRefuses(const MatmulShapes& s) {
  if (s.batch_rank + 2 > 12) return "oneDNN takes at most 12 axes";
  const auto unit = [](int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    return row_stride == 1 || column_stride == 1 || rows == 1 || columns == 1;
  };
  return unit(s.m, s.k, s.x_m, s.x_k) && unit(s.k, s.n, s.y_k, s.y_n)
             ? nullptr
             : "oneDNN needs rows or columns to be contiguous";
}

bool OneDnnIsNative(uint8_t type) {
  return type == OPW_F32 || (type == OPW_BF16 && Isa::Detect().avx512_bf16);
}

std::unique_ptr<OneDnnProduct> OneDnnProduct::Make(const OneDnnSpec& spec, int threads) try {
  return std::make_unique<Product>(spec, threads);
} catch (const dnnl::error&) {
  return nullptr;
}

}  // namespace opwire::ops::matmul
