// Hooks of a forward pass: taps see the very rows that the products read, wrappers that do what the model does change
// no bit, and a pass in pieces is the same pass.
#include "models/forward_hooks.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "evaluate/scorer.h"
#include "kernels/activation.h"
#include "model_runner.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;
using Values = std::vector<float>;

std::vector<TokenId> some_tokens(const Model& model, int64_t count) {
  return make_request(3, count, 1, model.spec().vocab).prompt;
}

// y = W x, by the definition of linear(): rounded rows, no bias.
void multiply(const LinearCall& call, float* y) {
  const LinearInput& in = call.in;
  const Activation kind = in.weight.format->activation;
  auto scratch = AlignedBuffer::allocate(in.tokens * activation_row_bytes(kind, in.weight.cols), "test");
  ASSERT_TRUE(scratch.ok());
  linear(call.pool, in.weight,
         encode_activations(call.kernels, call.pool, kind, in.x, in.weight.cols, in.tokens, in.weight.cols,
                            scratch->data()),
         y, in.weight.rows);
}

const std::vector<float>* bias_of(const Model& model, const LinearId& id) {
  if (id.layer < 0) return nullptr;
  const LayerWeights& layer = model.layer(id.layer);
  const MlpWeights& mlp = id.expert >= 0                   ? layer.experts[static_cast<size_t>(id.expert)]
                          : id.expert == LinearId::kShared ? layer.shared
                                                           : layer.mlp;
  switch (id.kind) {
    case LinearKind::q: return &layer.q_bias;
    case LinearKind::k: return &layer.k_bias;
    case LinearKind::v: return &layer.v_bias;
    case LinearKind::output: return &layer.output_bias;
    case LinearKind::gate: return &mlp.gate_bias;
    case LinearKind::up: return &mlp.up_bias;
    case LinearKind::down: return &mlp.down_bias;
    case LinearKind::router:
    case LinearKind::shared_gate:
    case LinearKind::head:
    case LinearKind::ssm_in:
    case LinearKind::ssm_x:
    case LinearKind::ssm_dt:
    case LinearKind::ssm_out:
    case LinearKind::ssm_gate:
    case LinearKind::ssm_beta:
    case LinearKind::ssm_alpha:
    case LinearKind::q_a:
    case LinearKind::q_b:
    case LinearKind::kv_a:
    case LinearKind::layer_inputs:
    case LinearKind::input_gate:
    case LinearKind::input_projection:
    case LinearKind::laurel_left:
    case LinearKind::laurel_right:
    case LinearKind::stream_in:
    case LinearKind::stream_out:
    case LinearKind::attention_shortcut:
    case LinearKind::mlp_shortcut: return nullptr;
  }
  return nullptr;
}

// Every matrix of the model that a pass must multiply; of the experts only the first, for their number.
std::set<LinearId> all_matrices(const Model& model) {
  std::set<LinearId> out = {LinearId{}};
  for (int32_t i = 0; i < model.spec().layer_count(); ++i) {
    const bool moe = model.spec().layers[static_cast<size_t>(i)].moe;
    for (LinearKind kind : {LinearKind::q, LinearKind::k, LinearKind::v, LinearKind::output}) out.insert({i, kind});
    const auto mlp = [&](int32_t expert) {
      out.insert({i, LinearKind::up, expert});
      out.insert({i, LinearKind::down, expert});
      if (model.spec().gated) out.insert({i, LinearKind::gate, expert});
    };
    mlp(moe ? 0 : LinearId::kNoExpert);
    if (moe) out.insert({i, LinearKind::router});
    if (moe && model.layer(i).shared.down.present()) mlp(LinearId::kShared);
    if (moe && model.layer(i).shared_gate.present()) out.insert({i, LinearKind::shared_gate});
  }
  return out;
}

struct Tap final : ForwardObserver {
  std::map<LinearId, Values> rows;
  std::map<LinearId, int64_t> tokens;
  Values last;

