#include "server/access/api_keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "server/access/access.h"

namespace millrace {
namespace {

constexpr const char* kAbc =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-2: SHA-256 of "abc"

Result<std::vector<ApiKey>> parse(const std::string& keys) {
  return parse_api_keys(fmt::format("{{\"keys\": [{}]}}", keys), "keys");
}

TEST(ApiKeys, KeyAndItsDigestAreEquivalent) {
  auto plain = parse(R"({"name": "a", "key": "abc"})");
  auto digest = parse(fmt::format(R"({{"name": "a", "key_sha256": "{}"}})", kAbc));
  ASSERT_TRUE(plain.ok());
  ASSERT_TRUE(digest.ok());
  EXPECT_TRUE(same_digest((*plain)[0].digest, (*digest)[0].digest));
  EXPECT_TRUE(same_digest((*plain)[0].digest, key_digest("abc")));
  for (const char* other : {"", "ab", "abd", "abcabc"})
    EXPECT_FALSE(same_digest((*plain)[0].digest, key_digest(other))) << other;
  EXPECT_FALSE((*plain)[0].admin);
  EXPECT_EQ((*plain)[0].limits.requests_per_minute, 0);
}

TEST(ApiKeys, EverySetting) {
  auto keys = parse(
      R"({"name": "a.b-c_1", "key": "k", "role": "admin", "weight": 2.5, "requests_per_minute": 1, "tokens_per_minute": 2,
                       "tokens_per_day": 3, "tokens_total": 4, "streams": 5, "cache_group": "team"})");
  ASSERT_TRUE(keys.ok());
  const ApiKey& key = (*keys)[0];
  EXPECT_TRUE(key.admin);
  EXPECT_EQ(key.weight, 2.5);
  EXPECT_EQ(key.limits.requests_per_minute, 1);
  EXPECT_EQ(key.limits.tokens_per_minute, 2);
  EXPECT_EQ(key.limits.tokens_per_day, 3);
  EXPECT_EQ(key.limits.tokens_total, 4);
  EXPECT_EQ(key.limits.streams, 5);
  EXPECT_EQ(key.cache_group, "team");
}

TEST(ApiKeys, ErrorsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"key": "k"})", "name"},
      {R"({"name": "a b", "key": "k"})", "name"},
      {R"({"name": "a"})", "key_sha256"},
      {R"({"name": "a", "key": ""})", "key"},
      {R"({"name": "a", "key": "k", "key_sha256": "00"})", "but not both"},
      {R"({"name": "a", "key_sha256": "00"})", "64"},
      {R"({"name": "a", "key": "k", "role": "root"})", "role"},
      {R"({"name": "a", "key": "k", "weight": 0})", "weight"},
      {R"({"name": "a", "key": "k", "weight": 1e300})", "weight"},
      {R"({"name": "a", "key": "k", "streams": -1})", "streams"},
      {R"({"name": "a", "key": "k", "streams": 1.5})", "streams"},
      {R"({"name": "a", "key": "k", "tokens_total": 18446744073709551615})", "tokens_total"},
      {R"({"name": "a", "key": "k", "request_per_minute": 1})", "request_per_minute"},
      {R"({"name": "a", "key": "k"}, {"name": "a", "key": "l"})", "duplicate name"},
      {R"({"name": "a", "key": "k"}, {"name": "b", "key": "k"})", "duplicate key"},
      {R"(5)", "object"},
  };
  for (const auto& [text, word] : cases) {
    auto keys = parse(text);
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_EQ(keys.error().kind, ErrorKind::user);
    EXPECT_NE(keys.error().message.find(word), std::string::npos) << keys.error().message;
    EXPECT_EQ(keys.error().message.find("\"k\""), std::string::npos);
  }
  for (const char* text :
       {"", "{}", "[]", R"({"keys": []})", R"({"keys": {}})", R"({"keys": [{"name": "a", "key": "k"}], "more": 1})"})
    EXPECT_FALSE(parse_api_keys(text, "keys").ok()) << text;
}

TEST(ApiKeys, WarnsIfOthersCanReadTheFile) {
  std::string path = testing::TempDir() + "/api_keys_XXXXXX";
  const int made = ::mkstemp(path.data());
  ASSERT_GE(made, 0);
  std::ofstream(path) << R"({"keys": [{"name": "a", "key": "k"}]})";
  ::fchmod(made, 0600);
  auto closed = read_api_keys(path);
  ::fchmod(made, 0644);
  auto readable = read_api_keys(path);
  ::close(made);
  ::unlink(path.c_str());
  ASSERT_TRUE(closed.ok() && readable.ok());
  EXPECT_EQ(closed->warning, "");
  EXPECT_NE(readable->warning.find("644"), std::string::npos);
  EXPECT_EQ(read_api_keys(path).error().kind, ErrorKind::corrupt);
}

HttpRequest request_with(const char* name, const char* value) { return HttpRequest{.headers = {{name, value}}}; }

TEST(Access, RemainingNamesKeepTheirAccounts) {
  Access access({plain_api_key("one", 1), plain_api_key("two", 2)});
  EXPECT_FALSE(access.open());
  auto account = access.find(request_with("x-api-key", "one"));
  ASSERT_TRUE(account);
  EXPECT_EQ(account->key().name, "#1");
  EXPECT_EQ(access.find(request_with("authorization", "Bearer two"))->key().name, "#2");
  for (const char* wrong : {"Bearer on", "Bearer ", "Basic one", "one", "bearer"})
    EXPECT_FALSE(access.find(request_with("authorization", wrong))) << wrong;
  EXPECT_FALSE(account->begin(10, 1, 0));
  access.replace({plain_api_key("three", 1)});
  EXPECT_FALSE(access.find(request_with("x-api-key", "one")));
  EXPECT_FALSE(access.find(request_with("x-api-key", "two")));
  EXPECT_EQ(access.find(request_with("x-api-key", "three")), account);
  EXPECT_EQ(access.usage()[0].prompt_tokens, 10);
  EXPECT_EQ(access.usage()[0].streams, 1);
  EXPECT_TRUE(Access({}).open());
}

TEST(Access, NeededRole) {
  Endpoint plain{.method = "GET", .path = "/v1/models"}, slots{.method = "GET", .path = "/slots"},
      metrics{.method = "GET", .path = "/metrics"};
  EXPECT_EQ(needed_role(nullptr, Role::admin), Role::user);
  EXPECT_EQ(needed_role(&plain, Role::admin), Role::user);
  EXPECT_EQ(needed_role(&slots, Role::none), Role::admin);
  for (Role role : {Role::none, Role::user, Role::admin}) EXPECT_EQ(needed_role(&metrics, role), role);
  plain.open = true;
  EXPECT_EQ(needed_role(&plain, Role::admin), Role::none);
  plain.open = false;
  plain.admin = true;
  EXPECT_EQ(needed_role(&plain, Role::admin), Role::admin);
}

}  // namespace
}  // namespace millrace
