// The ops on GGUF's blocks of dense tensors. x is rounded once, then ranges of panels of weights
// meet its rows.
#include "kernels/ops/blocks/blocks.h"
#include "kernels/ops/blocks/cpu_loops.h"
#include "kernels/ops/families.h"
#include "kernels/ops/row_ranges.h"

namespace opwire::ops::blocks {
namespace {

static_assert(kQ4_0 == static_cast<int>(Encoding::kQ4_0) &&
              kQ4_1 == static_cast<int>(Encoding::kQ4_1) &&
              kQ8_0 == static_cast<int>(Encoding::kQ8_0) &&
              kQ6_K == static_cast<int>(Encoding::kQ6_K));

constexpr int64_t kFewest = 12;  // rows of x that are few no more: a range of weights is as large
                                 // as its bytes say, or as the work
constexpr int64_t kRangeBytes =
    16 * 1024;  // weights of a range that few rows meet: about a microsecond
constexpr int64_t kRangeWork = 1 << 19;  // multiplications of a range that many rows meet
constexpr DTypeSet kTypes = {DType::kF32, DType::kF16, DType::kBF16};

struct Sizes {
  EncodedRows w;
  int64_t m, n, k;
  RoundedRows x;

  explicit Sizes(const opw_call* c)
      : w(Operand(c, 1)),
        m(w.k == 0 ? 0 : Operand(c, 0).elements / w.k),
        n(Operand(c, 1).shape[0]),
        k(w.k),
        x{static_cast<char*>(c->workspace), (k + kPadding - 1) / kPadding * kPadding} {}
  int64_t WorkspaceBytes() const {
    return (m + kTileRows - 1) / kTileRows * kTileRows * RoundedRows::BytesOf(x.padded);
  }
};

const char* SupportsLinear(const opw_call* c) {
  if (Operand(c, 1).shape[1] == 0) return "needs products of one element at least";
  return nullptr;
}

int PrepareLinear(const opw_call* c, void**, int64_t* workspace_bytes) {
  *workspace_bytes = Sizes(c).WorkspaceBytes();
  return OPW_OK;
}

template <const BlocksLoops& (*kLoops)()>
int Linear(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &weight = Operand(c, 1), &bias = Operand(c, 2),
                   &y = c->results[0];
  const Sizes s(c);
  if (s.m == 0 || s.n == 0) return OPW_OK;
  const BlocksLoops& loops = kLoops();
  const RoundLoop round = loops.round[weight.encoding][x.dtype];
  ParallelFor(c, s.m, RowsPerRange(s.k), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) round(s.x, r, At(x, r * s.k), s.k);
  });
  const SumsLoop store = loops.sums[x.dtype];
  const int64_t panels = (s.n + kPanel - 1) / kPanel,
                panel_bytes = PackedFormatOf(weight.encoding).PanelBytes(s.k);
  const auto multiply = [&](int64_t panel, int64_t first, int64_t rows, float* sums) {
    const int64_t j = panel * kPanel, n = std::min(kPanel, s.n - j);
    const uint8_t* const from = weight.packed != 0
                                    ? static_cast<const uint8_t*>(weight.data) + panel * panel_bytes
                                    : s.w.Row(j);
    loops.multiply[weight.encoding]({from, s.w.bytes, s.k, weight.packed != 0}, n, s.x, first, rows,
                                    sums);
    for (int64_t r = 0; r < rows; ++r)
      store(At(y, (first + r) * s.n + j), sums + r * kPanel, Absent(bias) ? nullptr : At(bias, j),
            n);
  };
  if (s.m < kFewest) {
    // One range per thread: the weights at the beginning of a range have not been prefetched.
    const int64_t threads = c->runtime->threads;
    ParallelFor(c, panels,
                std::max({int64_t{1}, kRangeBytes / (kPanel * s.w.bytes),
                          (panels + threads - 1) / threads}),
                [&](int64_t begin, int64_t end) {
                  alignas(64) float sums[(kFewest + kTileRows) * kPanel];
                  for (int64_t panel = begin; panel < end; ++panel) multiply(panel, 0, s.m, sums);
                });
    return OPW_OK;
  }
  const int64_t parts = (s.m + kPanelRows - 1) / kPanelRows;
  ParallelFor(c, panels * parts,
              std::max<int64_t>(1, kRangeWork / (kPanel * s.k * std::min(s.m, kPanelRows))),
              [&](int64_t begin, int64_t end) {
                alignas(64) float sums[kPanelRows * kPanel];
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t first = i % parts * kPanelRows;
                  multiply(i / parts, first, std::min(kPanelRows, s.m - first), sums);
                }
              });
  return OPW_OK;
}

