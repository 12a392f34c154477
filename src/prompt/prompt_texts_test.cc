// Prompts made of messages and of pairs of texts: without a template, with a start token of id 0, and cut between
// characters; and what says that a model pools.
#include "base/ordered_json.h"
#include "prompt/chat_prompt.h"
#include "prompt/rank_prompt.h"
#include "run/edited_model_test.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::EditedModel;

TEST(PromptTexts, MessagesWithoutATemplate) {
  const EditedModel files(MILLRACE_SOURCE_DIR, "messages_without_a_template");
  files.edit("tokenizer_config.json", [](auto& json) { json.erase("chat_template"); });
  const auto model = files.load();
  ASSERT_TRUE(model);
  EXPECT_FALSE(has_chat_template(*model));
  const std::pair<const char*, const char*> cases[] = {
      {R"([])", ""},
      {R"([{"role":"user","content":"a"}])", "a"},
      {R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])", "a\nb"},
      {R"([{"role":"user","content":"a\n"},{"role":"user","content":"b"}])", "a\nb"},
      {R"([{"role":"user","content":""},{"role":"user","content":"b"}])", "b"},
      {R"([{"role":"system","content":"s"},{"role":"assistant","content":"t"}])", "st"},
      {R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}])", "ab\nc"},
      {R"([{"content":"x"},{"content":"y"}])", "xy"},
      {R"([{"role":7,"content":"x"},{"role":null,"content":"y"}])", "xy"},
      {R"([7,{"role":"user"},{"role":"user","content":5},{"role":"user","content":"z"},[]])", "z"},
  };
  for (const auto& [messages, text] : cases) {
    const auto list = nlohmann::ordered_json::parse(messages);
    for (const bool more : {false, true}) {
      EXPECT_EQ(*chat_text(*model, list, more), text) << messages;
      EXPECT_EQ(*chat_text(*model, {{"messages", list}}, more), text) << messages;
    }
  }
}

TEST(PromptTexts, TheStartTokenMayBeTheFirstOfTheVocabulary) {
  const EditedModel files(MILLRACE_SOURCE_DIR, "first_token_starts");
  files.edit("tokenizer_config.json", [](auto& json) { json["bos_token"] = "!", json["eos_token"] = "<|turn|>"; });
  files.edit("config.json", [](auto& json) { json["bos_token_id"] = 0, json["eos_token_id"] = 127; });
  const auto model = files.load({.chat_template = "{{ bos_token }}|{{ eos_token }}"});
  ASSERT_TRUE(model);
  const TokenizerSpec& spec = model->parts().tokenizer->spec();
  ASSERT_EQ(spec.bos, TokenId{0});
  ASSERT_EQ(spec.eos, TokenId{127});  // the last one
  EXPECT_EQ(*model->apply_chat_template(R"([{"role":"user","content":"a"}])", false), "!|<|turn|>");
}

// A document is cut between characters, also where a character has several tokens.
TEST(PromptTexts, ADocumentIsCutBetweenCharacters) {
  const EditedModel files(MILLRACE_SOURCE_DIR, "cut_between_characters");
  files.with_two_bytes();
  const auto model = files.load();
  ASSERT_TRUE(model);
  const auto prompt = RankPrompt::create(*model);
  ASSERT_TRUE(prompt.ok()) << prompt.error().message;
  ASSERT_EQ(model->encode("\u00e9", false, false)->size(), 2u);
  const std::string document = "x\u00e9\u00e9";
  const char* kept[] = {"", "x", "x", "x\u00e9", "x\u00e9", "x\u00e9\u00e9"};
  for (int64_t own = 0; own <= 5; ++own) {
    const auto cut = prompt->cut("a", document, 1000, own);
    ASSERT_TRUE(cut.ok()) << cut.error().message;
    EXPECT_EQ(cut->tokens, *prompt->tokens("a", kept[own])) << own;
    EXPECT_EQ(cut->shortened, own < 5);
  }
  const auto least = std::ssize(*prompt->tokens("a", ""));
  for (int64_t room = 0; room <= 5; ++room)
    EXPECT_EQ(prompt->cut("a", document, least + room, 1000)->tokens, *prompt->tokens("a", kept[room])) << room;
  const auto none = prompt->cut("a", document, least - 1, 1000);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::user);
  EXPECT_EQ(none.error().message, "the query and its template alone have " + std::to_string(least) +
                                      " tokens, more than " + std::to_string(least - 1));
}

