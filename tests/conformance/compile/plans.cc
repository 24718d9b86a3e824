// Every op, type, case and layout, planned on an emulated device in place of the GPU.
#include "tests/conformance/compile/plans.h"

#include <fmt/format.h>

#include <set>

#include "kernels/ops/gpu/families.h"
#include "tests/conformance/compile/product_programs.h"
#include "tests/conformance/compile/row_programs.h"
#include "tests/conformance/harness.h"

namespace opwire::conformance {
namespace {

// Few and many rows, of each size class. The last three are split.
const Extents kRows[] = {{4096, 64},   {4096, 512},   {4096, 2048}, {4096, 8192}, {1024, 32768},
                         {4097, 5003}, {512, 131072}, {3, 131072},  {1, 5000011}};
const Extents kColumns[] = {{8192, 512},
                            {131072, 33},
                            {64, 8192},
                            {16384, 768},
                            {16384, 2304}};  // reduced along their first axis

class LargeCases {
 public:
  LargeCases(const OpDef& row, DType type) : row_(row), type_(type) {}

  std::vector<Case> Take() {
    if (row_.family == "softmax") {
      const auto add = [&](const Extents& shape, int64_t dim) {
        Add(std::vector(row_.operands.size(), Of(shape)), {{"dim", dim}});
      };
      for (const Extents& shape : kRows) add(shape, -1);
      for (const Extents& shape : kColumns) add(shape, 0);
      add({64, 1024, 128}, 1);
    } else if (row_.family == "norm") {
      for (const Extents& shape : kRows) Norm(shape);
    } else if (row_.family == "reduce") {
      Reduce();
    } else if (row_.family == "sort") {
      for (const auto& [shape, dim, k] : {std::tuple<Extents, int64_t, int64_t>{{4096, 64}, 1, 8},
                                          {{64, 131072}, 1, 50},
                                          {{131072, 33}, 0, 5000},
                                          {{int64_t{5} << 30}, 0, 9000}}) {
        Add({Of(shape)}, {{"dim", dim}});
        if (row_.name == "topk")
          cases_.back().attrs.push_back({"k", cases_.back().dims->Constant(k)});
      }
    } else if (row_.name.starts_with("linear_cross_entropy")) {
      const DType wide = type_ == DType::kF64 ? DType::kF64 : DType::kF32;
      std::vector<Tensor> operands = {
          Of({8192, 4096}), Of({128256, 4096}), {DType::kI64, {8192}, {}}};
      if (row_.name.ends_with("_backward"))
        operands.insert(operands.begin(), Of({})), operands.push_back({wide, {8192}, {}});
      Add(std::move(operands), {});
    } else if (row_.family == "loss") {
      for (const Extents& shape : kRows) Loss(shape);
    } else if (row_.name == "matmul") {
      for (const auto& [x, y] : {std::pair<Extents, Extents>{{4096, 4096}, {4096, 4096}},
                                 {{1, 4096}, {4096, 11008}},
                                 {{32, 512, 64}, {32, 64, 512}}}) {
        for (const bool transposed : {false, true}) {
          Extents b = y;
          if (transposed) std::swap(b[b.size() - 2], b.back());
          Add({Of(x), Of(b)}, {{"transpose_x", false}, {"transpose_y", transposed}});
        }
      }
    } else if (row_.name == "scaled_matmul") {
      const Tensor scale{DType::kF32, {}, {}};
      for (const DType to : {DType::kBF16, DType::kF16, DType::kF32}) {
        for (const DType other : {DType::kF8E4M3, DType::kF8E5M2}) {
          Add({Of({512, 4096}), {other, {14336, 4096}, {}}, scale, scale},
              {{"transpose_y", true}, {"dtype", to}});
        }
      }
    } else if (row_.family == "convolution") {
      for (const int64_t groups : {1, 256}) {
        for (const bool transposed : {false, true}) {
          const Tensor input = Of({64, 256, 56, 56}), weight = Of({256, 256 / groups, 3, 3});
          const std::vector<NamedAttr> attrs = {
              {"padding", Ints{1}}, {"transposed", transposed}, {"groups", groups}};
          if (row_.name == "convolution")
            Add({input, weight, Of({256})}, attrs);
          else
            Add({input, input, weight}, attrs);
        }
      }
    } else if (row_.name == "linear" || row_.name == "rms_norm_linear") {
      for (const char* activation : {"none", "relu", "gelu", "gelu_tanh", "silu"}) {
        for (const int64_t m : {1, 2, 8, 512}) {
          std::vector<Tensor> operands = {Of({m, 4096}), Of({14336, 4096}), Of({14336})};
          if (row_.name != "linear") operands.insert(operands.begin() + 1, Of({4096}));
          Add(std::move(operands), {{"activation", std::string(activation)}});
        }
      }
    } else if (row_.name == "kv_append") {
      Add({Of({64, 8, 4096, 128}), Of({64, 8, 1, 128}), {DType::kI64, {64}, {}}, {}}, {});
      Add({Of({4096, 8, 16, 128}),
           Of({64, 8, 1, 128}),
           {DType::kI32, {64}, {}},
           {DType::kI32, {64, 256}, {}}},
          {});
    } else if (row_.name == "kv_attention") {
      for (const int64_t heads : {1, 2, 4, 8}) {
        for (const int64_t depth : {64, 128, 256}) {
          Add({Of({8, 8 * heads, 1, depth}),
               Of({8, 8, 8192, depth}),
               Of({8, 8, 8192, depth}),
               {DType::kI32, {8}, {}},
               {}},
              {});
          Add({Of({8, 8 * heads, 1, depth}),
               Of({4096, 8, 16, depth}),
               Of({4096, 8, 16, depth}),
               {DType::kI32, {8}, {}},
               {DType::kI32, {8, 512}, {}}},
              {});
        }
      }
    } else if (row_.family == "attention") {
      for (const int64_t queries : {1, 4096}) {
        const Tensor own = Of({2, 32, queries, 128}), shared = Of({2, 8, 4096, 128});
        if (row_.name == "scaled_dot_product_attention")
          Add({own, shared, shared, {}}, {{"causal", true}});
        else
          Add({own,
               own,
               shared,
               shared,
               own,
               {type_ == DType::kF64 ? DType::kF64 : DType::kF32, {2, 32, queries}, {}},
               {}},
              {{"causal", true}});
      }
    } else if (row_.family == "optim") {
      Optim();
    } else if (row_.name == "sample") {
      Add({Of({64, 131072}),
           {DType::kU64, {2}, {}},
           {DType::kF32, {64}, {}},
           {DType::kI64, {64}, {}},
           {DType::kF32, {64}, {}}},
          {});
    } else if (row_.name == "quantize") {
      for (const int64_t group : {32, 128, 1024, 0})
        Add({Of({4096, 8192})}, {{"group_size", group}, {"bits", int64_t{4}}});
    } else if (row_.family == "rotary") {
      for (const bool interleaved : {false, true}) {
        for (const int64_t queries : {1, 4096})
          Add({Of({2, 32, queries, 128}), {DType::kI64, {2, 1, queries}, {}}},
              {{"interleaved", interleaved}});
      }
    } else if (row_.name == "embedding") {
      Add({Of({50257, 4096}), {DType::kI64, {8192}, {}}}, {});
    } else if (row_.name == "embedding_backward") {
      Add({Of({8192, 4096}), {DType::kI64, {8192}, {}}}, {});
      cases_.back().attrs = {{"rows", cases_.back().dims->Constant(50257)}};
    } else if (row_.name == "add") {
      Add({Of({1 << 20, 1 << 16}), Of({1 << 20, 1})}, {});  // more steps than 2^31
    }
    return std::move(cases_);
  }

