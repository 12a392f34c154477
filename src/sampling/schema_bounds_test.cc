// Options at their bounds: the last valid and first invalid values, and the error messages.
#include <gtest/gtest.h>

#include <cmath>

#include "sampling/schema.h"

namespace millrace {
namespace {

std::string refusal(const Result<void>& result) { return result.ok() ? "" : result.error().message; }

TEST(SamplingBounds, BreakersAreLimitedInNumberAndLength) {
  SamplingOptions o;
  o.dry_breakers.assign(256, std::string(1024, 'x'));
  EXPECT_TRUE(validate(o, 10).ok());
  o.dry_breakers.push_back("x");
  EXPECT_EQ(refusal(validate(o, 10)), "dry_breakers: at most 256 strings, got 257");
  o.dry_breakers = {"x", std::string(1025, 'x')};
  EXPECT_EQ(refusal(validate(o, 10)), "dry_breakers: each string must have 1 to 1024 bytes, got 1025");
  o.dry_breakers = {""};
  EXPECT_EQ(refusal(validate(o, 10)), "dry_breakers: each string must have 1 to 1024 bytes, got 0");
}

TEST(SamplingBounds, TokensMustBeInTheVocabulary) {
  SamplingOptions o;
  o.banned_tokens = {0, 99};
  EXPECT_TRUE(validate(o, 100).ok());
  o.banned_tokens = {100};
  EXPECT_EQ(refusal(validate(o, 100)), "banned_tokens: token ids must be between 0 and 99 in this vocabulary, got 100");
  o.banned_tokens.clear();
  o.logit_bias = {{0, 1.0}, {99, 1.0}};
  EXPECT_TRUE(validate(o, 100).ok());
  o.logit_bias = {{-1, 1.0}};
  EXPECT_EQ(refusal(validate(o, 100)), "logit_bias: token ids must be between 0 and 99 in this vocabulary, got -1");
}

TEST(SamplingBounds, BiasIsAtMostAMillion) {
  SamplingOptions o;
  EXPECT_TRUE(set_sampling_option(o, "logit_bias", "3:1000000").ok());
  EXPECT_EQ(o.logit_bias, (std::map<TokenId, double>{{3, 1e6}}));
  EXPECT_FALSE(set_sampling_option(o, "logit_bias", "3:1000000.1").ok());
  o.logit_bias = {{3, std::nextafter(1e6, 2e6)}};
  EXPECT_FALSE(validate(o, 10).ok());
}

TEST(SamplingBounds, TokenZeroIsValid) {
  SamplingOptions o;
  EXPECT_TRUE(set_sampling_option(o, "banned_tokens", "0,2").ok());
  EXPECT_EQ(o.banned_tokens, (std::vector<TokenId>{0, 2}));
  EXPECT_TRUE(set_sampling_option(o, "logit_bias", "0:2.5").ok());
  EXPECT_EQ(o.logit_bias, (std::map<TokenId, double>{{0, 2.5}}));
}

TEST(SamplingBounds, BreakersMustBeAnArray) {
  for (const char* text : {"\"abc\"", R"({"a": "b"})", "null", "[\"a\"", ""}) {
    SamplingOptions o;
    const std::string expected = std::string("dry_breakers: expected a JSON array of strings, got '") + text + "'";
    EXPECT_EQ(refusal(set_sampling_option(o, "dry_breakers", text)), expected);
    EXPECT_EQ(o.dry_breakers, SamplingOptions().dry_breakers);
  }
}

TEST(SamplingBounds, ListsArePrintedOnOneLine) {
  SamplingOptions o;
  o.dry_breakers = {"\n", ":", "\xC3\xA9"};
  o.allowed_tokens = {4, 0, 7};
  o.logit_bias = {{0, 0.5}, {3, -2}};
  EXPECT_EQ(sampling_option_text(o, "dry_breakers"), R"(["\n",":","\u00e9"])");
  EXPECT_EQ(sampling_option_text(o, "allowed_tokens"), "4,0,7");
  EXPECT_EQ(sampling_option_text(o, "logit_bias"), "0:0.5,3:-2");
}

TEST(SamplingBounds, OptionsAreSelectedByName) {
  const auto some = sampling_options({"top_k", "seed", "no such", "xtc_threshold"});
  ASSERT_EQ(some.size(), 3u);
  EXPECT_EQ(some[0].name, "top_k");
  EXPECT_EQ(some[1].name, "seed");
  EXPECT_EQ(some[2].name, "xtc_threshold");
  EXPECT_EQ(some[2].default_value, "0.1");
}

}  // namespace
}  // namespace millrace
