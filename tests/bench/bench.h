// The harness of the benchmarks: both sides of a row are measured in turns within one run, and the
// medians are compared.
#ifndef OPWIRE_TESTS_BENCH_BENCH_H_
#define OPWIRE_TESTS_BENCH_BENCH_H_

#include <sys/types.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
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
  double spread = 0;    // (largest - smallest) / median of our rounds
  std::string note;     // why there is no value, or no baseline
  std::string failure;  // what went wrong; empty: nothing did
};
double RatioOf(const Row& row);
inline bool Failed(const Row& row) { return !row.failure.empty(); }
// What the row needs is missing on this machine. Its note says what.
bool Skipped(const Row& row);
// Neither a row that failed nor one that lacks the baseline of its target met it.
bool Met(const Row& row);
Row FailedRow(std::string name, const Status& why);

// The error of a row. The rows after it are measured all the same.
class RowError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// Runs `body`, which appends the rows `names`. If it throws, the rows that it did not append are
// added as failed ones. A row that it left out without a word is a failed row, too. With no names
// (of a whole family) what it throws becomes one failed row, `family`.
void Measure(const std::string& family, const std::vector<std::string>& names,
             std::vector<Row>& rows, const std::function<void()>& body);

struct Setup {
  std::string build;      // where the programs are
  std::string directory;  // the run's own runtime directory
  // Every row once, at its smallest size and without warming up: to see that it works. Figures mean
  // nothing then.
  bool small = false;

  int rounds() const { return small ? 1 : kRounds; }
  // How often a row repeats something, or the size of something.
  template <typename T>
  T Scaled(T full, T smallest) const {
    return small ? smallest : full;
  }
  int Times(int full) const { return Scaled(full, 1); }
};

// Measures `ours` and `theirs` in turns; a row with the medians. `theirs` may be empty.
Row Compare(const Setup& setup, std::string name, std::string unit, std::string baseline_name,
            const std::function<double()>& ours, const std::function<double()>& theirs);

// Writes the rows as JSON if `out` names a file: each with `facts`, which are of the whole run.
using Facts = std::map<std::string, std::variant<double, std::string>>;
void Write(const std::vector<Row>& rows, const std::string& out, const Facts& facts);
// The same, and prints their table, then "N passed, M failed" and which rows failed. At small scale
// rows have no targets. The exit code of the program: 0 if there are rows and none failed.
int Report(std::vector<Row> rows, const std::string& out, const Facts& facts, bool small);

// What a command prints, and the number that it prints first. Throws RowError if its exit code is
// not 0, or if it prints no number.
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
  // Whether it has not ended yet.
  bool Running();

 private:
  pid_t pid_;
};

// A variable of the environment, as long as this lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Environment(const Environment&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

// A session, tried for so long until the executor that `options` name is there.
StatusOr<Session> OpenWithin(const SessionOptions& options, double seconds);
// One on an executor of this id. Throws RowError if the executor does not come.
Session OpenOn(const std::string& executor, bool ring);
// Throws RowError with the message of an error.
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
               std::vector<Row>& rows);  // of compute
void OptimRows(const Setup& setup, Device& device, const VariantTable& variants,
               std::vector<Row>& rows);  // of compute
void BlocksRows(const Setup& setup, Device& device, const VariantTable& variants,
                std::vector<Row>& rows);  // of compute
void TrainingRows(const Setup& setup, std::vector<Row>& rows);
void PythonRows(const Setup& setup, std::vector<Row>& rows);
void SystemRows(const Setup& setup, std::vector<Row>& rows);
void JitRows(const Setup& setup, std::vector<Row>& rows);
// Microseconds that waking a thread of another process by futex takes, parked 1 ms before; the
// median of `times`.
double FutexWakeMicros(int times = 300);
// How much faster two threads are than one.
double ThreadScaling();

}  // namespace opwire::bench

#endif  // OPWIRE_TESTS_BENCH_BENCH_H_
