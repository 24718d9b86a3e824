// Memory with guards around it, and opw_call from a case.
#include "tests/conformance/harness.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>

#include "kernels/ops/gpu/families.h"
#include "kernels/select/failure.h"

namespace opwire::conformance {
namespace {

constexpr int64_t kPage = 4096;
constexpr unsigned char kMark = 0xA5;

constexpr int64_t kGuard = 256;

// `bytes` bytes that end at an inaccessible page, with marks before the first.
class GuardedMemory {
 public:
  explicit GuardedMemory(int64_t bytes) {
    const int64_t pages = (bytes + 64 + kPage - 1) / kPage * kPage;
    mapped_ = pages + kPage;
    base_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(base_, kMark, pages);
    mprotect(base_ + pages, kPage, PROT_NONE);
    data_ = base_ + pages - bytes;
  }
  ~GuardedMemory() { munmap(base_, mapped_); }
  GuardedMemory(const GuardedMemory&) = delete;

  char* data() const { return data_; }
  bool MarksIntact() const { return AllMarks(base_, data_); }
  static bool AllMarks(const char* begin, const char* end) {
    return std::all_of(begin, end, [](char c) { return static_cast<unsigned char>(c) == kMark; });
  }

 private:
  char* base_;
  int64_t mapped_;
  char* data_;
};

// `bytes` bytes of a device, aligned as an element at their end is, filled with marks, and the
// host's image of them. If the host reads and writes the device's memory, both are the same memory.
class Memory {
 public:
  Memory(Device& device, int64_t bytes) : device_(device), bytes_(bytes) {
    if (device.info().host_memory) {
      guarded_.emplace(bytes);
      return;
    }
    image_.assign(static_cast<size_t>((kGuard + bytes + 255) / 256 * 256 + kGuard),
                  static_cast<char>(kMark));
    const StatusOr<void*> memory =
        device.Allocate(static_cast<int64_t>(image_.size()), MemoryKind::kDevice);
    if (memory.ok())
      memory_ = static_cast<char*>(*memory);
    else
      failure_ = memory.status();
  }
  ~Memory() { device_.Free(memory_); }
  Memory(const Memory&) = delete;

  // host(): memory that the host writes before ToDevice, and reads after ToHost. data(): its place
  // on the device.
  char* host() const {
    return guarded_ ? guarded_->data() : const_cast<char*>(image_.data()) + Offset();
  }
  char* data() const { return guarded_ ? guarded_->data() : memory_ + Offset(); }

  Status ToDevice() {
    if (guarded_ || !failure_.ok()) return failure_;
    return device_.Copy(memory_, image_.data(), static_cast<int64_t>(image_.size()), 0);
  }
  // REQUIRES: the device's work has ended before the caller looks at the memory.
  Status ToHost() {
    return guarded_ ? absl::OkStatus()
                    : device_.Copy(image_.data(), memory_, static_cast<int64_t>(image_.size()), 0);
  }
  bool MarksIntact() const {
    if (guarded_) return guarded_->MarksIntact();
    return GuardedMemory::AllMarks(image_.data(), host()) &&
           GuardedMemory::AllMarks(host() + bytes_, image_.data() + image_.size());
  }

 private:
  int64_t Offset() const { return static_cast<int64_t>(image_.size()) - kGuard - bytes_; }

  Device& device_;
  const int64_t bytes_;
  std::optional<GuardedMemory> guarded_;
  std::vector<char> image_;  // with the guards
  char* memory_ = nullptr;
  Status failure_;
};

// A tensor's sizes, in the form of a call.
struct Laid {
  // Encoded tensors are dense.
  Laid(const Tensor& t, Layout wanted) : shape(t.shape), strides(t.shape.size()), dtype(t.dtype) {
    const Layout layout = t.encoding == Encoding::kDense ? wanted : Layout::kDense;
    int64_t stride = layout == Layout::kGapped ? 2 : 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      const size_t axis = layout == Layout::kReversed ? i : shape.size() - 1 - i;
      strides[axis] = stride;
      stride *= shape[axis];
    }
    const int64_t elements = Count(shape);
    int64_t last = 0;
    for (size_t a = 0; a < shape.size(); ++a) last += (shape[a] - 1) * strides[a];
    bytes = t.encoding == Encoding::kDense ? (elements == 0 ? 0 : last + 1) * DTypeBytes(dtype)
                                           : static_cast<int64_t>(t.encoded.size());
    bool dense = true;
    for (int64_t a = static_cast<int64_t>(shape.size()) - 1, n = 1; a >= 0; n *= shape[a--])
      dense &= shape[a] == 1 || strides[a] == n;
    tensor = {nullptr,
              shape.data(),
              strides.data(),
              elements,
              static_cast<uint8_t>(dtype),
              static_cast<uint8_t>(t.encoding),
              static_cast<uint8_t>(shape.size()),
              static_cast<uint8_t>(dense || elements == 0)};
  }
  Laid(const Laid&) = delete;

