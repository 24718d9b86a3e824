// Ops and fused programs as calls over sets of buffers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/ops/gpu/fused.h"
#include "kernels/select/failure.h"
#include "tests/bench/gpu/gpu.h"

namespace opwire::bench {
namespace {

// Fused kernels may keep more than the 8 bits of a bf16 between two ops, where the op's definition
// or its own kernel rounds.
constexpr double kFusedSlack = 1.0 / 64;

Status Failure(std::string_view what) {
  const Status why = TakeFailure();
  return why.ok() ? Internal("{} failed", what) : why;
}

// Of the kinds that the rows here use. The values stay where they are.
StatusOr<opw_attr> AbiAttr(const AttrValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v)) return opw_attr{OPW_ATTR_INT, 0, 1, {.i = *i}};
  if (const auto* b = std::get_if<bool>(&v)) return opw_attr{OPW_ATTR_INT, 0, 1, {.i = *b}};
  if (const auto* t = std::get_if<DType>(&v))
    return opw_attr{OPW_ATTR_INT, 0, 1, {.i = static_cast<int64_t>(*t)}};
  if (const auto* f = std::get_if<double>(&v)) return opw_attr{OPW_ATTR_FLOAT, 0, 1, {.f = *f}};
  if (const auto* s = std::get_if<std::string>(&v))
    return opw_attr{OPW_ATTR_BYTES, 0, static_cast<int64_t>(s->size()), {.bytes = s->c_str()}};
  if (const auto* l = std::get_if<Ints>(&v))
    return opw_attr{OPW_ATTR_INTS, 0, static_cast<int64_t>(l->size()), {.ints = l->data()}};
  return Unimplemented("an attribute of a kind that no row here has");
}

// The first element that is not as expected; empty: there is none. Numbers that are not finite, and
// results of zeros only, are wrong: operands are chosen to give others.
std::string Difference(const conformance::Expected::Result& expected,
                       const conformance::Tensor& got, double slack) {
  using conformance::Real;
  const std::vector<Real>& want = expected.tensor.values;
  if (want.size() != got.values.size())
    return fmt::format("expected {} elements, got {}", want.size(), got.values.size());
  Real largest = 0;
  for (const Real v : want) largest = std::max(largest, std::fabs(v));
  if (largest == 0 || !std::isfinite(largest))
    return fmt::format("expected a largest magnitude that tells something, got {}",
                       static_cast<double>(largest));
  for (size_t i = 0; i < want.size(); ++i) {
    const Real error = (expected.error.empty() ? 0 : expected.error[i]) + slack * largest;
    if (std::fabs(got.values[i] - want[i]) <= error ||
        got.values[i] == conformance::Rounded(expected.tensor.dtype, want[i]))
      continue;
    return fmt::format("element {}: expected {} within {}, got {}", i, static_cast<double>(want[i]),
                       static_cast<double>(error), static_cast<double>(got.values[i]));
  }
  return "";
}

}  // namespace

int64_t TensorSpec::bytes() const {
  if (dtype == DType::kInvalid) return 0;
  int64_t n = DTypeBytes(dtype);
  for (const int64_t extent : shape) n *= extent;
  return n;
}

int64_t Subject::bytes() const {
  int64_t sum = 0;
  for (const TensorSpec& s : specs_) sum += s.bytes();
  return sum;
}

void Subject::Describe(size_t operands, std::vector<uint32_t> starts) {
  operands_ = operands;
  starts_ = std::move(starts);
  for (const TensorSpec& s : specs_) {
    std::vector<int64_t>& strides = strides_.emplace_back(s.shape.size());
    int64_t elements = 1;
    for (size_t a = s.shape.size(); a-- > 0; elements *= s.shape[a]) strides[a] = elements;
    tensors_.push_back({nullptr, s.shape.data(), strides.data(), elements,
                        static_cast<uint8_t>(s.dtype), 0, static_cast<uint8_t>(s.shape.size()), 1});
  }
  call_.operands = tensors_.data();
  call_.starts = starts_.data();
  call_.results = &tensors_[operands_];
}

Status Subject::Fill() {
  const int sets = gpu_.SetsOf(bytes());
  const bool small = gpu_.options().small;
  for (size_t k = 0; small && k < operands_; ++k) {
    const TensorSpec& spec = specs_[k];
    std::string& image = images_.emplace_back();
    if (spec.bytes() == 0) continue;
    OPWIRE_ASSIGN_OR_RETURN(image, gpu_.Image(spec.dtype, spec.fill, spec.bytes(), k));
  }
  for (int i = 0; i < sets; ++i) {
    std::vector<Buffer>& set = data_.emplace_back();
    for (size_t k = 0; k < specs_.size(); ++k) {
      const TensorSpec& spec = specs_[k];
      OPWIRE_ASSIGN_OR_RETURN(
          Buffer b, k >= operands_ || spec.bytes() == 0
                        ? Buffer::Allocate(gpu_.device(), std::max<int64_t>(1, spec.bytes()))
                        : gpu_.Filled(spec.dtype, spec.fill, spec.bytes(), k));
      if (small && k >= operands_) {  // what is not computed is seen: it is NaN, or -1
        const std::string unwritten(static_cast<size_t>(spec.bytes()), '\xff');
        OPWIRE_RETURN_IF_ERROR(gpu_.device().Copy(b.data(), unwritten.data(), spec.bytes(), 0));
        OPWIRE_RETURN_IF_ERROR(gpu_.device().Synchronize());
      }
      set.push_back(std::move(b));
    }
  }
  return gpu_.device().Synchronize();
}

