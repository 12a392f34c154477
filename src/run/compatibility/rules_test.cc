// The table of rules and what is generated from it.
#include "run/compatibility/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "run/compatibility/page.h"
#include "test_paths.h"

namespace millrace {
namespace {

TEST(CompatibilityRules, AMessageNamesBothAndSaysWhatToDo) {
  Facts facts;
  EXPECT_TRUE(resolve(facts).ok());
  facts.add(facts::kDraftsTrees, "drafter token_recycling");
  EXPECT_TRUE(resolve(facts).ok());
  facts.add(facts::kPattern, "attention bigbird");
  const auto refused = resolve(facts);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(refused.error().message,
            "drafter token_recycling does not go with attention bigbird: a pattern has no rule for the branches of a "
            "tree; use a drafter of chains, such as ngram without branches, or none");
}

TEST(CompatibilityRules, TheFirstStatementOfAFactCounts) {
  Facts facts;
  facts.add(facts::kDrafts, "drafter ngram");
  facts.add(facts::kDrafts, "another");
  facts.add_if(false, facts::kEvicts, "evictor h2o");
  EXPECT_EQ(*facts.who(facts::kDrafts), "drafter ngram");
  EXPECT_EQ(facts.who(facts::kEvicts), nullptr);
  EXPECT_EQ(facts.stated().size(), 1u);
}

TEST(CompatibilityRules, EachPairOfFactsHasOneRule) {
  std::set<std::pair<const Fact*, const Fact*>> pairs;
  for (const Rule& rule : compatibility_rules()) {
    EXPECT_TRUE(pairs.insert(std::minmax(rule.a, rule.b)).second) << rule.a->text << " and " << rule.b->text;
    EXPECT_NE(*rule.why, 0);
    EXPECT_NE(*rule.advice, 0);
  }
}

TEST(CompatibilityRules, ThePageIsCurrent) {
  std::ifstream file(std::string(MILLRACE_SOURCE_DIR) + "/docs/compatibility.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), compatibility_page())
      << "write docs/compatibility.md again: millrace techniques --matrix > docs/compatibility.md";
}

}  // namespace
}  // namespace millrace
