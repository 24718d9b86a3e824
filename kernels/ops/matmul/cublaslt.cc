// Products by cuBLASLt, of floats whose matrices have a contiguous axis. The library is opened when
// the first product needs it. The few functions that are used are declared here.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "kernels/jit/vendor_library.h"
#include "kernels/ops/gpu/by_call.h"
#include "kernels/ops/gpu/libraries.h"
#include "kernels/ops/gpu/tune.h"
#include "kernels/ops/matmul/gpu.h"

namespace opwire::gpu::matmul {
namespace {

struct OpaqueHandle;
struct OpaqueDesc;
struct OpaqueLayout;
struct OpaquePreference;
using Handle = OpaqueHandle*;
using Desc = OpaqueDesc*;
using Layout = OpaqueLayout*;
using Preference = OpaquePreference*;

// cublasLtMatmulHeuristicResult_t
struct Algorithm {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

// Of cublasLt.h, cublas_api.h and library_types.h.
enum : int { kInvalidValue = 7, kNotSupported = 15 };
enum : int { kOpN = 0, kOpT = 1 };
enum : int {
  kTransA = 3,
  kTransB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kScaleA = 17,
  kScaleB = 18,
  kScaleModeA = 31,
  kScaleModeB = 32
};
enum : uint32_t { kNothing = 1, kBias = 4, kGeluTanh = 32 };  // epilogues
enum : int { kBatchCount = 5, kBatchStride = 6 };
enum : int { kMaxWorkspace = 1, kMinAlignmentA = 5 };
constexpr int32_t kScaleOfEach = 3;  // scales of each row or column; otherwise one scale for all
enum : int { kR32F = 0, kR64F = 1, kR16F = 2, kR16BF = 14, kR8E4M3 = 28, kR8E5M2 = 29 };
enum : int { kCompute32F = 68, kCompute64F = 70, kComputeTf32 = 77 };

struct Api {
  size_t (*version)();
  int (*create)(Handle*);
  int (*desc_create)(Desc*, int compute, int scale_type);
  int (*desc_destroy)(Desc);
  int (*desc_set)(Desc, int attribute, const void*, size_t);
  int (*layout_create)(Layout*, int type, uint64_t rows, uint64_t columns, int64_t ld);
  int (*layout_destroy)(Layout);
  int (*layout_set)(Layout, int attribute, const void*, size_t);
  int (*preference_create)(Preference*);
  int (*preference_destroy)(Preference);
  int (*preference_set)(Preference, int attribute, const void*, size_t);
  int (*heuristic)(Handle, Desc, Layout, Layout, Layout, Layout, Preference, int most, Algorithm*,
                   int* count);
  int (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout,
                const void* beta, const void* c, Layout, void* d, Layout, const uint64_t* algorithm,
                void* workspace, size_t workspace_bytes, Stream);
  const char* (*status)(int);
};

class Library {
 public:
  // The only instance of this process.
  static const StatusOr<Library>& Get() {
    static const StatusOr<Library> library = Open();
    return library;
  }
  Status Check(int code, std::string_view what) const {
    return code == 0 ? absl::OkStatus()
                     : Internal("cublaslt: {}: {}", what,
                                api.status ? api.status(code) : std::to_string(code));
  }

  Api api = {};