Status Subject::Prepare(std::string_view op, std::span<const AttrValue> attrs) {
  for (const AttrValue& v : attrs) {
    OPWIRE_ASSIGN_OR_RETURN(const opw_attr a, AbiAttr(v));
    attrs_.push_back(a);
  }
  call_.attrs = attrs_.data();
  OPWIRE_ASSIGN_OR_RETURN(const Variant* const variant,
                          gpu_.variants().Choose(op, specs_[0].dtype, call_, ""));
  variant_ = variant->name;
  return PrepareKernel(variant->kernel);
}

Status Subject::PrepareKernel(const opw_kernel& kernel) {
  call_.context = kernel.context;
  call_.runtime = gpu_.device().runtime();
  if (kernel.prepare && kernel.prepare(&call_, &call_.state, &call_.workspace_bytes) != OPW_OK)
    return Failure("prepare");
  kernel_ = kernel;
  if (call_.workspace_bytes == 0) return absl::OkStatus();
  OPWIRE_ASSIGN_OR_RETURN(Buffer workspace, Buffer::Allocate(gpu_.device(), call_.workspace_bytes));
  workspace_ = std::make_unique<Buffer>(std::move(workspace));
  call_.workspace = workspace_->data();
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Subject>> Subject::OfOp(Gpu& gpu, std::string_view op,
                                                 std::vector<TensorSpec> operands,
                                                 const std::vector<NamedAttr>& attrs,
                                                 const std::vector<uint32_t>& segments) {
  const OpDef* const row = Catalogue().Find(op);
  if (!row) return NotFound("no op {}", op);
  // Ops gain optional operands at their end.
  while (segments.empty() && operands.size() < row->operands.size() &&
         row->operands[operands.size()].optional)
    operands.push_back({DType::kInvalid, {}});
  std::unique_ptr<Subject> s(new Subject(gpu));
  DimTable dims;
  OPWIRE_ASSIGN_OR_RETURN(s->values_, ResolveAttrs(*row, attrs, dims));
  std::vector<TensorType> types(operands.size());
  std::vector<const TensorType*> pointers;
  for (size_t i = 0; i < types.size(); ++i) {
    types[i].dtype = operands[i].dtype;
    for (const int64_t extent : operands[i].shape) types[i].shape.push_back(dims.Constant(extent));
    pointers.push_back(operands[i].dtype == DType::kInvalid ? nullptr : &types[i]);
  }
  OPWIRE_ASSIGN_OR_RETURN(const Inferred inferred,
                          InferTypes(*row, dims, pointers, segments, s->values_));
  for (AttrValue& v : s->values_) {  // kernels have extents as numbers
    if (const auto* d = std::get_if<Dim>(&v)) v = dims.ConstantValue(*d);
  }
  s->specs_ = std::move(operands);
  const size_t count = s->specs_.size();
  for (const TensorType& t : inferred.results) {
    TensorSpec& result = s->specs_.emplace_back(TensorSpec{t.dtype, {}});
    for (const Dim d : t.shape) result.shape.push_back(dims.ConstantValue(d));
  }
  s->reference_ = ReferenceOf(gpu, std::string(op), attrs, segments);
  s->Describe(count, row->OperandStarts(segments));
  OPWIRE_RETURN_IF_ERROR(s->Prepare(op, s->values_));
  OPWIRE_RETURN_IF_ERROR(s->Fill());
  return s;
}

StatusOr<std::unique_ptr<Subject>> Subject::OfProgram(Gpu& gpu, const std::string& name,
                                                      const fused::ScalarProgram& program,
                                                      std::vector<TensorSpec> operands,
                                                      Reference reference) {
  OPWIRE_RETURN_IF_ERROR(program.Check());
  std::unique_ptr<Subject> s(new Subject(gpu));
  s->variant_ = "fused";
  s->reference_ = std::move(reference);
  s->slack_ = kFusedSlack;
  s->specs_ = std::move(operands);
  std::vector<uint32_t> starts(s->specs_.size() + 1);
  std::iota(starts.begin(), starts.end(), 0);
  s->specs_.push_back(s->specs_.front());
  s->Describe(s->specs_.size() - 1, std::move(starts));
  std::vector<const opw_tensor*> tensors;
  std::vector<gpu::Source> sources;
  for (size_t i = 0; i < s->tensors_.size(); ++i) {
    tensors.push_back(&s->tensors_[i]);
    sources.push_back(i + 1 < s->tensors_.size() ? gpu::Operand(static_cast<uint32_t>(i))
                                                 : gpu::Result(0));
  }
  s->plan_ =
      std::make_unique<gpu::Plan>(gpu.device(), static_cast<uint32_t>(program.inputs().size()),
                                  static_cast<uint32_t>(program.outputs().size()));
  OPWIRE_RETURN_IF_ERROR(gpu::PlanFused(gpu.code(), name, program, tensors, sources, *s->plan_));
  OPWIRE_RETURN_IF_ERROR(s->Fill());
  return s;
}

StatusOr<std::unique_ptr<Subject>> Subject::OfGroup(
    Gpu& gpu, std::shared_ptr<const opw_kernel> kernel, std::vector<TensorSpec> operands,
    const std::vector<TensorSpec>& results, std::vector<opw_attr> arguments, Reference reference) {
  std::unique_ptr<Subject> s(new Subject(gpu));
  s->variant_ = "fused";
  s->reference_ = std::move(reference);
  s->slack_ = kFusedSlack;
  s->holds_ = std::move(kernel);
  s->specs_ = std::move(operands);
  const size_t count = s->specs_.size();
  s->specs_.insert(s->specs_.end(), results.begin(), results.end());
  std::vector<uint32_t> starts(count + 1);
  std::iota(starts.begin(), starts.end(), 0);
  s->Describe(count, std::move(starts));
  s->attrs_ = std::move(arguments);
  s->call_.attrs = s->attrs_.data();
  OPWIRE_RETURN_IF_ERROR(s->PrepareKernel(*s->holds_));
  OPWIRE_RETURN_IF_ERROR(s->Fill());
  return s;
}

Reference ReferenceOf(const Gpu& gpu, std::string op, std::vector<NamedAttr> attrs,
                      std::vector<uint32_t> segments) {
  return [&gpu, op = std::move(op), attrs = std::move(attrs), segments = std::move(segments)](
             const Operands& operands) -> StatusOr<conformance::Expected> {
    return OracleOf(gpu.device(), op, operands, attrs, segments);
  };
}

Status Subject::SetOperand(int which, const void* bytes) {
  const auto k = static_cast<size_t>(which);
  const int64_t size = specs_[k].bytes();
  if (!images_.empty())
    images_[k].assign(static_cast<const char*>(bytes), static_cast<size_t>(size));
  for (int i = 0; i < sets(); ++i)
    OPWIRE_RETURN_IF_ERROR(gpu_.device().Copy(operand(i, which), bytes, size, 0));
  return gpu_.device().Synchronize();
}

Status Subject::SetOperand(int which, const Subject& other, size_t result) {
  const TensorSpec& spec = specs_[static_cast<size_t>(which)];
  const TensorSpec& from = other.specs_[other.operands_ + result];
  if (spec.dtype != from.dtype || spec.shape != from.shape)
    return InvalidArgument("operand {}: expected a result of the same type and shape", which);
  std::string bytes(static_cast<size_t>(spec.bytes()), 0);
  OPWIRE_RETURN_IF_ERROR(
      gpu_.device().Copy(bytes.data(), other.result(0, result), spec.bytes(), 0));
  OPWIRE_RETURN_IF_ERROR(gpu_.device().Synchronize());
  return SetOperand(which, bytes.data());
}

Status Subject::Check() {
  Operands operands;
  for (size_t k = 0; k < operands_; ++k)
    operands.push_back(DecodedOf(specs_[k].dtype, specs_[k].shape, images_[k]));
  OPWIRE_ASSIGN_OR_RETURN(const conformance::Expected expected, reference_(operands));
  for (const conformance::Expected::Result& r : expected.results) {
    for (const conformance::Real v : r.tensor.values) DigestOfChecks().Add(static_cast<double>(v));
  }
  for (int i = 0; i < sets(); ++i) {
    for (size_t r = 0; r < expected.results.size(); ++r) {
      const TensorSpec& spec = specs_[operands_ + r];
      std::string bytes(static_cast<size_t>(spec.bytes()), 0);
      OPWIRE_RETURN_IF_ERROR(gpu_.device().Copy(bytes.data(), result(i, r), spec.bytes(), 0));
      OPWIRE_RETURN_IF_ERROR(gpu_.device().Synchronize());
      if (const std::string wrong =
              Difference(expected.results[r], DecodedOf(spec.dtype, spec.shape, bytes), slack_);
          !wrong.empty())
        return Internal("wrong result {} of set {}: {}", r, i, wrong);
    }
  }
  return absl::OkStatus();
}

Subject::~Subject() {
  (void)gpu_.device().Synchronize();
  if (kernel_.release) kernel_.release(call_.state);
}

Status Subject::Launch(int i) {
  const std::vector<Buffer>& set = data_[static_cast<size_t>(i % sets())];
  for (size_t k = 0; k < set.size(); ++k) tensors_[k].data = set[k].data();
  if (plan_) return plan_->Run(&call_);
  return kernel_.run(&call_) == OPW_OK ? absl::OkStatus() : Failure("run");
}

}  // namespace opwire::bench
