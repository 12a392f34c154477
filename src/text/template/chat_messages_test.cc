#include "text/template/chat_messages.h"

#include <gtest/gtest.h>

#include "base/ordered_json.h"
#include "text/template/chat_template.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

TEST(ChatMessages, FallbackTemplateIsChatMl) {
  auto parsed = ChatTemplate::parse(kFallbackChatTemplate);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  auto context = chat_context(to_json({{"system", "Be brief."}, {"user", "Hi"}}), {});
  ASSERT_TRUE(context.ok());
  EXPECT_EQ(*parsed->render(*context),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  ChatContextOptions closed;
  closed.add_generation_prompt = false;
  EXPECT_EQ(*parsed->render(*chat_context(to_json({{"user", "Hi"}}), closed)), "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatMessages, VariableNames) {
  Json tools = Json::parse(R"([{"type": "function"}])");
  Json extra = Json{{"enable_thinking", false}, {"bos_token", "override"}};
  ChatContextOptions options;
  options.eos_token = "</s>";
  options.tools = &tools;
  options.extra = &extra;
  auto context = chat_context(to_json({{"user", "Hi"}}), options);
  ASSERT_TRUE(context.ok());
  EXPECT_EQ(context->dump(), R"({"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function"}],)"
                             R"("documents":null,"add_generation_prompt":true,"bos_token":"override",)"
                             R"("eos_token":"</s>","enable_thinking":false})");
}

TEST(ChatMessages, ToolArgumentsBecomeObjects) {
  Json messages = Json::parse(R"([{"role": "assistant", "tool_calls": [
      {"function": {"name": "f", "arguments": "{\"x\": [1]}"}},
      {"function": {"name": "g", "arguments": "not json"}},
      {"function": {"name": "h", "arguments": {"y": 2}}}, 7]}])");
  auto context = chat_context(messages, {});
  ASSERT_TRUE(context.ok());
  const Json& calls = (*context)["messages"][0]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["arguments"], Json::parse(R"({"x": [1]})"));
  EXPECT_EQ(calls[1]["function"]["arguments"], "not json");
  EXPECT_EQ(calls[2]["function"]["arguments"], Json::parse(R"({"y": 2})"));
  ChatContextOptions raw;
  raw.parse_tool_arguments = false;
  EXPECT_EQ((*chat_context(messages, raw))["messages"], messages);
}

TEST(ChatMessages, MalformedConversationsAreUserErrors) {
  Json object = Json::object();
  ChatContextOptions bad_tools;
  bad_tools.tools = &object;
  EXPECT_EQ(chat_context(Json("text"), {}).error().kind, ErrorKind::user);
  EXPECT_EQ(chat_context(Json::parse(R"([{"content": "x"}])"), {}).error().kind, ErrorKind::user);
  EXPECT_EQ(chat_context(Json::parse(R"([{"role": 1}])"), {}).error().kind, ErrorKind::user);
  EXPECT_EQ(chat_context(Json::array(), bad_tools).error().kind, ErrorKind::user);
}

}  // namespace
}  // namespace millrace
