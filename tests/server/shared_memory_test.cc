// Scores, embeddings and answers at the same time: all are in the engine's queue and KV pool, so no memory account
// grows, every block comes back, and no other answer changes.
#include <map>
#include <thread>

#include "server/live_server.h"

namespace millrace {
namespace {

std::map<std::string, int64_t> peaks_of(LiveServer& live) {
  std::map<std::string, int64_t> out;
  for (const MemoryUse& use : live.engine().stats().memory) out[use.name] = use.peak;
  return out;
}

std::string words_of(int64_t words) {
  std::string out;
  for (int64_t i = 0; i < words; ++i) out += i % 5 == 4 ? "dog. " : "the big ";
  return out;
}

TEST(SharedMemory, NoAccountGrowsWhilePromptsAreScoredAndEmbedded) {
  EngineOptions options;
  options.kv_tokens = 512;  // less than all of the requests below need
  options.max_streams = 4;
  options.context = 256;
  options.batch_tokens = 64;
  options.queue = 8;
  LiveServer live({}, {}, options, nullptr, templated_model("{{ messages[0].content }}", int64_t{1} << 30));
  const Json answer = {{"prompt", "Once upon a time"}, {"max_tokens", 120}, {"temperature", 0}, {"ignore_eos", true}};
  const Json score = {{"prompt", words_of(60)}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 2}};
  const Json embed = {{"input", {words_of(20), words_of(70), "One day", words_of(33), words_of(5), words_of(60)}}};
  const auto show = [](const Json& answered) {  // what must be the same every time
    Json out = answered.contains("choices") ? answered["choices"] : answered["data"];
    return out.dump();
  };
  const auto alone = [&](const char* path, const Json& body) {
    const Response response = post(live.port(), path, body.dump());
    EXPECT_EQ(response.status, 200) << response.body;
    return show(response.json());
  };
  const std::string answered = alone("/v1/completions", answer);
  const auto before = peaks_of(live);
  EXPECT_GT(before.at("KV"), 0);
  const int64_t computed = live.engine().stats().prompt_tokens;
  const std::string scored = alone("/v1/completions", score), embedded = alone("/v1/embeddings", embed);
  EXPECT_GT(live.engine().stats().prompt_tokens, computed + 200);  // in the engine's steps
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&, i] {
      for (int round = 0; round < 2; ++round) {
        const char* path = i == 3 ? "/v1/embeddings" : "/v1/completions";
        EXPECT_EQ(alone(path, i < 2 ? answer : i == 2 ? score : embed), i < 2 ? answered : i == 2 ? scored : embedded);
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(peaks_of(live), before);
  const EngineStats stats = live.engine().stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks);
}

TEST(SharedMemory, APromptThatDoesNotFitThePoolIsRefused) {
  EngineOptions options;
  options.kv_tokens = 64;
  options.context = 256;
  LiveServer live({}, {}, options);
  const Response refused = post(live.port(), "/v1/embeddings", Json{{"input", words_of(60)}}.dump());
  EXPECT_GE(refused.status, 400);
  EXPECT_NE(refused.body.find("KV cache"), std::string::npos) << refused.body;
  EXPECT_EQ(post(live.port(), "/v1/embeddings", Json{{"input", "One day"}}.dump()).status, 200);
}

}  // namespace
}  // namespace millrace
