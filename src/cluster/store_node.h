// StoreNode: a node without a model, which keeps blocks for the other nodes (kv/transfer/block_exchange.h). Over HTTP
// it answers questions for its health and /metrics.
#pragma once

#include <memory>
#include <vector>

#include "server/access/access.h"
#include "server/http/http.h"

namespace millrace {

class BlockExchange;

class StoreNode {
 public:
  // `exchange` has a shelf. `keys`: of those who may read /metrics; none: everybody. Errors: as HttpServer::start().
  static Result<std::unique_ptr<StoreNode>> start(std::shared_ptr<BlockExchange> exchange, std::vector<ApiKey> keys,
                                                  const HttpLimits& limits);
  ~StoreNode();

  int port() const { return http_->port(); }

 private:
  StoreNode(std::shared_ptr<BlockExchange> exchange, std::vector<ApiKey> keys)
      : exchange_(std::move(exchange)), access_(std::move(keys)) {}
  std::optional<HttpReply> refusal(HttpRequest& request) const;
  HttpReply answer(const HttpRequest& request) const;

  const std::shared_ptr<BlockExchange> exchange_;
  const Access access_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace millrace
