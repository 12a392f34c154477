// The KV format `progressive` (kv/row_residuals.h): attention by its definition, written out in double; and the same
// bits for any threads, chunks, batch mates, drafts, evictors and preemptions. Rows of f8 suit the heads of any
// model; engine_formats_test.cc has rows of 4 bits on every kernel table.
#include <numeric>

#include "model_runner.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr double kBelow = 0.35;
constexpr const char* kFormat = "progressive:below=0.2,format=f8_e4m3";

// Compares what each query gets from a layer with the definition.
class Definition final : public ForwardObserver {
 public:
  explicit Definition(TestRunner& runner) : runner_(runner) {}
  int64_t flat = 0, peaked = 0, unsure = 0;

  void queries(const AttentionInput& in) override {
    expected_.clear();
    const AttentionLayer& layer = in.layer;
    const RowCodec& codec = *in.kernels.find_codec(in.kv.layout().format);
    const auto dim = static_cast<size_t>(layer.head_dim);
    const BatchSpan& span = in.batch.spans[0];
    std::vector<float> key(dim), value(dim);
    for (int64_t i = 0; i < span.count; ++i) {
      for (int64_t head = 0; head < layer.heads; ++head) {
        const float* q = in.q + (i * layer.heads + head) * layer.head_dim;
        const int64_t kv_head = head / (layer.heads / layer.kv_heads), slots = span.first_slot + i + 1;
        // With or without residuals: the outputs, and the largest weight behind them.
        const auto attend = [&](bool residuals) {
          const int64_t residual_offset = residuals ? in.kv.residual_bytes(layer.layer) : 0;
          std::vector<double> weights, out(dim);
          const auto row_of = [&](int64_t slot, int64_t kind) {
            const int64_t block_tokens = in.kv.layout().block_tokens;
            const BlockId block = in.batch.tables(layer.group)[static_cast<size_t>(span.table + slot / block_tokens)];
            return in.kv.plane(layer.layer, block, kind, kv_head) + slot % block_tokens * in.kv.row_bytes(layer.layer);
          };
          for (int64_t slot = 0; slot < slots; ++slot) {
            decode_with_residual(codec, row_of(slot, 0), residual_offset, layer.head_dim, key.data());
            double dot = 0;
            for (size_t d = 0; d < dim; ++d) dot += double{q[d]} * double{key[d]};
            weights.push_back(std::exp(dot));
          }
          const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
          for (int64_t slot = 0; slot < slots; ++slot) {
            decode_with_residual(codec, row_of(slot, 1), residual_offset, layer.head_dim, value.data());
            for (size_t d = 0; d < dim; ++d) out[d] += weights[static_cast<size_t>(slot)] / sum * double{value[d]};
          }
          out.push_back(*std::ranges::max_element(weights) / sum);
          return out;
        };
        std::vector<double> coarse = attend(false);
        const double largest = coarse.back();
        const bool reads_residuals = largest < kBelow;
        const bool close = std::fabs(largest - kBelow) < 0.01;  // may be flat or not where products are rounded
        (close ? unsure : reads_residuals ? flat : peaked)++;
        expected_.push_back({reads_residuals ? attend(true) : std::move(coarse), close, reads_residuals});
      }
    }
  }

  void attended(const AttentionLayer& layer, const Batch& batch, const float* rows) override {
    ASSERT_EQ(std::ssize(expected_), batch.size() * layer.heads);
    // Rows with residuals are attended in f32; the others as their format is, which may be in bf16.
    const bool rounds = runner_.context().kernels().find_attention(runner_.kv().layout().format)->bf16_head_dim > 0;
    for (const Row& row : expected_) {
      const double bound = row.unsure ? INFINITY : rounds && !row.flat ? 4e-2 : 1e-4;
      for (int64_t d = 0; d < layer.head_dim; ++d, ++rows)
        ASSERT_NEAR(*rows, row.out[static_cast<size_t>(d)], bound) << row.flat;
    }
  }

 private:
  struct Row {
    std::vector<double> out;
    bool unsure, flat;
  };
  TestRunner& runner_;
  std::vector<Row> expected_;
};

