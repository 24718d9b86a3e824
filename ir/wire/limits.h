// The limits of an executor: one table of names and defaults. Each is a flag of opwire-executor and
// is part of every Hello. Beyond a limit, requests get RESOURCE_EXHAUSTED or INVALID_ARGUMENT.
#ifndef OPWIRE_IR_WIRE_LIMITS_H_
#define OPWIRE_IR_WIRE_LIMITS_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace opwire {

// Numbers are on the wire.
enum class LimitId : uint16_t {
  kSessions = 0,
  kSessionsPerPrincipal,
  kAttachments,
  kTensors,
  kPrograms,
  kProgramBytes,
  kNodes,
  kNesting,
  kRank,
  kAttributeBytes,
  kParameters,
  kInstances,
  kCreditRequests,
  kCreditBytes,
  kSessionMemoryPercent,
  kHostMemoryPercent,
  kLeaseSeconds,
  kSessionTtlSeconds,
  kBatchRuns,
  kTransfers,
  kGrants,
  kPackedMemoryPercent,
};
inline constexpr int kLimitCount = static_cast<int>(LimitId::kPackedMemoryPercent) + 1;

struct ExecutorLimit {
  LimitId id;
  std::string_view name;  // the flag is --limit-NAME
  int64_t fallback;
  std::string_view doc;
};

inline constexpr std::array<ExecutorLimit, kLimitCount> kExecutorLimits = {{
    // clang-format off
    {LimitId::kSessions, "sessions", 256, "sessions in all"},
    {LimitId::kSessionsPerPrincipal, "sessions-per-principal", 16, "sessions of one principal"},
    {LimitId::kAttachments, "attachments", 64, "clients attached to one session at once"},
    {LimitId::kTensors, "tensors", 65536, "tensors of one session"},
    {LimitId::kPrograms, "programs", 256, "program slots of one session; all sessions together may hold 16 times as many different programs"},
    {LimitId::kProgramBytes, "program-bytes", 64 << 20, "bytes of one program"},
    {LimitId::kNodes, "nodes", 65536, "nodes of one program"},
    {LimitId::kNesting, "nesting", 32, "functions that call one another"},
    {LimitId::kRank, "rank", 16, "dimensions of a tensor"},
    {LimitId::kAttributeBytes, "attribute-bytes", 1 << 20, "bytes of one program's attributes, constants apart"},
    {LimitId::kParameters, "parameters", 4096, "parameters and results of a function"},
    {LimitId::kInstances, "instances", 64, "bindings of sizes kept ready for one function"},
    {LimitId::kCreditRequests, "credit-requests", 256, "requests in flight of one attachment"},
    {LimitId::kCreditBytes, "credit-bytes", 64 << 20, "bytes of requests in flight of one attachment"},
    {LimitId::kSessionMemoryPercent, "session-memory-percent", 50, "of the device's memory that one session may hold"},
    {LimitId::kHostMemoryPercent, "host-memory-percent", 80, "of the host's available memory that the executor may hold"},
    {LimitId::kLeaseSeconds, "lease-seconds", 30, "after which a client that was lost gives up an unnamed session"},
    {LimitId::kSessionTtlSeconds, "session-ttl-seconds", 3600, "that a named session lives without clients"},
    {LimitId::kBatchRuns, "batch-runs", 256, "runs of one batch"},
    {LimitId::kTransfers, "transfers", 1024, "bulk transfers and views open at once in one session"},
    {LimitId::kGrants, "grants", 1024, "tensors that one session grants to others at once"},
    {LimitId::kPackedMemoryPercent, "packed-memory-percent", 25, "of what the executor may hold, for copies of weights in the order that CPU kernels read fastest; they make room for tensors; 0: none"},
    // clang-format on
}};

class ExecutorLimits {
 public:
  constexpr ExecutorLimits() {
    for (int i = 0; i < kLimitCount; ++i) values_[i] = kExecutorLimits[i].fallback;
  }
  constexpr int64_t operator[](LimitId id) const { return values_[static_cast<size_t>(id)]; }
  constexpr int64_t& operator[](LimitId id) { return values_[static_cast<size_t>(id)]; }

 private:
  std::array<int64_t, kLimitCount> values_{};
};

}  // namespace opwire

#endif  // OPWIRE_IR_WIRE_LIMITS_H_
