#include "server/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/api/api.h"
#include "server/api/query.h"
#include "server/service.h"

namespace millrace {
namespace {

// The page connects only to its own server, runs only its own scripts, and never creates markup from text.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri "
    "'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool takes_html(const HttpRequest& request) {
  return request.header("accept").find("text/html") != std::string_view::npos;
}

std::string left_out_text() {
  std::string out =
      "This is a millrace server. Its binary was built without the page; to include it, run `npm ci` in web/ and\n"
      "build with MILLRACE_PAGE=ON.\n\nThe API (details in GET /openapi.json):\n\n";
  for (const Endpoint& endpoint : endpoints())
    out += fmt::format("  {:4} {:26} {}\n", endpoint.method, endpoint.path, endpoint.summary);
  return out;
}

Handled asset(Call& call) {
  if (!call.service.options().page) return ApiError{ApiErrorKind::not_found, "the page is not served: --no-webui", ""};
  if (auto reply = page_file_reply(call.request.path, call.request)) return *reply;
  return ApiError{ApiErrorKind::not_found, call.request.path.substr(0, 200) + ": no such file", ""};
}

std::optional<ApiError> live(Call& call, const Exchange& exchange) {
  HttpReply head{.content_type = "text/event-stream", .headers = call.service.headers(call.request)};
  head.headers.emplace_back("Cache-Control", "no-store");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  const std::string wanted = query_value(call.request.query, "model");
  auto model = wanted == LiveFeed::kAllModels ? wanted : call.service.models().resolve(wanted);
  if (!model && wanted.empty()) model = LiveFeed::kAllModels;  // no model is served yet
  if (!model) return call.service.no_such_model(wanted);
  if (call.service.feed().watch(exchange, std::move(head), *model)) return std::nullopt;
  return ApiError{ApiErrorKind::overloaded,
                  fmt::format("{} clients are already watching; try again later", LiveFeed::kMaxWatchers), ""};
}

}  // namespace

// Whether an Accept-Encoding header ("gzip, br;q=0.5, *;q=0") lists `coding` with a weight above 0. "*" is ignored.
bool takes_coding(std::string_view header, std::string_view coding) {
  while (!header.empty()) {
    const size_t end = std::min(header.find(','), header.size());
    const std::string_view item = header.substr(0, end);
    header.remove_prefix(std::min(end + 1, header.size()));
    const size_t semicolon = std::min(item.find(';'), item.size());
    if (without_blanks(item.substr(0, semicolon)) != coding) continue;
    const size_t weight = item.find("q=", semicolon);
    return weight == std::string_view::npos || item.find_first_of("123456789", weight) != std::string_view::npos;
  }
  return false;
}

std::optional<HttpReply> page_file_reply(const std::string& path, const HttpRequest& request) {
  const auto files = page_files();
  const auto file = std::ranges::find_if(files, [&](const PageFile& one) { return path == one.path; });
  if (file == files.end()) return std::nullopt;
  HttpReply reply{.content_type = file->content_type};
  const auto header = [&](const char* name, const char* value) { reply.headers.emplace_back(name, value); };
  header("ETag", file->etag);
  // Asset names contain a hash of their contents, so assets never change.
  header("Cache-Control", path.starts_with("/assets/") ? "public, max-age=31536000, immutable" : "no-cache");
  header("Vary", "Accept, Accept-Encoding");
  header("X-Content-Type-Options", "nosniff");
  header("Content-Security-Policy", kPolicy);
  header("Referrer-Policy", "no-referrer");
  header("Cross-Origin-Opener-Policy", "same-origin");
  header("Cross-Origin-Resource-Policy", "same-origin");
  if (request.header("if-none-match").find(file->etag) != std::string_view::npos) {
    reply.status = 304;
    return reply;
  }
  const std::string_view accepted = request.header("accept-encoding");
  std::span<const unsigned char> bytes = file->plain;
  if (takes_coding(accepted, "br") && !file->brotli.empty()) {
    header("Content-Encoding", "br");
    bytes = file->brotli;
  } else if (takes_coding(accepted, "gzip") && !file->gzip.empty()) {
    header("Content-Encoding", "gzip");
    bytes = file->gzip;
  }
  reply.body.assign(bytes.begin(), bytes.end());
  return reply;
}

bool asks_for_page(const HttpRequest& request) {
  return request.path == "/" && (request.method == "GET" || request.method == "HEAD") && takes_html(request) &&
         !page_files().empty();
}

std::optional<HttpReply> page_reply(const HttpRequest& request) {
  if (!takes_html(request)) return std::nullopt;
  if (auto page = page_file_reply("/", request)) return page;
  return HttpReply{.content_type = "text/plain; charset=utf-8",
                   .headers = {{"Vary", "Accept"}, {"X-Content-Type-Options", "nosniff"}},
                   .body = left_out_text()};
}

std::vector<Endpoint> page_endpoints() {
  std::vector<Endpoint> list;
  const auto get = [&](const char* path, const char* summary) -> Endpoint& {
    list.push_back({.method = "GET", .path = path, .dialect = &kLlamaServer, .summary = summary});
    list.back().without_model = true;
    return list.back();
  };
  Endpoint& assets = get("/assets/*", "The files of the page at `/`.");
  assets.handle = asset;
  assets.open = true;
  Endpoint& icon = get("/favicon.svg", "The page's icon.");
  icon.handle = asset;
  icon.open = true;
  get("/live",
      "The state of an engine as server-sent events, at most five per second: one `hello`, then `snapshot`, or `busy` "
      "during a long step. `?model=NAME` names the model, `?model=*` every loaded one; without it, it is the first "
      "one. docs/page.md describes the events.")
      .begin = live;
  return list;
}

}  // namespace millrace