 private:
  Tensor Of(Extents shape) const { return {type_, std::move(shape), {}}; }

  void Add(std::vector<Tensor> operands, std::vector<NamedAttr> attrs) {
    Case& c = cases_.emplace_back();
    for (const Tensor& t : operands)
      c.name += t.dtype == DType::kInvalid
                    ? " -"
                    : fmt::format(" {}{}", DTypeName(t.dtype), ShapeToString(t.shape));
    c.operands = std::move(operands);
    c.attrs = std::move(attrs);
  }

  void Norm(const Extents& shape) {
    const bool biases = row_.FindOperand("bias") > 0, backward = row_.name.ends_with("_backward");
    for (int mask = 0; mask < (biases || backward ? 4 : 2); ++mask) {
      const Tensor tail = Of({shape.back()}), absent;
      std::vector<Tensor> operands = {Of(shape)};
      if (row_.operands[1].name != "weight") operands.push_back(Of(shape));
      operands.push_back((mask & 1) != 0 ? tail : absent);
      if (biases) operands.push_back((mask & 2) != 0 ? tail : absent);
      if (backward) operands.push_back((mask & 2) != 0 ? Of(shape) : absent);
      Add(std::move(operands), {{"dims", int64_t{1}}, {"eps", 1e-5}});
    }
  }

  void Reduce() {
    const bool one = row_.name == "cumsum" || row_.name == "argmax" || row_.name == "argmin";
    const auto add = [&](const Extents& shape, int64_t dim) {
      Add({Of(shape)}, {one ? NamedAttr{"dim", dim} : NamedAttr{"dims", Ints{dim}}});
    };
    for (const Extents& shape : kRows) add(shape, 1);
    for (const Extents& shape : kColumns) add(shape, 0);
    add({64, 1024, 128}, 1);
    if (!one) Add({Of({4096, 4096})}, {});
  }

  void Loss(const Extents& shape) {
    for (const DType index : {DType::kI64, DType::kI32}) {
      for (const char* reduction : {"mean", "none"}) {
        std::vector<Tensor> operands = {Of(shape), {index, {shape[0]}, {}}};
        if (row_.name != "cross_entropy")
          operands.insert(
              operands.begin(),
              Of(std::string_view(reduction) == "none" ? Extents{shape[0]} : Extents{}));
        Add(std::move(operands), {{"reduction", std::string(reduction)}});
      }
    }
  }

