// Conversations that no API allows were answered with 200: a role "robot", or a tool message that names no call or a
// call that was never made. The model saw a prompt that the client did not mean. The tests used only well-formed
// messages.
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kTemplate = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}";

struct Chat : LiveServer {
  Chat() : LiveServer({}, {}, {}, nullptr, templated_model(kTemplate)) {}
  Response params(const std::string& path, const Json& messages) {
    Json body = {{"max_tokens", 1}, {path == "/v1/responses" ? "input" : "messages", messages}};
    if (path == "/v1/responses") body.erase("max_tokens");
    if (path.starts_with("/api/"))
      body = {{"messages", messages}, {"stream", false}, {"options", {{"num_predict", 1}}}};
    return post(port(), path, body.dump());
  }
};

Json call(const char* id) {
  return {{"role", "assistant"},
          {"content", nullptr},
          {"tool_calls", {{{"id", id}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}}}};
}
const Json kHello = {{"role", "user"}, {"content", "Hello"}};

TEST(ChatRoles, UnknownRolesAreRefused) {
  Chat chat;
  for (const char* path : {"/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"}) {
    const Response refused = chat.params(path, Json::array({{{"role", "robot"}, {"content", "Hello"}}}));
    EXPECT_EQ(refused.status, 400) << path << refused.body;
    EXPECT_NE(refused.body.find("role"), std::string::npos) << refused.body;
    EXPECT_EQ(chat.params(path, Json::array({kHello})).status, 200) << path;
  }
  for (const char* role : {"system", "developer", "assistant"})
    EXPECT_EQ(chat.params("/v1/chat/completions", Json::array({{{"role", role}, {"content", "Hello"}}, kHello})).status,
              200)
        << role;
}

TEST(ChatRoles, AToolResultNeedsItsCall) {
  Chat chat;
  const auto params = [&](const Json& tool, const char* called) {
    return chat.params("/v1/chat/completions", Json::array({kHello, call(called), tool}));
  };
  EXPECT_EQ(params({{"role", "tool"}, {"content", "1"}, {"tool_call_id", "a"}}, "a").status, 200);
  for (const Json& tool :
       {Json{{"role", "tool"}, {"content", "1"}}, Json{{"role", "tool"}, {"content", "1"}, {"tool_call_id", ""}},
        Json{{"role", "tool"}, {"content", "1"}, {"tool_call_id", 7}},
        Json{{"role", "tool"}, {"content", "1"}, {"tool_call_id", "b"}}}) {
    const Response refused = params(tool, "a");
    EXPECT_EQ(refused.status, 400) << tool << refused.body;
    EXPECT_NE(refused.body.find("tool_call_id"), std::string::npos) << refused.body;
  }
  // A result before its call is as wrong as one without a call.
  EXPECT_EQ(chat.params("/v1/chat/completions",
                        Json::array({kHello, {{"role", "tool"}, {"content", "1"}, {"tool_call_id", "a"}}, call("a")}))
                .status,
            400);
}

TEST(ChatRoles, AnthropicsToolResultsNeedTheirCall) {
  Chat chat;
  const auto params = [&](const char* result) {
    return chat.params(
        "/v1/messages",
        Json::array(
            {kHello,
             {{"role", "assistant"},
              {"content", {{{"type", "tool_use"}, {"id", "a"}, {"name", "f"}, {"input", Json::object()}}}}},
             {{"role", "user"}, {"content", {{{"type", "tool_result"}, {"tool_use_id", result}, {"content", "1"}}}}}}));
  };
  EXPECT_EQ(params("a").status, 200) << params("a").body;
  EXPECT_EQ(params("b").status, 400);
  EXPECT_EQ(params("b").json().value(Json::json_pointer("/error/type"), ""), "invalid_request_error");
  EXPECT_EQ(
      chat.params("/v1/messages",
                  Json::array({{{"role", "user"},
                                {"content", {{{"type", "tool_result"}, {"tool_use_id", "a"}, {"content", "1"}}}}}}))
          .status,
      400);
}

TEST(ChatRoles, ResponsesFunctionOutputsNeedTheirCall) {
  Chat chat;
  const Json made = {{"type", "function_call"}, {"call_id", "a"}, {"name", "f"}, {"arguments", "{}"}};
  const auto result = [](const char* id) {
    return Json{{"type", "function_call_output"}, {"call_id", id}, {"output", "1"}};
  };
  EXPECT_EQ(chat.params("/v1/responses", Json::array({kHello, made, result("a")})).status, 200);
  EXPECT_EQ(chat.params("/v1/responses", Json::array({kHello, made, result("b")})).status, 400);
  EXPECT_EQ(chat.params("/v1/responses", Json::array({kHello, result("a")})).status, 400);
}

// Ollama's tool messages have at most a tool name; its clients send no ids.
TEST(ChatRoles, OllamasToolResultsNeedNoId) {
  Chat chat;
  EXPECT_EQ(
      chat.params("/api/chat", Json::array({kHello, {{"role", "tool"}, {"tool_name", "f"}, {"content", "1"}}})).status,
      200);
}

}  // namespace
}  // namespace millrace