  bool taps(const LinearId&) const override { return true; }
  void input(const LinearInput& in) override {
    rows[in.id] = Values(in.x, in.x + in.tokens * in.weight.cols);
    tokens[in.id] += in.tokens;
  }
  void hidden(const float* hidden, int64_t count, int64_t width) override {
    last.assign(hidden, hidden + count * width);
  }
};

// Recomputes every product from the tapped rows; the model's own is in y.
struct Recompute final : LinearWrapper {
  const Model* model = nullptr;
  const Tap* tap = nullptr;
  int64_t compared = 0;

  void apply(const LinearCall& call) override {
    const LinearId id = call.in.id;
    const Values& rows = tap->rows.at(id);
    ASSERT_EQ(std::ssize(rows), call.in.tokens * call.in.weight.cols);
    LinearCall again = call;
    again.in.x = rows.data();
    Values y(static_cast<size_t>(call.in.tokens * call.in.weight.rows));
    multiply(again, y.data());
    const std::vector<float>* bias = bias_of(*model, id);
    for (size_t i = 0; bias && !bias->empty() && i < y.size(); ++i) y[i] += (*bias)[i % bias->size()];
    EXPECT_EQ(y, Values(call.y, call.y + y.size())) << id.layer << " " << static_cast<int>(id.kind) << " " << id.expert;
    ++compared;
  }
};

// Replaces some matrices by their own product, times a factor.
struct Stand final : LinearWrapper {
  std::set<LinearId> matrices;
  float factor = 1;

  bool replaces(const LinearId& id) const override { return matrices.contains(id); }
  void apply(const LinearCall& call) override {
    if (!replaces(call.in.id)) return;
    multiply(call, call.y);
    for (int64_t i = 0; i < call.in.tokens * call.in.weight.rows; ++i) call.y[i] *= factor;
  }
};

class ForwardHooksOf : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto loaded = TestRunner::load(golden_model(GetParam()), {.threads = 2});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    runner_ = std::move(*loaded);
    tokens_ = some_tokens(runner_->model(), 23);
    plain_ = runner_->logits(tokens_, 9);
  }
  ForwardHooks& hooks() { return runner_->runner().hooks(); }

  std::unique_ptr<TestRunner> runner_;
  std::vector<TokenId> tokens_;
  Values plain_;
};

TEST_P(ForwardHooksOf, TapsSeeTheRowsThatTheProductsRead) {
  const Model& model = runner_->model();
  for (int64_t chunk : {0, 9, 1}) {
    Tap tap;
    Recompute recompute;
    recompute.model = &model;
    recompute.tap = &tap;
    hooks().add(tap);
    hooks().add(recompute);
    const Values seen = runner_->logits(tokens_, chunk);
    hooks().remove(tap);
    hooks().remove(recompute);
    EXPECT_EQ(seen, plain_) << chunk;
    const int64_t all = std::ssize(tokens_);
    std::map<std::pair<int32_t, LinearKind>, int64_t> expert_tokens;
    for (const auto& [id, count] : tap.tokens) {
      if (id.expert >= 0)
        expert_tokens[{id.layer, id.kind}] += count;
      else
        EXPECT_EQ(count, all) << id.layer << " " << static_cast<int>(id.kind);
    }
    for (const auto& [what, count] : expert_tokens) EXPECT_EQ(count, all * model.spec().moe.used) << what.first;
    for (const LinearId& id : all_matrices(model))  // an expert may have no tokens
      EXPECT_TRUE(id.expert >= 0 || tap.tokens.contains(id)) << id.layer << " " << static_cast<int>(id.kind);
    EXPECT_GE(recompute.compared, std::ssize(tap.tokens));
    EXPECT_EQ(tap.last, tap.rows.at(LinearId{}));  // the head reads the final hidden states
  }
}

