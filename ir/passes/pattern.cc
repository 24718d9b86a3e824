// Reading, matching and building rules.
#include "ir/passes/pattern.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "ir/base/element.h"
#include "ir/passes/constants.h"

namespace opwire {
namespace {

void Expect(bool holds, std::string_view rule) {
  if (holds) return;
  std::fprintf(stderr, "rewrites: a rule that does not read: %.*s\n", static_cast<int>(rule.size()),
               rule.data());
  std::abort();
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  RuleTerm ReadTerm() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           std::string_view("(), ").find(text_[at_]) == std::string_view::npos)
      ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    Expect(!word.empty(), text_);
    RuleTerm term{.kind = RuleTerm::Kind::kValue, .name = std::string(word), .operands = {}};
    if (word[0] == '-' || (word[0] >= '0' && word[0] <= '9')) {
      term.kind = RuleTerm::Kind::kNumber;
      Expect(std::from_chars(word.data(), word.data() + word.size(), term.number).ec == std::errc(),
             text_);
    } else if (Take("(")) {
      term.kind = RuleTerm::Kind::kOp;
      do term.operands.push_back(ReadTerm());
      while (Take(", "));
      Expect(Take(")"), text_);
    } else if (word[0] == 'c') {
      term.kind = RuleTerm::Kind::kConstant;
    }
    return term;
  }
  bool Take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  bool AtEnd() const { return at_ == text_.size(); }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

bool Bind(NamedValues& bindings, std::string_view name, ValueId v) {
  const auto it = std::ranges::find(bindings, name, &Bound::name);
  if (it != bindings.end()) return it->value == v;
  bindings.push_back({name, v});
  return true;
}

bool MatchesValue(const Rewriter& r, const RuleTerm& term, ValueId v, NamedValues& bindings) {
  if (v == kAbsent) return false;
  switch (term.kind) {
    case RuleTerm::Kind::kValue:
      return Bind(bindings, term.name, v);
    case RuleTerm::Kind::kConstant: {
      const auto c = ConstantOf(r, v);
      return c && c->splat && Bind(bindings, term.name, v);
    }
    case RuleTerm::Kind::kNumber: {
      const auto c = ConstantOf(r, v);
      return c && c->splat && c->bits() == ElementBits(c->dtype, term.number);
    }
    case RuleTerm::Kind::kOp: {
      const Node* const node = r.Producer(v);
      return node != nullptr && node->pin.empty() && Matches(r, term, *node, bindings);
    }
  }
  return false;
}

}  // namespace

RulePattern ParseRule(std::string_view text) {
  Reader reader(text);
  RulePattern p{.from = reader.ReadTerm(), .to = {}};
  Expect(p.from.kind == RuleTerm::Kind::kOp && reader.Take(" -> "), text);
  p.to = reader.ReadTerm();
  Expect(reader.AtEnd(), text);
  return p;
}

RuleTerm ParseTerm(std::string_view text) {
  Reader reader(text);
  RuleTerm term = reader.ReadTerm();
  Expect(reader.AtEnd(), text);
  return term;
}

bool Matches(const Rewriter& r, const RuleTerm& term, const Node& node, NamedValues& bindings) {
  if (node.op != term.name || node.operands.size() != term.operands.size()) return false;
  const size_t before = bindings.size();
  for (const bool swapped : {false, true}) {
    if (swapped && !IsCommutative(node.op)) return false;
    bool all = true;
    for (size_t i = 0; all && i < term.operands.size(); ++i) {
      all = MatchesValue(r, term.operands[i],
                         node.operands[swapped ? term.operands.size() - 1 - i : i], bindings);
    }
    if (all) return true;
    bindings.resize(before);
  }
  return false;
}

ValueId Build(Rewriter& r, const RuleTerm& term, const NamedValues& bindings,
              const TensorType& type) {
  switch (term.kind) {
    case RuleTerm::Kind::kValue:
    case RuleTerm::Kind::kConstant:
      return std::ranges::find(bindings, term.name, &Bound::name)->value;
    case RuleTerm::Kind::kNumber: {
      const uint64_t bits = ElementBits(type.dtype, term.number);
      return AppendConstant(r, type,
                            {.dtype = type.dtype,
                             .bytes = std::string(reinterpret_cast<const char*>(&bits),
                                                  static_cast<size_t>(DTypeBytes(type.dtype)))});
    }
    case RuleTerm::Kind::kOp: {
      std::vector<ValueId> operands;
      for (const RuleTerm& o : term.operands) {
        operands.push_back(Build(r, o, bindings, {.dtype = type.dtype}));
        if (operands.back() == kAbsent) return kAbsent;
      }
      return r.Append(term.name, std::move(operands));
    }
  }
  return kAbsent;
}

}  // namespace opwire
