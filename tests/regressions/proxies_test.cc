// Browsers' SDKs send headers that preflight answers did not allow. Behind a proxy that does not pass the Host header
// on, the page's scripts were refused for their Origin; under a path prefix nothing was found.
#include <set>

#include "server/live_server.h"

namespace millrace {
namespace {

Response asked(int port, const std::string& method, const std::string& path, const std::string& headers) {
  Client client(port);
  client.get(path, headers, method);
  return client.response();
}

TEST(Proxies, PreflightAllowsTheHeadersOfSdks) {
  ServiceOptions options;
  options.origins = {"https://a.example"};
  LiveServer live(options);
  const std::string names =
      "anthropic-dangerous-direct-browser-access,authorization,content-type,x-stainless-arch,x-stainless-helper-method,"
      "x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime";
  const auto allowed = [&](const std::string& origin, const std::string& asked_for) {
    return asked(live.port(), "OPTIONS", "/v1/messages",
                 "Origin: " + origin +
                     "\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: " + asked_for + "\r\n")
        .headers["access-control-allow-headers"];
  };
  EXPECT_NE(allowed("https://a.example", names).find(names), std::string::npos);
  EXPECT_NE(allowed("https://a.example", "x-new-header").find("x-new-header"), std::string::npos);
  EXPECT_EQ(allowed("https://a.example", "a:b").find("a:b"), std::string::npos) << "not a header name";
  EXPECT_EQ(allowed("https://b.example", names), "");
}

TEST(Proxies, ThePageWorksWithoutItsHostHeader) {
  LiveServer live;  // Host is "localhost" in every request
  const std::string origin = "Origin: https://llm.example\r\n";
  EXPECT_NE(asked(live.port(), "GET", "/favicon.svg", origin).status, 403);
  EXPECT_NE(asked(live.port(), "GET", "/assets/a.js", origin).status, 403);
  EXPECT_EQ(asked(live.port(), "GET", "/v1/models", origin).status, 403);
  EXPECT_EQ(asked(live.port(), "GET", "/v1/models", origin + "Sec-Fetch-Site: same-origin\r\n").status, 200);
  EXPECT_EQ(asked(live.port(), "GET", "/v1/models", origin + "Sec-Fetch-Site: cross-site\r\n").status, 403);
  EXPECT_EQ(asked(live.port(), "GET", "/v1/models", origin + "X-Forwarded-Host: llm.example\r\n").status, 403)
      << "the peer is not trusted";
}

TEST(Proxies, ATrustedProxyNamesHostAndClient) {
  HttpLimits http;
  http.trusted_proxies = {"127.0.0.1"};
  ServiceOptions service;
  service.local_only = true;
  LiveServer live(service, http);
  const std::string origin = "Origin: https://llm.example\r\n";
  EXPECT_EQ(asked(live.port(), "GET", "/v1/models", origin + "X-Forwarded-Host: llm.example\r\n").status, 200);
  EXPECT_EQ(asked(live.port(), "GET", "/v1/models", origin + "X-Forwarded-Host: other.example\r\n").status, 403);
  EXPECT_EQ(asked(live.port(), "GET", "/v1/models", origin).status, 403);
  EXPECT_EQ(asked(live.port(), "GET", "/v1/models", "X-Forwarded-For: 1.2.3.4, 5.6.7.8\r\n").status, 200);
}

TEST(Proxies, APathPrefixIsRemoved) {
  HttpLimits http;
  http.path_prefix = "/llm";
  LiveServer live({}, http);
  for (const char* path : {"/llm/v1/models", "/v1/models", "/llm/models/stories", "/llm/health"})
    EXPECT_EQ(asked(live.port(), "GET", path, "").status, 200) << path;
  for (const char* path : {"/llmv1/models", "/llm/llm/v1/models", "/other/v1/models"})
    EXPECT_EQ(asked(live.port(), "GET", path, "").status, 404) << path;
}

// The page's addresses are relative: without the slash they would be looked for beside the prefix.
TEST(Proxies, APrefixWithoutItsSlashIsRedirected) {
  HttpLimits http;
  http.path_prefix = "/team/l m";
  LiveServer live({}, http);
  const std::pair<const char*, const char*> cases[] = {
      {"/team/l%20m", "./l%20m/"}, {"/team/l%20m?a=b&c=/d", "./l%20m/?a=b&c=/d"}, {"/team/%6C%20m", "./%6C%20m/"}};
  for (const char* method : {"GET", "HEAD"})
    for (const auto& [path, location] : cases) {
      const Response answer = asked(live.port(), method, path, "");
      EXPECT_EQ(answer.status, 308) << path;
      EXPECT_EQ(answer.headers.at("location"), location);
    }
  EXPECT_EQ(asked(live.port(), "GET", "/team/l%20m/v1/models", "").status, 200);
  EXPECT_EQ(asked(live.port(), "POST", "/team/l%20m", "").status, 404);
  EXPECT_EQ(asked(live.port(), "GET", "/team", "").status, 404);
  LiveServer plain;
  EXPECT_EQ(asked(plain.port(), "GET", "/team", "").status, 404);
}

TEST(Proxies, EveryOperationOfTheSchemaHasAnIdOfItsOwn) {
  LiveServer live;
  const Json schema = get(live.port(), "/openapi.json").json();
  std::set<std::string> seen;
  for (const auto& [path, operations] : schema["paths"].items())
    for (const auto& [method, operation] : operations.items()) {
      ASSERT_TRUE(operation.contains("operationId")) << method << " " << path;
      EXPECT_TRUE(seen.insert(operation["operationId"]).second) << operation["operationId"];
    }
  EXPECT_TRUE(seen.contains("post_v1_chat_completions"));
}

TEST(Proxies, MetricsUnderSeveralNames) {
  ServiceOptions service;
  service.metrics_aliases = {"vllm", "llamacpp"};
  LiveServer live(service);
  const std::string text = get(live.port(), "/metrics").body;
  for (const char* name : {"vllm:num_requests_running", "llamacpp:requests_processing"})
    EXPECT_NE(text.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace millrace
