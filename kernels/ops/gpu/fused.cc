// Compiles a form of a program, and launches it.
#include "kernels/ops/gpu/fused.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/ops/catalogue.h"
#include "kernels/fused/by_source.h"
#include "kernels/fused/gpu_body.h"
#include "kernels/fused/gpu_columns.h"
#include "kernels/fused/gpu_epilogue.h"
#include "kernels/fused/gpu_products.h"
#include "kernels/fused/gpu_rows.h"
#include "kernels/fused/gpu_source.h"
#include "kernels/fused/gpu_tiles.h"
#include "kernels/jit/digest.h"
#include "kernels/ops/gpu/fastest_plan.h"
#include "kernels/ops/matmul/gpu.h"

namespace opwire::gpu {
namespace {

// A row for calls with these numbers of operands and results.
OpDef RowOf(std::string_view name, size_t operands, size_t results) {
  OpDef row;
  row.name = name;
  row.operands.resize(operands);
  row.results.resize(results);
  return row;
}

// A call's operands, then its results, with the source of each address.
struct Tensors {
  std::vector<const opw_tensor*> all;
  std::vector<Source> sources;

  Tensors(const opw_call* c, const OpDef& row) {
    for (uint32_t i = 0; i < row.operands.size(); ++i) {
      all.push_back(&c->operands[i]);
      sources.push_back(Operand(i));
    }
    for (uint32_t i = 0; i < row.results.size(); ++i) {
      all.push_back(&c->results[i]);
      sources.push_back(Result(i));
    }
  }
};

// A launch of generated code, whose parameters begin with the tensors' addresses and the reporter.
void LaunchGenerated(Kernel* f, const Grid& grid, const std::vector<std::byte>& params,
                     std::span<const Source> sources, Plan& plan) {
  std::vector<Field> fields;
  const std::byte* at = params.data();
  for (const Source& s : sources) {
    fields.push_back({at, s});
    at += sizeof(void*);
  }
  fields.push_back({at, Reports()});
  plan.LaunchBytes(f, grid, params.data(), params.size(), fields);
}

// Calls `then` with the form that a program takes on these tensors by rule.
template <typename Then>
Status WithRulesForm(const fused::ScalarProgram& program,
                     std::span<const opw_tensor* const> tensors, const Then& then) {
  if (const std::optional<fused::GpuTileForm> tiles = fused::TileFormOf(program, tensors))
    return then(*tiles);
  return then(fused::FormOf(program, tensors));
}
template <typename Form>
Status PlanForm(Code& code, const std::string& name, const fused::ScalarProgram& program,
                const Form& form, std::span<const Source> sources, Plan& plan,
                std::span<const opw_attr> arguments) {
  Kernel* const f =
      code.GetText({name, "kernels/fused/primitives.cuh", fused::GpuSource(program, form)});
  LaunchGenerated(f, {.blocks = form.blocks(), .threads = form.threads},
                  fused::GpuParams(program, form, arguments), sources, plan);
  return absl::OkStatus();
}

// Plans a part of a call that an elementwise program computes, in the form that is fastest when
// measured.
Status PlanFastestForm(Code& code, const OpDef& row, const opw_call* c,
                       const fused::ScalarProgram& program, const Tensors& tensors, Plan& plan,
                       std::span<const opw_attr> arguments) {
  return WithRulesForm(program, tensors.all, [&](const auto& rule) {
    std::vector forms = fused::FormsBeside(rule);
    forms.insert(forms.begin(), rule);
    const auto plan_of = [&](int way, Plan& to) {
      return PlanForm(code, row.name, program, forms[static_cast<size_t>(way)], tensors.sources, to,
                      arguments);
    };
    if (fused::Raises(program)) return plan_of(0, plan);  // measuring would raise a run's flags
    const TuningCandidates candidates{
        [&] { return KeyOf("fused", fused::GpuSource(program, rule), tensors.all); },
        static_cast<int>(forms.size()), kLeastTuned};
    return plan_of(FastestPlan(code, row, c, candidates, plan_of), plan);
  });
}

// Reduces the states of chunks of rows, as [chunks, columns], to the columns' results.
Status PlanReductionOfStates(Code& code, const std::string& reduction, opw::reduce::ReduceParams p,
                             Source from, Source to, Plan& plan) {
  constexpr int kThreads = 256, kLeastBits = 3;
  p.extent = p.chunk = p.chunks;
  p.chunks = 1;
  p.vectors = p.columns;
  p.lane_bits = 5;
  while (p.lane_bits > kLeastBits &&
         p.columns < (int64_t{1} << p.lane_bits) * code.device().info().compute_units)
    --p.lane_bits;
  while (p.lane_bits > 0 && p.columns <= int64_t{1} << (p.lane_bits - 1)) --p.lane_bits;
  Kernel* const f = code.Get({"kernels/ops/reduce/gpu.cuh",
                              fmt::format("reduce::ReduceStates<{}, true>", reduction),
                              "reduce::ReduceParams", kThreads});
  plan.Launch(f, {.blocks = BlocksFor(p.columns, int64_t{1} << p.lane_bits), .threads = kThreads},
              p, {{&p.x, from}, {&p.y, to}});
  return absl::OkStatus();
}

class Group final : public Planner {
 public:
  Group(std::shared_ptr<Code> code, const fused::ScalarProgram& program)
      : Planner(code->device(), made_),
        code_(std::move(code)),
        made_(RowOf("fused", program.inputs().size(), program.outputs().size())),
        program_(program) {}

