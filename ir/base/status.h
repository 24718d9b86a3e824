// Errors are absl::Status with the codes of the wire (which are gRPC's). This adds their makers,
// which format a message that says what was expected, what came and where, and the two macros that
// pass errors on.
//
//   return InvalidArgument("matmul: inner dimensions differ: {} x {}", a, b);
#ifndef OPWIRE_IR_BASE_STATUS_H_
#define OPWIRE_IR_BASE_STATUS_H_

#include <fmt/core.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace opwire {
using absl::Status;
using absl::StatusOr;

#define OPWIRE_STATUS_MAKER(NAME)                                               \
  template <typename... Args>                                                   \
  Status NAME(fmt::format_string<Args...> format, Args&&... args) {             \
    return absl::NAME##Error(fmt::format(format, std::forward<Args>(args)...)); \
  }
OPWIRE_STATUS_MAKER(Aborted)
OPWIRE_STATUS_MAKER(AlreadyExists)
OPWIRE_STATUS_MAKER(Cancelled)
OPWIRE_STATUS_MAKER(DataLoss)
OPWIRE_STATUS_MAKER(DeadlineExceeded)
OPWIRE_STATUS_MAKER(FailedPrecondition)
OPWIRE_STATUS_MAKER(Internal)
OPWIRE_STATUS_MAKER(InvalidArgument)
OPWIRE_STATUS_MAKER(NotFound)
OPWIRE_STATUS_MAKER(OutOfRange)
OPWIRE_STATUS_MAKER(PermissionDenied)
OPWIRE_STATUS_MAKER(ResourceExhausted)
OPWIRE_STATUS_MAKER(Unavailable)
OPWIRE_STATUS_MAKER(Unimplemented)
#undef OPWIRE_STATUS_MAKER

// absl's string_view is not std's in every build of it; these are the borders.
inline std::string MessageOf(const Status& s) { return std::string(s.message()); }
// "INVALID_ARGUMENT".
inline std::string CodeName(absl::StatusCode code) { return absl::StatusCodeToString(code); }
}  // namespace opwire

#define OPWIRE_CONCAT_(a, b) a##b
#define OPWIRE_CONCAT(a, b) OPWIRE_CONCAT_(a, b)

// Returns from the enclosing function when `expr` is an error.
#define OPWIRE_RETURN_IF_ERROR(expr)                    \
  do {                                                  \
    if (absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                   \
    }                                                   \
  } while (false)

// OPWIRE_ASSIGN_OR_RETURN(auto x, MakeX());
#define OPWIRE_ASSIGN_OR_RETURN(lhs, expr) \
  OPWIRE_ASSIGN_OR_RETURN_(OPWIRE_CONCAT(or_, __LINE__), lhs, expr)
#define OPWIRE_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)

#endif  // OPWIRE_IR_BASE_STATUS_H_