  Extents shape, strides;
  DType dtype;
  int64_t bytes;
  opw_tensor tensor;
};

struct Placed : Laid {
  Placed(Device& device, const Tensor& t, Layout layout)
      : Laid(t, layout), memory(std::make_unique<Memory>(device, bytes)) {
    tensor.data = memory->data();
  }

  template <typename F>
  void ForEach(const F& f) const {
    if (tensor.contiguous) {
      for (int64_t i = 0; i < tensor.elements; ++i) f(i, memory->host() + i * DTypeBytes(dtype));
      return;
    }
    Extents index(shape.size(), 0);
    for (int64_t i = 0; i < tensor.elements; ++i, NextIndex(shape, &index)) {
      f(i, memory->host() +
               std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0}) *
                   DTypeBytes(dtype));
    }
  }

  std::unique_ptr<Memory> memory;
};

// Returns the list in an environment variable.
std::vector<std::string> Listed(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  std::vector<std::string> out;
  std::string text = value != nullptr && *value != '\0' ? value : otherwise;
  while (!text.empty()) {
    const size_t end = text.find(',');
    out.push_back(text.substr(0, end));
    text.erase(0, end == text.npos ? end : end + 1);
  }
  return out;
}

// Returns attributes in the form of the ABI; `ints` keeps the memory that they point to.
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
    if (const auto* l = std::get_if<Ints>(&v))
      a = {OPW_ATTR_INTS, 0, static_cast<int64_t>(l->size()), {.ints = l->data()}};
    if (const auto* l = std::get_if<Doubles>(&v))
      a = {OPW_ATTR_FLOATS, 0, static_cast<int64_t>(l->size()), {.floats = l->data()}};
    if (const auto* l = std::get_if<Dims>(&v)) {
      std::vector<int64_t>& values = ints->emplace_back();
      for (Dim d : *l) values.push_back(b.c->dims->ConstantValue(d));
      a = {OPW_ATTR_INTS, 0, static_cast<int64_t>(values.size()), {.ints = values.data()}};
    }
    attrs.push_back(a);
  }
  return attrs;
}

// Returns the operand whose memory result `result` uses in place; -1: it has its own.
int SharedBy(const BoundCase& b, size_t result) {
  const std::vector<uint32_t> starts = b.row->ResultStarts(b.starts);
  const bool lists = std::ranges::any_of(b.row->results, &ResultSpec::variadic);
  if (!lists) return result == 0 ? 0 : -1;
  const auto r = std::ranges::upper_bound(starts, result) - starts.begin() - 1;
  if (!b.row->results[r].variadic) return -1;
  for (int before = 0; before < r; ++before) {  // that has the list's memory
    if (b.row->results[before].variadic &&
        b.row->LengthOf(before) == b.row->LengthOf(static_cast<int>(r)))
      return -1;
  }
  return static_cast<int>(b.starts[b.row->LengthOf(static_cast<int>(r))] + result - starts[r]);
}

opw_call CallOf(const Variant& v, const BoundCase& b, const std::vector<opw_tensor>& operands,
                const std::vector<opw_tensor>& results, const std::vector<opw_attr>& attrs) {
  opw_call call{};
  call.context = v.kernel.context;
  call.operands = operands.data();
  call.starts = b.starts.data();
  call.results = results.data();
  call.attrs = attrs.data();
  return call;
}

}  // namespace

const std::vector<std::unique_ptr<Target>>& Targets() {
  static const auto* const targets = [] {
    auto* const out = new std::vector<std::unique_ptr<Target>>;
    for (const std::string& spec : Listed("OPWIRE_DEVICES", "cpu")) {
      StatusOr<std::unique_ptr<Device>> device = OpenDevice(spec, {});
      if (!device.ok()) {
        fmt::print(stderr, "OPWIRE_DEVICES: {}\n", MessageOf(device.status()));
        std::exit(2);
      }
      Device* const opened = device->release();
      KernelOptions options;
      if (opened->info().kind == "emu")
        options.code = gpu::MakeCode(static_cast<gpu::GpuDevice&>(*opened), options);
      out->emplace_back(
          new Target{spec, opened, options.code, BuildVariantTable(*opened, options)});
    }
    return out;
  }();
  return *targets;
}

