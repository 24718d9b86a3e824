// index_put of dense tensors. Each range of y's places reads all of the index, in order. So the
// last of several values for one place is used, whatever the number of threads.
#include <atomic>

#include "kernels/ops/families.h"
#include "kernels/ops/shape/put_places.h"
#include "kernels/ops/shape/runs.h"
#include "kernels/ops/shape/shape.h"

namespace opwire::ops::shape {
namespace {

constexpr int64_t kGrain = 8192;  // places per range that are looked up

const char* SupportsDensePut(const opw_call* c) {
  return AllDense(c, static_cast<int>(c->starts[3])) ? nullptr : "needs dense tensors";
}

int Prepare(const opw_call* c, void**, int64_t* workspace_bytes) {
  *workspace_bytes = PutPlaces(c).puts * static_cast<int64_t>(sizeof(int64_t));
  return OPW_OK;
}

// Whether all are in x.
bool FindAll(const opw_call* c, const PutPlaces& p, int64_t* places) {
  std::atomic<bool> inside = true;
  ParallelFor(c, p.puts, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      places[i] = p.Find(c, i);
      if (places[i] < 0) inside.store(false, std::memory_order_relaxed);
    }
  });
  return inside.load();
}

int IndexPut(const opw_call* c) {
  const opw_tensor &x = Operand(c, 0), &src = Operand(c, 1), &y = c->results[0];
  const PutPlaces p(c);
  int64_t* const places = static_cast<int64_t*>(c->workspace);
  if (y.elements == 0) return OPW_OK;
  const bool sets = src.elements > 0 && FindAll(c, p, places) && !Stopped(c);
  if (y.data != x.data) CopyRuns(c, At(y, 0), 1, BytesOf(y), 0, [&](int64_t) { return At(x, 0); });
  if (!sets) return OPW_OK;
  // Rows are split by columns first, which costs nothing, then by the places of y, for each of
  // which all are looked at.
  const int64_t element = DTypeBytes(TypeOf(y)), row = p.inner * element,
                blocks = (row - 1) / kRangeBytes + 1, units = p.outer * blocks,
                ranges = std::clamp<int64_t>(p.puts * std::min(row, kRangeBytes) / kRangeBytes, 1,
                                             std::max<int64_t>(1, c->runtime->threads / units)),
                part = (p.extent - 1) / ranges + 1;
  const auto put = [&](auto bytes_of_run) {
    const int64_t each = p.puts * std::min(row, kRangeBytes);
    ParallelFor(c, units * ranges, std::max<int64_t>(1, kRangeBytes / each),
                [&](int64_t begin, int64_t end) {
                  for (int64_t unit = begin; unit < end; ++unit) {
                    const int64_t o = unit / ranges / blocks,
                                  column = unit / ranges % blocks * kRangeBytes,
                                  first = unit % ranges * part,
                                  n = std::min(part, p.extent - first);
                    const char* const from = At(src, o * p.puts * p.inner) + column;
                    char* const to = At(y, o * p.extent * p.inner) + column;
                    for (int64_t i = 0; i < p.puts; ++i) {
                      if (i % kGrain == kGrain - 1 && Stopped(c)) return;
                      const int64_t at = places[i];
                      if (at - first < 0 || at - first >= n) continue;
                      std::memcpy(to + at * row, from + i * row, bytes_of_run(column));
                    }
                  }
                });
  };
  // Single elements are copied by one instruction.
  if (p.inner == 1)
    VisitBits(element,
              [&](auto tag) { put([](int64_t) { return sizeof(typename decltype(tag)::Type); }); });
  else
    put([&](int64_t column) { return static_cast<size_t>(std::min(row - column, kRangeBytes)); });
  return OPW_OK;
}

}  // namespace

void AddIndexPut(VariantTable& table, const Isa& isa) {
  AddProduction(table, isa, "index_put", "generic", "", 0, kAll,
                {OPW_ABI_VERSION, OPW_DETERMINISTIC | OPW_INPLACE, SupportsDensePut, Prepare,
                 nullptr, IndexPut});
}

}  // namespace opwire::ops::shape
