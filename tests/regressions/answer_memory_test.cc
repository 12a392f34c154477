// 64 answers of 400 tokens with 100 log-probabilities each took 429 MiB under `--memory 256M`: their reply was built as
// JSON, 500 bytes for a log-probability, and no account held what grows with an answer.
#include "server/generation/answer_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <random>

#include "server/api/endpoint.h"
#include "server/live_server.h"

namespace millrace {
namespace {

struct Random {
  std::mt19937 source{7};
  int64_t below(int64_t end) { return static_cast<int64_t>(source() % static_cast<uint32_t>(end)); }
};

// Counts the bytes that all threads hold; the tests that call it start no others.
int64_t heap_bytes() {
  const auto info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}
bool heap_is_counted() {
  const int64_t before = heap_bytes();
  const std::string probe(1 << 20, 'x');
  return heap_bytes() - before >= std::ssize(probe);
}

const AnswerFormat& format_of(const std::string& path) {
  std::string rest;
  bool wrong = false;
  return *find_endpoint("POST", path, &rest, &wrong)->format;
}

ChosenToken random_token(Random& random, int64_t vocab, int64_t top) {
  ChosenToken out{static_cast<TokenId>(random.below(vocab)), -1.2345678f, {}, AnswerPiece::Kind::text};
  out.top.reserve(static_cast<size_t>(std::max<int64_t>(0, top)));
  for (int64_t i = 0; i < top; ++i)
    out.top.push_back({static_cast<TokenId>(random.below(vocab)), -12.345678f - static_cast<float>(i)});
  return out;
}

const char* const kPaths[] = {"/completion", "/v1/completions", "/v1/chat/completions", "/api/generate",
                              "/v1/responses"};

GenerationRequest random_request(Random& random, const std::string& path) {
  GenerationRequest params;
  const bool one = path == "/api/generate" || path == "/v1/responses" || path == "/v1/chat/completions";
  params.request.n = path == "/api/generate" || path == "/v1/responses" ? 1 : 1 + random.below(3);
  params.request.max_tokens = 200 + random.below(200);
  params.request.sampling.logprobs = random.below(path == "/completion" ? 101 : 21) - 1;
  params.return_tokens = random.below(2) == 1;
  params.prompts.resize(static_cast<size_t>(one ? 1 : 1 + random.below(3)));
  for (AskedPrompt& prompt : params.prompts) {
    prompt.tokens.resize(static_cast<size_t>(random.below(50)));
    prompt.text.assign(prompt.tokens.size() * 4, 'a');
  }
  if (path == "/v1/completions") params.prompt_logprobs = random.below(10) - 1, params.echo = random.below(2) == 1;
  params.kept = {{"request", Json::object()}, {"owner", ""}, {"messages", Json::array()}, {"input", Json::array()}};
  return params;
}

// Measures what a Generation collects for the longest answers, and then its reply, part by part.
TEST(AnswerMemory, TheEstimateCoversFiftyRandomRequests) {
  if (!heap_is_counted()) GTEST_SKIP() << "this build's allocator does not count";
  const auto model = shipped_model();
  ASSERT_NE(model, nullptr);
  const int64_t vocab = model->info().vocab;
  Random random;
  for (int i = 0; i < 50; ++i) {
    const std::string path = kPaths[i % std::ssize(kPaths)];
    GenerationRequest params = random_request(random, path);
    const int64_t estimate = answer_bytes(params, format_of(path), 8192);
    const int64_t top = params.request.sampling.logprobs, longest = params.request.max_tokens;
    const int64_t before = heap_bytes();
    int64_t most = 0;
    {
      Answer answer;
      answer.model = model.get();
      answer.id = std::string(format_of(path).id_prefix) + "1";
      answer.params = params;
      answer.choices.resize(params.prompts.size() * static_cast<size_t>(params.request.n));
      if (const int64_t prompt_top = std::max(params.prompt_logprobs, params.echo ? top : -1); prompt_top >= 0)
        for (const AskedPrompt& prompt : params.prompts) {
          auto& list = answer.prompt_logprobs.emplace_back();
          for (size_t k = 0; k < prompt.tokens.size(); ++k) list.push_back(random_token(random, vocab, prompt_top));
        }
      for (Choice& choice : answer.choices)
        for (int64_t token = 0; token < longest; ++token) {
          choice.text += token_text(*model, static_cast<TokenId>(random.below(vocab)));
          if (params.return_tokens) choice.tokens.push_back(static_cast<TokenId>(token));
          if (top >= 0) choice.logprobs.push_back(random_token(random, vocab, top));
        }
      const Json whole = format_of(path).whole(answer);
      most = heap_bytes();
      LateText text(whole, std::exchange(answer.late, {}));
      for (bool more = true; more;) {
        std::string part;
        more = text.next(part, 64 << 10);
        const std::string sent = part;  // the connection's copy
        most = std::max(most, heap_bytes());
      }
    }
    EXPECT_LE(most - before, estimate) << path << " " << i << ": top " << top << ", tokens " << longest;
  }
}

TEST(AnswerMemory, WhatIsNotAskedForTakesNothing) {
  const AnswerFormat& format = format_of("/v1/completions");
  GenerationRequest params;
  params.prompts.resize(1);
  params.prompts[0].tokens.resize(10);
  params.request.max_tokens = 1000;
  const int64_t text = answer_bytes(params, format, 8192);
  params.request.sampling.logprobs = 0;
  const int64_t chosen = answer_bytes(params, format, 8192);
  params.request.sampling.logprobs = 20;
  const int64_t top = answer_bytes(params, format, 8192);
  EXPECT_GT(chosen, text);
  EXPECT_GE(top, chosen + 1000 * 20 * 8);
  EXPECT_LT(top, chosen + 1000 * 20 * 16) << "a log-probability is two numbers until it is sent";
  params.request.best_of = 3;
  EXPECT_GT(answer_bytes(params, format, 8192), 2 * top) << "answers that are not returned count, too";
  params.request.best_of = 1;
  params.request.max_tokens = -1;
  EXPECT_LT(answer_bytes(params, format, 210), top) << "the context bounds an answer";
  params.stream = true;
  params.request.sampling.logprobs = -1;
  EXPECT_LT(answer_bytes(params, format, 8192), 1 << 16) << "an event is written and forgotten";
}

TEST(AnswerMemory, HoldsAreReleased) {
  const auto memory = std::make_shared<AnswerMemory>(AnswerParts{1000, 0, 0});
  std::unique_ptr<AnswerMemory::Hold> first, second, third;
  EXPECT_FALSE(AnswerMemory::take(memory, 600, first));
  const auto later = AnswerMemory::take(memory, 401, second);
  ASSERT_TRUE(later);
  EXPECT_EQ(later->kind, ApiErrorKind::overloaded);
  const auto never = AnswerMemory::take(memory, 1001, second);
  ASSERT_TRUE(never);
  EXPECT_EQ(never->kind, ApiErrorKind::too_large);
  EXPECT_EQ(second, nullptr);
  EXPECT_FALSE(AnswerMemory::take(memory, 400, second));
  EXPECT_EQ(memory->held(), 1000);
  first.reset();
  EXPECT_FALSE(AnswerMemory::take(memory, 600, third));
  second.reset();
  third.reset();
  EXPECT_EQ(memory->held(), 0);
  EXPECT_FALSE(AnswerMemory::take(std::make_shared<AnswerMemory>(), INT64_MAX / 2, first)) << "no budget";
}

TEST(AnswerMemory, PartsOfABudgetAreInItsAccount) {
  const auto accounts = std::make_shared<MemoryAccounts>(int64_t{64} << 20);
  const auto memory = AnswerMemory::of_budget(accounts);
  ASSERT_TRUE(memory.ok());
  const AnswerParts& parts = (*memory)->parts();
  EXPECT_EQ(accounts->total(), parts.total());
  EXPECT_EQ(parts.values, 8 << 20);
  const StreamLimits streams = within({}, parts);
  EXPECT_LE(2 * streams.total_bytes, parts.resumable);
  EXPECT_LE(8 * streams.stream_bytes, streams.total_bytes);
  EXPECT_EQ(within({}, {}).total_bytes, StreamLimits{}.total_bytes) << "no budget";
}

std::shared_ptr<AnswerMemory> answers_of(LiveServer& live) { return live.server->service().models().first()->answers; }

std::string completion(size_t prompts, const char* more = "") {
  const Json list = std::vector<std::string>(prompts, "Once");
  return R"({"n_predict": 100, "n_probs": 100, "ignore_eos": true, "prompt": )" + list.dump() + more + "}";
}

TEST(AnswerMemory, ARequestWithoutRoomIsRefusedBeforeItStarts) {
  LiveServer live;
  live.server->service().models().first()->answers = std::make_shared<AnswerMemory>(AnswerParts{1 << 20, 0, 0});
  const int64_t before = live.engine().stats().generated_tokens;
  for (const char* more : {"", R"(, "stream": true)"}) {
    const Response refused = post(live.port(), "/completion", completion(64, more));
    EXPECT_EQ(refused.status, 413) << refused.body;
    EXPECT_NE(refused.body.find("memory"), std::string::npos) << refused.body;
  }
  EXPECT_EQ(live.engine().stats().generated_tokens, before);
  Client slow(live.port(), 4096);
  slow.post("/completion", completion(4));
  ASSERT_TRUE(comes_true([&] { return live.engine().stats().generated_tokens >= before + 400; }));
  const Response later = post(live.port(), "/completion", completion(4));
  EXPECT_EQ(later.status, 429) << later.body;
  EXPECT_NE(later.body.find("memory"), std::string::npos) << later.body;
  EXPECT_EQ(later.headers.count("retry-after"), 1u);
  const Response first = slow.response();
  ASSERT_EQ(first.status, 200);
  const Json list = first.json();
  ASSERT_EQ(list.size(), 4u);
  for (const Json& one : list) {
    ASSERT_EQ(one["completion_probabilities"].size(), 100u);
    ASSERT_EQ(one["completion_probabilities"][99]["top_logprobs"].size(), 100u);
  }
  EXPECT_TRUE(comes_true([&] { return answers_of(live)->held() == 0; }));
  EXPECT_EQ(post(live.port(), "/completion", completion(4)).status, 200);
}

TEST(AnswerMemory, IsHeldUntilTheReplyHasBeenRead) {
  LiveServer live;
  const auto answers = answers_of(live);
  Client client(live.port(), 4096);
  client.post("/completion",
              R"({"prompt": ["a", "b", "c", "d"], "n_predict": 100, "n_probs": 100, "ignore_eos": true})");
  ASSERT_TRUE(comes_true([&] { return live.engine().stats().generated_tokens >= 400; }));
  EXPECT_GT(answers->held(), 0);
  const Response answered = client.response();
  EXPECT_EQ(answered.status, 200);
  EXPECT_EQ(answered.json().size(), 4u);
  EXPECT_TRUE(comes_true([&] { return answers->held() == 0; }));
  {
    Client leaves(live.port(), 4096);
    leaves.post("/completion", completion(4));
    ASSERT_TRUE(comes_true([&] { return answers->held() > 0; }));
  }
  EXPECT_TRUE(comes_true([&] { return answers->held() == 0; }));
}

}  // namespace
}  // namespace millrace
