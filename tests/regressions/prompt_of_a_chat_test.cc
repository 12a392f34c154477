// /apply-template rendered conversations another way than chats: without tools, thinking options, the model's system
// prompt and the message to continue. A continued message was searched for in the rendered text.
#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}])";
const std::string kUser = R"({"role": "user", "content": "Hi"})";

// What the model reads, from the token ids of a chat.
std::string prompt_of_chat(LiveServer& live, const std::shared_ptr<const LanguageModel>& model,
                           const std::string& fields) {
  const Response answer =
      post(live.port(), "/v1/chat/completions", "{" + fields + R"(, "max_tokens": 1, "return_token_ids": true})");
  const Json json = answer.json();
  if (!json.contains("prompt_token_ids")) return "status " + std::to_string(answer.status) + ": " + answer.body;
  return model->decode(json["prompt_token_ids"].get<std::vector<TokenId>>(), /*skip_special=*/false);
}

TEST(PromptOfAChat, IsTheOneOfApplyTemplate) {
  const char* templates[] = {
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% "
      "endif %}",
      "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}"
      "{% if m.tool_calls %}<tool_call>{{ m.tool_calls[0].function.arguments.a }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% if enable_thinking %}<think>{% endif %}{% endif %}"
      "{# <tool_call> \"arguments\" </think> #}{{ reasoning_effort }}{{ verbosity }}"};
  const std::string call =
      R"({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"b\"}"}}]})";
  const std::string result = R"({"role": "tool", "tool_call_id": "c", "content": "r"})";
  const std::string bodies[] = {
      R"("messages": [)" + kUser + "]",
      R"("messages": [{"role": "developer", "content": "Be."}, )" + kUser + "]",
      R"("messages": [)" + kUser + "], " + kTools,
      R"("messages": [)" + kUser + "], " + kTools + R"(, "tool_choice": "none")",
      R"("messages": [)" + kUser + "], " + kTools + R"(, "tool_choice": "required")",
      R"("messages": [)" + kUser + ", " + call + ", " + result + "]",
      R"("messages": [)" + kUser + ", " + call + ", " + result + "], " + kTools,
      R"("messages": [)" + kUser + R"(], "reasoning_effort": "low")",
      R"("messages": [)" + kUser + R"(], "enable_thinking": false, "verbosity": "low")",
      R"("messages": [)" + kUser + R"(], "chat_template_kwargs": {"enable_thinking": true})",
      R"("messages": [)" + kUser + R"(], "add_generation_prompt": false)",
      R"("messages": [)" + kUser + R"(, {"role": "assistant", "content": "We "}], "continue_final_message": true)",
      R"("messages": [)" + kUser + R"(], "functions": [{"name": "f"}])"};
  for (const char* chat_template : templates) {
    const auto model = templated_model(chat_template);
    LiveServer live({}, {}, {}, nullptr, model);
    for (const std::string& body : bodies) {
      const Response applied = post(live.port(), "/apply-template", "{" + body + "}");
      ASSERT_EQ(applied.status, 200) << body << applied.body;
      const std::string prompt = applied.json()["prompt"];
      const auto tokens = model->encode(prompt, /*add_special=*/false);
      ASSERT_TRUE(tokens.ok());
      EXPECT_EQ(prompt_of_chat(live, model, body), model->decode(*tokens, false)) << body;
    }
  }
}

TEST(PromptOfAChat, AContinuedMessageKeepsItsEnd) {
  const auto model = templated_model(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}");
  LiveServer live({}, {}, {}, nullptr, model);
  for (const std::string last : {"<", "im", "Once ", "Once\n", "a<|im", " ", ""}) {
    const Json body = {
        {"messages", {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", last}}}},
        {"continue_final_message", true}};
    EXPECT_EQ(post(live.port(), "/apply-template", body.dump()).json()["prompt"],
              "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" + last)
        << last;
  }
}

}  // namespace
}  // namespace millrace