TEST(PromptTexts, PairsNeedATokenizer) {
  const EditedModel files(MILLRACE_SOURCE_DIR, "pairs_without_tokenizer");
  files.without_tokenizer();
  const auto model = files.load();
  ASSERT_TRUE(model);
  const auto prompt = RankPrompt::create(*model);
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(prompt.error().message,
            files.path.string() + ": no tokenizer in the model's files, and so no pairs of texts");
}

// Only a template with both words is filled in; any other one is Jinja, in which single braces are text.
TEST(PromptTexts, PairsOfATemplateWithBothWords) {
  const std::pair<const char*, const char*> cases[] = {{"{query} to {document}!", "q to d!"},
                                                       {"{document}{query}{query}", "dqq"},
                                                       {"{query} alone", "{query} alone"},
                                                       {"{document} alone", "{document} alone"},
                                                       {"{{ query }}|{{ document }}", "q|d"}};
  for (const auto& [text, filled] : cases) {
    const EditedModel files(MILLRACE_SOURCE_DIR, "pairs_of_a_template");
    files.edit("tokenizer_config.json", [&](auto& json) {
      json["chat_template"] = nlohmann::ordered_json::array({{{"name", "rerank"}, {"template", text}}});
    });
    const auto model = files.load();
    ASSERT_TRUE(model);
    const auto prompt = RankPrompt::create(*model);
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    EXPECT_EQ(*prompt->tokens("q", "d"), *model->encode(filled, false, true)) << text;
  }
}

TEST(PromptTexts, ToolsBesideMessages) {
  const EditedModel files(MILLRACE_SOURCE_DIR, "tools_beside_messages");
  const auto model =
      files.load({.chat_template = "{{ messages[0].content }}{% for t in tools %}|{{ t.name }}{% endfor %}"});
  ASSERT_TRUE(model);
  const auto written = [&](const std::string& tools) {
    return model->apply_chat_template(R"({"messages":[{"role":"user","content":"a"}],"tools":)" + tools + "}", false);
  };
  EXPECT_EQ(*written("[]"), "a");
  EXPECT_EQ(*written(R"([{"name":"f"},{"name":"g"}])"), "a|f|g");
  for (const char* wrong : {"7", R"({"name":"f"})", "\"f\""}) {
    const auto refused = written(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().kind, ErrorKind::user);
    EXPECT_TRUE(refused.error().message.starts_with("tools must be an array, not ")) << refused.error().message;
  }
}

TEST(PromptTexts, ModelsThatStateAPooling) {
  const EditedModel folder(MILLRACE_SOURCE_DIR, "states_a_pooling");
  ModelFiles files;
  files.kind = ModelFiles::Kind::huggingface;
  const auto states = [&](const fs::path& path) {
    files.path = path;
    return states_pooling(files);
  };
  EXPECT_FALSE(states(folder.path));
  fs::create_directory(folder.path / "1_Pooling");
  EXPECT_FALSE(states(folder.path));
  std::ofstream(folder.path / "1_Pooling" / "config.json") << "{}";
  EXPECT_TRUE(states(folder.path));
  EXPECT_TRUE(states(folder.path / "model.safetensors"));
  EXPECT_FALSE(states(folder.path / "1_Pooling"));
  files.kind = ModelFiles::Kind::gguf;
  files.architecture = "bert";
  const auto with = [&](const nlohmann::ordered_json& config) {
    files.config = std::make_shared<const nlohmann::ordered_json>(config);
    return states_pooling(files);
  };
  EXPECT_FALSE(with({{"bert.block_count", 2}}));
  EXPECT_FALSE(with({{"llama.pooling_type", 1}}));
  for (int type : {0, 1, 2, 3}) EXPECT_TRUE(with({{"bert.pooling_type", type}})) << type;
  EXPECT_FALSE(with({{"bert.pooling_type", 4}}));  // that of a ranking head
}

}  // namespace
}  // namespace millrace
