// Chat templates and tokenizers ran on the two threads that serve every request: two hostile templates or prompts, and
// /health answered no more. They run on threads of their own, of which one tenant never has all, with a time limit and
// until their client leaves.
#include <poll.h>

#include <atomic>
#include <mutex>

#include "base/work_limits.h"
#include "prompt/chat_prompt.h"
#include "server/generation/text_work.h"
#include "server/live_server.h"

namespace millrace {
namespace {

const char* const kHiChat = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})";
const char* const kLongTemplate = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}x";

// Work that runs until the gate is opened or its client leaves.
class TextGate {
 public:
  ~TextGate() { open = true; }
  TextWorkers::Work work(const std::string& tenant) {
    const auto cancelled = std::make_shared<std::atomic<bool>>(false);
    return {.tenant = tenant,
            .cancelled = cancelled,
            .run =
                [this, cancelled] {
                  ++begun;
                  while (!open && !*cancelled) ::poll(nullptr, 0, 1);
                },
            .drop = [this] { ++dropped; }};
  }
  std::atomic<bool> open{false};
  std::atomic<int> begun{0}, dropped{0};
};

// All that read a text with the model: none of them may use the threads of /health.
const std::pair<const char*, const char*> kReaders[] = {
    {"/v1/chat/completions", kHiChat},
    {"/v1/chat/completions/input_tokens", kHiChat},
    {"/v1/completions", R"({"prompt": "Once", "max_tokens": 1})"},
    {"/completion", R"({"prompt": "Once", "n_predict": 1})"},
    {"/infill", R"({"input_prefix": "Once", "input_suffix": "end", "n_predict": 1})"},
    {"/v1/messages", R"({"model": "stories", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]})"},
    {"/v1/messages/count_tokens", R"({"model": "stories", "messages": [{"role": "user", "content": "a"}]})"},
    {"/v1/responses", R"({"input": "Once", "max_output_tokens": 1})"},
    {"/v1/responses/input_tokens", R"({"input": "Once"})"},
    {"/api/chat", R"({"messages": [{"role": "user", "content": "a"}], "options": {"num_predict": 1}})"},
    {"/api/generate", R"({"prompt": "Once", "options": {"num_predict": 1}})"},
    {"/apply-template", kHiChat},
    {"/tokenize", R"({"content": "Once"})"},
    {"/detokenize", R"({"tokens": [5]})"},
    {"/v1/embeddings", R"({"input": "Once"})"},
    {"/embedding", R"({"content": "Once"})"},
    {"/api/embed", R"({"input": "Once"})"},
    {"/v1/rerank", R"({"query": "Once", "documents": ["a"]})"},
    {"/score", R"({"text_1": "Once", "text_2": "a"})"}};