TEST_P(ForwardHooksOf, AReplacedProductIsTheModelsOwn) {
  Stand stand;
  const std::set<LinearId> all = all_matrices(runner_->model());
  hooks().add(stand);
  for (const LinearId& id : all) {  // one at a time: beside others of its job
    stand.matrices = {id};
    EXPECT_EQ(runner_->logits(tokens_, 9), plain_) << id.layer << " " << static_cast<int>(id.kind) << " " << id.expert;
  }
  stand.matrices = all;
  EXPECT_EQ(runner_->logits(tokens_), plain_);
  stand.matrices = {{0, LinearKind::v}};
  stand.factor = 0;
  EXPECT_NE(runner_->logits(tokens_), plain_);  // it is the wrapper's product that counts
  hooks().remove(stand);
  EXPECT_EQ(runner_->logits(tokens_), plain_);
}

// A batch that wants the logits of only some tokens.
TEST_P(ForwardHooksOf, APassInPiecesIsTheSamePass) {
  ModelRunner& runner = runner_->runner();
  const Model& model = runner.model();
  const int64_t layers = model.spec().layer_count(), vocab = model.spec().vocab;
  for (const std::set<int64_t>& wanted : {std::set<int64_t>{4, 5, 22}, std::set<int64_t>{22}, std::set<int64_t>{}}) {
    runner.start();
    runner.begin(runner_->blocks(), 0);
    for (int64_t i = 0; i < std::ssize(tokens_); ++i)
      runner.add(tokens_[static_cast<size_t>(i)], i, wanted.contains(i));
    Values expected;
    for (int64_t i : wanted)
      expected.insert(expected.end(), plain_.begin() + i * vocab, plain_.begin() + (i + 1) * vocab);
    ForwardContext& context = runner.context();
    for (int64_t first = 0; first <= layers; ++first) {
      for (int64_t second : {first, layers}) {
        std::fill_n(runner.logits(), expected.size(), 0.0f);
        model.embed(runner.batch(), context);
        const Batch* batch = &runner.batch();
        for (const auto& [from, to] : {std::pair(int64_t{0}, first), {first, second}, {second, layers}})
          batch = &model.run_layers(*batch, from, to, context);
        EXPECT_EQ(std::ssize(batch->output_rows), std::ssize(wanted));
        model.head(*batch, context);
        EXPECT_EQ(Values(runner.logits(), runner.logits(std::ssize(wanted))), expected) << first << second;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardHooksOf,
                         ::testing::Values("llama", "llama_bias", "gpt2", "gemma3", "olmo2", "mixtral", "qwen2moe"),
                         [](const auto& one) { return one.param; });

// The rows that leave the pass early are those that would have left with all others.
TEST(ForwardHooks, LogitsAfterSomeLayers) {
  auto loaded = TestRunner::load(golden_model("llama"), {});
  ASSERT_TRUE(loaded.ok());
  ModelRunner& runner = (*loaded)->runner();
  const Model& model = runner.model();
  const auto tokens = some_tokens(model, 12);
  const auto after = [&](int64_t layers, const std::set<int64_t>& wanted) {
    runner.start();
    runner.begin((*loaded)->blocks(), 0);
    for (int64_t i = 0; i < 12; ++i) runner.add(tokens[static_cast<size_t>(i)], i, wanted.contains(i));
    model.embed(runner.batch(), runner.context());
    model.head(model.run_layers(runner.batch(), 0, layers, runner.context()), runner.context());
    return Values(runner.logits(), runner.logits(std::ssize(wanted)));
  };
  const int64_t vocab = model.spec().vocab;
  std::set<int64_t> every;
  for (int64_t i = 0; i < 12; ++i) every.insert(i);
  for (int64_t layers = 0; layers <= model.spec().layer_count(); ++layers) {
    const Values all = after(layers, every);
    Values expected(all.begin() + 3 * vocab, all.begin() + 4 * vocab);
    expected.insert(expected.end(), all.begin() + 11 * vocab, all.end());
    EXPECT_EQ(after(layers, {3, 11}), expected) << layers;
  }
  EXPECT_NE(after(1, every), after(model.spec().layer_count(), every));
}

// The scorer's rows are the logits of its windows, each run alone; and its runner's hooks see every token.
TEST(ForwardHooks, ReachTheScorer) {
  auto model = load_for(golden_model("llama"), select_isa().value());
  auto loaded = TestRunner::load(golden_model("llama"), {.context = 128, .kv_format = "f16"});
  ASSERT_TRUE(model && loaded.ok());
  auto scorer = Scorer::create(model, {.threads = 2, .context = 16, .batch_tokens = 11});
  ASSERT_TRUE(scorer.ok()) << scorer.error().message;
  const auto tokens = some_tokens((*loaded)->model(), 50);
  const auto windows = strided_windows(std::ssize(tokens), 16, 5);
  const auto vocab = static_cast<size_t>(model->info().vocab);
  Values expected;
  int64_t inputs = 0;
  for (const ScoreWindow& w : windows) {
    const std::vector<TokenId> part(tokens.begin() + w.begin, tokens.begin() + w.begin + w.count - 1);
    const Values rows = (*loaded)->logits(part);
    expected.insert(expected.end(), rows.begin() + (w.first_scored - 1) * static_cast<int64_t>(vocab), rows.end());
    inputs += w.count - 1;
  }
  Tap tap;
  (*scorer)->runner().hooks().add(tap);
  Values scored;
  const auto sink = [&](std::span<const ScoredRow> rows) -> Result<void> {
    for (const ScoredRow& row : rows) scored.insert(scored.end(), row.logits, row.logits + vocab);
    return {};
  };
  ASSERT_TRUE((*scorer)->run(tokens, windows, -1, sink).ok());
  EXPECT_EQ(scored, expected);
  EXPECT_EQ((tap.tokens[{0, LinearKind::q}]), inputs);
}

// The new keys that observers see, in rows of F32, where nothing is rounded.
struct KeyTap final : ForwardObserver {
  int64_t compared = 0, different = 0;

  void queries(const AttentionInput& in) override {
    const BatchSpan& span = in.batch.spans_of(in.layer.group).front();
    const auto& table = in.batch.tables(in.layer.group);
    const int64_t block_tokens = in.kv.layout().block_tokens, bytes = in.layer.head_dim * 4;
    for (int64_t i = 0; i < span.count; ++i)
      for (int64_t head = 0; head < in.layer.kv_heads; ++head) {
        const int64_t slot = span.first_slot + i;
        const uint8_t* stored = in.kv.keys(in.layer.layer, table[static_cast<size_t>(slot / block_tokens)], head) +
                                slot % block_tokens * in.kv.row_bytes(in.layer.layer);
        const float* key = in.k + (span.begin + i) * in.k_stride + head * in.layer.head_dim;
        different += std::memcmp(stored, key, static_cast<size_t>(bytes)) != 0;
        ++compared;
      }
  }
};

TEST(ForwardHooks, ObserversSeeTheKeysThatAreStored) {
  for (const char* name : {"llama3", "qwen3", "gemma3", "deepseek2"}) {
    auto loaded = TestRunner::load(golden_model(name), {.threads = 2});
    ASSERT_TRUE(loaded.ok()) << name;
    KeyTap tap;
    (*loaded)->runner().hooks().add(tap);
    (*loaded)->logits(some_tokens((*loaded)->model(), 40), 17);
    (*loaded)->runner().hooks().remove(tap);
    int64_t heads = 0;
    for (const KvLayer& layer : (*loaded)->model().kv_layers()) heads += layer.kv_heads;
    EXPECT_EQ(tap.compared, 40 * heads) << name;
    EXPECT_EQ(tap.different, 0) << name;
  }
}

}  // namespace
}  // namespace millrace
