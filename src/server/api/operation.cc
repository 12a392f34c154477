// What operators ask: health, and the schema itself.
#include "server/api/api.h"
#include "server/service.h"

namespace millrace {
namespace {

Handled health(Call&) { return json_reply({{"status", "ok"}}); }

}  // namespace

std::vector<Endpoint> operation_endpoints() {
  std::vector<Endpoint> list;
  for (const char* path : {"/health", "/v1/health"})
    list.push_back({.method = "GET", .path = path, .dialect = &kOpenAi, .summary = "Whether the server is up.", .handle = health, .open = true});
  return list;
}

}  // namespace millrace
