// The engine's log-probabilities with a document context are those of its definition, step by step on a plain runner:
// every document is a stream of its own, whose keys and values are copied and moved; what is computed again, and how
// the question sees the documents, is written out for each context.
#include <cmath>

#include "models/visible.h"
#include "properties/document_requests.h"
#include "run/documents/context_refresh.h"
#include "sampling/logprobs.h"

namespace millrace {
namespace {

using namespace testing;

struct DefinitionCase {
  std::string context, model;
  const char* kv_format;
  Isa isa;
  std::string pattern = "";  // of attention
};

// What the tokens behind the documents see, and where they are.
struct Behind {
  std::vector<KeySegment> sees;
  DocumentWeights documents;
  int64_t moved = 0;
};

class ContextDefinitions : public ::testing::TestWithParam<DefinitionCase> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), GetParam().isa);
    ASSERT_TRUE(model_);
    const int64_t vocab = model_->info().vocab;
    const auto text = [&](int64_t seed, int64_t tokens) { return make_request(seed, tokens, 1, vocab).prompt; };
    documents_ = {text(1, 23), text(2, 33), text(3, 16)};
    question_ = text(4, 9);
    request_ = document_request(documents_, question_);
    WithIsa scope(GetParam().isa);
    auto loaded = TestRunner::load(golden_model(GetParam().model), {.threads = 1,
                                                                    .context = 128,
                                                                    .kv_format = GetParam().kv_format,
                                                                    .block_tokens = 8,
                                                                    .pattern = GetParam().pattern});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    runner_ = std::move(*loaded);
  }

  EngineOptions engine_options() const {
    EngineOptions o = options();
    o.document_context = GetParam().context;
    o.kv_format = GetParam().kv_format;
    if (!GetParam().pattern.empty()) o.kernels = {"attention=" + GetParam().pattern};
    return o;
  }

  // Puts the documents' own keys and values where they stand, computed behind `sinks` tokens of the prompt.
  void place(int64_t sinks, bool move) {
    std::vector<StoredRows> stored;
    for (const auto& document : documents_) {
      std::vector<TokenId> alone(request_.prompt.begin(), request_.prompt.begin() + sinks);
      alone.insert(alone.end(), document.begin(), document.end());
      runner_->logits(alone);
      stored.emplace_back(*runner_, sinks, std::ssize(alone));
    }
    runner_->logits({request_.prompt.front()});
    for (size_t i = 0; i < documents_.size(); ++i) {
      const auto [begin, end] = request_.documents[i];
      stored[i].place(*runner_, begin, end);
      if (move) runner_->model().move_keys({runner_->blocks(), begin, end - begin, begin - sinks}, runner_->context());
    }
  }

  void again(int64_t slot, int64_t count) {
    runner_->step(std::span(request_.prompt).subspan(static_cast<size_t>(slot), static_cast<size_t>(count)), slot);
  }

  // The first tokens of every document but the first, one document after the other.
  void refresh_first(int64_t count) {
    for (size_t i = 1; i < documents_.size(); ++i) again(request_.documents[i].begin, count);
  }

  // The share that changes the most in layer 1, where a pass of the whole document may change the first two layers.
  void refresh_share(double share) {
    for (size_t i = 1; i < documents_.size(); ++i) {
      const auto [begin, end] = request_.documents[i];
      StoredRows old(*runner_, begin, end);
      again(begin, end - begin);
      const StoredRows now(*runner_, begin, end);
      const auto heads = runner_->kv().layout().layers[0].kv_heads;
      const auto each = static_cast<size_t>(2 * heads * (end - begin));  // rows of a layer
      std::vector<double> deviations(static_cast<size_t>(end - begin));
      for (size_t row = each; row < 2 * each; ++row) {  // [heads][slots][key, value]
        const size_t slot = row / 2 % deviations.size();
        for (size_t at = 0; at < now.rows[row].size(); at += sizeof(float)) {
          float a, b;
          std::memcpy(&a, old.rows[row].data() + at, sizeof a);
          std::memcpy(&b, now.rows[row].data() + at, sizeof b);
          deviations[slot] += std::pow(double{a} - b, 2);
        }
      }
      std::copy_n(now.rows.begin(), 2 * each, old.rows.begin());
      old.place(*runner_, begin, end);
      std::vector<std::pair<double, int64_t>> order;
      for (size_t slot = 0; slot < deviations.size(); ++slot)
        order.emplace_back(-deviations[slot], begin + static_cast<int64_t>(slot));
      std::ranges::sort(order);
      order.resize(static_cast<size_t>(std::ceil(share * static_cast<double>(end - begin))));
      std::ranges::sort(order, {}, &std::pair<double, int64_t>::second);
      for (const auto& [deviation, slot] : order) again(slot, 1);
    }
  }

  // With three documents at 1 to 23, 24 to 56 and 57 to 72.
  Behind compute() {
    const std::string& context = GetParam().context;
    const bool overlaid =
        !context.starts_with("kvlink") && !context.starts_with("epic") && !context.starts_with("cacheblend");
    place(context == "independent" ? 0 : 1, !overlaid);
    if (context == "epic:recompute=5") refresh_first(5);
    if (context == "cacheblend:ratio=0.3") refresh_share(0.3);
    if (context == "independent") return {{}, {}, 73 - 33};
    if (context == "ape:T=0.8,S=0.7")
      return {{{0, 1}, {1, 73, 1 / 0.8f, 0, 1}, {73, 1000}}, {static_cast<float>(0.7 * 0.8), 0}, 73 - 34};
    if (context == "entropy:top=2")
      return {{{0, 1}, {1, 24, 1, 0, 1}, {24, 57, 1, 0, 2}, {57, 73, 1, 0, 3}, {73, 1000}}, {1, 2}, 73 - 34};
    return {};
  }

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<TestRunner> runner_;
  std::vector<std::vector<TokenId>> documents_;
  std::vector<TokenId> question_;
  Request request_;
};

