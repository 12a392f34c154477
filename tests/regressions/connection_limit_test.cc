// Over the connection limit a client got a 503 without a body: SDKs showed only "Connection error". The test of the
// limit checked only the status, with one client that sent no request.
#include "server/live_server.h"

namespace millrace {
namespace {

struct Full {
  HttpLimits limits;
  LiveServer live;
  std::vector<std::unique_ptr<Client>> holders;

  explicit Full(HttpLimits l) : limits(l), live({}, l) {
    for (int i = 0; i < 2; ++i) {
      holders.push_back(std::make_unique<Client>(live.port()));
      holders.back()->get("/health");
      EXPECT_EQ(holders.back()->response().status, 200);
    }
  }
};

HttpLimits two_at_most() {
  HttpLimits limits;
  limits.connections = 2;
  return limits;
}

TEST(ConnectionLimit, IsReportedInTheFormatOfEachApi) {
  Full full(two_at_most());
  struct Case {
    const char* path;
    int status;
    const char* where;  // JSON pointer
    Json wanted;
  };
  const Case cases[] = {{"/v1/chat/completions", 503, "/error/type", "unavailable_error"},
                        {"/v1/responses", 503, "/error/type", "unavailable_error"},
                        {"/v1/messages", 529, "/error/type", "overloaded_error"},
                        {"/completion", 503, "/error/code", 503}};
  for (const Case& one : cases) {
    Client client(full.live.port());
    client.post(one.path, R"({"messages": []})");
    Response refused = client.response();
    EXPECT_EQ(refused.status, one.status) << one.path;
    ASSERT_TRUE(refused.json().is_object()) << one.path << ": '" << refused.body << "'";
    EXPECT_EQ(refused.json().value(Json::json_pointer(one.where), Json()), one.wanted) << refused.body;
    EXPECT_EQ(refused.headers["retry-after"], "1");
    EXPECT_EQ(refused.headers["connection"], "close");
    EXPECT_FALSE(client.receive());
  }
  Client ollama(full.live.port());
  ollama.post("/api/chat", "{}");
  EXPECT_TRUE(ollama.response().json()["error"].is_string());
  EXPECT_EQ(full.live.server->counts().connections, 2);
}

TEST(ConnectionLimit, IsReportedToSilentClientsAndToAFlood) {
  Full full(two_at_most());
  std::vector<std::unique_ptr<Client>> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(std::make_unique<Client>(full.live.port()));
  for (const auto& client : flood) {
    const Response refused = client->response();
    EXPECT_EQ(refused.status, 503);
    EXPECT_TRUE(refused.json().is_object() && refused.json()["error"].contains("message")) << refused.body;
  }
  flood.clear();
  full.holders.clear();
  EXPECT_TRUE(comes_true([&] { return full.live.server->counts().connections == 0; }));
  EXPECT_EQ(get(full.live.port(), "/health").status, 200);
}

}  // namespace
}  // namespace millrace
