// Which executor a session goes to, from what the registry knows: those that can run and hold it,
// then labels, then the least queued time. `opwire explain --placement` prints the same list.
#ifndef OPWIRE_FRONTEND_CPP_PLACEMENT_H_
#define OPWIRE_FRONTEND_CPP_PLACEMENT_H_

#include <memory>
#include <string>
#include <vector>

#include "frontend/cpp/client.h"
#include "ir/ops/declaration.h"

namespace opwire::client {

struct OpFacts {
  std::string name;
  int version = 1;
  DTypeSet dtypes;
  std::vector<std::string> variants;
  std::string declaration;  // of an op that is not built in, as a JSON list of one
};

struct ExecutorFacts {
  std::string id, device, device_name, arch, control_endpoint;
  std::string host;  // that is reached by ssh, as the address names it; empty: none
  uint64_t incarnation = 0;
  int64_t memory_bytes = 0, free_memory = 0;
  int compute_units = 0;
  std::vector<std::string> labels;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<OpFacts> ops;  // where asked for
  uint32_t sessions = 0, queued = 0;
  int64_t queued_ns = 0;
  int64_t busy_ms = 0;  // 0: idle
  std::string running;  // the op that runs
  uint64_t runs = 0;
  bool insecure = false;
};

struct PlacementCandidate {
  const ExecutorFacts* executor;
  bool fits = false;
  std::string reason;  // why it is chosen, comes later, or cannot take it
  absl::StatusCode code = absl::StatusCode::kUnavailable;  // of that reason
};

// The built-in ops and those that the executors offer; of two with one name the first executor's.
// Executors need their ops.
std::shared_ptr<const OpCatalogue> CatalogueOf(const std::vector<ExecutorFacts>& executors);

// Best first; those that cannot take the session last, with the reason. Executors need their ops
// where a program is given.
std::vector<PlacementCandidate> Place(const std::vector<ExecutorFacts>& executors,
                                      const SessionOptions& options);

}  // namespace opwire::client

#endif  // OPWIRE_FRONTEND_CPP_PLACEMENT_H_
