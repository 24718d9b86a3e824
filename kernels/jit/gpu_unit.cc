// Writing kernels around a user's functions.
#include "kernels/jit/gpu_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/ops/extents.h"
#include "ir/ops/type_binding.h"
#include "kernels/jit/gpu_text.h"

namespace opwire::jit {
namespace {

std::string_view TypeText(DType type) {
  switch (type) {
    case DType::kF64:
      return "double";
    case DType::kF32:
      return "float";
    case DType::kF16:
      return "opw::f16";
    case DType::kBF16:
      return "opw::bf16";
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kU8:
      return "opw::u8";
    case DType::kI64:
      return "opw::i64";
    case DType::kI32:
      return "opw::i32";
    case DType::kI16:
      return "opw::i16";
    case DType::kI8:
      return "opw::i8";
    case DType::kU64:
      return "opw::u64";
    case DType::kU32:
      return "opw::u32";
    case DType::kU16:
      return "opw::u16";
    default:
      return "bool";
  }
}

std::string_view AttrText(AttrKind kind) {
  return kind == AttrKind::kInt ? "opw::i64" : kind == AttrKind::kFloat ? "double" : "bool";
}

}  // namespace

StatusOr<std::vector<GpuField>> GpuFieldsOf(const OpManifest& op, const OpVariantSpec& variant) {
  std::vector<GpuField> fields;
  for (size_t i = 0; i < op.row.operands.size(); ++i)
    fields.push_back({GpuField::kOperand, static_cast<int>(i)});
  for (size_t i = 0; i < op.row.results.size(); ++i)
    fields.push_back({GpuField::kResult, static_cast<int>(i)});
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<std::string> extents, ExtentNames(op.declaration));
  for (const std::string& name : extents)
    fields.push_back({GpuField::kExtent, 0, name == "..." ? std::string(kLeadingExtent) : name});
  for (size_t i = 0; i < op.row.attrs.size(); ++i) {
    if (op.row.attrs[i].kind != AttrKind::kDType)
      fields.push_back({GpuField::kAttr, static_cast<int>(i)});  // a dtype is one of the types
  }
  if (variant.workspace != "0") fields.push_back({GpuField::kWorkspace});
  if (std::ranges::any_of(op.row.operands,
                          [](const OperandSpec& o) { return o.domain != Domain::kAny; }))
    fields.push_back({GpuField::kReporter});
  return fields;
}

std::string GpuKernelName(size_t binding, size_t launch) {
  return fmt::format("opw_kernel_{}_{}", binding, launch);
}

StatusOr<std::string> GpuUnit(const OpManifest& op, const OpVariantSpec& variant,
                              std::string_view source) {
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<TypeBinding> bindings, TypeBindings(op.row));
  OPWIRE_ASSIGN_OR_RETURN(const std::vector<GpuField> fields, GpuFieldsOf(op, variant));
  std::string unit;
  std::set<std::string, std::less<>> seen;
  AppendGpuSource("kernels/ops/gpu/reports.cuh", seen, unit);
  unit += fmt::format("#line 1 \"{}\"\n{}\n#line 1 \"{}: launch\"\nstruct opw_parameters {{",
                      variant.sources[0], source, kManifestName);
  for (size_t i = 0; i < fields.size(); ++i) {
    switch (fields[i].kind) {
      case GpuField::kOperand:
        unit += fmt::format(" const void* p{};", i);
        break;
      case GpuField::kResult:
      case GpuField::kWorkspace:
        unit += fmt::format(" void* p{};", i);
        break;
      case GpuField::kExtent:
        unit += fmt::format(" opw::i64 p{};", i);
        break;
      case GpuField::kAttr:
        unit +=
            fmt::format(" {} p{};",
                        op.row.attrs[static_cast<size_t>(fields[i].index)].kind == AttrKind::kFloat
                            ? "double"
                            : "opw::i64",
                        i);
        break;
      case GpuField::kReporter:
        unit += fmt::format(" opw::Reporter p{};", i);
        break;
    }
  }
  unit += " };\n";
  for (size_t b = 0; b < bindings.size(); ++b) {
    const auto type = [&](const std::string& name) { return TypeText(TypeIn(bindings[b], name)); };
    for (size_t l = 0; l < variant.launches.size(); ++l) {
      const LaunchSpec& launch = variant.launches[l];
      unit += fmt::format(
          "extern \"C\" __global__ void __launch_bounds__({}) {}(OPW_PARAM opw_parameters p) {{\n",
          launch.threads, GpuKernelName(b, l));
      for (const auto& [name, dtype] : bindings[b])
        unit += fmt::format("  using {} = {};\n", name, TypeText(dtype));
      unit += fmt::format("  {}(", launch.function);
      for (size_t i = 0; i < fields.size(); ++i) {
        const auto index = static_cast<size_t>(fields[i].index);
        if (i > 0) unit += ", ";
        switch (fields[i].kind) {
          case GpuField::kOperand:
            unit +=
                fmt::format("static_cast<const {}*>(p.p{})", type(op.row.operands[index].type), i);
            break;
          case GpuField::kResult:
            unit += fmt::format("static_cast<{}*>(p.p{})", type(op.row.results[index].type), i);
            break;
          case GpuField::kAttr:
            unit += fmt::format("static_cast<{}>(p.p{})", AttrText(op.row.attrs[index].kind), i);
            break;
          default:
            unit += fmt::format("p.p{}", i);
        }
      }
      unit += ");\n}\n";
    }
  }
  return unit;
}

}  // namespace opwire::jit