TEST(TextWorkers, OtherRequestsAreServedWhileTextsAreRead) {
  TextGate gate;
  LiveServer live;
  TextWorkers& texts = live.server->service().texts();
  for (const char* tenant : {"a", "b", "c"}) ASSERT_TRUE(texts.add(gate.work(tenant)).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 3; })) << "every thread is busy";
  std::vector<std::unique_ptr<Client>> waiting;
  for (const auto& [path, body] : kReaders) {
    waiting.push_back(std::make_unique<Client>(live.port()));
    waiting.back()->post(path, body);
  }
  auto leaving = std::make_unique<Client>(live.port());
  leaving->post("/v1/chat/completions", kHiChat);
  const auto all = static_cast<int64_t>(waiting.size());
  ASSERT_TRUE(comes_true([&] { return texts.counts().waiting == all + 1; })) << texts.counts().waiting;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(get(live.port(), "/health").status, 200);
  const std::string shown = get(live.port(), "/metrics").body;
  EXPECT_NE(shown.find(fmt::format("\nmillrace_texts_waiting {}\n", all + 1)), std::string::npos) << shown;
  EXPECT_NE(shown.find("\nmillrace_texts_reading 3\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("\nmillrace_texts_turned_away_total 0\n"), std::string::npos) << shown;
  EXPECT_EQ(texts.counts().waiting, all + 1) << "the others were answered while these waited";
  leaving.reset();
  ASSERT_TRUE(comes_true([&] { return texts.counts().waiting == all; })) << "a client that leaves waits no more";
  gate.open = true;
  for (size_t i = 0; i < waiting.size(); ++i) {
    const Response response = waiting[i]->response();
    const std::string path = kReaders[i].first;
    const int expected = path == "/infill" || path == "/v1/rerank" ? 400 : 200;  // the model cannot do these
    EXPECT_EQ(response.status, expected) << path << ": " << response.body;
  }
  EXPECT_EQ(texts.counts().waiting, 0);
}

TEST(TextWorkers, AStreamThatWaitsIsKeptOpenAndARequestKeepsItsTimeLimit) {
  TextGate gate;
  HttpLimits http;
  http.ping_seconds = 0.01;
  LiveServer live({}, http);
  for (const char* tenant : {"a", "b", "c"}) ASSERT_TRUE(live.server->service().texts().add(gate.work(tenant)).ok());
  Client stream(live.port()), late(live.port());
  stream.post("/v1/completions", R"({"prompt": "Once", "max_tokens": 1, "stream": true})");
  late.post("/v1/completions", R"({"prompt": "Once", "max_tokens": 1, "timeout": 0.001})");
  EXPECT_EQ(stream.head().status, 200);
  EXPECT_TRUE(stream.chunk().starts_with(":")) << "a ping";
  gate.open = true;
  EXPECT_EQ(late.response().status, 504);
  std::string events;
  for (std::string chunk = stream.chunk(); !chunk.empty(); chunk = stream.chunk()) events += chunk;
  EXPECT_NE(events.find("[DONE]"), std::string::npos) << events;
}

// Two templates that never end used to keep the server from ending, too.
TEST(TextWorkers, AServerStopsWhileTemplatesAreRendered) {
  LiveServer live({}, {}, {}, nullptr, templated_model(kLongTemplate));
  Client one(live.port()), two(live.port()), third(live.port());
  for (Client* client : {&one, &two, &third}) client->post("/v1/chat/completions", kHiChat);
  ASSERT_TRUE(comes_true([&] {
    const auto counts = live.server->service().texts().counts();
    return counts.running + counts.waiting == 3;
  }));
  EXPECT_EQ(get(live.port(), "/health").status, 200);
  live.server.reset();
  for (Client* client : {&one, &two, &third}) EXPECT_GE(client->response().status, 400) << "it is told";
}

TEST(TextWorkers, OneTenantNeverHasAllThreads) {
  TextGate gate;
  TextWorkers texts;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(texts.add(gate.work("many")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 2; }));
  ASSERT_TRUE(texts.add(gate.work("other")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 3; })) << "its request starts at once";
  EXPECT_EQ(texts.counts().waiting, 3);
  gate.open = true;
  EXPECT_TRUE(comes_true([&] { return texts.counts().waiting == 0 && texts.counts().running == 0; }));
  EXPECT_EQ(gate.begun, 6);
}

TEST(TextWorkers, QueuesHaveLimitsAndStopDropsWhatWaits) {
  TextGate gate;
  TextWorkers texts({.threads = 1, .waiting = 3, .of_tenant = 2});
  ASSERT_TRUE(texts.add(gate.work("a")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 1; }));
  TextWorkers::Work leaving = gate.work("a");
  const auto left = leaving.cancelled;
  ASSERT_TRUE(texts.add(std::move(leaving)).ok());
  ASSERT_TRUE(texts.add(gate.work("a")).ok());
  EXPECT_FALSE(texts.add(gate.work("a")).ok()) << "two of one tenant";
  *left = true;
  EXPECT_TRUE(texts.add(gate.work("a")).ok()) << "the place of a client that left";
  ASSERT_TRUE(texts.add(gate.work("b")).ok());
  EXPECT_FALSE(texts.add(gate.work("c")).ok()) << "three in all";
  EXPECT_EQ(texts.counts().rejected, 2);
  texts.stop();
  EXPECT_EQ(gate.begun, 1);
  EXPECT_EQ(gate.dropped, 3);
  EXPECT_FALSE(texts.add(gate.work("a")).ok());
}

