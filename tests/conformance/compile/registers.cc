// The table of registers as a file of lines.
#include "tests/conformance/compile/registers.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace opwire::conformance {

StatusOr<RegisterTable> RegisterTable::Read(const std::string& file) {
  std::ifstream in(file);
  if (!in) return NotFound("{} cannot be read", file);
  RegisterTable table;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line);
    std::string request, function;
    int registers = 0;
    if (!(words >> request >> function >> registers))
      return InvalidArgument("{}:{}: expected REQUEST FUNCTION REGISTERS, got \"{}\"", file, number,
                             line);
    table.Note(request, function, registers);
  }
  return table;
}

Status RegisterTable::Write(const std::string& file) const {
  std::ofstream out(file);
  for (const auto& [key, registers] : most_)
    out << fmt::format("{} {} {}\n", key.first, key.second, registers);
  if (!out.flush()) return Internal("{} cannot be written", file);
  return absl::OkStatus();
}

void RegisterTable::Note(std::string_view request, std::string_view function, int registers) {
  int& most = most_[{std::string(request), std::string(function)}];
  most = std::max(most, registers);
}

std::vector<std::string> RegisterTable::Above(const RegisterTable& measured) const {
  std::vector<std::string> out;
  for (const auto& [key, registers] : measured.most_) {
    const auto it = most_.find(key);
    if (it == most_.end())
      out.push_back(fmt::format("{} for {} is not in the table: it takes {} registers", key.second,
                                key.first, registers));
    else if (registers > it->second)
      out.push_back(fmt::format("{} for {}: at most {} registers in the table, now {}", key.second,
                                key.first, it->second, registers));
  }
  return out;
}

void RegisterTable::Replace(const RegisterTable& measured) {
  std::erase_if(most_, [&](const auto& entry) {
    const auto it = measured.most_.lower_bound({entry.first.first, ""});
    return it != measured.most_.end() && it->first.first == entry.first.first;
  });
  Merge(measured);
}

void RegisterTable::Merge(const RegisterTable& measured) {
  for (const auto& [key, registers] : measured.most_) Note(key.first, key.second, registers);
}

std::string FunctionOf(std::string_view kernel) {
  if (!kernel.starts_with("kernels/")) {
    for (const std::string_view kind :
         {"fused_rows", "fused_columns", "fused_products", "fused_epilogue"}) {
      if (kernel.starts_with(kind)) return std::string(kind);
    }
    return "fused";
  }
  kernel.remove_prefix(std::min(kernel.size(), kernel.find(' ') + 1));
  return std::string(kernel.substr(0, kernel.find_first_of("< ")));
}

}  // namespace opwire::conformance
