#include "server/api/text_vectors.h"
#include "server/api/use_field.h"

namespace millrace {

std::span<const Endpoint> endpoints() {
  static const std::vector<Endpoint> all = [] {
    std::vector<Endpoint> list;
    for (auto part :
         {openai_endpoints(), responses_endpoints(), anthropic_endpoints(), llama_server_endpoints(),
          ollama_endpoints(), ollama_model_endpoints(), model_endpoints(), adapter_endpoints(), embedding_endpoints(),
          ranking_endpoints(), program_endpoints(), file_endpoints(), stream_endpoints(), comparison_endpoints(),
          vllm_endpoints(), operation_endpoints(), page_endpoints()})
      list.insert(list.end(), part.begin(), part.end());
    for (Endpoint& endpoint : list) {
      if (endpoint.format)
        endpoint.fields.push_back(use_field());
      else if (endpoint.method == "POST" && !endpoint.raw_body && !endpoint.fields.empty() &&
               std::ranges::find(endpoint.fields, "millrace", &Field::name) == endpoint.fields.end())
        endpoint.fields.push_back(no_use_field());
    }
    return list;
  }();
  return all;
}

namespace {

const Endpoint* find_listed(const std::string& method, std::string_view path, std::string* rest, bool* wrong_method) {
  const Endpoint* other = nullptr;
  for (const Endpoint& endpoint : endpoints()) {
    const std::string& pattern = endpoint.path;
    const bool open_ended = pattern.ends_with('*');
    const auto fixed = std::string_view(pattern).substr(0, pattern.size() - open_ended);
    if (open_ended ? !path.starts_with(fixed) || path.size() == fixed.size() : path != pattern) continue;
    if (endpoint.method == method || (endpoint.method == "GET" && method == "HEAD")) {
      *rest = path.substr(fixed.size());
      return &endpoint;
    }
    other = &endpoint;
  }
  *wrong_method = other != nullptr;
  return other;
}

}  // namespace

// Clients whose base URL lacks "/v1" find the same endpoints.
const Endpoint* find_endpoint(const std::string& method, const std::string& path, std::string* rest,
                              bool* wrong_method) {
  const Endpoint* listed = find_listed(method, path, rest, wrong_method);
  if (listed || path.starts_with("/v1/")) return listed;
  return find_listed(method, "/v1" + path, rest, wrong_method);
}

const Dialect& dialect_of_path(const std::string& path) {
  if (path.starts_with("/api/")) return kOllama;
  std::string rest;
  bool wrong_method = false;
  if (!path.starts_with("/v1/") && !find_listed("POST", path, &rest, &wrong_method))
    if (find_listed("POST", "/v1" + path, &rest, &wrong_method)) return dialect_of_path("/v1" + path);
  if (path.starts_with("/v1/messages")) return kAnthropic;
  if (path.starts_with("/v1/responses")) return kResponses;
  return path.starts_with("/v1/") ? kOpenAi : kLlamaServer;
}

}  // namespace millrace
