// Answers in the forms that servers send, and what is compared of them.
#include "exactness/completion_answer.h"

#include <gtest/gtest.h>

#include "base/json_text.h"
#include "exactness/answer_difference.h"

namespace millrace {
namespace {

constexpr const char* kOld =
    R"({"choices":[{"text":" a b","finish_reason":"length","logprobs":{"tokens":[" a"," b"],"token_logprobs":[-0.5,-1.25],)"
    R"("top_logprobs":[{" a":-0.5," c":-2},{" c":-1.25," b":-1.25}]}}],"usage":{"prompt_tokens_details":{"cached_tokens":3}}})";
constexpr const char* kChat =
    R"({"choices":[{"message":{"content":" a b","reasoning_content":"hm"},"finish_reason":"length","logprobs":{"content":[)"
    R"({"token":" a","logprob":-0.5,"top_logprobs":[{"token":" a","logprob":-0.5},{"token":" c","logprob":-2}]},)"
    R"({"token":" b","logprob":-1.25,"top_logprobs":[{"token":" b","logprob":-1.25},{"token":" c","logprob":-1.25}]}]}}]})";

TEST(CompletionAnswer, BothFormsOfLogProbabilities) {
  auto old = read_whole_answer(CompletionApi::completions, kOld);
  auto chat = read_whole_answer(CompletionApi::chat, kChat);
  ASSERT_TRUE(old.ok() && chat.ok());
  EXPECT_EQ(old->text, " a b");
  EXPECT_EQ(old->cached_tokens, 3);
  EXPECT_EQ(chat->reasoning, "hm");
  ASSERT_EQ(old->tokens.size(), 2u);
  EXPECT_EQ(old->tokens[1].top.front().first, " b");  // of equal probability: by text
  EXPECT_EQ(compare_answers(*old, *chat)->part, AnswerDifference::Part::reasoning);
  chat->reasoning.clear();
  EXPECT_FALSE(compare_answers(*old, *chat));
}

TEST(CompletionAnswer, ADifferenceOfReasoningIsNamedAndShown) {
  CompletionAnswer expected, got;
  expected.text = got.text = "the same";
  expected.reasoning = "let me see";
  got.reasoning = "let us see";
  const AnswerDifference difference = *compare_answers(expected, got);
  EXPECT_EQ(difference.part, AnswerDifference::Part::reasoning);
  EXPECT_EQ(difference.words(), "reasoning from byte 4");
  EXPECT_EQ(describe_place(expected, difference), "byte 4 of the reasoning: \"me see\"");
  EXPECT_EQ(describe_place(got, difference), "byte 4 of the reasoning: \"us see\"");
  got.text += ".";
  EXPECT_EQ(compare_answers(expected, got)->words(), "text from byte 8");
}

TEST(CompletionAnswer, StreamsAreJoined) {
  const std::string stream =
      "data: {\"choices\":[{\"text\":\" a\",\"logprobs\":{\"tokens\":[\" a\"],\"token_logprobs\":[-0.5],"
      "\"top_logprobs\":[{\" a\":-0.5,\" c\":-2}]},\"finish_reason\":null}]}\n\n"
      "data: {\"choices\":[{\"text\":\" b\",\"logprobs\":{\"tokens\":[\" b\"],\"token_logprobs\":[-1.25],"
      "\"top_logprobs\":[{\" b\":-1.25,\" c\":-1.25}]},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
  const auto streamed = read_streamed_answer(CompletionApi::completions, stream);
  ASSERT_TRUE(streamed.ok());
  EXPECT_FALSE(compare_answers(*read_whole_answer(CompletionApi::completions, kOld), *streamed));
  const auto chat =
      read_streamed_answer(CompletionApi::chat,
                           "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: "
                           "{\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n");
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->text, "x");
}

TEST(CompletionAnswer, MalformedAnswersAreErrors) {
  for (const char* text : {"", "[]", "{}", "{\"choices\":[]}", "{\"choices\":3}", "<html>"})
    EXPECT_FALSE(read_whole_answer(CompletionApi::chat, text).ok()) << text;
  for (const char* text :
       {"", "data: {}\n\n", "data: [DONE]\n\n", "data: x\n\n", "{\"choices\":[{\"text\":\"a\"}]}",
        "data: {\"choices\":[{\"text\":\"a\"}]}\n\n", "data: {\"error\":{\"message\":\"full\"}}\n\n"})
    EXPECT_FALSE(read_streamed_answer(CompletionApi::completions, text).ok()) << text;
  for (const char* text :
       {"{\"choices\":[3]}", "{\"choices\":[{\"text\":3,\"logprobs\":{\"tokens\":[1,null],\"top_logprobs\":4}}]}",
        "{\"choices\":[{\"logprobs\":{\"content\":[3,{\"top_logprobs\":[1]}]}}]}"})
    EXPECT_TRUE(read_whole_answer(CompletionApi::completions, text).ok()) << text;
  EXPECT_EQ(status_error(401, "").kind, ErrorKind::user);
  EXPECT_NE(status_error(400, R"({"error":{"message":"too long"}})").message.find("HTTP 400: too long"),
            std::string::npos);
}

TEST(AnswerDifference, TheMostVisiblePartIsNamed) {
  const CompletionAnswer first = *read_whole_answer(CompletionApi::completions, kOld);
  CompletionAnswer other = first;
  other.tokens[1].logprob = std::nextafter(-1.25, 0);
  EXPECT_EQ(compare_answers(first, other)->part, AnswerDifference::Part::logprobs);
  EXPECT_EQ(compare_answers(first, other)->place, 1u);
  other.tokens[1].top.pop_back();
  EXPECT_NE(compare_answers(first, other)->words().find("other likeliest tokens"), std::string::npos);
  other.finish = "stop";
  EXPECT_EQ(compare_answers(first, other)->part, AnswerDifference::Part::finish);
  other.text = " a c";
  EXPECT_EQ(compare_answers(first, other)->words(), "text from byte 3");
  other.tokens.pop_back();
  const auto shorter = compare_answers(first, other);
  EXPECT_EQ(shorter->words(), "tokens from 1");
  EXPECT_EQ(describe_place(other, *shorter), "token 1: none, the answer has ended");
  EXPECT_EQ(describe_place(first, *shorter),
            "token 1: \" b\", log-probability -1.25; likeliest \" b\" -1.25, \" c\" -1.25");
}

TEST(CompletionCall, OnlyStandardFieldsUnlessTheCacheIsSkipped) {
  CompletionCall call;
  call.prompt = "it's";
  CallStyle style{CompletionApi::chat, "m", 2, true};
  EXPECT_EQ(call_body(style, call), R"({"model":"m","messages":[{"role":"user","content":"it's"}],"max_tokens":24,)"
                                    R"("temperature":0.0,"logprobs":true,"top_logprobs":2})");
  call.uncached = call.stream = true;
  call.seed = 7;
  style = {CompletionApi::completions, "", -1, true};
  const auto body = parse_json(call_body(style, call));
  EXPECT_EQ(body["cache_prompt"], false);
  EXPECT_EQ(body["seed"], 7);
  EXPECT_FALSE(body.contains("logprobs") || body.contains("model"));
  style.can_skip_cache = false;
  EXPECT_EQ(call_body(style, call), R"({"prompt":"it's","max_tokens":24,"temperature":0.0,"seed":7,"stream":true})");
  EXPECT_NE(curl_command("http://h", style, call, true).find(R"('{"prompt":"it'\''s",)"), std::string::npos);
  EXPECT_NE(curl_command("http://h", style, call, true).find("$MILLRACE_API_KEY"), std::string::npos);
}

}  // namespace
}  // namespace millrace
