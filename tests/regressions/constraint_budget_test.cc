// A regex of thirty bytes took 30 s and 3.6 GB before it was refused, and an object of some hundred optional properties
// took seconds: the limit counted states, not the sets that they stand for, and compilation could not be cancelled. The
// tests checked what compiles, not what it costs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/grammar/constraint.h"
#include "text/grammar/json_rules.h"

namespace millrace {
namespace {

Constraint of_kind(Constraint::Kind kind, std::string text) {
  Constraint constraint;
  constraint.kind = kind;
  constraint.text = std::move(text);
  return constraint;
}
Constraint regex_of(std::string text) { return of_kind(Constraint::Kind::regex, std::move(text)); }

constexpr int64_t kMiB = int64_t{1} << 20;

struct Compiled {
  Result<Grammar> grammar = Error::internal("not compiled");
  int64_t peak = 0;
};

Compiled compile(const Constraint& constraint, const CompileBounds& bounds = {},
                 std::shared_ptr<const std::atomic<bool>> cancelled = nullptr) {
  CompileBudget budget(bounds, std::move(cancelled));
  GrammarLimits limits;
  limits.budget = &budget;
  Compiled out;
  out.grammar = compile_constraint(constraint, limits);
  out.peak = budget.peak_bytes();
  return out;
}

bool accepts(const Grammar& grammar, std::string_view text) {
  ParseTable table(std::make_shared<const Grammar>(grammar));
  SetId set = table.begin();
  for (char c : text) set = table.step(set, static_cast<uint8_t>(c));
  return table.complete(set);
}

TEST(ConstraintBudget, NestedRepetitionsTakeSpaceInProportionToTheirLength) {
  for (const auto& [pattern, longest] : {std::pair<const char*, size_t>{"((a{0,3}){0,200}){50}", 30'000},
                                         {"(a{0,3}){0,200}", 600},
                                         {"a{0,5000}", 5000},
                                         {"((a?){0,40}){0,50}", 2000},
                                         {"(a{2,3}){2,50}", 150}}) {
    const Compiled compiled = compile(regex_of(pattern), {32 * kMiB, 5});
    ASSERT_TRUE(compiled.grammar.ok()) << pattern << ": " << compiled.grammar.error().message;
    EXPECT_TRUE(accepts(*compiled.grammar, std::string(longest, 'a'))) << pattern;
    EXPECT_FALSE(accepts(*compiled.grammar, std::string(longest + 1, 'a'))) << pattern;
    EXPECT_FALSE(accepts(*compiled.grammar, std::string(longest - 1, 'a') + "b")) << pattern;
  }
  // Cases that are not a single repetition: copies overlap, and only the best of them are distinguished.
  const Compiled compiled = compile(regex_of("(?:a|ab?|aab){0,400}(?:c|ac){0,300}"), {32 * kMiB, 5});
  ASSERT_TRUE(compiled.grammar.ok()) << compiled.grammar.error().message;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "aab";
  EXPECT_TRUE(accepts(*compiled.grammar, text + "acac"));
  EXPECT_FALSE(accepts(*compiled.grammar, text + "aaabacac"));
}

TEST(ConstraintBudget, RepetitionsOfRepetitionsKeepTheirGaps) {
  for (const auto& [pattern, lengths] : {std::pair<const char*, std::vector<size_t>>{"(?:a{3}){0,3}", {0, 3, 6, 9}},
                                         {"(?:a{3,4}){0,2}", {0, 3, 4, 6, 7, 8}},
                                         {"(?:a{2,3}){1,3}", {2, 3, 4, 5, 6, 7, 8, 9}},
                                         {"(?:a{2,})*", {0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
                                         {"(?:a{3,}){0,1}", {0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
                                         {"(?:a{0,2}){3}", {0, 1, 2, 3, 4, 5, 6}},
                                         {"(?:a{5}){0}", {0}},
                                         {"(?:a{2}){2,}", {4, 6, 8, 10, 12}},
                                         {"(?:a*){2,3}", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}}) {
    const Compiled compiled = compile(regex_of(pattern));
    ASSERT_TRUE(compiled.grammar.ok()) << pattern << ": " << compiled.grammar.error().message;
    for (size_t n = 0; n <= 12; ++n)
      EXPECT_EQ(accepts(*compiled.grammar, std::string(n, 'a')), std::ranges::find(lengths, n) != lengths.end())
          << pattern << " " << n;
  }
}

TEST(ConstraintBudget, TooLargeConstraintsAreRefusedWithinTheBudget) {
  const auto gbnf = [](std::string text) { return of_kind(Constraint::Kind::grammar, std::move(text)); };
  std::string chain = "root ::= r0\n", literal(900'000, 'x');
  for (int r = 0; r < 15'000; ++r) chain += fmt::format("r{} ::= \"a\" r{} | \"b\"\n", r, r + 1);
  for (const Constraint& constraint :
       {regex_of("(?:a|b)*a(?:a|b){200}"), regex_of("(?:[a-f]{0,90}x?){0,900}y?(?:[a-f]{0,90}){300,900}"),
        regex_of(literal), regex_of("(?:.{0,1000}a){100}"),
        gbnf("root ::= (\"a\" | \"b\")* \"a\" ((\"a\" | \"b\"){9}){40}"), gbnf(chain + "r15000 ::= r15000\n"),
        gbnf(chain + "r15000 ::= \"c\"\n")}) {
    const Compiled compiled = compile(constraint, {16 * kMiB, 5});
    EXPECT_LE(compiled.peak, 32 * kMiB) << constraint.text.substr(0, 60);  // includes the last allocation requested
    if (compiled.grammar.ok()) continue;
    EXPECT_TRUE(compiled.grammar.error().kind == ErrorKind::unsupported ||
                compiled.grammar.error().kind == ErrorKind::user)
        << compiled.grammar.error().message;
  }
}

TEST(ConstraintBudget, StopsWhenCancelledAndAtTheTimeLimit) {
  const Constraint large = regex_of("(?:a|b)*a(?:a|b){200}");
  const Compiled cancelled = compile(large, {}, std::make_shared<const std::atomic<bool>>(true));
  ASSERT_FALSE(cancelled.grammar.ok());
  EXPECT_EQ(cancelled.grammar.error().kind, ErrorKind::cancelled);
  const Compiled late = compile(large, {.bytes = int64_t{1} << 40, .seconds = 0.01});
  ASSERT_FALSE(late.grammar.ok());
  EXPECT_NE(late.grammar.error().message.find("longer than"), std::string::npos) << late.grammar.error().message;
}

TEST(ConstraintBudget, ReleasesAllItsMemory) {
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  for (
      const char* schema :
      {R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{2,40}$"},"b":{"type":"integer","multipleOf":7}},"additionalProperties":{"type":"number"}})",
       R"({"type":"string","pattern":"(("})"}) {
    compile_constraint(of_kind(Constraint::Kind::json_schema, schema), limits).ok();
    EXPECT_GT(budget.peak_bytes(), 0);
    EXPECT_EQ(budget.held_bytes(), 0) << schema;
  }
}

std::string object_of(int properties, bool closed, int required_every) {
  std::string schema = R"({"type":"object","properties":{)", required;
  for (int i = 0; i < properties; ++i) {
    const int shuffled = i * 7919 % properties;
    schema += fmt::format(R"({}"property_{:04}":{{"type":"{}"}})", i ? "," : "", shuffled,
                          i % 3 == 0   ? "string"
                          : i % 3 == 1 ? "number"
                                       : "boolean");
    if (required_every > 0 && i % required_every == 0)
      required += fmt::format(R"({}"property_{:04}")", required.empty() ? "" : ",", shuffled);
  }
  return schema + "},\"required\":[" + required + "]" + (closed ? ",\"additionalProperties\":false}" : "}");
}

TEST(ConstraintBudget, ManyOptionalPropertiesCompileInProportion) {
  for (const bool closed : {true, false}) {
    const Compiled compiled =
        compile(of_kind(Constraint::Kind::json_schema, object_of(3000, closed, 0)), {128 * kMiB, 5});
    ASSERT_TRUE(compiled.grammar.ok()) << compiled.grammar.error().message;
    const Grammar& grammar = *compiled.grammar;
    const auto name = [](int i) { return fmt::format("\"property_{:04}\"", i * 7919 % 3000); };
    EXPECT_TRUE(accepts(grammar, "{}"));
    EXPECT_TRUE(accepts(grammar, fmt::format("{{{}: \"x\", {}: 1.5, {}: true}}", name(0), name(1), name(2999))));
    EXPECT_TRUE(accepts(grammar, fmt::format("{{\n  {}: 12}}", name(1000))));
    EXPECT_FALSE(accepts(grammar, fmt::format("{{{}: 1.5, {}: \"x\"}}", name(1), name(0))));
    EXPECT_FALSE(accepts(grammar, fmt::format("{{{}: 1.5}}", name(0))));
    EXPECT_FALSE(accepts(grammar, fmt::format("{{{}: \"x\",}}", name(0))));
    EXPECT_EQ(accepts(grammar, fmt::format("{{{}: \"x\", \"property_30\": [1]}}", name(2997))), !closed);
    EXPECT_EQ(accepts(grammar, "{\"other\": null, \"more\": {}}"), !closed);
    EXPECT_FALSE(accepts(grammar, fmt::format("{{\"other\": null, {}: \"x\"}}", name(0))));
  }
}

// The layout for many members accepts the same texts as the layout for few.
TEST(ConstraintBudget, LongMemberListsKeepOrderAndRequiredMembers) {
  for (const int required_every : {0, 7, 50}) {
    const Compiled compiled = compile(of_kind(Constraint::Kind::json_schema, object_of(101, true, required_every)));
    ASSERT_TRUE(compiled.grammar.ok()) << compiled.grammar.error().message;
    ParseTable table(std::make_shared<const Grammar>(*compiled.grammar));
    const auto run = [&](const std::vector<int>& members) {
      std::string text = "{";
      for (int i : members)
        text += fmt::format("{}\"property_{:04}\":{}", text.size() > 1 ? "," : "", i * 7919 % 101,
                            i % 3 == 0   ? "\"\""
                            : i % 3 == 1 ? "0"
                                         : "true");
      SetId set = table.begin();
      for (char c : text + "}") set = table.step(set, static_cast<uint8_t>(c));
      return table.complete(set);
    };
    const auto must = [&](int i) { return required_every > 0 && i % required_every == 0; };
    uint32_t random = 12345;
    for (int round = 0; round < 300; ++round) {
      std::vector<int> members;
      bool whole = true;
      for (int i = 0; i < 101; ++i) {
        random = random * 1664525 + 1013904223;
        const bool dropped = must(i) ? (random >> 20) % 40 == 0 : (random >> 20) % 3 > 0;
        if (!dropped) members.push_back(i);
        whole &= !dropped || !must(i);
      }
      EXPECT_EQ(run(members), whole);
      if (members.size() < 2) continue;
      std::swap(members[round % (members.size() - 1)], members[round % (members.size() - 1) + 1]);
      EXPECT_FALSE(run(members));
    }
  }
}

}  // namespace
}  // namespace millrace