template <const BlocksLoops& (*kLoops)()>
int Embedding(const opw_call* c) {
  const opw_tensor &weight = Operand(c, 0), &indices = Operand(c, 1), &y = c->results[0];
  const EncodedRows w(weight);
  if (y.elements == 0) return OPW_OK;
  const FloatsLoop loop = kLoops().floats[weight.encoding][y.dtype];
  ParallelFor(c, indices.elements, RowsPerRange(w.k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = WrapIndex(LoadIndex(indices, i), weight.shape[0]);
      if (row >= 0) {
        loop(At(y, i * w.k), w.Row(row), w.k);
      } else {
        c->runtime->out_of_range(c->runtime, 1, i);
        std::memset(At(y, i * w.k), 0, static_cast<size_t>(w.k * DTypeBytes(TypeOf(y))));
      }
    }
  });
  return OPW_OK;
}

template <const BlocksLoops& (*kLoops)()>
int Dequantize(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &y = c->results[0];
  const BlockLayout layout = LayoutOf(x);
  const FloatsLoop loop = kLoops().floats[x.encoding][y.dtype];
  ParallelFor(c, x.elements / layout.elements, RowsPerRange(layout.elements),
              [&](int64_t begin, int64_t end) {
                loop(At(y, begin * layout.elements),
                     static_cast<const uint8_t*>(x.data) + begin * layout.bytes,
                     (end - begin) * layout.elements);
              });
  return OPW_OK;
}

Packing::Size PackedSize(const opw_tensor& t) {
  if (t.elements == 0) return {};
  return {(t.shape[0] + kPanel - 1) / kPanel, PackedFormatOf(t.encoding).PanelBytes(t.shape[1])};
}
template <const BlocksLoops& (*kLoops)()>
void PackPanels(const opw_tensor& from, int64_t begin, int64_t end, void* to) {
  const EncodedRows w(from);
  const int64_t panel_bytes = PackedSize(from).bytes;
  for (int64_t panel = begin; panel < end; ++panel) {
    const int64_t j = panel * kPanel;
    kLoops().pack[from.encoding]({w.Row(j), w.bytes, w.k, false},
                                 std::min(kPanel, from.shape[0] - j), 0, w.k / w.layout.elements,
                                 static_cast<uint8_t*>(to) + panel * panel_bytes);
  }
}
template <const BlocksLoops& (*kLoops)()>
constexpr Packing kPanels = {"panels of 16 rows", 1, PackedSize, PackPanels<kLoops>};

template <const BlocksLoops& (*kLoops)()>
void Add(VariantTable& table, const Isa& isa, const char* set, int priority) {
  constexpr uint32_t kFlags = OPW_DETERMINISTIC | OPW_CONTIGUOUS;
  AddProduction(table, isa, "quantized_linear", set, set, priority, kTypes,
                {OPW_ABI_VERSION, kFlags, SupportsLinear, PrepareLinear, nullptr, Linear<kLoops>},
                "", &kPanels<kLoops>);
  AddProduction(table, isa, "quantized_embedding", set, set, priority, kIndex,
                {OPW_ABI_VERSION, kFlags, nullptr, nullptr, nullptr, Embedding<kLoops>});
  AddProduction(table, isa, "dequantize_blocks", set, set, priority, kFloats,
                {OPW_ABI_VERSION, kFlags, nullptr, nullptr, nullptr, Dequantize<kLoops>});
}

}  // namespace

void AddBlocksFast(VariantTable& table, const Isa& isa) {
  Add<BlocksLoopsAvx512Vnni>(table, isa, "avx512vnni", 3);
  Add<BlocksLoopsAvx512>(table, isa, "avx512", 2);
  Add<BlocksLoopsAvx2>(table, isa, "avx2", 1);
}

}  // namespace opwire::ops::blocks
