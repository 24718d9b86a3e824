// GCC and Clang, started directly. If there is one source, one process compiles and links.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "kernels/abi.h"
#include "kernels/embedded.h"
#include "kernels/jit/depfile.h"
#include "kernels/jit/digest.h"
#include "kernels/jit/files.h"
#include "kernels/jit/setting.h"
#include "kernels/jit/toolchain_parts.h"

namespace opwire::jit {
namespace {

namespace fs = std::filesystem;

constexpr double kProbeSeconds = 10;
constexpr int kLogLines = 20;
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

// The path at which the shell would find the program; empty if there is none.
std::string InPath(const std::string& program) {
  const auto runs = [](const std::string& path) {
    std::error_code ignored;
    return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path, ignored);
  };
  if (program.find('/') != std::string::npos)
    return runs(program) ? fs::absolute(program).string() : "";
  const std::string path = std::getenv("PATH") ? Setting("PATH") : kDefaultPath;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string candidate = path.substr(begin, end - begin) + "/" + program;
    if (candidate[0] == '/' && runs(candidate)) return candidate;
    begin = end + 1;
  }
  return "";
}

// The value on the line "KEY=value" or "KEY: value" of a compiler's description of itself.
std::string ValueOf(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == text.npos) return "";
  const size_t begin = at + key.size();
  return std::string(text.substr(begin, text.find('\n', begin) - begin));
}

// "g++ 12.2.0": the first word after "version ", after the program's name.
std::string VersionOf(const std::string& path, std::string_view text) {
  std::string version = ValueOf(text, "version ");
  version = version.substr(0, version.find(' '));
  return fs::path(path).filename().string() + (version.empty() ? "" : " " + version);
}

// Uses size and times instead of the bytes: a compiler has 30 MB, which take 100 ms to read. An
// upgrade changes them, and the version text.
void AddFile(Digest& digest, const std::string& path) {
  std::error_code ignored;
  const fs::path real = fs::canonical(path, ignored);
  const std::optional<FileStamp> stamp = StampOf(real);
  digest.Add(real.string()).Add(stamp ? stamp->bytes : -1).Add(stamp ? stamp->modified_ns : -1);
}

bool IsC(const std::string& source) { return source.ends_with(".c"); }

// Checks that the source is a file below the folder, with a name that cannot leave it.
Status CheckSource(const CompileRequest& request, const std::string& source) {
  const bool plain = !source.empty() && source[0] != '-' && source[0] != '/' &&
                     std::none_of(source.begin(), source.end(), [](char c) {
                       return std::iscntrl(static_cast<unsigned char>(c)) != 0;
                     });
  const fs::path path(source);
  if (!plain || std::find(path.begin(), path.end(), "..") != path.end()) {
    return InvalidArgument(
        "{}: source \"{}\": expected a file in {}, named without .. and not beginning with '-' or "
        "'/'",
        request.name, source.c_str(), request.directory);
  }
  const std::string extension = path.extension();
  if (extension != ".cc" && extension != ".cpp" && extension != ".cxx" && extension != ".c") {
    return InvalidArgument("{}: source {}: expected a name that ends in .cc, .cpp, .cxx or .c",
                           request.name, source);
  }
  return absl::OkStatus();
}

Status CheckLibrary(const CompileRequest& request, const std::string& library) {
  const bool name = !library.empty() && std::isalnum(static_cast<unsigned char>(library[0])) &&
                    std::all_of(library.begin(), library.end(), [](char c) {
                      return std::isalnum(static_cast<unsigned char>(c)) ||
                             std::string_view("-_.+").find(c) != std::string_view::npos;
                    });
  return name ? absl::OkStatus()
              : InvalidArgument("{}: library \"{}\": expected a name such as m", request.name,
                                library.c_str());
}

Status Check(const CompileRequest& request) {
  OPWIRE_RETURN_IF_ERROR(CheckFlags(request));
  if (request.text.empty() == request.sources.empty())
    return InvalidArgument("{}: expected either sources or text", request.name);
  for (const std::string& source : request.sources)
    OPWIRE_RETURN_IF_ERROR(CheckSource(request, source));
  for (const std::string& library : request.libraries)
    OPWIRE_RETURN_IF_ERROR(CheckLibrary(request, library));
  return absl::OkStatus();
}

// One compilation, in a directory that it may write.
class Compilation {
 public:
  Compilation(const CompileRequest& request, const std::string& compiler,
              const ToolchainOptions& options, const std::string& directory)
      : request_(request),
        compiler_(compiler),
        options_(options),
        directory_(fs::absolute(directory)),
        object_(directory_ + "/object") {}

