// NVRTC and hipRTC, with a separate process for each compilation.
#include <algorithm>
#include <cctype>

#include "kernels/jit/files.h"
#include "kernels/jit/rtc_protocol.h"
#include "kernels/jit/toolchain_parts.h"

namespace opwire::jit {
namespace {

constexpr double kStartSeconds = 30;
constexpr int64_t kAnswerBytes = 8 << 20;

// Variables by which the libraries are found, and those that suppress a sanitizer's report in a
// child that runs this program again.
std::vector<std::string> EnvironmentOfWorker() {
  return Inherited({"PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "OPWIRE_NVRTC",
                    "ROCM_PATH", "HIP_PATH", "OPWIRE_HIPRTC", "ASAN_OPTIONS", "LSAN_OPTIONS",
                    "TSAN_OPTIONS", "UBSAN_OPTIONS"});
}

// The flags that would bring in files which no key knows of.
bool ReadsFiles(std::string_view flag) {
  for (const std::string_view prefix :
       {"-I", "-i", "--include", "--pre-include", "-pre-include", "-L", "--library", "-B", "-F",
        "--sysroot", "--gcc-toolchain", "-fplugin", "-pch", "--pch", "--use-pch", "--create-pch",
        "-Xclang"}) {
    if (flag.starts_with(prefix)) return true;
  }
  return false;
}

// The first #include of the text that names a path instead of a header: no folder is searched, but
// a path would be opened. Empty: none.
std::string IncludedPath(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto skip = [&](std::string_view prefix) {
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
      const bool there = line.starts_with(prefix);
      if (there) line.remove_prefix(prefix.size());
      return there;
    };
    if (!skip("#") || !skip("include")) continue;
    skip("");
    const std::string_view name = line.substr(std::min<size_t>(1, line.size()));
    if (name.starts_with("/") || name.find("..") != name.npos) return std::string(line);
  }
  return "";
}

class Rtc final : public ProbedToolchain {
 public:
  Rtc(std::string_view name, std::string_view backend, std::string_view form,
      ToolchainOptions options)
      : name_(name), backend_(backend), form_(form), options_(std::move(options)) {}

  std::string_view name() const override { return name_; }
  std::string_view backend() const override { return backend_; }

  StatusOr<CompiledObject> Compile(const CompileRequest& request,
                                   const std::string& directory) override {
    OPWIRE_RETURN_IF_ERROR(Check(request));
    if (!facts().available()) return FailedPrecondition("{}: {}", request.name, facts().reason);
    Fields message = {std::string(kCompile), request.name, request.arch, request.text};
    message.insert(message.end(), request.flags.begin(), request.flags.end());
    const ProcessOptions process = Worker(message, directory, options_.seconds);
    OPWIRE_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess(process));
    if (!result.ok()) return Ended(request, process.argv, result);
    const auto answer = DecodeFields(result.output);
    if (!answer || answer->size() != 2) {
      return Internal("{}: {} gave no answer\ncommand: {}\n{}", request.name, name_,
                      CommandOf(process.argv), LastLines(result.errors, 20));
    }
    if (answer->front() != kDone) return Refused(request, *answer);
    return CompiledObject{directory + "/" + kObjectFile, {}, answer->back(), result.seconds};
  }

 protected:
  ToolchainFacts Probe() override {
    ToolchainFacts facts;
    const auto result =
        RunProcess(Worker({std::string(kProbe)}, "", std::min(options_.seconds, kStartSeconds)));
    if (!result.ok()) {
      facts.reason = MessageOf(result.status());
      return facts;
    }
    const auto answer = DecodeFields(result->output);
    if (!result->ok() || !answer || answer->size() < 2) {
      facts.reason = fmt::format("looking for {} by {} --jit-worker ended with {}: {}", name_,
                                 options_.worker, result->Describe(), LastLines(result->errors, 3));
    } else if (answer->front() != kDone || answer->size() < 4) {
      facts.reason = answer->at(1);
    } else {
      facts.path = answer->at(1);
      facts.version = answer->at(2);
      facts.identity = answer->at(3);
      facts.architectures.assign(answer->begin() + 4, answer->end());
    }
    return facts;
  }

 private:
  Status Check(const CompileRequest& request) const {
    OPWIRE_RETURN_IF_ERROR(CheckFlags(request));
    if (request.text.empty() || !request.sources.empty())
      return InvalidArgument("{}: {} takes one unit of text, and no files", request.name, name_);
    if (request.text.find('\0') != std::string::npos)
      return InvalidArgument("{}: the text has a NUL in it", request.name);
    if (!request.arch.starts_with(form_) &&
        !(backend_ == "cuda" && request.arch.starts_with("compute_"))) {
      return InvalidArgument("{}: architecture {}: {} expects one of the form {}...", request.name,
                             request.arch, name_, form_);
    }
    if (const std::string path = IncludedPath(request.text); !path.empty()) {
      return InvalidArgument("{}: #include {}: {} sees <opwire/gpu.h> and no other file",
                             request.name, path, name_);
    }
    for (const std::string& flag : request.flags) {
      if (ReadsFiles(flag))
        return InvalidArgument("{}: flag {}: {} sees <opwire/gpu.h> and no other file",
                               request.name, flag, name_);
    }
    return absl::OkStatus();
  }

  ProcessOptions Worker(const Fields& message, const std::string& directory, double seconds) const {
    ProcessOptions process;
    process.argv = {options_.worker, "--jit-worker", std::string(name_)};
    process.directory = directory;
    process.input = EncodeFields(message);
    process.environment = EnvironmentOfWorker();
    if (!directory.empty()) process.environment.push_back("TMPDIR=" + directory);
    process.seconds = seconds;
    process.cpu_seconds = options_.cpu_seconds;
    process.memory_bytes = options_.memory_bytes;
    process.file_bytes = options_.file_bytes;
    process.output_bytes = kAnswerBytes;
    return process;
  }

  // The error of a process that ended without an answer.
  Status Ended(const CompileRequest& request, const std::vector<std::string>& argv,
               const ProcessResult& result) const {
    const Status error = CompileError(request, name_, argv, result);
    // Its exit code does not stand for the unit.
    return absl::IsInvalidArgument(error) ? Internal("{}", MessageOf(error)) : error;
  }

  Status Refused(const CompileRequest& request, const Fields& answer) const {
    const std::string what = fmt::format("{}: {} did not compile it for {}:\n{}", request.name,
                                         name_, request.arch, LastLines(answer[1], 20));
    if (answer[0] == kRefused) return InvalidArgument("{}", what);
    if (answer[0] == kExhausted) return ResourceExhausted("{}", what);
    return Internal("{}", what);
  }

  const std::string_view name_, backend_, form_;
  const ToolchainOptions options_;
};

}  // namespace

std::unique_ptr<Toolchain> Nvrtc(ToolchainOptions options) {
  return std::make_unique<Rtc>("nvrtc", "cuda", "sm_", std::move(options));
}
std::unique_ptr<Toolchain> Hiprtc(ToolchainOptions options) {
  return std::make_unique<Rtc>("hiprtc", "hip", "gfx", std::move(options));
}

}  // namespace opwire::jit
