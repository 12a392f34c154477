// prompt_embeds of /v1/completions: rows of the embedding table as base64, and everything that is refused.
#include <bit>
#include <limits>

#include "server/api/base64.h"
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr size_t kWidth = 256;  // of the model that ships

ServiceOptions with_rows() {
  ServiceOptions service;
  service.prompt_embeds = true;
  return service;
}

std::string base64_of(const std::vector<float>& rows) {
  std::string bytes;
  for (const float value : rows)
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<char>(std::bit_cast<uint32_t>(value) >> shift));
  return base64_text(bytes);
}

// The rows that the model's table has for these tokens.
std::vector<float> rows_of(const std::vector<TokenId>& tokens) {
  std::vector<float> rows;
  for (const TokenId token : tokens) {
    const auto row = shipped_model()->embedding(token).value();
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

Json body_of(const Json& rows) {
  return {{"model", "stories"}, {"prompt_embeds", rows}, {"max_tokens", 12}, {"temperature", 0}};
}

TEST(PromptEmbeds, RowsOfTheTableGiveTheAnswerOfTheirTokens) {
  LiveServer live(with_rows());
  const auto tokens = shipped_model()->encode("Once upon a time there was a dog").value();
  Request request;
  request.prompt = tokens;
  request.max_tokens = 12;
  request.sampling.temperature = 0;
  const Direct direct = ask_engine(live.engine(), request);
  const Response response = post(live.port(), "/v1/completions", body_of(base64_of(rows_of(tokens))).dump());
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = response.json();
  EXPECT_EQ(json["choices"][0]["text"], direct.text);
  EXPECT_EQ(json["usage"]["prompt_tokens"], tokens.size());
}

TEST(PromptEmbeds, AListComesBeforeThePrompt) {
  LiveServer live(with_rows());
  const auto one = shipped_model()->encode("The cat").value(), two = shipped_model()->encode("A big red ball").value();
  const auto alone = [&](const char* text) {
    const Json body = {{"prompt", text}, {"max_tokens", 12}, {"temperature", 0}};
    return post(live.port(), "/v1/completions", body.dump()).json()["choices"][0]["text"];
  };
  Json body = body_of(Json::array({base64_of(rows_of(one)), base64_of(rows_of(two))}));
  body["prompt"] = "One day";
  const Json json = post(live.port(), "/v1/completions", body.dump()).json();
  ASSERT_EQ(json["choices"].size(), 3u) << json;
  EXPECT_EQ(json["choices"][0]["text"], alone("The cat"));
  EXPECT_EQ(json["choices"][1]["text"], alone("A big red ball"));
  EXPECT_EQ(json["choices"][2]["text"], alone("One day"));
}

// Rows that differ share no prefix: the ids at their places are all the same.
TEST(PromptEmbeds, OtherRowsAreAnotherPrompt) {
  LiveServer live(with_rows());
  std::string text;
  for (int i = 0; i < 4; ++i) text += "Lily had a red ball and she went to the park with it every day. ";
  const auto tokens = shipped_model()->encode(text).value();
  ASSERT_GE(tokens.size(), 40u);  // of more than one block
  auto other = tokens;
  other[2] = other[3];
  const auto ask = [&](const std::vector<TokenId>& ids) {
    Json body = body_of(base64_of(rows_of(ids)));
    body["logprobs"] = 1;
    const Json json = post(live.port(), "/v1/completions", body.dump()).json();
    return std::pair(json["choices"][0]["logprobs"],
                     json["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>());
  };
  const auto [first, first_cached] = ask(tokens);
  const auto [second, second_cached] = ask(other);
  EXPECT_NE(first, second);
  EXPECT_EQ(first_cached, 0);
  EXPECT_EQ(second_cached, 0);
  for (const auto& [ids, expected] : {std::pair(tokens, first), std::pair(other, second)}) {
    const auto [again, cached] = ask(ids);
    EXPECT_EQ(again, expected);
    EXPECT_GT(cached, 0);
  }
  Json zeros = {{"prompt", std::vector<TokenId>(tokens.size(), 0)}, {"max_tokens", 1}};
  const Json plain = post(live.port(), "/v1/completions", zeros.dump()).json();
  EXPECT_EQ(plain["usage"]["prompt_tokens_details"]["cached_tokens"], 0);  // the ids at the rows' places
}

TEST(PromptEmbeds, StreamsAndAnswersWorkAsForTokens) {
  LiveServer live(with_rows());
  const std::string rows = base64_of(rows_of(shipped_model()->encode("The dog ran").value()));
  const std::string whole =
      post(live.port(), "/v1/completions", body_of(rows).dump()).json()["choices"][0]["text"].get<std::string>();
  Json body = body_of(rows);
  body["stream"] = true;
  std::string streamed;
  for (const std::string& event : events_of(post(live.port(), "/v1/completions", body.dump()).body))
    if (event != "[DONE]") streamed += Json::parse(event)["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, whole);
  body = body_of(rows);
  body["n"] = 2;
  EXPECT_EQ(post(live.port(), "/v1/completions", body.dump()).json()["choices"][1]["text"], whole);
}

TEST(PromptEmbeds, ErrorsSayWhatIsWrong) {
  LiveServer live(with_rows());
  const std::string good = base64_of(std::vector<float>(kWidth, 0.5f));
  std::vector<float> broken(kWidth, 0.5f);
  broken[7] = std::numeric_limits<float>::quiet_NaN();
  const auto message = [&](const Json& body) {
    const Response response = post(live.port(), "/v1/completions", body.dump());
    EXPECT_EQ(response.status, 400) << response.body;
    return response.json()["error"]["message"].get<std::string>();
  };
  const std::pair<Json, const char*> cases[] = {
      {"a!bc", "prompt_embeds: is not base64 (RFC 4648, with padding)"},
      {"AAA", "prompt_embeds: is not base64 (RFC 4648, with padding)"},
      {"AAAB=AAA", "prompt_embeds: is not base64 (RFC 4648, with padding)"},
      {base64_text("12345"), "prompt_embeds: has 5 bytes, which are not whole float32 values"},
      {base64_text("PK\x03\x04 and more"),
       "prompt_embeds: is a file written by torch.save; send its values: base64 of little-endian float32 [tokens, "
       "width]"},
      {base64_of(std::vector<float>(kWidth + 1)),
       "prompt_embeds: has 257 values, which are not rows of 256, the model's width"},
      {base64_of(broken), "prompt_embeds: holds NaN or infinity"},
      {Json::array({good, ""}), "prompt_embeds: is empty"},
  };
  for (const auto& [rows, expected] : cases) EXPECT_EQ(message(body_of(rows)), expected);
  const std::tuple<const char*, Json, const char*> combined[] = {
      {"echo", true, "echo: rows of prompt_embeds have no text; omit it"},
      {"suffix", "end", "suffix: rows of prompt_embeds have no text; omit it"},
      {"return_token_ids", true, "return_token_ids: rows of prompt_embeds have no token ids; omit it"},
      {"prompt_logprobs", 1, "prompt_logprobs: rows of prompt_embeds are not scored; omit it"},
      {"truncate_prompt_tokens", 1,
       "truncate_prompt_tokens: rows of prompt_embeds are not truncated; send fewer of them"},
      {"millrace", Json::object({{"use", Json::array({"prompt=selective_context"})}}),
       "millrace.use: rows of prompt_embeds are not compressed"},
  };
  for (const auto& [field, value, expected] : combined) {
    Json body = body_of(good);
    body[field] = value;
    EXPECT_EQ(message(body), expected);
  }
  EXPECT_EQ(message({{"model", "stories"}}), "prompt: is missing");
  EXPECT_EQ(message({{"model", "stories"}, {"prompt_embeds", ""}}), "prompt: is missing");
  const int64_t context = live.engine().context();
  const std::string longest = base64_of(std::vector<float>(kWidth * static_cast<size_t>(context), 0.5f));
  EXPECT_EQ(message(body_of(longest)), "the prompt has " + std::to_string(context) +
                                           " tokens, which leaves no room for an answer in a context of " +
                                           std::to_string(context));
}

// Longer than the context, and no base64 either: it is not decoded.
TEST(PromptEmbeds, WhatCannotFitIsNotDecoded) {
  LiveServer live(with_rows());
  const size_t bytes = kWidth * sizeof(float) * static_cast<size_t>(live.engine().context());
  const Response response = post(live.port(), "/v1/completions", body_of(std::string(bytes / 3 * 4 + 16, '!')).dump());
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["message"],
            "prompt_embeds: has more rows than the context of " + std::to_string(live.engine().context()) + " tokens");
}

TEST(PromptEmbeds, AreOffUnlessTheServerSaysOtherwise) {
  LiveServer live;
  const Response text = post(live.port(), "/v1/completions", body_of("no base64!").dump());
  EXPECT_EQ(text.json()["error"]["message"],
            "prompt_embeds: is switched off on this server; start it with --enable-prompt-embeds");
  const Response response = post(live.port(), "/v1/completions", body_of(base64_of(std::vector<float>(kWidth))).dump());
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["message"],
            "prompt_embeds: is switched off on this server; start it with --enable-prompt-embeds");
}

}  // namespace
}  // namespace millrace
