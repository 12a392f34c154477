// Token evictors in the engine: the same bits whatever else is in the batch, equal to a plain reference that drops
// entries of a block table of single tokens, and within the memory that they promise. Of models with windows, tokens of
// the layers that see all are dropped, and of no others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "attention/pattern_layers.h"
#include "base/philox.h"
#include "kv/window_groups.h"
#include "models/blocks/rope.h"
#include "properties/evictor_runs.h"
#include "properties/whole_evictor.h"

namespace millrace {
namespace {

using namespace testing;

class TokenEvictors : public EvictorRuns {};

TEST_P(TokenEvictors, ChangeTheAnswer) { change_the_answer(); }

TEST_P(TokenEvictors, ThreadsBlocksAndChunksDoNotShow) { threads_blocks_and_chunks_do_not_show(); }

TEST_P(TokenEvictors, BatchMatesDoNotShow) { mates_do_not_show({"", "none", "streamingllm:sinks=1,window=7,slack=3"}); }

// Nor does it show whether blocks behind the windows are given back.
TEST_P(TokenEvictors, TheVirtualPoolDoesNotShow) {
  EngineOptions o = evicting(options());
  const Shown alone = run_one(o, request(1));
  o.keep_window_keys = true;
  EXPECT_TRUE(run_one(o, request(1)).same_bits(alone));
  if (*GetParam().pattern) return;  // its blocks are smaller than those of whole pages
  o.kv_pool = "virtual";
  EXPECT_TRUE(run_one(o, request(1)).same_bits(alone));
}

TEST_P(TokenEvictors, EachAnswerIsThatOfItsOwnRequest) { each_answer_is_that_of_its_own_request(); }

std::vector<BlockId> all_blocks(KvPool& pool) {
  std::vector<BlockId> blocks;
  while (pool.free_blocks() > 0) blocks.push_back(*pool.allocate());
  return blocks;
}

// Attention of one query by its definition, or the norms of its token's keys.
class PlainMass final : public ForwardObserver {
 public:
  bool shares = false;        // counts heads that pay an even share, instead of attention
  bool norms = false;         // subtracts the norms of the newest token's stored keys
  bool whole_layers = false;  // a layer's heads choose together
  int64_t choosers = 1;       // or the KV heads of all layers that lose tokens
  std::vector<double> sums;   // [slots, choosers]; empty: nothing is observed
  void queries(const AttentionInput& in) override {
    const AttentionLayer& layer = in.layer;
    if (sums.empty() || layer.group > 0) return;
    const size_t slots = sums.size() / static_cast<size_t>(choosers);
    if (norms) {
      for (int64_t kv_head = 0; kv_head < layer.kv_heads; ++kv_head)
        add(in, slots - 1, kv_head, -plain_key_norm(in, slots - 1, kv_head));
      return;
    }
    plain_attention(in, slots, [&](int64_t kv_head, const auto& weights) {
      const auto seen = static_cast<double>(std::ranges::count_if(weights, [](double one) { return one > 0; }));
      for (size_t slot = 0; slot < weights.size(); ++slot)
        add(in, slot, kv_head, shares ? weights[slot] * seen >= 1 : weights[slot]);
    });
  }

