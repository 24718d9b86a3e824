// Tools to measure GPU rows: a device, sides that take turns, and launches recorded as graphs. The
// launches use buffers that together exceed the device's cache.
//
//   auto subject = Subject::OfOp(gpu, "add", {{DType::kBF16, {n}}, {DType::kBF16, {n}}}, {});
//   const Series series = TakeTurns(gpu, {{"ours", SecondsOf(gpu, [&](int i) { return
//       (*subject)->Launch(i); }, (*subject)->sets())}, ...});
//
// Seconds are those of one launch, on the device. The host's clock times replays of a graph of at
// least 20 launches, for 50 ms or more at a time.
#ifndef OPWIRE_TESTS_BENCH_GPU_GPU_H_
#define OPWIRE_TESTS_BENCH_GPU_GPU_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/ops/catalogue.h"
#include "kernels/device/gpu/gpu_device.h"
#include "kernels/fused/scalar_program.h"
#include "kernels/ops/gpu/code.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/select/variant.h"
#include "tests/bench/bench.h"
#include "tests/bench/oracle.h"

namespace opwire::bench {

struct GpuOptions {
  std::string device = "cuda:0";
  bool small = false;  // sizes and times for an emulated device, whose figures mean nothing
  int rounds = kRounds;
  std::vector<std::string> only;  // prefixes of rows' names; empty: all
  std::string python = "python3", baseline = "tests/bench/gpu/baseline.py";

  double round_seconds() const { return small ? 1e-4 : 0.05; }
  int launches() const { return small ? 3 : 20; }  // in a graph, at least
};

// Memory of a device that is freed with its owner.
class Buffer {
 public:
  static StatusOr<Buffer> Allocate(Device& device, int64_t bytes,
                                   MemoryKind kind = MemoryKind::kDevice);
  char* data() const { return memory_.get(); }

 private:
  explicit Buffer(std::unique_ptr<char, std::function<void(char*)>> memory)
      : memory_(std::move(memory)) {}
  std::unique_ptr<char, std::function<void(char*)>> memory_;
};

// The contents of operands: random numbers, the squares of random numbers of f32, or one number.
enum class Fill : uint8_t { kRandom, kSquares, kOnes, kZeros };

class Gpu {
 public:
  // FAILED_PRECONDITION: this host has no such device, or the device does not support graphs.
  static StatusOr<std::unique_ptr<Gpu>> Open(const GpuOptions& options);

  const GpuOptions& options() const { return options_; }
  gpu::GpuDevice& device() const { return *device_; }
  const VariantTable& variants() const { return *variants_; }
  gpu::Code& code() const { return *code_; }
  int64_t l2_bytes() const { return l2_bytes_; }

  bool Selected(std::string_view row) const;
  // Prints on standard error which row begins, and when.
  void Begin(std::string_view row) const;
  // Returns how many sets of `bytes` bytes are used in turn, so that together they exceed three
  // times the cache; at least 2.
  int SetsOf(int64_t bytes) const;
  // Returns floats that are uniform in [-1, 1).
  StatusOr<Buffer> Random(DType dtype, int64_t bytes) {
    return Filled(dtype, Fill::kRandom, bytes, 0);
  }
  // Returns the contents of operand `which` of a call; operands of a call differ. Image: the same
  // bytes on the host.
  StatusOr<Buffer> Filled(DType dtype, Fill fill, int64_t bytes, size_t which);
  StatusOr<std::string> Image(DType dtype, Fill fill, int64_t bytes, size_t which);

 private:
  explicit Gpu(const GpuOptions& options) : options_(options) {}

