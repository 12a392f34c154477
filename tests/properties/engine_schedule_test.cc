// Every policy under random arrivals, cancellations, preemptions by recompute and by swap, time limits, several answers
// per request, best_of, beams, and shared prefixes under every evictor and over a prefix store that is killed and
// reopened with its engine, in too little memory. Engines take turns: of any KV format, with or without streams that
// drop tokens, each stream by an evictor of its own. After every step every block is accounted for and belongs to one
// owner, nothing starves, and every stream has the same results as alone. 10,000 steps over all policies.
#include <filesystem>

#include "kv/codec.h"
#include "kv/token_evictor.h"
#include "properties/costed_executor.h"
#include "properties/drawn_engine.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"
#include "schedule/policy.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int kSteps = 1000;  // of each policy, plus those needed to finish

struct Outcome {
  Request request;  // of this answer, as if submitted alone
  size_t engine = 0;
  Shown shown;
  FinishReason finish = FinishReason::none;
};

// A request whose answers are chosen among several streams: what the client got, and the results of every stream.
struct Chosen {
  struct Answer {
    std::vector<TokenId> tokens;
    double score = 0;
    bool operator==(const Answer&) const = default;
  };
  Request request;
  size_t engine = 0;
  std::map<int64_t, Answer> answers;
  std::map<int64_t, std::vector<std::vector<float>>> logits;  // by stream of the request
  FinishReason finish = FinishReason::none;                   // of the last answer
  bool cut = false;                                           // some of its streams may be unfinished

  void row(int64_t stream, const float* logits_row, int64_t vocab) {
    logits[stream].emplace_back(logits_row, logits_row + vocab);
  }
  void take(const TokenEvent& event) {
    Answer& answer = answers[event.answer];
    if (event.token >= 0) answer.tokens.push_back(event.token);
    if (event.finish != FinishReason::none) answer.score = event.score;
    if (event.last) finish = event.finish;
  }
  bool whole() const { return !cut && (finish == FinishReason::stop || finish == FinishReason::length); }
  // Every stream has a prefix of its result there.
  bool begins_like(const Chosen& other) const {
    for (const auto& [stream, rows] : logits) {
      const auto found = other.logits.find(stream);
      if (found == other.logits.end() || found->second.size() < rows.size()) return false;
      for (size_t i = 0; i < rows.size(); ++i)
        if (std::memcmp(rows[i].data(), found->second[i].data(), rows[i].size() * sizeof(float)) != 0) return false;
    }
    return true;
  }
};

