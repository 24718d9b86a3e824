// One request, one answer, and the end.
#include "kernels/jit/worker.h"

#include <fcntl.h>
#include <sodium.h>
#include <unistd.h>

#include <cstdio>

#include "kernels/jit/files.h"
#include "kernels/jit/rtc_library.h"
#include "kernels/jit/rtc_protocol.h"

namespace opwire::jit {
namespace {

enum : int { kAnswered = 0, kUsage = 2 };

std::string ReadAll(int fd) {
  std::string out;
  char buffer[65536];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;)
    out.append(buffer, static_cast<size_t>(n));
  return out;
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

Fields Failure(const Status& status, const std::string& log) {
  const std::string_view outcome = absl::IsInvalidArgument(status)     ? kRefused
                                   : absl::IsResourceExhausted(status) ? kExhausted
                                                                       : kFailed;
  return {std::string(outcome), MessageOf(status) + (log.empty() ? "" : "\n" + log)};
}

Fields Probe(const RtcLibrary& library) {
  const RtcLibraryFacts& facts = library.facts();
  Fields answer = {std::string(kDone), facts.path, facts.version, facts.identity};
  answer.insert(answer.end(), facts.architectures.begin(), facts.architectures.end());
  return answer;
}

Fields Compile(RtcLibrary& library, const Fields& request) {
  std::string log;
  const auto object = library.Compile(request[1], request[2], request[3],
                                      {request.begin() + 4, request.end()}, log);
  if (!object.ok()) return Failure(object.status(), log);
  if (Status s = WriteFile(kObjectFile, *object, /*sync=*/false); !s.ok()) return Failure(s, "");
  return {std::string(kDone), log};
}

Fields Answer(const char* kind, const Fields& request) {
  auto library = RtcLibrary::Load(kind);
  if (!library.ok()) return Failure(library.status(), "");
  return request[0] == kProbe ? Probe(**library) : Compile(**library, request);
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  const auto request = DecodeFields(ReadAll(STDIN_FILENO));
  const bool known =
      request && !request->empty() &&
      (request->front() == kProbe || (request->front() == kCompile && request->size() >= 4));
  if (argc != 3 || !known) {
    std::fprintf(stderr,
                 "%s --jit-worker nvrtc|hiprtc: compiles for GPUs what comes on standard input; "
                 "only for the executor's own use\n",
                 argv[0]);
    return kUsage;
  }
  if (sodium_init() < 0) return kUsage;
  // The library's output must not mix with the answer.
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const bool told = WriteAll(out, EncodeFields(Answer(argv[2], *request)));
  std::fflush(nullptr);
  _exit(told ? kAnswered : kUsage);  // the library's own farewell could hang or crash
}

}  // namespace opwire::jit
