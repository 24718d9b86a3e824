// The harness of the benchmarks: both sides of a row are measured in turns within one run, and the
// medians are compared.
#ifndef OPWIRE_TESTS_BENCH_BENCH_H_
#define OPWIRE_TESTS_BENCH_BENCH_H_

#include <sys/types.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/cpp/client.h"
#include "ir/wire/clock.h"

namespace opwire {
class Device;
class VariantTable;
}  // namespace opwire

namespace opwire::bench {
using namespace client;

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
  double spread = 0;     // (largest - smallest) / median of our rounds
  std::string note;      // why there is no value, or no baseline
  bool checked = false;  // whether its results were compared with others
  double digest = 0;     // of the results that were expected; 0: there were none
  std::string failure;   // what went wrong; empty: nothing did
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

// One side of a row. At small scale Compare also checks what it computes.
struct Timed {
  using Arrays = std::vector<Array>;
  Timed() = default;
  Timed(std::nullptr_t) {}  // NOLINT: there is no such side
  template <typename F>
  requires std::is_invocable_r_v<double, F> Timed(F measure)
      : time(std::move(measure)) {}  // NOLINT: of a side whose results are not checked
  Timed(std::function<double()> measure, std::function<Arrays()> gives,
        std::function<Arrays()> must_give = nullptr, double error = 1e-4)
      : time(std::move(measure)),
        result(std::move(gives)),
        expected(std::move(must_give)),
        tolerance(error) {}

  std::function<double()> time;      // in the row's unit
  std::function<Arrays()> result;    // computes it once more, as it is measured; null: unchecked
  std::function<Arrays()> expected;  // of kernels or code that are not measured; null: what the
                                     // other side gives
  double tolerance = 1e-4;           // of a result's largest magnitude; 0: equal bytes
};

// Measures `ours` and `theirs` in turns; a row with the medians. `theirs` may be empty. Throws
// RowError at small scale if a result is not as expected, or if results of both sides of equal
// shapes differ.
Row Compare(const Setup& setup, std::string name, std::string unit, std::string baseline_name,
            const Timed& ours, const Timed& theirs);

// Throws RowError if `got` is not `want`, is not finite, or is zeros only.
void MustAgree(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance);

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
// INTERNAL with the message of the RowError that `body` throws.
Status Attempt(const std::function<void()>& body);
template <typename T>
T Must(StatusOr<T> v) {
  Must(v.status());
  return *std::move(v);
}

// Throws RowError unless the losses are finite and fall: the mean of the second half is below that
// of the first.
void MustFall(std::span<const Array> losses);

// A number for expected results: the weighted mean of magnitudes. Any change of an operand changes
// it. Add takes results in their order; Take gives the number since the last Take, and begins
// again.
class Digest {
 public:
  void Add(double value);
  double Take();

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};
// Of the checks on this thread: MustAgree adds what it wants.
Digest& DigestOfChecks();
// Fails rows whose digest is not as the file has it, or that it lacks: they compute something else
// than before. `file`: JSON, digests by program and row.
void CheckDigests(const std::string& program, const std::string& file, std::vector<Row>& rows);

// The arguments with arrays as tensors of the session.
std::vector<Arg> Put(Session& session, const std::vector<Arg>& args);
// An executor of the CPU that runs each node by its reference kernel. REQUIRES: a registry runs.
class ReferenceExecutor {
 public:
  explicit ReferenceExecutor(const Setup& setup);
  Session Open() const { return OpenOn(name_, true); }

 private:
  const std::string name_;
  Child child_;
};
// The results of one run of the first function, then what it emitted.
std::vector<Array> ResultsOf(const Program& program, const std::vector<Arg>& args);
// The same of a program whose nodes run one by one, by the reference kernels of the CPU, in an
// executor of its own. Neither passes nor pins count.
std::vector<Array> ByReference(const Setup& setup, Module module, const std::vector<Arg>& args);

// Random operands of a program, by parameter: the harness binds them, so that a row cannot bind
// them wrongly. Programs of equal parameters may share them.
class ProgramOperands {
 public:
  // `numbers`: parameters that are not random, by name.
  ProgramOperands(Session& session, const std::string& text,
                  const std::map<std::string, double>& numbers = {});
  // Runs `text`, which has these parameters, on the session. ByReference gives the expected
  // results.
  Timed Runs(const Setup& setup, const std::string& text, int times, double tolerance = 1e-4) const;

 private:
  struct Parameter {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    bool operator==(const Parameter&) const = default;
  };
  static std::vector<Parameter> ParametersOf(const Module& module);
  // By parameter, the same at each call.
  std::vector<Array> Values() const;

  Session& session_;
  const std::map<std::string, double> numbers_;
  std::vector<Parameter> parameters_;
  std::vector<Arg> args_;
};

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
