// Costs of the GPU's own mechanisms, without an executor: the mechanisms that plans use, and the
// ceilings for kernels.
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o primitives primitives.cu &&
//       ./primitives [out.json]
//
// Each figure is the median of rounds with their spread. Dependent steps are differences between
// long and short chains, so that fixed costs cancel. Uses only CUDA's runtime.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#define CHECK(call)                                                      \
  do {                                                                   \
    const cudaError_t error_ = (call);                                   \
    if (error_ != cudaSuccess) {                                         \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(error_));                          \
      std::exit(1);                                                      \
    }                                                                    \
  } while (0)

namespace {

constexpr int kRounds = 11;

__global__ void Add(float* x) { x[threadIdx.x] += 1; }

// One block per step, which begins as soon as the previous step allows it.
__global__ void AddDependent(float* x) {
  cudaGridDependencySynchronize();
  x[threadIdx.x] += 1;
  cudaTriggerProgrammaticLaunchCompletion();
}

__global__ void Barriers(int n, float* x) {
  auto grid = cooperative_groups::this_grid();
  for (int i = 0; i < n; ++i) grid.sync();
  if (grid.thread_rank() == 0) x[0] += 1;
}

__global__ void CountDown(int* left, cudaGraphConditionalHandle handle) {
  if (--*left <= 0) cudaGraphSetConditional(handle, 0);
}
__global__ void SetTo(int* left, int n) { *left = n; }

__global__ void CopyAll(const uint4* __restrict__ from, uint4* __restrict__ to, size_t n) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < n; i += 4 * stride) {
    const uint4 a = __ldcs(from + i), b = __ldcs(from + i + stride),
                c = __ldcs(from + i + 2 * stride), d = __ldcs(from + i + 3 * stride);
    __stcs(to + i, a);
    __stcs(to + i + stride, b);
    __stcs(to + i + 2 * stride, c);
    __stcs(to + i + 3 * stride, d);
  }
  for (; i < n; i += stride) to[i] = from[i];
}

__global__ void ReadAll(const uint4* __restrict__ from, unsigned* out, size_t n) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  for (; i + 3 * stride < n; i += 4 * stride) {
    const uint4 a = __ldcs(from + i), b = __ldcs(from + i + stride),
                c = __ldcs(from + i + 2 * stride), d = __ldcs(from + i + 3 * stride);
    sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^
           d.w;
  }
  for (; i < n; i += stride) sum += from[i].x;
  if (sum == 0x12345678u) *out = sum;
}

struct Figure {
  std::string name, unit;
  double value, spread;
};
std::vector<Figure> figures;

void Report(const char* name, const char* unit, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double median = values[values.size() / 2];
  figures.push_back({name, unit, median, (values.back() - values.front()) / median});
  std::printf("%-34s %10.3f %-6s spread %3.0f %%\n", name, median, unit,
              100 * figures.back().spread);
}

double HostMicros(const std::function<void()>& f) {
  const auto begun = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun)
      .count();
}

struct Gpu {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  int multiprocessors;

  Gpu() {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  }
  // Returns the microseconds of the work that f puts on the stream, by events.
  double Micros(const std::function<void()>& f) const {
    CHECK(cudaEventRecord(begin, stream));
    f();
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return 1e3 * ms;
  }
  cudaGraphExec_t Capture(const std::function<void()>& f) const {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    f();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
  }
  void Launch(cudaGraphExec_t exec) const { CHECK(cudaGraphLaunch(exec, stream)); }
};

// Reports the cost of one more step of a chain: the difference between chains of `few` and `many`
// steps.
void ReportStep(const Gpu& gpu, const char* name, const char* unit, double scale, int few, int many,
                const std::function<void(int)>& chain) {
  std::vector<double> values;
  for (int round = -2; round < kRounds; ++round) {
    const double t_few = gpu.Micros([&] { chain(few); }), t_many = gpu.Micros([&] { chain(many); });
    if (round >= 0) values.push_back(scale * (t_many - t_few) / (many - few));
  }
  Report(name, unit, std::move(values));
}

