// Interpretation of compilers' messages, and checks of their arguments.
#include "kernels/jit/toolchain_parts.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>

namespace opwire::jit {

Toolchains::Toolchains(const ToolchainOptions& options, std::string_view backend) {
  all_.push_back(HostCompiler(options));
  all_.push_back(Nvrtc(options));
  all_.push_back(Hiprtc(options));
  if (backend == "emu") all_.push_back(EmuCompiler(options));
}

Toolchain& Toolchains::Of(std::string_view backend) const {
  return **std::ranges::find_if(all_, [&](const auto& t) { return t->backend() == backend; });
}

namespace {

constexpr int kLogLines = 20;

bool ContainsAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != text.npos; });
}

// Drivers report in words that their child processes died.
absl::StatusCode CodeOf(const ProcessResult& result) {
  using absl::StatusCode;
  if (result.timed_out || result.signal == SIGXCPU) return StatusCode::kDeadlineExceeded;
  if (result.signal == SIGXFSZ) return StatusCode::kResourceExhausted;
  if (result.signal != 0) return StatusCode::kInternal;
  if (ContainsAny(result.errors, {"No space left on device", "File size limit exceeded",
                                  "File too large", "Disk quota exceeded", "out of memory",
                                  "virtual memory exhausted", "annot allocate memory"})) {
    return StatusCode::kResourceExhausted;
  }
  if (ContainsAny(result.errors, {"internal compiler error", "signal terminated program",
                                  "PLEASE submit a bug report"}))
    return StatusCode::kInternal;
  return StatusCode::kInvalidArgument;
}

bool IsName(std::string_view text) {
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) ||
                  std::string_view("-_.+:").find(c) != std::string_view::npos;
         });
}

}  // namespace

std::vector<std::string> Inherited(const std::vector<const char*>& names) {
  std::vector<std::string> out;
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) out.push_back(fmt::format("{}={}", name, value));
  }
  return out;
}

std::string_view LastLines(std::string_view text, int lines) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  size_t at = text.size();
  for (int i = 0; i < lines && at != text.npos && at > 0; ++i) at = text.rfind('\n', at - 1);
  return at == text.npos || at == 0 ? text : text.substr(at + 1);
}

std::string CommandOf(const std::vector<std::string>& argv) {
  std::string out;
  for (const std::string& argument : argv) {
    const bool plain =
        !argument.empty() && std::all_of(argument.begin(), argument.end(), [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) ||
                 std::string_view("-_./=+,:").find(c) != std::string_view::npos;
        });
    if (!out.empty()) out += ' ';
    if (plain) {
      out += argument;
      continue;
    }
    out += '\'';
    for (const char c : argument) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

// The line that states the error, for messages of one line; empty if there is none.
std::string FirstError(std::string_view log) {
  const size_t at = log.find("error:");
  if (at == log.npos) return "";
  const size_t before = log.rfind('\n', at);
  const size_t begin = before == log.npos ? 0 : before + 1;
  return std::string(log.substr(begin, std::min(log.find('\n', at), log.size()) - begin));
}

Status CompileError(const CompileRequest& request, std::string_view compiler,
                    const std::vector<std::string>& argv, const ProcessResult& result) {
  const std::string& log = result.errors.empty() ? result.output : result.errors;
  const std::string first = FirstError(log);
  return Status(CodeOf(result),
                fmt::format("{}: {} did not compile it: {}{}{}\ncommand: {}\n{}", request.name,
                            compiler, first, first.empty() ? "" : "; ", result.Describe(),
                            CommandOf(argv), LastLines(log, kLogLines)));
}

Status CheckFlags(const CompileRequest& request) {
  if (!IsName(request.arch) || request.arch == "native") {
    return InvalidArgument("{}: architecture \"{}\": expected a name such as x86-64-v3 or sm_90a",
                           request.name, request.arch);
  }
  for (const std::string& flag : request.flags) {
    if (flag.size() < 2 || flag[0] != '-' || flag.find('\0') != std::string::npos) {
      return InvalidArgument("{}: flag \"{}\": expected one argument that begins with '-'",
                             request.name, flag.c_str());
    }
    if (flag.ends_with("=native")) {
      return InvalidArgument(
          "{}: flag {}: the result must not depend on the machine that builds it; name an "
          "architecture",
          request.name, flag);
    }
  }
  return absl::OkStatus();
}

}  // namespace opwire::jit
