// Linked into every test program: each case leaves the environment as it found it, so that cases of
// one process do not depend on their order.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace opwire {
namespace {

using Environment = std::map<std::string, std::string>;

Environment Current() {
  Environment variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == text.npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

class RestoreEnvironment : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { before_ = Current(); }
  void OnTestEnd(const testing::TestInfo&) override {
    for (const auto& [name, value] : Current()) {
      if (!before_.contains(name)) unsetenv(name.c_str());
    }
    for (const auto& [name, value] : before_) {
      const char* const now = std::getenv(name.c_str());
      if (now == nullptr || now != value) setenv(name.c_str(), value.c_str(), 1);
    }
  }

  Environment before_;
};

const bool appended = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new RestoreEnvironment);
  return true;
}();

}  // namespace
}  // namespace opwire
