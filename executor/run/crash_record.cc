// The mapped crash record.
#include "executor/run/crash_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace opwire {
namespace {

constexpr uint64_t kMagic = 0x324853415243574f;  // "OWCRASH2"

}  // namespace

std::string CrashRecord::LabelAt(const Contents& c, size_t bytes, uint64_t mark) {
  const uint64_t label = mark >> 32;
  const size_t at = sizeof(Contents) + label * kLabelBytes;
  if (label >= c.labels || at + kLabelBytes > bytes) return "copy@result";
  const char* text = reinterpret_cast<const char*>(&c) + at;
  return std::string(text, strnlen(text, kLabelBytes));
}

// What an earlier process was at, from a file that may hold anything.
std::string CrashRecord::Died(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0 || st.st_size < static_cast<off_t>(sizeof(Contents)) || st.st_size > 1 << 20) return "";
  std::vector<uint64_t> copy(static_cast<size_t>(st.st_size) / 8 + 1);
  if (pread(fd, copy.data(), static_cast<size_t>(st.st_size), 0) != st.st_size) return "";
  Contents& c = *reinterpret_cast<Contents*>(copy.data());
  if (c.magic != kMagic || !c.running) return "";
  c.program[sizeof(c.program) - 1] = 0;
  return fmt::format("{} (node %{} of @{})", LabelAt(c, static_cast<size_t>(st.st_size), c.mark), static_cast<uint32_t>(c.mark), c.program);
}

StatusOr<std::unique_ptr<CrashRecord>> CrashRecord::Open(const std::string& path, uint64_t incarnation, const std::vector<std::string>& labels,
                                                         std::string& died) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Unavailable("crash record {}: {}", path, std::strerror(errno));
  died = Died(fd);
  const size_t bytes = sizeof(Contents) + labels.size() * kLabelBytes;
  void* memory = MAP_FAILED;
  // Emptied first, so that it begins as zeros.
  if (ftruncate(fd, 0) == 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (memory == MAP_FAILED) return Unavailable("crash record {}: {}", path, std::strerror(errno));
  auto record = std::unique_ptr<CrashRecord>(new CrashRecord);
  record->c_ = static_cast<Contents*>(memory);
  record->bytes_ = bytes;
  char* names = static_cast<char*>(memory) + sizeof(Contents);
  for (size_t i = 0; i < labels.size(); ++i) std::memcpy(names + i * kLabelBytes, labels[i].data(), std::min(labels[i].size(), kLabelBytes));
  record->c_->labels = static_cast<uint32_t>(labels.size());
  record->c_->incarnation = incarnation;
  record->c_->magic = kMagic;
  return record;
}

CrashRecord::~CrashRecord() {
  if (c_) munmap(c_, bytes_);
}

}  // namespace opwire