 private:
  void add(const AttentionInput& in, size_t slot, int64_t kv_head, double one) {
    const int64_t first = choosers > 1 ? in.kv.layout().heads_before(in.layer.layer) : 0;
    for (int64_t to = 0; to < (choosers > 1 ? in.layer.kv_heads : 1); ++to)
      if (choosers == 1 || whole_layers || to == kv_head)
        sums[slot * static_cast<size_t>(choosers) + static_cast<size_t>(first + to)] += one;
  }
};

// Each member by its definition, with the options that it has here.
struct PlainRule {
  const char* name;
  int64_t firsts, newest;  // tokens that are kept whatever they are worth
  int64_t queries;         // whose attention is what the others are worth
  int64_t reach = 0;       // neighbors on each side that share what they are worth
  bool shares = false, random = false;
  bool mean = false;   // over the queries since the token, unless worth=sum
  bool norms = false;  // of the keys, instead of attention
};
constexpr int64_t kEvery = 1 << 20;
constexpr PlainRule kPlainRules[] = {
    {.name = "streamingllm", .firsts = 4, .newest = 20, .queries = 0},
    {.name = "h2o", .firsts = 0, .newest = 12, .queries = kEvery, .mean = true},
    {.name = "window", .firsts = 0, .newest = 24, .queries = 0},
    {.name = "random", .firsts = 0, .newest = 12, .queries = 0, .random = true},
    {.name = "tova", .firsts = 0, .newest = 0, .queries = 1},
    {.name = "snapkv", .firsts = 0, .newest = 8, .queries = 8, .reach = 2},
    {.name = "scissorhands", .firsts = 0, .newest = 6, .queries = 12, .shares = true},
    {.name = "key_norm", .firsts = 0, .newest = 6, .queries = kEvery, .norms = true},
};

// Rotates a key by so many positions, in double precision.
void turn(const RopeSpec& rope, RopeStyle style, int64_t context, int64_t positions, float* key) {
  const std::vector<double> frequencies = rope_frequencies(rope, context);
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    float& x = key[style == RopeStyle::half ? i : 2 * i];
    float& y = key[style == RopeStyle::half ? i + half : 2 * i + 1];
    const double angle = static_cast<double>(positions) * frequencies[i], real = x, imaginary = y;
    x = static_cast<float>(real * std::cos(angle) - imaginary * std::sin(angle));
    y = static_cast<float>(real * std::sin(angle) + imaginary * std::cos(angle));
  }
}

// A plain reference: one token at a time, blocks of one token, and a dropped token is a dropped entry of the table.
// Heads that choose for themselves copy the rows that they keep to the first entries. Where positions count stored
// tokens, each kept key is rotated by the distance that its entry moves.
// Layers with a window have a table of all tokens. A pattern counts the entries of the table.
class PlainEviction {
 public:
  PlainEviction(const LanguageModel& model, const EvictionRule& rule, int64_t prompt,
                const std::vector<std::string>& kernels)
      : model_(model), rule_(rule), prompt_(prompt) {
    plain_ = *std::ranges::find_if(kPlainRules, [&](const auto& one) { return rule.text.starts_with(one.name); });
    if (rule.text.find("worth=sum") != std::string::npos) plain_.mean = false;
    observer_.shares = plain_.shares;
    observer_.norms = plain_.norms;
    observer_.whole_layers = rule.scope == EvictionScope::layer;
    const auto& parts = model.parts();
    KvLayout layout{find_format("f32"), 1, parts.model->kv_layers()};
    const auto switches = make_forward_switches(kernels);
    EXPECT_TRUE(switches.ok() && add_pattern_layers(layout, switches->attention.pattern, 128).ok());
    split_all_windows(layout, 128, 128);
    const KvPoolOptions places = {.streams = 0, .evicts = true};
    auto made = ModelRunner::create(*parts.model, parts.kernels,
                                    {.threads = std::make_shared<ThreadPool>(1),
                                     .layout = std::move(layout),
                                     .blocks = 128,
                                     .places = places,
                                     .limits = {16, 16, 128, *switches}});
    EXPECT_TRUE(made.ok());
    own_ = std::move(*made);
    if (rule.scope != EvictionScope::stream) observer_.choosers = choosers_ = runner().kv().layout().heads();
    free_ = all_blocks(runner().kv());
    for (int64_t g = 1; g < runner().kv().groups(); ++g) windows_.push_back(all_blocks(runner().kv().group(g)));
    runner().hooks().add(observer_);
  }
  ~PlainEviction() { runner().hooks().remove(observer_); }
  std::vector<float> step(TokenId token) {
    table_.push_back(free_.back());
    free_.pop_back();
    positions_.insert(positions_.end(), static_cast<size_t>(choosers_), computed_);
    worth_.insert(worth_.end(), static_cast<size_t>(choosers_), 0);
    runner().start();
    runner().begin(table_, stored() - 1);
    for (size_t g = 0; g < windows_.size(); ++g)
      runner().begin_group(static_cast<int64_t>(g) + 1, windows_[g], computed_);
    runner().add(token, rule_.moves_keys() ? stored() - 1 : computed_, true);
    const int64_t full = computed_ - stored() + 1 + rule_.most_stored();
    const int64_t next = rule_.whole_prompt ? std::max(full, prompt_) : full;
    observer_.sums.clear();
    if (computed_ >= next - plain_.queries) observer_.sums = worth_;
    runner().forward();
    if (!observer_.sums.empty()) worth_ = observer_.sums;
    if (++computed_ == next) evict();
    return {runner().logits(), runner().logits(1)};
  }
  int64_t stored() const { return std::ssize(table_); }

