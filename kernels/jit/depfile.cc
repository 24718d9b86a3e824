// "target: file file \<newline> file"; in names a space is "\ ", a # is "\#", a $ is "$$".
#include "kernels/jit/depfile.h"

namespace opwire::jit {

std::vector<std::string> Prerequisites(std::string_view depfile) {
  const size_t colon = depfile.find(": ");
  std::vector<std::string> out;
  if (colon == depfile.npos) return out;
  std::string name;
  const auto end_name = [&] {
    if (!name.empty()) out.push_back(std::move(name));
    name.clear();
  };
  for (size_t i = colon + 1; i < depfile.size(); ++i) {
    const char c = depfile[i], next = i + 1 < depfile.size() ? depfile[i + 1] : '\0';
    if (c == '\\' && next == '\n') {
      end_name();
      ++i;
    } else if ((c == '\\' && (next == ' ' || next == '#')) || (c == '$' && next == '$')) {
      name += next;
      ++i;
    } else if (c == ' ' || c == '\t') {
      end_name();
    } else if (c == '\n') {
      break;
    } else {
      name += c;
    }
  }
  end_name();
  return out;
}

}  // namespace opwire::jit