TEST_P(ContextDefinitions, LogitsAreThoseOfTheDefinition) {
  WithIsa scope(GetParam().isa);
  const EngineOptions o = engine_options();
  auto core = make_core(model_, o);
  ASSERT_TRUE(core->add(1, request_).ok());
  std::vector<TokenEvent> events;
  while (!core->idle()) core->step(events);
  ASSERT_EQ(events.size(), 6u);
  ASSERT_EQ(request_.documents.back().end, 73);
  const Behind behind = compute();
  int64_t slot = 73;
  std::vector<TokenId> next = question_;
  ModelRunner& runner = runner_->runner();
  for (const TokenEvent& event : events) {  // sampling edits rows of logits, but not these log-probabilities
    runner.start();
    runner.begin(runner_->blocks(), slot);
    for (const TokenId token : next) runner.add(token, slot++ - behind.moved, true);
    if (!behind.sees.empty()) runner.see({.segments = behind.sees, .documents = behind.documents});
    runner.forward();
    const auto vocab = static_cast<size_t>(model_->info().vocab);
    const auto logprobs = compute_logprobs({runner.logits(std::ssize(next) - 1), vocab}, event.token, 0);
    ASSERT_EQ(event.logprob.logprob, logprobs.chosen.logprob) << slot;
    next = {event.token};
  }
}

// The segments without slots [begin, end).
std::vector<KeySegment> without(const std::vector<KeySegment>& segments, int64_t begin, int64_t end) {
  std::vector<KeySegment> left;
  for (const KeySegment& segment : segments) {
    KeySegment before = segment, behind = segment;
    before.end = std::min(segment.end, begin);
    behind.begin = std::max(segment.begin, end);
    if (before.begin < before.end) left.push_back(before);
    if (behind.begin < behind.end) left.push_back(behind);
  }
  return left;
}

// What an evictor drops, of documents too, is as if it were hidden: all of the second one here.
TEST_P(ContextDefinitions, DroppedTokensAreAsIfHidden) {
  if (GetParam().model.starts_with("gemma")) return;  // layers with windows have blocks of their own then
  WithIsa scope(GetParam().isa);
  EngineOptions o = engine_options();
  o.evictor = "streamingllm:sinks=10,window=20,slack=3";
  auto core = make_core(model_, o);
  ASSERT_TRUE(core->add(1, request_).ok());
  std::vector<TokenEvent> events;
  while (!core->idle()) core->step(events);
  ASSERT_EQ(events.size(), 6u);
  Behind behind = compute();
  std::vector<KeySegment> sees = behind.sees;
  if (sees.empty()) sees = {{0, 1000}};
  int64_t slot = 73, due = 82;
  std::vector<TokenId> next = question_;
  ModelRunner& runner = runner_->runner();
  for (const TokenEvent& event : events) {
    runner.start();
    runner.begin(runner_->blocks(), slot);
    for (const TokenId token : next) runner.add(token, slot++ - behind.moved, true);
    runner.see({.segments = sees, .documents = behind.documents});
    runner.forward();
    const auto vocab = static_cast<size_t>(model_->info().vocab);
    const auto logprobs = compute_logprobs({runner.logits(std::ssize(next) - 1), vocab}, event.token, 0);
    ASSERT_EQ(event.logprob.logprob, logprobs.chosen.logprob) << slot;
    next = {event.token};
    if (slot < due) continue;
    sees = without(sees, 10, slot - 20);
    due = slot + 3;
  }
  EXPECT_EQ(core->stats().evicted_tokens, 85 - 30);
}

