// A continued message keeps its last bytes, in every template.
#include "text/template/unfinished_message.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/ordered_json.h"
#include "shared_data.h"
#include "text/template/chat_messages.h"
#include "text/template/chat_template.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

Json talk(const std::string& last) {
  return Json::array(
      {Json{{"role", "user"}, {"content", "Say something."}}, Json{{"role", "assistant"}, {"content", last}}});
}

// The prompt of a message that ends with `last`.
Result<std::string> continued(const ChatTemplate& chat_template, const std::string& last) {
  return render_unfinished(talk(last), [&](const Json& messages) -> Result<std::string> {
    MILLRACE_TRY(const Json context,
                 chat_context(messages, {.add_generation_prompt = false, .bos_token = "<s>", .eos_token = "</s>"}));
    return chat_template.render(context);
  });
}

TEST(UnfinishedMessage, IsNotSearchedForInTheRenderedText) {
  const auto chat_template = ChatTemplate::parse(kFallbackChatTemplate);
  ASSERT_TRUE(chat_template.ok());
  const std::string before = "<|im_start|>user\nSay something.<|im_end|>\n<|im_start|>assistant\n";
  for (const std::string last : {"<", "im", "<|im", "<|im_end|>", "a ", "a\n\n", " ", "", "\n", "endofmessage",
                                 "endofmessagex", "s", "assistant\n", "user"})
    EXPECT_EQ(*continued(*chat_template, last), before + last);
}

TEST(UnfinishedMessage, WhiteSpaceThatATemplateRemovesIsKeptAtTheEnd) {
  const auto chat_template = ChatTemplate::parse("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}");
  ASSERT_TRUE(chat_template.ok());
  for (const std::string last : {"a ", "a \n", "b", "  ", ""})
    EXPECT_EQ(*continued(*chat_template, last), "[Say something.][" + last);
}

TEST(UnfinishedMessage, NamesATemplateThatLeavesItOut) {
  const auto chat_template = ChatTemplate::parse("{{ messages[0].content }}");
  ASSERT_TRUE(chat_template.ok());
  const auto text = continued(*chat_template, "a");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().kind, ErrorKind::user) << text.error().message;
  EXPECT_FALSE(render_unfinished(Json::array(), [](const Json&) -> Result<std::string> { return std::string(); }).ok());
}

// With 50 endings of the letters that templates are made of. A template may alter the beginning of a message.
TEST(UnfinishedMessage, KeepsItsEndInEveryPublishedTemplate) {
  MILLRACE_NEEDS_SHARED("chat-templates/templates");
  const std::string letters[] = {"<", "|", ">",    "im", "_end",      " ",  "\n", "a",
                                 "[", "/", "INST", "]",  "assistant", "\t", "\""};
  int templates = 0;
  for (const char* folder : {"chat-templates/templates", "chat-templates/classic"}) {
    for (const auto& entry : std::filesystem::directory_iterator(testing::shared_data() / folder)) {
      const auto chat_template = ChatTemplate::parse(testing::read_file(entry.path()));
      if (!chat_template.ok()) continue;
      const auto plain = continued(*chat_template, "Well");
      if (!plain.ok()) continue;  // it demands other roles
      ++templates;
      const auto lines = continued(*chat_template, "Well\n\na");
      const bool verbatim = lines.ok() && *lines == *plain + "\n\na";  // Falcon's removes empty lines
      std::mt19937 random(templates);
      for (int i = 0; i < 50; ++i) {
        std::string ending;
        for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) ending += letters[random() % std::size(letters)];
        if (const size_t empty_line = ending.find("\n\n");
            !verbatim && empty_line != std::string::npos &&
            ending.find_first_not_of(" \t\r\n", empty_line) != std::string::npos)
          continue;
        const auto text = continued(*chat_template, "Well" + ending);
        ASSERT_TRUE(text.ok()) << entry.path() << text.error().message;
        EXPECT_EQ(*text, *plain + ending) << entry.path();
      }
    }
  }
  EXPECT_GT(templates, 40);
}

}  // namespace
}  // namespace millrace
