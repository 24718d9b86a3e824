// matmul by oneDNN: f32, bf16 where the processor multiplies it, and the other 16-bit floats through f32 copies. oneDNN's
// exceptions end here.
#include <array>
#include <memory>
#include <optional>

#include "kernels/ops/call.h"
#include "kernels/ops/families.h"
#include "kernels/ops/matmul/matmul.h"
#include "kernels/ops/matmul/pieces.h"
#include "kernels/ops/matmul/shapes.h"
#include "kernels/ops/onednn.h"

namespace opwire::ops {
namespace {

using dnnl::memory;

// A primitive for one piece of a product and one number of threads, which oneDNN fixes when it makes one.
struct Product {
  dnnl::matmul primitive;
  memory x, y, z, scratchpad;
};

// Of whole pieces, and of the last one where it has fewer positions.
using Products = std::array<Product, 2>;

struct State {
  std::optional<MatmulShapes> shapes;  // none: nothing to sum
  std::optional<MatmulPieces> pieces;
  memory::data_type type;
  int threads = 0;
  Products products;
  dnnl::stream stream;
  ElementwiseLoop widen = nullptr, narrow = nullptr;  // for types that are multiplied as f32 copies
  int64_t x_bytes = 0, y_bytes = 0, z_bytes = 0;      // of the copies, in the workspace behind each other
  int64_t scratchpad_bytes = 0;
};

// Extents of 1 take the stride that a dense tensor would have: oneDNN does not like 0.
memory::desc Describe(memory::data_type type, const MatmulShapes& s, const int64_t* batch_strides, int64_t rows, int64_t columns,
                      int64_t row_stride, int64_t column_stride) {
  memory::dims dims, strides;
  for (int a = 0; a < s.batch_rank; ++a) {
    dims.push_back(batch_strides[a] == 0 ? 1 : s.batch[a]);
    strides.push_back(batch_strides[a] == 0 ? rows * columns : batch_strides[a]);
  }
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {rows == 1 ? columns : row_stride, columns == 1 && row_stride != 1 ? 1 : column_stride});
  return memory::desc(dims, type, strides);
}

Product Make(memory::data_type type, const MatmulShapes& s) {
  const memory::desc x = Describe(type, s, s.x_batch, s.m, s.k, s.x_m, s.x_k);
  const memory::desc y = Describe(type, s, s.y_batch, s.k, s.n, s.y_k, s.y_n);
  const memory::desc z = Describe(type, s, s.z_batch, s.m, s.n, s.z_m, s.z_n);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, y, z), attr, OneDnnEngine());
  return {dnnl::matmul(desc), memory(x, OneDnnEngine(), nullptr), memory(y, OneDnnEngine(), nullptr), memory(z, OneDnnEngine(), nullptr),
          memory(desc.scratchpad_desc(), OneDnnEngine(), nullptr)};
}

// The products of the state's pieces for a number of threads; how much scratch memory they need.
int64_t MakeProducts(const State& s, int threads, Products* products) {
  const OneDnnThreads of_primitives(threads);
  const MatmulPieces& p = *s.pieces;
  const int64_t positions[] = {p.length, p.extent % p.length};
  int64_t bytes = 0;
  for (int i = 0; i < 2; ++i) {
    if (positions[i] == 0) continue;
    (*products)[i] = Make(s.type, p.Of(*s.shapes, positions[i]));
    bytes = std::max(bytes, static_cast<int64_t>((*products)[i].scratchpad.get_desc().get_size()));
  }
  return bytes;
}

// Multiplied as they are, without f32 copies.
bool IsNative(uint8_t dtype) { return dtype == OPW_F32 || (dtype == OPW_BF16 && Isa::Detect().avx512_bf16); }

const char* Supports(const opw_call* c) {
  const MatmulShapes s(c);
  if (s.batch_rank + 2 > 12) return "oneDNN takes at most 12 axes";
  const auto unit = [](int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    return row_stride == 1 || column_stride == 1 || rows == 1 || columns == 1;
  };
  if (!unit(s.m, s.k, s.x_m, s.x_k) || !unit(s.k, s.n, s.y_k, s.y_n)) return "oneDNN needs rows or columns to be contiguous";
  if (c->results[0].contiguous == 0) return "oneDNN needs a contiguous result here";
  if (!IsNative(Operand(c, 0).dtype) && WidestCasts() == nullptr) return "16-bit floats need avx2 and f16c";
  if (!IsNative(Operand(c, 0).dtype) && (!Operand(c, 0).contiguous || !Operand(c, 1).contiguous)) {
    return "goes through f32 copies here, which need contiguous operands";
  }
  return nullptr;
}