void ReportGraphStep(const Gpu& gpu, const char* name, int few, int many,
                     const std::function<void(int)>& record) {
  const cudaGraphExec_t a = gpu.Capture([&] { record(few); }),
                        b = gpu.Capture([&] { record(many); });
  ReportStep(gpu, name, "us", 1, few, many, [&](int n) { gpu.Launch(n == few ? a : b); });
  CHECK(cudaGraphExecDestroy(a));
  CHECK(cudaGraphExecDestroy(b));
}

void Steps(const Gpu& gpu) {
  float* x;
  CHECK(cudaMalloc(&x, 4096));
  CHECK(cudaMemset(x, 0, 4096));
  ReportStep(gpu, "launch, one after another", "us", 1, 100, 1100, [&](int n) {
    for (int i = 0; i < n; ++i) Add<<<1, 32, 0, gpu.stream>>>(x);
  });
  ReportGraphStep(gpu, "graph node", 100, 1100, [&](int n) {
    for (int i = 0; i < n; ++i) Add<<<1, 32, 0, gpu.stream>>>(x);
  });
  ReportGraphStep(gpu, "graph node of 132 blocks", 100, 1100, [&](int n) {
    for (int i = 0; i < n; ++i) Add<<<132, 32, 0, gpu.stream>>>(x);
  });
  const auto dependent = [&](int blocks) {
    return [&gpu, x, blocks](int n) {
      cudaLaunchAttribute attribute[1];
      attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute[0].val.programmaticStreamSerializationAllowed = 1;
      cudaLaunchConfig_t config = {};
      config.gridDim = dim3(blocks);
      config.blockDim = dim3(32);
      config.stream = gpu.stream;
      config.attrs = attribute;
      config.numAttrs = 1;
      for (int i = 0; i < n; ++i) CHECK(cudaLaunchKernelEx(&config, AddDependent, x));
    };
  };
  ReportGraphStep(gpu, "dependent graph node", 100, 1100, dependent(1));
  ReportGraphStep(gpu, "dependent graph node of 132 blocks", 100, 1100, dependent(132));
  ReportStep(gpu, "grid barrier, a block each SM", "us", 1, 100, 1100, [&](int n) {
    void* arguments[] = {&n, &x};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(Barriers), dim3(gpu.multiprocessors),
                                      dim3(256), arguments, 0, gpu.stream));
  });
  CHECK(cudaFree(x));
}

// A WHILE node around a body of `inner` kernels and the kernel that decides.
cudaGraphExec_t Loop(int* left, float* x, int inner) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams loop = {};
  loop.type = cudaGraphNodeTypeConditional;
  loop.conditional.handle = handle;
  loop.conditional.type = cudaGraphCondTypeWhile;
  loop.conditional.size = 1;
  cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &loop));
#else
  CHECK(cudaGraphAddNode(&node, graph, nullptr, 0, &loop));
#endif
  const cudaGraph_t body = loop.conditional.phGraph_out[0];
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                      cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < inner; ++i) Add<<<1, 32, 0, stream>>>(x);
  CountDown<<<1, 1, 0, stream>>>(left, handle);
  CHECK(cudaStreamEndCapture(stream, nullptr));
  CHECK(cudaStreamDestroy(stream));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  return exec;
}

void Loops(const Gpu& gpu) {
  int* left;
  float* x;
  CHECK(cudaMalloc(&left, 4));
  CHECK(cudaMalloc(&x, 4096));
  CHECK(cudaMemset(x, 0, 4096));
  for (const int inner : {0, 10}) {
    const cudaGraphExec_t loop = Loop(left, x, inner);
    ReportStep(gpu, inner == 0 ? "trip of a WHILE node" : "the same with 10 kernels more", "us", 1,
               100, 1100, [&](int n) {
                 SetTo<<<1, 1, 0, gpu.stream>>>(left, n);
                 gpu.Launch(loop);
               });
    CHECK(cudaGraphExecDestroy(loop));
  }
  CHECK(cudaFree(left));
  CHECK(cudaFree(x));
}