 private:
  ModelRunner& runner() { return *own_; }
  size_t at(int64_t slot, int64_t chooser) const { return static_cast<size_t>(slot * choosers_ + chooser); }
  double worth(int64_t slot, int64_t chooser) const {
    const int64_t old = stored() - plain_.newest;
    if (slot >= old || slot < plain_.firsts) return 1e30;
    if (plain_.random) return philox_uniform(0, 0, static_cast<uint64_t>(positions_[at(slot, chooser)]));
    double most = -1e30;
    for (int64_t i = std::max<int64_t>(0, slot - plain_.reach); i < std::min(old, slot + plain_.reach + 1); ++i)
      most = std::max(most, worth_[at(i, chooser)]);
    return plain_.mean ? most / static_cast<double>(computed_ - positions_[at(slot, chooser)]) : most;
  }
  std::vector<int64_t> kept_by(int64_t chooser) const {
    std::vector<int64_t> order(table_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(
        order, [&](int64_t a, int64_t b) { return std::pair(worth(a, chooser), a) > std::pair(worth(b, chooser), b); });
    order.resize(static_cast<size_t>(rule_.evictor->budget()));
    std::ranges::sort(order);
    return order;
  }
  void copy_rows(int64_t layer, int64_t head, const std::vector<int64_t>& slots) {
    KvPool& kv = runner().kv();
    const auto bytes = static_cast<size_t>(kv.row_bytes(layer));
    for (const bool values : {false, true}) {
      if (values && kv.layout().layers[static_cast<size_t>(layer)].values_in_keys) break;
      const auto row = [&](size_t slot) {
        return values ? kv.values(layer, table_[slot], head) : kv.keys(layer, table_[slot], head);
      };
      std::vector<std::vector<uint8_t>> rows;
      for (const int64_t slot : slots)
        rows.emplace_back(row(static_cast<size_t>(slot)), row(static_cast<size_t>(slot)) + bytes);
      for (size_t i = 0; i < rows.size(); ++i) std::memcpy(row(i), rows[i].data(), bytes);
    }
  }
  void move(BlockId block, int64_t positions) {
    const Model& model = *model_.parts().model;
    for (int64_t layer = 0; layer < model.spec().layer_count(); ++layer)
      for (int64_t head = 0; head < model.spec().layers[static_cast<size_t>(layer)].kv_heads; ++head)
        turn(model.spec().ropes.at(0), model.spec().rope_style, model.context(), positions,
             reinterpret_cast<float*>(runner().kv().keys(layer, block, head)));
  }
  void evict() {
    std::vector<std::vector<int64_t>> kept;
    for (int64_t chooser = 0; chooser < choosers_; ++chooser) kept.push_back(kept_by(chooser));
    std::vector<int64_t> positions;
    std::vector<double> worths;
    for (size_t i = 0; i < kept.front().size(); ++i)
      for (int64_t chooser = 0; chooser < choosers_; ++chooser) {
        const size_t from = at(kept[static_cast<size_t>(chooser)][i], chooser);
        positions.push_back(positions_[from]);
        worths.push_back(plain_.queries == kEvery ? worth_[from] : 0);
      }
    positions_ = positions;
    worth_ = worths;
    std::vector<BlockId> table;
    if (choosers_ == 1) {
      for (const int64_t slot : kept.front()) table.push_back(table_[static_cast<size_t>(slot)]);
    } else {
      const auto& layers = runner().kv().layout().layers;
      std::vector<size_t> first;  // chooser of each layer
      size_t choosers = 0;
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        const auto& side = layers[layer].side;  // moves with the tokens of its layer
        first.push_back(side ? first[static_cast<size_t>(side->layer)] : choosers);
        for (int64_t head = 0; head < layers[layer].kv_heads && !layers[layer].summarizes_blocks(); ++head)
          copy_rows(static_cast<int64_t>(layer), head, kept[first[layer] + static_cast<size_t>(head)]);
        if (!side) choosers += static_cast<size_t>(layers[layer].kv_heads);
      }
      table.assign(table_.begin(), table_.begin() + std::ssize(kept.front()));
    }
    for (size_t i = 0; i < table.size() && rule_.moves_keys(); ++i)
      move(table[i], static_cast<int64_t>(i) - kept.front()[i]);
    for (const BlockId block : table_)
      if (std::ranges::find(table, block) == table.end()) free_.push_back(block);
    table_ = table;
    runner().renew_summaries(table_, 0, stored());
  }

