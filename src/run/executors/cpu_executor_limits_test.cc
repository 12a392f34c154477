// The CPU executor: its sizes from the options, what it rejects, how it samples and detokenizes, and the attention
// mass per block that it observes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "run/compatibility/checked_request_test.h"
#include "run/constraint_memory.h"
#include "run/executors/cpu_executor.h"
#include "run/executors/stepped_stream_test.h"
#include "run/language_model.h"
#include "run/plan/memory_plan.h"
#include "sampling/logprobs.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::shared_ptr<const LanguageModel> golden(int64_t memory = 0, const char* name = "llama3") {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf",
                                   {.threads = 1, .context = 128, .memory = memory});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

EngineOptions one_thread() {
  EngineOptions o;
  o.threads = 1;
  return o;
}

std::unique_ptr<Executor> make(const EngineOptions& options, int64_t memory = 0) {
  auto made = CpuExecutor::create(golden(memory), options);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

Error failure(const EngineOptions& options, int64_t memory = 0) {
  auto made = CpuExecutor::create(golden(memory), options);
  EXPECT_FALSE(made.ok());
  return made.ok() ? Error{} : made.error();
}

TEST(CpuExecutorLimits, SizesFollowTheOptions) {
  EngineOptions o = one_thread();
  auto executor = make(o);
  EXPECT_EQ(executor->limits().context, 128);
  EXPECT_EQ(executor->limits().tokens, 512);
  EXPECT_EQ(executor->limits().outputs, 8);
  EXPECT_EQ(executor->limits().request_bytes, 0);  // no budget, no limit
  EXPECT_GT(executor->limits().scratch_bytes, 0);
  EXPECT_EQ(executor->home().kv().total_blocks(), 8 * 128 / 16);
  EXPECT_EQ(executor->home().kv().layout().block_tokens, 16);
  o.context = 100;
  o.max_streams = 700;
  o.batch_tokens = 600;
  executor = make(o);
  EXPECT_EQ(executor->limits().context, 100);
  EXPECT_EQ(executor->limits().tokens, 700);
  EXPECT_EQ(executor->limits().outputs, 700);
  EXPECT_EQ(executor->home().kv().total_blocks(), 65536 / 16);  // not 700 x 100
  o.kv_tokens = 33;
  EXPECT_EQ(make(o)->home().kv().total_blocks(), 3);
  o.context = 128;
  o.kv_tokens = 0;
  o.max_streams = 1;
  o.batch_tokens = 4;
  executor = make(o);
  EXPECT_EQ(executor->limits().tokens, 4);
  EXPECT_EQ(executor->limits().outputs, 1);
  EXPECT_EQ(executor->home().kv().total_blocks(), 8);
}

TEST(CpuExecutorLimits, MemoryBudget) {
  EngineOptions o = one_thread();
  o.max_streams = 300;
  auto executor = make(o, int64_t{3} << 30);
  EXPECT_EQ(executor->limits().request_bytes, 2 * 300 * request_memory(128));
  EXPECT_GT(executor->home().kv().total_blocks(), 300 * 128 / 16);  // the remaining budget
  o.kv_tokens = 320;
  EXPECT_EQ(make(o, int64_t{3} << 30)->home().kv().total_blocks(), 20);
  o.kv_tokens = int64_t{1} << 34;
  const Error much = failure(o, int64_t{3} << 30);
  EXPECT_EQ(much.kind, ErrorKind::resource);
  EXPECT_TRUE(
      much.message.starts_with("memory: a KV cache of 17179869184 tokens does not fit in the budget of 3.22 GB"))
      << much.message;
  o.kv_tokens = 0;
  o.constraint_memory = 1;
  const Error little = failure(o, int64_t{3} << 30);
  EXPECT_EQ(little.kind, ErrorKind::user);
  EXPECT_TRUE(little.message.starts_with("constraint memory: this vocabulary needs ")) << little.message;
}

// What structured output keeps by default is given up where nothing else would fit; what was asked for is not.
TEST(CpuExecutorLimits, DefaultConstraintMemoryIsGivenUp) {
  constexpr int64_t kBudget = int64_t{3} << 30;
  const auto holds_constraints = [](const Executor& executor) {
    const auto list = executor.accounts()->list();
    return std::ranges::any_of(list, [](const MemoryAccount& a) { return a.name == "constraints" && a.bytes > 0; });
  };
  const auto room = make(one_thread(), kBudget);
  EXPECT_TRUE(holds_constraints(*room));
  const auto model = golden(kBudget);
  ASSERT_TRUE(model);
  const int64_t usual = default_constraint_memory(model->parts().tokenizer.get(), kBudget);
  const auto& accounts = model->parts().accounts;
  ASSERT_TRUE(accounts->take("another model", accounts->left() - usual + 1, "").ok());
  EngineOptions o = one_thread();
  o.max_streams = 1;
  o.batch_tokens = 16;
  o.constraint_memory = usual;
  const auto asked = CpuExecutor::create(model, o);
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.error().kind, ErrorKind::resource);
  o.constraint_memory = 0;
  const auto without = CpuExecutor::create(model, o);
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_FALSE(holds_constraints(**without));
}

