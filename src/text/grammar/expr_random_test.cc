// Random grammars of every form against the plain definition of their language: over all strings of up to six letters,
// and no accepted prefix is a dead end.
#include <deque>
#include <set>
#include <tuple>

#include "text/grammar/grammar_test.h"
#include "text/grammar/language_oracle_test.h"

namespace millrace::testing {
namespace {

class RandomForm {
 public:
  explicit RandomForm(uint32_t seed) : random_(seed) {}

  // Rules that call each other; rule 0 is the root. With `counted`, the last two count ticks.
  std::vector<Form> rules(bool plain, bool counted) {
    plain_ = plain;
    const size_t free = 1 + below(3);
    calls_ = static_cast<int>(free);
    counted_ = counted ? 1 + static_cast<int>(below(2)) : 0;
    std::vector<Form> out;
    for (size_t r = 0; r < free; ++r) out.push_back(one(3));
    for (int r = 0; r < counted_; ++r) out.push_back(counted_rule());
    return out;
  }
  Form without_calls(int depth) { return plain_ = true, calls_ = counted_ = 0, one(depth); }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_()) % n; }
  std::string word(uint32_t least, uint32_t most) {
    std::string out;
    for (uint32_t n = least + below(most - least + 1); n > 0; --n) out += kLetters[below(3)];
    return out;
  }
  Form of(Form::Kind kind, std::vector<Form> parts, std::string text = "") {
    Form out;
    out.kind = kind;
    out.parts = std::move(parts);
    out.text = std::move(text);
    return out;
  }
  Form letters() { return of(Form::Kind::letters, {}, below(2) ? "ab" : below(2) ? "bc" : "c"); }
  std::vector<Form> several(int depth, uint32_t n) {
    std::vector<Form> out;
    while (n-- > 0) out.push_back(one(depth));
    return out;
  }
  Form repeat(Form part) {
    static constexpr std::pair<uint32_t, uint32_t> kBounds[] = {
        {0, kNoLimit}, {1, kNoLimit}, {0, 1}, {2, 2}, {0, 2}, {1, 3}, {2, kNoLimit}, {0, 4}, {3, 5}, {0, 0}, {2, 3}};
    Form out = of(Form::Kind::repeat, {std::move(part)});
    std::tie(out.min, out.max) = kBounds[below(std::size(kBounds))];
    return out;
  }
  Form one(int depth) {
    if (depth == 0) return below(3) == 0 ? letters() : of(Form::Kind::text, {}, word(1, 2));
    switch (below(plain_ ? 9 : 13)) {
      case 0: return of(Form::Kind::text, {}, word(plain_ ? 1 : 0, 3));
      case 1: return letters();
      case 2:
      case 3: return of(Form::Kind::sequence, several(depth - 1, 2 + below(2)));
      case 4:
      case 5: return of(Form::Kind::choice, several(depth - 1, 2 + below(2)));
      case 6: return repeat(repeat(one(depth - 1)));
      case 7: return calls_ > 0 ? call() : letters();
      case 8: return repeat(one(depth - 1));
      case 9: return list(depth);
      case 10: return keyed(depth);
      case 11: return of(Form::Kind::automaton, {RandomForm(static_cast<uint32_t>(random_())).without_calls(2)});
      default: return counted_ > 0 ? counted_call() : call();
    }
  }
  Form call() {
    Form out = of(Form::Kind::call, {});
    out.rule = static_cast<int>(below(static_cast<uint32_t>(calls_)));
    if (below(3) == 0) return out;
    return of(Form::Kind::sequence, {of(Form::Kind::text, {}, word(1, 1)), std::move(out)});  // no left recursion
  }
  Form counted_call() {
    Form out = of(Form::Kind::call, {});
    out.rule = calls_ + static_cast<int>(below(static_cast<uint32_t>(counted_)));
    out.min = below(4);
    out.max = below(3) == 0 ? kNoLimit : out.min + below(3);
    return out;
  }
  // Ticks, then a final letter: no transition leaves its last state.
  Form counted_rule() {
    const bool either = below(3) == 0;  // a string must not match both with and without ticks
    Form item = of(Form::Kind::sequence,
                   {of(Form::Kind::letters, {}, either || below(2) ? "a" : "ab"), of(Form::Kind::tick, {})});
    Form some = repeat(either ? of(Form::Kind::choice, {item, of(Form::Kind::text, {}, "b")}) : item);
    if (below(4) == 0) some = of(Form::Kind::sequence, {item, std::move(some)});
    return of(Form::Kind::sequence, {std::move(some), of(Form::Kind::text, {}, "c")});
  }
  Form list(int depth) {
    Form out = of(Form::Kind::list, several(depth - 1, 2 + below(3)));
    for (size_t i = 1; i < out.parts.size(); ++i) out.text += "1?*"[below(3)];
    out.min = below(3) == 0;
    return out;
  }
  Form keyed(int depth) {
    static const std::vector<std::vector<std::string>> kKeys = {
        {"ab", "b", "aa"}, {"c", "ba", "bb", "a"}, {"a"}, {"cab", "b", "cb", "caa"}};
    Form out = of(Form::Kind::keyed, {of(Form::Kind::text, {}, word(1, 1)), of(Form::Kind::text, {}, word(0, 1))});
    out.keys = kKeys[below(4)];
    for (size_t i = 0; i < out.keys.size(); ++i) {
      out.text += below(3) == 0 ? '1' : '?';
      out.parts.push_back(below(2) ? of(Form::Kind::text, {}, word(0, 1)) : one(std::min(1, depth - 1)));
    }
    if (below(2)) out.parts.push_back(letters());
    out.min = below(3) == 0;
    return out;
  }

