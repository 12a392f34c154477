// A page of any site could make a browser read /live or other paths of a server without keys: such a request has no
// Origin when it is for a script or an image, and Sec-Fetch-Site was not checked. The tests of origins sent only
// Origin.
#include "server/live_server.h"

namespace millrace {
namespace {

int status_of(int port, const std::string& path, const std::string& headers) {
  Client client(port);
  client.get(path, headers);
  return client.head().status;
}

TEST(CrossSite, PagesFromOtherSitesAreRefused) {
  LiveServer live;
  for (const char* site : {"cross-site", "same-site"}) {
    const std::string header = std::string("Sec-Fetch-Site: ") + site + "\r\n";
    for (const char* path : {"/live", "/v1/models", "/models", "/props", "/slots", "/metrics", "/openapi.json",
                             "/api/tags", "/v1/files", "/v1/batches"})
      EXPECT_EQ(status_of(live.port(), path, header), 403) << site << " " << path;
    EXPECT_EQ(post(live.port(), "/models/unload", R"({"model": "stories"})", header).status, 403);
    EXPECT_EQ(post(live.port(), "/v1/completions", R"({"prompt": "One", "max_tokens": 1})", header).status, 403);
    EXPECT_EQ(status_of(live.port(), "/health", header), 200);  // reveals nothing
  }
  for (const char* site : {"", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"}) {
    EXPECT_EQ(status_of(live.port(), "/live", site), 200);
    EXPECT_EQ(status_of(live.port(), "/v1/models", site), 200);
  }
}

TEST(CrossSite, AllowedOriginsAreServed) {
  ServiceOptions options;
  options.origins = {"https://a.example"};
  LiveServer live(options);
  EXPECT_EQ(status_of(live.port(), "/v1/models", "Sec-Fetch-Site: cross-site\r\nOrigin: https://a.example\r\n"), 200);
  EXPECT_EQ(status_of(live.port(), "/v1/models", "Sec-Fetch-Site: cross-site\r\nOrigin: https://b.example\r\n"), 403);
  ServiceOptions with_key;
  with_key.api_keys = {"k"};
  LiveServer keyed(with_key);  // a browser does not send that by itself
  EXPECT_EQ(status_of(keyed.port(), "/v1/models", "Sec-Fetch-Site: cross-site\r\nx-api-key: k\r\n"), 200);
}

}  // namespace
}  // namespace millrace
