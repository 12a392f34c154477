#include "cluster/store_node.h"

#include <fmt/format.h>

#include "kv/transfer/block_exchange.h"
#include "server/api/api.h"

namespace millrace {

Result<std::unique_ptr<StoreNode>> StoreNode::start(std::shared_ptr<BlockExchange> exchange, std::vector<ApiKey> keys,
                                                    const HttpLimits& limits) {
  auto node = std::unique_ptr<StoreNode>(new StoreNode(std::move(exchange), std::move(keys)));
  HttpHandler handler{
      [its = node.get()](HttpRequest& request) { return its->refusal(request); },
      [its = node.get()](const HttpRequest& request, const Exchange& http) { http.reply(its->answer(request)); },
      [](const HttpRequest& request, int status, const std::string& message) {
        HttpReply reply = dialect_of_path(request.path).refuse({ApiErrorKind::bad_request, message, ""});
        reply.status = status;
        return reply;
      },
      {}};
  MILLRACE_TRY(node->http_, HttpServer::start(limits, std::move(handler)));
  return node;
}

StoreNode::~StoreNode() {
  if (http_) http_->stop();
}

std::optional<HttpReply> StoreNode::refusal(HttpRequest& request) const {
  if (request.path.starts_with("/health") || access_.open() || access_.find(request)) return std::nullopt;
  return dialect_of_path(request.path)
      .refuse({ApiErrorKind::unauthorized,
               "a valid API key is required: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'", ""});
}

HttpReply StoreNode::answer(const HttpRequest& request) const {
  if (request.path == "/health" || request.path == "/health/ready" || request.path == "/health/live")
    return {.body = R"({"status":"ok"})"};
  if (request.path == "/metrics")
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = exchange_->metrics_text()};
  return dialect_of_path(request.path)
      .refuse({ApiErrorKind::not_found,
               fmt::format("{}: this node keeps blocks for others and has no model", request.path.substr(0, 200)), ""});
}

}  // namespace millrace
