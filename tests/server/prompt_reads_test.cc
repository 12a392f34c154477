// What is read of prompts has places in the engine's queue, its client's priority and time limit, and ends with the
// client.
#include "server/generation/prompt_reads.h"

#include <atomic>
#include <future>

#include "server/generation/prompt_worker.h"
#include "server/live_server.h"

namespace millrace {
namespace {

const char* const kStory =
    "Once upon a time, there was a little girl named Lily. She lived in a small house near a big green park.";

Json many(int count) {
  Json out = Json::array();
  for (int i = 0; i < count; ++i) out.push_back("Tale " + std::to_string(i) + ": " + kStory + kStory + kStory);
  return out;
}

// One place in the queue, and a compressor.
struct SmallServer {
  std::unique_ptr<LiveServer> live;

  explicit SmallServer(int64_t queue = 0) {
    ServiceOptions service;
    service.pooling = Pooling::mean;
    service.prompts = std::move(*PromptWorker::create(shipped_model(), {}, 1));
    EngineOptions engine;
    engine.max_streams = 1;
    engine.queue = queue;
    live = std::make_unique<LiveServer>(std::move(service), HttpLimits{}, engine);
  }
  int port() const { return live->port(); }
  Engine& engine() const { return live->engine(); }
};

// Every kind of request that reads prompts.
std::vector<std::pair<std::string, Json>> readings() {
  const Json use = {{"use", {"prompt=selective_context:ratio=0.5"}}};
  return {
      {"/v1/embeddings", {{"input", {"A cat", "A dog", "A bird"}}}},
      {"/score", {{"text_1", "A cat"}, {"text_2", {"A dog", "A bird"}}}},
      {"/v1/completions", {{"prompt", kStory}, {"max_tokens", 2}, {"echo", true}, {"logprobs", 1}}},
      {"/v1/completions", {{"prompt", kStory}, {"max_tokens", 2}, {"millrace", use}}},
      {"/v1/completions", {{"prompt", kStory}, {"max_tokens", 2}, {"millrace", use}, {"echo", true}, {"logprobs", 1}}}};
}

TEST(PromptReads, AFullQueueRefusesThem) {
  const SmallServer small;
  auto place = small.engine().take_place(8);
  ASSERT_TRUE(place.ok());
  for (const auto& [path, body] : readings()) {
    const Response response = post(small.port(), path, body.dump());
    EXPECT_EQ(response.status, 429) << path << response.body;
    EXPECT_NE(response.body.find("queue: 1 requests are open already"), std::string::npos) << response.body;
    EXPECT_TRUE(response.headers.contains("retry-after"));
  }
  place->reset();
  for (const auto& [path, body] : readings()) EXPECT_EQ(post(small.port(), path, body.dump()).status, 200) << path;
}

// The place of a request's prompt is that of its answer, and it is free when the client has its response.
TEST(PromptReads, OnePlaceIsEnough) {
  const SmallServer small;
  for (int i = 0; i < 4; ++i)
    for (const auto& [path, body] : readings()) {
      const Response response = post(small.port(), path, body.dump());
      ASSERT_EQ(response.status, 200) << path << response.body;
    }
  EXPECT_EQ(post(small.port(), "/v1/completions", R"({"prompt": "Tom", "max_tokens": 2})").status, 200);
}

TEST(PromptReads, ClientsThatLeaveGiveTheirPlacesBack) {
  const SmallServer small(2);
  const Json large = {{"prompt", many(50)}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}};
  {
    Client embedding(small.port()), scoring(small.port());
    embedding.post("/v1/embeddings", Json{{"input", many(300)}}.dump());
    scoring.post("/v1/completions", large.dump());
    ASSERT_TRUE(comes_true([&] { return small.live->server->counts().answering == 2; }));
  }
  std::vector<std::shared_ptr<QueuePlace>> places;
  EXPECT_TRUE(comes_true([&] {
    auto place = small.engine().take_place(8);
    if (place.ok()) places.push_back(std::move(*place));
    return places.size() == 3;
  }));
}

TEST(PromptReads, ATimeLimitEndsThem) {
  const SmallServer small(64);  // what has been ended leaves the engine a step later
  const Json use = {{"use", {"prompt=selective_context:ratio=0.5"}}};
  const std::vector<std::pair<std::string, Json>> slow = {
      {"/v1/embeddings", {{"input", many(150)}}},
      {"/score", {{"text_1", "A cat"}, {"text_2", many(150)}}},
      {"/v1/completions", {{"prompt", many(50)}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}}},
      {"/v1/completions", {{"prompt", many(50)}, {"max_tokens", 1}, {"millrace", use}}}};
  for (auto [path, body] : slow) {
    body["timeout"] = 0.001;
    const Response response = post(small.port(), path, body.dump());
    EXPECT_EQ(response.status, 504) << path << response.body;
    EXPECT_NE(response.body.find("timeout: the request timed out while its prompt was being read"), std::string::npos)
        << response.body;
  }
  for (const auto& [path, body] : readings()) EXPECT_EQ(post(small.port(), path, body.dump()).status, 200) << path;
}

