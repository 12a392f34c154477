#include "engine/prefix_scopes.h"

#include <gtest/gtest.h>

#include <set>

namespace millrace {
namespace {

TEST(PrefixScopes, SeparatesTenantsGroupsAndAdapters) {
  PrefixScopes scopes;
  EXPECT_EQ(scopes.of("", ""), 0u);
  const std::set<uint64_t> all = {
      0, scopes.of("a", ""), scopes.of("b", ""), scopes.of("", "a"), scopes.of("a", "", "x"), scopes.of("", "", "x")};
  EXPECT_EQ(all.size(), 6u);
  const std::set<uint64_t> depths = {0, scopes.of("", "", "", "", 1), scopes.of("", "", "", "", 2),
                                     scopes.of("a", "", "", "", 2), scopes.of("a", "")};
  EXPECT_EQ(depths.size(), 5u);
  EXPECT_EQ(scopes.of("a", ""), scopes.of("a", ""));
  EXPECT_EQ(scopes.of("a", "g"), scopes.of("b", "g"));
}

// A client that invents names cannot block other names, and a name that returns gets its old scope.
TEST(PrefixScopes, EvictsTheOldestName) {
  PrefixScopes scopes;
  const uint64_t first = scopes.of("first", "");
  for (size_t i = 0; i < 2 * PrefixScopes::kMaxNames; ++i) EXPECT_NE(scopes.of("", "salt " + std::to_string(i)), first);
  EXPECT_EQ(scopes.size(), PrefixScopes::kMaxNames);
  EXPECT_NE(scopes.of("new", ""), 0u);
  EXPECT_EQ(scopes.of("first", ""), first);
}

}  // namespace
}  // namespace millrace
