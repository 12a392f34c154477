// A grammar whose text has more simultaneous readings than the matcher keeps crashed the server: the engine's thread
// used the empty set of readings without checking it (37 rules that double, or 1,100 alternatives that call
// themselves). The tests used grammars with few readings, and the fuzzers compiled grammars but ran no matcher.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "millrace/engine.h"
#include "test_paths.h"
#include "text/grammar/constraint.h"

namespace millrace {
namespace {

Constraint grammar_of(std::string text) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::grammar;
  constraint.text = std::move(text);
  return constraint;
}

std::string doubling(int rules, const char* end) {
  std::string text = "root ::= r0\n";
  for (int r = 0; r < rules; ++r) text += fmt::format("r{} ::= r{} r{}\n", r, r + 1, r + 1);
  return text + fmt::format("r{} ::= {}\n", rules, end);
}

std::string alternatives(int count) {
  std::string root = "root ::= r0", rules;
  for (int r = 0; r < count; ++r) {
    if (r > 0) root += fmt::format(" | r{}", r);
    rules += fmt::format("r{} ::= \"{}(\" r{} \")\" | \"{};\"\n", r, r, r, r);
  }
  return root + "\n" + rules;
}

// The number of readings starts small and grows with every byte: for a long time only "a" is allowed, and each "a" can
// belong to many readings.
std::string growing() {
  std::string text = "root ::=", ways = "s ::= \"a\"";
  for (int i = 0; i < 50; ++i) text += " s";
  text += " \"!\"\n";
  for (int r = 0; r < 20; ++r) {
    ways += fmt::format(" | t{}", r);
    text += fmt::format("t{} ::= \"a\" s u{} | \"a\" s s\nu{} ::= \"a\" u{} \"a\" | \"a\"\n", r, r, r, r);
  }
  return text + ways + "\n";
}

std::vector<std::string> pieces() {
  std::vector<std::string> all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* piece : {"aa", "aaaa", "12", "0(", "1;", "99(99", ";)"}) all.push_back(piece);
  return all;
}

TEST(AmbiguousGrammar, DoublingRulesWorkOrAreRefusedWithAReason) {
  GrammarCache cache(pieces);
  for (const int rules : {5, 37, 60, 100, 500, 3000}) {
    for (const char* end : {"\"\"", "\"a\"", "\"a\" | \"\""}) {
      auto compiled = cache.get(grammar_of(doubling(rules, end)));
      if (!compiled.ok()) {
        EXPECT_EQ(compiled.error().kind, ErrorKind::unsupported) << rules << end;
        const std::string& why = compiled.error().message;
        EXPECT_TRUE(why.find("ambiguous") != std::string::npos || why.find("too deeply") != std::string::npos) << why;
        EXPECT_GT(rules, 37) << end << ": " << compiled.error().message;
        continue;
      }
      GrammarMatcher matcher(*compiled);
      std::vector<uint64_t> bits(matcher.words());
      const size_t allowed = matcher.mask(bits);
      EXPECT_EQ(allowed > 0, std::string_view(end) != "\"\"" && matcher.exceeded() == ParseBound::none) << rules << end;
      EXPECT_TRUE(matcher.complete() || std::string_view(end) == "\"a\"");
      matcher.accept('a');
      matcher.reset();
      matcher.rollback(3);
    }
  }
}

TEST(AmbiguousGrammar, ManyAlternativesThatCallThemselvesWork) {
  GrammarCache cache(pieces);
  auto compiled = cache.get(grammar_of(alternatives(1100)));
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  GrammarMatcher matcher(*compiled);
  std::vector<uint64_t> bits(matcher.words());
  const size_t begins = matcher.mask(bits);
  ASSERT_EQ(matcher.exceeded(), ParseBound::none);
  EXPECT_EQ(begins, 10u + 4u);  // the digits, and 12 0( 1; 99(99
  for (const char* text : {"99(", "99(", "99", ";", ")", ")"}) ASSERT_TRUE(matcher.accept_text(text)) << text;
  EXPECT_TRUE(matcher.exhausted());
}