TEST(ProgressiveKv, AttentionIsAsDefined) {
  for (Isa isa : isa_levels()) {
    SCOPED_TRACE(isa_name(isa));
    const WithIsa scope(isa);
    auto loaded =
        TestRunner::load(golden_model("llama3"), {.context = 128, .kv_format = "f8_e4m3", .residual_below = kBelow});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    TestRunner& runner = **loaded;
    Definition definition(runner);
    runner.context().hooks.add(definition);
    const auto tokens = make_request(3, 70, 1, runner.model().spec().vocab).prompt;
    runner.logits(tokens, 23);
    runner.context().hooks.remove(definition);
    EXPECT_GT(definition.flat, 100);
    EXPECT_GT(definition.peaked, 100);
    EXPECT_LT(definition.unsure, definition.flat / 5);
    EXPECT_NEAR(static_cast<double>(runner.kv().residual_reads().flat), static_cast<double>(definition.flat),
                static_cast<double>(definition.unsure));
    EXPECT_EQ(runner.kv().residual_reads().rows, definition.flat + definition.peaked + definition.unsure);
  }
}

class ProgressiveStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("llama3"), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
  }
  static EngineOptions with(EngineOptions o, const char* format = kFormat) {
    o.kv_format = format;
    return o;
  }
  Request request(int64_t seed = 3, int64_t prompt = 40, int64_t answer = 24) const {
    return make_request(seed, prompt, answer, vocab_);
  }
  Shown run_one(const EngineOptions& o, EngineStats* stats = nullptr) const {
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, request()).ok());
    Shown shown = run_all(*core, vocab_)[1];
    if (stats) *stats = core->stats();
    return shown;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
};

TEST_F(ProgressiveStreams, WithoutFlatRowsBitsAreThoseOfTheFormat) {
  EngineStats stats, all;
  const Shown plain = run_one(with(options(), "f8_e4m3"));
  EXPECT_TRUE(run_one(with(options(), "progressive:below=0.000001,format=f8_e4m3"), &stats).same_bits(plain));
  EXPECT_EQ(stats.flat_rows, 0);
  EXPECT_FALSE(run_one(with(options())).same_bits(plain));
  run_one(with(options(), "progressive:below=1,format=f8_e4m3"), &all);
  const int64_t layers = model_->parts().model->spec().layer_count(), heads = model_->parts().model->spec().heads;
  EXPECT_EQ(all.attention_rows, 63 * layers * heads - (40 - 1) * heads);  // in the last layer one row of the prompt
  EXPECT_GT(all.flat_rows, all.attention_rows * 9 / 10);  // the first token has one key, whose weight is 1
  EXPECT_LT(all.flat_rows, all.attention_rows);
}

TEST_F(ProgressiveStreams, BitsDoNotDependOnHowTheyAreComputed) {
  const Shown expected = run_one(with(options()));
  for (const int threads : {2, 5}) EXPECT_TRUE(run_one(with(options(threads))).same_bits(expected)) << threads;
  for (const int64_t chunk : {3, 11}) {
    EngineOptions o = with(options(2, chunk, 8));
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o).same_bits(expected)) << chunk;
  }
  EngineOptions shared = with(options(2));
  shared.kernels = {"shared_prefix"};
  EXPECT_TRUE(run_one(shared).same_bits(expected));
  EngineOptions ranges = with(options(2));
  ranges.kv_pool = "virtual";
  EXPECT_TRUE(run_one(ranges).same_bits(expected));
}

// The second time all but the prompt's last block is found; other streams, some of them preempted, run beside it.
TEST_F(ProgressiveStreams, BitsDoNotDependOnPrefixesAndPreemptions) {
  const Shown expected = run_one(with(options()));
  for (const int64_t swap : {0, 4096}) {
    EngineOptions o = with(options(1, 16, 8));
    o.kv_tokens = 160;
    o.kv_tier = memory_tier(swap);
    o.policy = "fcfs:reserve=prompt";
    auto core = make_core(model_, o);
    for (RequestId round : {1, 2}) {
      for (RequestId id : {0, 1, 2, 3})
        ASSERT_TRUE(core->add(10 * round + id, id == 0 ? request() : request(id + 5)).ok());
      auto shown = run_all(*core, vocab_);
      EXPECT_TRUE(shown[10 * round].same_bits(expected)) << swap << " " << round;
    }
    EXPECT_GT(core->stats().preemptions, 0);
    EXPECT_GT(core->stats().cached_tokens, 0);
  }
}