DTypeSet TypesToCheck() {
  static const DTypeSet checked = [] {
    DTypeSet types;
    for (const std::string& name : Listed("OPWIRE_TYPES", "")) {
      int t = 1;
      while (t < kDTypeCount && DTypeName(static_cast<DType>(t)) != name) ++t;
      if (t == kDTypeCount) {
        fmt::print(stderr, "OPWIRE_TYPES: no element type is called {}\n", name);
        std::exit(2);
      }
      types = types | DTypeSet({static_cast<DType>(t)});
    }
    return types.Empty() ? kAll : types;
  }();
  return checked;
}

bool OnlySmall() {
  static const bool small = [] {
    const std::vector<std::string> sizes = Listed("OPWIRE_SIZES", "all");
    if (sizes.size() != 1 || (sizes[0] != "all" && sizes[0] != "small")) {
      fmt::print(stderr, "OPWIRE_SIZES: expected all or small\n");
      std::exit(2);
    }
    return sizes[0] == "small";
  }();
  return small;
}

bool IsChecked(std::string_view variant) {
  static const std::vector<std::string> checked = Listed("OPWIRE_VARIANTS", "");
  return checked.empty() || std::ranges::find(checked, variant) != checked.end();
}

StatusOr<BoundCase> Bind(const OpDef& row, const Case& c, bool with_bytes) {
  BoundCase b{.row = &row, .c = &c};
  OPWIRE_ASSIGN_OR_RETURN(b.attrs, ResolveAttrs(row, c.attrs, *c.dims));
  std::vector<TensorType> types(c.operands.size());
  std::vector<const TensorType*> pointers;
  for (size_t i = 0; i < types.size(); ++i) {
    types[i].dtype = c.operands[i].dtype;
    types[i].encoding = c.operands[i].encoding;
    for (int64_t d : c.operands[i].shape) types[i].shape.push_back(c.dims->Constant(d));
    pointers.push_back(c.operands[i].dtype == DType::kInvalid ? nullptr : &types[i]);
  }
  OPWIRE_ASSIGN_OR_RETURN(const Inferred inferred,
                          InferTypes(row, *c.dims, pointers, c.segments, b.attrs));
  for (const TensorType& t : inferred.results) {
    Tensor& result = b.results.emplace_back(Tensor{t.dtype, {}, {}});
    for (Dim d : t.shape) result.shape.push_back(c.dims->ConstantValue(d));
  }
  for (const Tensor& t : c.operands) {
    if (!with_bytes) break;
    std::string& bytes = b.bytes.emplace_back(t.encoded);
    if (t.dtype == DType::kInvalid || t.encoding != Encoding::kDense) continue;
    bytes.resize(static_cast<size_t>(t.elements() * DTypeBytes(t.dtype)));
    for (int64_t i = 0; i < t.elements(); ++i)
      Encode(t.dtype, t.values[static_cast<size_t>(i)], bytes.data() + i * DTypeBytes(t.dtype));
  }
  b.starts = {0};
  for (size_t i = 0; i < row.operands.size(); ++i)
    b.starts.push_back(b.starts.back() + (c.segments.empty() ? 1 : c.segments[i]));
  return b;
}

Expected ExpectedOf(const BoundCase& b, const Device& device) {
  const Real cheaper = device.info().kind == "cpu" ? 0 : 1.0L / 128;
  const OracleCall call{b.row,           b.c->operands, b.starts, b.attrs,
                        b.c->dims.get(), b.c->blob,     cheaper};
  return Compute(call, b.results);
}

Status PlanCase(const Variant& v, const BoundCase& b, Layout layout) {
  std::deque<Laid> laid;
  std::vector<opw_tensor> operands, results;
  for (const Tensor& t : b.c->operands)
    operands.push_back(t.dtype == DType::kInvalid ? opw_tensor{}
                                                  : laid.emplace_back(t, layout).tensor);
  for (const Tensor& t : b.results) results.push_back(laid.emplace_back(t, Layout::kDense).tensor);
  std::deque<std::vector<int64_t>> ints;
  const std::vector<opw_attr> attrs = AbiAttrs(b, &ints);
  opw_call call = CallOf(v, b, operands, results, attrs);
  if (v.kernel.prepare == nullptr ||
      (v.kernel.supports != nullptr && v.kernel.supports(&call) != nullptr))
    return absl::OkStatus();
  if (v.kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) {
    const Status why = TakeFailure();
    return why.ok() ? Internal("prepare failed") : why;
  }
  if (v.kernel.release != nullptr) v.kernel.release(call.state);
  return absl::OkStatus();
}

