// Compares KeyAccount with an independent reference implementation of the same rules under random requests, tokens,
// refunds and times, checking every figure after each step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "server/access/key_account.h"

namespace millrace {
namespace {

constexpr double kDay = 86400;

// A bucket as the amount that still has to drain.
struct Drain {
  double level = 0, since = 0;
  double now(double limit, double time) const {
    return std::max(0.0, level - std::max(0.0, time - since) * limit / 60);
  }
  void add(double limit, double amount, double time) {
    level = std::max(0.0, now(limit, time) + amount);
    since = time;
  }
  double wait(double limit, double amount, double time) const {
    const double above = now(limit, time) + std::min(amount, limit) - limit;
    return above > 0 ? above / (limit / 60) : 0;
  }
};

struct Plain {
  KeyLimits limits;
  Drain requests, tokens;
  int64_t day = -1, day_tokens = 0, prompt = 0, generated = 0, streams = 0, taken = 0, refused = 0;

  void turn(double time) {
    const auto today = static_cast<int64_t>(std::floor(time / kDay));
    if (today != day) day = today, day_tokens = 0;
  }
  void charge(int64_t count, double time) {
    if (limits.tokens_per_minute > 0)
      tokens.add(static_cast<double>(limits.tokens_per_minute), static_cast<double>(count), time);
    turn(time);
    day_tokens = std::max<int64_t>(0, day_tokens + count);
  }
};

enum class Outcome { fine, rate, quota };
Outcome outcome(const std::optional<ApiError>& error) {
  return !error ? Outcome::fine : error->kind == ApiErrorKind::rate_limited ? Outcome::rate : Outcome::quota;
}

class Model : public ::testing::TestWithParam<KeyLimits> {};

TEST_P(Model, MatchesTheReference) {
  const KeyLimits limits = GetParam();
  ApiKey key;
  key.name = "a";
  key.limits = limits;
  KeyAccount account(key);
  Plain plain{.limits = limits};
  double time = kDay * 20000 + 86000;  // shortly before midnight
  for (uint64_t step = 0; step < 4000; ++step) {
    const auto draw = [&](uint64_t stream) { return philox_uniform(9, stream, step); };
    time += draw(1) < 0.1 ? draw(2) * 40 : draw(1) < 0.11 ? 30000 : draw(2);
    const double what = draw(3);
    const auto tokens = static_cast<int64_t>(draw(4) * 40);
    if (what < 0.4) {
      const double wait = limits.requests_per_minute > 0
                              ? plain.requests.wait(static_cast<double>(limits.requests_per_minute), 1, time)
                              : 0;
      const auto error = account.take_request(time);
      ASSERT_EQ(outcome(error), wait > 0 ? Outcome::rate : Outcome::fine) << step;
      if (error) {
        ASSERT_NEAR(error->retry_seconds, wait, 1e-6);
        ++plain.refused;
      } else {
        if (limits.requests_per_minute > 0)
          plain.requests.add(static_cast<double>(limits.requests_per_minute), 1, time);
        ++plain.taken;
      }
    } else if (what < 0.7) {
      const int64_t answers = 1 + static_cast<int64_t>(draw(5) * 3);
      Outcome expected = Outcome::fine;
      double retry = 0;
      if (limits.streams > 0 && plain.streams + answers > limits.streams) {
        expected = Outcome::rate, retry = 1;
      } else {
        plain.turn(time);
        const int64_t used = plain.prompt + plain.generated;
        if (limits.tokens_total > 0 && used + tokens > limits.tokens_total)
          expected = Outcome::quota;
        else if (limits.tokens_per_day > 0 && plain.day_tokens + tokens > limits.tokens_per_day)
          expected = Outcome::quota, retry = (static_cast<double>(plain.day) + 1) * kDay - time;
        else if (limits.tokens_per_minute > 0 &&
                 (retry = plain.tokens.wait(static_cast<double>(limits.tokens_per_minute), static_cast<double>(tokens),
                                            time)) > 0)
          expected = Outcome::rate;
      }
      const auto error = account.begin(tokens, answers, time);
      ASSERT_EQ(outcome(error), expected) << step;
      if (error) {
        ASSERT_NEAR(error->retry_seconds, retry, 1e-5) << error->message;
        ASSERT_NE(error->message.find("key 'a'"), std::string::npos);
        ++plain.refused;
      } else {
        plain.prompt += tokens;
        plain.streams += answers;
        plain.charge(tokens, time);
      }
    } else if (what < 0.85) {
      account.generated(tokens, time);
      plain.generated += tokens;
      plain.charge(tokens, time);
    } else if (what < 0.95 && plain.streams > 0) {
      account.end(1);
      --plain.streams;
    } else if (plain.prompt >= tokens) {
      account.give_back(tokens, time);
      plain.prompt -= tokens;
      plain.charge(-tokens, time);
    }
    const KeyUsage usage = account.usage();
    ASSERT_EQ(usage.requests, plain.taken);
    ASSERT_EQ(usage.refused, plain.refused);
    ASSERT_EQ(usage.prompt_tokens, plain.prompt);
    ASSERT_EQ(usage.generated_tokens, plain.generated);
    ASSERT_EQ(usage.streams, plain.streams);
    size_t expected_headers = 0;
    for (const auto& [what_of, limit, drain] : {std::tuple{"requests", limits.requests_per_minute, &plain.requests},
                                                {"tokens", limits.tokens_per_minute, &plain.tokens}}) {
      if (limit == 0) continue;
      expected_headers += 3;
      const double used = drain->now(static_cast<double>(limit), time);
      const auto left = static_cast<int64_t>(std::max(0.0, static_cast<double>(limit) - used));
      for (const auto& [name, value] : account.headers(time)) {
        if (name == fmt::format("x-ratelimit-remaining-{}", what_of)) {
          ASSERT_NEAR(std::stod(value), static_cast<double>(left), 1e-9) << step;
        }
        if (name == fmt::format("x-ratelimit-limit-{}", what_of)) {
          ASSERT_EQ(value, std::to_string(limit));
        }
      }
    }
    ASSERT_EQ(account.headers(time).size(), expected_headers);
  }
  EXPECT_GT(plain.taken, 100);
}

INSTANTIATE_TEST_SUITE_P(Limits, Model,
                         ::testing::Values(KeyLimits{}, KeyLimits{.requests_per_minute = 7},
                                           KeyLimits{.tokens_per_minute = 600}, KeyLimits{.tokens_per_day = 9000},
                                           KeyLimits{.tokens_total = 30000}, KeyLimits{.streams = 9},
                                           KeyLimits{.requests_per_minute = 100,
                                                     .tokens_per_minute = 900,
                                                     .tokens_per_day = 20000,
                                                     .tokens_total = 60000,
                                                     .streams = 40}));

// Durations are rounded up, so that a client never retries too early.
TEST(KeyAccountHeaders, Durations) {
  const auto reset_after = [](int64_t limit, int64_t tokens) {
    ApiKey key;
    key.limits.tokens_per_minute = limit;
    KeyAccount account(key);
    EXPECT_FALSE(account.begin(tokens, 1, 100));
    for (const auto& [name, value] : account.headers(100))
      if (name == "x-ratelimit-reset-tokens") return value;
    return std::string();
  };
  EXPECT_EQ(reset_after(60000, 0), "0ms");
  EXPECT_EQ(reset_after(60000, 20), "20ms");
  EXPECT_EQ(reset_after(60000, 999), "999ms");
  EXPECT_EQ(reset_after(60000, 1000), "1s");
  EXPECT_EQ(reset_after(60000, 1500), "1.5s");
  EXPECT_EQ(reset_after(60000, 59999), "59.999s");
  EXPECT_EQ(reset_after(60, 60), "1m0s");
  EXPECT_EQ(reset_after(7, 7), "1m0s");
  ApiKey key;
  key.limits.tokens_per_minute = 60;
  KeyAccount account(key);
  EXPECT_FALSE(account.begin(60, 1, 100));
  account.generated(301, 100);
  for (const auto& [name, value] : account.headers(100)) {
    if (name == "x-ratelimit-reset-tokens") {
      EXPECT_EQ(value, "6m1s");
    }
    if (name == "x-ratelimit-remaining-tokens") {
      EXPECT_EQ(value, "0");
    }
  }
}

TEST(KeyAccountQuota, ErrorsReportUsage) {
  ApiKey key;
  key.name = "a";
  key.limits.tokens_total = 50;
  KeyAccount total(key);
  EXPECT_FALSE(total.begin(30, 1, 0));
  total.generated(15, 0);
  EXPECT_FALSE(total.begin(5, 1, 0));
  EXPECT_NE(total.begin(1, 1, 0)->message.find("50 of 50 tokens are used and this request has 1"), std::string::npos);
  key.limits = {.tokens_per_day = 50};
  KeyAccount day(key);
  EXPECT_FALSE(day.begin(50, 1, 10));
  const auto error = day.begin(2, 1, 10);
  EXPECT_NE(error->message.find("50 of 50 tokens a day are used and this request has 2"), std::string::npos)
      << error->message;
  key.limits = {.streams = 2};
  KeyAccount streams(key);
  EXPECT_FALSE(streams.begin(1, 1, 10));
  EXPECT_NE(streams.begin(1, 2, 10)->message.find("2 concurrent answers; it has 1 and requested 2"), std::string::npos);
}

TEST(KeyUse, ChargesAtCurrentTime) {
  ApiKey key;
  key.limits.tokens_per_minute = 1000;
  auto account = std::make_shared<KeyAccount>(key);
  EXPECT_FALSE(account->begin(100, 1, unix_seconds()));
  const KeyUse use(account, 100, 1);
  use.give_back();
  EXPECT_EQ(account->usage().prompt_tokens, 0);
  for (const auto& [name, value] : account->headers(unix_seconds()))
    if (name == "x-ratelimit-remaining-tokens") {
      EXPECT_EQ(value, "1000");
    }
  EXPECT_GT(unix_seconds(), 1.7e9);
}

}  // namespace
}  // namespace millrace
