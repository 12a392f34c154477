// Who wrote the tokens of a conversation, for several kinds of templates.
#include "prompt/message_sources.h"

#include <gtest/gtest.h>

#include "prompt/chat_prompt.h"
#include "run/language_model.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

const char* const kTagged =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

// The text of the tokens that a scope may drop, "-" between those that it may not.
std::string free_text(const std::string& chat_template, const Json& messages, PromptScope scope = PromptScope::all) {
  LoadOptions options;
  options.threads = 1;
  options.chat_template = chat_template;
  const auto model = LanguageModel::load("stories", options);
  EXPECT_TRUE(model.ok());
  const Json input = {{"messages", messages}};
  const auto text = chat_text(**model, input, true);
  EXPECT_TRUE(text.ok()) << text.error().message;
  const auto tokens = encode_chat(**model, *text);
  const auto sources = message_sources(**model, input, true, *text, *tokens);
  EXPECT_EQ(sources.size(), tokens->size());
  std::string out;
  for (size_t i = 0; i < tokens->size(); ++i) {
    if (!in_scope(scope, sources[i]))
      out += out.ends_with('-') ? "" : "-";
    else
      out += (*model)->parts().tokenizer->piece((*tokens)[i]);
  }
  return out;
}

Json said(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

TEST(MessageSources, OnlyWhatUsersAndToolsWrote) {
  const std::string free =
      free_text(kTagged, {said("system", "Be kind."), said("user", " Who was the little girl? "),
                          said("assistant", "She was Lily."), said("tool", "a dog"), said("user", "And the user?")});
  // A token that spans the border of a message is the template's.
  EXPECT_NE(free.find(" was the little girl"), std::string::npos) << free;
  EXPECT_NE(free.find(" the user"), std::string::npos) << free;
  for (const char* other : {"kind", "Lily", "end", "system", "assistant", "|"})
    EXPECT_EQ(free.find(other), std::string::npos) << free;
}

TEST(MessageSources, ScopesAreMessages) {
  const Json messages = {said("system", "Be kind."), said("user", " Where is the park? "),
                         said("assistant", "It is near the house."), said("tool", "a dog and a cat"),
                         said("user", "And the river?")};
  const std::string documents = free_text(kTagged, messages, PromptScope::documents),
                    history = free_text(kTagged, messages, PromptScope::history),
                    tools = free_text(kTagged, messages, PromptScope::tools);
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(documents, " river")) << documents;
  EXPECT_FALSE(has(documents, " park") || has(documents, " near") || has(documents, " cat")) << documents;
  EXPECT_TRUE(has(history, " park") && has(history, " near")) << history;
  EXPECT_FALSE(has(history, " river") || has(history, " cat") || has(history, " kind")) << history;
  EXPECT_TRUE(has(tools, " cat")) << tools;
  EXPECT_FALSE(has(tools, " park") || has(tools, " near") || has(tools, " river")) << tools;
}

// A template that changes the model's answers hides only these.
TEST(MessageSources, AnswersThatATemplateChangesAreFixed) {
  const std::string shortened =
      "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{{ m.content | upper }}{% else %}"
      "{{ m.content }}{% endif %}<|end|>{% endfor %}";
  const Json messages = {said("user", "Where is the park?"), said("assistant", "It is near the house."),
                         said("user", "And the river?")};
  const std::string history = free_text(shortened, messages, PromptScope::history);
  EXPECT_NE(history.find(" park"), std::string::npos) << history;
  EXPECT_EQ(history.find("NEAR"), std::string::npos) << history;
}

TEST(MessageSources, RolesThatAreAlsoContents) {
  const std::string free = free_text(kTagged, {said("user", "user user user"), said("assistant", "user")});
  EXPECT_EQ(free.find("assistant"), std::string::npos) << free;
  EXPECT_NE(free.find(" user"), std::string::npos) << free;
  EXPECT_EQ(free.find('-'), 0u) << free;
}

TEST(MessageSources, WithoutATemplateTheTextsAreTheMessages) {
  const std::string free = free_text("", {said("user", "Once upon a time"), said("assistant", " there was")});
  EXPECT_NE(free.find("upon a time"), std::string::npos) << free;
  EXPECT_EQ(free.find("there"), std::string::npos) << free;
}

TEST(MessageSources, EverythingIsFixedWhereTheTemplateChangesMessages) {
  const std::string upper = "{% for m in messages %}{{ m.role }}: {{ m.content | upper }}\n{% endfor %}";
  EXPECT_EQ(free_text(upper, Json::array({said("user", "the dog and the cat")})), "-");
  const std::string reversed = "{% for m in messages | reverse %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  EXPECT_NE(free_text(reversed, {said("user", "the dog"), said("user", "and the cat")}).find(" cat"),
            std::string::npos);
  EXPECT_EQ(free_text(kTagged, Json::array({said("user", "MillracePromptPart0. the dog")})), "-");
  EXPECT_EQ(free_text(kTagged, Json::array({said("system", "the dog")})), "-");
}

}  // namespace
}  // namespace millrace
