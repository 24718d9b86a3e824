// The device, graphs of launches and their time, ceilings, rows.
#include "tests/bench/gpu/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/base/element.h"
#include "kernels/jit/toolchain.h"

namespace opwire::bench {
namespace {

constexpr int64_t kSampleBytes = int64_t{8} << 20;
constexpr int64_t kStagger = int64_t{1} << 16;  // between the first bytes of two operands

// A thread reads four times 16 bytes, its accesses next to its neighbours'.
constexpr const char* kReadText = R"(
struct Params {
  const opw::Quad* x;
  unsigned* y;
  opw::i64 n;
};
extern "C" __global__ void __launch_bounds__(256) OPW_KERNEL(OPW_PARAM Params p) {
  opw::AwaitPrevious();
  const opw::i64 stride = opw::Stride();
  unsigned bits = 0;
  opw::i64 i = opw::Index();
  for (; i + 3 * stride < p.n; i += 4 * stride) {
    const opw::Quad a = p.x[i], b = p.x[i + stride], c = p.x[i + 2 * stride], d = p.x[i + 3 * stride];
    bits ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < p.n; i += stride) {
    const opw::Quad a = p.x[i];
    bits ^= a.x ^ a.y ^ a.z ^ a.w;
  }
  if (bits == 0x12345678u) *p.y = bits;
}
)";

struct ReadParams {
  const void* x;
  void* y;
  long long n;
};

// A graph of launches.
struct Recording {
  Gpu& gpu;
  std::function<Status(int)> launch;
  int sets;
  bool recorded = false;
  GraphId graph = 0;
  int launches = 0;
  int replays = 1;  // per round

  Status Record() {
    gpu::GpuDevice& device = gpu.device();
    // Launch once without recording: the first launch loads and chooses kernels, and the graph must
    // not contain that work.
    OPWIRE_RETURN_IF_ERROR(launch(0));
    OPWIRE_RETURN_IF_ERROR(device.Synchronize());
    launches = (gpu.options().launches() + sets - 1) / sets * sets;
    OPWIRE_RETURN_IF_ERROR(device.BeginCapture(0));
    Status status;
    for (int i = 0; i < launches && status.ok(); ++i) status = launch(i);
    const StatusOr<GraphId> ended = device.EndCapture(0);
    OPWIRE_RETURN_IF_ERROR(status);
    OPWIRE_ASSIGN_OR_RETURN(graph, ended);
    OPWIRE_RETURN_IF_ERROR(Replay(2).status());
    while (true) {
      OPWIRE_ASSIGN_OR_RETURN(const double seconds, Replay(replays));
      if (seconds >= gpu.options().round_seconds()) break;
      replays =
          std::max(replays + 1,
                   static_cast<int>(std::min(1e6, 1.1 * replays * gpu.options().round_seconds() /
                                                      std::max(seconds, 1e-7))));
    }
    recorded = true;
    return absl::OkStatus();
  }
  StatusOr<double> Replay(int times) {
    const double begun = Seconds();
    for (int i = 0; i < times; ++i) OPWIRE_RETURN_IF_ERROR(gpu.device().Replay(graph, 0));
    OPWIRE_RETURN_IF_ERROR(gpu.device().Synchronize());
    return Seconds() - begun;
  }
};

// Sets a row's value and baseline of each round. `of` computes them from seconds.
void SetFigures(Row& row, const Series& ours, const Series* baseline,
                const std::function<double(double)>& of) {
  std::vector<double> values;
  for (const double s : ours.seconds) values.push_back(of(s));
  row.value = Percentile(values, 0.5);
  row.checked = ours.checked;
  row.digest = ours.digest;
  row.spread = (*std::max_element(values.begin(), values.end()) -
                *std::min_element(values.begin(), values.end())) /
               row.value;
  if (!baseline) return;
  row.baseline_name = baseline->name;
  if (baseline->status.ok() && !baseline->seconds.empty())
    row.baseline = of(baseline->median());
  else
    row.failure = fmt::format("{}: {}", baseline->name, MessageOf(baseline->status));
}

}  // namespace

StatusOr<Buffer> Buffer::Allocate(Device& device, int64_t bytes, MemoryKind kind) {
  OPWIRE_ASSIGN_OR_RETURN(void* const memory, device.Allocate(bytes, kind));
  return Buffer({static_cast<char*>(memory), [&device](char* m) { device.Free(m); }});
}