Outcome RunCase(const Variant& v, const BoundCase& b, Layout layout, bool in_place,
                Device& device) {
  Outcome out;
  std::deque<Placed> placed;
  std::vector<opw_tensor> operands, results;
  std::vector<const Placed*> operand_places, result_places;
  for (const Tensor& t : b.c->operands) {
    if (t.dtype == DType::kInvalid) {
      operands.push_back({});
      operand_places.push_back(nullptr);
      continue;
    }
    Placed& p = placed.emplace_back(device, t, layout);
    const std::string& bytes = b.bytes[operands.size()];
    const int64_t each = DTypeBytes(t.dtype);
    if (t.encoding == Encoding::kDense)
      p.ForEach([&](int64_t i, char* element) {
        std::memcpy(element, bytes.data() + i * each, static_cast<size_t>(each));
      });
    else
      std::ranges::copy(bytes, p.memory->host());
    operands.push_back(p.tensor);
    operand_places.push_back(&p);
  }
  for (const Tensor& t : b.results) {
    const int operand = in_place ? SharedBy(b, results.size()) : -1;
    result_places.push_back(operand >= 0 ? operand_places[static_cast<size_t>(operand)]
                                         : &placed.emplace_back(device, t, Layout::kDense));
    results.push_back(result_places.back()->tensor);
  }
  std::deque<std::vector<int64_t>> ints;
  const std::vector<opw_attr> attrs = AbiAttrs(b, &ints);

  opw_call call = CallOf(v, b, operands, results, attrs);
  if (v.kernel.supports != nullptr) {
    if (const char* reason = v.kernel.supports(&call)) {
      out.skipped = reason;
      return out;
    }
  }
  const auto fail = [&](const char* what) {
    const Status why = TakeFailure();
    out.failure = why.ok() ? what : fmt::format("{}: {}", what, MessageOf(why));
  };
  if (v.kernel.prepare != nullptr &&
      v.kernel.prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) {
    fail("prepare failed");
    return out;
  }
  Memory workspace(device, (call.workspace_bytes + 63) / 64 * 64);
  call.workspace = workspace.data();
  call.runtime = device.runtime();
  device.NoteStep(kStep);
  Status moved = workspace.ToDevice();
  for (Placed& p : placed) moved.Update(p.memory->ToDevice());
  if (moved.ok() && v.kernel.run(&call) != OPW_OK) fail("run failed");
  for (const Placed* p : result_places) moved.Update(p->memory->ToHost());
  moved.Update(workspace.ToHost());
  moved.Update(device.Synchronize());
  if (!moved.ok()) out.failure = MessageOf(moved);
  out.flags = device.TakeFlags();
  if (!workspace.MarksIntact()) out.failure = "wrote outside its workspace";
  for (size_t r = 0; r < b.results.size(); ++r) {
    if (!result_places[r]->memory->MarksIntact())
      out.failure = fmt::format("wrote outside result {}", r);
    Tensor& result = out.results.emplace_back(b.results[r]);
    result_places[r]->ForEach([&](int64_t, const char* element) {
      result.values.push_back(Decode(result.dtype, element));
      out.bytes.append(element, DTypeBytes(result.dtype));
    });
  }
  if (v.packing != nullptr && out.failure.empty()) {
    // With packed weights the kernel gives the same bits.
    opw_tensor& t = operands[b.starts[static_cast<size_t>(v.packing->operand)]];
    const Packing::Size size = v.packing->size(t);
    Memory packed(device, size.pieces * size.bytes);
    if (size.pieces > 0) {
      const int64_t half = size.pieces / 2;
      v.packing->pack(t, half, size.pieces, packed.data());
      v.packing->pack(t, 0, half, packed.data());
      t.data = packed.data();
      t.packed = 1;
      if (v.kernel.run(&call) != OPW_OK) fail("run with a packed operand failed");
      std::string bytes;
      for (size_t r = 0; r < b.results.size(); ++r)
        result_places[r]->ForEach([&](int64_t, const char* element) {
          bytes.append(element, DTypeBytes(b.results[r].dtype));
        });
      if (bytes != out.bytes) out.failure = "gives other bits with a packed operand";
      if (!packed.MarksIntact() || !workspace.MarksIntact())
        out.failure = "wrote outside its workspace, or what it packs";
      device.TakeFlags();
    }
  }
  if (v.kernel.release != nullptr) v.kernel.release(call.state);
  return out;
}

}  // namespace opwire::conformance