 private:
  static StatusOr<Library> Open() {
    static const jit::VendorLibrary kPlaces = {
        "OPWIRE_CUBLASLT",
        {"CUDA_HOME", "CUDA_PATH"},
        {"/usr/local/cuda"},
        {"lib64", "lib", "nvidia/cu13/lib", "nvidia/cublas/lib"},
        {"libcublasLt.so.13", "libcublasLt.so.12"}};
    std::string reasons;
    for (const std::string& candidate : jit::CandidatesFor(kPlaces)) {
      void* const handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!handle) {
        const char* why = dlerror();
        reasons += fmt::format("; {}", why ? why : candidate);
        continue;
      }
      Library library;
      std::string missing;
      const auto find = [&](auto& function, const char* name) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
        if (!function && missing.empty()) missing = name;
      };
      Api& api = library.api;
      find(api.version, "cublasLtGetVersion");
      find(api.create, "cublasLtCreate");
      find(api.desc_create, "cublasLtMatmulDescCreate");
      find(api.desc_destroy, "cublasLtMatmulDescDestroy");
      find(api.desc_set, "cublasLtMatmulDescSetAttribute");
      find(api.layout_create, "cublasLtMatrixLayoutCreate");
      find(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
      find(api.layout_set, "cublasLtMatrixLayoutSetAttribute");
      find(api.preference_create, "cublasLtMatmulPreferenceCreate");
      find(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
      find(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
      find(api.heuristic, "cublasLtMatmulAlgoGetHeuristic");
      find(api.matmul, "cublasLtMatmul");
      find(api.status, "cublasLtGetStatusString");
      if (missing.empty()) return library;
      reasons += fmt::format("; {}: has no {}", candidate, missing);
    }
    return NotFound("there is no cuBLASLt (OPWIRE_CUBLASLT may name its file or folder){}",
                    reasons);
  }
};

// The library's handle for a device: made once, in its context.
StatusOr<Handle> HandleOf(const Library& library, const GpuDevice& device) {
  static std::mutex mutex;
  static std::unordered_map<int, Handle> handles;
  std::lock_guard lock(mutex);
  const auto [it, added] = handles.try_emplace(device.info().index, nullptr);
  if (!it->second)
    OPWIRE_RETURN_IF_ERROR(library.Check(library.api.create(&it->second), "starting"));
  return it->second;
}

constexpr int64_t kWorkspace = int64_t{32} << 20;  // most bytes that its kernels for Hopper may use
constexpr int64_t kMostCalls = 64;  // of one product, if the batch has no equal strides
constexpr uint32_t kAlignment = 16;

// 0 and 1 in the form of the library's factors, for sums and for the previous result.
const void* Factor(bool f64, bool one) {
  static constexpr double kWide[] = {0, 1};
  static constexpr float kNarrow[] = {0, 1};
  return f64 ? static_cast<const void*>(&kWide[one]) : &kNarrow[one];
}

// One product's objects.
struct Objects {
  const Library& library;
  Handle handle = nullptr;
  Desc desc = nullptr;
  Layout a = nullptr, b = nullptr, d = nullptr;
  Algorithm algorithm{};
  bool f64 = false;

  explicit Objects(const Library& l) : library(l) {}
  Objects(const Objects&) = delete;
  ~Objects() {
    if (desc) (void)library.api.desc_destroy(desc);
    for (const Layout l : {a, b, d}) {
      if (l) (void)library.api.layout_destroy(l);
    }
  }
};

// A matrix of `rows` x `columns` in the library's column-major form: unchanged (its columns are
// contiguous) or transposed.
struct Matrix {
  int64_t rows, columns, ld;
  int op;
};
std::optional<Matrix> MatrixOf(int64_t rows, int64_t columns, int64_t row_stride,
                               int64_t column_stride) {
  // The stride of an extent of 1 does not matter.
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1))
    return Matrix{rows, columns, std::max(columns == 1 ? rows : column_stride, rows), kOpN};
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1)) {
    return Matrix{columns, rows, std::max(rows == 1 ? columns : row_stride, columns), kOpT};
  }
  return std::nullopt;
}

// z = x * y by rows is z' = y' * x' by columns.
std::optional<Matrix> MatrixA(const ops::matmul::MatmulShapes& s) {
  return MatrixOf(s.n, s.k, s.y_n, s.y_k);
}
std::optional<Matrix> MatrixB(const ops::matmul::MatmulShapes& s) {
  return MatrixOf(s.k, s.m, s.x_k, s.x_m);
}