StatusOr<std::unique_ptr<Gpu>> Gpu::Open(const GpuOptions& options) {
  std::unique_ptr<Gpu> gpu(new Gpu(options));
  OPWIRE_ASSIGN_OR_RETURN(gpu->owner_, OpenDevice(options.device, {}));
  gpu->device_ = dynamic_cast<gpu::GpuDevice*>(gpu->owner_.get());
  if (!gpu->device_) return FailedPrecondition("{} is no GPU", options.device);
  const gpu::Driver& driver = gpu->device_->driver();
  int handle = 0;
  OPWIRE_RETURN_IF_ERROR(
      driver.Check(driver.api().device_get(&handle, gpu->device_->info().index), "a device"));
  OPWIRE_ASSIGN_OR_RETURN(gpu->l2_bytes_, driver.Get(gpu::Attribute::kL2Bytes, handle));
  gpu->variants_ = std::make_unique<VariantTable>(BuildVariantTable(*gpu->device_));
  const gpu::Vendor vendor = driver.vendor();
  auto compiler = vendor == gpu::Vendor::kEmu   ? jit::EmuCompiler({})
                  : vendor == gpu::Vendor::kHip ? jit::Hiprtc({})
                                                : jit::Nvrtc({});
  gpu->code_ = std::make_unique<gpu::Code>(*gpu->device_, std::move(compiler), "");
  return gpu;
}

bool Gpu::Selected(std::string_view row) const {
  return options_.only.empty() ||
         std::ranges::any_of(options_.only,
                             [&](const std::string& prefix) { return row.starts_with(prefix); });
}

void Gpu::Begin(std::string_view row) const {
  fmt::print(stderr, "{:6.1f} s  {}\n", Seconds() - begun_, row);
}

int Gpu::SetsOf(int64_t bytes) const {
  if (options_.small) return 2;
  return static_cast<int>(
      std::clamp<int64_t>(3 * l2_bytes_ / std::max<int64_t>(bytes, 1) + 1, 2, 64));
}

StatusOr<const Gpu::Sample*> Gpu::SampleOf(DType dtype, Fill fill) {
  auto sample = samples_.find({dtype, fill});
  if (sample == samples_.end()) {
    const std::vector<int64_t> shape = {kSampleBytes / DTypeBytes(dtype)};
    Array values = fill == Fill::kRandom || fill == Fill::kSquares ? Array::Random(dtype, shape, 1)
                                                                   : Array(dtype, shape);
    if (fill == Fill::kSquares) {
      for (float& v : values.values<float>()) v *= v;
    } else if (fill == Fill::kOnes) {
      const uint64_t one = ElementBits(dtype, int64_t{1});
      for (int64_t i = 0; i < shape[0]; ++i)
        std::memcpy(values.bytes().data() + i * DTypeBytes(dtype), &one,
                    static_cast<size_t>(DTypeBytes(dtype)));
    }
    OPWIRE_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(*device_, kSampleBytes));
    OPWIRE_RETURN_IF_ERROR(device_->Copy(buffer.data(), values.bytes().data(), kSampleBytes, 0));
    OPWIRE_RETURN_IF_ERROR(device_->Synchronize());
    sample = samples_.emplace(std::pair(dtype, fill), Sample{std::move(values), std::move(buffer)})
                 .first;
  }
  return &sample->second;
}

StatusOr<Buffer> Gpu::Filled(DType dtype, Fill fill, int64_t bytes, size_t which) {
  OPWIRE_ASSIGN_OR_RETURN(const Sample* const sample, SampleOf(dtype, fill));
  OPWIRE_ASSIGN_OR_RETURN(Buffer out, Buffer::Allocate(*device_, bytes));
  int64_t from = static_cast<int64_t>(which) * kStagger % kSampleBytes;
  for (int64_t at = 0; at < bytes; from = 0) {
    const int64_t n = std::min(kSampleBytes - from, bytes - at);
    OPWIRE_RETURN_IF_ERROR(device_->Copy(out.data() + at, sample->device.data() + from, n, 0));
    at += n;
  }
  return out;
}

StatusOr<std::string> Gpu::Image(DType dtype, Fill fill, int64_t bytes, size_t which) {
  OPWIRE_ASSIGN_OR_RETURN(const Sample* const sample, SampleOf(dtype, fill));
  std::string image(static_cast<size_t>(bytes), 0);
  const std::span<const uint8_t> from = sample->host.bytes();
  for (size_t i = 0; i < image.size(); ++i)
    image[i] = static_cast<char>(from[(which * static_cast<size_t>(kStagger) + i) % from.size()]);
  return image;
}

// ---- Time

Measurement SecondsOf(Gpu& gpu, std::function<Status(int)> launch, int sets) {
  auto r = std::make_shared<Recording>(Recording{gpu, std::move(launch), sets});
  return [r]() -> StatusOr<double> {
    if (!r->recorded) OPWIRE_RETURN_IF_ERROR(r->Record());
    OPWIRE_RETURN_IF_ERROR(r->Replay(1).status());
    OPWIRE_ASSIGN_OR_RETURN(const double seconds, r->Replay(r->replays));
    return seconds / r->replays / r->launches;
  };
}

