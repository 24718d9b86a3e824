// Values, calls and libraries of the tests of fused code.
#include "tests/fused/fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "ir/scalar/scalar.h"
#include "kernels/fused/source.h"

namespace opwire::fused {
namespace {

struct TestRuntime : opw_runtime {
  uint32_t raised = 0;
  int64_t left;
  explicit TestRuntime(int64_t ranges) : opw_runtime{}, left(ranges) {
    abi_version = OPW_ABI_VERSION;
    threads = 1;
    parallel_for = [](opw_runtime* r, int64_t n, int64_t grain, opw_body body, void* context) {
      for (int64_t i = 0; i < n; i += grain) {
        if (static_cast<TestRuntime*>(r)->left-- > 0) body(context, i, std::min(n, i + grain));
      }
    };
    raise = [](opw_runtime* r, uint32_t flags) { static_cast<TestRuntime*>(r)->raised |= flags; };
  }
};

template <typename T>
std::vector<T> Corners() {
  using C = ops::ComputeOf<T>;
  std::vector<T> out;
  if constexpr (std::is_floating_point_v<C>) {
    const C inf = std::numeric_limits<C>::infinity();
    for (const C v : {C(0),
                      C(-0.0),
                      C(1),
                      C(-1),
                      C(0.5),
                      C(2.5),
                      C(-3.5),
                      inf,
                      -inf,
                      std::numeric_limits<C>::quiet_NaN(),
                      std::numeric_limits<C>::min(),
                      std::numeric_limits<C>::denorm_min(),
                      std::numeric_limits<C>::max(),
                      std::numeric_limits<C>::lowest(),
                      C(255.5),
                      C(448),
                      C(464),
                      C(57344),
                      C(65519),
                      C(65520),
                      C(2147483648.0),
                      C(-2147483904.0),
                      C(9.3e18),
                      C(1.9e19),
                      C(3e9),
                      C(100.25)}) {
      out.push_back(ops::Convert<T>(v));
    }
  } else if constexpr (std::is_same_v<T, ops::Bool>) {
    out = {{0}, {1}, {2}, {255}};
  } else {
    for (const int v : {0, 1, 2, 3, 7, 63, 100}) out.push_back(static_cast<T>(v));
    out.push_back(static_cast<T>(-1));
    out.push_back(static_cast<T>(-2));
    out.push_back(std::numeric_limits<T>::min());
    out.push_back(std::numeric_limits<T>::max());
  }
  return out;
}

}  // namespace

TestTensor::TestTensor(DType t, std::vector<int64_t> extents)
    : type(t), shape(std::move(extents)), strides(shape.size()) {
  int64_t n = 1;
  for (size_t a = shape.size(); a-- > 0; n *= shape[a]) strides[a] = n;
  bytes.resize(n * DTypeBytes(t));
}
int64_t TestTensor::elements() const {
  int64_t n = 1;
  for (const int64_t e : shape) n *= e;
  return n;
}
opw_tensor TestTensor::abi() const {
  int64_t dense = 1;
  bool contiguous = true;
  for (size_t a = shape.size(); a-- > 0; dense *= shape[a])
    contiguous = contiguous && (shape[a] == 1 || strides[a] == dense);
  return {const_cast<uint8_t*>(bytes.data()),
          shape.data(),
          strides.data(),
          elements(),
          static_cast<uint8_t>(type),
          0,
          static_cast<uint8_t>(shape.size()),
          contiguous};
}

void FillHard(TestTensor& t, std::mt19937_64& random) {
  ops::VisitType(t.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    static const std::vector<T> corners = Corners<T>();
    for (size_t i = 0; i < t.bytes.size() / sizeof(T); ++i) {
      const uint64_t bits = random();
      T v;
      if (random() % 3 == 0) {
        v = corners[random() % corners.size()];
      } else if (random() % 2 == 0) {
        std::memcpy(&v, &bits, sizeof(T));
      } else {
        v = ops::Convert<T>(static_cast<double>(static_cast<int64_t>(bits % 2000) - 1000) / 64);
      }
      std::memcpy(t.bytes.data() + i * sizeof(T), &v, sizeof(T));
    }
  });
}