  const GpuOptions options_;
  const double begun_ = Seconds();
  std::unique_ptr<Device> owner_;
  gpu::GpuDevice* device_ = nullptr;
  std::unique_ptr<VariantTable> variants_;
  std::unique_ptr<gpu::Code> code_;
  int64_t l2_bytes_ = 0;
  struct Sample {
    Array host;
    Buffer device;
  };
  StatusOr<const Sample*> SampleOf(DType dtype, Fill fill);
  std::map<std::pair<DType, Fill>, Sample> samples_;  // samples that Filled repeats
};

struct TensorSpec {
  DType dtype;  // kInvalid: an absent operand
  std::vector<int64_t> shape;
  Fill fill = Fill::kRandom;
  int64_t bytes() const;
};

// Computes the expected results of a call from its operands (oracle.h).
using Reference = std::function<StatusOr<conformance::Expected>(const Operands& operands)>;
// The results of an op, by the oracle of the conformance suite.
Reference ReferenceOf(const Gpu& gpu, std::string op, std::vector<NamedAttr> attrs,
                      std::vector<uint32_t> segments = {});

// A call that can be launched on several sets of operands and results.
class Subject {
 public:
  // Returns a call of the variant that the table chooses. Optional operands at the end may be left
  // out. `segments`: the lengths of its operands, if some are lists.
  static StatusOr<std::unique_ptr<Subject>> OfOp(Gpu& gpu, std::string_view op,
                                                 std::vector<TensorSpec> operands,
                                                 const std::vector<NamedAttr>& attrs,
                                                 const std::vector<uint32_t>& segments = {});
  // Returns a call of a fused program with one result, which has the first operand's type and
  // shape. `reference` gives the expected result.
  static StatusOr<std::unique_ptr<Subject>> OfProgram(Gpu& gpu, const std::string& name,
                                                      const fused::ScalarProgram& program,
                                                      std::vector<TensorSpec> operands,
                                                      Reference reference);
  // Returns a call of a fused group's kernel, by its operands and results. `reference` gives the
  // expected results.
  static StatusOr<std::unique_ptr<Subject>> OfGroup(
      Gpu& gpu, std::shared_ptr<const opw_kernel> kernel, std::vector<TensorSpec> operands,
      const std::vector<TensorSpec>& results, std::vector<opw_attr> arguments, Reference reference);
  ~Subject();
  Subject(const Subject&) = delete;

  // Puts one launch on the stream, with the operands and results of set i % sets().
  Status Launch(int i);
  // Compares the results of all sets with the expected results for their operands. REQUIRES: the
  // small scale, and that every set was launched.
  Status Check();
  // Replaces an operand in all sets. The second: by a result of set 0 of another subject, of the
  // same type and shape, which was launched.
  Status SetOperand(int which, const void* bytes);
  Status SetOperand(int which, const Subject& other, size_t result);
  int sets() const { return static_cast<int>(data_.size()); }
  int64_t bytes() const;  // of operands and results, each once
  int64_t operand_bytes(int i) const { return specs_[static_cast<size_t>(i)].bytes(); }
  const std::string& variant() const { return variant_; }
  // In set i % sets().
  char* operand(int i, int which) const {
    return data_[static_cast<size_t>(i % sets())][static_cast<size_t>(which)].data();
  }
  char* result(int i, size_t which = 0) const {
    return data_[static_cast<size_t>(i % sets())][operands_ + which].data();
  }

 private:
  explicit Subject(Gpu& gpu) : gpu_(gpu) {}
  // REQUIRES: specs_ holds the operands, then the results.
  void Describe(size_t operands, std::vector<uint32_t> starts);
  Status Fill();
  Status Prepare(std::string_view op, std::span<const AttrValue> attrs);
  Status PrepareKernel(const opw_kernel& kernel);