  const LanguageModel& model_;
  std::unique_ptr<ModelRunner> own_;
  const EvictionRule& rule_;
  PlainRule plain_;
  PlainMass observer_;
  int64_t prompt_, computed_ = 0, choosers_ = 1;
  std::vector<BlockId> free_, table_;
  std::vector<std::vector<BlockId>> windows_;
  std::vector<int64_t> positions_;
  std::vector<double> worth_;
};

TEST_P(TokenEvictors, EqualAPlainReference) {
  const auto rule = make_eviction_rule(GetParam().evictor);
  ASSERT_TRUE(rule.ok());
  for (const int64_t seed : {1, 2, 3}) {
    const Request r = request(seed);
    const Shown shown = run_one(evicting(options(2, 32)), r);
    PlainEviction plain(*model_, **rule, std::ssize(r.prompt), evicting(options()).kernels);
    const float tolerance = (*rule)->moves_keys() ? 1e-4f : 0;  // the reference rotates in double precision
    std::vector<float> logits;
    for (const TokenId token : r.prompt) logits = plain.step(token);
    for (size_t i = 0; i < shown.tokens.size(); ++i) {
      ASSERT_TRUE(same_logits(logits, shown.logits[i], tolerance)) << seed << ", " << i;
      logits = plain.step(shown.tokens[i]);
    }
    EXPECT_LT(plain.stored(), (*rule)->most_stored());
  }
}

TEST_P(TokenEvictors, ScoringSeesThem) { scoring_sees_them((*make_eviction_rule(GetParam().evictor))->most_stored()); }

INSTANTIATE_TEST_SUITE_P(
    Members, TokenEvictors,
    ::testing::Values(
        EvictorCase{"streamingllm:sinks=4,window=20,slack=8"},
        EvictorCase{"streamingllm:sinks=4,window=20,slack=8,prompt=evicted"},
        EvictorCase{"streamingllm:sinks=4,window=20,slack=8,positions=cache"},
        EvictorCase{"streamingllm:sinks=4,window=20,slack=3,positions=cache,prompt=evicted", "qwen3"},
        EvictorCase{"h2o:budget=24,slack=8,positions=cache"}, EvictorCase{"h2o:budget=24,recent=0.5,slack=8"},
        EvictorCase{"h2o:budget=24,recent=0.5,slack=5,prompt=evicted"},
        EvictorCase{"streamingllm:sinks=4,window=20,slack=8,prompt=evicted", "gemma2"},
        EvictorCase{"window:budget=24,slack=8"}, EvictorCase{"random:budget=24,slack=8"},
        EvictorCase{"tova:budget=24,slack=8"}, EvictorCase{"tova:budget=24,slack=1,prompt=evicted"},
        EvictorCase{"snapkv:budget=24,window=8,kernel=5,slack=8"},
        EvictorCase{"scissorhands:budget=24,recent=6,history=12,slack=8"},
        EvictorCase{"scissorhands:budget=24,recent=6,history=12,slack=5,prompt=evicted"},
        EvictorCase{"key_norm:budget=24,recent=6,slack=8"},
        EvictorCase{"key_norm:budget=24,recent=25%,slack=5,scope=stream,prompt=evicted"},
        EvictorCase{"key_norm:budget=24,recent=6,slack=8,scope=layer"},
        EvictorCase{"key_norm:budget=24,recent=0.25,slack=8,positions=cache", "qwen3"},
        EvictorCase{"key_norm:budget=24,recent=6,slack=3,prompt=evicted", "gemma3"},
        EvictorCase{"key_norm:budget=24,recent=6,slack=8", "deepseek2"},
        EvictorCase{.evictor = "key_norm:budget=40,recent=6,slack=6",
                    .model = "llama3",
                    .pattern = "sink_window:block=16,sinks=0,window=1"},
        EvictorCase{"h2o:budget=24,slack=8,scope=head"}, EvictorCase{"h2o:budget=24,slack=8,scope=head,worth=sum"},
        EvictorCase{"h2o:budget=24,slack=8,scope=stream,worth=sum"}, EvictorCase{"tova:budget=24,slack=6,scope=layer"},
        EvictorCase{"scissorhands:budget=24,recent=6,history=12,slack=8,scope=head"},
        EvictorCase{"snapkv:budget=24,window=8,kernel=5,slack=5,scope=head,prompt=evicted", "gemma3"},
        EvictorCase{"h2o:budget=24,recent=0.5,slack=8", "gemma3"},
        EvictorCase{.evictor = "streamingllm:sinks=4,window=20,slack=8",
                    .model = "llama3",
                    .pattern = "sink_window:block=16,sinks=0,window=1"},
        EvictorCase{.evictor = "h2o:budget=40,recent=0.3,slack=8,prompt=evicted",
                    .model = "llama3",
                    .pattern = "bigbird:block=16,window=1,global=0,random=1"},
        EvictorCase{.evictor = "h2o:budget=40,recent=0.3,slack=8,scope=head",
                    .model = "llama3",
                    .pattern = "quest:block=16,top=1,sinks=0,window=1,first=0"},
        EvictorCase{.evictor = "snapkv:budget=40,window=8,kernel=5,slack=8,positions=cache",
                    .model = "llama3",
                    .pattern = "minference:block=16,top=1,sinks=0,window=1"},
        EvictorCase{.evictor = "tova:budget=40,slack=6,scope=layer",
                    .model = "llama3",
                    .pattern = "diffuser:block=16,window=1,global=0,random=1,alpha=0.5,hops=2"},
        EvictorCase{.evictor = "scissorhands:budget=40,recent=6,history=12,slack=8",
                    .model = "gemma3",
                    .pattern = "sinkhorn:block=16,top=1,sinks=0,window=1"}),
    case_name);

// With room for all tokens nothing is dropped, and the answer is the plain one: of every member, whoever chooses, and
// whatever positions count. (Gates keep what they choose: gate_evictors_test.cc.)
TEST(TokenEvictorBudget, OfTheWholeLengthIsPlain) {
  auto model = load_for(golden_model("llama3"), *select_isa());
  ASSERT_TRUE(model);
  const Request r = make_request(1, 50, 60, model->info().vocab);
  const auto run = [&](const std::string& evictor) {
    EngineOptions o = options();
    o.evictor = evictor;
    auto core = make_core(model, o);
    EXPECT_TRUE(core->add(1, r).ok());
    Shown shown = run_all(*core, model->info().vocab)[1];
    EXPECT_EQ(core->stats().evicted_tokens, 0) << evictor;
    return shown;
  };
  const Shown plain = run("");
  int64_t members = 0;
  for (const auto& entry : token_evictors().entries()) {
    const std::string whole = whole_evictor(entry.info, 110);
    if (const auto rule = make_eviction_rule(entry.info.name); !rule.ok() || (*rule)->evictor->gated()) continue;
    ++members;
    std::vector<std::string> rests = {"", ",slack=1,prompt=evicted"};
    if (make_eviction_rule(whole + ",scope=head").ok())
      rests.insert(rests.end(), {",scope=layer,slack=3,prompt=evicted", ",scope=head,slack=1,prompt=evicted",
                                 ",positions=cache,slack=5,prompt=evicted"});
    if (make_eviction_rule(whole + ",layers=1.1").ok()) rests.emplace_back(",layers=1.1,slack=2,prompt=evicted");
    for (const std::string& rest : rests) EXPECT_TRUE(run(whole + rest).same_bits(plain)) << whole << rest;
  }
  EXPECT_GT(members, 8);
}

// 110 tokens in the memory for 28, two streams one after the other; a plain stream is refused.
class TokenEvictorMemory : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenEvictorMemory, HoldsAStreamFourTimesAsLong) {
  auto model = load_for(golden_model(GetParam()), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options(1, 16, 4);
  o.kv_tokens = 28;
  for (const char* evictor :
       {"streamingllm:sinks=4,window=20,slack=4,prompt=evicted", "h2o:budget=24,slack=4,prompt=evicted"}) {
    o.evictor = evictor;
    auto core = make_core(model, o);
    Request r = make_request(1, 50, 60, model->info().vocab);
    ASSERT_TRUE(core->add(1, r).ok());
    ASSERT_TRUE(core->add(2, r).ok());
    const auto shown = run_all(*core, model->info().vocab);
    EXPECT_EQ(shown.at(1).tokens.size(), 60u);
    EXPECT_TRUE(shown.at(2).same_bits(shown.at(1)));
    EXPECT_EQ(core->kv().free_blocks(), 7);
    EXPECT_EQ(core->stats().preemptions, 0);
    r.evictor = "none";
    const auto refused = core->check(r);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "KV cache: 110 tokens do not fit in 7 blocks of 4; ask for fewer tokens or enlarge the cache");
  }
}

