// Eager calls: each is a run of a program of one op, which calls of other sizes share.
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

// What an op is given in one place: a tensor's type, a scalar's, or nothing.
struct Given {
  DType dtype = DType::kInvalid;  // kInvalid: absent
  bool scalar = false;
  const std::vector<int64_t>* shape = nullptr;  // of a tensor
  Encoding encoding = Encoding::kDense;
};

// A call without its data. Operands in the row's order, one list after the other; `segments` as a
// node has them.
struct OpCall {
  const OpRow* row = nullptr;
  std::shared_ptr<const OpCatalogue> ops = nullptr;  // that has the row; null: the built-in ones
  absl::InlinedVector<Given, 4> given;
  std::vector<uint32_t> segments;  // empty where the row has no lists
  std::vector<NamedAttr> attrs;    // extents among them are of constants, in `dims`
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
    std::shared_ptr<const OpCatalogue> ops;  // of the call, by whose row's address it is found
    std::list<Shared>::iterator shared;
    std::vector<int64_t> extents;  // arguments of the program behind those that are given
    std::vector<ResultType> results;
    const Program& program() const { return *shared->program; }
  };
  // The program for a call, loaded in the session at its first. Errors are those of the op's row.
  StatusOr<const Entry*> Find(Session& session, const OpCall& call);

 private:
  // Of at most kMostPrograms, the one used longest ago goes when another is needed: a session has
  // 256 slots, and jit's programs need some.
  static constexpr size_t kMostPrograms = 160;
  static constexpr size_t kMostEntries = 8192;
  StatusOr<Entry> Make(Session& session, const OpCall& call);
  StatusOr<std::list<Shared>::iterator> ProgramOf(Session& session, Module module);

  absl::flat_hash_map<std::string, Entry> entries_;  // by call with its sizes
  std::list<Shared> programs_;                       // the one used last first
  absl::flat_hash_map<std::string, std::list<Shared>::iterator> by_bytes_;
  std::string key_;  // of the call at hand
};

}  // namespace opwire::python

#endif  // OPWIRE_FRONTEND_PYTHON_MODULE_OP_CACHE_H_
