// The harness of the benchmarks: both sides of a row are measured in turns within one run, and the
// medians are compared.
#ifndef OPWIRE_TESTS_BENCH_BENCH_H_
#define OPWIRE_TESTS_BENCH_BENCH_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "frontend/cpp/client.h"
#include "ir/wire/clock.h"

namespace opwire {
class Device;
class VariantTable;
}  // namespace opwire

namespace opwire::bench {

inline constexpr int kRounds = 7;

struct Row {
  std::string name;
  double value = 0;
  std::string unit;
  double baseline = 0;  // 0: none
  std::string baseline_name;
  double target = 0;
  bool target_is_ratio = true;
  bool higher_is_better = false;
  double spread = 0;  // (largest - smallest) / median of our rounds
  std::string note;   // why there is no value, or no baseline
};
double RatioOf(const Row& row);
bool Failed(const Row& row);
// Neither a row that failed nor one that lacks the baseline of its target met it.
bool Met(const Row& row);

// Measures `ours` and `theirs` in turns; a row with the medians. `theirs` may be empty.
Row Compare(std::string name, std::string unit, std::string baseline_name,
            const std::function<double()>& ours, const std::function<double()>& theirs);

// Writes the rows as JSON where `out` names a file: each with `facts`, which are of the whole run.
// Report prints their table too.
using Facts = std::map<std::string, std::variant<double, std::string>>;
void Write(const std::vector<Row>& rows, const std::string& out, const Facts& facts);
void Report(const std::vector<Row>& rows, const std::string& out, const Facts& facts);

// What a command prints; what it says on standard error is dropped. NumberFrom: the number that it
// prints first; 0 where it prints none.
std::string OutputOf(const std::string& command);
double NumberFrom(const std::string& command);
double Percentile(std::vector<double> values, double p);
inline double Seconds() { return static_cast<double>(MonotonicNow()) / 1e9; }

// A child process that is killed with its owner.
class Child {
 public:
  explicit Child(const std::vector<std::string>& argv);
  explicit Child(const std::function<void()>& body);  // runs in a fork
  ~Child();
  Child(const Child&) = delete;
  pid_t pid() const { return pid_; }
  double CpuSeconds() const;
  // Until it ends; whether it did so with code 0.
  bool Wait();

 private:
  pid_t pid_;
};

struct Setup {
  std::string build;      // where the programs are
  std::string directory;  // the run's own runtime directory
};

// A session, tried for so long until the executor that `options` name is there.
StatusOr<Session> OpenWithin(const SessionOptions& options, double seconds);
// One on an executor of this id. Exits with a message when it does not come.
Session OpenOn(const std::string& executor, bool ring);
// Exits with the message of an error: a benchmark that fails has no number.
void Must(const Status& status);
template <typename T>
T Must(StatusOr<T> v) {
  Must(v.status());
  return *std::move(v);
}

inline constexpr const char* kAdd =
    "program @add(%x: f32[?n], %y: f32[?n]) -> (z: f32[?n]) {\n  %0 = add(%x, %y)\n  return "
    "%0\n}\n";

// Each family appends its rows.
void WireRows(const Setup& setup, std::vector<Row>& rows);
void ComputeRows(const Setup& setup, std::vector<Row>& rows);
void FusedRows(const Setup& setup, Device& device, const VariantTable& variants,
               std::vector<Row>& rows);                                                // of compute
void OptimRows(Device& device, const VariantTable& variants, std::vector<Row>& rows);  // of compute
void BlocksRows(Device& device, const VariantTable& variants,
                std::vector<Row>& rows);  // of compute
void TrainingRows(std::vector<Row>& rows);
void PythonRows(const Setup& setup, std::vector<Row>& rows);
void SystemRows(const Setup& setup, std::vector<Row>& rows);
void JitRows(const Setup& setup, std::vector<Row>& rows);
// Microseconds that waking a thread of another process by futex takes, parked 1 ms before.
double FutexWakeMicros();
// How much faster two threads are than one.
double ThreadScaling();

}  // namespace opwire::bench

#endif  // OPWIRE_TESTS_BENCH_BENCH_H_
