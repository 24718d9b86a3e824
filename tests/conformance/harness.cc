// Guarded memory, and opw_call from a case.
#include "tests/conformance/harness.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>

namespace opwire::conformance {
namespace {

constexpr int64_t kPage = 4096;
constexpr unsigned char kMark = 0xA5;

struct Placed {
  Placed(const Extents& extents, DType type, Layout layout) : shape(extents), strides(extents.size()), dtype(type) {
    int64_t stride = layout == Layout::kGapped ? 2 : 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      const size_t axis = layout == Layout::kReversed ? i : shape.size() - 1 - i;
      strides[axis] = stride;
      stride *= shape[axis];
    }
    const int64_t elements = Count(shape);
    int64_t last = 0;
    for (size_t a = 0; a < shape.size(); ++a) last += (shape[a] - 1) * strides[a];
    memory = std::make_unique<GuardedMemory>((elements == 0 ? 0 : last + 1) * DTypeBytes(type));
    bool dense = true;
    for (int64_t a = static_cast<int64_t>(shape.size()) - 1, n = 1; a >= 0; n *= shape[a--])
      dense &= shape[a] == 1 || strides[a] == n;
    tensor = {memory->data(),
              shape.data(),
              strides.data(),
              elements,
              static_cast<uint8_t>(type),
              0,
              static_cast<uint8_t>(shape.size()),
              static_cast<uint8_t>(dense || elements == 0)};
  }

  template <typename F>
  void ForEach(const F& f) const {
    Extents index(shape.size(), 0);
    for (int64_t i = 0; i < tensor.elements; ++i, NextIndex(shape, &index)) {
      f(i, memory->data() + std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0}) * DTypeBytes(dtype));
    }
  }

  Extents shape, strides;
  DType dtype;
  std::unique_ptr<GuardedMemory> memory;
  opw_tensor tensor;
};

// Attributes as the ABI has them; `ints` keeps what they point to.
std::vector<opw_attr> AbiAttrs(const BoundCase& b, std::deque<std::vector<int64_t>>* ints) {
  std::vector<opw_attr> attrs;
  const auto integer = [](int64_t v) { return opw_attr{OPW_ATTR_INT, 0, 1, {.i = v}}; };
  for (const AttrValue& v : b.attrs) {
    opw_attr a{};
    if (const auto* i = std::get_if<int64_t>(&v)) a = integer(*i);
    if (const auto* f = std::get_if<double>(&v)) a = {OPW_ATTR_FLOAT, 0, 1, {.f = *f}};
    if (const auto* t = std::get_if<bool>(&v)) a = integer(*t);
    if (const auto* s = std::get_if<std::string>(&v))
      a = {OPW_ATTR_BYTES, 0, static_cast<int64_t>(s->size()), {.bytes = s->c_str()}};
    if (const auto* t = std::get_if<DType>(&v)) a = integer(static_cast<int64_t>(*t));
    if (const auto* d = std::get_if<Dim>(&v)) a = integer(b.c->dims->ConstantValue(*d));
    if (std::get_if<TensorType>(&v) != nullptr) a = integer(0);
    if (std::get_if<BlobRef>(&v) != nullptr)
      a = {OPW_ATTR_BYTES, 0, static_cast<int64_t>(b.c->blob.size()), {.bytes = b.c->blob.data()}};
    if (const auto* l = std::get_if<Ints>(&v)) a = {OPW_ATTR_INTS, 0, static_cast<int64_t>(l->size()), {.ints = l->data()}};
    if (const auto* l = std::get_if<Doubles>(&v)) a = {OPW_ATTR_FLOATS, 0, static_cast<int64_t>(l->size()), {.floats = l->data()}};
    if (const auto* l = std::get_if<Dims>(&v)) {
      std::vector<int64_t>& values = ints->emplace_back();
      for (Dim d : *l) values.push_back(b.c->dims->ConstantValue(d));
      a = {OPW_ATTR_INTS, 0, static_cast<int64_t>(values.size()), {.ints = values.data()}};
    }
    attrs.push_back(a);
  }
  return attrs;
}

}  // namespace

