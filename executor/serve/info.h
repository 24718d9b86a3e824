// The facts that an executor reports, as JSON, for `opwire ops`, `explain`, `report`, `sessions`
// and `top`.
#ifndef OPWIRE_EXECUTOR_SERVE_INFO_H_
#define OPWIRE_EXECUTOR_SERVE_INFO_H_

#include <string>

#include "executor/serve/core.h"

namespace opwire::executor {

class InfoWriter {
 public:
  explicit InfoWriter(const Core& core) : core_(core) {}

  // Topics: "report", "ops", "explain" (argument: an op, and an element type), "sessions" and
  // "grants" (the principal's own), "stats". "declarations" are of the token's session. "plan" is
  // of a program in a slot of the token's attachment; argument: slot, function, and a size for each
  // of its module's dimensions. NOT_FOUND for another topic or an op that is not in the catalogue,
  // with the nearest names.
  StatusOr<std::string> Write(const std::string& principal, const fb::Info& info) const;

 private:
  std::string Report() const;
  std::string Ops() const;
  StatusOr<std::string> Explain(const std::string& op, DType dtype) const;
  std::string Sessions(const std::string& principal) const;
  // {"count": of all, "grants": the first of them, as many as fit into a message}.
  std::string Grants(const std::string& principal) const;
  std::string Stats() const;
  StatusOr<std::string> Plan(const std::string& principal, const fb::Info& info) const;
  StatusOr<std::string> Declarations(const std::string& principal,
                                     const flatbuffers::Vector<uint8_t>* token) const;

  const Core& core_;
};

// The op list for a registry: every op definition that has a variant for this device, with its
// supported element types.
std::vector<std::unique_ptr<fb::OpEntryT>> OpEntries(const KernelSet& kernels);

}  // namespace opwire::executor

#endif  // OPWIRE_EXECUTOR_SERVE_INFO_H_
