// Clients that send the default of a field, or a field that only permits something, were refused: Claude Code's
// context_management, OpenAI's verbosity and web_search_options, Ollama's empty messages, base URLs without /v1. The
// tests of unsupported fields sent nonsense only.
#include "server/api/api.h"
#include "server/live_server.h"

namespace millrace {
namespace {

Json least(const std::string& path) {
  const Json talk = {{{"role", "user"}, {"content", "One day"}}};
  if (path.starts_with("/v1/responses")) return {{"input", "One day"}, {"max_output_tokens", 1}};
  if (path.starts_with("/v1/embeddings")) return {{"input", "One day"}};
  if (path.starts_with("/v1/completions")) return {{"prompt", "One day"}, {"max_tokens", 1}};
  if (path == "/completion") return {{"prompt", "One day"}, {"n_predict", 1}};
  if (path == "/api/chat") return {{"messages", talk}, {"stream", false}, {"options", {{"num_predict", 1}}}};
  if (path == "/api/generate") return {{"prompt", "One day"}, {"stream", false}, {"options", {{"num_predict", 1}}}};
  if (path == "/v1/messages/count_tokens") return {{"messages", talk}};
  return {{"messages", talk}, {"max_tokens", 1}};
}

struct Sent {
  const char* path;
  const char* fields;
};

// Every field of every API that could be refused, with its default and with the values that ask for nothing.
constexpr Sent kHarmless[] = {
    {"/v1/messages", R"({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}})"},
    {"/v1/messages",
     R"({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "all"}}]}})"},
    {"/v1/messages",
     R"({"context_management": {"edits": []}, "mcp_servers": [], "container": null, "speed": "standard"})"},
    {"/v1/messages",
     R"({"context_management": null, "thread": null, "inference_geo": "global", "service_tier": "auto"})"},
    {"/v1/messages", R"({"tools": [], "tool_choice": {"type": "auto"}, "system": [], "stop_sequences": []})"},
    {"/v1/messages",
     R"({"tool_choice": {"type": "none"}, "output_config": {"task_budget": null}, "thinking": {"type": "disabled"}})"},
    {"/v1/messages/count_tokens",
     R"({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}})"},
    {"/v1/chat/completions",
     R"({"verbosity": "low", "web_search_options": {}, "modalities": ["text"], "audio": null})"},
    {"/v1/chat/completions",
     R"({"verbosity": "high", "web_search_options": {"search_context_size": "low"}, "store": false})"},
    {"/v1/chat/completions",
     R"({"tools": [], "tool_choice": "auto", "parallel_tool_calls": true, "functions": [], "function_call": "auto"})"},
    {"/v1/chat/completions",
     R"({"tool_choice": "none", "stream_options": {}, "logprobs": false, "top_logprobs": 0, "n": 1})"},
    {"/v1/chat/completions",
     R"({"stream_options": {"include_usage": false, "include_obfuscation": true}, "logit_bias": {}, "stop": []})"},
    {"/v1/chat/completions",
     R"({"stream_options": null, "response_format": {"type": "text"}, "prediction": null, "moderation": null})"},
    {"/v1/chat/completions",
     R"({"echo": false, "chat_template": null, "documents": [], "add_special_tokens": false, "stop": null})"},
    {"/v1/chat/completions",
     R"({"samplers": [], "min_keep": 0, "n_probs": 0, "t_max_predict_ms": -1, "grammar": "", "json_schema": null})"},
    {"/v1/completions",
     R"({"suffix": null, "best_of": 1, "n": 1, "echo": false, "logprobs": null, "stream_options": {}, "stop": null})"},
    {"/v1/completions",
     R"({"detokenize": true, "spaces_between_special_tokens": true, "add_special_tokens": true, "stream_interval": 1})"},
    {"/v1/responses",
     R"({"background": false, "conversation": null, "prompt": null, "text": {"verbosity": "low"}, "tools": []})"},
    {"/v1/responses",
     R"({"context_management": [], "moderation": null, "tool_choice": "auto", "truncation": "disabled", "include": []})"},
    {"/v1/responses",
     R"({"stream_options": {"include_obfuscation": true}, "service_tier": "auto", "reasoning": {"effort": null, "summary": "auto"}})"},
    {"/v1/responses/input_tokens", R"({"conversation": null, "personality": null, "text": {"verbosity": "medium"}})"},
    {"/v1/embeddings",
     R"({"encoding_format": "float", "user": "a", "normalize": true, "add_special_tokens": true, "dimensions": null})"},
    {"/api/chat",
     R"({"shift": true, "think": false, "format": "", "tools": [], "logprobs": false, "top_logprobs": 0})"},
    {"/api/chat",
     R"({"shift": false, "options": {"num_predict": 1, "penalize_newline": true, "low_vram": false, "numa": false}})"},
    {"/api/generate",
     R"({"shift": true, "images": [], "template": "", "suffix": "", "system": "", "context": [], "raw": false})"},
    {"/completion",
     R"({"image_data": [], "n_cmpl": 1, "samplers": [], "id_slot": -1, "cache_prompt": true, "n_probs": 0})"}};

TEST(HarmlessRequests, AreAnswered) {
  LiveServer live;
  for (const Sent& sent : kHarmless) {
    Json body = least(sent.path);
    body.update(Json::parse(sent.fields));
    const Response answer = post(live.port(), sent.path, body.dump());
    EXPECT_EQ(answer.status, 200) << sent.path << " " << sent.fields << "\n" << answer.body;
  }
}

TEST(HarmlessRequests, ThoseThatWouldChangeTheAnswerAreStillRefused) {
  LiveServer live;
  const Sent wrong[] = {
      {"/v1/messages", R"({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}})"},
      {"/v1/messages",
       R"({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}})"},
      {"/v1/messages", R"({"tool_choice": {"type": "any"}})"},
      {"/v1/chat/completions", R"({"tool_choice": "required"})"},
      {"/v1/chat/completions", R"({"stream_options": {"include_usage": true}})"},
      {"/v1/chat/completions", R"({"verbosity": "endless"})"},
      {"/v1/chat/completions", R"({"modalities": ["text", "audio"]})"},
      {"/v1/responses", R"({"background": true})"},
      {"/v1/responses", R"({"conversation": "conv_1"})"},
      {"/api/generate", R"({"template": "x"})"}};
  for (const Sent& sent : wrong) {
    Json body = least(sent.path);
    body.update(Json::parse(sent.fields));
    EXPECT_EQ(post(live.port(), sent.path, body.dump()).status, 400) << sent.path << " " << sent.fields;
  }
}

// The SDK's message threads and its tool runner continue without a thread when they read these details.
TEST(HarmlessRequests, AThreadIsRefusedAsTheSdkExpects) {
  LiveServer live;
  Json body = least("/v1/messages");
  body["thread"] = {{"type", "create"}};
  const Response answer = post(live.port(), "/v1/messages", body.dump());
  EXPECT_EQ(answer.status, 400);
  const Json error = answer.json()["error"];
  EXPECT_EQ(error["type"], "invalid_request_error") << answer.body;
  EXPECT_EQ(error["details"]["error_code"], "thread_unsupported_request") << answer.body;
  EXPECT_TRUE(error["details"]["unsupported"].is_array()) << answer.body;
}

TEST(HarmlessRequests, EmptyMessagesLoadAndUnload) {
  LiveServer live;
  const Json loaded = post(live.port(), "/api/chat", R"({"messages": [], "stream": false})").json();
  EXPECT_EQ(loaded["done"], true) << loaded;
  EXPECT_EQ(loaded["message"]["content"], "") << loaded;
  EXPECT_EQ(post(live.port(), "/api/chat", R"({"messages": []})").status, 200);
  EXPECT_EQ(post(live.port(), "/v1/chat/completions", R"({"messages": []})").status, 400);
}

TEST(HarmlessRequests, PathsWithoutTheVersion) {
  LiveServer live;
  for (const char* path : {"/chat/completions", "/completions", "/responses", "/messages", "/messages/count_tokens",
                           "/responses/input_tokens"}) {
    const std::string versioned = "/v1" + std::string(path);
    EXPECT_EQ(post(live.port(), path, least(versioned).dump()).status, 200) << path;
    const Response wrong = post(live.port(), path, "[]"), expected = post(live.port(), versioned, "[]");
    EXPECT_EQ(wrong.body, expected.body) << path;
    EXPECT_EQ(wrong.status, expected.status) << path;
  }
  EXPECT_EQ(get(live.port(), "/models/stories").json()["id"], "stories");
  EXPECT_EQ(get(live.port(), "/nothing").status, 404);
  ServiceOptions keyed;
  keyed.api_keys = {"k"};
  LiveServer closed(keyed);
  for (const Endpoint& endpoint : endpoints()) {
    if (!endpoint.path.starts_with("/v1/") || endpoint.path.ends_with('*') || endpoint.method != "POST") continue;
    const int status = post(closed.port(), endpoint.path.substr(3), "{}").status;
    EXPECT_EQ(status, endpoint.open ? 200 : 401) << endpoint.path;
  }
}

}  // namespace
}  // namespace millrace
