// The checked-in table of the registers that kernels take: a change that makes one take more is
// seen, and either mended or written down.
#ifndef OPWIRE_TESTS_CONFORMANCE_COMPILE_REGISTERS_H_
#define OPWIRE_TESTS_CONFORMANCE_COMPILE_REGISTERS_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/status.h"

namespace opwire::conformance {

// The most registers a thread that any instance of a function, "norm::HeldRows", takes. Each
// request, "sm_90a=bf16" or "sm_90a" for all element types, has lines of its own. So f64's
// registers do not hide those of bf16.
class RegisterTable {
 public:
  // Lines of REQUEST FUNCTION REGISTERS; NOT_FOUND, INVALID_ARGUMENT with the line.
  static StatusOr<RegisterTable> Read(const std::string& file);
  Status Write(const std::string& file) const;

  void Note(std::string_view request, std::string_view function, int registers);
  // A sentence for each entry of `measured` that takes more than this table says, or is not in it.
  std::vector<std::string> Above(const RegisterTable& measured) const;
  // `measured` in place of all entries of its requests.
  void Replace(const RegisterTable& measured);
  // The larger of both: `measured` may have seen only some instances of a function.
  void Merge(const RegisterTable& measured);

 private:
  std::map<std::pair<std::string, std::string>, int> most_;
};

// The function template of a kernel's name, "norm::HeldRows"; generated kernels are all "fused", or
// "fused_rows".
std::string FunctionOf(std::string_view kernel);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_REGISTERS_H_
