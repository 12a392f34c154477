// Malformed messages and text give errors from LanguageModel, never exceptions.
#include <gtest/gtest.h>

#include <string>

#include "millrace/model.h"
#include "test_paths.h"

namespace millrace {
namespace {

class Templates : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto loaded =
        LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf", {.threads = 1});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = std::move(*loaded);
  }
  static void TearDownTestSuite() { model_.reset(); }
  static std::string refused(const char* messages) {
    const auto text = model_->apply_chat_template(messages, true);
    if (text.ok()) return "";
    EXPECT_EQ(text.error().kind, ErrorKind::user) << messages;
    return text.error().message;
  }
  static inline std::shared_ptr<const LanguageModel> model_;
};

TEST_F(Templates, InvalidJsonIsAnError) {
  for (const char* text : {"", "{", "[{]", "hello", "[1,]", "{\"messages\": [}", "\xff"})
    EXPECT_EQ(refused(text), "messages: not valid JSON, or nested deeper than 256") << text;
}

TEST_F(Templates, AnObjectMustHaveMessages) {
  EXPECT_EQ(refused("{}"), "messages: the object has no \"messages\" array");
  EXPECT_EQ(refused(R"({"tools": []})"), "messages: the object has no \"messages\" array");
  for (const char* text : {"5", "\"hi\"", "null", R"({"messages": 5})"}) EXPECT_NE(refused(text), "") << text;
}

TEST_F(Templates, ListAndObjectAreEquivalent) {
  const auto list = model_->apply_chat_template(R"([{"role": "user", "content": "Good day"}])", true);
  const auto object = model_->apply_chat_template(R"({"messages": [{"role": "user", "content": "Good day"}]})", true);
  const auto without = model_->apply_chat_template(R"([{"role": "user", "content": "Good day"}])", false);
  ASSERT_TRUE(list.ok() && object.ok() && without.ok());
  EXPECT_EQ(*list, *object);
  EXPECT_NE(list->find("Good day"), std::string::npos);
  EXPECT_NE(*list, *without);
  EXPECT_EQ(list->find(*without), 0u) << "the generation prompt is at the end";
}

}  // namespace
}  // namespace millrace
