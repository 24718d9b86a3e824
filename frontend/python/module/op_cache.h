// Eager calls: each is a run of a program of one op, shared by calls with other sizes.
#ifndef OPWIRE_FRONTEND_PYTHON_MODULE_OP_CACHE_H_
#define OPWIRE_FRONTEND_PYTHON_MODULE_OP_CACHE_H_

#include <list>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "frontend/cpp/client.h"
#include "ir/ops/catalogue.h"

namespace opwire::python {
using namespace client;

// One operand of an op: a tensor's type, a scalar's, or nothing.
struct Given {
  DType dtype = DType::kInvalid;  // kInvalid: absent
  bool scalar = false;
  const std::vector<int64_t>* shape = nullptr;  // of a tensor
  Encoding encoding = Encoding::kDense;
};

// A call without its data. Operands are in the op definition's order, one list after the other;
// `segments` as in a node.
struct OpCall {
  const OpDef* row = nullptr;
  std::shared_ptr<const OpCatalogue> ops =
      nullptr;  // it has the op definition; null: the built-in ones
  absl::InlinedVector<Given, 4> given;
  std::vector<uint32_t> segments;  // empty if the op has no lists
  std::vector<NamedAttr> attrs;    // extents among them are constants, in `dims`
  DimTable dims;
  bool in_place = false;  // the first result replaces the first operand
};

class OpCache {
  struct Shared {
    std::string key;  // its bytes
    std::shared_ptr<const Program> program;
  };

 public:
  struct Entry {
    std::shared_ptr<const OpCatalogue>
        ops;  // of the call; entries are found by the address of its op definition
    std::list<Shared>::iterator shared;
    std::vector<int64_t> extents;  // further arguments of the program, after the given operands
    std::vector<ResultType> results;
    const Program& program() const { return *shared->program; }
  };
  // Returns the program for a call. The first call loads it in the session. Errors are those of the
  // op definition.
  StatusOr<const Entry*> Find(Session& session, const OpCall& call);

 private:
  // At most kMostPrograms are kept. If another is needed, the least recently used one is dropped: a
  // session has 256 slots, and jit's programs need some.
  static constexpr size_t kMostPrograms = 160;
  static constexpr size_t kMostEntries = 8192;
  StatusOr<Entry> Make(Session& session, const OpCall& call);
  StatusOr<std::list<Shared>::iterator> ProgramOf(Session& session, Module module);

  absl::flat_hash_map<std::string, Entry> entries_;  // by call with its sizes
  std::list<Shared> programs_;                       // the most recently used first
  absl::flat_hash_map<std::string, std::list<Shared>::iterator> by_bytes_;
  std::string key_;  // of the present call
};

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_OP_CACHE_H_
