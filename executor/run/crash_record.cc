// The mapped crash record.
#include "executor/run/crash_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace opwire {
namespace {

constexpr uint64_t kMagic = 0x314853415243574f;  // "OWCRASH1"

}  // namespace

StatusOr<std::unique_ptr<CrashRecord>> CrashRecord::Open(const std::string& path, uint64_t incarnation, std::string& died) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Unavailable("crash record {}: {}", path, std::strerror(errno));
  void* memory = MAP_FAILED;
  if (ftruncate(fd, sizeof(Contents)) == 0) memory = mmap(nullptr, sizeof(Contents), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return Unavailable("crash record {}: {}", path, std::strerror(errno));
  auto record = std::unique_ptr<CrashRecord>(new CrashRecord);
  record->c_ = static_cast<Contents*>(memory);
  Contents& c = *record->c_;
  died.clear();
  if (c.magic == kMagic && c.running) {
    c.program[sizeof(c.program) - 1] = 0;
    died = fmt::format("{} (node %{} of @{})", record->label(), c.node, c.program);
  }
  c = {};
  c.magic = kMagic;
  c.incarnation = incarnation;
  return record;
}

CrashRecord::~CrashRecord() {
  if (c_) munmap(c_, sizeof(Contents));
}

}  // namespace opwire