Status Describe(Objects& o, const Product& p, uint32_t epilogue) {
  const ops::matmul::MatmulShapes& s = p.shapes;
  const Api& api = o.library.api;
  const auto name = [](DType type) {
    switch (type) {
      case DType::kF64:
        return kR64F;
      case DType::kF32:
        return kR32F;
      case DType::kF16:
        return kR16F;
      case DType::kF8E4M3:
        return kR8E4M3;
      case DType::kF8E5M2:
        return kR8E5M2;
      default:
        return kR16BF;
    }
  };
  o.f64 = p.type == DType::kF64;
  const Matrix a = *MatrixA(s), b = *MatrixB(s);
  OPWIRE_RETURN_IF_ERROR(o.library.Check(api.desc_create(&o.desc,
                                                         o.f64    ? kCompute64F
                                                         : p.tf32 ? kComputeTf32
                                                                  : kCompute32F,
                                                         o.f64 ? kR64F : kR32F),
                                         "describing"));
  OPWIRE_RETURN_IF_ERROR(
      o.library.Check(api.desc_set(o.desc, kTransA, &a.op, sizeof a.op), "describing"));
  OPWIRE_RETURN_IF_ERROR(
      o.library.Check(api.desc_set(o.desc, kTransB, &b.op, sizeof b.op), "describing"));
  OPWIRE_RETURN_IF_ERROR(
      o.library.Check(api.desc_set(o.desc, kEpilogue, &epilogue, sizeof epilogue), "describing"));
  const auto layout = [&](Layout& l, DType type, int64_t rows, int64_t columns, int64_t ld,
                          int64_t stride) -> Status {
    OPWIRE_RETURN_IF_ERROR(
        o.library.Check(api.layout_create(&l, name(type), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), ld),
                        "a matrix"));
    if (s.batch_rank == 0) return absl::OkStatus();
    const int32_t count = static_cast<int32_t>(s.batch[s.batch_rank - 1]);
    OPWIRE_RETURN_IF_ERROR(
        o.library.Check(api.layout_set(l, kBatchCount, &count, sizeof count), "a batch"));
    return o.library.Check(api.layout_set(l, kBatchStride, &stride, sizeof stride), "a batch");
  };
  const int last = s.batch_rank - 1;
  if (p.scaled && !p.scaled->one_x) {
    for (const int mode : {kScaleModeA, kScaleModeB})
      OPWIRE_RETURN_IF_ERROR(o.library.Check(
          api.desc_set(o.desc, mode, &kScaleOfEach, sizeof kScaleOfEach), "scales"));
  }
  OPWIRE_RETURN_IF_ERROR(layout(o.a, p.scaled ? p.scaled->y_type : p.type, a.rows, a.columns, a.ld,
                                last < 0 ? 0 : s.y_batch[last]));
  OPWIRE_RETURN_IF_ERROR(
      layout(o.b, p.type, b.rows, b.columns, b.ld, last < 0 ? 0 : s.x_batch[last]));
  return layout(o.d, p.result, s.n, s.m, std::max(s.m == 1 ? s.n : s.z_m, s.n),
                last < 0 ? 0 : s.z_batch[last]);
}

// The size of a matrix in bytes, and the text that identifies it.
struct Extent {
  int64_t bytes;
  std::string text;
};
Extent ExtentOf(DType type, int64_t rows, int64_t columns, int64_t ld, int64_t count,
                int64_t stride) {
  return {(ld * (columns - 1) + rows + stride * (count - 1)) * DTypeBytes(type),
          fmt::format("{}[{}x{}/{}{}]", DTypeName(type), rows, columns, ld,
                      count > 1 ? fmt::format(",{}/{}", count, stride) : "")};
}

// Of a, b and d, including the batch's last axis.
std::array<Extent, 3> ExtentsOf(const Product& p) {
  const ops::matmul::MatmulShapes& s = p.shapes;
  const Matrix a = *MatrixA(s), b = *MatrixB(s);
  const int last = s.batch_rank - 1;
  const int64_t count = last < 0 ? 1 : s.batch[last];
  const auto stride = [last](const auto& strides) { return last < 0 ? 0 : strides[last]; };
  return {ExtentOf(p.scaled ? p.scaled->y_type : p.type, a.rows, a.columns, a.ld, count,
                   stride(s.y_batch)),
          ExtentOf(p.type, b.rows, b.columns, b.ld, count, stride(s.x_batch)),
          ExtentOf(p.result, s.n, s.m, std::max(s.m == 1 ? s.n : s.z_m, s.n), count,
                   stride(s.z_batch))};
}

