// Health checks, metrics and the OpenAPI document.
#include <fmt/format.h>

#include "server/api/api.h"
#include "server/api/api_docs.h"
#include "server/service.h"

namespace millrace {
namespace {

HttpReply unavailable(const std::string& why) {
  return {.status = 503,
          .body = to_text({{"error", {{"code", 503}, {"message", why}, {"type", "unavailable_error"}}}})};
}

Handled live(Call& call) {
  for (const auto& model : call.service.models().loaded()) {
    const EngineLiveness liveness = model->engine->liveness();
    if (liveness.stopped) return unavailable(fmt::format("the engine of {} has stopped", model->name()));
    if (liveness.step_seconds > call.service.options().stuck_seconds)
      return unavailable(fmt::format("the engine of {} has been in one step for {:.0f} seconds", model->name(),
                                     liveness.step_seconds));
  }
  return json_reply({{"status", "ok"}});
}

Handled ready(Call& call) {
  if (call.service.draining()) return unavailable("the server is shutting down");
  return live(call);
}

Handled metrics(Call& call) {
  return HttpReply{.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = call.service.metrics_text()};
}

Handled openapi(Call&) { return json_reply(openapi_json()); }

}  // namespace

std::vector<Endpoint> operation_endpoints() {
  const auto get = [](const char* path, const char* summary, Handled (*handle)(Call&), bool open) {
    return Endpoint{.method = "GET",
                    .path = path,
                    .dialect = &kLlamaServer,
                    .summary = summary,
                    .handle = handle,
                    .without_model = true,
                    .open = open};
  };
  return {get("/health", "Whether the server accepts requests: 200, or 503 with the reason.", ready, true),
          get("/v1/health", "The same.", ready, true),
          get("/health/ready", "The same, for a readiness probe.", ready, true),
          get("/health/live",
              "Whether the engine makes progress, for a liveness probe; a long prompt or a shutdown counts as alive.",
              live, true),
          get("/metrics", "Counters, gauges and histograms for Prometheus.", metrics, false),
          get("/openapi.json", "This documentation as an OpenAPI document.", openapi, false)};
}

}  // namespace millrace
