#include "server/server.h"

namespace millrace {

Result<std::unique_ptr<Server>> Server::start(std::shared_ptr<const LanguageModel> model, std::unique_ptr<Engine> engine, ServiceOptions options,
                                              const HttpLimits& limits) {
  auto server = std::unique_ptr<Server>(new Server());
  server->service_ = std::make_unique<Service>(std::move(model), std::move(engine), std::move(options));
  Service* service = server->service_.get();
  MILLRACE_TRY_VOID(service->open_files());
  HttpHandler handler{[service](const HttpRequest& request) { return service->admit(request); },
                      [service](HttpRequest request, Exchange exchange) { service->handle(std::move(request), std::move(exchange)); },
                      [service](const HttpRequest& request, int status, const std::string& message) { return service->refuse(request, status, message); }};
  service->count_connections_with([server = server.get()] {
    const HttpServer* http = server->listening_;
    return http ? http->counts() : HttpCounts();
  });
  MILLRACE_TRY(server->http_, HttpServer::start(limits, std::move(handler)));
  server->listening_ = server->http_.get();
  return server;
}

void Server::drain() {
  service_->drain();
  http_->drain();
}

// The sockets first: nobody calls the service after that. The engine's last events go to exchanges whose server is still
// there and drops them.
Server::~Server() {
  if (!http_) return;
  http_->stop();
  service_->stop_engine();
  http_.reset();
}

}  // namespace millrace