std::vector<Series> TakeTurns(Gpu& gpu, const std::vector<Side>& sides) {
  std::vector<Series> series(sides.size());
  for (size_t i = 0; i < sides.size(); ++i) series[i].name = sides[i].name;
  for (int round = 0; round < gpu.options().rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      Series& s = series[i];
      if (!s.status.ok()) continue;
      if (const StatusOr<double> seconds = sides[i].measure(); seconds.ok()) {
        s.seconds.push_back(*seconds);
      } else {
        s.status = seconds.status();
        s.seconds.clear();
      }
    }
  }
  for (size_t i = 0; gpu.options().small && i < sides.size(); ++i) {
    Series& s = series[i];
    DigestOfChecks().Take();
    if (s.status.ok() && sides[i].check) s.checked = (s.status = sides[i].check()).ok();
    s.digest = DigestOfChecks().Take();
    if (!s.status.ok()) s.seconds.clear();
  }
  return series;
}

Side SideOf(Gpu& gpu, Subject& subject) {
  return {subject.variant(),
          SecondsOf(
              gpu, [&subject](int i) { return subject.Launch(i); }, subject.sets()),
          [&subject] { return subject.Check(); }};
}

const Series* Fastest(const std::vector<const Series*>& series) {
  const Series* best = nullptr;
  for (const Series* s : series) {
    if (!s->status.ok()) return s;
    if (!s->seconds.empty() && (!best || s->median() < best->median())) best = s;
  }
  return best;
}

// ---- Ceilings

StatusOr<CopyCeiling> MakeCopyCeiling(Gpu& gpu, int64_t bytes) {
  CopyCeiling c;
  OPWIRE_ASSIGN_OR_RETURN(c.subject, Subject::OfOp(gpu, "copy", {{DType::kBF16, {bytes / 4}}}, {}));
  Subject* const s = c.subject.get();
  c.kernel = SideOf(gpu, *s);
  c.kernel.name = "copy kernel";
  c.driver = SecondsOf(
      gpu,
      [s, &gpu](int i) {
        return gpu.device().Copy(s->result(i), s->operand(i, 0), s->operand_bytes(0), 0);
      },
      s->sets());
  return c;
}

StatusOr<Measurement> MakeReadCeiling(Gpu& gpu, int64_t bytes, int blocks_each) {
  OPWIRE_ASSIGN_OR_RETURN(
      const gpu::Function f,
      gpu.code().GetText({"a kernel that reads", "kernels/ops/gpu/device.cuh", kReadText})->Load());
  auto buffers = std::make_shared<std::vector<Buffer>>();
  const int sets = gpu.SetsOf(bytes);
  for (int i = 0; i < sets; ++i) {
    OPWIRE_ASSIGN_OR_RETURN(Buffer b, gpu.Random(DType::kBF16, bytes + 16));
    buffers->push_back(std::move(b));
  }
  const int64_t quads = bytes / 16;
  const int64_t blocks = blocks_each > 0 ? int64_t{blocks_each} * gpu.device().info().compute_units
                                         : gpu::BlocksFor(quads, 256, 4);
  return SecondsOf(
      gpu,
      [&gpu, f, buffers, quads, blocks](int i) {
        char* const data = (*buffers)[static_cast<size_t>(i) % buffers->size()].data();
        const ReadParams params{data, data + quads * 16, quads};
        return gpu.device().Launch(f, {.grid_x = static_cast<unsigned>(blocks), .threads = 256},
                                   &params, sizeof params);
      },
      sets);
}

// ---- Rows

Row RateRow(std::string name, std::string unit, double work, const Series& ours,
            const Series* baseline, double target) {
  if (ours.seconds.empty()) return FailedRow(std::move(name), ours.status);
  Row row{
      .name = std::move(name), .unit = std::move(unit), .target = target, .higher_is_better = true};
  SetFigures(row, ours, baseline, [work](double seconds) { return work / seconds; });
  return row;
}

Row TimeRow(std::string name, std::string unit, double scale, const Series& ours,
            const Series* baseline, double target) {
  if (ours.seconds.empty()) return FailedRow(std::move(name), ours.status);
  Row row{.name = std::move(name), .unit = std::move(unit), .target = target};
  SetFigures(row, ours, baseline, [scale](double seconds) { return scale * seconds; });
  return row;
}

void AddMean(std::vector<Row>& rows, std::string name, const std::vector<double>& ratios,
             double target) {
  double sum = 0;
  for (const double r : ratios) sum += std::log(r);
  if (ratios.empty()) return;
  rows.push_back({.name = std::move(name),
                  .value = std::exp(sum / static_cast<double>(ratios.size())),
                  .unit = fmt::format("of {}", ratios.size()),
                  .target = target,
                  .target_is_ratio = false,
                  .higher_is_better = true});
}

}  // namespace opwire::bench