// Positions that count stored tokens never exceed budget and slack, so neither answer nor prompt ends at the context,
// and the bits are those of a longer one.
TEST(TokenEvictorPositions, LetAStreamExceedTheContext) {
  auto model = load_for(golden_model("llama3"), *select_isa());
  ASSERT_TRUE(model);
  std::map<int64_t, Shown> shown;
  for (const int64_t context : {40, 128}) {
    EngineOptions o = options(1, 16, 4);
    o.context = context;
    o.kv_tokens = 28;
    o.evictor = "streamingllm:sinks=4,window=20,slack=4,prompt=evicted,positions=cache";
    auto core = make_core(model, o);
    const Request r = make_request(1, 50, 150, model->info().vocab);
    ASSERT_TRUE(core->add(1, r).ok());
    shown[context] = run_all(*core, model->info().vocab)[1];
    EXPECT_EQ(shown[context].tokens.size(), 150u);
    EXPECT_TRUE(shown[context].same_bits(shown[40]));
    EXPECT_EQ(core->kv().free_blocks(), 7);
  }
  EngineOptions o = options();
  o.context = 40;
  Request r = make_request(1, 30, 150, model->info().vocab);
  r.evictor = "streamingllm:sinks=4,window=20,positions=cache";
  auto core = make_core(model, o);
  ASSERT_TRUE(core->add(1, r).ok());
  EXPECT_EQ(run_all(*core, model->info().vocab)[1].tokens.size(), 150u);
  r.max_tokens = -1;  // no limit: that of the context
  r.ignore_eos = true;
  core = make_core(model, o);
  ASSERT_TRUE(core->add(1, r).ok());
  EXPECT_EQ(run_all(*core, model->info().vocab)[1].tokens.size(), 10u);
}

