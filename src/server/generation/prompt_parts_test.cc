// Which tokens of a conversation may be dropped, for several kinds of templates.
#include "server/generation/prompt_parts.h"

#include <gtest/gtest.h>

#include "prompt/chat_prompt.h"
#include "run/language_model.h"

namespace millrace {
namespace {

const char* const kTagged =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

// The text of the tokens that may be dropped, "-" between those that may not.
std::string free_text(const std::string& chat_template, const Json& messages) {
  LoadOptions options;
  options.threads = 1;
  options.chat_template = chat_template;
  const auto model = LanguageModel::load("stories", options);
  EXPECT_TRUE(model.ok());
  const Json input = {{"messages", messages}};
  const auto text = chat_text(**model, input, true);
  EXPECT_TRUE(text.ok()) << text.error().message;
  const auto tokens = encode_chat(**model, *text);
  const auto fixed = fixed_parts(**model, input, true, *text, *tokens);
  EXPECT_EQ(fixed.size(), tokens->size());
  std::string out;
  for (size_t i = 0; i < tokens->size(); ++i) {
    if (fixed[i])
      out += out.ends_with('-') ? "" : "-";
    else
      out += (*model)->parts().tokenizer->piece((*tokens)[i]);
  }
  return out;
}

Json said(const char* role, const char* content) { return {{"role", role}, {"content", content}}; }

TEST(PromptParts, OnlyWhatUsersAndToolsWrote) {
  const std::string free =
      free_text(kTagged, {said("system", "Be kind."), said("user", " Who was the little girl? "),
                          said("assistant", "She was Lily."), said("tool", "a dog"), said("user", "And the user?")});
  // A token that spans the border of a message is the template's.
  EXPECT_NE(free.find(" was the little girl"), std::string::npos) << free;
  EXPECT_NE(free.find(" the user"), std::string::npos) << free;
  for (const char* other : {"kind", "Lily", "end", "system", "assistant", "|"})
    EXPECT_EQ(free.find(other), std::string::npos) << free;
}

TEST(PromptParts, RolesThatAreAlsoContents) {
  const std::string free = free_text(kTagged, {said("user", "user user user"), said("assistant", "user")});
  EXPECT_EQ(free.find("assistant"), std::string::npos) << free;
  EXPECT_NE(free.find(" user"), std::string::npos) << free;
  EXPECT_EQ(free.find('-'), 0u) << free;
}

TEST(PromptParts, WithoutATemplateTheTextsAreTheMessages) {
  const std::string free = free_text("", {said("user", "Once upon a time"), said("assistant", " there was")});
  EXPECT_NE(free.find("upon a time"), std::string::npos) << free;
  EXPECT_EQ(free.find("there"), std::string::npos) << free;
}

TEST(PromptParts, EverythingIsFixedWhereTheTemplateChangesMessages) {
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
