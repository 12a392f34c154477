// Chat templates refuse messages that the APIs allow: Mistral's want tool call ids of nine letters and digits (Ollama's
// API has none), Gemma 2's want no system role and alternating roles, and the server itself adds a system message for
// tools. Such requests were answered 400. Table of templates x APIs: messages are rewritten to what the template
// accepts, the answer reports how, and messages that a template accepts as they are reach it unchanged.
#include "server/live_server.h"
#include "shared_data.h"

namespace millrace {
namespace {

constexpr const char* kNineIds =
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{% if c.id is not defined or c.id|length "
    "!= 9 "
    "%}{{ raise_exception('ids must have length 9') }}{% endif %}[TOOL_CALLS]{{ c.function.name }}[{{ c.id }}]"
    "{{ c.function.arguments|tojson }}{% endfor %}{% elif m.role == 'tool' %}{% if m.tool_call_id is not defined or "
    "m.tool_call_id|length != 9 %}{{ raise_exception('ids must have length 9') }}{% endif %}[TOOL_RESULTS]"
    "[{{ m.tool_call_id }}]{{ m.content }}{% else %}{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}"
    "{% if tools %}{{ tools|length }}{% endif %}";
constexpr const char* kNoSystem =
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must "
    "alternate') }}{% endif %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}";

Json function(const char* name, const Json& arguments) {
  Json out = {{"name", name}};
  if (!arguments.is_discarded()) out["arguments"] = arguments;
  return out;
}

// Two parallel calls and their results, as Ollama's clients send them: without ids.
Json ollama_turns(const Json& arguments) {
  return Json::array(
      {{{"role", "user"}, {"content", "Weather?"}},
       {{"role", "assistant"},
        {"content", ""},
        {"tool_calls", {{{"function", function("rain", arguments)}}, {{"function", function("wind", arguments)}}}}},
       {{"role", "tool"}, {"tool_name", "wind"}, {"content", "WINDY"}},
       {{"role", "tool"}, {"tool_name", "rain"}, {"content", "DRY"}}});
}

Json openai_turns(const char* first, const char* second) {
  Json out = ollama_turns("{}");
  out[1]["tool_calls"][0].update({{"id", first}, {"type", "function"}});
  out[1]["tool_calls"][1].update({{"id", second}, {"type", "function"}});
  out[2]["tool_call_id"] = second;
  out[3]["tool_call_id"] = first;
  return out;
}

Json tools() {
  Json out = Json::array();
  for (const char* name : {"rain", "wind"})
    out.push_back({{"type", "function"}, {"function", {{"name", name}, {"parameters", {{"type", "object"}}}}}});
  return out;
}

struct Refusing : LiveServer {
  explicit Refusing(const char* text) : LiveServer({}, {}, {}, nullptr, templated_model(text)) {}
  Response ollama(const Json& messages, const Json& given = tools()) {
    return post(
        port(), "/api/chat",
        Json{{"messages", messages}, {"tools", given}, {"stream", false}, {"options", {{"num_predict", 1}}}}.dump());
  }
  Response openai(const Json& messages, const Json& given = tools()) {
    Json body = {{"messages", messages}, {"max_tokens", 1}};
    if (!given.empty()) body["tools"] = given;
    return post(port(), "/v1/chat/completions", body.dump());
  }
  std::string prompt(const Json& messages) {
    return post(port(), "/apply-template", Json{{"messages", messages}}.dump()).body;
  }
};

TEST(TemplateRefusals, IdsAreRewrittenForTemplatesThatDemandNineCharacters) {
  Refusing server(kNineIds);
  for (const Json& arguments : {Json::object(), Json{{"city", "Ulm"}}}) {
    const Response answer = server.ollama(ollama_turns(arguments));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_NE(answer.body.find("tool_call_ids"), std::string::npos) << answer.body;
  }
  for (const char* arguments : {"", "{}"}) {
    Json turns = openai_turns("call_1", "toolu_0123456789");
    turns[1]["tool_calls"][0]["function"]["arguments"] = arguments;
    const Response answer = server.openai(turns);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_NE(answer.body.find("tool_call_ids"), std::string::npos) << answer.body;
  }
  const Response kept = server.openai(openai_turns("abcdefgh1", "abcdefgh2"));
  EXPECT_EQ(kept.status, 200) << kept.body;
  EXPECT_EQ(kept.body.find("tool_call_ids"), std::string::npos) << kept.body;
}

TEST(TemplateRefusals, ResultsKeepTheirCalls) {
  Refusing server(kNineIds);
  const std::string prompt = server.prompt(openai_turns("a", "b"));
  EXPECT_NE(prompt.find("rain[call00000]"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("[call00001]WINDY"), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("[call00000]DRY"), std::string::npos) << prompt;
}

TEST(TemplateRefusals, ToolsAndSystemMessagesReachTemplatesWithoutASystemRole) {
  Refusing server(kNoSystem);
  const Json hello = {{"role", "user"}, {"content", "Hello"}}, system = {{"role", "system"}, {"content", "Be brief."}};
  const Response described = server.openai(Json::array({hello}));
  EXPECT_EQ(described.status, 200) << described.body;
  EXPECT_NE(described.body.find("system_to_user"), std::string::npos) << described.body;
  EXPECT_EQ(server.ollama(ollama_turns(Json::object())).status, 200);
  EXPECT_EQ(server.openai(openai_turns("a", "b")).status, 200);
  for (const Json& messages : {Json::array({system, hello}), Json::array({system, system, hello}),
                               Json::array({system, hello, hello}), Json::array({hello, system, hello}),
                               Json::array({system, {{"role", "assistant"}, {"content", "Hi."}}, hello})}) {
    const Response answer = server.openai(messages, Json::array());
    EXPECT_EQ(answer.status, 200) << messages << answer.body;
  }
  const std::string prompt = server.prompt(Json::array({system, hello, hello}));
  EXPECT_NE(prompt.find("user: Be brief.\\n\\nHello\\n\\nHello"), std::string::npos) << prompt;
}

TEST(TemplateRefusals, CallsWithoutATypeAndRequestsWithoutTools) {
  Refusing typed(
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c['type'] + c.function.name }}{% endfor %}"
      "{{ m.content }}{% endfor %}");
  EXPECT_EQ(typed.ollama(ollama_turns(Json::object())).status, 200);
  Refusing listed(
      "{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}");
  const Response answer = listed.openai(Json::array({{{"role", "user"}, {"content", "U"}}}), Json::array());
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_NE(answer.body.find("empty_tools"), std::string::npos) << answer.body;
}

// The published templates; expected reports of a conversation with parallel calls over Ollama's API.
TEST(TemplateRefusals, PublishedTemplates) {
  MILLRACE_NEEDS_SHARED("chat-templates/templates/google-gemma-2-2b-it.jinja");
  const std::pair<const char*, const char*> reports[] = {
      {"google-gemma-2-2b-it", "system_to_user"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "tool_call_ids"},
      {"meta-llama-Llama-3.2-3B-Instruct", "single_calls"},
      {"llama-cpp-deepseek-r1", ""},
  };
  for (const auto& [name, report] : reports) {
    const std::string file = fmt::format("chat-templates/templates/{}.jinja", name);
    const std::string text = testing::read_maybe_xz(testing::shared_data() / file);
    Refusing server(text.c_str());
    const Response answer = server.ollama(ollama_turns(Json{{"city", "Ulm"}}));
    EXPECT_EQ(answer.status, 200) << name << answer.body;
    EXPECT_NE(answer.body.find(report), std::string::npos) << name << answer.body;
    EXPECT_EQ(server.openai(openai_turns("a", "b")).status, 200) << name;
  }
}

TEST(TemplateRefusals, WhatATemplateAcceptsIsUnchanged) {
  Refusing server("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  const Response answer = server.openai(
      Json::array({{{"role", "system"}, {"content", "S"}}, {{"role", "user"}, {"content", "U"}}}), Json::array());
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.find("\"applied\""), std::string::npos) << answer.body;
  Refusing never("{{ raise_exception('no') }}");
  const Response refused = never.openai(Json::array({{{"role", "user"}, {"content", "U"}}}), Json::array());
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("no"), std::string::npos) << refused.body;
}

}  // namespace
}  // namespace millrace