// The common part of the keys of equal objects, without extents.
std::string KindOf(const Library& library, const Product& p, uint32_t epilogue) {
  return fmt::format("cublaslt {} {}{} epilogue {}{}", library.api.version(), MatrixA(p.shapes)->op,
                     MatrixB(p.shapes)->op, epilogue, p.tf32 ? " tf32" : "");
}

// The fastest of the algorithms that the library proposes, if a product takes long enough to
// measure.
int Fastest(const Call& call, const Objects& o, const Product& p, uint32_t epilogue,
            std::span<const Algorithm> algorithms) {
  constexpr double kLeast = 1e9;               // operations
  constexpr int64_t kMost = int64_t{4} << 30;  // bytes
  const ops::matmul::MatmulShapes& s = p.shapes;
  if (p.scaled || s.batch_rank > 1 ||
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) *
              static_cast<double>(s.Batches()) <
          kLeast)
    return 0;
  const std::array<Extent, 3> extents = ExtentsOf(p);
  std::vector<Scratch> scratch;
  std::string key = KindOf(o.library, p, epilogue);
  int64_t total = 0;
  for (const Extent& e : extents) {
    if (e.bytes < 0 || e.bytes > kMost) return 0;
    scratch.push_back({&e == &extents[2] ? p.result : p.type, e.bytes});
    key += " " + e.text;
    total += e.bytes;
  }
  if (total > kMost) return 0;
  size_t workspace = 1;
  for (const Algorithm& algorithm : algorithms)
    workspace = std::max(workspace, algorithm.workspace);
  scratch.push_back({DType::kU8, static_cast<int64_t>(workspace)});
  scratch.push_back({p.type, s.n * DTypeBytes(p.type)});  // a bias
  return FastestOf(
      call.code, key, static_cast<int>(algorithms.size()), scratch,
      [&](int way, std::span<char* const> memory) -> Status {
        const void* const bias = memory[4];
        if (p.bias && epilogue != kNothing)
          OPWIRE_RETURN_IF_ERROR(o.library.Check(
              o.library.api.desc_set(o.desc, kBiasPointer, &bias, sizeof bias), "a bias"));
        const Algorithm& algorithm = algorithms[static_cast<size_t>(way)];
        return o.library.Check(
            o.library.api.matmul(o.handle, o.desc, Factor(o.f64, true), memory[0], o.a, memory[1],
                                 o.b, Factor(o.f64, false), memory[2], o.d, memory[2], o.d,
                                 algorithm.algorithm, memory[3], algorithm.workspace,
                                 call.code.device().stream(0)),
            "a product");
      });
}

constexpr int kMostAlgorithms = 8;
using Algorithms = std::array<Algorithm, kMostAlgorithms>;

// Gets up to `most` algorithms, the most promising first. Returns their number.
StatusOr<int> Propose(const Objects& o, int most, Algorithms& algorithms) {
  const Api& api = o.library.api;
  Preference preference = nullptr;
  OPWIRE_RETURN_IF_ERROR(o.library.Check(api.preference_create(&preference), "choosing"));
  const std::unique_ptr<OpaquePreference, int (*)(Preference)> owner(preference,
                                                                     api.preference_destroy);
  const uint64_t workspace = kWorkspace;
  OPWIRE_RETURN_IF_ERROR(o.library.Check(
      api.preference_set(preference, kMaxWorkspace, &workspace, sizeof workspace), "choosing"));
  for (int i = 0; i < 4; ++i) {
    OPWIRE_RETURN_IF_ERROR(o.library.Check(
        api.preference_set(preference, kMinAlignmentA + i, &kAlignment, sizeof kAlignment),
        "choosing"));
  }
  int count = 0;
  const int status = api.heuristic(o.handle, o.desc, o.a, o.b, o.d, o.d, preference, most,
                                   algorithms.data(), &count);
  if (status == kNotSupported || (status == 0 && count == 0))
    return Unimplemented("cublaslt: it has no kernel for this product");
  OPWIRE_RETURN_IF_ERROR(o.library.Check(status, "choosing"));
  OPWIRE_RETURN_IF_ERROR(o.library.Check(algorithms[0].state, "choosing"));
  return count;
}