  Gpu& gpu_;
  std::vector<TensorSpec> specs_;
  size_t operands_ = 0;
  std::vector<std::vector<int64_t>> strides_;
  std::vector<opw_tensor> tensors_;
  std::vector<uint32_t> starts_;
  std::vector<opw_attr> attrs_;
  std::vector<AttrValue> values_;  // memory that attrs_ points into
  std::string variant_;
  opw_call call_{};
  std::shared_ptr<const opw_kernel> holds_;  // of a group; keeps it alive
  opw_kernel kernel_{};                      // of an op or a group,
  std::unique_ptr<gpu::Plan> plan_;          // or of a program
  std::vector<std::vector<Buffer>> data_;    // by set, operands first
  std::vector<std::string> images_;          // of the operands; at small scale
  Reference reference_;
  double slack_ = 0;  // allowed error of results in addition to the reference's error, relative to
                      // their largest magnitude
  std::unique_ptr<Buffer> workspace_;
};

// Returns the seconds of one launch, or an error with the reason for their absence.
using Measurement = std::function<StatusOr<double>()>;
// Returns a measurement of `launch`, which is called with 0, 1 and so on to put one launch on the
// stream. The launches are recorded at the first measurement. `sets`: the number of launches after
// which they repeat.
Measurement SecondsOf(Gpu& gpu, std::function<Status(int)> launch, int sets);

// A measurement, and the check of its results, which is done once after all rounds at small
// scale.
struct Side {
  std::string name;
  Measurement measure;
  std::function<Status()> check = nullptr;
};
// Returns the side of a subject's launches; the name is its variant's.
Side SideOf(Gpu& gpu, Subject& subject);

// Ceilings, over sets of their own. A copy moves `bytes` bytes, half of them in, by the `copy` row
// and by the driver. A reading reads `bytes` bytes. `blocks_each`: blocks for each multiprocessor;
// 0: a block for each 16 KiB.
struct CopyCeiling {
  std::unique_ptr<Subject> subject;
  Side kernel;
  Measurement driver;
};
StatusOr<CopyCeiling> MakeCopyCeiling(Gpu& gpu, int64_t bytes);
StatusOr<Measurement> MakeReadCeiling(Gpu& gpu, int64_t bytes, int blocks_each);

struct Series {
  std::string name;
  std::vector<double> seconds;  // by round
  Status status;                // not OK: no seconds
  bool checked = false;         // what it computed is as expected,
  double digest = 0;            // which is this, as Row::digest
  double median() const { return Percentile(seconds, 0.5); }
};
// Measures every side once a round. A side that fails is not measured again, and has no figures. A
// side with a wrong result has no figures either.
std::vector<Series> TakeTurns(Gpu& gpu, const std::vector<Side>& sides);
// Returns the fastest of them, or the first that failed, so that its row fails; null: none has
// figures.
const Series* Fastest(const std::vector<const Series*>& series);

// `work` over the seconds, for both. A failed row if `ours` or the baseline failed. `baseline`:
// null if there is none.
Row RateRow(std::string name, std::string unit, double work, const Series& ours,
            const Series* baseline, double target);
// A row of seconds times `scale`: less is better. `target`: the highest allowed ratio; 0: no
// target.
Row TimeRow(std::string name, std::string unit, double scale, const Series& ours,
            const Series* baseline, double target = 0);
// Adds the geometric mean of the rows' ratios, if there are any.
void AddMean(std::vector<Row>& rows, std::string name, const std::vector<double>& ratios,
             double target);

inline constexpr double kOfPyTorch = 0.99;                            // that a row must reach
inline constexpr double kEachOfCeiling = 0.88, kSumOfCeiling = 0.95;  // of copying, and of reading

// PyTorch in a child process, which measures one row at a time, when told to.
class Baseline {
 public:
  // Starts the child. If it does not start, rows have no such baseline: `why` returns the reason.
  explicit Baseline(const Gpu& gpu);
  ~Baseline();
  Baseline(const Baseline&) = delete;

  bool there() const { return why_.empty(); }
  const std::string& why() const { return why_; }
  const std::string& version() const { return version_; }
  struct Request {
    std::string row, op;  // the row's name; what baseline.py calls it
    DType dtype;
    std::vector<int64_t> shape;
    std::string precision = "ieee";
    int64_t bytes = 0;      // of one launch
    bool compiled = true;   // torch.compile too: the faster of the two counts
    double patience = 180;  // seconds until the first answer, which includes compiling
  };
  // REQUIRES: there().
  Side For(const Request& request);
  // Returns "PyTorch" or "torch.compile", whichever the last answer for this row was of.
  std::string NameOf(const std::string& row) const;
  // Returns the most bytes of the device that PyTorch held for it; 0 if the answer did not say.
  double PeakOf(const std::string& row) const;

 private:
  StatusOr<std::string> Ask(const std::string& line, double seconds);
  void End();

  const Gpu& gpu_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string rest_;  // bytes after the last answer
  std::string why_, version_;
  std::map<std::string, std::string> names_;
  std::map<std::string, double> peaks_;
};

// Measures a row in bytes per second against the faster of two copies of the same number of bytes;
// with `reads`, of two readings. If PyTorch is available and `op` names its op, also measures a row
// against that.
Status MeasureMoved(Gpu& gpu, Baseline& baseline, Subject& subject,
                    const Baseline::Request& request, bool reads, double target,
                    std::vector<Row>& rows);

// Each topic appends its rows.
void MemoryRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows);
void BackwardRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows);
void MatmulRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows);
void LinearRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows);
void WrittenRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows);
void AttentionRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows);
void ConvolutionRows(Gpu& gpu, Baseline& baseline, std::vector<Row>& rows);
void CallRows(Gpu& gpu, const Setup& setup, std::vector<Row>& rows);
void TrainingRows(Gpu& gpu, const Setup& setup, Baseline& baseline, std::vector<Row>& rows);
void DecodeRows(Gpu& gpu, const Setup& setup, Baseline& baseline, std::vector<Row>& rows);

}  // namespace opwire::bench

#endif  // OPWIRE_TESTS_BENCH_GPU_GPU_H_
