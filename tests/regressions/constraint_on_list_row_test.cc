// A request with allowed_token_ids and a schema, regex, grammar or choice got an answer that respected only the former;
// a thinking budget was ignored too. The allowed tokens turned the sampler's row into a list, on which the later steps
// did nothing. Steps were tested one at a time, on dense rows.
#include <algorithm>

#include "run/language_model.h"
#include "server/live_server.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

// Ids of the tokens whose text is one of these.
Json tokens_that_write(const std::vector<std::string>& texts) {
  Json ids = Json::array();
  const Tokenizer& tokenizer = *shipped_model()->parts().tokenizer;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token)
    if (std::ranges::find(texts, tokenizer.piece(token)) != texts.end()) ids.push_back(token);
  return ids;
}

Json body(const Json& allowed, const Json& more) {
  Json out = {{"prompt", "Once upon a time"},
              {"max_tokens", 20},
              {"temperature", 1.5},
              {"top_k", 0},
              {"top_p", 1},
              {"min_p", 0},
              {"allowed_token_ids", allowed}};
  out.update(more);
  return out;
}

TEST(ConstraintOnListRow, BothHoldForEveryKindAndSeed) {
  LiveServer live;
  const Json letters = tokens_that_write({"a", "b", "c", "n", "o", "s", "e", "y"});
  ASSERT_GE(letters.size(), 8u);
  const Json constraints[] = {{{"guided_choice", {"no", "yes", "maybe"}}},
                              {{"guided_regex", "no|yes|[0-9]"}},
                              {{"guided_grammar", "root ::= \"no\" | \"yes\" | [0-9]+"}}};
  for (const Json& constraint : constraints) {
    std::set<std::string> said;
    for (int seed = 0; seed < 8; ++seed) {
      Json request = body(letters, constraint);
      request["seed"] = seed;
      const Response answer = post(live.port(), "/v1/completions", request.dump());
      ASSERT_EQ(answer.status, 200) << answer.body;
      const std::string text = answer.json()["choices"][0]["text"];
      EXPECT_TRUE(text == "no" || text == "yes") << text;
      EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "stop");
      said.insert(text);
    }
    EXPECT_EQ(said.size(), 2u) << "nothing was drawn";
  }
}

TEST(ConstraintOnListRow, WithNoTokenInCommonOnlyThatAnswerFails) {
  LiveServer live;
  const Json letters = tokens_that_write({"a", "b"});
  Client other(live.port());
  other.post("/v1/completions", R"({"prompt": "Once", "max_tokens": 60, "ignore_eos": true, "temperature": 0})");
  const Response answer =
      post(live.port(), "/v1/completions", body(letters, {{"guided_choice", {"no", "yes"}}}).dump());
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_NE(answer.body.find("no token is left"), std::string::npos) << answer.body;
  const Response rest = other.response();
  EXPECT_EQ(rest.status, 200);
  EXPECT_EQ(rest.json()["usage"]["completion_tokens"], 60);
}

TEST(ConstraintOnListRow, ThinkingBudgetHolds) {
  Request request;
  request.prompt = {1};
  request.max_tokens = 40;
  request.ignore_eos = true;
  request.thinking = {.tokens = 5, .open = "<", .close = "no", .begun = true};
  for (const Json& id : tokens_that_write({"a", "b"})) request.sampling.allowed_tokens.push_back(id);
  for (TokenId token : shipped_model()->parts().tokenizer->encode("no", {.add_special = false, .parse_special = true}))
    request.sampling.allowed_tokens.push_back(token);
  request.sampling.logit_bias[tokens_that_write({"a"})[0]] = 100;  // never closes it by itself
  const auto engine = Engine::create(shipped_model(), {.threads = 1});
  ASSERT_TRUE(engine.ok());
  const Direct said = ask_engine(**engine, request);
  EXPECT_EQ(said.text.substr(0, 5), "aaaaa");
  EXPECT_LE(said.text.find("no"), 6u) << said.text << " (the mark may begin with a space)";

  // Where the end mark is not allowed, the stream ends.
  request.sampling.allowed_tokens.resize(2);
  const Direct ended = ask_engine(**engine, request);
  EXPECT_EQ(ended.text, "aaaaa");
}

}  // namespace
}  // namespace millrace