  const char* Supports(const opw_call*) const override { return nullptr; }
  Status MakePlan(const opw_call* c, Plan& plan) const override {
    const Tensors tensors(c, made_);
    const std::span<const opw_attr> arguments(c->attrs, static_cast<size_t>(program_.arguments()));
    return PlanFastestForm(*code_, made_, c, program_, tensors, plan, arguments);
  }

 private:
  const std::shared_ptr<Code> code_;
  const OpDef made_;
  const fused::ScalarProgram program_;
};

// Several members of one program: one launch for those of one form, if their parameters fit.
class JointGroup final : public Planner {
 public:
  JointGroup(std::shared_ptr<Code> code, const fused::ScalarProgram& program, int members)
      : Planner(code->device(), made_),
        code_(std::move(code)),
        members_(static_cast<size_t>(members)),
        made_(RowOf("fused_joint", program.inputs().size() * members_,
                    program.outputs().size() * members_)),
        program_(program) {}

  const char* Supports(const opw_call*) const override { return nullptr; }
  Status MakePlan(const opw_call* c, Plan& plan) const override {
    std::vector<std::pair<std::string, std::vector<Member>>> by_form;
    for (size_t m = 0; m < members_; ++m) {
      Member one = MemberOf(c, m);
      if (c->results[m * program_.outputs().size()].elements == 0) continue;
      one.form = fused::FormOf(program_, one.tensors);
      std::string text = fused::GpuSource(program_, one.form);
      const auto same =
          std::ranges::find(by_form, text, [](const auto& entry) { return entry.first; });
      (same != by_form.end() ? same->second
                             : by_form.emplace_back(std::move(text), std::vector<Member>()).second)
          .push_back(std::move(one));
    }
    for (const auto& [text, all] : by_form) {
      for (size_t begin = 0; begin < all.size();) {
        OPWIRE_ASSIGN_OR_RETURN(const size_t count,
                                Launch(c, text, std::span(all).subspan(begin), plan));
        begin += count;
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kParamBytes = 4096;  // most bytes of a kernel's parameters
  struct Member {
    size_t number;
    std::vector<const opw_tensor*> tensors;
    std::vector<Source> sources;
    fused::GpuForm form;
  };

  Member MemberOf(const opw_call* c, size_t m) const {
    Member out{m, {}, {}, {}};
    const size_t inputs = program_.inputs().size(), outputs = program_.outputs().size();
    for (size_t i = m * inputs; i < (m + 1) * inputs; ++i) {
      out.tensors.push_back(&c->operands[i]);
      out.sources.push_back(Operand(static_cast<uint32_t>(i)));
    }
    for (size_t i = m * outputs; i < (m + 1) * outputs; ++i) {
      out.tensors.push_back(&c->results[i]);
      out.sources.push_back(Result(static_cast<uint32_t>(i)));
    }
    return out;
  }

  // Launches the first of these members, and returns their number. `alone`: the kernel's text for
  // one.
  StatusOr<size_t> Launch(const opw_call* c, const std::string& alone,
                          std::span<const Member> members, Plan& plan) const {
    const auto arguments = static_cast<size_t>(program_.arguments());
    const auto params_of = [&](const Member& m) {
      return fused::GpuParams(program_, m.form, {c->attrs + m.number * arguments, arguments});
    };
    const size_t bytes = params_of(members[0]).size();
    size_t most = 1;
    while (most < members.size() && most * 2 * (bytes + sizeof(int32_t)) <= kParamBytes) most *= 2;
    if (most == 1) {
      Kernel* const f = code_->GetText({made_.name, "kernels/fused/primitives.cuh", alone});
      LaunchGenerated(f, {.blocks = members[0].form.blocks(), .threads = members[0].form.threads},
                      params_of(members[0]), members[0].sources, plan);
      return 1;
    }
    Kernel* const f =
        code_->GetText({made_.name, "kernels/fused/primitives.cuh",
                        fused::GpuSource(program_, members[0].form, static_cast<int>(most))});
    std::vector<std::byte> params(most * (bytes + sizeof(int32_t)));
    std::vector<Field> fields;
    std::vector<int32_t> first(most, INT32_MAX);
    int64_t blocks = 0;
    size_t count = 0;
    for (; count < std::min(most, members.size()); ++count) {
      const Member& m = members[count];
      if (blocks + m.form.blocks() > INT32_MAX - 1 && count > 0) break;
      first[count] = static_cast<int32_t>(blocks);
      blocks += m.form.blocks();
      std::ranges::copy(params_of(m), params.begin() + static_cast<int64_t>(count * bytes));
      const std::byte* at = params.data() + count * bytes;
      for (const Source& s : m.sources) {
        fields.push_back({at, s});
        at += sizeof(void*);
      }
      fields.push_back({at, Reports()});
    }
    std::memcpy(params.data() + most * bytes, first.data(), most * sizeof(int32_t));
    plan.LaunchBytes(f, {.blocks = blocks, .threads = members[0].form.threads}, params.data(),
                     params.size(), fields);
    return count;
  }

  const std::shared_ptr<Code> code_;
  const size_t members_;
  const OpDef made_;
  const fused::ScalarProgram program_;
};

class RowGroup final : public Planner {
 public:
  RowGroup(std::shared_ptr<Code> code, fused::GpuRows rows)
      : Planner(code->device(), made_),
        code_(std::move(code)),
        made_(RowOf("fused_rows", rows.operands(), rows.tensors() - rows.operands())),
        rows_(std::move(rows)) {}

  const char* Supports(const opw_call* c) const override {
    if (!rows_.program().HasExtremes()) return nullptr;
    const auto shape = static_cast<size_t>(rows_.program().shape_of());
    return fused::WhyNoExtremes(shape < rows_.operands() ? c->operands[shape]
                                                         : c->results[shape - rows_.operands()]);
  }
  Status MakePlan(const opw_call* c, Plan& plan) const override {
    return PlanFor(c, plan, /*aligned=*/true);
  }

 private:
  Status PlanFor(const opw_call* c, Plan& plan, bool aligned) const {
    const Tensors tensors(c, made_);
    const fused::GpuRowForm form = rows_.FormOf(tensors.all, device_.info().compute_units, aligned);
    const std::vector<std::byte> params =
        rows_.Params(form, {c->attrs, static_cast<size_t>(rows_.program().scalar().arguments())});
    std::vector<Source> sources = tensors.sources;
    if (form.cut) sources.push_back(Workspace(plan.TakeWorkspace(rows_.PartialBytes(form))));
    const int launches = rows_.Launches(form);
    for (int launch = 0; launch < launches; ++launch) {
      Kernel* const f =
          code_->GetText({made_.name, "kernels/fused/gpu_rows.cuh", rows_.Source(form, launch)});
      LaunchGenerated(f, {.blocks = rows_.Blocks(form, launch), .threads = form.threads}, params,
                      sources, plan);
    }
    if (form.items > 1)
      plan.UnlessAligned(std::make_shared<Fallback>(Call{c, *code_, made_},
                                                    [this](const Call& call, Plan& own) {
                                                      return PlanFor(call.c, own,
                                                                     /*aligned=*/false);
                                                    }),
                         launches);
    return absl::OkStatus();
  }

  const std::shared_ptr<Code> code_;
  const OpDef made_;
  const fused::GpuRows rows_;
};

class ColumnGroup final : public Planner {
 public:
  ColumnGroup(std::shared_ptr<Code> code, fused::GpuColumns columns)
      : Planner(code->device(), made_),
        code_(std::move(code)),
        made_(RowOf("fused_columns", columns.operands(), columns.tensors() - columns.operands())),
        columns_(std::move(columns)) {}

  const char* Supports(const opw_call* c) const override {
    const auto shape = static_cast<size_t>(columns_.program().shape_of);
    return columns_.program().WhyNoExtremes(
        shape < columns_.operands() ? c->operands[shape] : c->results[shape - columns_.operands()]);
  }
  Status MakePlan(const opw_call* c, Plan& plan) const override {
    const Tensors tensors(c, made_);
    const int multiprocessors = device_.info().compute_units,
              cluster_blocks = code_->cluster_blocks();
    const fused::GpuColumnForm rule = columns_.FormOf(tensors.all, multiprocessors, cluster_blocks);
    if (fused::Raises(columns_.program().scalar))
      return PlanForm(c, tensors, rule, plan);  // measuring would raise a run's flags
    std::vector<fused::GpuColumnForm> forms =
        columns_.FormsBeside(rule, multiprocessors, cluster_blocks);
    forms.insert(forms.begin(), rule);
    const auto plan_of = [&](int way, Plan& to) {
      return PlanForm(c, tensors, forms[static_cast<size_t>(way)], to);
    };
    const TuningCandidates candidates{
        [&] { return KeyOf("columns", columns_.Source(rule), tensors.all); },
        static_cast<int>(forms.size()), kLeastTuned};
    return plan_of(FastestPlan(*code_, made_, c, candidates, plan_of), plan);
  }

 private:
  Status PlanForm(const opw_call* c, const Tensors& tensors, const fused::GpuColumnForm& form,
                  Plan& plan) const {
    Kernel* const f =
        code_->GetText({made_.name, "kernels/fused/gpu_columns.cuh", columns_.Source(form)});
    std::vector<Source> sources = tensors.sources;
    for (size_t t = 0; t < sources.size(); ++t) {
      if (columns_.Reduces(t) && !form.final())
        sources[t] = Workspace(plan.TakeWorkspace(form.reduction.columns * form.reduction.chunks *
                                                  columns_.StateBytes(t)));
    }
    const std::vector<std::byte> params = columns_.Params(
        form, {c->attrs, static_cast<size_t>(columns_.program().scalar.arguments())});
    LaunchGenerated(f,
                    {.blocks = form.blocks,
                     .threads = fused::GpuColumnForm::kThreads,
                     .blocks_y = form.reduction.chunks},
                    params, sources, plan);
    for (size_t t = 0; t < sources.size() && !form.final(); ++t) {
      if (columns_.Reduces(t))
        OPWIRE_RETURN_IF_ERROR(PlanReductionOfStates(
            *code_, columns_.ReductionOf(t), form.reduction, sources[t], tensors.sources[t], plan));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<Code> code_;
  const OpDef made_;
  const fused::GpuColumns columns_;
};

class ProductGroup final : public Planner {
 public:
  ProductGroup(std::shared_ptr<Code> code, fused::GpuProducts products)
      : Planner(code->device(), made_),
        code_(std::move(code)),
        made_(RowOf("fused_products", products.program().Operands(), products.program().Results())),
        products_(std::move(products)) {}

  const char* Supports(const opw_call*) const override { return nullptr; }
  Status MakePlan(const opw_call* c, Plan& plan) const override {
    const fused::ProductProgram& program = products_.program();
    std::vector<Source> sources = Tensors(c, made_).sources;
    for (const auto& [operand, result] : products_.Caches())
      plan.Copy(sources[program.Operands() + result], sources[operand],
                c->operands[operand].elements * DTypeBytes(program.type));
    for (const fused::ProductProgram::Section& s : program.sections) {
      if (!s.turn) continue;
      const std::vector<float> frequencies = fused::GpuProducts::Frequencies(s);
      OPWIRE_ASSIGN_OR_RETURN(
          void* const uploaded,
          plan.Upload(frequencies.data(),
                      static_cast<int64_t>(frequencies.size() * sizeof(float))));
      sources.push_back(Fixed(uploaded));
    }
    const fused::GpuProductForm form = products_.FormOf(device_.info().compute_units);
    Kernel* const f = code_->GetText({.name = made_.name,
                                      .prelude = "kernels/fused/gpu_products.cuh",
                                      .text = products_.Source(form),
                                      .reads_early = true});
    LaunchGenerated(f, {.blocks = form.blocks, .threads = fused::GpuProductForm::kThreads},
                    products_.Params({c->attrs, static_cast<size_t>(program.Arguments())}), sources,
                    plan);
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Code> code_;
  const OpDef made_;
  const fused::GpuProducts products_;
};

// A product of many rows with its epilogue: one kernel for Hopper, or two, the product's and an
// elementwise one, if these are faster.
class EpilogueGroup final : public Planner {
 public:
  EpilogueGroup(std::shared_ptr<Code> code, fused::GpuEpilogue epilogue)
      : Planner(code->device(), made_),
        code_(std::move(code)),
        made_(RowOf("fused_epilogue", epilogue.program().Operands(), epilogue.program().Results())),
        epilogue_(std::move(epilogue)),
        apart_(epilogue_.Apart()) {}

  const char* Supports(const opw_call*) const override { return nullptr; }
  Status MakePlan(const opw_call* c, Plan& plan) const override {
    if (code_->records()) plan.Record();
    const matmul::Product product = ProductOf(c);
    const char* const why_apart = matmul::SupportsTilesOfHopper(product);
    if (!why_apart && (matmul::WithoutCublasLt(/*open=*/true) || Fastest(c, product) == kOne))
      return PlanOne(c, product, plan);
    return PlanApart(c, product, why_apart != nullptr, plan);
  }

 private:
  enum Way { kOne, kApart, kWays };

  std::span<const opw_attr> Arguments(const opw_call* c) const {
    return {c->attrs, static_cast<size_t>(epilogue_.program().Arguments())};
  }
  matmul::Product ProductOf(const opw_call* c) const {
    const fused::ProductProgram& p = epilogue_.program();
    const int64_t columns = epilogue_.section().columns;
    return {.shapes = {c->results[0].elements / columns, columns, p.terms, p.terms, 1, 1, p.terms,
                       columns},
            .type = p.type,
            .result = p.type,
            .x = Operand(0),
            .y = Operand(1),
            .z = Result(0)};
  }

  Status PlanOne(const opw_call* c, const matmul::Product& product, Plan& plan) const {
    const matmul::HopperForm form = matmul::HopperFormOf(product, device_.info().compute_units);
    Kernel* const f = code_->GetText(
        {made_.name, "kernels/ops/matmul/gpu_hopper.cuh", epilogue_.Source(form.columns)});
    const fused::GpuEpilogue::Bytes params = epilogue_.Params(form.params, Arguments(c));
    std::vector<Field> fields = form.FieldsAt(
        reinterpret_cast<const opw::matmul::HopperParams*>(params.all.data()), product);
    const std::byte* at = params.all.data() + params.data;
    const std::vector<Source> sources = Tensors(c, made_).sources;
    for (const Source& s : std::span(sources).subspan(2)) {
      fields.push_back({at, s});
      at += sizeof(void*);
    }
    fields.push_back({params.all.data() + params.reporter, Reports()});
    plan.LaunchBytes(f, form.grid, params.all.data(), params.all.size(), fields);
    plan.UnlessAligned(
        std::make_shared<Fallback>(Call{c, *code_, made_}, [this](const Call& call, Plan& own) {
          return PlanApart(call.c, ProductOf(call.c), /*by_tiles=*/true, own);
        }));
    return absl::OkStatus();
  }

  // The first result holds the sums until its own elements are written.
  Status PlanApart(const opw_call* c, const matmul::Product& product, bool by_tiles,
                   Plan& plan) const {
    const Call call{c, *code_, made_};
    OPWIRE_RETURN_IF_ERROR(by_tiles ? matmul::PlanTiles(call, product, plan)
                                    : matmul::PlanCublasLt(call, product, plan));
    Tensors tensors(c, made_);
    tensors.all.erase(tensors.all.begin());
    tensors.sources.erase(tensors.sources.begin());
    tensors.all[0] = &c->results[0], tensors.sources[0] = Result(0);
    return PlanFastestForm(*code_, made_, c, apart_, tensors, plan, Arguments(c));
  }

  int Fastest(const opw_call* c, const matmul::Product& product) const {
    if (fused::Raises(apart_)) return kOne;
    const auto key = [&] {
      return fmt::format("epilogue {} {}",
                         jit::Sha256(epilogue_.program().Identity()).substr(0, 32),
                         product.shapes.m);
    };
    return FastestPlan(*code_, made_, c, {key, kWays}, [&](int way, Plan& plan) {
      return way == kOne ? PlanOne(c, product, plan)
                         : PlanApart(c, product, /*by_tiles=*/false, plan);
    });
  }

  const std::shared_ptr<Code> code_;
  const OpDef made_;
  const fused::GpuEpilogue epilogue_;
  const fused::ScalarProgram apart_;
};

class GpuFuser final : public fused::Fuser {
 public:
  explicit GpuFuser(std::shared_ptr<Code> code) : code_(std::move(code)) {}

  std::shared_ptr<const opw_kernel> Get(const fused::ScalarProgram& program) override {
    const auto entry = elementwise_.Get(
        program.Identity(), [&] { return std::make_shared<Entry<Group>>(code_, program); });
    return {entry, &entry->kernel};
  }
  std::shared_ptr<const opw_kernel> GetJoint(const fused::ScalarProgram& program,
                                             int members) override {
    const auto entry = joint_.Get(fmt::format("{} {}", members, program.Identity()), [&] {
      return std::make_shared<Entry<JointGroup>>(code_, program, members);
    });
    return {entry, &entry->kernel};
  }
  bool HasJoint() const override { return true; }
  std::shared_ptr<const opw_kernel> GetRows(const fused::RowProgram& program) override {
    return GetMade<fused::GpuRows>(rows_, program);
  }
  bool HasRows() const override { return true; }
  std::shared_ptr<const opw_kernel> GetColumns(const fused::ColumnProgram& program) override {
    return GetMade<fused::GpuColumns>(columns_, program);
  }
  bool HasColumns() const override { return true; }
  std::shared_ptr<const opw_kernel> GetProducts(const fused::ProductProgram& program) override {
    if (!program.many()) return GetMade<fused::GpuProducts>(products_, program);
    return HasEpilogues() ? GetMade<fused::GpuEpilogue>(epilogues_, program) : nullptr;
  }
  bool HasProducts() const override { return true; }
  bool HasEpilogues() const override { return code_->hopper(); }
  bool Settled() const override { return true; }

 private:
  template <typename Kind>
  struct Entry {
    template <typename... Made>
    explicit Entry(const std::shared_ptr<Code>& code, Made&&... made)
        : group(code, std::forward<Made>(made)...),
          kernel(group.kernel(OPW_DETERMINISTIC | OPW_INPLACE)) {}
    const Kind group;
    const opw_kernel kernel;
  };

  // Null if the program cannot be made GPU code.
  template <typename Made, typename Kind, typename Program>
  std::shared_ptr<const opw_kernel> GetMade(fused::BySource<Entry<Kind>>& entries,
                                            const Program& program) {
    const auto entry = entries.Get(program.Identity(), [&]() -> std::shared_ptr<Entry<Kind>> {
      StatusOr<Made> made = Made::Make(program);
      return made.ok() ? std::make_shared<Entry<Kind>>(code_, *std::move(made)) : nullptr;
    });
    return entry ? std::shared_ptr<const opw_kernel>(entry, &entry->kernel) : nullptr;
  }

  const std::shared_ptr<Code> code_;
  fused::BySource<Entry<Group>> elementwise_;
  fused::BySource<Entry<RowGroup>> rows_;
  fused::BySource<Entry<ColumnGroup>> columns_;
  fused::BySource<Entry<JointGroup>> joint_;
  fused::BySource<Entry<ProductGroup>> products_;
  fused::BySource<Entry<EpilogueGroup>> epilogues_;
};

}  // namespace

std::shared_ptr<fused::Fuser> MakeFuser(std::shared_ptr<Code> code) {
  return std::make_shared<GpuFuser>(std::move(code));
}

Status PlanFused(Code& code, const std::string& name, const fused::ScalarProgram& program,
                 std::span<const opw_tensor* const> tensors, std::span<const Source> sources,
                 Plan& plan, std::span<const opw_attr> arguments) {
  return WithRulesForm(program, tensors, [&](const auto& form) {
    return PlanForm(code, name, program, form, sources, plan, arguments);
  });
}

Status PlanAdd(Code& code, std::span<const opw_tensor* const, 3> tensors,
               std::span<const Source, 3> sources, Plan& plan) {
  const OpDef& add = *Catalogue().Find("add");
  const DType type = ops::TypeOf(*tensors[2]);
  fused::ScalarProgram program;
  const int inputs[] = {program.AddInput(type), program.AddInput(type)};
  OPWIRE_ASSIGN_OR_RETURN(const int sum, program.Append(add, inputs, {}, type));
  program.AddOutput(sum);
  OPWIRE_RETURN_IF_ERROR(program.Check());
  return PlanFused(code, add.name, program, tensors, sources, plan);
}

}  // namespace opwire::gpu
