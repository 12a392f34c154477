// ClusterRouter: one address for several nodes that serve the same models. A Route chooses the
// node of a request. If the node is lost before the answer is complete, another one computes the same answer, because
// same request, same bits; the client sees time pass, and nothing else. The values by which two answers would differ
// (the id, the time, a seed that the client did not give) are chosen by the router and sent along
// (server/generation/answer_identity.h).
//
//   client --HTTP--> HttpServer --> Forward (one for each request) --NodeCall--> node
//                                     NodeTable: health of the nodes       EventRelay: what the client has received
//
// Passes on requests that need no state of a node: generation, embeddings, ranking, tokenizing, lists of models. Files,
// batches, stored responses and the management of models are refused by name. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/node_table.h"
#include "cluster/route.h"
#include "server/access/api_keys.h"
#include "server/http/http.h"
#include "server/http/tls_context.h"

namespace millrace {

struct RouterOptions {
  std::vector<ClusterNode> nodes;  // at least one that is not a store
  NodeTable::Options table;
  const Route* route = &routes().front();
  double wait_seconds = 30;  // that a request waits while no node is ready
  int most_losses = 3;       // nodes that a request may lose before it fails: it may be what ends them
  std::vector<ApiKey> keys;  // keys of clients; none: everything is allowed
};

class ClusterRouter {
 public:
  // Errors: as HttpServer::start(), resource (threads).
  static Result<std::unique_ptr<ClusterRouter>> start(RouterOptions options, const HttpLimits& limits,
                                                      std::shared_ptr<const TlsContext> tls = nullptr);
  ~ClusterRouter();

  int port() const { return http_->port(); }
  NodeTable& nodes();
  void drain() { http_->drain(); }
  bool drained() const { return http_->drained(); }

  struct State;  // router.cc

 private:
  ClusterRouter();
  std::unique_ptr<State> state_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace millrace