TEST(TextWorkers, WhatWaitsHasALimitOfBytesAndMakesRoomWhenItsClientLeaves) {
  TextGate gate;
  TextWorkers texts({.threads = 1, .bytes = 100});
  ASSERT_TRUE(texts.add(gate.work("a")).ok());
  ASSERT_TRUE(comes_true([&] { return gate.begun == 1; }));
  TextWorkers::Work large = gate.work("a"), small = gate.work("b"), again = gate.work("b");
  const std::weak_ptr<std::atomic<bool>> left = large.cancelled;
  large.bytes = 150;
  small.bytes = again.bytes = 1;
  ASSERT_TRUE(texts.add(std::move(large)).ok()) << "nothing else waits";
  EXPECT_FALSE(texts.add(std::move(small)).ok());
  *left.lock() = true;
  texts.leave("a");
  EXPECT_EQ(texts.counts().waiting, 0);
  EXPECT_TRUE(left.expired()) << "what it kept alive is gone at once";
  EXPECT_TRUE(texts.add(std::move(again)).ok());
}

// A tenant's work may be gone when its turn comes, while another thread ends the tenant's last work.
TEST(TextWorkers, WorkWhoseClientLeftEndsBesideItsTenantsLastWork) {
  for (int round = 0; round < 40; ++round) {
    TextGate gate;
    TextWorkers texts;
    ASSERT_TRUE(texts.add(gate.work("a")).ok());
    TextWorkers::Work leaving = gate.work("a");
    *leaving.cancelled = true;
    gate.open = true;
    ASSERT_TRUE(texts.add(std::move(leaving)).ok());
    ASSERT_TRUE(comes_true([&] { return texts.counts().running == 0 && gate.begun == 1; }));
  }
}

TEST(TextWorkers, ReadingEndsWithItsClientAndWithItsTime) {
  const auto model = templated_model(kLongTemplate);
  const Json messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  const std::atomic<bool> left{true};
  const std::pair<WorkLimits, ErrorKind> kLimits[] = {
      {{.cancelled = &left, .until = {}}, ErrorKind::cancelled},
      {{.cancelled = nullptr, .until = std::chrono::steady_clock::now()}, ErrorKind::resource}};
  for (const auto& [limits, kind] : kLimits) {
    const WorkScope scope(limits);
    const auto rendered = render_chat(*model, messages, true);
    ASSERT_FALSE(rendered.ok());
    EXPECT_EQ(rendered.error().kind, kind) << rendered.error().message;
    const auto tokens = model->encode("Once upon a time");
    ASSERT_FALSE(tokens.ok());
    EXPECT_EQ(tokens.error().kind, kind) << tokens.error().message;
  }
  EXPECT_TRUE(model->encode("Once upon a time").ok());
}

TEST(TextWorkers, TokenizingIsChargedAndRefusedWhereItDoesNotFit) {
  TextMemory memory;
  TextWork free;
  EXPECT_FALSE(free.charge(memory, int64_t{1} << 40)) << "without a budget nothing is limited";
  memory.accounts = std::make_shared<MemoryAccounts>(kTokenizingBytesPerByte * 100'000);
  EXPECT_FALSE(TextWork().charge(memory, 1000)) << "small texts are part of the program";
  EXPECT_EQ(memory.accounts->total(), 0);
  const auto too_large = TextWork().charge(memory, 100'001);
  ASSERT_TRUE(too_large);
  EXPECT_EQ(too_large->kind, ApiErrorKind::too_large);
  {
    TextWork one, two;
    EXPECT_FALSE(one.charge(memory, 60'000));
    EXPECT_FALSE(one.charge(memory, 70'000)) << "only what is new";
    EXPECT_EQ(memory.accounts->total(), 70'000 * kTokenizingBytesPerByte);
    const auto busy = two.charge(memory, 40'000);
    ASSERT_TRUE(busy);
    EXPECT_EQ(busy->kind, ApiErrorKind::overloaded) << "it fits when the other is done";
  }
  EXPECT_EQ(memory.accounts->total(), 0);
}

}  // namespace
}  // namespace millrace