  StatusOr<CompiledObject> Run() {
    OPWIRE_RETURN_IF_ERROR(Prepare());
    if (sources_.size() == 1) {
      OPWIRE_RETURN_IF_ERROR(Start(Command(0, object_, /*link=*/true), Deps(0)));
    } else {
      OPWIRE_RETURN_IF_ERROR(CompileEach());
    }
    if (!StampOf(object_))
      return Internal("{}: {} ended well, but wrote no object\n{}", request_.name, compiler_,
                      LastLines(log_, kLogLines));
    return CompiledObject{object_, std::move(headers_), std::move(log_), seconds_};
  }

 private:
  // Writes our headers, and computes the sources' absolute paths.
  Status Prepare() {
    include_ = directory_ + "/include";
    for (const std::string& folder : {include_, include_ + "/opwire"})
      OPWIRE_RETURN_IF_ERROR(MakeDirectory(folder));
    for (const EmbeddedFile& header : CompiledHeaders()) {
      OPWIRE_RETURN_IF_ERROR(WriteFile(
          fmt::format("{}/opwire/{}", include_, fs::path(header.path).filename().native()),
          header.text, /*sync=*/false));
    }
    if (!request_.text.empty()) {
      sources_ = {directory_ + "/unit.cc"};
      return WriteFile(sources_[0], request_.text, /*sync=*/false);
    }
    const std::string folder = fs::absolute(request_.directory);
    for (const std::string& source : request_.sources) sources_.push_back(folder + "/" + source);
    return absl::OkStatus();
  }

  std::string Deps(size_t i) const { return fmt::format("{}/deps{}", directory_, i); }

  // Options that determine code generation, for one source or for linking.
  std::vector<std::string> Base() const {
    std::vector<std::string> argv = {compiler_,
                                     "-O3",
                                     "-fPIC",
                                     "-fvisibility=hidden",
                                     "-ffp-contract=off",
                                     "-fno-math-errno",
                                     "-march=" + request_.arch};
    argv.insert(argv.end(), request_.flags.begin(), request_.flags.end());
    return argv;
  }

  void AddLibraries(std::vector<std::string>& argv) const {
    argv.insert(argv.end(), {"-shared", "-o", object_});
    for (const std::string& library : request_.libraries) argv.push_back("-l" + library);
  }

  std::vector<std::string> Command(size_t i, const std::string& output, bool link) const {
    const std::string& source = sources_[i];
    std::vector<std::string> argv = Base();
    argv.insert(argv.begin() + 1, IsC(source) ? "-std=c17" : "-std=c++20");
    argv.insert(argv.end(), {"-I", include_});
    // __FILE__ must not reveal the build folder.
    const std::string folder = fs::path(source).parent_path();
    argv.push_back("-ffile-prefix-map=" + folder + "/=");
    if (!request_.directory.empty())
      argv.insert(argv.end(), {"-I", fs::absolute(request_.directory)});
    argv.insert(argv.end(), {"-MD", "-MF", Deps(i), "-MT", "object"});
    argv.insert(argv.end(), {"-x", IsC(source) ? "c" : "c++", source, "-x", "none"});
    if (link) {
      AddLibraries(argv);
    } else {
      argv.insert(argv.end(), {"-c", "-o", output});
    }
    return argv;
  }

  Status CompileEach() {
    std::vector<std::string> link = Base();
    for (size_t i = 0; i < sources_.size(); ++i) {
      const std::string part = fmt::format("{}/part{}.o", directory_, i);
      OPWIRE_RETURN_IF_ERROR(Start(Command(i, part, /*link=*/false), Deps(i)));
      link.push_back(part);
    }
    AddLibraries(link);
    return Start(link, "");
  }

  Status Start(const std::vector<std::string>& argv, const std::string& depfile) {
    ProcessOptions process;
    process.argv = argv;
    process.directory = directory_;
    process.environment =
        Inherited({"PATH", "LD_LIBRARY_PATH"});  // by which a compiler finds its own parts
    process.environment.insert(process.environment.end(), {"LC_ALL=C", "TMPDIR=" + directory_});
    process.seconds = options_.seconds - seconds_;
    process.cpu_seconds = options_.cpu_seconds;
    process.memory_bytes = options_.memory_bytes;
    process.file_bytes = options_.file_bytes;
    OPWIRE_ASSIGN_OR_RETURN(const ProcessResult result, RunProcess(process));
    seconds_ += result.seconds;
    if (!result.ok()) return CompileError(request_, compiler_, argv, result);
    log_ += result.errors;
    return depfile.empty() ? absl::OkStatus() : NoteHeaders(depfile);
  }

