// The mapped crash record.
#include "executor/run/crash_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>

#include "kernels/select/variant.h"

namespace opwire::executor {
namespace {

constexpr uint64_t kMagic = 0x344853415243574f;  // "OWCRASH4"

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
CrashRecord* g_faulting = nullptr;
struct sigaction g_before[std::size(kFaults)];

// Notes the signal, and restores the previous handler, so that the signal occurs again.
void OnFault(int signal) {
  if (g_faulting) g_faulting->NoteFault(signal);
  for (size_t i = 0; i < std::size(kFaults); ++i) {
    if (kFaults[i] == signal) sigaction(signal, &g_before[i], nullptr);
  }
}

}  // namespace

std::string CrashRecord::LabelAt(const Contents& c, uint64_t mark) {
  const uint64_t label = mark >> 32;
  if (label == kFused) return std::string(kFusedLabel);
  if (label >= std::min<uint64_t>(__atomic_load_n(&c.labels, __ATOMIC_ACQUIRE), kMaxLabels))
    return "copy@result";
  const char* text = reinterpret_cast<const char*>(&c + 1) + label * kLabelBytes;
  return std::string(text, strnlen(text, kLabelBytes));
}

// Reads the end of an earlier process, from a file that may hold any bytes.
Death CrashRecord::DeathIn(int fd) {
  std::vector<uint64_t> copy(kBytes / 8 + 1);
  if (pread(fd, copy.data(), kBytes, 0) != static_cast<ssize_t>(kBytes)) return {};
  Contents& c = *reinterpret_cast<Contents*>(copy.data());
  if (c.magic != kMagic || !c.running) return {};
  c.program[sizeof(c.program) - 1] = 0;
  const int32_t called = CalledOf(c.mark);
  const std::string of = called < 0 ? fmt::format("@{}", c.program)
                                    : fmt::format("function {} of @{}", called, c.program);
  return {LabelAt(c, c.mark), fmt::format("node %{} of {}", NodeOf(c.mark), of),
          static_cast<int>(c.fault)};
}

std::string Death::ToString() const {
  const std::string how = fault == SIGXCPU              ? ", for it did not return"
                          : fault == SIGTERM            ? ", for it ended the process"
                          : fault == kDeviceFaultSignal ? ", for the device failed"
                          : fault ? fmt::format(", by signal {} ({})", fault, strsignal(fault))
                                  : "";
  return any() ? fmt::format("{} ({}){}", kernel, where, how) : "";
}

void CrashRecord::CatchFaults() {
  g_faulting = this;
  static uint8_t stack[64 << 10];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof(stack);
  sigaltstack(&alternative, nullptr);
  std::atexit([] {
    if (g_faulting && g_faulting->c_->running) g_faulting->NoteFault(SIGTERM);
  });
  for (size_t i = 0; i < std::size(kFaults); ++i) {
    struct sigaction action {};
    action.sa_handler = OnFault;
    action.sa_flags = SA_ONSTACK;
    sigaction(kFaults[i], &action, &g_before[i]);
  }
}

StatusOr<std::unique_ptr<CrashRecord>> CrashRecord::Open(const std::string& path,
                                                         uint64_t incarnation, Death& death) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Unavailable("crash record {}: {}", path, std::strerror(errno));
  death = DeathIn(fd);
  // The file is emptied first, so that it begins as zeros. It is allocated, because a write to a
  // page for which a full file system has no space would kill the process.
  int error = ftruncate(fd, 0) == 0 ? posix_fallocate(fd, 0, kBytes) : errno;
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  close(fd);
  if (error == ENOSPC || error == EDQUOT)
    return ResourceExhausted("crash record {}: {} bytes do not fit: {}", path, kBytes,
                             std::strerror(error));
  if (error != 0) return Unavailable("crash record {}: {}", path, std::strerror(error));
  auto record = std::unique_ptr<CrashRecord>(new CrashRecord);
  record->c_ = static_cast<Contents*>(memory);
  record->c_->incarnation = incarnation;
  record->c_->magic = kMagic;
  return record;
}

void CrashRecord::SetLabels(const std::vector<std::string>& labels) {
  char* names = reinterpret_cast<char*>(c_ + 1);
  const size_t count = std::min(labels.size(), kMaxLabels);
  for (size_t i = c_->labels; i < count; ++i)
    std::memcpy(names + i * kLabelBytes, labels[i].data(), std::min(labels[i].size(), kLabelBytes));
  __atomic_store_n(&c_->labels, static_cast<uint32_t>(std::max<size_t>(count, c_->labels)),
                   __ATOMIC_RELEASE);
}

CrashRecord::~CrashRecord() {
  if (g_faulting == this) g_faulting = nullptr;
  if (c_) munmap(c_, kBytes);
}

}  // namespace opwire::executor