class EngineSchedule : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const char* seed = std::getenv("MILLRACE_PROPERTY_SEED");  // other draws than the default run's
    seed_ = seed ? std::strtoull(seed, nullptr, 10) : 17;
    for (char c : GetParam()) seed_ = seed_ * 31 + static_cast<uint64_t>(c);
    model_ = load_for(golden_model(seed_ % 2 ? "smollm3" : "llama"), *select_isa());  // heads of 16 and of 32
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    std::string pattern = ::testing::TempDir() + "engine_schedule_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // Whether one engine loads anything is random, so this checks all policies together.
  static void TearDownTestSuite() {
    const auto* suite = ::testing::UnitTest::GetInstance()->current_test_suite();
    if (suite->test_to_run_count() != suite->total_test_count()) return;
    EXPECT_GT(crashes_, 10);
    EXPECT_GT(loaded_, 0);
    for (const KvKind kind : {KvKind::rows, KvKind::codec, KvKind::layers}) {
      EXPECT_GT(engines_of_[kind], 5);
      EXPECT_GT(finished_of_[kind], 20);
    }
    EXPECT_GT(evicted_, 10'000);
  }

  int64_t draw(int64_t n) { return static_cast<int64_t>(philox_uniform(seed_, 4, draws_++) * static_cast<double>(n)); }

  // The next engine, in too little memory.
  void draw_engine() {
    const auto drawn = [this](int64_t n) { return draw(n); };
    DrawnEngine e = draw_engine_kind(drawn, seed_ + engines_.size(), model_->parts().model->spec());
    EngineOptions& o = e.options;
    o.batch_tokens = 24 + draw(24);
    o.block_tokens = 8;
    o.max_streams = 4;
    o.resident_streams = draw(2) ? 7 : 0;
    o.kv_tokens = e.kind == KvKind::codec ? 320 : 200;  // whose blocks are larger
    o.queue = 64;
    o.policy = GetParam();
    if (e.kind != KvKind::layers) {
      o.kv_tier = memory_tier(draw(3) ? 150 : 0);
      o.prefix_cache = draw(3) != 0;
      draw_prefix_evictor(drawn, e);
    }
    if (e.stores && o.prefix_cache) {
      e.store = folder_ + "/store" + std::to_string(engines_.size());
      const char* order = e.kind == KvKind::rows && draw(2) ? "importance" : "arrival";
      o.kv_store = SsdStoreFlags{e.store, 1 << 20, order}.text();
    }
    engines_.push_back(std::move(e));
    ++engines_of_[engines_.back().kind];
  }

  EngineOptions lone_options(size_t engine) const {
    EngineOptions o = options();
    o.kernels = engines_[engine].options.kernels;
    o.kv_format = engines_[engine].options.kv_format;
    o.evictor = engines_[engine].options.evictor;
    return o;
  }

  std::unique_ptr<EngineCore> open(const Clock& clock) {
    const EngineOptions& o = engines_.back().options;
    auto executor = CpuExecutor::create(model_, o);
    EXPECT_TRUE(executor.ok()) << (executor.ok() ? "" : executor.error().message);
    if (!executor.ok()) return nullptr;
    std::unique_ptr<Executor> used = std::move(*executor);
    // Without a store the engine measures its costs; with one, the cost model makes loads cheap, and half the time
    // swaps too.
    if (!o.kv_store.empty())
      used = std::make_unique<CostedExecutor>(std::move(used), FixedSeconds{1e-3, draw(2) ? 1e-4 : 1e-3, 1e-6}, false);
    auto core = EngineCore::create(std::move(used), o, &clock);
    EXPECT_TRUE(core.ok()) << o.kv_format << ", " << o.evictor << ": " << (core.ok() ? "" : core.error().message);
    return core.ok() ? std::move(*core) : nullptr;
  }

  // Ends the engine's streams, after which it holds no block but those of its prefixes, and opens another one.
  std::unique_ptr<EngineCore> replace(std::unique_ptr<EngineCore> core, ManualClock& clock) {
    for (auto& [id, chosen] : chosen_) chosen.cut |= chosen.finish == FinishReason::none;
    for (RequestId id = 1; id < next_; ++id) core->cancel(id);
    for (int steps = 0; !core->idle() && steps < 100; ++steps) step(*core, clock);
    EXPECT_TRUE(core->idle());
    EXPECT_EQ(core->kv().free_blocks() + core->stats().kv_blocks_cached, core->kv().total_blocks());
    count(*core);
    draw_engine();
    return open(clock);
  }

  // Stops the engine and opens its file with another one: half of the time a copy from before the engine could write
  // its pending blocks, as after a crash. (Steps of this model are faster than a disk: nearly all blocks are pending.)
  std::unique_ptr<EngineCore> restart(std::unique_ptr<EngineCore> core, const Clock& clock) {
    const std::string& store = engines_.back().store;
    const bool crash = draw(2) == 0;
    const std::string copy = folder_ + "/crashed";
    if (crash) std::filesystem::copy_file(store, copy, std::filesystem::copy_options::overwrite_existing);
    count(*core);
    core.reset();
    if (crash) std::filesystem::rename(copy, store);
    for (auto& [id, out] : outcomes_)
      if (out.finish == FinishReason::none) out.finish = FinishReason::cancelled;
    for (auto& [id, chosen] : chosen_) {
      if (chosen.finish != FinishReason::none) continue;
      chosen.finish = FinishReason::cancelled;
      chosen.cut = true;
    }
    ended_ = added_;
    crashes_ += crash;
    return open(clock);
  }

  void count(const EngineCore& core) {
    preemptions_ += core.stats().preemptions;
    loaded_ += core.stats().store.hit_tokens;
    evicted_ += core.stats().evicted_tokens;
  }

  Request random_request() {
    Request r = make_request(draw(1000), 1 + draw(60), 1 + draw(30), vocab_);
    if (draw(3) == 0) r.prompt = make_request(draw(3), 40, 1, vocab_).prompt;  // shared prefixes
    if (draw(4) == 0) r.n = 2 + draw(2);
    r.priority = draw(3);
    r.tenant = draw(2) ? "a" : "b";
    r.cache_prompt = draw(4) != 0;
    if (draw(4) == 0) r.prefix_group = "shared";
    if (draw(4) == 0) r.keep_seconds = static_cast<double>(draw(100));
    if (draw(5) == 0) r.best_of = r.n + 1 + draw(2);
    const DrawnEngine& engine = engines_.back();
    if (!engine.evictors.empty() && draw(2))
      r.evictor = engine.evictors[static_cast<size_t>(draw(std::ssize(engine.evictors)))];
    if (engine.kind != KvKind::layers && draw(5) == 0) {
      if (!r.evictor.empty() || !engine.options.evictor.empty()) r.evictor = "none";  // beams share blocks
      r.beams = 2 + draw(2);
      r.n = 1 + draw(r.beams);
      r.best_of = 0;
      r.max_tokens = 1 + draw(12);
      r.ignore_eos = draw(2) == 0;
      r.early_stopping = static_cast<EarlyStopping>(draw(3));
    }
    if (draw(3) == 0) r.deadline_seconds = 5 + static_cast<double>(draw(100));
    if (draw(10) == 0) r.time_limit_seconds = 1 + static_cast<double>(draw(20));
    r.known_tokens = draw(2) ? r.max_tokens : -1;
    return r;
  }

  // Preempts a running stream, regardless of the policy.
  void preempt_any(EngineCore& core, std::vector<TokenEvent>& events) {
    for (RequestId id = next_; id-- > 1;) {
      if (!outcomes_.contains(id) || outcomes_[id].finish != FinishReason::none || draw(2)) continue;
      StepPlan plan;
      plan.preempted = {{id, draw(2) == 0}};
      events.clear();
      const bool ran = core.replay(plan, events).ok();  // refused if the stream is not running
      take(core, {}, events);
      forced_ += ran;
      if (ran) return;
    }
  }

  void take(const EngineCore& core, const StepPlan& plan, const std::vector<TokenEvent>& events) {
    const float* row = core.last_logits();
    for (const auto& chunk : plan.chunks) {
      if (!chunk.sample) continue;
      const auto chosen = chosen_.find(request_of(chunk.request));
      if (chosen != chosen_.end())
        chosen->second.row(answer_of(chunk.request), row, vocab_);
      else
        outcomes_[chunk.request].shown.logits.emplace_back(row, row + vocab_);
      row += vocab_;
    }
    for (const auto& event : events) {
      if (const auto chosen = chosen_.find(event.request); chosen != chosen_.end()) {
        chosen->second.take(event);
        if (event.last) ++ended_;
        continue;
      }
      Outcome& out = outcomes_[answer_stream(event.request, event.answer)];
      ASSERT_EQ(out.finish, FinishReason::none);
      if (event.token >= 0) out.shown.tokens.push_back(event.token);
      out.finish = event.finish;
      if (event.last) ++ended_;
    }
  }

  void step(EngineCore& core, ManualClock& clock) {
    std::vector<TokenEvent> events;
    if (draw(15) == 0) preempt_any(core, events);
    events.clear();
    const StepPlan plan = core.step(events);
    clock.advance_ns(1'000'000 * (1 + draw(200)));
    take(core, plan, events);
    last_plan_ = plan.to_string();
    auto blocks = core.check_blocks();
    ASSERT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message) << " after " << plan.to_string();
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  uint64_t seed_ = 0, draws_ = 0;
  std::vector<DrawnEngine> engines_;  // so far; the last one runs
  std::string last_plan_;
  RequestId next_ = 1;
  int64_t added_ = 0, ended_ = 0, forced_ = 0, preemptions_ = 0;
  static inline int64_t crashes_ = 0, loaded_ = 0, evicted_ = 0;  // of all policies
  static inline std::map<KvKind, int64_t> engines_of_, finished_of_;
  std::string folder_;
  // The results of a chosen request alone in its own engine.
  Chosen run_alone(Request request, size_t engine) {
    Chosen out;
    request.time_limit_seconds = request.deadline_seconds = 0;
    auto core = make_core(model_, lone_options(engine));
    EXPECT_TRUE(core->add(1, request).ok());
    std::vector<TokenEvent> events;
    while (!core->idle()) {
      events.clear();
      const StepPlan& plan = core->step(events);
      const float* row = core->last_logits();
      for (const auto& chunk : plan.chunks) {
        if (!chunk.sample) continue;
        out.row(answer_of(chunk.request), row, vocab_);
        row += vocab_;
      }
      for (const auto& event : events) out.take(event);
    }
    return out;
  }

  std::map<RequestId, Outcome> outcomes_;  // by stream
  std::map<RequestId, Chosen> chosen_;     // by request
};

