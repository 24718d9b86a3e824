// The text of a product's kernel with what becomes of its sums.
#include "kernels/fused/gpu_epilogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/fused/gpu_body.h"
#include "kernels/ops/gpu/code.h"

namespace opwire::fused {
namespace {

constexpr int64_t kWide = 8;  // elements of 16 bytes

}  // namespace

StatusOr<GpuEpilogue> GpuEpilogue::Make(const ProductProgram& program) {
  if (!program.IsEpilogue()) return Unimplemented("no product of many rows");
  const ScalarProgram& finish = program.sections[0].finish;
  OPWIRE_RETURN_IF_ERROR(finish.Check());
  if (!HasSixteenBits(program.type)) return Unimplemented("rows of {}", DTypeName(program.type));
  if (program.terms % kWide != 0 || program.sections[0].columns % kWide != 0)
    return Unimplemented("rows do not begin at 16 bytes");
  for (size_t i = 1; i < finish.inputs().size(); ++i) {
    if (finish.inputs()[i] != program.type)
      return Unimplemented("{} beside {}", DTypeName(finish.inputs()[i]), DTypeName(program.type));
  }
  for (size_t o = 0; o < finish.outputs().size(); ++o) {
    if (!HasSixteenBits(finish.OutputType(static_cast<int>(o))))
      return Unimplemented("results of {}", DTypeName(finish.OutputType(static_cast<int>(o))));
  }
  return GpuEpilogue(program);
}

std::string GpuEpilogue::Source(int columns) const {
  const ScalarProgram& finish = section().finish;
  const GpuBody body(finish);
  const size_t read = finish.inputs().size() - 1, outputs = finish.outputs().size();
  const bool raises = Raises(finish);
  const std::string_view type = gpu::CodeName(program_.type);
  std::string begin, values, stores;
  for (size_t i = 0; i < read; ++i) {
    begin += fmt::format(
        "    held.read[{0}] = *reinterpret_cast<const Quad*>(static_cast<const T*>(p.data[{0}]) + "
        "{1}column);\n",
        i, section().by_row[i] ? "row * p.product.n + " : "");
  }
  // One of the two elements of a word.
  for (int k = 0; k < 2; ++k) {
    const auto half = [&](const std::string& word) {
      return fmt::format("T{{static_cast<u16>({})}}",
                         k == 0 ? word + " & 0xffff" : word + " >> 16");
    };
    std::string call = fmt::format("Load({})", half("sums[e]"));
    for (size_t i = 0; i < read; ++i)
      call += fmt::format(", {}", half(fmt::format("read{}[e]", i)));
    for (size_t o = 0; o < outputs; ++o) {
      values += fmt::format(
          "      {} y{}_{};\n",
          body.RoundsLate(o) ? "float" : gpu::CodeName(finish.OutputType(static_cast<int>(o))), o,
          k);
      call += fmt::format(", y{}_{}", o, k);
    }
    if (finish.arguments() > 0) call += ", p.arguments";
    if (raises) call += ", raised";
    values += fmt::format("      Finish({});\n", call);
  }
  std::string unpack;
  for (size_t i = 0; i < read; ++i)
    unpack += fmt::format(
        "    const u32 read{0}[4] = {{held.read[{0}].x, held.read[{0}].y, held.read[{0}].z, "
        "held.read[{0}].w}};\n",
        i);
  for (size_t o = 0; o < outputs; ++o) {
    const std::string_view to = gpu::CodeName(finish.OutputType(static_cast<int>(o)));
    unpack += fmt::format("    u32 out{}[4];\n", o);
    values += body.RoundsLate(o)
                  ? fmt::format("      out{0}[e] = RoundPair<{1}>(y{0}_0, y{0}_1);\n", o, to)
                  : fmt::format(
                        "      out{0}[e] = static_cast<u32>(y{0}_0.bits) | "
                        "static_cast<u32>(y{0}_1.bits) << 16;\n",
                        o);
    stores += fmt::format(
        "    StoreWhole(static_cast<{1}*>(p.data[{2}]) + row * p.product.n + column, "
        "Quad{{out{0}[0], out{0}[1], out{0}[2], out{0}[3]}});\n",
        o, to, read + o);
  }
  return fmt::format(
      "namespace opw::OPW_KERNEL {{\n"
      "using T = {type};\n"
      "struct Params {{\n"
      "  matmul::HopperParams product;\n"
      "  void* data[{tensors}];\n"
      "  Reporter reporter;\n"
      "  u64 arguments[{arguments}];\n"
      "}};\n"
      "OPW_DEVICE void Finish({parameters}) {{\n{statements}}}\n"
      "struct Work {{\n"
      "  const Params& p;\n"
      "  u32& raised;\n"
      "  struct Held {{\n"
      "    Quad read[{read}];\n"
      "  }};\n"
      "  OPW_DEVICE void Begin(i64 row, i64 column, Held& held) const {{\n{begin}  }}\n"
      "  OPW_DEVICE void End(i64 row, i64 column, const u32 (&sums)[4], const Held& held) const "
      "{{\n{unpack}"
      "#pragma unroll\n"
      "    for (int e = 0; e < 4; ++e) {{\n{values}    }}\n{stores}  }}\n"
      "}};\n"
      "}}\n"
      "extern \"C\" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) "
      "OPW_KERNEL(OPW_PARAM opw::OPW_KERNEL::Params p) {{\n"
      "  using namespace opw;\n"
      "  AwaitPrevious();\n"
      "  u32 raised = 0;\n"
      "  matmul::HopperFinished<OPW_KERNEL::T, {columns}>(p.product, OPW_KERNEL::Work{{p, "
      "raised}});\n"
      "{raise}"
      "}}\n",
      fmt::arg("type", type), fmt::arg("tensors", read + outputs),
      fmt::arg("arguments", std::max(1, finish.arguments())),
      fmt::arg("parameters", body.Parameters()), fmt::arg("statements", body.Statements()),
      fmt::arg("read", std::max<size_t>(1, read)), fmt::arg("begin", begin),
      fmt::arg("unpack", unpack), fmt::arg("values", values), fmt::arg("stores", stores),
      fmt::arg("columns", columns),
      fmt::arg("raise", raises ? "  Raise(p.reporter, raised);\n" : ""));
}

GpuEpilogue::Bytes GpuEpilogue::Params(const opw::matmul::HopperParams& product,
                                       std::span<const opw_attr> arguments) const {
  const size_t tensors = section().finish.inputs().size() - 1 + section().finish.outputs().size();
  ParamBytes rest(tensors);
  for (const uint64_t bits : ArgumentBits(section().finish, arguments)) rest.Put(bits);
  const std::vector<std::byte> behind = rest.Take();
  Bytes out{.all = std::vector<std::byte>(sizeof product + behind.size()),
            .data = sizeof product,
            .reporter = sizeof product + tensors * sizeof(void*)};
  std::memcpy(out.all.data(), &product, sizeof product);
  std::ranges::copy(behind, out.all.begin() + sizeof product);
  return out;
}

ScalarProgram GpuEpilogue::Apart() const {
  const ScalarProgram& finish = section().finish;
  ScalarProgram out;
  const int sum = out.Append({.prim = Prim::kCast,
                              .type = DType::kF32,
                              .operands = {out.AddInput(program_.type), -1, -1}});
  std::vector<int> inputs = {sum};
  for (size_t i = 1; i < finish.inputs().size(); ++i)
    inputs.push_back(out.AddInput(finish.inputs()[i]));
  const std::vector<int> made = out.Append(finish, inputs);
  for (const int o : finish.outputs()) out.AddOutput(made[static_cast<size_t>(o)]);
  return out;
}

}  // namespace opwire::fused