Status Choose(const Call& call, const Product& p, uint32_t epilogue, Objects& o) {
  Algorithms algorithms = {};
  OPWIRE_ASSIGN_OR_RETURN(const int count,
                          Propose(o, call.code.choices() ? kMostAlgorithms : 1, algorithms));
  const auto bad = std::ranges::find_if(algorithms.begin(), algorithms.begin() + count,
                                        [](const Algorithm& a) { return a.state != 0; });
  o.algorithm =
      algorithms[static_cast<size_t>(Fastest(call, o, p, epilogue, {algorithms.begin(), bad}))];
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Objects>> MakeObjects(const Call& call, const Product& p,
                                               uint32_t epilogue) {
  auto o = std::make_unique<Objects>(*Library::Get());
  OPWIRE_RETURN_IF_ERROR(call.code.device().Bind());
  OPWIRE_ASSIGN_OR_RETURN(o->handle, HandleOf(o->library, call.code.device()));
  OPWIRE_RETURN_IF_ERROR(Describe(*o, p, epilogue));
  if (p.bias &&
      epilogue != kNothing) {  // an address with the promised alignment, until a call sets its own
    const uintptr_t any = 256;
    OPWIRE_RETURN_IF_ERROR(o->library.Check(
        o->library.api.desc_set(o->desc, kBiasPointer, &any, sizeof any), "a bias"));
  }
  if (p.scaled) {
    const uintptr_t any = 256;
    for (const int scale : {kScaleA, kScaleB})
      OPWIRE_RETURN_IF_ERROR(
          o->library.Check(o->library.api.desc_set(o->desc, scale, &any, sizeof any), "a scale"));
  }
  OPWIRE_RETURN_IF_ERROR(Choose(call, p, epilogue, *o));
  return o;
}

// Objects are shared: the library takes up to a millisecond to choose, and models have many equal
// products.
StatusOr<std::shared_ptr<const Objects>> ObjectsFor(const Call& call, const Product& p,
                                                    uint32_t epilogue) {
  static ByCall<Objects> all;
  OPWIRE_RETURN_IF_ERROR(Library::Get().status());
  std::string key = fmt::format("{} on {} by {}", KindOf(*Library::Get(), p, epilogue),
                                call.code.device().info().index, fmt::ptr(call.code.choices()));
  for (const Extent& e : ExtentsOf(p)) key += " " + e.text;
  if (p.scaled) key += p.scaled->one_x ? " scaled" : " scaled by rows and columns";
  return all.Get(key, [&] { return MakeObjects(call, p, epilogue); });
}

// The epilogue of the library for these sums. nullopt if our kernel is better. The library's gelu
// is that of tanh, by an approximation that is good enough for bf16 results. It is wrong by up to
// 14 % if rows are not whole vectors (in version 13.0, on sm_90). Its relu turns NaN into 0. It
// ignores epilogues for f64.
std::optional<uint32_t> EpilogueOf(const Product& p) {
  const bool gelu = p.activation == ops::matmul::Activation::kGeluTanh && p.type == DType::kBF16 &&
                    ((p.shapes.n | p.shapes.k) & 7) == 0;
  if (!p.bias && p.activation == ops::matmul::Activation::kNone) return kNothing;
  if (p.type == DType::kF64 || (p.bias && p.bias_n != 1) ||
      (p.activation != ops::matmul::Activation::kNone && !gelu))
    return std::nullopt;
  return (p.bias ? kBias : 0u) | (gelu ? kGeluTanh : 0u);
}

// Runs the product with the library.
void Multiply(const Call& call, const Product& p, const std::shared_ptr<const Objects>& objects,
              Plan& plan) {
  const ops::matmul::MatmulShapes& s = p.shapes;
  const int64_t workspace_at =
      plan.ShareWorkspace(static_cast<int64_t>(objects->algorithm.workspace));
  // If the batch has several axes, each position of all except the last is a call.
  std::vector<std::array<int64_t, 3>> offsets = {{0, 0, 0}};
  for (int a = 0; a + 1 < s.batch_rank; ++a) {
    std::vector<std::array<int64_t, 3>> next;
    for (const auto& o : offsets) {
      for (int64_t i = 0; i < s.batch[a]; ++i)
        next.push_back({o[0] + i * s.x_batch[a], o[1] + i * s.y_batch[a], o[2] + i * s.z_batch[a]});
    }
    offsets = std::move(next);
  }
  auto tiles = std::make_shared<Fallback>(
      call, [p](const Call& c, Plan& own) { return PlanTiles(c, p, own); });
  plan.Do([objects, tiles, offsets, workspace_at, p](const opw_call* c, Stream stream) -> Status {
    char *const x = static_cast<char*>(Plan::AddressOf(p.x, c)),
                *const y = static_cast<char*>(Plan::AddressOf(p.y, c)),
                *const z = static_cast<char*>(Plan::AddressOf(p.z, c));
    void* const bias = p.bias ? Plan::AddressOf(*p.bias, c) : nullptr;
    void* const scales[] = {p.scaled ? Plan::AddressOf(p.scaled->y, c) : nullptr,
                            p.scaled ? Plan::AddressOf(p.scaled->x, c) : nullptr};  // of a and b
    // The chosen algorithm may need aligned addresses: the executor's are aligned, views may not
    // be.
    for (const void* t : {static_cast<void*>(x), static_cast<void*>(y), static_cast<void*>(z), bias,
                          p.scaled && !p.scaled->one_x ? scales[0] : nullptr,
                          p.scaled && !p.scaled->one_x ? scales[1] : nullptr}) {
      if (reinterpret_cast<uintptr_t>(t) % kAlignment != 0) return tiles->Run(c);
    }
    const Objects& o = *objects;
    if (bias)
      OPWIRE_RETURN_IF_ERROR(o.library.Check(
          o.library.api.desc_set(o.desc, kBiasPointer, &bias, sizeof bias), "a bias"));
    if (p.scaled) {
      OPWIRE_RETURN_IF_ERROR(o.library.Check(
          o.library.api.desc_set(o.desc, kScaleA, &scales[0], sizeof(void*)), "a scale"));
      OPWIRE_RETURN_IF_ERROR(o.library.Check(
          o.library.api.desc_set(o.desc, kScaleB, &scales[1], sizeof(void*)), "a scale"));
    }
    const int64_t bytes = DTypeBytes(p.type), result_bytes = DTypeBytes(p.result);
    char* const workspace = Plan::WorkspaceOf(c, workspace_at);
    for (const auto& at : offsets) {
      void* const d = z + at[2] * result_bytes;
      const int status =
          o.library.api.matmul(o.handle, o.desc, Factor(o.f64, true), y + at[1] * bytes, o.a,
                               x + at[0] * bytes, o.b, Factor(o.f64, p.adds), d, o.d, d, o.d,
                               o.algorithm.algorithm, workspace, o.algorithm.workspace, stream);
      // The library checks some conditions only now.
      if (status == kInvalidValue || status == kNotSupported) return tiles->Run(c);
      OPWIRE_RETURN_IF_ERROR(o.library.Check(status, "a product"));
    }
    return absl::OkStatus();
  });
}

// Asks the library for an algorithm for bf16: with the first it loads the parts that all share.
Status TryLibrary(const GpuDevice& device) {
  OPWIRE_RETURN_IF_ERROR(Library::Get().status());
  OPWIRE_RETURN_IF_ERROR(device.Bind());
  Objects o(*Library::Get());
  OPWIRE_ASSIGN_OR_RETURN(o.handle, HandleOf(o.library, device));
  constexpr int64_t kExtent = 256;
  const Product p{.shapes = {kExtent, kExtent, kExtent, kExtent, 1, 1, kExtent, kExtent},
                  .type = DType::kBF16,
                  .result = DType::kBF16};
  OPWIRE_RETURN_IF_ERROR(Describe(o, p, kNothing));
  Algorithms algorithms = {};
  return Propose(o, 1, algorithms).status();
}

}  // namespace