TEST(TokenEvictorPositions, RefusalsNameTheReason) {
  auto model = load_for(golden_model("llama3"), *select_isa()), mixed = load_for(golden_model("gemma3"), *select_isa());
  auto learned = LanguageModel::load(golden_model("gpt2"), {.threads = 1});
  ASSERT_TRUE(model && mixed && learned.ok());
  EngineOptions o = options();
  o.context = 40;
  auto core = make_core(model, o);
  Request r = make_request(1, 30, 150, model->info().vocab);
  const auto refusal = [&](EngineCore& engine, const char* evictor) {
    r.evictor = evictor;
    const auto checked = engine.check(r);
    return checked.ok() ? std::string() : checked.error().message;
  };
  EXPECT_EQ(
      refusal(*core, "window:budget=30,slack=16,positions=cache"),
      "evictor: keeps 30 tokens and 16 more before it chooses, which exceeds the context of 40; lower its budget");
  EXPECT_EQ(refusal(*core, "h2o:positions=cache,scope=head"),
            "evictor h2o: positions: cache needs scope=stream: with scope=head each head has other tokens at a "
            "position");
  EXPECT_EQ(refusal(*core, "h2o:positions=slots"), "evictor h2o: positions: must be text or cache, got 'slots'");
  r.prompt.resize(40);  // is computed whole
  EXPECT_EQ(refusal(*core, "window:budget=20,slack=4,positions=cache"), "");
  r.prompt.resize(41);
  EXPECT_NE(refusal(*core, "window:budget=20,slack=4,positions=cache").find("41 tokens do not leave room"),
            std::string::npos);
  r = make_request(1, 30, 20, 64);
  o.context = 64;
  EXPECT_EQ(refusal(*make_core(*learned, o), "window:budget=20,positions=cache"),
            "evictor window:budget=20,positions=cache does not go with this model: positions=cache moves keys, and the "
            "model adds learned positions to its tokens, so that they cannot be moved; use positions=text");
  o = options();
  o.evictor = "window:budget=20";  // or the windows have no blocks of their own
  EXPECT_EQ(
      refusal(*make_core(mixed, o), "window:budget=20,positions=cache"),
      "evictor window:budget=20,positions=cache does not go with this model: positions=cache needs the same tokens "
      "in all layers, and those with a window keep others; use positions=text");
}