// Costs that the host sees.
void Calls(const Gpu& gpu) {
  float *x, *host;
  CHECK(cudaMalloc(&x, 4096));
  CHECK(cudaMemset(x, 0, 4096));
  CHECK(cudaHostAlloc(&host, 4096, cudaHostAllocDefault));
  std::vector<double> whole, sync;
  for (int i = 0; i < 2000; ++i) {
    const double us = HostMicros([&] {
      Add<<<1, 32, 0, gpu.stream>>>(x);
      CHECK(cudaMemcpyAsync(host, x, 4, cudaMemcpyDeviceToHost, gpu.stream));
      CHECK(cudaStreamSynchronize(gpu.stream));
    });
    const double wait = HostMicros([&] { CHECK(cudaStreamSynchronize(gpu.stream)); });
    if (i >= 1000) whole.push_back(us), sync.push_back(wait);
  }
  Report("launch, copy of 4 B, synchronise", "us", whole);
  Report("synchronise an idle stream", "us", sync);
  std::vector<double> graph_call, rebind;
  for (const int nodes : {1, 100, 1000}) {
    const cudaGraphExec_t exec = gpu.Capture([&] {
      for (int i = 0; i < nodes; ++i) Add<<<1, 32, 0, gpu.stream>>>(x);
    });
    graph_call.clear();
    for (int i = 0; i < 200; ++i) {
      const double us = HostMicros([&] { gpu.Launch(exec); });
      CHECK(cudaStreamSynchronize(gpu.stream));
      if (i >= 100) graph_call.push_back(us);
    }
    Report(("host: launch a graph of " + std::to_string(nodes)).c_str(), "us", graph_call);
    CHECK(cudaGraphExecDestroy(exec));
  }
  // Change the parameters of one kernel node.
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 100; ++i) Add<<<1, 32, 0, gpu.stream>>>(x);
  CHECK(cudaStreamEndCapture(gpu.stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  size_t count = 100;
  std::vector<cudaGraphNode_t> nodes(count);
  CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (int i = 0; i < 200; ++i) {
    const double us = HostMicros([&] {
      for (const cudaGraphNode_t node : nodes) {
        cudaKernelNodeParams p = {};
        float* to = x + i % 8;
        void* arguments[] = {&to};
        p.func = reinterpret_cast<void*>(Add);
        p.gridDim = dim3(1);
        p.blockDim = dim3(32);
        p.kernelParams = arguments;
        CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &p));
      }
    });
    gpu.Launch(exec);
    CHECK(cudaStreamSynchronize(gpu.stream));
    if (i >= 100) rebind.push_back(us / 100);
  }
  Report("host: change a node's parameters", "us", rebind);
  std::vector<double> update;
  for (int i = 0; i < 60; ++i) {
    cudaGraph_t again;
    const double us = HostMicros([&] {
      CHECK(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal));
      for (int k = 0; k < 100; ++k) Add<<<1, 32, 0, gpu.stream>>>(x + i % 8);
      CHECK(cudaStreamEndCapture(gpu.stream, &again));
      cudaGraphExecUpdateResultInfo info;
      CHECK(cudaGraphExecUpdate(exec, again, &info));
    });
    CHECK(cudaGraphDestroy(again));
    gpu.Launch(exec);
    CHECK(cudaStreamSynchronize(gpu.stream));
    if (i >= 30) update.push_back(us / 100);
  }
  Report("host: recapture and update, a node", "us", update);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaFree(x));
  CHECK(cudaFreeHost(host));
}

