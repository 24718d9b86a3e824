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

// Architectures and functions, "sm_90a norm::HeldRows", and the most registers a thread that any of
// a function's instances takes.
class RegisterTable {
 public:
  // Lines of ARCH FUNCTION REGISTERS; NOT_FOUND, INVALID_ARGUMENT with the line.
  static StatusOr<RegisterTable> Read(const std::string& file);
  Status Write(const std::string& file) const;

  void Note(std::string_view arch, std::string_view function, int registers);
  // What of `measured` takes more than is written here, or is not: a sentence each.
  std::vector<std::string> Above(const RegisterTable& measured) const;
  // `measured` in place of what is here of its architectures.
  void Replace(const RegisterTable& measured);
  // The more of both: `measured` may have seen only some of a function's instances.
  void Merge(const RegisterTable& measured);

 private:
  std::map<std::pair<std::string, std::string>, int> most_;
};

// The function template of a kernel's name, "norm::HeldRows"; generated kernels are all "fused", or
// "fused_rows".
std::string FunctionOf(std::string_view kernel);

}  // namespace opwire::conformance

#endif  // OPWIRE_TESTS_CONFORMANCE_COMPILE_REGISTERS_H_
