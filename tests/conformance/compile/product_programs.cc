// Calls of matmul groups.
#include "tests/conformance/compile/product_programs.h"

#include <fmt/format.h>

#include <vector>

#include "kernels/ops/gpu/fused.h"
#include "kernels/select/failure.h"

namespace opwire::conformance {
namespace {

using fused::ProductProgram;
using fused::ScalarProgram;

constexpr int64_t kMostHeld = 30 << 10;  // bytes of x that a block has room for

// Returns the first sum, rounded except if rotary embedding follows.
ProductProgram::Section Plain(DType type, int64_t columns, bool turned) {
  ProductProgram::Section s{.columns = columns};
  const int sum = s.finish.AddInput(DType::kF32);
  s.finish.AddOutput(
      turned ? sum
             : s.finish.Append({.prim = Prim::kCast, .type = type, .operands = {sum, -1, -1}}));
  return s;
}

ProductProgram Heads(DType type, int64_t terms) {
  ProductProgram p{.type = type,
                   .rows = 1,
                   .terms = terms,
                   .norm = ProductProgram::Norm{.adds = true, .weighted = true, .eps = 1e-5}};
  p.positions = p.at = DType::kI64;
  for (int i = 0; i < 3; ++i) {
    ProductProgram::Section& s =
        p.sections.emplace_back(Plain(type, i == 0 ? terms : terms / 4, i < 2));
    s.depth = 64;
    if (i < 2) s.turn = {.theta = 1e4, .scale = 1, .interleaved = false, .inverse = false};
    if (i > 0) s.places = 1024;
  }
  return p;
}

StatusOr<ProductProgram> Gated(DType type, int64_t rows, int64_t terms) {
  ProductProgram p{.type = type,
                   .rows = rows,
                   .terms = terms,
                   .norm = ProductProgram::Norm{.adds = false, .weighted = true, .eps = 1e-5}};
  ProductProgram::Section& s = p.sections.emplace_back();
  s.products = 2;
  s.columns = 3 * terms;
  ScalarProgram& f = s.finish;
  const int gate = f.AddInput(DType::kF32), up = f.AddInput(DType::kF32);
  OPWIRE_ASSIGN_OR_RETURN(const int open,
                          f.Append(*Catalogue().Find("silu"), {{gate}}, {}, DType::kF32));
  const auto rounded = [&](int v) {
    return f.Append({.prim = Prim::kCast, .type = type, .operands = {v, -1, -1}});
  };
  OPWIRE_ASSIGN_OR_RETURN(
      const int y, f.Append(*Catalogue().Find("mul"), {{rounded(open), rounded(up)}}, {}, type));
  f.AddOutput(y);
  return p;
}

// Returns gelu(x w + b) + z, together with the argument of gelu.
StatusOr<ProductProgram> OfMany(DType type, int64_t rows, int64_t terms) {
  ProductProgram p{.type = type, .rows = rows, .terms = terms};
  ProductProgram::Section& s = p.sections.emplace_back();
  s.columns = 2 * terms;
  s.by_row = {false, true};
  ScalarProgram& f = s.finish;
  const auto cast = [&](DType to, int v) {
    return f.Append({.prim = Prim::kCast, .type = to, .operands = {v, -1, -1}});
  };
  const int sum = f.AddInput(DType::kF32), bias = f.AddInput(type), z = f.AddInput(type);
  OPWIRE_ASSIGN_OR_RETURN(
      const int biased,
      f.Append(*Catalogue().Find("add"), {{sum, cast(DType::kF32, bias)}}, {}, DType::kF32));
  const int before = cast(type, biased);
  OPWIRE_ASSIGN_OR_RETURN(const int open,
                          f.Append(*Catalogue().Find("gelu"), {{before}}, {}, type));
  OPWIRE_ASSIGN_OR_RETURN(const int y, f.Append(*Catalogue().Find("add"), {{open, z}}, {}, type));
  f.AddOutput(y);
  f.AddOutput(before);
  return p;
}

Status PlanOne(fused::Fuser& fuser, const ProductProgram& program) {
  const std::shared_ptr<const opw_kernel> kernel = fuser.GetProducts(program);
  if (!kernel) return Internal("{} rows of {} are no kernel", program.rows, program.terms);
  // A plan reads only the size of the caches from the tensors.
  opw_tensor tensor{};
  tensor.elements = program.many() ? program.rows * program.sections[0].columns : 1;
  tensor.dtype = static_cast<uint8_t>(program.type);
  const std::vector<opw_tensor> operands(program.Operands(), tensor),
      results(program.Results(), tensor);
  std::vector<uint32_t> starts;
  for (uint32_t i = 0; i <= operands.size(); ++i) starts.push_back(i);
  opw_call call{};
  call.operands = operands.data();
  call.starts = starts.data();
  call.results = results.data();
  call.context = kernel->context;
  if (kernel->prepare(&call, &call.state, &call.workspace_bytes) != OPW_OK) return TakeFailure();
  kernel->release(call.state);
  return absl::OkStatus();
}

}  // namespace

Status PlanProductPrograms(const std::shared_ptr<gpu::Code>& code, DTypeSet types,
                           const std::function<void(std::string)>& name) {
  const std::shared_ptr<fused::Fuser> fuser = gpu::MakeFuser(code);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (!types.Has(type)) continue;
    for (const int64_t terms : {256, 576, 4096, 8192}) {
      name(fmt::format("products {} of {} terms", DTypeName(type), terms));
      ProductProgram alone{.type = type, .rows = 2, .terms = terms};
      alone.sections.push_back(Plain(type, 1000, false));
      const auto too_long = [&](int64_t rows) {
        return rows * terms * DTypeBytes(type) > kMostHeld;
      };
      if (fuser->HasEpilogues() && type != DType::kF32) {
        for (const int64_t rows : {128, 8192}) {
          OPWIRE_ASSIGN_OR_RETURN(const ProductProgram many, OfMany(type, rows, terms));
          OPWIRE_RETURN_IF_ERROR(PlanOne(*fuser, many));
        }
      }
      if (!too_long(1)) OPWIRE_RETURN_IF_ERROR(PlanOne(*fuser, Heads(type, terms)));
      if (!too_long(2)) OPWIRE_RETURN_IF_ERROR(PlanOne(*fuser, alone));
      for (const int64_t rows : {1, 2}) {
        if (too_long(rows)) continue;
        OPWIRE_ASSIGN_OR_RETURN(const ProductProgram gated, Gated(type, rows, terms));
        OPWIRE_RETURN_IF_ERROR(PlanOne(*fuser, gated));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace opwire::conformance