// Uses buffers of at least three times the L2 cache.
void Ceilings(const Gpu& gpu) {
  constexpr size_t kBytes = size_t{1} << 30;
  uint4 *a, *b;
  CHECK(cudaMalloc(&a, kBytes));
  CHECK(cudaMalloc(&b, kBytes));
  CHECK(cudaMemset(a, 7, kBytes));
  CHECK(cudaMemset(b, 7, kBytes));
  const auto bandwidth = [&](const char* name, double bytes, const std::function<void()>& f) {
    const cudaGraphExec_t exec = gpu.Capture([&] {
      for (int i = 0; i < 20; ++i) f();
    });
    std::vector<double> values;
    for (int round = -2; round < kRounds; ++round) {
      const double us = gpu.Micros([&] { gpu.Launch(exec); });
      if (round >= 0) values.push_back(20 * bytes / us * 1e-6);
    }
    Report(name, "TB/s", values);
    CHECK(cudaGraphExecDestroy(exec));
  };
  for (const int blocks : {4, 8, 16}) {
    bandwidth(
        ("copy kernel, " + std::to_string(blocks) + " blocks a SM").c_str(), 2.0 * kBytes,
        [&] { CopyAll<<<gpu.multiprocessors * blocks, 256, 0, gpu.stream>>>(a, b, kBytes / 16); });
  }
  bandwidth("copy by the driver", 2.0 * kBytes,
            [&] { CHECK(cudaMemcpyAsync(b, a, kBytes, cudaMemcpyDeviceToDevice, gpu.stream)); });
  bandwidth("read only", 1.0 * kBytes, [&] {
    ReadAll<<<gpu.multiprocessors * 8, 256, 0, gpu.stream>>>(a, reinterpret_cast<unsigned*>(b),
                                                             kBytes / 16);
  });
  bandwidth("fill by the driver", 1.0 * kBytes,
            [&] { CHECK(cudaMemsetAsync(b, 1, kBytes, gpu.stream)); });

  void *pinned, *pageable = std::aligned_alloc(4096, kBytes),
                *registered = std::aligned_alloc(4096, kBytes);
  std::memset(pageable, 1, kBytes);
  std::memset(registered, 1, kBytes);
  CHECK(cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault));
  std::memset(pinned, 1, kBytes);
  std::vector<double> pin{
      HostMicros([&] { CHECK(cudaHostRegister(registered, kBytes, cudaHostRegisterDefault)); }) *
      1e-3};
  Report("register 1 GiB of host memory", "ms", pin);
  const struct {
    const char* name;
    void* host;
  } places[] = {{"pinned", pinned}, {"registered", registered}, {"pageable", pageable}};
  for (const auto& place : places) {
    for (const bool in : {true, false}) {
      std::vector<double> values;
      for (int round = -1; round < 5; ++round) {
        const double us = HostMicros([&] {
          CHECK(cudaMemcpyAsync(in ? static_cast<void*>(a) : place.host,
                                in ? place.host : static_cast<void*>(a), kBytes,
                                in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, gpu.stream));
          CHECK(cudaStreamSynchronize(gpu.stream));
        });
        if (round >= 0) values.push_back(kBytes / us * 1e-3);
      }
      Report((std::string(place.name) + (in ? " host to device" : " device to host")).c_str(),
             "GB/s", values);
    }
  }
  CHECK(cudaHostUnregister(registered));
  CHECK(cudaFreeHost(pinned));
  std::free(pageable);
  std::free(registered);
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
}

}  // namespace

int main(int argc, char** argv) {
  const double context = HostMicros([] { CHECK(cudaFree(nullptr)); });
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  int driver = 0;
  CHECK(cudaDriverGetVersion(&driver));
  std::printf("%s, %d multiprocessors, driver for CUDA %d.%d\n", properties.name,
              properties.multiProcessorCount, driver / 1000, driver % 1000 / 10);
  Report("context", "ms", {context * 1e-3});
  const Gpu gpu;
  Steps(gpu);
  Loops(gpu);
  Calls(gpu);
  Ceilings(gpu);
  if (argc > 1) {
    std::FILE* out = std::fopen(argv[1], "w");
    if (!out) return std::perror(argv[1]), 1;
    std::fprintf(out, "{\"device\": \"%s\", \"figures\": [", properties.name);
    for (size_t i = 0; i < figures.size(); ++i) {
      std::fprintf(out, "%s\n  {\"name\": \"%s\", \"unit\": \"%s\", \"value\": %g, \"spread\": %g}",
                   i ? "," : "", figures[i].name.c_str(), figures[i].unit.c_str(), figures[i].value,
                   figures[i].spread);
    }
    std::fprintf(out, "\n]}\n");
    std::fclose(out);
  }
  return 0;
}
