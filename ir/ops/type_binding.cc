// Types by variable, combined.
#include "ir/ops/type_binding.h"

namespace opwire {
namespace {

constexpr size_t kMaxBindings = 256;

}  // namespace

DType TypeIn(const TypeBinding& types, const std::string& type) {
  for (const auto& [name, dtype] : types) {
    if (name == type) return dtype;
  }
  return ParseDType(type).value_or(DType::kInvalid);
}

StatusOr<std::vector<TypeBinding>> TypeBindings(const OpDef& row) {
  std::vector<TypeBinding> out{{}};
  for (const TypeVariable& v : row.variables) {
    std::vector<TypeBinding> next;
    for (const TypeBinding& have : out) {
      for (int t = 1; t < kDTypeCount; ++t) {
        if (!v.types.Has(static_cast<DType>(t))) continue;
        next.push_back(have);
        next.back().emplace_back(v.name, static_cast<DType>(t));
      }
    }
    if (next.size() > kMaxBindings)
      return ResourceExhausted("types: expected at most {} combinations, got {}", kMaxBindings,
                               next.size());
    out = std::move(next);
  }
  return out;
}

}  // namespace opwire
