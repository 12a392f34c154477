// Every prompt compressor in the server: the same request has the same prompt and the same answer beside other
// requests, and a conversation with tools is still one.
#include <future>

#include "evaluate/prompt_scores.h"
#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kPages =
    "Tom has a red ball. He plays with it in the park.\nLily has a brown dog. The dog is called Max.\nBen lives in a "
    "small house. The house is near the river.\nMia likes to sing. She sings to her cat in the evening.\n\nWhat is the "
    "dog of Lily called?";

std::string paged_body(const std::string& member, const std::string& more = "") {
  return R"({"prompt": )" + Json(kPages).dump() +
         R"(, "max_tokens": 8, "temperature": 0, "millrace": {"use": ["prompt=)" + member + "\"]}" + more + "}";
}

TEST(PromptMembersInServer, SameRequestSameAnswerBesideOthers) {
  LiveServer live;
  for (const auto& entry : prompt_compressors().entries()) {
    if (!make_prompt_compressor(entry.info.name).ok())
      continue;  // needs a model or a file, which a request cannot name
    const std::string member = entry.info.name + ":rate=0.5";
    SCOPED_TRACE(member);
    const Json alone = post(live.port(), "/v1/completions", paged_body(member)).json();
    ASSERT_TRUE(alone.contains("choices")) << alone;
    const Json& applied = alone["millrace"]["applied"][0];
    EXPECT_EQ(applied["name"], entry.info.name);
    EXPECT_LT(applied["tokens_after"], applied["tokens_before"]);
    EXPECT_EQ(applied["tokens_after"], alone["usage"]["prompt_tokens"]);
    std::vector<std::future<Json>> answers;
    for (int i = 0; i < 4; ++i)
      answers.push_back(std::async(std::launch::async, [&, i] {
        const std::string other = R"({"prompt": "The dog and the cat went to the park )" + std::to_string(i) +
                                  R"( times and then", "max_tokens": 6})";
        return post(live.port(), "/v1/completions", i % 2 ? paged_body(member) : other).json();
      }));
    for (int i = 0; i < 4; ++i) {
      const Json json = answers[static_cast<size_t>(i)].get();
      if (i % 2 == 0) continue;
      EXPECT_EQ(json["choices"], alone["choices"]);
      EXPECT_EQ(json["usage"]["prompt_tokens"], alone["usage"]["prompt_tokens"]);
    }
  }
}

// The engine's steps score prompts as a scorer does, so the server keeps what `millrace run` keeps.
TEST(PromptMembersInServer, TheEngineScoresAsAScorerDoes) {
  LiveServer live;
  for (const std::string member : {"llmlingua:rate=0.5", "longllmlingua:rate=0.5"}) {
    const auto pipeline = PromptPipeline::create(std::vector<std::string>{member});
    ModelScores scores(shipped_model(), 1);
    const auto direct = pipeline->apply(shipped_model()->parts().tokenizer.get(),
                                        shipped_model()->encode(kPages).value(), {}, 1 << 20, &scores);
    ASSERT_TRUE(direct.ok()) << direct.error().message;
    const Json json = post(live.port(), "/v1/completions", paged_body(member, R"(, "echo": true)")).json();
    ASSERT_TRUE(json.contains("choices")) << json;
    const std::string text = json["choices"][0]["text"], expected = shipped_model()->decode(direct->tokens);
    EXPECT_EQ(text.substr(0, expected.size()), expected) << member;
  }
}

TEST(PromptMembersInServer, ToolResultsAreShortenedWithinTheirMessages) {
  const auto model = templated_model(
      "{% for t in tools %}[{{ t.function.name }}]<tool_call>{\"name\": x, \"arguments\": y}</tool_call>{% endfor %}"
      "{% for m in messages %}<<{{ m.role }}>> {{ m.content }}{% for c in m.tool_calls %}<tool_call>{\"name\": "
      "{{ c.function.name }}}</tool_call>{% endfor %} <<end>>{% endfor %}<<answer>>");
  LiveServer live(ServiceOptions{}, HttpLimits{}, EngineOptions{}, nullptr, model);
  const Json tool = {{"type", "function"}, {"function", {{"name", "find"}, {"parameters", {{"type", "object"}}}}}};
  const Json call = {{"id", "one"}, {"type", "function"}, {"function", {{"name", "find"}, {"arguments", "{}"}}}};
  const auto asked = [&](const std::string& use) {
    Json body = {{"max_tokens", 2},
                 {"tools", {tool}},
                 {"messages",
                  {{{"role", "system"}, {"content", "Be kind.\nUse what the tools found."}},
                   {{"role", "user"}, {"content", "Look for the dog."}},
                   {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}},
                   {{"role", "tool"}, {"tool_call_id", "one"}, {"content", kPages}},
                   {{"role", "user"}, {"content", "What is it called?"}}}}};
    if (!use.empty()) body["millrace"] = {{"use", {"prompt=" + use}}};
    return post(live.port(), "/v1/chat/completions", body.dump());
  };
  const Response plain = asked("");
  ASSERT_EQ(plain.status, 200) << plain.body;
  const int64_t whole = plain.json()["usage"]["prompt_tokens"];
  const auto page_tokens = std::ssize(model->encode(kPages).value());
  for (const auto& entry : prompt_compressors().entries()) {
    if (!make_prompt_compressor(entry.info.name).ok()) continue;
    const Response response = asked(entry.info.name + ":rate=0.4,scope=tools");
    ASSERT_EQ(response.status, 200) << entry.info.name << ": " << response.body;
    const int64_t tokens = response.json()["usage"]["prompt_tokens"];
    EXPECT_LT(tokens, whole) << entry.info.name;
    EXPECT_GE(tokens, whole - page_tokens) << entry.info.name;
  }
}

}  // namespace
}  // namespace millrace
