#include "server/access/key_account.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

KeyAccount account_with(KeyLimits limits) {
  ApiKey key;
  key.name = "a";
  key.limits = limits;
  return KeyAccount(key);
}

std::string header(const KeyAccount& account, double now, const std::string& name) {
  for (const auto& [key, value] : account.headers(now))
    if (key == name) return value;
  return "none";
}

TEST(KeyAccount, WithoutLimitsEverythingIsAllowedAndCounted) {
  KeyAccount account = account_with({});
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(account.take_request(1));
  EXPECT_FALSE(account.begin(1000000, 500, 1));
  account.generated(7, 1);
  account.end(499);
  const KeyUsage usage = account.usage();
  EXPECT_EQ(usage.requests, 1000);
  EXPECT_EQ(usage.prompt_tokens, 1000000);
  EXPECT_EQ(usage.generated_tokens, 7);
  EXPECT_EQ(usage.streams, 1);
  EXPECT_EQ(usage.refused, 0);
  EXPECT_TRUE(account.headers(1).empty());
}

TEST(KeyAccount, RequestsPerMinuteRefillEvenly) {
  KeyAccount account = account_with({.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(account.take_request(100));
  EXPECT_EQ(header(account, 100, "x-ratelimit-limit-requests"), "6");
  EXPECT_EQ(header(account, 100, "x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(header(account, 100, "x-ratelimit-reset-requests"), "1m0s");
  EXPECT_EQ(header(account, 100, "x-ratelimit-limit-tokens"), "none");
  auto refused = account.take_request(104);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, ApiErrorKind::rate_limited);
  EXPECT_NEAR(refused->retry_seconds, 6, 1e-6);
  EXPECT_FALSE(account.take_request(110.001));
  EXPECT_TRUE(account.take_request(110.002));
  EXPECT_FALSE(account.take_request(1000));
  EXPECT_EQ(header(account, 1000, "x-ratelimit-remaining-requests"), "5");
  EXPECT_FALSE(account.take_request(10));  // a clock that was set back
  EXPECT_EQ(account.usage().refused, 2);
}

TEST(KeyAccount, AnswerTokensCanOverdrawTheBucket) {
  KeyAccount account = account_with({.tokens_per_minute = 60});
  EXPECT_FALSE(account.begin(40, 1, 0));
  account.generated(50, 0);
  EXPECT_EQ(header(account, 0, "x-ratelimit-remaining-tokens"), "0");
  auto refused = account.begin(10, 1, 0);
  ASSERT_TRUE(refused);
  EXPECT_NEAR(refused->retry_seconds, 40, 1e-6);
  EXPECT_FALSE(account.begin(10, 1, 40.001));
  // More than the limit: waits for an empty bucket.
  refused = account.begin(1000, 1, 40.001);
  ASSERT_TRUE(refused);
  EXPECT_NEAR(refused->retry_seconds, 60, 0.01);
  EXPECT_FALSE(account.begin(1000, 1, 101));
}

TEST(KeyAccount, DailyAndTotalQuotas) {
  KeyAccount account = account_with({.tokens_per_day = 100});
  const double noon = 86400.0 * 20000 + 43200;
  EXPECT_FALSE(account.begin(60, 1, noon));
  account.generated(40, noon);
  auto refused = account.begin(1, 1, noon);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, ApiErrorKind::no_quota);
  EXPECT_NEAR(refused->retry_seconds, 43200, 1e-6);
  EXPECT_FALSE(account.begin(100, 1, noon + 43200));

  KeyAccount total = account_with({.tokens_total = 100});
  EXPECT_FALSE(total.begin(100, 1, noon));
  EXPECT_EQ(total.begin(1, 1, noon + 1e9)->retry_seconds, 0);
}

TEST(KeyAccount, ConcurrentAnswers) {
  auto account = std::make_shared<KeyAccount>(account_with({.streams = 4}).key());
  EXPECT_FALSE(account->begin(1, 3, 0));
  EXPECT_TRUE(account->begin(1, 2, 0));
  {
    const KeyUse use(account, 1, 3);
    EXPECT_FALSE(account->begin(1, 1, 0));
    use.generated(2);
  }
  EXPECT_EQ(account->usage().streams, 1);
  EXPECT_EQ(account->usage().generated_tokens, 2);
  EXPECT_EQ(account->usage().prompt_tokens, 2);
  KeyUse(account, 1, 0).give_back();
  EXPECT_EQ(account->usage().prompt_tokens, 1);
  EXPECT_FALSE(account->begin(1, 3, 0));
  EXPECT_TRUE(account->begin(1, 5, 0));
}

TEST(KeyAccount, NewLimitsKeepUsage) {
  KeyAccount account = account_with({.requests_per_minute = 10});
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(account.take_request(0));
  ApiKey key = account.key();
  key.limits.requests_per_minute = 5;
  account.change(key);
  EXPECT_TRUE(account.take_request(0));
}

}  // namespace
}  // namespace millrace
