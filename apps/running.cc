// millrace ps and stop: what a server has loaded, over Ollama's API.
#include "running.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/json_text.h"
#include "base/network_error.h"
#include "base/ordered_json.h"
#include "command.h"
#include "hub/http_get.h"
#include "input.h"
#include "server/http/http_post.h"
#include "table_room.h"

namespace millrace {
namespace {

constexpr const char* kRunningExamples = R"(Examples:
  millrace ps                              the models of the server at http://127.0.0.1:8080
  millrace ps --url http://localhost:9000

The key of a server with API keys is read from MILLRACE_API_KEY.)";
constexpr const char* kStopExamples = R"(Examples:
  millrace stop my-model                   frees its memory; the next request loads it again)";

constexpr auto kReplyLimit = std::chrono::seconds(30);
constexpr size_t kMaxServerReplyBytes = size_t{16} << 20;

struct ServerFlags {
  std::string url = "http://127.0.0.1:8080", name;
  bool json = false, wide = false;
};

Result<nlohmann::ordered_json> read_reply(const std::string& url, int status, const std::string& body) {
  auto json = parse_json(body);
  if (status == 200 && json.is_object()) return json;
  const std::string why = json.is_object() && json.contains("error") && json["error"].is_string()
                              ? json["error"].get<std::string>()
                              : fmt::format("status {}", status);
  return Error::user(fmt::format("{}: {}", url, why));
}

std::vector<TableColumn> running_columns() {
  return {{.name = "NAME", .left = true},
          {.name = "SIZE", .drops = 3},
          {.name = "CONTEXT", .drops = 2},
          {.name = "UNLOADED AT", .left = true, .drops = 1}};
}

constexpr const char* kStartServer = "; `millrace serve MODEL` starts a server, and --url names one elsewhere";

Result<int> list_running(const ServerFlags& flags) {
  const std::string address = address_of(flags.url);
  MILLRACE_TRY(const HubUrl url, parse_hub_url(address + "/api/ps"));
  std::string body;
  HttpGet get{
      .headers = {}, .bearer = api_key_of_environment(), .body = [&](const HttpAnswer&, std::string_view bytes) {
        body += bytes;
        return body.size() <= kMaxServerReplyBytes;
      }};
  auto answered = http_get(url, get);
  if (!answered.ok() && answered.error().kind == kNetworkError)
    return Error{kNetworkError, answered.error().message + kStartServer};
  MILLRACE_TRY(const HttpAnswer answer, std::move(answered));
  MILLRACE_TRY(const auto json, read_reply(address, answer.status, body));
  if (flags.json) {
    print_json_line(json);
    return 0;
  }
  if (!json.contains("models") || !json["models"].is_array() || json["models"].empty()) {
    fmt::print("{}: no model is loaded\n", address);
    return 0;
  }
  TextTable table(TableLook::plain, running_columns());
  for (const auto& model : json["models"]) {
    const std::string until = model.value("expires_at", std::string());
    table.add({model.value("name", std::string()),
               fmt::format("{:.1f} MB", static_cast<double>(model.value("size", int64_t{0})) * 1e-6),
               fmt::format("{}", model.value("context_length", int64_t{0})),
               until >= "2200" ? "never" : until});  // the API has no other word for it than a far year
  }
  fmt::print("{}", table.text(table_room(flags.wide, "--json")));
  return 0;
}

Result<int> stop_model(const ServerFlags& flags) {
  const std::string address = address_of(flags.url);
  MILLRACE_TRY(PostTarget target, PostTarget::parse("--url", address + "/api/generate", ""));
  HttpHeaders headers;
  if (const std::string key = api_key_of_environment(); !key.empty())
    headers.emplace_back("Authorization", "Bearer " + key);
  const nlohmann::ordered_json body = {{"model", flags.name}, {"keep_alive", 0}, {"stream", false}};
  auto posted = http_post(target, headers, body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                          kReplyLimit, kMaxServerReplyBytes);
  if (!posted.ok() && posted.error().kind == kNetworkError)
    return Error{kNetworkError, posted.error().message + kStartServer};
  MILLRACE_TRY(const PostReply reply, std::move(posted));
  MILLRACE_TRY_VOID(read_reply(address, reply.status, reply.body));
  fmt::print("{} is unloaded\n", flags.name);
  return 0;
}

}  // namespace

std::string api_key_of_environment() {
  const char* key = std::getenv("MILLRACE_API_KEY");
  return key ? key : "";
}

std::string address_of(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url.find("://") == std::string::npos ? "http://" + url : url;
}

void add_running_commands(CLI::App& app) {
  for (const bool stops : {false, true}) {
    auto flags = std::make_shared<ServerFlags>();
    CLI::App* command = add_command(
        app, stops ? "stop" : "ps", stops ? "Unload a model of a server" : "List the models that a server has loaded",
        stops ? kStopExamples : kRunningExamples, [=] { return stops ? stop_model(*flags) : list_running(*flags); });
    if (stops) command->add_option("name", flags->name, "A name of millrace ps")->required();
    command->add_option("--url", flags->url, "The server: http://HOST:PORT")->capture_default_str();
    if (stops) continue;
    command->add_flag("--json", flags->json, "Print the server's answer");
    add_wide_to(command, &flags->wide, running_columns());
  }
}

}  // namespace millrace