TEST(PromptReads, FieldsAreChecked) {
  const SmallServer small;
  for (const char* field : {"priority", "timeout"}) {
    const Response response = post(small.port(), "/v1/embeddings", Json{{"input", "A cat"}, {field, "soon"}}.dump());
    EXPECT_EQ(response.status, 400) << response.body;
    EXPECT_NE(response.body.find(field), std::string::npos) << response.body;
  }
}

struct NoReader final : PromptReader {
  bool logits() const override { return false; }
  bool wants(int64_t) const override { return true; }
  void read(int64_t, const float*) override { ++rows; }
  std::atomic<int64_t> rows = 0;
};

// An engine that always has a request of priority 0 to run, and one waiting.
class BusyEngine {
 public:
  BusyEngine() {
    EngineOptions options;
    options.threads = 1;
    options.max_streams = 1;
    options.policy = "priority";
    auto made = Engine::create(shipped_model(), options);
    EXPECT_TRUE(made.ok());
    engine = std::move(*made);
    running_ = engine.get();
    for (int i = 0; i < 2; ++i) submit();
  }
  ~BusyEngine() {
    stop_ = true;
    engine.reset();
  }

  std::unique_ptr<Engine> engine;
  std::atomic<int64_t> answered = 0;

 private:
  void submit() {
    Request request;
    request.prompt = {1, 2, 3};
    request.max_tokens = 4;
    request.ignore_eos = true;
    const auto id = running_->submit(std::move(request), [this](TokenEvent&& event) {
      if (!event.last || stop_) return;
      ++answered;
      submit();
    });
    EXPECT_TRUE(id.ok() || stop_);
  }
  Engine* running_ = nullptr;
  std::atomic<bool> stop_ = false;
};

// Adds work that reads one prompt. The future has its end.
std::future<Result<void>> read_one(FairWorker& worker, Engine& engine, int64_t priority,
                                   const std::atomic<bool>& stopping) {
  const auto ended = std::make_shared<std::promise<Result<void>>>();
  WorkShare share{"a", 1};
  share.priority = priority;
  const auto run = [&worker, &engine, &stopping, share, ended](size_t) {
    const std::atomic<bool> unwanted = false;
    const auto reader = std::make_shared<NoReader>();
    ended->set_value(
        read_prompts(engine, {{std::vector<TokenId>(20, 5), reader}}, {share, nullptr, unwanted, stopping, worker}));
    return true;
  };
  EXPECT_TRUE(worker.add({share, {20}, nullptr, run}).ok());
  return ended->get_future();
}

bool is_ready(const std::future<Result<void>>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST(PromptReads, HaveTheirClientsPriorityAndThatOfUrgentWorkBehindThem) {
  BusyEngine busy;
  std::atomic<bool> stopping = false;
  FairWorker worker("requests are waiting");
  auto urgent = read_one(worker, *busy.engine, 5, stopping);
  ASSERT_TRUE(comes_true([&] { return is_ready(urgent); }));
  EXPECT_TRUE(urgent.get().ok());
  auto patient = read_one(worker, *busy.engine, -5, stopping);
  const int64_t before = busy.answered;
  ASSERT_TRUE(comes_true([&] { return busy.answered > before + 50; }));
  EXPECT_FALSE(is_ready(patient));  // there is always something more urgent
  auto behind = read_one(worker, *busy.engine, 5, stopping);
  EXPECT_TRUE(comes_true([&] { return is_ready(behind); }));
  ASSERT_TRUE(is_ready(patient) && is_ready(behind));
  EXPECT_TRUE(patient.get().ok());
  EXPECT_TRUE(behind.get().ok());
  stopping = true;
}

}  // namespace
}  // namespace millrace