TEST_F(ProgressiveStreams, DraftsDoNotChangeAnswers) {
  Request r = request(4, 40, 30);  // greedy
  const auto run = [&](const char* drafter) {
    EngineOptions o = with(options());
    o.drafter = drafter;
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, r).ok());
    auto shown = run_all(*core, vocab_)[1];
    EXPECT_EQ(core->stats().drafted_tokens > 0, *drafter != 0) << drafter;
    return shown.tokens;
  };
  const auto expected = run("");
  for (const char* drafter : {"ngram:n=3,min=1,k=4", "ngram:n=3,min=1,k=3,branches=4", "lookahead:w=3,n=3,g=2"})
    EXPECT_EQ(run(drafter), expected) << drafter;
}

TEST_F(ProgressiveStreams, EvictorsMoveResiduals) {
  for (const char* evictor : {"spatten:keep=24,final=12,recent=6,slack=4,heads=0.5", "h2o:budget=20,slack=4,scope=head",
                              "streamingllm:sinks=2,window=20,slack=4,positions=cache"}) {
    SCOPED_TRACE(evictor);
    EngineOptions o = with(options());
    o.evictor = evictor;
    const Shown expected = run_one(o);
    EXPECT_FALSE(expected.same_bits(run_one(with(options()))));
    for (const int threads : {1, 3}) {
      EngineOptions other = with(options(threads, 9, 8));
      other.evictor = evictor;
      auto core = make_core(model_, other);
      ASSERT_TRUE(core->add(1, request()).ok());
      ASSERT_TRUE(core->add(2, request(7)).ok());
      EXPECT_TRUE(run_all(*core, vocab_)[1].same_bits(expected)) << threads;
    }
  }
}

// With the residuals of all queries logits are several times as close to those of f32.
TEST_F(ProgressiveStreams, RestsBringTheBitsBack) {
  const auto logits_of = [&](const char* format) { return run_one(with(options(), format)).logits.front(); };
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i)
      if (std::isfinite(a[i]) && std::isfinite(b[i])) sum += std::pow(double{a[i]} - double{b[i]}, 2);
    return std::sqrt(sum);
  };
  const auto exact = logits_of("f32");
  const double coarse = distance(logits_of("f8_e4m3"), exact);
  EXPECT_LT(distance(logits_of("progressive:below=1,format=f8_e4m3"), exact), coarse / 5);
}

TEST_F(ProgressiveStreams, WhatItDoesNotGoWithIsRefused) {
  const auto refused = [&](EngineOptions o, const std::shared_ptr<const LanguageModel>& model) {
    auto core = EngineCore::create(model, o);
    return core.ok() ? std::string() : core.error().message;
  };
  EngineOptions o = with(options());
  o.kernels = {"unified_max"};
  EXPECT_EQ(refused(o, model_),
            "KV format progressive:below=0.2,format=f8_e4m3 does not go with kernel unified_max: it finds no largest "
            "weight, by which queries read both parts; omit the kernel");
  o.kernels = {"attention=quest:block=16"};  // chooses by keys with their residuals
  EXPECT_EQ(refused(o, model_), "");
  o.kernels = {"attention=diffuser:block=16"};
  EXPECT_NE(refused(o, model_).find("values of hops are stored without residuals"), std::string::npos)
      << refused(o, model_);
  const auto latent = load_for(golden_model("deepseek2"), *select_isa());
  EXPECT_NE(refused(with(options()), latent).find("latent attention"), std::string::npos);
  EXPECT_EQ(refused(with(options(), "progressive:format=f16"), model_),
            "KV format progressive: format: f16 has 16 bits a value, at most 9 are split into two parts");
}

}  // namespace
}  // namespace millrace