TEST(CpuExecutorLimits, InvalidNamesAndSizes) {
  EngineOptions o = one_thread();
  o.context = 129;
  EXPECT_EQ(failure(o).message, "context: the model was loaded for 128 tokens, 129 asked for");
  o.context = 0;
  o.kv_format = "q4_k";
  const Error format = failure(o);
  EXPECT_EQ(format.kind, ErrorKind::unsupported);
  EXPECT_TRUE(format.message.starts_with("KV format 'q4_k'; supported: ")) << format.message;
  for (const char* name : {"f32", "f16", "bf16", "q8_0"})
    EXPECT_NE(format.message.find(name), std::string::npos) << name;
  EXPECT_NE(format.message.find(", "), std::string::npos);
  o.kv_format = "f16";
  o.kv_pool = "heap";
  EXPECT_EQ(failure(o).message, "KV pool: 'paged' or 'virtual', got 'heap'");
  o.kv_pool = "virtual";
  auto pages = make(o);
  EXPECT_GT(pages->home().kv().layout().block_tokens, 16);
  EXPECT_EQ(pages->home().kv().layout().block_tokens % 16, 0);
  o = one_thread();
  o.adapters = {"one=/nowhere"};
  EXPECT_FALSE(CpuExecutor::create(golden(), o).ok());
}

struct Refusal {
  const char* message;
  ErrorKind kind;
  std::function<void(Request&)> change;
};

TEST(CpuExecutorLimits, Requests) {
  auto executor = make(one_thread());
  constexpr ErrorKind kUser = ErrorKind::user, kUnsupported = ErrorKind::unsupported;
  const char* penalties =
      "beam search does not go with penalties, biases, banned or allowed tokens: beams are ranked by the model's own "
      "distribution; use n instead";
  const int64_t vocab = golden()->info().vocab;
  const std::string outside =
      "prompt: token " + std::to_string(vocab) + " is outside the vocabulary of " + std::to_string(vocab);
  const std::string negative = "prompt: token -1 is outside the vocabulary of " + std::to_string(vocab);
  const Refusal refusals[] = {
      {outside.c_str(), kUser, [vocab](Request& r) { r.prompt[1] = static_cast<TokenId>(vocab); }},
      {negative.c_str(), kUser, [](Request& r) { r.prompt[1] = -1; }},
      {"beam search does not go with a constraint: beams are ranked by the model's own distribution; use n instead",
       kUnsupported, [](Request& r) { r.constraint.kind = Constraint::Kind::json_object; }},
      {"beam search does not go with a thinking budget: beams are ranked by the model's own distribution; use n "
       "instead",
       kUnsupported, [](Request& r) { r.thinking.tokens = 0; }},
      {"beam search does not go with a stop string: beams end at tokens; use n instead, or stop tokens", kUnsupported,
       [](Request& r) { r.stop = {"x"}; }},
      {penalties, kUnsupported, [](Request& r) { r.sampling.repetition_penalty = 1.1; }},
      {penalties, kUnsupported, [](Request& r) { r.sampling.frequency_penalty = 0.1; }},
      {penalties, kUnsupported, [](Request& r) { r.sampling.presence_penalty = -0.1; }},
      {penalties, kUnsupported, [](Request& r) { r.sampling.dry_multiplier = 0.5; }},
      {penalties, kUnsupported,
       [](Request& r) {
         r.bad_words = {{1, 2}};
       }},
      {penalties, kUnsupported,
       [](Request& r) {
         r.sampling.logit_bias = {{1, 2.0}};
       }},
      {penalties, kUnsupported, [](Request& r) { r.sampling.banned_tokens = {1}; }},
      {penalties, kUnsupported, [](Request& r) { r.sampling.allowed_tokens = {1}; }},
      {"adapter 'style': is not loaded; there is none", kUser,
       [](Request& r) {
         r.adapters = {{"style", 1}};
       }},
      {"adapters: at most 16 for one request, got 17", kUser,
       [](Request& r) {
         r.adapters.assign(17, {"style", 1});
       }},
  };
  for (const Refusal& refusal : refusals) {
    Request request;
    request.prompt = {1, static_cast<TokenId>(vocab - 1)};
    request.beams = 2;
    EXPECT_TRUE(testing::checked_request(*executor, request).ok());
    refusal.change(request);
    const auto checked = testing::checked_request(*executor, request);
    ASSERT_FALSE(checked.ok()) << refusal.message;
    EXPECT_EQ(checked.error().message, refusal.message);
    EXPECT_EQ(checked.error().kind, refusal.kind);
    request.beams = 1;  // one beam is not a search
    EXPECT_EQ(testing::checked_request(*executor, request).ok(),
              std::string(refusal.message).starts_with("beam search"))
        << refusal.message;
  }
  Request request;
  request.prompt = {1};
  request.sampling.temperature = -1;
  EXPECT_FALSE(testing::checked_request(*executor, request).ok());
}

