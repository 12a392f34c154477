// Server: a Service behind HTTP, from start to drained.
#pragma once

#include <atomic>
#include <memory>

#include "server/http/http.h"
#include "server/http/tls_context.h"
#include "server/service.h"

namespace millrace {

class Server {
 public:
  // Loads nothing and makes no engine: both are handed over. Errors: as HttpServer::start.
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

  // What can change while it runs.
  void change(const ServiceOptions& options, const HttpLimits& limits, std::shared_ptr<const TlsContext> tls);

  // No new connections or requests; answers under way go on. drained() once the last one is written.
  void drain();
  bool drained() const { return http_->counts().connections == 0; }

 private:
  Server() = default;
  static Result<std::unique_ptr<Server>> start(std::unique_ptr<Service> service, const HttpLimits& limits,
                                               std::shared_ptr<const TlsContext> tls);
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> http_;
  std::atomic<const HttpServer*> listening_{nullptr};  // http_, once its threads may see it
};

}  // namespace millrace
