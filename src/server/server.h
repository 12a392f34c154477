// Server: a Service and the HTTP server in front of it.
#pragma once

#include <atomic>
#include <memory>

#include "server/http/http.h"
#include "server/http/tls_context.h"
#include "server/service.h"

namespace millrace {

class Server {
 public:
  // Takes over a loaded model and its engine, or a registry of models. Errors: as HttpServer::start.
  static Result<std::unique_ptr<Server>> start(std::shared_ptr<const LanguageModel> model,
                                               std::unique_ptr<Engine> engine, ServiceOptions options,
                                               const HttpLimits& limits,
                                               std::shared_ptr<const TlsContext> tls = nullptr);
  static Result<std::unique_ptr<Server>> start(std::unique_ptr<ModelRegistry> models, ServiceOptions options,
                                               const HttpLimits& limits,
                                               std::shared_ptr<const TlsContext> tls = nullptr);
  ~Server();  // stops

  int port() const { return http_->port(); }
  Service& service() { return *service_; }
  HttpCounts counts() const { return http_->counts(); }

  // Applies the settings that can change while the server runs.
  void change(const ServiceOptions& options, const HttpLimits& limits, std::shared_ptr<const TlsContext> tls);

  // Accepts no new requests but those for the server's health; answers in progress continue. drained() when the last
  // one is written.
  void drain();
  bool drained() const { return http_->drained(); }

 private:
  Server() = default;
  static Result<std::unique_ptr<Server>> start(std::unique_ptr<Service> service, const HttpLimits& limits,
                                               std::shared_ptr<const TlsContext> tls);
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> http_;
  std::atomic<const HttpServer*> listening_{nullptr};  // http_, once other threads may use it
};

}  // namespace millrace
