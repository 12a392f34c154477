// Prompts with rows instead of tokens: rows that equal the tokens' own give the same bits; streams with and without
// rows share a batch; chunks, threads and preemption change nothing; prefixes are shared only with equal rows.
#include <fmt/format.h>

#include <cmath>

#include "model_runner.h"
#include "properties/stream_bits.h"
#include "run/prompt_embeddings.h"

namespace millrace {
namespace {

using namespace testing;
using Rows = std::vector<float>;

std::shared_ptr<const Rows> rows_of(const LanguageModel& model, std::span<const TokenId> tokens) {
  auto rows = std::make_shared<Rows>();
  for (TokenId token : tokens) {
    auto row = model.embedding(token);
    EXPECT_TRUE(row.ok());
    rows->insert(rows->end(), row->begin(), row->end());
  }
  return rows;
}

// Rows of no token.
std::shared_ptr<const Rows> soft_rows(int64_t seed, int64_t count, int64_t width) {
  auto rows = std::make_shared<Rows>();
  for (int64_t i = 0; i < count * width; ++i)
    rows->push_back(static_cast<float>(philox_uniform(static_cast<uint64_t>(seed), 3, static_cast<uint64_t>(i)) - 0.5));
  return rows;
}

class EmbeddingsOf : public ::testing::TestWithParam<std::string> {};

TEST_P(EmbeddingsOf, TheTokensOwnRowsGiveTheSameBits) {
  auto loaded = TestRunner::load(golden_model(GetParam()), {.threads = 2});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ModelRunner& runner = (*loaded)->runner();
  const Model& model = (*loaded)->model();
  const int64_t width = model.spec().width, vocab = model.spec().vocab;
  const auto tokens = make_request(3, 23, 1, vocab).prompt;
  const Rows want = (*loaded)->logits(tokens);
  for (int every : {1, 2, 5}) {
    for (int64_t chunk : {23, 7, 1}) {
      Rows rows(static_cast<size_t>(23 * width)), got;
      for (int64_t first = 0; first < 23; first += chunk) {
        const int64_t end = std::min<int64_t>(23, first + chunk);
        runner.start();
        runner.begin((*loaded)->blocks(), first);
        for (int64_t i = first; i < end; ++i) {
          const std::span<float> row(rows.data() + i * width, static_cast<size_t>(width));
          model.embedding(tokens[static_cast<size_t>(i)], row.data());
          if (i % every == 0)
            runner.add_embedding(row, i, true);
          else
            runner.add(tokens[static_cast<size_t>(i)], i, true);
        }
        runner.forward();
        got.insert(got.end(), runner.logits(), runner.logits(end - first));
      }
      EXPECT_TRUE(got == want) << "every " << every << ", chunks of " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmbeddingsOf,
                         ::testing::Values("llama", "gemma", "gemma3", "gpt2", "mixtral", "mamba", "smollm3",
                                           "deepseek3", "falcon_h1", "qwen35", "gemma4"),
                         [](const auto& one) { return one.param; });

class EngineEmbeddings : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("gemma"), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    width_ = model_->parts().model->spec().width;
  }
  Request soft(int64_t seed, int64_t prompt, int64_t begin, int64_t count) {
    Request r = make_request(seed, prompt, 12, vocab_);
    r.embeddings = {{begin, soft_rows(seed, count, width_)}};
    return r;
  }
  Shown alone(const Request& request) {
    auto core = make_core(model_, options());
    EXPECT_TRUE(core->add(1, request).ok());
    return run_all(*core, vocab_)[1];
  }
  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0, width_ = 0;
};

TEST_F(EngineEmbeddings, TheTokensOwnRowsGiveTheSameStream) {
  const Request plain = make_request(5, 30, 12, vocab_);
  Request given = plain;
  given.embeddings = {{2, rows_of(*model_, std::span(plain.prompt).subspan(2, 5))},
                      {7, rows_of(*model_, std::span(plain.prompt).subspan(7, 1))},
                      {20, rows_of(*model_, std::span(plain.prompt).subspan(20, 10))}};
  EXPECT_TRUE(alone(given).same_bits(alone(plain)));
  EXPECT_FALSE(alone(soft(5, 30, 2, 5)).same_bits(alone(plain)));
}

TEST_F(EngineEmbeddings, MixedBatchesChangeNoBit) {
  const std::vector<Request> all = {
      make_request(1, 30, 12, vocab_), soft(1, 30, 0, 30), soft(2, 21, 20, 1), soft(3, 40, 11, 20), soft(4, 7, 3, 2),
      make_request(5, 33, 12, vocab_)};
  std::vector<Shown> expected;
  for (const Request& request : all) expected.push_back(alone(request));
  struct Way {
    int threads;
    int64_t batch_tokens, block_tokens, kv_tokens;
  };
  int64_t preemptions = 0;
  for (const Way& way : {Way{1, 512, 16, 4096}, Way{2, 512, 16, 4096}, Way{2, 11, 4, 4096}, Way{1, 40, 8, 96}}) {
    EngineOptions o = options(way.threads, way.batch_tokens, way.block_tokens);
    o.kv_tokens = way.kv_tokens;
    o.policy = "fcfs:reserve=prompt";
    auto core = make_core(model_, o);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(core->add(i + 1, all[i]).ok());
    auto shown = run_all(*core, vocab_);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(shown[i + 1].tokens, expected[i].tokens) << way.batch_tokens << " request " << i;
      if (core->stats().preemptions == 0) {
        EXPECT_TRUE(shown[i + 1].same_bits(expected[i])) << way.batch_tokens << " request " << i;
      }
    }
    preemptions += core->stats().preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

TEST_F(EngineEmbeddings, PrefixesAreSharedOnlyWithEqualRows) {
  auto core = make_core(model_, options(1, 512, 4));
  RequestId next = 1;
  const auto cached = [&](const Request& request) {
    const RequestId id = next++;
    EXPECT_TRUE(core->add(id, request).ok());
    return run_all(*core, vocab_)[id].cached;
  };
  Request moved = soft(1, 30, 3, 6);
  moved.embeddings[0].begin = 4;
  EXPECT_EQ(cached(make_request(1, 30, 12, vocab_)), 0);
  EXPECT_EQ(cached(soft(1, 30, 3, 6)), 0);
  EXPECT_EQ(cached(moved), 0);
  EXPECT_EQ(cached(soft(1, 30, 3, 5)), 0);
  EXPECT_EQ(cached(soft(1, 30, 3, 6)), 28);
  EXPECT_EQ(cached(moved), 28);
  EXPECT_EQ(cached(make_request(1, 30, 12, vocab_)), 28);
  EXPECT_EQ(core->cached_tokens(soft(1, 30, 3, 6)), 28);
  EXPECT_EQ(core->cached_tokens(soft(1, 30, 3, 4)), 0);
}

TEST_F(EngineEmbeddings, SaysWhatIsWrong) {
  auto core = make_core(model_, options());
  const auto refusal = [&](std::vector<PromptEmbeddings> given) {
    Request request = make_request(1, 10, 4, vocab_);
    request.embeddings = std::move(given);
    auto added = core->add(1, request);
    EXPECT_FALSE(added.ok());
    EXPECT_EQ(added.ok() ? ErrorKind::internal : added.error().kind, ErrorKind::user);
    return added.ok() ? "" : added.error().message;
  };
  const auto rows = soft_rows(1, 2, width_);
  EXPECT_EQ(refusal({{3, nullptr}}), "embeddings: position 3 has no rows");
  EXPECT_EQ(refusal({{3, std::make_shared<Rows>(Rows(5))}}),
            fmt::format("embeddings: 5 values at position 3 are not rows of {}", width_));
  EXPECT_EQ(refusal({{9, rows}}), "embeddings: 2 rows at position 9 do not fit in a prompt of 10 tokens");
  EXPECT_EQ(refusal({{INT64_MAX, rows}}),
            fmt::format("embeddings: 2 rows at position {} do not fit in a prompt of 10 tokens", INT64_MAX));
  EXPECT_EQ(refusal({{3, rows}, {4, rows}}),
            "embeddings: position 4 comes after position 4; they must ascend and not overlap");
  EXPECT_EQ(refusal({{-1, rows}}), "embeddings: 2 rows at position -1 do not fit in a prompt of 10 tokens");
  Rows wrong = *rows;
  wrong[3] = NAN;
  EXPECT_EQ(refusal({{3, std::make_shared<Rows>(wrong)}}), "embeddings: the rows at position 3 hold NaN or infinity");
  EXPECT_EQ(model_->embedding(static_cast<TokenId>(vocab_)).error().message,
            fmt::format("token {} is outside the vocabulary of {}", vocab_, vocab_));
}

}  // namespace
}  // namespace millrace
