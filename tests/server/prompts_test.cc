// Prompt compression in the server: what the model answers, what the response says of it, and what stays as it was.
#include <future>

#include "evaluate/prompt_scores.h"
#include "server/generation/prompt_worker.h"
#include "server/live_server.h"

namespace millrace {
namespace {

const char* const kCompressor = "selective_context:ratio=0.5,keep_last=8";
const std::string kLongStory =
    "Once upon a time, there was a little girl named Lily. She lived in a small house near a big green park. Every "
    "morning she went to the park with her brown dog Max. One day, Max saw a red ball under a tree. Max wanted to play "
    "with the ball, but a big black cat was sitting on it. Lily";

std::unique_ptr<LiveServer> compressing_server(std::shared_ptr<const LanguageModel> model = shipped_model(),
                                               const std::string& pass = kCompressor, int64_t context = 0) {
  auto prompts = PromptWorker::create(model, {pass}, 1);
  EXPECT_TRUE(prompts.ok());
  ServiceOptions service;
  service.prompts = std::move(*prompts);
  EngineOptions engine;
  engine.context = context;
  return std::make_unique<LiveServer>(std::move(service), HttpLimits{}, engine, nullptr, model);
}

CompressedPrompt compressed_here(const std::string& text, int64_t max_tokens, int64_t context) {
  const auto pipeline = PromptPipeline::create(std::vector<std::string>{kCompressor});
  ModelScores scores(shipped_model(), 1);
  return pipeline
      ->apply(shipped_model()->parts().tokenizer.get(), shipped_model()->encode(text).value(), {},
              prompt_budget(context, max_tokens), &scores)
      .value();
}

std::string completion_body(const std::string& more = "") {
  return R"({"prompt": )" + Json(kLongStory).dump() + R"(, "max_tokens": 12, "temperature": 0)" + more + "}";
}

TEST(PromptCompression, TheModelAnswersTheCompressedPrompt) {
  const auto live = compressing_server();
  const auto expected = compressed_here(kLongStory, 12, live->engine().context());
  ASSERT_LT(expected.tokens.size(), shipped_model()->encode(kLongStory)->size());
  Request request;
  request.prompt = expected.tokens;
  request.max_tokens = 12;
  request.sampling.temperature = 0;
  const Direct direct = ask_engine(live->engine(), request);
  const Response response = post(live->port(), "/v1/completions", completion_body());
  const Json json = response.json();
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json["choices"][0]["text"], direct.text);
  EXPECT_EQ(json["usage"]["prompt_tokens"], expected.tokens.size());
  const int64_t before = expected.effects[0].tokens_before, after = expected.effects[0].tokens_after;
  EXPECT_EQ(response.headers.at("millrace-compressed-tokens"), std::to_string(before - after));
  const Json& applied = json["millrace"]["applied"];
  ASSERT_EQ(applied.size(), 1u) << response.body;
  EXPECT_EQ(applied[0]["family"], "prompt");
  EXPECT_EQ(applied[0]["name"], "selective_context");
  EXPECT_EQ(applied[0]["options"]["ratio"], 0.5);
  EXPECT_EQ(applied[0]["options"]["keep_last"], 8);
  EXPECT_EQ(applied[0]["effect"], std::to_string(after) + " of " + std::to_string(before) + " prompt tokens remain");
  EXPECT_EQ(applied[0]["tokens_before"], before);
  EXPECT_EQ(applied[0]["tokens_after"], after);
}

TEST(PromptCompression, SameRequestSameAnswerBesideOthers) {
  const auto live = compressing_server();
  const std::string alone = post(live->port(), "/v1/completions", completion_body()).json()["choices"][0]["text"];
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 6; ++i)
    answers.push_back(std::async(std::launch::async, [&, i] {
      const std::string other = R"({"prompt": "The dog and the cat went to the park )" + std::to_string(i) +
                                R"( times and then they went home", "max_tokens": 5})";
      return post(live->port(), "/v1/completions", i % 2 ? completion_body() : other)
          .json()["choices"][0]["text"]
          .get<std::string>();
    }));
  for (int i = 0; i < 6; ++i) {
    const std::string text = answers[static_cast<size_t>(i)].get();
    if (i % 2) EXPECT_EQ(text, alone);
  }
}

TEST(PromptCompression, EveryFormatNamesIt) {
  const auto live = compressing_server();
  const auto named = [](const Json& json) {
    return json.contains("millrace") && json["millrace"]["applied"][0]["name"] == "selective_context";
  };
  const Response stream = post(live->port(), "/v1/completions", completion_body(R"(, "stream": true)"));
  int chunks = 0;
  for (const std::string& event : events_of(stream.body)) chunks += named(Json::parse(event, nullptr, false));
  EXPECT_EQ(chunks, 1) << stream.body;
  const std::string chat =
      R"({"max_tokens": 4, "messages": [{"role": "user", "content": )" + Json(kLongStory).dump() + "}]";
  EXPECT_TRUE(named(post(live->port(), "/v1/chat/completions", chat + "}").json()));
  EXPECT_TRUE(named(post(live->port(), "/v1/messages", chat + "}").json()));
  const std::string ollama =
      R"({"stream": false, "options": {"num_predict": 4}, "messages": [{"role": "user", "content": )" +
      Json(kLongStory).dump() + "}]}";
  EXPECT_TRUE(named(post(live->port(), "/api/chat", ollama).json()));
  const std::string prompt = R"({"prompt": )" + Json(kLongStory).dump();
  EXPECT_TRUE(named(post(live->port(), "/completion", prompt + R"(, "n_predict": 4})").json()));
  EXPECT_TRUE(named(
      post(live->port(), "/v1/responses", R"({"max_output_tokens": 16, "input": )" + Json(kLongStory).dump() + "}")
          .json()));
}