  // A hundred large tensors.
  void Optim() {
    std::vector<Tensor> operands;
    std::vector<uint32_t> segments;
    for (const OperandSpec& o : row_.operands) {
      const DType type = o.type == "F" || o.type == "G" ? type_ : *ParseDType(o.type);
      segments.push_back(o.variadic ? 100 : 1);
      for (uint32_t i = 0; i < segments.back(); ++i)
        operands.push_back(
            o.optional ? Tensor{} : Tensor{type, o.variadic ? Extents{4096, 4096} : Extents{}, {}});
    }
    Add(std::move(operands),
        row_.name == "sgd" ? std::vector<NamedAttr>{{"momentum", 0.9}} : std::vector<NamedAttr>{});
    cases_.back().segments = std::move(segments);
    cases_.back().name = " of large tensors";
  }

  const OpDef& row_;
  const DType type_;
  std::vector<Case> cases_;
};

}  // namespace

Model ModelOf(std::string_view arch) {
  return arch.starts_with("gfx") ? Model{"AMD MI250", 1, 104} : Model{"NVIDIA H200", 0, 132};
}

StatusOr<std::unique_ptr<gpu::GpuDevice>> DeviceFor(std::string_view arch) {
  const Model model = ModelOf(arch);
  OPWIRE_ASSIGN_OR_RETURN(const gpu::Driver* const driver, gpu::Driver::Open(gpu::Vendor::kEmu));
  void* context = nullptr;
  OPWIRE_RETURN_IF_ERROR(
      driver->Check(driver->Retain(model.emulator, &context), "an emulated GPU"));
  DeviceInfo info;
  info.kind = "emu";
  info.index = model.emulator;
  info.name = model.name;
  info.arch = arch;
  info.memory_bytes = int64_t{64} << 30;
  info.compute_units = model.compute_units;
  info.dtypes = kAll;
  auto device = std::make_unique<gpu::GpuDevice>(*driver, model.emulator, context, std::move(info));
  OPWIRE_RETURN_IF_ERROR(device->Start());
  return device;
}

StatusOr<std::vector<gpu::KernelText>> KernelsOf(std::string_view arch, DTypeSet types) {
  OPWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::GpuDevice> device, DeviceFor(arch));
  std::vector<gpu::KernelText> kernels;
  std::set<std::pair<std::string, std::string>> seen;  // preludes and texts
  std::string call;
  const auto record = [&](const gpu::KernelText& kernel) {
    if (!seen.emplace(kernel.prelude, kernel.text).second) return;
    kernels.push_back({fmt::format("{} for {}", kernel.name, call), kernel.prelude, kernel.text});
  };
  VariantTable table;
  const auto code = std::make_shared<gpu::Code>(*device, record);
  gpu::AddAll(table, code);
  Random random(1);
  random.zeros = true;
  for (const OpDef& row : Catalogue().rows()) {
    if (row.control != Control::kNone) continue;
    const DTypeSet all =
        row.variables.empty() ? row.TypesOf(row.operands[0].type) : row.variables[0].types;
    for (int t = 1; t < kDTypeCount; ++t) {
      const auto type = static_cast<DType>(t);
      if (!all.Has(type) || !types.Has(type)) continue;
      std::vector<Case> cases = CasesOf(row, type, random);
      if (type == DType::kF32 || type == DType::kBF16) {
        for (Case& c : LargeCases(row, type).Take()) cases.push_back(std::move(c));
      }
      for (const Case& c : cases) {
        OPWIRE_ASSIGN_OR_RETURN(const BoundCase bound, Bind(row, c, /*with_bytes=*/false));
        call = row.name + c.name;
        for (const Variant& v : table.Of(row.name)) {
          if (!v.unavailable.empty() || !v.dtypes.Has(type)) continue;
          for (const Layout layout : {Layout::kDense, Layout::kReversed, Layout::kGapped}) {
            // Without this limit, generated kernels would take most of the time: there is one for
            // each form of access and type.
            const bool takes = (v.kernel.flags & OPW_CONTIGUOUS) == 0 &&
                               (row.body.Empty() || type == DType::kF32 || type == DType::kBool);
            if (layout != Layout::kDense && !takes) continue;
            const Status planned = PlanCase(v, bound, layout);
            if (!planned.ok())
              return Internal("{}@{} is not planned: {}", call, v.name, MessageOf(planned));
          }
        }
      }
    }
  }
  OPWIRE_RETURN_IF_ERROR(
      PlanRowPrograms(code, types, [&](std::string next) { call = std::move(next); }));
  OPWIRE_RETURN_IF_ERROR(
      PlanProductPrograms(code, types, [&](std::string next) { call = std::move(next); }));
  return kernels;
}

}  // namespace opwire::conformance
