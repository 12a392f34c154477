// JSON text inside a request (a call's arguments, a schema given as text) was parsed without a bound on its depth: 200
// KB of brackets in an earlier tool call crashed the server, because printing and copying recurse. The body itself was
// bounded, and no test nested deeper inside a string than the outer parser allows.
#include <gtest/gtest.h>

#include "server/live_server.h"
#include "text/template/chat_messages.h"
#include "text/tokenizer_files.h"
#include "text/tools/tool_dialect.h"

namespace millrace {
namespace {

constexpr size_t kDeep = 200000;

std::string deep_object() { return R"({"a":)" + std::string(kDeep, '[') + std::string(kDeep, ']') + "}"; }

const char* const kDeepTemplate =
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}{% "
    "endfor %}{{ tools }}";

class DeepJson : public ::testing::TestWithParam<const char*> {};

// Whatever the template does with calls: every API's format for an earlier call.
TEST_P(DeepJson, ArgumentsOfAnEarlierCallDoNotCrashTheServer) {
  LiveServer live({}, {}, {}, nullptr, templated_model(GetParam()));
  const std::string arguments = Json(deep_object()).dump();
  const std::string call =
      R"({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": )" +
      arguments + "}}]}";
  const std::string messages = R"("max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}, )" + call +
                               R"(, {"role": "tool", "tool_call_id": "c", "content": "x"}])";
  const std::string tools =
      R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";
  for (const std::string& body : {"{" + messages + "}", "{" + messages + tools + "}"}) {
    const int status = post(live.port(), "/v1/chat/completions", body).status;
    EXPECT_TRUE(status == 200 || status == 400) << status;
  }
  EXPECT_EQ(get(live.port(), "/health").status, 200);
}

INSTANTIATE_TEST_SUITE_P(Templates, DeepJson,
                         ::testing::Values(kDeepTemplate, "{% for m in messages %}{{ m.content }}{% endfor %}"));

TEST(DeepJsonText, SchemasAndStructuresGivenAsTextAreRefused) {
  LiveServer live;
  const std::string deep = Json(deep_object()).dump();
  for (const std::string& field :
       {R"("guided_json": )" + deep, R"("json_schema": )" + deep, R"("structured_outputs": {"json": )" + deep + "}",
        R"("guided_json": )" + deep + R"(, "stop": ["x"])"}) {
    for (const char* path : {"/v1/completions", "/completion"}) {
      const Response response = post(live.port(), path, R"({"prompt": "Once", "max_tokens": 2, )" + field + "}");
      EXPECT_TRUE(response.status == 200 || response.status == 400) << path << ": " << response.status;
    }
  }
  EXPECT_EQ(get(live.port(), "/health").status, 200);
}

TEST(DeepJsonText, MessagesOfTheLibrary) {
  const auto model = templated_model(kDeepTemplate);
  ASSERT_TRUE(model);
  const auto deep = model->apply_chat_template(
      R"([{"role": "user", "content": )" + std::string(kDeep, '[') + std::string(kDeep, ']') + "}]", true);
  ASSERT_FALSE(deep.ok());
  EXPECT_EQ(deep.error().kind, ErrorKind::user);
  EXPECT_FALSE(model->apply_chat_template("[{\"role\": \"\xFF\"}]", true).ok());
  const auto call = model->apply_chat_template(
      R"([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": )" +
          Json(deep_object()).dump() + "}}]}]",
      true);
  if (call.ok()) {
    EXPECT_NE(call->find("[[["), std::string::npos);  // passed on as plain text
  }
}

TEST(DeepJsonText, TokenizerFiles) {
  const std::string deep = R"({"model": {"type": "BPE", "vocab": )" + deep_object() +
                           R"(, "merges": []}, "added_tokens": [], "pre_tokenizer": )" + deep_object() + "}";
  EXPECT_FALSE(read_tokenizer_json(deep).ok());
  EXPECT_FALSE(read_vocab_merges(deep_object(), "", deep_object(), "gpt-2").ok());
  TokenizerSpec spec;
  EXPECT_FALSE(apply_tokenizer_config(spec, R"({"added_tokens_decoder": )" + deep_object() + "}").ok());
}

}  // namespace
}  // namespace millrace
