#include "sampling/schema.h"

#include <gtest/gtest.h>

#include <limits>

namespace millrace {
namespace {

TEST(SamplingSchema, DefaultsMatchTheStruct) {
  SamplingOptions defaults, set;
  set.top_k = 1;
  set.dry_breakers.clear();
  for (const auto& spec : sampling_schema()) {
    auto result = set_sampling_option(set, spec.name, spec.default_value);
    ASSERT_TRUE(result.ok()) << result.error().message;
  }
  EXPECT_EQ(set.top_k, defaults.top_k);
  EXPECT_EQ(set.dry_breakers, defaults.dry_breakers);
  EXPECT_EQ(set.temperature, defaults.temperature);
  EXPECT_EQ(set.top_p, defaults.top_p);
  EXPECT_EQ(set.min_p, defaults.min_p);
  EXPECT_EQ(set.repetition_penalty, defaults.repetition_penalty);
  EXPECT_EQ(set.penalty_window, defaults.penalty_window);
  EXPECT_EQ(set.dry_base, defaults.dry_base);
  EXPECT_EQ(set.dry_allowed_length, defaults.dry_allowed_length);
  EXPECT_EQ(set.top_n_sigma, defaults.top_n_sigma);
  EXPECT_EQ(set.xtc_threshold, defaults.xtc_threshold);
  EXPECT_EQ(set.mirostat_tau, defaults.mirostat_tau);
  EXPECT_EQ(set.mirostat_eta, defaults.mirostat_eta);
  EXPECT_EQ(set.logprobs, defaults.logprobs);
  EXPECT_TRUE(validate(set, 100).ok());
}

TEST(SamplingSchema, SetsEveryKindOfField) {
  SamplingOptions o;
  EXPECT_TRUE(set_sampling_option(o, "seed", "18446744073709551615").ok());
  EXPECT_EQ(o.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(set_sampling_option(o, "temperature", "0.25").ok());
  EXPECT_EQ(o.temperature, 0.25);
  EXPECT_TRUE(set_sampling_option(o, "logit_bias", "5:-1.5,7:-inf").ok());
  EXPECT_EQ(o.logit_bias, (std::map<TokenId, double>{{5, -1.5}, {7, -std::numeric_limits<double>::infinity()}}));
  EXPECT_TRUE(set_sampling_option(o, "banned_tokens", "1,2,3").ok());
  EXPECT_EQ(o.banned_tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_TRUE(set_sampling_option(o, "banned_tokens", "").ok());
  EXPECT_TRUE(o.banned_tokens.empty());
  EXPECT_TRUE(set_sampling_option(o, "dry_breakers", R"(["\n\n", ","])").ok());
  EXPECT_EQ(o.dry_breakers, (std::vector<std::string>{"\n\n", ","}));
}

TEST(SamplingSchema, TextRoundTripsExactly) {
  SamplingOptions o, again;
  o.seed = std::numeric_limits<uint64_t>::max();
  o.temperature = 0.1 + 0.2;
  o.top_p = 1.0 / 3;
  o.logit_bias = {{5, -1.0 / 7}, {7, -std::numeric_limits<double>::infinity()}};
  o.banned_tokens = {1, 2};
  o.dry_breakers = {"\n", "\"", "\xC3\xA9"};
  o.logprobs = 3;
  for (const auto& spec : sampling_schema()) {
    auto result = set_sampling_option(again, spec.name, sampling_option_text(o, spec.name));
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(sampling_option_text(o, spec.name), sampling_option_text(again, spec.name));
  }
  EXPECT_EQ(again.seed, o.seed);
  EXPECT_EQ(again.temperature, o.temperature);
  EXPECT_EQ(again.top_p, o.top_p);
  EXPECT_EQ(again.logit_bias, o.logit_bias);
  EXPECT_EQ(again.banned_tokens, o.banned_tokens);
  EXPECT_EQ(again.dry_breakers, o.dry_breakers);
  EXPECT_EQ(sampling_option_text(o, "nonsense"), "");
}

TEST(SamplingSchema, RejectedValueLeavesTheFieldUnchanged) {
  const std::pair<const char*, const char*> bad[] = {
      {"temperature", "-1"},
      {"temperature", "nan"},
      {"temperature", "hot"},
      {"temperature", ""},
      {"top_p", "1.5"},
      {"top_k", "4.5"},
      {"top_k", "99999999999"},
      {"seed", "-1"},
      {"logit_bias", "5"},
      {"logit_bias", "5:x"},
      {"logit_bias", "5:nan"},
      {"logit_bias", "5:inf"},
      {"logit_bias", "-1:2"},
      {"banned_tokens", "1,x"},
      {"banned_tokens", "-4"},
      {"dry_breakers", "abc"},
      {"dry_breakers", "[1]"},
      {"dry_breakers", "[\"\"]"},
      {"allowed_tokens", "99999999999"},
      {"no_such", "1"},
  };
  for (auto [name, value] : bad) {
    SamplingOptions o;
    auto result = set_sampling_option(o, name, value);
    ASSERT_FALSE(result.ok()) << name << "=" << value;
    EXPECT_EQ(result.error().kind, ErrorKind::user);
    EXPECT_EQ(result.error().message.rfind(name, 0), 0u)
        << "the message names the thing first: " << result.error().message;
    EXPECT_EQ(o.temperature, SamplingOptions().temperature);
    EXPECT_TRUE(o.logit_bias.empty());
  }
}

TEST(SamplingSchema, ValidateChecksEveryField) {
  auto refused = [](auto change) {
    SamplingOptions o;
    change(o);
    return !validate(o, 100).ok();
  };
  EXPECT_TRUE(refused([](auto& o) { o.temperature = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](auto& o) { o.temperature = std::numeric_limits<double>::infinity(); }));
  EXPECT_TRUE(refused([](auto& o) { o.repetition_penalty = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.dry_base = 0.5; }));
  EXPECT_TRUE(refused([](auto& o) { o.dry_window = -2; }));
  EXPECT_TRUE(refused([](auto& o) { o.banned_tokens = {100}; }));
  EXPECT_TRUE(refused([](auto& o) { o.allowed_tokens = {-1}; }));
  EXPECT_TRUE(refused([](auto& o) { o.logit_bias = {{100, 1.0}}; }));
  EXPECT_TRUE(refused([](auto& o) { o.logit_bias = {{1, std::numeric_limits<double>::quiet_NaN()}}; }));
  EXPECT_TRUE(refused([](auto& o) { o.dry_breakers.assign(1000, "x"); }));
  EXPECT_TRUE(refused([](auto& o) { o.logprobs = 100000; }));
  SamplingOptions o;
  o.mirostat = 1;
  EXPECT_EQ(validate(o, 100).error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace
