#include "server/api/api_docs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/version.h"
#include "prompt/message_rewrites.h"
#include "server/api/endpoint.h"

namespace millrace {
namespace {

constexpr const char* kIntro = R"(# HTTP API

Look up here what `millrace serve` accepts: every field of every API, with its type, bounds and default. Start a server,
and send it a request:

    millrace serve
    curl localhost:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "What is 38 + 96 + 25?"}]}'

| a client of | has the address | see |
|---|---|---|
| OpenAI | `http://127.0.0.1:8080/v1` | [OpenAI](#openai), [responses](#openai-responses) |
| Anthropic | `http://127.0.0.1:8080` | [Anthropic](#anthropic) |
| Ollama | `http://127.0.0.1:8080` | [Ollama](#ollama) |
| llama-server | `http://127.0.0.1:8080` | [llama-server](#llama-server) |

`millrace serve --api-docs` prints this page. `GET /openapi.json` returns the same as an OpenAPI document.

The tables list every field of each API. Fields that are rejected are listed below their endpoint's table; fields that
are ignored say in the table why that is harmless. Unknown fields are ignored, as in vLLM, llama-server and Ollama, and
a null field counts as absent. A wrong type, a number out of range or an unsupported feature is rejected with status
400, naming the field, so that clients do not retry it. Endpoints that are known but not supported return 501. A prompt
that leaves no room in the context is rejected with the token counts; nothing is ever truncated silently.

Every response has an `X-Request-Id`: the request's own or a new one. Generated responses have a `Millrace-Seed`: a
request that repeats all its fields with that seed receives the same tokens under any other load of the server.

With `--api-key`, every path except those under `/health` and the web page's own files needs a key, as
`Authorization: Bearer KEY` or `x-api-key: KEY`. A full queue returns 429 with `Retry-After` (529 in Anthropic's API,
503 in Ollama's). Closing the connection cancels its request.
)";

constexpr const char* kRewriteIntro = R"(
## Conversations that a chat template refuses

Chat templates of models refuse conversations that the APIs allow. The messages of such a conversation are rewritten
with the fewest of the rewrites below that the template accepts, and `millrace.applied` of the response names each
of them as `{"family": "messages", "name", "options", "effect"}`. Messages that the template accepts stay as they are. A
conversation that it refuses with every rewrite is rejected with status 400 and the template's own words.

| name | effect |
|---|---|
)";

std::string number_text(double value) { return fmt::format("{}", value); }

// "0 to 2", or "" without bounds.
std::string bounds(const Field& field) {
  if (!(field.types & (kJsonInteger | kJsonNumber)) || field.min <= -1e300) return "";
  if (field.max >= 1e300) return "from " + number_text(field.min);
  return number_text(field.min) + " to " + number_text(field.max);
}

std::string in_table(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

void add_rows(const std::vector<Field>& fields, const std::string& where, std::string& out) {
  for (const Field& field : fields) {
    if (field.harmless) continue;
    std::string type = type_names(field.types);
    if (!field.choices.empty()) type = fmt::format("{}: {}", type, fmt::join(field.choices, ", "));
    if (const std::string limits = bounds(field); !limits.empty()) type += ", " + limits;
    const std::string value = field.required ? "required" : field.default_value;
    out += fmt::format("| `{}{}` | {} | {} | {} |\n", where, field.name, in_table(type), in_table(value),
                       in_table(field.help));
    add_rows(field.fields, where + field.name + ".", out);
    add_rows(field.items, where + field.name + "[].", out);
  }
}

// Lists known but unsupported fields.
void add_refused(const std::vector<Field>& fields, const std::string& where, std::vector<std::string>& out) {
  for (const Field& field : fields) {
    if (field.harmless) out.push_back(fmt::format("`{}{}`", where, field.name));
    add_refused(field.fields, where + field.name + ".", out);
    add_refused(field.items, where + field.name + "[].", out);
  }
}

void add_endpoint(const Endpoint& endpoint, std::string& out) {
  const bool open_ended = endpoint.path.ends_with('*');
  const std::string path = open_ended ? endpoint.path.substr(0, endpoint.path.size() - 1) + "ID" : endpoint.path;
  out += fmt::format("\n### {} {}\n\n{}{}\n", endpoint.method, path, endpoint.summary,
                     endpoint.open ? " Needs no key." : "");
  if (endpoint.fields.empty()) return;
  out += "\n| field | type | default | meaning |\n|---|---|---|---|\n";
  add_rows(endpoint.fields, "", out);
  std::vector<std::string> refused;
  add_refused(endpoint.fields, "", refused);
  if (!refused.empty())
    out += fmt::format("\nNot supported, and rejected with 400 unless set to a value that requests nothing: {}.\n",
                       fmt::join(refused, ", "));
}

Json field_json(const Field& field);

Json object_json(const std::vector<Field>& fields) {
  Json properties = Json::object(), required = Json::array();
  for (const Field& field : fields) {
    if (field.harmless) continue;
    properties[field.name] = field_json(field);
    if (field.required) required.push_back(field.name);
  }
  Json out = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) out["required"] = std::move(required);
  return out;
}

Json type_json(unsigned type, const Field& field) {
  Json out;
  const auto list_of = [](Json item) { return Json{{"type", "array"}, {"items", std::move(item)}}; };
  switch (type) {
    case kJsonBoolean: return {{"type", "boolean"}};
    case kJsonInteger:
    case kJsonNumber:
      out = {{"type", type == kJsonInteger ? "integer" : "number"}};
      if (field.min > -1e300) out["minimum"] = field.min;
      if (field.max < 1e300) out["maximum"] = field.max;
      return out;
    case kJsonText:
      out = {{"type", "string"}};
      if (!field.choices.empty()) out["enum"] = field.choices;
      return out;
    case kJsonTexts: return list_of({{"type", "string"}});
    case kJsonTokens: return list_of({{"type", "integer"}});
    case kJsonTokenLists: return list_of(list_of({{"type", "integer"}}));
    case kJsonObject: return field.fields.empty() ? Json{{"type", "object"}} : object_json(field.fields);
    default: return list_of(Json::object());
  }
}

Json field_json(const Field& field) {
  Json kinds = Json::array();
  for (unsigned type = 1; type <= kJsonList; type <<= 1)
    if (field.types & type) kinds.push_back(type_json(type, field));
  Json out = kinds.size() == 1 ? Json(kinds[0]) : Json{{"anyOf", std::move(kinds)}};
  out["description"] = field.help;
  return out;
}

}  // namespace

std::string api_markdown() {
  std::string out = std::string(kIntro) + kRewriteIntro;
  const auto add_rewrite = [&](const MessageRewrite& rewrite) {
    out += fmt::format("| `{}` | {} |\n", rewrite.name, rewrite.effect);
  };
  for (const MessageRewrite& rewrite : message_rewrites()) add_rewrite(rewrite);
  add_rewrite(empty_tools_rewrite());
  std::vector<const Dialect*> dialects;
  for (const Endpoint& endpoint : endpoints())
    if (std::ranges::find(dialects, endpoint.dialect) == dialects.end()) dialects.push_back(endpoint.dialect);
  for (const Dialect* dialect : dialects) {
    out += fmt::format("\n## {}\n\n{}\n", dialect->name, dialect->about);
    for (const Endpoint& endpoint : endpoints())
      if (endpoint.dialect == dialect) add_endpoint(endpoint, out);
  }
  return out;
}

namespace {

// "post_v1_chat_completions": unique, because a method and a path are.
std::string operation_id(const std::string& method, const std::string& path) {
  std::string out = method;
  for (char c : path) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += c;
    else if (c != '}' && out.back() != '_')
      out += '_';
  }
  while (out.back() == '_') out.pop_back();
  return out;
}

}  // namespace

Json openapi_json() {
  Json paths = Json::object();
  for (const Endpoint& endpoint : endpoints()) {
    const bool open_ended = endpoint.path.ends_with('*');
    const std::string path = open_ended ? endpoint.path.substr(0, endpoint.path.size() - 1) + "{id}" : endpoint.path;
    std::string method = endpoint.method;
    std::ranges::transform(method, method.begin(), [](char c) { return static_cast<char>(std::tolower(c)); });
    Json operation = {
        {"operationId", operation_id(method, path)}, {"summary", endpoint.summary}, {"tags", {endpoint.dialect->name}}};
    if (open_ended)
      operation["parameters"] =
          Json::array({Json{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
    if (endpoint.method == "POST")
      operation["requestBody"] = {{"required", true},
                                  {"content", {{"application/json", {{"schema", object_json(endpoint.fields)}}}}}};
    if (endpoint.open) operation["security"] = Json::array();
    Json answers = {
        {"200", {{"description", endpoint.format ? "the response, or a stream of its parts" : "the response"}}}};
    if (endpoint.method == "POST") answers["400"] = {{"description", "a field is invalid; the message names it"}};
    operation["responses"] = std::move(answers);
    paths[path][method] = std::move(operation);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "millrace"}, {"version", kVersion}}},
          {"paths", std::move(paths)},
          {"components", {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", Json::array({Json{{"key", Json::array()}}})}};
}

}  // namespace millrace
