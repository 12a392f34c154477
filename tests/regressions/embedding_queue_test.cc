// A single text to be embedded waited 11.6 s behind a batch of 300 from another client: requests were processed whole,
// one after another. No test had two requests at the embedder, or at the prompt scorer, at once.
#include "server/live_server.h"

namespace millrace {
namespace {

std::string long_text(int i) {
  std::string out = "Tale " + std::to_string(i) + ":";
  for (int word = 0; word < 20; ++word) out += " once upon a time";
  return out;
}

Json many(int count) {
  Json out = Json::array();
  for (int i = 0; i < count; ++i) out.push_back(long_text(i));
  return out;
}

bool answered(int socket) {
  pollfd one{socket, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

struct Server1 : LiveServer {
  Server1() : LiveServer(with_pooling()) {}
  static ServiceOptions with_pooling() {
    ServiceOptions options;
    options.pooling = Pooling::mean;
    return options;
  }
};

// The large request is sent first; the small one is answered while it runs. Both get the same answers as alone.
void expect_small_first(const std::string& path, const Json& large, const Json& small, const char* part) {
  Server1 live;
  const Json alone = post(live.port(), path, small.dump()).json(),
             large_alone = post(live.port(), path, large.dump()).json();
  ASSERT_TRUE(alone.contains(part) && large_alone.contains(part)) << alone << large_alone;
  Client first(live.port()), second(live.port());
  first.post(path, large.dump());
  ASSERT_TRUE(comes_true([&] { return live.server->counts().answering == 1; }));
  ::poll(nullptr, 0, 50);  // the large request is running
  second.post(path, small.dump());
  const Response answer = second.response();
  EXPECT_FALSE(answered(first.socket())) << path << ": the large request was answered first";
  EXPECT_EQ(answer.json()[part], alone[part]);
  EXPECT_EQ(first.response().json()[part], large_alone[part]);
}

TEST(EmbeddingQueue, ASmallRequestPassesALargeOne) {
  expect_small_first("/v1/embeddings", {{"input", many(150)}}, {{"input", "A cat"}}, "data");
}

TEST(EmbeddingQueue, ScoresToo) {
  expect_small_first("/score", {{"text_1", "Tale"}, {"text_2", many(150)}}, {{"text_1", "A cat"}, {"text_2", "A dog"}},
                     "data");
}

TEST(EmbeddingQueue, PromptsLogProbabilitiesToo) {
  expect_small_first("/v1/completions", {{"prompt", many(50)}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}},
                     {{"prompt", "A cat"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}}, "choices");
}

TEST(EmbeddingQueue, WorkStopsWhenTheClientLeaves) {
  Server1 live;
  {
    std::vector<std::unique_ptr<Client>> leaving;
    for (int i = 0; i < 20; ++i) {
      leaving.push_back(std::make_unique<Client>(live.port()));
      leaving.back()->post("/v1/embeddings", Json{{"input", many(150)}}.dump());
    }
    ASSERT_TRUE(comes_true([&] { return live.server->counts().answering == 20; }));
  }
  ASSERT_TRUE(comes_true([&] { return live.server->counts().connections == 0; }));
  Client large(live.port());
  large.post("/v1/embeddings", Json{{"input", many(30)}}.dump());
  EXPECT_EQ(large.response().status, 200);  // behind 3,000 texts it would take minutes
}

}  // namespace
}  // namespace millrace