int Prepare(const opw_call* c, void** state, int64_t* workspace_bytes) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = Operand(c, 1);
  const opw_tensor& z = c->results[0];
  const MatmulShapes shapes(c);
  auto s = std::make_unique<State>();
  *workspace_bytes = 0;
  if (z.elements > 0 && shapes.k > 0) {
    try {
      const bool native = IsNative(x.dtype);
      if (!native) {
        s->widen = WidestCasts()->loops[x.dtype][OPW_F32];
        s->narrow = WidestCasts()->loops[OPW_F32][x.dtype];
        s->x_bytes = AlignedBytes(x.elements * sizeof(float));
        s->y_bytes = AlignedBytes(y.elements * sizeof(float));
        s->z_bytes = AlignedBytes(z.elements * sizeof(float));
      }
      s->type = native && x.dtype == OPW_BF16 ? memory::data_type::bf16 : memory::data_type::f32;
      s->threads = OneDnnThreads::Of(c);
      s->shapes = shapes;
      s->pieces.emplace(shapes, kOneDnnCallWork * s->threads);
      s->stream = dnnl::stream(OneDnnEngine());
      s->scratchpad_bytes = MakeProducts(*s, s->threads, &s->products);
    } catch (const dnnl::error&) {
      return OPW_FAILED;
    }
    *workspace_bytes = s->x_bytes + s->y_bytes + s->z_bytes + s->scratchpad_bytes;
  }
  *state = s.release();
  return OPW_OK;
}

void Release(void* state) { delete static_cast<State*>(state); }

// The primitives were made for another number of threads than the run has: make them for these, unless they need more scratch
// memory than `prepare` asked for.
void Adapt(State* s, int threads) {
  Products products;
  if (MakeProducts(*s, threads, &products) <= s->scratchpad_bytes) s->products = std::move(products);
  s->threads = threads;
}

void Execute(const opw_call* c, State* s) {
  const opw_tensor& x = Operand(c, 0);
  const opw_tensor& y = Operand(c, 1);
  const opw_tensor& z = c->results[0];
  if (s->threads != c->runtime->threads) Adapt(s, c->runtime->threads);
  char* const copies = static_cast<char*>(c->workspace);
  void *from_x = x.data, *from_y = y.data, *to_z = z.data;
  if (s->widen != nullptr) {
    from_x = copies, from_y = copies + s->x_bytes, to_z = copies + s->x_bytes + s->y_bytes;
    CastAll(c, s->widen, from_x, sizeof(float), x.data, 2, x.elements);
    CastAll(c, s->widen, from_y, sizeof(float), y.data, 2, y.elements);
  }
  const int64_t bytes = s->type == memory::data_type::bf16 ? 2 : 4;
  const auto at = [bytes](void* base, int64_t offset) { return static_cast<char*>(base) + offset * bytes; };
  s->pieces->ForEach(c, *s->shapes, [&](int64_t x_offset, int64_t y_offset, int64_t z_offset, int64_t positions) {
    Product& p = s->products[positions != s->pieces->length];
    p.x.set_data_handle(at(from_x, x_offset));
    p.y.set_data_handle(at(from_y, y_offset));
    p.z.set_data_handle(at(to_z, z_offset));
    p.scratchpad.set_data_handle(copies + s->x_bytes + s->y_bytes + s->z_bytes);
    p.primitive.execute(s->stream,
                        {{DNNL_ARG_SRC, p.x}, {DNNL_ARG_WEIGHTS, p.y}, {DNNL_ARG_DST, p.z}, {DNNL_ARG_SCRATCHPAD, p.scratchpad}});
  });
  if (s->narrow != nullptr) CastAll(c, s->narrow, z.data, 2, to_z, sizeof(float), z.elements);
}

int Run(const opw_call* c) {
  State* const s = static_cast<State*>(c->state);
  if (!s->shapes) {  // nothing to sum
    std::memset(c->results[0].data, 0, BytesOf(c->results[0]));
    return OPW_OK;
  }
  try {
    Execute(c, s);
  } catch (const dnnl::error&) {
    return OPW_FAILED;
  }
  return OPW_OK;
}

}  // namespace

void AddMatmulOneDnn(VariantTable& table, const Isa& isa) {
  const DTypeSet types = {DType::kF32, DType::kF16, DType::kBF16};
  AddProduction(table, isa, "matmul", "onednn", "", 0, types, {OPW_ABI_VERSION, 0, Supports, Prepare, Release, Run});
}

}  // namespace opwire::ops
