// Comparing and rewriting quotes.
#include "tests/cli/transcript.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <re2/re2.h>

#include <fstream>

namespace opwire {

bool update_documents = false;

namespace {

// What differs from machine to machine and from run to run, by names.
std::string Stable(std::string text, const House& house) {
  for (size_t at; (at = text.find(house.runtime())) != std::string::npos;)
    text.replace(at, house.runtime().size(), "RUNTIME");
  static const std::pair<RE2, const char*> kNames[] = {
      {R"(\b[0-9.]+ (ns|us|ms|s)\b)", "TIME"},
      {R"(\b[0-9a-f]{32}\b)", kCapability},
      {R"(uid:[0-9]+)", "uid:UID"},
      {R"(needs [0-9]+ bytes of scratch memory, the executor holds [0-9]+ of [0-9]+)",
       "needs BYTES bytes of scratch memory, the executor holds BYTES of BYTES"},
      // clang-format off
      {R"(cpu x86-64-v[0-9])", "cpu ARCH"},
      {R"( by \S+ [0-9.]+\n)", " by COMPILER\n"},
      {R"(largest error of (\w+): \S+ of)", "largest error of \\1: ERROR of"},
      {R"(TIME, [0-9.]+ GB/s; [0-9.]+ x the time of a copy, [0-9.]+ x as fast)",
       "TIME, N GB/s; N x the time of a copy, N x as fast"},
      {R"((\n?y: f32.* =) .*)", "\\1 ..."},
      {R"((ID +DEVICE|cpu-0  cpu   ) .*)", "\\1  ..."},
      {R"((probabilities: .* =) .*)", "\\1 ..."},
      {R"(usable \([^)]*cores[^)]*\))", "usable (CPU)"},
      // clang-format on
  };
  for (const auto& [pattern, name] : kNames) RE2::GlobalReplace(&text, pattern, name);
  return text;
}

// Where the text of the block stands; npos: nowhere.
std::pair<size_t, size_t> Find(const std::string& document, const std::string& heading,
                               const std::string& language) {
  const std::string title = "\n## " + heading + "\n", open = "\n```" + language + "\n";
  const size_t section = document.find(title);
  if (section == std::string::npos) return {std::string::npos, 0};
  const size_t block = document.find(open, section),
               next = document.find("\n## ", section + title.size());
  if (block == std::string::npos || block > next) return {std::string::npos, 0};
  const size_t begin = block + open.size();
  return {begin, document.find("```\n", begin) - begin};
}

}  // namespace

std::string ReadDocument(const std::string& file) {
  std::ifstream in(std::string(OPWIRE_SOURCE "/") + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string BlockOf(const std::string& document, const std::string& heading,
                    const std::string& language) {
  const auto [at, size] = Find(document, heading, language);
  return at == std::string::npos ? "" : document.substr(at, size);
}

void Transcript::Quote(const std::string& command, const House::Result& result) {
  text_ += fmt::format("$ {}\n{}", command, Stable(result.output, house_));
  if (result.code != 0) text_ += fmt::format("[exit code {}]\n", result.code);
}

void Transcript::Compare(const std::string& file, const std::string& heading) const {
  std::string document = ReadDocument(file);
  const auto [at, size] = Find(document, heading, "console");
  ASSERT_NE(at, std::string::npos)
      << file << " has no console block under \"## " << heading << "\"";
  if (update_documents) {
    document.replace(at, size, text_);
    std::ofstream(std::string(OPWIRE_SOURCE "/") + file) << document;
    return;
  }
  EXPECT_EQ(document.substr(at, size), text_)
      << file << ", \"" << heading << "\": run cli_test --update and look at the difference";
}

}  // namespace opwire