TEST(AmbiguousGrammar, TheDeadSetAnswersEveryQuery) {
  auto grammar = compile_constraint(grammar_of("root ::= \"a\" root \"b\" | \"\""));
  ASSERT_TRUE(grammar.ok());
  const auto shared = std::make_shared<const Grammar>(std::move(grammar).value());
  ParseTable table(shared), other(shared);
  EXPECT_TRUE(table.configs(kDead).empty());
  EXPECT_FALSE(table.complete(kDead) || table.can_continue(kDead));
  EXPECT_FALSE(table.exits(kDead));
  EXPECT_EQ(table.step(kDead, 'a'), kDead);
  EXPECT_EQ(table.step(table.begin(), 'x'), kDead);
  std::vector<SetId> sets{kDead, table.step(table.begin(), 'a')};
  other.import(table, sets);
  EXPECT_EQ(sets[0], kDead);
  EXPECT_NE(sets[1], kDead);
  EXPECT_TRUE(other.complete(other.step(sets[1], 'b')));
  EXPECT_EQ(table.exceeded(), ParseBound::none);
}

TEST(AmbiguousGrammar, AMatcherReportsTheBoundItHitAndAllowsNothing) {
  GrammarCache cache(pieces);
  auto compiled = cache.get(grammar_of(growing()));
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  GrammarMatcher matcher(*compiled);
  std::vector<uint64_t> bits(matcher.words());
  int tokens = 0;
  while (tokens < 5000 && matcher.mask(bits) > 0 && matcher.accept('a')) ++tokens;
  ASSERT_NE(matcher.exceeded(), ParseBound::none) << tokens << " tokens were taken";
  EXPECT_GT(tokens, 0);
  EXPECT_EQ(matcher.mask(bits), 0u);
  EXPECT_FALSE(matcher.allows('a'));
  EXPECT_FALSE(matcher.accept('a'));
  EXPECT_FALSE(matcher.complete());
  EXPECT_EQ(matcher.jump_ahead(), "");
  GrammarMatcher copy = matcher;
  EXPECT_EQ(copy.mask(bits), 0u);
  matcher.reset();
  EXPECT_GT(matcher.mask(bits), 0u);
  EXPECT_LT(matcher.bytes(), size_t{80} << 20);
}

Request asking(Constraint constraint, uint64_t seed) {
  Request request;
  request.prompt = {1, 2, 3, 4, 5};
  request.max_tokens = 60;
  request.ignore_eos = true;
  request.constraint = std::move(constraint);
  request.sampling.seed = seed;
  request.sampling.temperature = 1.5F;
  return request;
}

struct CollectedAnswer {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::none;
  Error error;
};

CollectedAnswer collect(Stream& stream) {
  CollectedAnswer out;
  while (auto event = stream.next()) {
    if (event->token >= 0 && event->finish != FinishReason::error) out.tokens.push_back(event->token);
    if (event->finish == FinishReason::none) continue;
    out.finish = event->finish;
    out.error = event->error;
  }
  return out;
}

TEST(AmbiguousGrammar, EndsOnlyItsOwnStreamWithAReason) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama/model.gguf",
                                   {.threads = 1, .context = 128})
                   .value();
  EngineOptions options;
  options.threads = 1;
  options.max_streams = 4;
  auto engine = Engine::create(model, options).value();
  const CollectedAnswer alone = collect(**engine->submit(asking({}, 7)));
  ASSERT_EQ(alone.finish, FinishReason::length);

  auto beside = engine->submit(asking({}, 7)).value();
  auto growing_stream = engine->submit(asking(grammar_of(growing()), 3));
  auto doubled = engine->submit(asking(grammar_of(doubling(37, "\"a\"")), 4));
  const auto refused = engine->submit(asking(grammar_of(doubling(3000, "\"\"")), 5));
  ASSERT_TRUE(growing_stream.ok()) << growing_stream.error().message;
  const CollectedAnswer met = collect(**growing_stream);
  EXPECT_EQ(met.finish, FinishReason::error);
  EXPECT_NE(met.error.message.find("constraint: "), std::string::npos) << met.error.message;
  EXPECT_NE(met.error.message.find("ambiguous"), std::string::npos) << met.error.message;
  ASSERT_TRUE(doubled.ok()) << doubled.error().message;
  EXPECT_NE(collect(**doubled).finish, FinishReason::none);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(collect(*beside).tokens, alone.tokens);
  EXPECT_EQ(collect(**engine->submit(asking({}, 7))).tokens, alone.tokens);
}

}  // namespace
}  // namespace millrace