// A stream of `tokens`, `computed` of which run in one chunk.
testing::SteppedStream make_stream(Executor& executor, const Request& request) {
  testing::SteppedStream stream;
  Sequence& s = stream.sequence;
  s.tokens = request.prompt;
  s.prompt_tokens = s.size();
  s.request = request;
  s.prefix.caches = true;
  EXPECT_TRUE(executor.chooser().begin(stream.ref()).ok());
  for (int64_t i = 0; i < executor.home().kv().blocks_for(s.size() + 8); ++i)
    s.kv.blocks.push_back(*executor.home().kv().allocate());
  return stream;
}

Request prompt_of(int64_t count) {
  Request request;
  for (int64_t i = 0; i < count; ++i) request.prompt.push_back(static_cast<TokenId>(5 + i * 7 % 40));
  request.sampling.temperature = 0;
  return request;
}

TEST(CpuExecutorLimits, ObservesAttentionPerBlock) {
  EngineOptions o = one_thread();
  o.block_tokens = 4;
  auto executor = make(o);
  testing::SteppedStream unseen = make_stream(*executor, prompt_of(10));
  testing::run_chunks(*executor, {{&unseen, {0, 0, 10, true}}});
  EXPECT_TRUE(unseen.importance.empty());  // not requested
  executor->observe_attention();
  testing::SteppedStream stream = make_stream(*executor, prompt_of(10)),
                         private_one = make_stream(*executor, prompt_of(9));
  private_one.sequence.prefix.caches = false;
  testing::run_chunks(*executor, {{&private_one, {0, 0, 9, true}}, {&stream, {0, 0, 10, true}}});
  EXPECT_TRUE(private_one.importance.empty());
  ASSERT_EQ(stream.importance.size(), 3u);  // 4, 4 and 2 tokens
  const double mass = (stream.importance[0] * 4 + stream.importance[1] * 4 + stream.importance[2] * 2) / 10;
  EXPECT_NEAR(mass, 1, 1e-4);  // shares of one query's attention
  for (float share : stream.importance) EXPECT_GT(share, 0);
  const std::vector<float> before = stream.importance;
  stream.sequence.tokens.push_back(9);
  testing::run_chunks(*executor, {{&stream, {0, 10, 1, true}}});
  EXPECT_EQ(stream.importance, before);  // tokens of the answer are not observed
  // In chunks, each block keeps the largest share it has seen.
  testing::SteppedStream chunks = make_stream(*executor, prompt_of(10));
  testing::run_chunks(*executor, {{&chunks, {0, 0, 6, false}}});
  ASSERT_EQ(chunks.importance.size(), 2u);
  EXPECT_NEAR((chunks.importance[0] * 4 + chunks.importance[1] * 2) / 6, 1, 1e-4);
  const std::vector<float> half = chunks.importance;
  testing::run_chunks(*executor, {{&chunks, {0, 6, 4, true}}});
  ASSERT_EQ(chunks.importance.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(chunks.importance[i], i < 2 ? std::max(half[i], before[i]) : before[i], 1e-3) << i;
}

TEST(CpuExecutorLimits, EndTokens) {
  auto executor = make(one_thread());
  const TokenId end = executor->chooser().end_tokens().at(0);
  for (int variant = 0; variant < 4; ++variant) {
    Request request = prompt_of(5);
    request.sampling.allowed_tokens = {variant == 2 ? TokenId{20} : end};
    request.ignore_eos = variant == 1;
    if (variant == 2) request.stop_tokens = {20};
    if (variant == 3) request.sampling.allowed_tokens = {20};
    request.min_tokens = 0;
    testing::SteppedStream stream = make_stream(*executor, request);
    testing::run_chunks(*executor, {{&stream, {0, 0, 5, true}}});
    TokenEvent event;
    const auto stopped = executor->chooser().choose(stream.ref(), 0, event);
    if (variant == 1 && !stopped.ok()) continue;  // no token is allowed next
    ASSERT_TRUE(stopped.ok()) << variant << " " << stopped.error().message;
    EXPECT_EQ(*stopped, variant == 0 || variant == 2) << variant;
    EXPECT_EQ(event.end_token, *stopped);
    EXPECT_EQ(event.text.empty(), *stopped) << event.text;
  }
}

TEST(CpuExecutorLimits, LogprobsAreOfTheModelsDistribution) {
  auto executor = make(one_thread());
  for (int64_t wanted : {-1, 0, 3}) {
    Request request = prompt_of(5);
    request.sampling.logprobs = wanted;
    request.sampling.logit_bias = {{20, 100.0}};  // sampled, though unlikely
    testing::SteppedStream stream = make_stream(*executor, request);
    testing::run_chunks(*executor, {{&stream, {0, 0, 5, true}}});
    const auto vocab = static_cast<size_t>(golden()->info().vocab);
    const std::vector<float> row(executor->logits(), executor->logits() + vocab);
    const Logprobs expected = compute_logprobs(row, 20, 3);
    std::vector<TokenLogprob> likeliest;
    executor->chooser().likeliest(0, 3, likeliest);
    ASSERT_EQ(likeliest.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(likeliest[i].token, expected.top[i].token);
    TokenEvent event;
    ASSERT_TRUE(executor->chooser().choose(stream.ref(), 0, event).ok());
    EXPECT_EQ(event.token, 20);
    EXPECT_EQ(std::ssize(event.top_logprobs), std::max<int64_t>(0, wanted));
    EXPECT_EQ(event.logprob.logprob, wanted >= 0 ? expected.chosen.logprob : 0);
    testing::SteppedStream scored = make_stream(*executor, prompt_of(5));
    scored.own.scored = true;
    testing::run_chunks(*executor, {{&scored, {0, 0, 5, true}}});
    TokenEvent ranked;
    ASSERT_TRUE(executor->chooser().choose(scored.ref(), 0, ranked).ok());
    EXPECT_LT(ranked.logprob.logprob, 0);
  }
}

TEST(CpuExecutorLimits, EndTokensProduceNoText) {
  auto executor = make(one_thread());
  const TokenId end = executor->chooser().end_tokens().at(0);
  for (bool ignore : {false, true}) {
    Request request = prompt_of(5);
    request.ignore_eos = ignore;
    request.skip_special = false;
    testing::SteppedStream stream = make_stream(*executor, request);
    TokenEvent event;
    event.token = 20;
    executor->chooser().write(stream.ref(), event);
    EXPECT_FALSE(event.text.empty());
    event = {};
    event.token = end;
    executor->chooser().write(stream.ref(), event);
    EXPECT_EQ(event.text.empty(), !ignore) << event.text;
  }
}

}  // namespace
}  // namespace millrace
