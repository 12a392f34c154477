// Every limit of a request at its maximum and one above it, and the error message.
#include "server/access/request_limits.h"

#include <gtest/gtest.h>

#include <functional>

namespace millrace {
namespace {

constexpr RequestLimits kLimits = {.answers = 6,
                                   .max_tokens = 0,
                                   .prompt_tokens = 0,
                                   .messages = 3,
                                   .stops = 2,
                                   .stop_bytes = 5,
                                   .constraint_bytes = 10,
                                   .logprobs = 4};

std::string refused(const std::function<void(GenerationRequest&)>& change, const RequestLimits& limits = kLimits) {
  GenerationRequest params;
  change(params);
  const auto error = check_limits(limits, params);
  if (!error) return "";
  EXPECT_EQ(error->kind, ApiErrorKind::bad_request);
  return error->message;
}

TEST(RequestLimits, MessagesStopsAndLogprobs) {
  EXPECT_EQ(refused([](GenerationRequest&) {}), "");
  const auto messages = [](size_t count) {
    return [count](GenerationRequest& params) {
      params.messages = Json::array();
      for (size_t i = 0; i < count; ++i) params.messages.push_back("m");
    };
  };
  EXPECT_EQ(refused(messages(3)), "");
  EXPECT_EQ(refused(messages(4)), "messages: at most 3, got 4");
  EXPECT_EQ(refused([](GenerationRequest& params) {
              params.messages = Json::object({{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}});
            }),
            "")
      << "not a list of messages";
  EXPECT_EQ(refused([](GenerationRequest& params) { params.request.stop = {"a", "b"}; }), "");
  EXPECT_EQ(refused([](GenerationRequest& params) {
              params.request.stop = {"a", "b", "c"};
            }),
            "stop: at most 2 strings, got 3");
  EXPECT_EQ(refused([](GenerationRequest& params) { params.request.stop = {"a", "12345"}; }), "");
  EXPECT_EQ(refused([](GenerationRequest& params) {
              params.request.stop = {"a", "123456"};
            }),
            "stop: a string of at most 5 bytes, got 6");
  EXPECT_EQ(refused([](GenerationRequest& params) { params.request.sampling.logprobs = 4; }), "");
  EXPECT_EQ(refused([](GenerationRequest& params) { params.request.sampling.logprobs = 5; }),
            "logprobs: at most 4, got 5");
}

// All parts of a constraint count together.
TEST(RequestLimits, Constraint) {
  for (size_t text : {0, 3, 7}) {
    for (size_t trigger : {0, 2}) {
      const auto with = [&](size_t choices) {
        return refused([&](GenerationRequest& params) {
          params.request.constraint.text.assign(text, 'x');
          params.request.constraint.trigger.assign(trigger, 'x');
          for (size_t left = choices; left > 0; --left) params.request.constraint.choices.push_back("x");
        });
      };
      EXPECT_EQ(with(10 - text - trigger), "");
      EXPECT_EQ(with(11 - text - trigger), "the constraint has 11 bytes; at most 10");
    }
  }
}

std::optional<ApiError> check_prompts(const RequestLimits& limits, GenerationRequest& params,
                                      std::vector<size_t> tokens) {
  for (size_t count : tokens) params.prompts.push_back({.text = "", .tokens = std::vector<TokenId>(count, 1)});
  return check_prompt_limits(limits, params);
}

TEST(RequestLimits, AnswersOverAllPrompts) {
  for (int64_t Request::*member : {&Request::n, &Request::best_of, &Request::beams}) {
    for (auto [each, prompts, good] :
         {std::tuple{3, 2, true}, {3, 3, false}, {6, 1, true}, {7, 1, false}, {1, 6, true}, {1, 7, false}}) {
      GenerationRequest params;
      params.request.*member = each;
      const auto error = check_prompts(kLimits, params, std::vector<size_t>(static_cast<size_t>(prompts), 1));
      ASSERT_EQ(!error, good) << each << " " << prompts;
      if (!error) continue;
      EXPECT_EQ(error->field, "n");
      EXPECT_NE(error->message.find(std::to_string(prompts) + " prompts with " + std::to_string(each) + " answers"),
                std::string::npos)
          << error->message;
    }
  }
}

TEST(RequestLimits, PromptTokens) {
  RequestLimits limits = kLimits;
  GenerationRequest unlimited;
  EXPECT_FALSE(check_prompts(limits, unlimited, {1000}));
  limits.prompt_tokens = 8;
  GenerationRequest good, bad;
  EXPECT_FALSE(check_prompts(limits, good, {8, 1, 8}));
  const auto error = check_prompts(limits, bad, {8, 9});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind, ApiErrorKind::too_long);
  EXPECT_EQ(error->field, "prompt");
  EXPECT_EQ(error->prompt_tokens, 9);
  EXPECT_EQ(error->context, 8);
}

TEST(RequestLimits, MaxTokensIsCapped) {
  for (auto [limit, requested, expected] :
       {std::tuple{0, 100, 100}, {0, -1, -1}, {50, 49, 49}, {50, 50, 50}, {50, 51, 50}, {50, -1, 50}, {50, 0, 0}}) {
    RequestLimits limits = kLimits;
    limits.max_tokens = limit;
    GenerationRequest params;
    params.request.max_tokens = requested;
    EXPECT_FALSE(check_prompts(limits, params, {1}));
    EXPECT_EQ(params.request.max_tokens, expected) << limit << " " << requested;
  }
}

}  // namespace
}  // namespace millrace