// Log-probabilities of a prompt's tokens from `first` on, as its reader gets them.
class BehindReader final : public PromptReader {
 public:
  BehindReader(std::vector<TokenId> prompt, int64_t first, int64_t vocab)
      : prompt_(std::move(prompt)), first_(first), vocab_(vocab), logprobs(prompt_.size()) {}
  bool logits() const override { return true; }
  bool wants(int64_t position) const override { return position + 1 >= first_ && position + 1 < std::ssize(prompt_); }
  void read(int64_t position, const float* row) override {
    const auto next = static_cast<size_t>(position + 1);
    logprobs[next] = compute_logprobs({row, static_cast<size_t>(vocab_)}, prompt_[next], 0).chosen.logprob;
  }

 private:
  std::vector<TokenId> prompt_;
  int64_t first_, vocab_;

 public:
  std::vector<float> logprobs;
};

TEST_P(ContextDefinitions, AReaderSeesWhatAnswersAreSampledFrom) {
  const EngineOptions o = engine_options();
  auto core = make_core(model_, o);
  ASSERT_TRUE(core->add(1, request_).ok());
  std::vector<TokenEvent> events;
  while (!core->idle()) core->step(events);
  Request read = request_;
  for (const TokenEvent& event : events) read.prompt.push_back(event.token);
  read.max_tokens = 0;
  const int64_t answer = std::ssize(request_.prompt);
  for (const bool warm : {false, true}) {
    auto other = warm ? std::move(core) : make_core(model_, o);
    const auto reader = std::make_shared<BehindReader>(read.prompt, answer, model_->info().vocab);
    read.reader = reader;
    ASSERT_TRUE(other->add(2, read).ok());
    std::vector<TokenEvent> none;
    while (!other->idle()) other->step(none);
    for (size_t i = 0; i < events.size(); ++i)
      EXPECT_EQ(reader->logprobs[static_cast<size_t>(answer) + i], events[i].logprob.logprob) << i << " " << warm;
  }
}

std::vector<DefinitionCase> definition_cases() {
  std::vector<DefinitionCase> cases;
  for (Isa isa : isa_levels()) {
    for (const char* model : {"llama3", "gemma3", "phi3_longrope_short", "smollm3", "deepseek2"})
      cases.push_back({"kvlink", model, "f16", isa});
    cases.push_back({"kvlink", "llama_yarn", "f32", isa});
    for (const char* context : {"independent", "ape:T=0.8,S=0.7", "entropy:top=2", "epic:recompute=5"})
      for (const char* model : {"llama3", "gemma3", "deepseek2"}) cases.push_back({context, model, "f16", isa});
    for (const char* model : {"llama3", "gemma3", "smollm3"})
      cases.push_back({"cacheblend:ratio=0.3", model, "f32", isa});
    for (const char* context : {"kvlink", "independent", "ape:T=0.8,S=0.7", "entropy:top=2", "epic:recompute=5"})
      cases.push_back({context, "llama3", "f16", isa, "bigbird:block=16,window=1,global=0,random=1"});
    cases.push_back({"cacheblend:ratio=0.3", "smollm3", "f32", isa, "sink_window:block=16,sinks=1,window=1"});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, ContextDefinitions, ::testing::ValuesIn(definition_cases()), [](const auto& test) {
  const std::string& context = test.param.context;
  return context.substr(0, context.find(':')) + "_" + test.param.model + "_" + test.param.kv_format + "_" +
         isa_label(test.param.isa) + (test.param.pattern.empty() ? "" : "_pattern");
});

TEST(MostDeviating, TheLargestAndTheEarlierOfEqualOnes) {
  const std::vector<double> deviations = {3, 1, 4, 1, 5, 1};
  EXPECT_EQ(most_deviating(deviations, 0.5), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(most_deviating(deviations, 0.6), (std::vector<int64_t>{0, 1, 2, 4}));
  EXPECT_EQ(most_deviating(deviations, 0.001), std::vector<int64_t>{4});
  EXPECT_EQ(std::ssize(most_deviating(deviations, 1)), 6);
  EXPECT_TRUE(most_deviating({}, 1).empty());
}

}  // namespace
}  // namespace millrace