TEST_P(EngineSchedule, StreamsNeitherStarveNorLeakNorAffectEachOther) {
  ManualClock clock;
  draw_engine();
  auto engine = open(clock);
  ASSERT_TRUE(engine);
  int steps = 0;
  for (; steps < kSteps || (!engine->idle() && steps < 4 * kSteps); ++steps) {
    if (steps < kSteps && draw(75) == 0) {
      const bool again = !engines_.back().options.kv_store.empty() && draw(4);
      engine = again ? restart(std::move(engine), clock) : replace(std::move(engine), clock);
      ASSERT_TRUE(engine);
    }
    EngineCore& core = *engine;
    if (steps < kSteps && draw(6) == 0) {
      Request request = random_request();
      if (const auto added = core.add(next_, request); !added.ok()) {
        // Larger blocks and blocks by layer hold fewer tokens; nothing else is refused.
        ASSERT_EQ(added.error().kind, ErrorKind::resource) << added.error().message;
      } else {
        ++added_;
        const bool chooses = request.best_of > request.n || request.beams > 1;
        if (chooses)
          chosen_[next_] = {.request = request,
                            .engine = engines_.size() - 1,
                            .answers = {},
                            .logits = {},
                            .cut = request.time_limit_seconds > 0};
        for (int64_t answer = 0; !chooses && answer < request.n; ++answer) {
          Request alone = request;
          alone.n = 1;
          alone.time_limit_seconds = alone.deadline_seconds = 0;
          alone.sampling.seed += static_cast<uint64_t>(answer);
          outcomes_[answer_stream(next_, answer)] = {
              .request = std::move(alone), .engine = engines_.size() - 1, .shown = {}};
        }
      }
      ++next_;
    }
    if (next_ > 1 && draw(40) == 0) {
      const RequestId id = 1 + static_cast<RequestId>(draw(static_cast<int64_t>(next_) - 1));
      core.cancel(id);
      if (const auto chosen = chosen_.find(id); chosen != chosen_.end())
        chosen->second.cut |= chosen->second.finish == FinishReason::none;
    }
    step(core, clock);
    if (HasFatalFailure()) return;
  }
  EngineCore& core = *engine;
  count(core);
  ASSERT_TRUE(core.idle()) << "streams displace each other without end: " << core.stats().running << " run, "
                           << core.stats().waiting << " wait, the last plan was '" << last_plan_ << "'";
  EXPECT_EQ(ended_, added_);
  EXPECT_EQ(core.kv().free_blocks() + core.stats().kv_blocks_cached, core.kv().total_blocks());
  EXPECT_GT(forced_, 0);
  EXPECT_GT(preemptions_, 0);

  int64_t whole = 0;
  std::vector<std::unique_ptr<EngineCore>> engines(engines_.size());
  RequestId lone = 1;
  for (auto& [id, out] : outcomes_) {
    auto& alone = engines[out.engine];
    if (!alone) alone = make_core(model_, lone_options(out.engine));
    ASSERT_TRUE(out.finish != FinishReason::none && out.finish != FinishReason::error) << id;
    ASSERT_TRUE(alone->add(lone, out.request).ok());
    Shown expected = run_all(*alone, vocab_)[lone++];
    if (out.finish == FinishReason::cancelled ||
        out.finish == FinishReason::time_limit) {  // the tokens so far are a prefix of the full answer
      ASSERT_LE(out.shown.tokens.size(), expected.tokens.size());
      expected.tokens.resize(out.shown.tokens.size());
      expected.logits.resize(out.shown.tokens.size());
    } else {
      ++whole;
      ++finished_of_[engines_[out.engine].kind];
    }
    const EngineOptions& o = engines_[out.engine].options;
    EXPECT_TRUE(out.shown.same_bits(expected))
        << id << ": " << o.kv_format << ", " << o.evictor << ", " << out.request.evictor;
  }
  EXPECT_GT(whole, 20);
  int64_t whole_choices = 0;
  for (auto& [id, chosen] : chosen_) {
    ASSERT_TRUE(chosen.finish != FinishReason::none && chosen.finish != FinishReason::error) << id;
    const Chosen expected = run_alone(chosen.request, chosen.engine);
    EXPECT_TRUE(chosen.begins_like(expected)) << id;
    if (chosen.whole()) {
      EXPECT_EQ(chosen.answers, expected.answers) << id;
    }
    whole_choices += chosen.whole();
  }
  EXPECT_GT(whole_choices, 10);
}