uint32_t CallOn(const opw_kernel& kernel, std::span<const opw_tensor> inputs,
                std::span<const opw_tensor> outputs, std::span<const opw_attr> arguments,
                int64_t ranges, bool takes_workspace) {
  std::vector<uint32_t> starts;
  for (uint32_t i = 0; i <= inputs.size(); ++i) starts.push_back(i);
  TestRuntime runtime(ranges);
  opw_call call{};
  call.operands = inputs.data();
  call.starts = starts.data();
  call.results = outputs.data();
  call.attrs = arguments.data();
  call.runtime = &runtime;
  call.context = kernel.context;
  if (kernel.supports != nullptr && kernel.supports(&call) != nullptr) {
    ADD_FAILURE() << kernel.supports(&call);
    return 0;
  }
  int64_t workspace = 0;
  if (kernel.prepare != nullptr) {
    EXPECT_EQ(kernel.prepare(&call, &call.state, &workspace), OPW_OK);
  }
  EXPECT_TRUE(workspace == 0 || takes_workspace) << workspace << " bytes";
  std::vector<std::max_align_t> memory(static_cast<size_t>(workspace) / sizeof(std::max_align_t) +
                                       64);
  call.workspace =
      reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t{63});
  call.workspace_bytes = workspace;
  EXPECT_EQ(kernel.run(&call), OPW_OK);
  if (kernel.release != nullptr) kernel.release(call.state);
  return runtime.raised;
}

uint32_t Call(const opw_kernel& kernel, const std::vector<TestTensor>& inputs,
              std::vector<TestTensor>& outputs, const std::vector<opw_attr>& arguments,
              int64_t ranges, bool takes_workspace) {
  std::vector<opw_tensor> in, out;
  for (const TestTensor& t : inputs) in.push_back(t.abi());
  for (const TestTensor& t : outputs) out.push_back(t.abi());
  return CallOn(kernel, in, out, arguments, ranges, takes_workspace);
}

opw_attr IntArgument(int64_t v) {
  opw_attr a{};
  a.kind = OPW_ATTR_INT;
  a.value.i = v;
  return a;
}
opw_attr FloatArgument(double v) {
  opw_attr a{};
  a.kind = OPW_ATTR_FLOAT;
  a.value.f = v;
  return a;
}

TestTensor Broadcast(DType type, std::vector<int64_t> shape, std::mt19937_64& random) {
  if (random() % 3 == 0)
    shape.erase(shape.begin(), shape.begin() + static_cast<int64_t>(random() % (shape.size() + 1)));
  for (int64_t& e : shape) e = random() % 3 == 0 ? 1 : e;
  TestTensor t(type, shape);
  return t;
}
TestTensor View(DType type, const std::vector<int64_t>& shape, std::mt19937_64& random) {
  TestTensor t(type, shape);
  if (random() % 2 == 0 && shape.size() > 1) {
    std::swap(t.strides[shape.size() - 1], t.strides[shape.size() - 2]);
    t.strides[shape.size() - 1] = shape[shape.size() - 2];
    t.strides[shape.size() - 2] = 1;
  } else {
    for (int64_t& s : t.strides) s *= 2;
    t.bytes.resize(t.bytes.size() * 2);
  }
  return t;
}

Builder::Builder()
    : toolchain_(jit::HostCompiler(
          {.seconds = 240})) {  // units of every primitive, on a machine under load
  if (sodium_init() < 0) std::abort();
  auto cache = jit::BuildCache::Open({.directory = KernelCache(folder_)});
  if (!cache.ok()) std::abort();
  cache_ = *std::move(cache);
}

CompiledPrograms::CompiledPrograms(const std::vector<ScalarProgram>& programs,
                                   const std::string& arch) {
  std::vector<const ScalarProgram*> pointers;
  for (const ScalarProgram& p : programs) pointers.push_back(&p);
  const auto open = [&]() -> StatusOr<std::shared_ptr<const jit::Library>> {
    OPWIRE_ASSIGN_OR_RETURN(
        const jit::CacheEntry entry,
        builder_.cache().Get(builder_.toolchain(),
                             {.name = "test", .text = HostSource(pointers), .arch = arch}));
    return jit::Library::Open(entry.object, static_cast<int>(programs.size()));
  };
  StatusOr<std::shared_ptr<const jit::Library>> library = open();
  EXPECT_TRUE(library.ok()) << MessageOf(library.status());
  if (library.ok()) library_ = *std::move(library);
}

std::string FirstDifference(const TestTensor& a, const TestTensor& b) {
  const size_t size = DTypeBytes(a.type);
  for (size_t i = 0; i < a.bytes.size() / size; ++i) {
    uint64_t x = 0, y = 0;
    std::memcpy(&x, a.bytes.data() + i * size, size);
    std::memcpy(&y, b.bytes.data() + i * size, size);
    if (x != y) return fmt::format("value {}: {:x} and {:x}", i, x, y);
  }
  return "";
}

}  // namespace opwire::fused
