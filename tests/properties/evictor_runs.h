// Checks that every token evictor must pass in the engine, for any rule that chooses its tokens: the bits of a stream
// depend on the stream alone. The suites of evictors with one table, with budgets by layer and of gates are made of
// these checks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "attention/chosen_blocks.h"
#include "evaluate/scorer.h"
#include "kv/codec.h"
#include "properties/preempted_run.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace::testing {

struct EvictorCase {
  const char* evictor;
  const char* model = "llama3";
  const char* kv_format = "f32";
  int64_t prompt = 50, answer = 60;  // tokens
  const char* pattern = "";          // attention pattern
};

inline std::string case_name(const ::testing::TestParamInfo<EvictorCase>& one) {
  std::string name = std::string(one.param.model) + "_" + one.param.evictor;
  if (one.param.kv_format != std::string_view("f32")) name += std::string("_") + one.param.kv_format;
  if (*one.param.pattern) name += std::string("_") + one.param.pattern;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

// The sampler has masked the end token in the engine's row.
inline bool same_logits(std::span<const float> plain, std::span<const float> shown, float tolerance = 0) {
  for (size_t i = 0; i < plain.size(); ++i)
    if (!(std::fabs(plain[i] - shown[i]) <= tolerance) && shown[i] != -INFINITY) return false;
  return plain.size() == shown.size();
}

// For each KV head, true if the batch's one query sees a slot by the layer's pattern.
inline std::vector<std::vector<bool>> seen_slots(const AttentionInput& in, size_t slots) {
  const AttentionLayer& layer = in.layer;
  std::vector<std::vector<bool>> seen(static_cast<size_t>(layer.kv_heads), std::vector<bool>(slots, true));
  const AttentionPattern* pattern = layer.window > 0 ? nullptr : layer.switches.pattern;
  if (!pattern) return seen;
  const int64_t group = layer.heads / layer.kv_heads;
  const auto block = static_cast<size_t>(pattern->block());
  for (int64_t head = 0; head < layer.kv_heads; ++head) {
    BlockMarks marks(static_cast<int64_t>((slots - 1) / block));
    std::vector<float> features(4096), scores(slots), work(static_cast<size_t>(choose_work_floats(*pattern, 64)));
    choose_blocks(in.kv, layer, *pattern, in.batch.tables(layer.group).data(), head, marks.end(),
                  in.q + head * group * layer.head_dim, features.data(), scores.data(), work.data(), marks);
    for (size_t slot = 0; slot < static_cast<size_t>(marks.end()) * block; ++slot)
      seen[static_cast<size_t>(head)][slot] = marks.has(static_cast<int64_t>(slot / block));
  }
  return seen;
}

// The attention of the batch's one query, by its definition: keys are rows of f32 in blocks of one token. Calls
// each(KV head, weights [slots]) for every head.
template <typename Each>
void plain_attention(const AttentionInput& in, size_t slots, const Each& each) {
  const AttentionLayer& layer = in.layer;
  const auto seen = seen_slots(in, slots);
  const auto& table = in.batch.tables(layer.group);
  std::vector<double> weights(slots);
  for (int64_t head = 0; head < layer.heads; ++head) {
    const float* q = in.q + head * layer.head_dim;
    const int64_t kv_head = head / (layer.heads / layer.kv_heads);
    double total = 0;
    for (size_t slot = 0; slot < slots; ++slot) {
      const auto* row = reinterpret_cast<const float*>(in.kv.keys(layer.layer, table[slot], kv_head));
      double dot = 0;
      for (int64_t d = 0; d < layer.head_dim; ++d) dot += static_cast<double>(q[d]) * static_cast<double>(row[d]);
      total += weights[slot] = seen[static_cast<size_t>(kv_head)][slot] ? std::exp(dot) : 0;
    }
    for (double& weight : weights) weight /= total;
    each(kv_head, weights);
  }
}

// The norm of a stored key, of rows of f32 in blocks of one token, in whole units of 2^-20: the first layer's keys of
// equal tokens have equal norms but for rounding, and which of them is dropped then depends on the unit.
inline double plain_key_norm(const AttentionInput& in, size_t slot, int64_t kv_head) {
  const auto& table = in.batch.tables(in.layer.group);
  const auto* key = reinterpret_cast<const float*>(in.kv.keys(in.layer.layer, table[slot], kv_head));
  double squares = 0;
  for (int64_t d = 0; d < in.layer.head_dim; ++d) squares += static_cast<double>(key[d]) * static_cast<double>(key[d]);
  return static_cast<double>(std::llround(std::sqrt(squares) * (1 << 20)));
}

class EvictorRuns : public ::testing::TestWithParam<EvictorCase> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    layers_ = model_->parts().model->spec().layer_count();
    const auto rule = make_eviction_rule(GetParam().evictor);
    ASSERT_TRUE(rule.ok()) << rule.error().message;
    tables_ = layers_;
    if (*rule && (*rule)->by_head()) tables_ *= model_->parts().model->kv_layers().front().kv_heads;
  }
  EngineOptions evicting(EngineOptions o, std::string evictor = GetParam().evictor) const {
    o.evictor = std::move(evictor);
    o.kv_format = GetParam().kv_format;
    if (*GetParam().pattern) o.kernels = {pattern()};
    return o;
  }
  static std::string pattern() { return std::string("attention=") + GetParam().pattern; }
  Request request(int64_t seed, int64_t prompt, int64_t answer = 60) const {
    return make_request(seed, prompt, answer, vocab_);
  }
  Request request(int64_t seed) const { return request(seed, GetParam().prompt, GetParam().answer); }
  Shown run_one(const EngineOptions& o, Request r) const {
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, std::move(r)).ok());
    Shown shown = run_all(*core, vocab_)[1];
    EXPECT_EQ(core->kv().free_blocks() + core->stats().kv_blocks_cached, core->kv().total_blocks());
    return shown;
  }
  // With the evictor at work on prompts, too, wherever the case's text says `prompt`.
  std::string evicting_prompts() const {
    std::string evictor = GetParam().evictor;
    const std::string whole = "prompt=whole", evicted = "prompt=evicted";
    if (evictor.find(evicted) != std::string::npos) return evictor;
    if (const size_t at = evictor.find(whole); at != std::string::npos)
      return evictor.replace(at, whole.size(), evicted);
    return evictor + (evictor.find(':') == std::string::npos ? ":" : ",") + evicted;
  }

  void change_the_answer() const {  // or the other tests would prove nothing
    EXPECT_FALSE(run_one(evicting(options()), request(1)).same_bits(run_one(evicting(options(), ""), request(1))));
  }

  void threads_blocks_and_chunks_do_not_show() const {
    const Shown alone = run_one(evicting(options()), request(1));
    ASSERT_EQ(std::ssize(alone.tokens), GetParam().answer);
    for (const int threads : {2, 3})
      EXPECT_TRUE(run_one(evicting(options(threads)), request(1)).same_bits(alone)) << threads;
    const bool encoded = (*find_kv_codec(GetParam().kv_format)) != nullptr;  // whose blocks show
    for (const int64_t block : {1, 4,
                                *GetParam().pattern ? 8
                                : encoded           ? 32
                                                    : 64})  // a pattern's blocks are whole ones
      EXPECT_TRUE(run_one(evicting(options(1, 512, block)), request(1)).same_bits(alone)) << block;
    for (const int64_t chunk : {1, 7, 16, 33}) {
      EngineOptions o = evicting(options(1, chunk));
      o.max_streams = 1;
      EXPECT_TRUE(run_one(o, request(1)).same_bits(alone)) << chunk;
    }
  }

  void mates_do_not_show(std::initializer_list<const char*> mates) const {
    const Shown alone = run_one(evicting(options()), request(1));
    for (const char* mates_evictor : mates) {
      auto core = make_core(model_, evicting(options(2, 40)));
      for (int64_t i = 0; i < 6; ++i) {
        if (i == 3) {
          ASSERT_TRUE(core->add(1, request(1)).ok());
        }
        Request mate = request(50 + i, 3 + 14 * i, 20);
        if (i == 2) mate = request(1, GetParam().prompt, 20);  // two streams with one prompt
        mate.evictor = mates_evictor;
        ASSERT_TRUE(core->add(static_cast<RequestId>(100 + i), std::move(mate)).ok());
      }
      EXPECT_TRUE(run_all(*core, vocab_)[1].same_bits(alone)) << mates_evictor;
      EXPECT_EQ(core->kv().free_blocks() + core->stats().kv_blocks_cached, core->kv().total_blocks());
    }
  }

  void each_answer_is_that_of_its_own_request() const {
    Request several = request(1);
    several.n = 3;
    several.sampling.temperature = 0.9;
    auto core = make_core(model_, evicting(options()));
    ASSERT_TRUE(core->add(1, several).ok());
    std::vector<std::vector<TokenId>> answers(3);
    std::vector<TokenEvent> events;
    while (!core->idle()) {
      events.clear();
      core->step(events);
      for (const TokenEvent& event : events)
        if (event.token >= 0) answers[static_cast<size_t>(event.answer)].push_back(event.token);
      EXPECT_TRUE(core->check_blocks().ok());
    }
    for (uint64_t i = 0; i < 3; ++i) {
      Request one = request(1);
      one.sampling.temperature = 0.9;
      one.sampling.seed += i;
      EXPECT_EQ(answers[i], run_one(evicting(options()), one).tokens) << i;
    }
  }

  void drafts_do_not_show(std::initializer_list<const char*> drafters) const {
    for (const int64_t seed : {1, 2, 4}) {
      Request r = request(seed);
      const size_t half = r.prompt.size() / 2;  // or there is nothing to draft
      for (size_t i = 0; i < half; ++i) r.prompt[half + i] = r.prompt[i];
      const Shown plain = run_one(evicting(options()), r);
      for (const char* drafter : drafters) {
        EngineOptions o = evicting(options(1, 512, 4));
        o.drafter = drafter;
        auto core = make_core(model_, o);
        ASSERT_TRUE(core->add(1, r).ok());
        EXPECT_EQ(run_all(*core, vocab_)[1].tokens, plain.tokens) << seed << ", " << drafter;
        EXPECT_GT(core->stats().drafted_tokens, 0);
      }
    }
  }

  // Computed again, or moved to a tier and back.
  void preempted_at_any_stage_they_continue(bool swapped = false) const {
    const Request one = request(3, GetParam().prompt - 10, GetParam().answer - 20);
    const Shown alone = run_one(evicting(options()), one);
    for (const int64_t every : {2, 5, 9}) {
      EngineOptions o = evicting(options(1, 12, 4));
      o.kv_tier = memory_tier(swapped ? 200 : 0);
      auto core = make_core(model_, o);
      ASSERT_TRUE(core->add(1, one).ok());
      EXPECT_EQ(tokens_when_preempted(*core, every, swapped), alone.tokens) << every;
      EXPECT_EQ(core->stats().swapped_out_tokens > 0, swapped);
    }
  }

  // A scored text is a prompt that is evicted as it is read: its last row is what the engine samples from, and the
  // batch does not show. `most`: tokens stored at once.
  void scoring_sees_them(int64_t most) const {
    const std::string evictor = evicting_prompts();
    Request r = request(2, 100, 1);
    const Shown shown = run_one(evicting(options(), evictor), r);
    r.prompt.push_back(0);  // only a target
    std::vector<float> expected;
    for (const int64_t batch : {512, 1, 3, 50}) {
      ScorerOptions scoring = {
          .threads = 1, .context = 101, .batch_tokens = batch, .kv_format = GetParam().kv_format, .evictor = evictor};
      if (*GetParam().pattern) scoring.kernels = {pattern()};
      auto scorer = Scorer::create(model_, scoring);
      ASSERT_TRUE(scorer.ok()) << scorer.error().message;
      EXPECT_LE((*scorer)->stored_tokens(), most);
      std::vector<float> rows;
      const std::vector<ScoreWindow> windows = {{0, 101, 1}, {20, 40, 20}};
      const auto done = (*scorer)->run(r.prompt, windows, -1, [&](std::span<const ScoredRow> scored) -> Result<void> {
        for (const ScoredRow& row : scored) rows.insert(rows.end(), row.logits, row.logits + vocab_);
        return {};
      });
      ASSERT_TRUE(done.ok()) << done.error().message;
      ASSERT_EQ(std::ssize(rows), (100 + 20) * vocab_);
      EXPECT_TRUE(same_logits(std::span(rows).subspan(static_cast<size_t>(99 * vocab_), static_cast<size_t>(vocab_)),
                              shown.logits[0]));
      if (expected.empty()) expected = rows;
      EXPECT_EQ(std::memcmp(rows.data(), expected.data(), rows.size() * 4), 0) << batch;
    }
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0, layers_ = 0, tables_ = 0;  // tables: of a stream with budgets by layer, or by head
};

}  // namespace millrace::testing
