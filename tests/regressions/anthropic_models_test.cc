// Anthropic's clients list models at /v1/models too, but got OpenAI's format: `client.models.list()` found no page, no
// type and no display_name. The tests requested the list only as OpenAI's clients do.
#include "server/live_server.h"

namespace millrace {
namespace {

const std::string kAsAnthropic = "anthropic-version: 2023-06-01\r\n";

TEST(AnthropicModels, AreListedInAnthropicsFormat) {
  ServiceOptions options;
  options.names = {"one", "two", "three"};
  LiveServer live(options);
  const Json all = get(live.port(), "/v1/models", kAsAnthropic).json();
  ASSERT_TRUE(all.contains("first_id")) << all;
  ASSERT_EQ(all["data"].size(), 3u);
  EXPECT_EQ(all["has_more"], false);
  EXPECT_EQ(all["first_id"], "one");
  EXPECT_EQ(all["last_id"], "three");
  EXPECT_FALSE(all.contains("object"));
  for (const Json& model : all["data"]) {
    EXPECT_EQ(model["type"], "model");
    EXPECT_EQ(model["display_name"], model["id"]);
    EXPECT_EQ(model["created_at"].get<std::string>().size(), std::string("2026-01-01T00:00:00Z").size());
  }
  const Json page = get(live.port(), "/v1/models?limit=1&after_id=one", kAsAnthropic).json();
  EXPECT_EQ(page["data"], Json::array({all["data"][1]}));
  EXPECT_EQ(page["has_more"], true);
  const Json before = get(live.port(), "/v1/models?limit=1&before_id=three", kAsAnthropic).json();
  EXPECT_EQ(before["data"], Json::array({all["data"][1]}));
  EXPECT_EQ(before["has_more"], true);
  EXPECT_EQ(get(live.port(), "/v1/models?before_id=one", kAsAnthropic).json()["data"], Json::array());
  EXPECT_EQ(get(live.port(), "/v1/models/two", kAsAnthropic).json(), all["data"][1]);
  for (const char* wrong : {"?limit=0", "?limit=1001", "?limit=a", "?after_id=unknown", "?before_id=unknown",
                            "?after_id=one&before_id=two"}) {
    const Response refused = get(live.port(), std::string("/v1/models") + wrong, kAsAnthropic);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_EQ(refused.json()["type"], "error") << wrong;
  }
  const Response unknown = get(live.port(), "/v1/models/unknown", kAsAnthropic);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.json()["error"]["type"], "not_found_error");
  EXPECT_EQ(get(live.port(), "/v1/models").json()["object"], "list");
}

}  // namespace
}  // namespace millrace