TEST(PromptCompression, TheTemplateAndTheQuestionRemain) {
  const auto model =
      templated_model("{% for m in messages %}<<{{ m.role }}>> {{ m.content }} <<end>>{% endfor %}<<answer>>");
  const auto live = compressing_server(model, "selective_context:ratio=0.9,keep_last=4");
  const Json asked = {{"max_tokens", 1},
                      {"messages",
                       {{{"role", "system"}, {"content", "Answer as a cat would, in a friendly way."}},
                        {{"role", "user"}, {"content", kLongStory}}}}};
  const Response response = post(live->port(), "/v1/chat/completions", asked.dump());
  const Json json = response.json();
  ASSERT_EQ(response.status, 200) << response.body;
  // All of the template and the system message, and a tenth of the story's words.
  const auto all =
      model->encode("<<system>> Answer as a cat would, in a friendly way. <<end>><<user>>  <<end>><<answer>>");
  EXPECT_GT(json["usage"]["prompt_tokens"].get<size_t>(), all->size() - 4);
  EXPECT_LT(json["usage"]["prompt_tokens"].get<size_t>(), all->size() + 24);
}

TEST(PromptCompression, LongPromptsAreMadeToFit) {
  const auto live = compressing_server(shipped_model(), "selective_context:ratio=0,keep_last=8", 64);
  const Response response = post(live->port(), "/v1/completions", completion_body());
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_LE(response.json()["usage"]["prompt_tokens"].get<int64_t>(), 52);
  EXPECT_GT(response.json()["usage"]["prompt_tokens"].get<int64_t>(), 45);
  const auto fixed = compressing_server(shipped_model(), "selective_context:keep_last=1000", 64);
  EXPECT_EQ(post(fixed->port(), "/v1/completions", completion_body()).status, 400);
}

TEST(PromptCompression, ShortAndEmptyPromptsAndClientsThatLeave) {
  const auto live = compressing_server();
  const Response one = post(live->port(), "/v1/completions", R"({"prompt": "Lily", "max_tokens": 2})");
  EXPECT_EQ(one.status, 200) << one.body;
  EXPECT_FALSE(one.headers.contains("millrace-compressed-tokens"));
  EXPECT_EQ(one.json()["millrace"]["applied"][0]["tokens_after"], one.json()["usage"]["prompt_tokens"]);
  const Response several = post(
      live->port(), "/v1/completions",
      R"({"prompt": ["The dog saw the cat and the cat saw the dog and then they both ran home", "Tom"], "max_tokens": 2})");
  EXPECT_EQ(several.status, 200) << several.body;
  EXPECT_EQ(several.json()["choices"].size(), 2u);
  for (int i = 0; i < 3; ++i) {
    Client client(live->port());
    client.post("/v1/completions", completion_body());
  }
  EXPECT_EQ(post(live->port(), "/v1/completions", completion_body()).status, 200);
}

TEST(PromptCompression, ARequestMayChooseIt) {
  LiveServer live;  // without a compressor of its own
  const auto compressing = compressing_server();
  const std::string use = std::string(R"(, "millrace": {"use": ["prompt=)") + kCompressor + "\"]}";
  const Json chosen = post(live.port(), "/v1/completions", completion_body(use)).json();
  const Json expected = post(compressing->port(), "/v1/completions", completion_body()).json();
  ASSERT_TRUE(chosen.contains("choices")) << chosen;
  EXPECT_EQ(chosen["choices"], expected["choices"]);
  EXPECT_EQ(chosen["usage"]["prompt_tokens"], expected["usage"]["prompt_tokens"]);
  EXPECT_EQ(chosen["millrace"]["applied"][0]["options"], expected["millrace"]["applied"][0]["options"]);
  const auto refused = [&](const std::string& text) {
    const Response response =
        post(live.port(), "/v1/completions", completion_body(R"(, "millrace": {"use": [")" + text + "\"]}"));
    EXPECT_EQ(response.status, 400) << response.body;
    return response.json()["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(refused("prompt=selective_context:ratio=2"),
            "millrace.use: prompt=selective_context:ratio=2: ratio: must be between 0 and 0.99, got 2");
  EXPECT_EQ(refused("prompt=selective_context:unit=line"),
            "millrace.use: prompt=selective_context:unit=line: prompt selective_context: unit: expected token, word or "
            "sentence, got 'line'");
  EXPECT_EQ(refused("prompt=selective_context:model=/etc/passwd"),
            "prompt: model: /etc/passwd is not one of those that the server was started with");
}

TEST(PromptCompression, WithoutItNothingIsSaid) {
  LiveServer live;
  const Response response = post(live.port(), "/v1/completions", completion_body());
  EXPECT_FALSE(response.json().contains("millrace")) << response.body;
  EXPECT_FALSE(response.headers.contains("millrace-compressed-tokens"));
}

}  // namespace
}  // namespace millrace