// Gates are of models that have them, and have tests of their own.
TEST(DrawnEngines, AreOfEveryEvictorAndCodec) {
  std::vector<std::string> drawn = drawn_evictors();
  for (std::string& one : drawn_layer_evictors(2)) drawn.push_back(std::move(one));
  for (std::string& one : drawn_codecs()) drawn.push_back(std::move(one));
  const auto named = [&](const std::string& name) {
    return std::ranges::any_of(drawn, [&](const std::string& one) { return one.substr(0, one.find(':')) == name; });
  };
  for (const auto& entry : token_evictors().entries())
    if (!(*make_eviction_rule(entry.info.name))->evictor->gated()) {
      EXPECT_TRUE(named(entry.info.name)) << entry.info.name;
    }
  for (const auto& entry : kv_codecs().entries()) EXPECT_TRUE(named(entry.info.name)) << entry.info.name;
}

std::vector<std::string> scheduled_policies() {
  std::vector<std::string> out;
  for (const auto& entry : policies().entries()) out.push_back(entry.info.name);
  // With full reservations nothing would be preempted.
  std::ranges::replace(out, std::string("fcfs"), std::string("fcfs:reserve=prompt"));
  return out;
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineSchedule, ::testing::ValuesIn(scheduled_policies()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '='; }, '_');
  return name;
});

}  // namespace
}  // namespace millrace