GuardedMemory::GuardedMemory(int64_t bytes) {
  const int64_t pages = (bytes + 64 + kPage - 1) / kPage * kPage;
  mapped_ = pages + kPage;
  base_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(base_, kMark, pages);
  mprotect(base_ + pages, kPage, PROT_NONE);
  data_ = base_ + pages - bytes;
}

GuardedMemory::~GuardedMemory() { munmap(base_, mapped_); }

bool GuardedMemory::MarksIntact() const {
  return std::all_of(base_, data_, [](char c) { return static_cast<unsigned char>(c) == kMark; });
}

StatusOr<BoundCase> Bind(const OpRow& row, const Case& c) {
  BoundCase b{.row = &row, .c = &c};
  OPWIRE_ASSIGN_OR_RETURN(b.attrs, ResolveAttrs(row, c.attrs, *c.dims));
  std::vector<TensorType> types(c.operands.size());
  std::vector<const TensorType*> pointers;
  for (size_t i = 0; i < types.size(); ++i) {
    types[i].dtype = c.operands[i].dtype;
    for (int64_t d : c.operands[i].shape) types[i].shape.push_back(c.dims->Constant(d));
    pointers.push_back(c.operands[i].dtype == DType::kInvalid ? nullptr : &types[i]);
  }
  OPWIRE_ASSIGN_OR_RETURN(const Inferred inferred, InferTypes(row, *c.dims, pointers, c.segments, b.attrs));
  b.result_type = inferred.results[0].dtype;
  for (Dim d : inferred.results[0].shape) b.result_shape.push_back(c.dims->ConstantValue(d));
  b.starts = {0};
  for (size_t i = 0; i < row.operands.size(); ++i) b.starts.push_back(b.starts.back() + (c.segments.empty() ? 1 : c.segments[i]));
  return b;
}

Expected ExpectedOf(const BoundCase& b) {
  const OracleCall call{b.row, b.c->operands, b.starts, b.attrs, b.c->dims.get(), b.c->blob};
  return Compute(call, Tensor{b.result_type, b.result_shape, {}});
}

Outcome RunCase(const Variant& v, const BoundCase& b, Layout layout, bool in_place, Device& device) {
  Outcome out;
  std::deque<Placed> placed;
  std::vector<opw_tensor> operands;
  for (const Tensor& t : b.c->operands) {
    if (t.dtype == DType::kInvalid) {
      operands.push_back({});
      continue;
    }
    Placed& p = placed.emplace_back(t.shape, t.dtype, layout);
    p.ForEach([&](int64_t i, char* element) { Encode(t.dtype, t.values[i], element); });
    operands.push_back(p.tensor);
  }
  Placed fresh(b.result_shape, b.result_type, Layout::kDense);
  const Placed& result = in_place ? placed.front() : fresh;
  std::deque<std::vector<int64_t>> ints;
  const std::vector<opw_attr> attrs = AbiAttrs(b, &ints);

  opw_call call{};
  call.operands = operands.data();
  call.starts = b.starts.data();
  call.results = &result.tensor;
  call.attrs = attrs.data();
  if (v.kernel.supports != nullptr) {
    if (const char* reason = v.kernel.supports(&call)) {
      out.skipped = reason;
      return out;
    }
  }
  if (v.kernel.prepare != nullptr && v.kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) {
    out.failure = "prepare failed";
    return out;
  }
  const GuardedMemory workspace((call.workspace_bytes + 63) / 64 * 64);
  call.workspace = workspace.data();
  call.runtime = device.runtime();
  if (v.kernel.run(&call) != OPW_OK) out.failure = "run failed";
  if (v.kernel.release != nullptr) v.kernel.release(call.state);
  out.flags = device.TakeFlags();
  if (!result.memory->MarksIntact() || !workspace.MarksIntact()) out.failure = "wrote before its memory";
  out.result = {b.result_type, b.result_shape, std::vector<Real>(Count(b.result_shape))};
  result.ForEach([&](int64_t i, const char* element) {
    out.result.values[i] = Decode(b.result_type, element);
    out.bytes.append(element, DTypeBytes(b.result_type));
  });
  return out;
}

}  // namespace opwire::conformance