  Status NoteHeaders(const std::string& depfile) {
    const auto text = ReadFile(depfile);
    if (!text.ok())
      return Internal("{}: {} ended well, but listed no headers\n{}", request_.name, compiler_,
                      LastLines(log_, kLogLines));
    for (const std::string& name : Prerequisites(*text)) {
      const std::string path = (fs::path(directory_) / name).lexically_normal();
      const bool ours = path.starts_with(directory_ + "/");
      const bool source = std::any_of(sources_.begin(), sources_.end(), [&](const std::string& s) {
        return fs::path(s).lexically_normal() == path;
      });
      if (!ours && !source && std::find(headers_.begin(), headers_.end(), path) == headers_.end())
        headers_.push_back(path);
    }
    return absl::OkStatus();
  }

  const CompileRequest& request_;
  const std::string& compiler_;
  const ToolchainOptions& options_;
  const std::string directory_, object_;
  std::string include_;
  std::vector<std::string> sources_;
  std::vector<std::string> headers_;
  std::string log_;
  double seconds_ = 0;
};

class HostToolchain final : public ProbedToolchain {
 public:
  explicit HostToolchain(ToolchainOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return "c++"; }
  std::string_view backend() const override { return "cpu"; }

  StatusOr<CompiledObject> Compile(const CompileRequest& request,
                                   const std::string& directory) override {
    OPWIRE_RETURN_IF_ERROR(Check(request));
    if (!facts().available()) return FailedPrecondition("{}: {}", request.name, facts().reason);
    return Compilation(request, facts().path, options_, directory).Run();
  }

 protected:
  // The user's choice is taken or refused. Of the usual compilers the first that answers is taken.
  ToolchainFacts Probe() override {
    const std::string chosen =
        !options_.compiler.empty() ? options_.compiler : Setting("OPWIRE_CXX");
    std::vector<std::string> candidates = {chosen};
    if (chosen.empty()) candidates = {Setting("CXX"), "c++", "g++", "clang++"};
    std::string reasons;
    for (const std::string& candidate : candidates) {
      if (candidate.empty()) continue;
      ToolchainFacts facts = Ask(candidate);
      if (facts.available()) return facts;
      reasons += (reasons.empty() ? "" : "; ") + facts.reason;
    }
    ToolchainFacts none;
    none.reason = "no C++ compiler: " + reasons;
    return none;
  }

 private:
  // `-v` reports version, target, configuration and the places of its parts, in one process of a
  // few milliseconds.
  ToolchainFacts Ask(const std::string& program) const {
    ToolchainFacts facts;
    facts.path = InPath(program);
    if (facts.path.empty()) {
      facts.reason = program + " is not in PATH";
      return facts;
    }
    ProcessOptions process;
    process.argv = {facts.path, "-v"};
    process.environment = Inherited({"PATH", "LD_LIBRARY_PATH"});
    process.environment.push_back("LC_ALL=C");
    process.seconds = std::min(options_.seconds, kProbeSeconds);
    process.memory_bytes = options_.memory_bytes;
    process.file_bytes = options_.file_bytes;
    const auto result = RunProcess(process);
    if (!result.ok()) {
      facts.reason = MessageOf(result.status());
    } else if (!result->ok()) {
      facts.reason = fmt::format("{} -v: {}: {}", facts.path, result->Describe(),
                                 LastLines(result->errors, 3));
    } else {
      Identify(facts, result->errors + result->output);
    }
    return facts;
  }

  static void Identify(ToolchainFacts& facts, const std::string& text) {
    facts.version = VersionOf(facts.path, text);
    Digest digest;
    digest.Add(std::string_view(text)).Add(int64_t{OPW_ABI_VERSION});
    AddFile(digest, facts.path);
    const std::string wrapper =
        ValueOf(text, "COLLECT_LTO_WRAPPER=");  // GCC's own compiler is in the same folder
    if (!wrapper.empty()) AddFile(digest, fs::path(wrapper).parent_path() / "cc1plus");
    facts.identity = digest.Hex();
  }

  const ToolchainOptions options_;
};

}  // namespace

std::unique_ptr<Toolchain> HostCompiler(ToolchainOptions options) {
  return std::make_unique<HostToolchain>(std::move(options));
}

}  // namespace opwire::jit
