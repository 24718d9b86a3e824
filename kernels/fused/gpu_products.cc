// How units are shared out, and the kernel's text.
#include "kernels/fused/gpu_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/fused/gpu_body.h"
#include "kernels/ops/gpu/code.h"
#include "kernels/ops/gpu/plan.h"
#include "kernels/ops/gpu/shared.h"

namespace opwire::fused {
namespace {

using gpu::CodeName;
using Section = ProductProgram::Section;

constexpr int64_t kGroups = GpuProductForm::kThreads / 32;  // as in gpu_products.cuh
constexpr int64_t kMostHeld = 40 << 10;                     // bytes of x in shared memory

int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Of a row of x, in shared memory.
int64_t VectorsOf(const ProductProgram& p) {
  return CeilDiv(p.terms * DTypeBytes(p.type), 16 * 128) * 128;
}

// Where a call's tensors are among its addresses.
struct Places {
  int residual = -1, weight = -1, positions = -1, at = -1, sum = -1;
  struct OfSection {
    std::vector<size_t> inputs;  // weights first
    size_t cache = 0;
    std::vector<size_t> outputs;
    size_t frequencies = 0;  // of a turn
  };
  std::vector<OfSection> sections;
  size_t count = 0;

  explicit Places(const ProductProgram& p) {
    size_t next = 1;
    const auto take = [&](bool there) { return there ? static_cast<int>(next++) : -1; };
    residual = take(p.norm && p.norm->adds);
    weight = take(p.norm && p.norm->weighted);
    positions = take(p.positions != DType::kInvalid);
    at = take(p.at != DType::kInvalid);
    for (const Section& s : p.sections) {
      OfSection& own = sections.emplace_back();
      for (size_t i = 0; i < s.finish.inputs().size(); ++i) own.inputs.push_back(next++);
      if (s.places > 0) own.cache = next++;
    }
    sum = take(p.norm && p.norm->adds);
    for (size_t i = 0; i < p.sections.size(); ++i) {
      for (size_t o = 0; o < p.sections[i].finish.outputs().size(); ++o)
        sections[i].outputs.push_back(next++);
    }
    for (size_t i = 0; i < p.sections.size(); ++i) {
      if (p.sections[i].turn) sections[i].frequencies = next++;
    }
    count = next;
  }
};

}  // namespace

StatusOr<GpuProducts> GpuProducts::Make(const ProductProgram& program) {
  const int64_t width = 16 / DTypeBytes(program.type);
  if (program.terms == 0 || program.terms % width != 0)
    return Unimplemented("rows of {} elements are no whole vectors", program.terms);
  if (VectorsOf(program) * program.rows * 16 > kMostHeld)
    return Unimplemented("rows of {} elements are too long to be held", program.terms);
  for (const Section& s : program.sections) OPWIRE_RETURN_IF_ERROR(s.finish.Check());
  return GpuProducts(program);
}

// Sums of a unit: two where two columns are turned together, or two products become one value.
int GpuProducts::Each() const {
  return std::ranges::any_of(program_.sections,
                             [](const Section& s) { return s.products == 2 || s.turn; })
             ? 2
             : 1;
}
int64_t GpuProducts::UnitsOf(const Section& s) const {
  return CeilDiv(s.columns, Each() / s.products);
}
int64_t GpuProducts::Units() const {
  int64_t units = 0;
  for (const Section& s : program_.sections) units += UnitsOf(s);
  return units;
}

GpuProductForm GpuProducts::FormOf(int multiprocessors) const {
  const int64_t units = Units(),
                of_lane = CeilDiv(program_.terms * DTypeBytes(program_.type), 16 * 32);
  const auto turns = [&](int64_t resident) {
    return CeilDiv(units, kGroups * resident * multiprocessors);
  };
  // What is on its way at a time is bound by registers. One row of weights a unit leaves most to
  // it; of two, where units follow one another, more of each by fewer threads reads memory faster.
  constexpr int64_t kOne[] = {4, 8}, kTwo[] = {3, 4},
                    kTwoOften[] = {2, 8};  // blocks, vectors of a row
  const auto& [resident, batch] = Each() == 1                               ? kOne
                                  : of_lane > kTwo[1] && turns(kTwo[0]) > 1 ? kTwoOften
                                                                            : kTwo;
  GpuProductForm form;
  form.vectors = static_cast<int>(VectorsOf(program_));
  form.batch = static_cast<int>(std::min(of_lane, batch));
  form.resident = resident;
  // Equal shares for all.
  form.blocks = CeilDiv(CeilDiv(units, turns(resident)), kGroups);
  return form;
}

std::vector<float> GpuProducts::Frequencies(const Section& section) {
  std::vector<float> out;
  for (int64_t i = 0; i < section.depth / 2; ++i) {
    const double f = std::pow(section.turn->theta,
                              -2.0 * static_cast<double>(i) / static_cast<double>(section.depth));
    out.push_back(static_cast<float>(section.turn->inverse ? -f : f));
  }
  return out;
}

std::vector<GpuProducts::Appended> GpuProducts::Caches() const {
  const Places places(program_);
  std::vector<Appended> out;
  for (size_t i = 0; i < program_.sections.size(); ++i) {
    if (program_.sections[i].places > 0)
      out.push_back(
          {places.sections[i].cache, places.sections[i].outputs[0] - program_.Operands()});
  }
  return out;
}

// A unit is a sum of one section or, where there are turns or two products, a pair of one section:
// of two products, or of two columns of one, those of a turn being turned together.
std::string GpuProducts::Source(const GpuProductForm& form) const {
  const Places places(program_);
  const std::string_view type = CodeName(program_.type);
  const int rows = static_cast<int>(program_.rows), each = Each();
  std::string functions, finds, begins, finishes;
  bool raises = false, reports = false;
  size_t most_read = 0;
  int argument = 0;
  for (size_t i = 0; i < program_.sections.size(); ++i) {
    const Section& s = program_.sections[i];
    const Places::OfSection& own = places.sections[i];
    const GpuBody body(s.finish);
    const auto products = static_cast<size_t>(s.products);
    const bool two = s.products == 2, flags = Raises(s.finish);
    raises = raises || flags;
    functions += fmt::format("OPW_DEVICE void Finish{}({}) {{\n{}}}\n", i, body.Parameters(),
                             body.Statements());
    const std::string section = fmt::format(
        "    if (unit < p.sections[{0}].end) {{\n      const u32 u = static_cast<u32>(unit - "
        "p.sections[{0}].begin);\n",
        i);
    // The column of sum `k`, as an expression.
    const auto column = [&](int k) -> std::string {
      if (two) return "u";
      if (!s.turn) return each == 1 ? "u" : fmt::format("u * 2 + {}", k);
      const std::string head = fmt::format("Divide(u, p.sections[{}].pairs)", i);
      return s.turn->interleaved
                 ? fmt::format("u * 2 + {}", k)
                 : fmt::format("({0} + {2}) * p.sections[{1}].pairs.divisor + u", head, i, k);
    };
    finds += section;
    const bool exact = two || s.turn || each == 1;  // no column is behind the last
    for (int k = 0; k < each; ++k) {
      const std::string at =
          exact ? fmt::format("static_cast<i64>({})", column(k))
                : fmt::format("Least(static_cast<i64>({}), p.sections[{}].columns - 1)", column(k),
                              i);
      finds +=
          fmt::format("      rows[{}] = static_cast<const T*>(p.data[{}]) + {} * p.rows.terms;\n",
                      k, own.inputs[two ? static_cast<size_t>(k) : 0], at);
    }
    finds += "      return;\n    }\n";

    begins += section;
    if (s.turn) {
      begins += fmt::format(
          "      const float angle = p.turn_scale * static_cast<float>(PositionOf(p)) * "
          "static_cast<const float*>(p.data[{0}])[u - Divide(u, p.sections[{1}].pairs) * "
          "p.sections[{1}].pairs.divisor];\n"
          "      SineAndCosine(angle, held.sine, held.cosine);\n",
          own.frequencies, i);
    }
    size_t read = 0;
    const int sums = two ? 1 : each;  // results of Finish for a row
    for (size_t in = products; in < own.inputs.size(); ++in) {
      for (int k = 0; k < sums; ++k) {
        for (int m = 0; m < rows; ++m) {
          const std::string at =
              exact ? fmt::format("static_cast<i64>({})", column(k))
                    : fmt::format("Least(static_cast<i64>({}), p.sections[{}].columns - 1)",
                                  column(k), i);
          const std::string row = s.by_row[in - products] && m > 0
                                      ? fmt::format(" + {} * p.sections[{}].columns", m, i)
                                      : "";
          begins += fmt::format("      held.read[{}] = static_cast<const T*>(p.data[{}])[{}{}];\n",
                                read++, own.inputs[in], at, row);
        }
      }
    }
    most_read = std::max(most_read, read);
    if (s.places > 0) {
      begins += "      held.place = PlaceOf(p);\n";
      if (!reports)
        begins +=
            "      if (held.place < 0 && u == 0 && GroupRank<products::kLanes>() == 0) "
            "ReportOutOfRange(p.reporter, 2, 0);\n";
      reports = true;
    }
    begins += "      return;\n    }\n";

    finishes += section;
    const size_t outputs = s.finish.outputs().size();
    for (int m = 0; m < rows; ++m) {
      for (int k = 0; k < sums; ++k) {
        std::string call;
        const auto add = [&](const std::string& one) { call += (call.empty() ? "" : ", ") + one; };
        for (size_t in = 0; in < products; ++in)
          add(fmt::format("sums[{}][{}]", two ? in : static_cast<size_t>(k), m));
        for (size_t in = products; in < own.inputs.size(); ++in)
          add(fmt::format("held.read[{}]",
                          ((in - products) * static_cast<size_t>(sums) + static_cast<size_t>(k)) *
                                  static_cast<size_t>(rows) +
                              static_cast<size_t>(m)));
        for (size_t o = 0; o < outputs; ++o) {
          const std::string name = fmt::format("y{}_{}_{}", o, k, m);
          finishes += fmt::format(
              "      {} {};\n",
              body.RoundsLate(o) ? "float" : CodeName(s.finish.OutputType(static_cast<int>(o))),
              name);
          add(name);
        }
        if (s.finish.arguments() > 0) add(fmt::format("p.arguments + {}", argument));
        if (flags) add("raised");
        finishes += fmt::format("      Finish{}({});\n", i, call);
      }
      if (s.turn)
        finishes +=
            fmt::format("      products::Turn(y0_0_{0}, y0_1_{0}, held.sine, held.cosine);\n", m);
      for (int k = 0; k < sums; ++k) {
        for (size_t o = 0; o < outputs; ++o) {
          const std::string name = fmt::format("y{}_{}_{}", o, k, m);
          const std::string_view to =
              s.turn ? type : CodeName(s.finish.OutputType(static_cast<int>(o)));
          const std::string value =
              s.turn || body.RoundsLate(o) ? fmt::format("Store<{}>({})", to, name) : name;
          const std::string there =
              exact ? "there" : fmt::format("there && {} < p.sections[{}].columns", column(k), i);
          std::string at = column(k);
          if (s.places > 0)
            at = fmt::format("PlaceIn(p.sections[{1}], {0}, held.place)", at, i);
          else if (m > 0)
            at = fmt::format("{} * p.sections[{}].columns + {}", m, i, at);
          finishes +=
              fmt::format("      if ({}{}) static_cast<{}*>(p.data[{}])[{}] = {};\n", there,
                          s.places > 0 ? " && held.place >= 0" : "", to, own.outputs[o], at, value);
        }
      }
    }
    finishes += "      return;\n    }\n";
    argument += s.finish.arguments();
  }
  const bool appends = program_.at != DType::kInvalid,
             turns = program_.positions != DType::kInvalid,
             adds = program_.norm && program_.norm->adds;
  if (turns)
    functions += fmt::format(
        "template <typename P>\nOPW_DEVICE i64 PositionOf(const P& p) {{ return "
        "LoadIndex(static_cast<const {}*>(p.data[{}])); }}\n",
        CodeName(program_.positions), places.positions);
  if (appends) {
    functions += fmt::format(
        "template <typename P>\nOPW_DEVICE i64 PlaceOf(const P& p) {{ return "
        "WrapIndex(LoadIndex(static_cast<const {}*>(p.data[{}])), p.places); }}\n",
        CodeName(program_.at), places.at);
  }
  const auto address = [](int place) {
    return place < 0 ? std::string("nullptr") : fmt::format("p.data[{}]", place);
  };
  std::string aligned = "reinterpret_cast<u64>(p.data[0])";
  for (const int place : {places.residual, places.weight, places.sum}) {
    if (place >= 0) aligned += fmt::format(" | reinterpret_cast<u64>(p.data[{}])", place);
  }
  for (size_t i = 0; i < program_.sections.size(); ++i) {
    for (int k = 0; k < program_.sections[i].products; ++k)
      aligned += fmt::format(" | reinterpret_cast<u64>(p.data[{}])",
                             places.sections[i].inputs[static_cast<size_t>(k)]);
  }
  // Where addresses are not aligned a vector at a time does: registers that the kernel does not
  // have leave room for the one behind it.
  const auto multiply = [&](bool whole) {
    return fmt::format("products::Multiply<T, {}, {}, {}, {}, {}, {}, {}>(rows, work, held);\n",
                       rows, form.vectors, whole ? form.batch : 1, each, program_.norm.has_value(),
                       adds, whole);
  };
  return fmt::format(
      "namespace opw::OPW_KERNEL {{\n"
      "using T = {type};\n"
      "struct Section {{\n"
      "  i64 begin, end, columns, places;\n"
      "  Divisor pairs, heads;\n"
      "}};\n"
      "struct Params {{\n"
      "  void* data[{tensors}];\n"
      "  Reporter reporter;\n"
      "  products::Rows rows;\n"
      "  i64 places;\n"
      "  float turn_scale;\n"
      "  u32 reserved;\n"
      "  u64 arguments[{arguments}];\n"
      "  Section sections[{sections}];\n"
      "}};\n"
      "// Of a column in a cache.\n"
      "OPW_DEVICE i64 PlaceIn(const Section& s, u32 column, i64 place) {{\n"
      "  const u32 head = Divide(column, s.heads);\n"
      "  return (head * s.places + place) * s.heads.divisor + (column - head * s.heads.divisor);\n"
      "}}\n"
      "OPW_DEVICE i64 Least(i64 a, i64 b) {{ return a < b ? a : b; }}\n"
      "{functions}"
      "struct Work {{\n"
      "  struct Held {{\n"
      "    T read[{read}];\n"
      "    float sine, cosine;\n"
      "    i64 place;\n"
      "  }};\n"
      "  const Params& p;\n"
      "  u32& raised;\n"
      "  i64 units;\n"
      "  OPW_DEVICE void Find(i64 unit, const T* (&rows)[{each}]) const {{\n{finds}  }}\n"
      "  OPW_DEVICE void Begin(i64 unit, Held& held) const {{\n{begins}  }}\n"
      "  OPW_DEVICE void Finish(i64 unit, const float (&sums)[{each}][{rows}], const Held& held, "
      "bool there) const {{\n{finishes}  }}\n"
      "}};\n"
      "}}\n"
      "extern \"C\" __global__ void __launch_bounds__({threads}, {resident}) OPW_KERNEL(OPW_PARAM "
      "opw::OPW_KERNEL::Params p) {{\n"
      "  using namespace opw;\n"
      "  using namespace opw::OPW_KERNEL;\n"
      "  __shared__ products::Held<T, {rows}, {vectors}> held;\n"
      "  u32 raised = 0;\n"
      "  const products::Rows rows{{p.data[0], {residual}, {sum}, {weight}, p.rows.terms, "
      "p.rows.eps}};\n"
      "  const Work work{{p, raised, p.sections[{last}].end}};\n"
      "  if ((({aligned}) & 15) == 0) {multiply}"
      "  else {otherwise}"
      "{raise}"
      "}}\n",
      fmt::arg("type", type), fmt::arg("tensors", places.count),
      fmt::arg("arguments", std::max(1, program_.Arguments())),
      fmt::arg("sections", program_.sections.size()), fmt::arg("functions", functions),
      fmt::arg("read", std::max<size_t>(1, most_read)), fmt::arg("finds", finds),
      fmt::arg("begins", begins), fmt::arg("rows", rows), fmt::arg("finishes", finishes),
      fmt::arg("threads", GpuProductForm::kThreads), fmt::arg("resident", form.resident),
      fmt::arg("each", each), fmt::arg("vectors", form.vectors),
      fmt::arg("residual", address(places.residual)), fmt::arg("sum", address(places.sum)),
      fmt::arg("weight", address(places.weight)), fmt::arg("last", program_.sections.size() - 1),
      fmt::arg("aligned", aligned), fmt::arg("multiply", multiply(true)),
      fmt::arg("otherwise", multiply(false)),
      fmt::arg("raise", raises ? "  Raise(p.reporter, raised);\n" : ""));
}

std::vector<std::byte> GpuProducts::Params(std::span<const opw_attr> arguments) const {
  ParamBytes out(Places(program_).count);
  for (int i = 0; i < 4; ++i)
    out.Put(int64_t{0});  // addresses of rows, which the kernel takes from among the tensors
  out.Put(program_.terms);
  out.Put(program_.norm ? program_.norm->eps : 0.0);
  int64_t places = 0;
  double scale = 1;
  for (const Section& s : program_.sections) {
    if (s.places > 0) places = s.places;
    if (s.turn) scale = s.turn->scale;
  }
  out.Put(places);
  out.Put(static_cast<float>(scale));
  out.Put(uint32_t{0});
  size_t at = 0;
  for (const Section& s : program_.sections) {
    const auto count = static_cast<size_t>(s.finish.arguments());
    if (count == 0) continue;
    for (const uint64_t bits : ArgumentBits(s.finish, arguments.subspan(at, count))) out.Put(bits);
    at += count;
  }
  if (at == 0) out.Put(uint64_t{0});
  int64_t begin = 0;
  for (const Section& s : program_.sections) {
    const int64_t units = UnitsOf(s);
    for (const int64_t v : {begin, begin + units, s.columns, s.places}) out.Put(v);
    out.Put(gpu::DivisorOf(std::max<int64_t>(1, s.depth / 2)));
    out.Put(gpu::DivisorOf(std::max<int64_t>(1, s.depth)));
    begin += units;
  }
  return out.Take();
}

}  // namespace opwire::fused
