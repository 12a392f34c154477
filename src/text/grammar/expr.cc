#include "text/grammar/expr.h"

#include <utility>

namespace millrace {

ExprId GrammarSpec::add(Expr expr) {
  size_t bytes =
      expr.text.capacity() + expr.set.capacity() * sizeof(CharRange) + expr.parts.capacity() * sizeof(ExprId);
  for (const std::string& key : expr.keys) bytes += sizeof(key) + key.capacity();
  bytes_ += static_cast<int64_t>(bytes);
  exprs_.push_back(std::move(expr));
  share_.resize(bytes_ + static_cast<int64_t>(exprs_.capacity() * sizeof(Expr) * 3 / 2))
      .ok();  // an error is reported by the next check
  return static_cast<ExprId>(exprs_.size()) - 1;
}

ExprId GrammarSpec::bytes(std::string_view text) {
  Expr expr;
  expr.kind = Expr::Kind::bytes;
  expr.text = text;
  return add(std::move(expr));
}

ExprId GrammarSpec::byte_set(std::string members) {
  Expr expr;
  expr.kind = Expr::Kind::byte_set;
  expr.text = std::move(members);
  return add(std::move(expr));
}

ExprId GrammarSpec::chars(CharSet set, Spelling spelling) {
  Expr expr;
  expr.kind = Expr::Kind::chars;
  expr.set = std::move(set);
  expr.spelling = spelling;
  return add(std::move(expr));
}

ExprId GrammarSpec::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  Expr expr;
  expr.kind = Expr::Kind::sequence;
  expr.parts = std::move(parts);
  return add(std::move(expr));
}

ExprId GrammarSpec::choice(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  Expr expr;
  expr.kind = parts.empty() ? Expr::Kind::never : Expr::Kind::choice;
  expr.parts = std::move(parts);
  return add(std::move(expr));
}

namespace {

// (x{a,b}){c,d} produces between k*a and k*b of x for some k in [c, d]. These are all numbers from c*a to d*b if the
// range of k + 1 adjoins the range of k, which is hardest for the smallest k.
bool merges(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  if (c == d) return true;
  const uint64_t end = b == kNoLimit ? (c == 0 ? 0 : uint64_t{kNoLimit}) : uint64_t{c} * b;
  return (c > 0 && b == kNoLimit) || end + 1 >= (uint64_t{c} + 1) * a;
}

}  // namespace

ExprId GrammarSpec::repeat(ExprId part, uint32_t min, uint32_t max) {
  if (const Expr& inner = at(part); inner.kind == Expr::Kind::repeat && merges(inner.min, inner.max, min, max)) {
    const uint64_t least = uint64_t{inner.min} * min;
    const bool endless = (inner.max == kNoLimit && max > 0) || (max == kNoLimit && inner.max > 0);
    const uint64_t most = endless ? kNoLimit : max == 0 || inner.max == 0 ? 0 : uint64_t{inner.max} * max;
    if (least < kNoLimit && (endless || most < kNoLimit)) {
      part = inner.parts[0];
      min = static_cast<uint32_t>(least);
      max = static_cast<uint32_t>(most);
    }
  }
  Expr expr;
  expr.kind = Expr::Kind::repeat;
  expr.parts = {part};
  expr.min = min;
  expr.max = max;
  return add(std::move(expr));
}

ExprId GrammarSpec::list(ExprId separator, const std::vector<ExprId>& members, std::string counts, bool filled) {
  Expr expr;
  expr.kind = Expr::Kind::list;
  expr.min = filled;
  expr.parts = {separator};
  expr.parts.insert(expr.parts.end(), members.begin(), members.end());
  expr.text = std::move(counts);
  return add(std::move(expr));
}

ExprId GrammarSpec::keyed(KeyedMembers list) {
  Expr expr;
  expr.kind = Expr::Kind::keyed;
  expr.min = list.filled;
  expr.parts = {list.separator, list.opening};
  for (KeyedMembers::Member& member : list.members) {
    expr.keys.push_back(std::move(member.key));
    expr.parts.push_back(member.content);
    expr.text += member.required ? '1' : '?';
  }
  if (list.others >= 0) expr.parts.push_back(list.others);
  return add(std::move(expr));
}

ExprId GrammarSpec::call(RuleId rule, uint32_t need, uint32_t room) {
  Expr expr;
  expr.kind = Expr::Kind::call;
  expr.rule = rule;
  expr.need = need;
  expr.room = room;
  return add(std::move(expr));
}

ExprId GrammarSpec::dfa(std::shared_ptr<const Dfa> dfa) {
  Expr expr;
  expr.kind = Expr::Kind::dfa;
  expr.dfa = std::move(dfa);
  return add(std::move(expr));
}

namespace {

constexpr double kMaxInlined = 3000;  // largest rule that is inlined, in leaves

class Inliner {
 public:
  Inliner(const std::vector<Expr>& exprs, const std::vector<GrammarSpec::Rule>& rules)
      : exprs_(exprs), rules_(rules), sizes_(rules.size(), kUnknown) {
    for (size_t r = 0; r < rules.size(); ++r) size_of_rule(static_cast<RuleId>(r), 0);
  }
  bool inlined(RuleId rule) const { return sizes_[static_cast<size_t>(rule)] <= kMaxInlined; }

 private:
  static constexpr double kUnknown = -1, kOnTheWay = -2, kNever = 1e300;

  // Leaves of the rule after inlining; kNever if it is recursive.
  double size_of_rule(RuleId rule, int depth) {
    double& size = sizes_[static_cast<size_t>(rule)];
    if (size == kOnTheWay) return kNever;
    if (size != kUnknown) return size;
    size = kOnTheWay;
    const double found = size_of(rules_[static_cast<size_t>(rule)].body, depth + 1);
    sizes_[static_cast<size_t>(rule)] = found > kMaxInlined ? kNever : found;
    return sizes_[static_cast<size_t>(rule)];
  }
  double size_of(ExprId id, int depth) {
    if (depth > 500) return kNever;
    const Expr& expr = exprs_[static_cast<size_t>(id)];
    if (expr.kind == Expr::Kind::call) return size_of_rule(expr.rule, depth + 1);
    double size = 1 + static_cast<double>(expr.text.size()) + 3 * static_cast<double>(expr.set.size());
    for (ExprId part : expr.parts) size += size_of(part, depth + 1);
    if (expr.kind == Expr::Kind::repeat) size *= expr.max == kNoLimit ? expr.min + 1 : expr.max;
    return size;
  }

  const std::vector<Expr>& exprs_;
  const std::vector<GrammarSpec::Rule>& rules_;
  std::vector<double> sizes_;
};

}  // namespace

void GrammarSpec::inline_rules() {
  const Inliner inliner(exprs_, rules_);
  for (Expr& expr : exprs_) {
    if (expr.kind != Expr::Kind::call || expr.need != 0 || expr.room != kNoLimit || !inliner.inlined(expr.rule))
      continue;
    const ExprId body = rules_[static_cast<size_t>(expr.rule)].body;
    expr = Expr{};
    expr.kind = Expr::Kind::sequence;
    expr.parts = {body};
  }
}

}  // namespace millrace