  std::mt19937 random_;
  bool plain_ = false;
  int calls_ = 0, counted_ = 0;
};

// Whether some text leads from the set to the end.
bool can_end(ParseTable& table, SetId from) {
  std::deque<SetId> queue{from};
  std::set<SetId> seen{from};
  for (size_t steps = 0; !queue.empty() && steps < 2000; ++steps) {
    const SetId set = queue.front();
    queue.pop_front();
    if (table.complete(set)) return true;
    for (const char c : kLetters)
      if (const SetId to = table.step(set, static_cast<uint8_t>(c)); to != kDead && seen.insert(to).second)
        queue.push_back(to);
  }
  return !queue.empty();  // unknown
}

void expect_language(const Language& language, const Grammar& grammar, const std::string& what) {
  ParseTable table(std::make_shared<const Grammar>(grammar));
  const auto& all = all_strings();
  std::set<std::string> prefixes;
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t n = 0; language[i] != 0 && n <= all[i].size(); ++n) prefixes.insert(all[i].substr(0, n));
  std::map<SetId, bool> ends;
  std::map<std::string, SetId> sets{{"", table.begin()}};
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& text = all[i];
    const SetId set =
        text.empty() ? sets[""] : table.step(sets[text.substr(0, text.size() - 1)], static_cast<uint8_t>(text.back()));
    sets[text] = set;
    ASSERT_EQ(set != kDead && table.complete(set), language[i] != 0) << what << ": '" << text << "'";
    if (set == kDead) {
      ASSERT_FALSE(prefixes.contains(text)) << what << ": '" << text << "' is alive";
      continue;
    }
    const auto [entry, fresh] = ends.try_emplace(set, false);
    if (fresh) entry->second = can_end(table, set);
    ASSERT_TRUE(entry->second) << what << ": '" << text << "' is a dead end";
    bool goes_on = false;
    for (int byte = 0; byte < 256; ++byte) goes_on |= table.step(set, static_cast<uint8_t>(byte)) != kDead;
    ASSERT_EQ(table.can_continue(set), goes_on) << what << ": '" << text << "'";
  }
  ASSERT_EQ(table.exceeded(), ParseBound::none);
}

class RandomGrammars : public ::testing::TestWithParam<uint32_t> {};

std::string gbnf_source(const std::vector<Form>& rules) {
  std::string out = "root ::= r0\n";
  for (size_t r = 0; r < rules.size(); ++r) out += "r" + std::to_string(r) + " ::= " + written(rules[r], false) + "\n";
  return out;
}

bool writes_nothing(const Language& language) {
  return std::ranges::all_of(language, [](uint32_t ticks) { return ticks == 0; });
}

// Rejected: left recursion, and an empty language.
void expect_refused(const Error& error, const Language& language, const std::string& what, int& refused) {
  ++refused;
  if (error.message == "grammar: no text satisfies it")
    EXPECT_TRUE(writes_nothing(language)) << what;
  else
    EXPECT_TRUE(error.message.find("is left-recursive") != std::string::npos ||
                error.message.find("cannot be counted") != std::string::npos)
        << what << ": " << error.message;
}

TEST_P(RandomGrammars, MatchTheirDefinition) {
  int refused = 0;
  for (uint32_t seed = GetParam() * 40; seed < GetParam() * 40 + 40; ++seed) {
    const bool counted = seed % 3 == 0;
    const std::vector<Form> rules = RandomForm(seed).rules(false, counted);
    GrammarSpec spec;
    for (size_t r = 0; r < rules.size(); ++r) spec.add_rule("r" + std::to_string(r));
    for (size_t r = 0; r < rules.size(); ++r) spec.set_body(static_cast<RuleId>(r), to_expr(spec, rules[r]));
    spec.root = 0;
    if (seed % 2 == 0) spec.inline_rules();
    const LanguageOracle oracle(rules);
    const auto grammar = Grammar::create(spec);
    if (grammar.ok())
      expect_language(oracle.rule(0), *grammar, "seed " + std::to_string(seed));
    else
      expect_refused(grammar.error(), oracle.rule(0), "seed " + std::to_string(seed), refused);
    if (HasFailure()) return;
  }
  EXPECT_LE(refused, 16);
}

TEST_P(RandomGrammars, AsGbnf) {
  int refused = 0;
  for (uint32_t seed = GetParam() * 20; seed < GetParam() * 20 + 20; ++seed) {
    const std::vector<Form> rules = RandomForm(seed + 5000).rules(true, false);
    const LanguageOracle oracle(rules);
    const auto grammar = compile_constraint(gbnf_of(gbnf_source(rules)));
    if (grammar.ok())
      expect_language(oracle.rule(0), *grammar, gbnf_source(rules));
    else
      expect_refused(grammar.error(), oracle.rule(0), gbnf_source(rules), refused);
    if (HasFailure()) return;
  }
  EXPECT_LT(refused, 10);
}

TEST_P(RandomGrammars, AsRegexes) {
  for (uint32_t seed = GetParam() * 20; seed < GetParam() * 20 + 20; ++seed) {
    const std::vector<Form> rules{RandomForm(seed + 9000).without_calls(4)};
    const LanguageOracle oracle(rules);
    const auto grammar = compile_constraint(regex_of(written(rules[0], true)));
    ASSERT_TRUE(grammar.ok()) << written(rules[0], true) << ": " << grammar.error().message;
    expect_language(oracle.rule(0), *grammar, written(rules[0], true));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, RandomGrammars, ::testing::Range(0u, 6u));

}  // namespace
}  // namespace millrace::testing