void StartCublasLt(Code& code) { (void)TryLibrary(code.device()); }

const char* WithoutCublasLt(bool open) {
  if (!open) return nullptr;
  static const std::string why = Library::Get().ok() ? "" : MessageOf(Library::Get().status());
  return why.empty() ? nullptr : why.c_str();
}

const char* SupportsCublasLt(const Product& p) {
  const ops::matmul::MatmulShapes& s = p.shapes;
  if (!MatrixA(s) || !MatrixB(s)) return "needs rows or columns to be contiguous";
  if (s.k == 0) return "nothing to sum";
  if (p.scaled) {
    if (s.batch_rank > 0) return "a batch of 8-bit floats";
    if (s.x_k != 1 || s.y_k != 1 || ((s.x_m | s.y_n | s.n | s.k) & 15) != 0)
      return "8-bit floats whose terms are not contiguous, or not in sixteens";
    if (p.type == DType::kF8E5M2 && p.scaled->y_type == DType::kF8E5M2) return "f8e5m2 by f8e5m2";
    if (p.scaled->one_x != p.scaled->one_y)
      return "scales of one operand for all, of the other for each";
    if (!p.scaled->one_x && (p.result != DType::kBF16 || (p.scaled->m != 1 && s.m > 1) ||
                             (p.scaled->n != 1 && s.n > 1)))
      return "scales of each row and column, except for contiguous ones of bf16";
  }
  int64_t calls = 1;
  for (int a = 0; a + 1 < s.batch_rank; ++a) calls *= s.batch[a];
  if (calls > kMostCalls) return "a batch of more axes than the library takes";
  return WithoutCublasLt(/*open=*/true);
}

