#include "server/server.h"

namespace millrace {

namespace {

HttpLimits with_budget(HttpLimits limits, const Service& service) {
  if (const int64_t unsent = service.answer_parts().unsent; unsent > 0) limits.all_queued_bytes = unsent;
  return limits;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(std::shared_ptr<const LanguageModel> model,
                                              std::unique_ptr<Engine> engine, ServiceOptions options,
                                              const HttpLimits& limits, std::shared_ptr<const TlsContext> tls) {
  return start(std::make_unique<Service>(std::move(model), std::move(engine), std::move(options)), limits,
               std::move(tls));
}

Result<std::unique_ptr<Server>> Server::start(std::unique_ptr<ModelRegistry> models, ServiceOptions options,
                                              const HttpLimits& limits, std::shared_ptr<const TlsContext> tls) {
  return start(std::make_unique<Service>(std::move(models), std::move(options)), limits, std::move(tls));
}

Result<std::unique_ptr<Server>> Server::start(std::unique_ptr<Service> its, const HttpLimits& limits,
                                              std::shared_ptr<const TlsContext> tls) {
  auto server = std::unique_ptr<Server>(new Server());
  server->service_ = std::move(its);
  Service* service = server->service_.get();
  MILLRACE_TRY_VOID(service->open_files());
  Telemetry& telemetry = service->telemetry();
  HttpHandler handler{[service, &telemetry](HttpRequest& request) {
                        auto refusal = service->admit(request);
                        if (refusal) telemetry.refused(request, *refusal);
                        return refusal;
                      },
                      [service, &telemetry](HttpRequest request, Exchange exchange) {
                        exchange.note(telemetry.begin(request));
                        service->handle(std::move(request), std::move(exchange));
                      },
                      [service, &telemetry](const HttpRequest& request, int status, const std::string& message) {
                        HttpReply reply = service->refuse(request, status, message);
                        telemetry.refused(request, reply);
                        return reply;
                      },
                      [service](const HttpRequest& request) { return service->shutdown_message(request); }};
  service->count_connections_with([server = server.get()] {
    const HttpServer* http = server->listening_;
    return http ? http->counts() : HttpCounts();
  });
  MILLRACE_TRY(server->http_, HttpServer::start(with_budget(limits, *service), std::move(handler), std::move(tls)));
  server->listening_ = server->http_.get();
  return server;
}

void Server::change(const ServiceOptions& options, const HttpLimits& limits, std::shared_ptr<const TlsContext> tls) {
  service_->change(options);
  http_->change(with_budget(limits, *service_), std::move(tls));
}

void Server::drain() {
  service_->drain();
  http_->drain();
}

// Stops the sockets first, after which nothing calls the service. The engine's last events go to exchanges whose server
// still exists and drops them.
Server::~Server() {
  if (!http_) return;
  service_->drain();
  http_->stop();
  service_->stop_engine();
  http_.reset();
}

}  // namespace millrace
