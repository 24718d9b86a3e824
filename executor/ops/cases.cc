// Random numbers of every type.
#include "executor/ops/cases.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>

#include "ir/base/element.h"
#include "ir/ops/extents.h"

namespace opwire::executor {
namespace {

int64_t IndexValue(int64_t extent, Values values, DType dtype, std::mt19937_64& random) {
  const int64_t most = dtype == DType::kI32 ? INT32_MAX : INT64_MAX,
                least = dtype == DType::kI32 ? INT32_MIN : INT64_MIN;
  const int64_t hostile[] = {extent, -extent - 1, most, least, extent + 4096};
  if (extent == 0 || values == Values::kHostileIndices)
    return hostile[random() % std::size(hostile)];
  return static_cast<int64_t>(random() % static_cast<uint64_t>(2 * extent)) - extent;
}

}  // namespace

StatusOr<std::vector<jit::OpCase>> CasesOf(const jit::OpManifest& op, bool thorough) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExtentNames(op.declaration));
  // An attribute without a default has the value of the first test that gives one.
  std::vector<NamedAttr> required;
  for (const AttrSpec& a : op.row.attrs) {
    for (const jit::OpCase& test : op.tests) {
      const auto given =
          std::ranges::find_if(test.attrs, [&](const NamedAttr& n) { return n.name == a.name; });
      if (a.fallback || given == test.attrs.end()) continue;
      required.push_back(*given);
      break;
    }
  }
  std::vector<jit::OpCase> cases;
  const auto make = [&](const auto& extent) {
    jit::OpCase c{.attrs = required};
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == "...")
        c.leading = {extent(i), 2};
      else
        c.extents[names[i]] = extent(i);
    }
    return c;
  };
  constexpr int64_t kPrimes[] = {7, 13, 5, 11, 3, 17};
  cases.push_back(make([&](size_t i) { return kPrimes[i % std::size(kPrimes)]; }));
  if (thorough) {
    // Many extents give many elements, so the larger sizes are smaller then.
    constexpr int64_t kLargerOfFew[] = {64, 129, 33}, kLargerOfMany[] = {9, 16, 17, 8, 5, 3};
    const std::span<const int64_t> larger = names.size() <= std::size(kLargerOfFew)
                                                ? std::span<const int64_t>(kLargerOfFew)
                                                : kLargerOfMany;
    cases.push_back(make([](size_t) { return 1; }));
    cases.push_back(make([&](size_t i) { return larger[i % larger.size()]; }));
    cases.push_back(make([&](size_t i) { return larger[(i + 1) % larger.size()]; }));
    for (size_t empty = 0; empty < names.size(); ++empty)
      cases.push_back(
          make([&](size_t i) { return i == empty ? 0 : kPrimes[i % std::size(kPrimes)]; }));
  }
  for (jit::OpCase c : op.tests) {
    for (const auto& [name, value] : cases[0].extents) c.extents.emplace(name, value);
    if (c.leading.empty()) c.leading = cases[0].leading;
    for (const NamedAttr& a : required) {
      if (std::ranges::none_of(c.attrs, [&](const NamedAttr& n) { return n.name == a.name; }))
        c.attrs.push_back(a);
    }
    cases.push_back(std::move(c));
    if (!thorough) break;
  }
  return cases;
}

std::vector<uint8_t> RandomOperand(DType dtype, const Shape& shape,
                                   std::optional<int64_t> index_extent, Values values,
                                   std::mt19937_64& random) {
  const int64_t size = DTypeBytes(dtype);
  int64_t elements = 1;
  for (int64_t e : shape) elements *= e;
  std::vector<uint8_t> bytes(static_cast<size_t>(elements * size));
  std::normal_distribution<double> normal(0, 2);
  constexpr double kSpecials[] = {std::numeric_limits<double>::quiet_NaN(),
                                  std::numeric_limits<double>::infinity(),
                                  -std::numeric_limits<double>::infinity(),
                                  0.0,
                                  -0.0,
                                  1.0};
  for (int64_t i = 0; i < elements; ++i) {
    uint64_t bits;
    if (index_extent) {
      bits = static_cast<uint64_t>(IndexValue(*index_extent, values, dtype, random));
    } else if (IsFloat(dtype)) {
      const bool special = values == Values::kSpecial && random() % 4 == 0;
      bits =
          ElementBits(dtype, special ? kSpecials[random() % std::size(kSpecials)] : normal(random));
    } else {
      const auto small = static_cast<int64_t>(random() % 17);
      bits = ElementBits(dtype, kUnsigned.Has(dtype) || dtype == DType::kBool ? small : small - 8);
    }
    std::memcpy(bytes.data() + i * size, &bits, static_cast<size_t>(size));
  }
  return bytes;
}

}  // namespace opwire::executor