bool CublasLtFinishes(const Product& p) { return EpilogueOf(p).has_value(); }

Status PlanCublasLt(const Call& call, const Product& p, Plan& plan) {
  if (const std::optional<uint32_t> epilogue = EpilogueOf(p)) {
    const StatusOr<std::shared_ptr<const Objects>> objects = ObjectsFor(call, p, *epilogue);
    if (p.scaled && absl::IsUnimplemented(objects.status()))
      return PlanTiles(call, p, plan);  // supported types and scales differ by version
    if (*epilogue == kNothing) OPWIRE_RETURN_IF_ERROR(objects.status());
    if (objects.ok()) {
      Multiply(call, p, *objects, plan);
      return absl::OkStatus();
    }
  }
  Product sums = p, rest = p;
  sums.activation = ops::matmul::Activation::kNone;
  if (p.activation == ops::matmul::Activation::kRelu &&
      EpilogueOf(sums)) {  // relu does not round, so sums may be rounded before it
    rest.bias.reset();
    OPWIRE_RETURN_IF_ERROR(PlanCublasLt(call, sums, plan));
    return PlanFinish(call, rest, sums, plan);
  }
  sums.bias.reset();
  if (p.type == DType::kF16 || p.type == DType::kBF16) {
    sums.result = DType::kF32;
    sums.z = Workspace(plan.TakeWorkspace(p.shapes.m * p.shapes.n * p.shapes.Batches() * 4));
  }
  OPWIRE_ASSIGN_OR_RETURN(const std::shared_ptr<const Objects> objects,
                          ObjectsFor(call, sums, kNothing));
  Multiply(call, sums, objects, plan);
  return PlanFinish(call, rest, sums, plan);
}

}  // namespace opwire::gpu::matmul