INSTANTIATE_TEST_SUITE_P(Models, TokenEvictorMemory, ::testing::Values("llama3", "gemma3"));

TEST(TokenEvictorRefusals, NameTheReason) {
  auto model = load_for(golden_model("llama3"), *select_isa());
  auto windowed = load_for(golden_model("mistral"), *select_isa()),
       mixed = load_for(golden_model("gemma3"), *select_isa());
  ASSERT_TRUE(model && windowed && mixed);
  auto core = make_core(model, options());
  Request r = make_request(2, 10, 10, model->info().vocab);
  r.evictor = "h2o";
  EXPECT_TRUE(core->check(r).ok());
  r.beams = 2;
  EXPECT_EQ(core->check(r).error().message,
            "beam search does not go with evictor h2o: beams share keys and values, which an evictor cannot drop; omit "
            "one of the "
            "two");
  r.beams = 1;
  r.evictor = "fifo";
  EXPECT_EQ(core->check(r).error().message, "evictor: unknown 'fifo'; available: " + token_evictors().names());
  EngineOptions o = options();
  o.evictor = "h2o";
  EXPECT_EQ(
      EngineCore::create(windowed, o).error().message,
      "evictor h2o does not go with this model: each of its layers sees a window, behind which keys and values are "
      "dropped anyway; omit the evictor");
  r.evictor = "h2o";
  const char* planned =
      "evictor h2o does not go with this engine: layers of this model see a window, and need blocks of their own "
      "where an evictor drops tokens; start the engine with an evictor (--evictor), then requests may choose another";
  for (const int64_t batch : {512, 16}) {  // windows in the first group, and in their own
    auto plain = make_core(mixed, options(1, batch));
    EXPECT_EQ(plain->check(r).error().message, planned) << batch;
  }
  EXPECT_TRUE(make_core(mixed, o)->check(r).ok());
  o.kv_store = "ssd:path=/nonexistent/file,size=1M";
  EXPECT_EQ(EngineCore::create(mixed, o).error().message,
            "KV store ssd does not go with evictor h2o: layers with a window have blocks of their own where an evictor "
            "drops tokens; "
            "omit one of the two");
  o.kv_store.clear();
  for (const char* format : {"kivi", "f16:window=kivi"}) {
    o.kv_format = format;
    EXPECT_TRUE(EngineCore::create(mixed, o).ok()) << format;
  }
}

}  // namespace
}  // namespace millrace
