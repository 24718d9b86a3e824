// Guard pages, and a signal handler that knows them.
#include "executor/ops/guarded.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace opwire::executor {
namespace {

constexpr int64_t kPage = 4096;
constexpr uint8_t kPattern = 0xa5;
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// What the handler reads: made before the kernel runs, since the handler may not allocate.
struct Region {
  const uint8_t *map, *data;
  int64_t map_bytes, bytes;
  std::string name;
};
struct {
  std::string what;
  std::vector<Region> regions;
  bool active = false;
  int descriptor = -1;
} g_watched;

void Say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(g_watched.descriptor, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void SayNumber(int64_t n) {
  char digits[24];
  char* at = digits + sizeof(digits);
  do {
    *--at = static_cast<char>('0' + n % 10);
    n /= 10;
  } while (n > 0);
  Say({at, static_cast<size_t>(digits + sizeof(digits) - at)});
}

std::string_view NameOf(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "a segmentation fault";
    case SIGBUS:
      return "a bus error";
    case SIGFPE:
      return "an arithmetic fault";
    case SIGILL:
      return "an instruction that this processor lacks";
    case SIGABRT:
      return "an abort";
    default:
      return "a signal";
  }
}

void OnFault(int signal, siginfo_t* info, void*) {
  Say("{\"failure\": \"");
  Say(g_watched.active ? std::string_view(g_watched.what) : std::string_view("outside a kernel"));
  Say(": ");
  const auto* at = static_cast<const uint8_t*>(info->si_addr);
  const Region* hit = nullptr;
  if (signal == SIGSEGV || signal == SIGBUS) {
    for (const Region& r : g_watched.regions) {
      if (at >= r.map && at < r.map + r.map_bytes) hit = &r;
    }
  }
  if (!hit) {
    Say(NameOf(signal));
  } else if (at < hit->data) {
    Say("it left ");
    Say(hit->name);
    Say(", ");
    SayNumber(hit->data - at);
    Say(" bytes before its beginning");
  } else if (at >= hit->data + hit->bytes) {
    Say("it left ");
    Say(hit->name);
    Say(", ");
    SayNumber(at - (hit->data + hit->bytes));
    Say(" bytes behind its end");
  } else {
    Say("it wrote ");
    Say(hit->name);
    Say(" at byte ");
    SayNumber(at - hit->data);
  }
  Say("\"}\n");
  _exit(1);
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ')
      out += '\'';
    else
      out += c;
  }
  return out;
}

}  // namespace

StatusOr<GuardedBuffer> GuardedBuffer::Make(std::string name, int64_t bytes, int64_t alignment,
                                            Guard guard) {
  GuardedBuffer b;
  b.name_ = std::move(name);
  b.size_ = bytes;
  const int64_t inner = (bytes + alignment + kPage - 1) / kPage * kPage;
  b.map_bytes_ = inner + 2 * kPage;
  void* map = mmap(nullptr, static_cast<size_t>(b.map_bytes_), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return ResourceExhausted("{}: {} bytes", b.name_, bytes);
  b.map_ = static_cast<uint8_t*>(map);
  std::memset(b.map_ + kPage, kPattern, static_cast<size_t>(inner));
  mprotect(b.map_, kPage, PROT_NONE);
  mprotect(b.map_ + kPage + inner, kPage, PROT_NONE);
  b.data_ = b.map_ + kPage;
  if (guard == Guard::kBehind) b.data_ += (inner - bytes) / alignment * alignment;
  return b;
}

GuardedBuffer::~GuardedBuffer() {
  if (map_) munmap(map_, static_cast<size_t>(map_bytes_));
}

GuardedBuffer::GuardedBuffer(GuardedBuffer&& other) noexcept { *this = std::move(other); }

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void GuardedBuffer::Seal() {
  mprotect(map_ + kPage, static_cast<size_t>(map_bytes_ - 2 * kPage), PROT_READ);
}

std::string GuardedBuffer::Overrun() const {
  const uint8_t *begin = map_ + kPage, *end = map_ + map_bytes_ - kPage;
  const auto untouched = [](uint8_t b) { return b == kPattern; };
  if (const uint8_t* at =
          std::find_if_not(static_cast<const uint8_t*>(data_ + size_), end, untouched);
      at != end) {
    return fmt::format("it wrote {} bytes behind the end of {}", at - (data_ + size_), name_);
  }
  if (!std::all_of(begin, static_cast<const uint8_t*>(data_), untouched))
    return fmt::format("it wrote before the beginning of {}", name_);
  return "";
}

FaultReporter::FaultReporter(int descriptor) {
  g_watched.descriptor = descriptor;
  static uint8_t stack[64 << 10];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof(stack);
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
  for (int s : kSignals) sigaction(s, &action, nullptr);
}

FaultReporter::~FaultReporter() {
  for (int s : kSignals) signal(s, SIG_DFL);
}

FaultReporter::Watched::Watched(FaultReporter&, const std::string& what,
                                const std::vector<const GuardedBuffer*>& buffers) {
  g_watched.what = Escaped(what);
  g_watched.regions.clear();
  for (const GuardedBuffer* b : buffers)
    g_watched.regions.push_back({b->map_, b->data_, b->map_bytes_, b->size_, Escaped(b->name_)});
  g_watched.active = true;
}

FaultReporter::Watched::~Watched() { g_watched.active = false; }

}  // namespace opwire::executor
