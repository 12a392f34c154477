// Token evictors beside everything else that an engine does: drafted tokens, preemption with and without a tier, the
// prefix cache and recorded plans change no bit of a stream that drops tokens.
#include <fmt/format.h>

#include "properties/draft_runs.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

struct EvictedAnswer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  RequestTimings timings;

  bool same(const EvictedAnswer& other) const {
    return tokens == other.tokens && timings.kept_tokens == other.timings.kept_tokens &&
           timings.evicted_tokens == other.timings.evicted_tokens && timings.evictions == other.timings.evictions &&
           logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(float)) == 0;
  }
};
using EvictedAnswers = std::map<RequestId, EvictedAnswer>;

// Knows the answers, and drafts them with a mistake in each token at this rate.
class KnowingDrafter final : public TextDrafter {
 public:
  KnowingDrafter(const EvictedAnswers& answers, double wrong) : answers_(answers), wrong_(wrong) {}
  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    const auto& answer = answers_.at(stream.id).tokens;
    for (int64_t i = 0; i < most; ++i) {
      const auto at = static_cast<size_t>(stream.generated() + i);
      const bool mistake = philox_uniform(stream.id, 78, at + 1000 * static_cast<size_t>(i)) < wrong_;
      out.tokens.push_back(mistake ? answer[at] ^ 1 : answer[at]);
    }
  }

 private:
  const EvictedAnswers& answers_;
  double wrong_;
};

std::unique_ptr<Drafter> knowing_drafter(const EvictedAnswers& answers, int64_t longest, double wrong) {
  return text_drafter({.longest = longest}, std::make_unique<KnowingDrafter>(answers, wrong));
}

struct CombinedCase {
  const char* evictor;
  const char* model = "llama3";  // or one with windows, which lose no tokens
};

class EvictorsCombined : public ::testing::TestWithParam<CombinedCase> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
  }
  EngineOptions evicting(EngineOptions o) const {
    o.evictor = GetParam().evictor;
    o.kv_format = "f32";
    return o;
  }
  std::vector<Request> requests() const {
    std::vector<Request> out;
    for (int64_t i = 0; i < 6; ++i) {
      Request r = make_request(10 + i, 5 + 11 * i, 50, vocab_);
      if (i % 2) {  // the prompt repeats itself
        const size_t half = r.prompt.size() / 2;
        std::copy_n(r.prompt.begin(), half, r.prompt.begin() + static_cast<ptrdiff_t>(half));
      }
      if (i == 5) r.evictor = "none";
      out.push_back(std::move(r));
    }
    return out;
  }
  std::unique_ptr<EngineCore> core(const EngineOptions& o, std::unique_ptr<Drafter> drafter = nullptr) const {
    return core_with(model_, o, std::move(drafter));
  }
  EvictedAnswers run(EngineCore& core, const std::vector<Request>& requests) const {
    EvictedAnswers out;
    std::vector<TokenEvent> events;
    for (size_t next = 0; next < requests.size() || !core.idle();) {
      if (next < requests.size()) {
        const auto added = core.add(static_cast<RequestId>(next + 1), requests[next]);
        EXPECT_TRUE(added.ok()) << (added.ok() ? "" : added.error().message);
        ++next;
      }
      events.clear();
      core.step(events);
      for (const TokenEvent& event : events) {
        EXPECT_NE(event.finish, FinishReason::error) << event.error.message;
        EvictedAnswer& answer = out[event.request];
        if (event.token >= 0) answer.tokens.push_back(event.token);
        if (event.token >= 0) answer.logprobs.push_back(event.logprob.logprob);
        if (event.finish != FinishReason::none) answer.timings = event.timings;
      }
      const auto blocks = core.check_blocks();
      EXPECT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
    }
    return out;
  }
  void expect_same(const EvictedAnswers& actual, const EvictedAnswers& expected) const {
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [id, answer] : expected) EXPECT_TRUE(actual.at(id).same(answer)) << "request " << id;
  }
  // Each request alone in an engine with memory for all its tokens.
  EvictedAnswers alone(const std::vector<Request>& requests) const {
    EvictedAnswers out;
    for (size_t i = 0; i < requests.size(); ++i)
      out[static_cast<RequestId>(i + 1)] = run(*core(evicting(options())), {requests[i]}).at(1);
    return out;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
};

TEST_P(EvictorsCombined, DraftsAreThoseOfPlainDecoding) {
  const auto all = requests();
  const EvictedAnswers plain = alone(all);
  for (const auto& [id, answer] : plain) EXPECT_EQ(answer.timings.evictions > 1, id != 6) << id;
  for (const double wrong : {-1.0, 0.0, 0.3, 2.0}) {  // ngram, then drafters that are always, mostly and never right
    for (const int64_t longest : {2, 5, 11}) {
      SCOPED_TRACE(fmt::format("wrong {}, longest {}", wrong, longest));
      EngineOptions o = evicting(options(2, 60, 4));
      o.drafter = fmt::format("ngram:n=3,min=1,k={}", longest);
      auto drafting = core(o, wrong < 0 ? nullptr : knowing_drafter(plain, longest, wrong));
      expect_same(run(*drafting, all), plain);
      EXPECT_GT(drafting->stats().drafted_tokens, 0);
      EXPECT_EQ(drafting->stats().accepted_tokens > 0, wrong < 2);
      if (HasFailure()) return;
    }
  }
}

// A draft that is always right ends where the evictor chooses: what follows needs the tokens to be dropped.
TEST_P(EvictorsCombined, DraftsEndWhereTheEvictorChooses) {
  const std::vector<Request> one = {make_request(4, 60, 60, vocab_)};
  const EvictedAnswers plain = alone(one);
  EngineOptions o = evicting(options());
  o.drafter = "ngram:k=64";
  auto drafting = core(o, knowing_drafter(plain, 64, 0));
  expect_same(run(*drafting, one), plain);
  const RequestTimings& t = plain.at(1).timings;
  EXPECT_GE(t.evictions, 3);
  EXPECT_LE(drafting->stats().steps, 2 * t.evictions + 4);
  EXPECT_EQ(drafting->stats().accepted_tokens, drafting->stats().drafted_tokens);
}

TEST_P(EvictorsCombined, PreemptionsDoNotShow) {
  const auto all = requests();
  const EvictedAnswers plain = alone(all);
  struct Setting {
    const char* policy;
    int64_t swap_tokens;
    const char* drafter;
  };
  for (const Setting& setting :
       {Setting{"fcfs:reserve=prompt", 0, ""}, Setting{"priority", 400, ""},
        Setting{"skip_join_mlfq:quantum_ms=1", 400, ""}, Setting{"fcfs:reserve=prompt", 0, "ngram:min=1,k=5"}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", setting.policy, setting.swap_tokens, setting.drafter));
    EngineOptions o = evicting(options(2, 40, 4));
    o.kv_tokens = 120;
    o.policy = setting.policy;
    o.kv_tier = memory_tier(setting.swap_tokens);
    o.drafter = setting.drafter;
    auto narrow = core(o);
    auto hurried = all;
    for (size_t i = 0; i < hurried.size(); ++i) hurried[i].priority = static_cast<int64_t>(i);
    expect_same(run(*narrow, hurried), plain);
    // Most drafts of gemma2 are right, so that its streams end before memory is short.
    if (setting.swap_tokens == 0 && (GetParam().model != std::string_view("gemma2") || !*setting.drafter)) {
      EXPECT_GT(narrow->stats().preemptions, 0);
      EXPECT_GT(narrow->stats().recomputed_tokens, 0);
    }
    EXPECT_EQ(narrow->kv().free_blocks() + narrow->stats().kv_blocks_cached, narrow->kv().total_blocks());
  }
}

// A stream that has dropped tokens is preempted by hand, at every stage, to be computed again or into a tier.
TEST_P(EvictorsCombined, PreemptedAtAnyStageTheyContinue) {
  const std::vector<Request> one = {make_request(3, 40, 40, vocab_)};
  const EvictedAnswers plain = alone(one);
  for (const bool swap : {false, true}) {
    for (const int64_t every : {2, 5, 9}) {
      SCOPED_TRACE(fmt::format("swap {}, every {}", swap, every));
      EngineOptions o = evicting(options(1, 12, 4));
      o.kv_tier = memory_tier(200);
      auto preempting = core(o);
      ASSERT_TRUE(preempting->add(1, one.front()).ok());
      EvictedAnswer answer;
      std::vector<TokenEvent> events;
      int64_t stored = 0, preempted = 0, next = every - 1;
      for (int64_t steps = 0; !preempting->idle(); ++steps) {
        ASSERT_LT(steps, 10'000);
        events.clear();
        if (steps == next) {
          // Further apart each time, or the stream makes no progress: most where it computes everything again.
          next += every * (1 + (swap ? 1 : 6) * ++preempted);
          StepPlan plan;
          plan.preempted = {{1, swap}};
          const int64_t before = preempting->stats().swapped_out_tokens;
          const auto replayed = preempting->replay(plan, events);
          if (replayed.ok()) stored = std::max(stored, preempting->stats().swapped_out_tokens - before);
        } else {
          preempting->step(events);
        }
        ASSERT_TRUE(preempting->check_blocks().ok());
        for (const TokenEvent& event : events) {
          ASSERT_NE(event.finish, FinishReason::error) << event.error.message;
          if (event.token >= 0) answer.tokens.push_back(event.token);
          if (event.token >= 0) answer.logprobs.push_back(event.logprob.logprob);
          if (event.finish != FinishReason::none) answer.timings = event.timings;
        }
      }
      EXPECT_TRUE(answer.same(plain.at(1)));
      EXPECT_GT(preempting->stats().preemptions, swap ? 1 : 0);
      EXPECT_EQ(preempting->stats().recomputed_tokens == 0, swap);
      EXPECT_EQ(stored > 0, swap);
      EXPECT_LE(stored, 48);  // what is moved is what is stored
    }
  }
}

// It finds no blocks and leaves none, whatever it has dropped, and plain streams with its prompt share theirs.
TEST_P(EvictorsCombined, ThePrefixCacheIsLeftAlone) {
  Request plain = make_request(7, 48, 30, vocab_);
  plain.evictor = "none";
  Request evicting_one = plain;
  evicting_one.evictor = "";
  const EvictedAnswer expected = run(*core(evicting(options())), {evicting_one}).at(1);
  auto shared = core(evicting(options(1, 512, 4)));
  const auto next = [&](RequestId id, const Request& request) {
    EXPECT_TRUE(shared->add(id, request).ok());
    return run(*shared, {}).at(id);
  };
  const EvictedAnswer first = next(1, evicting_one);
  EXPECT_TRUE(first.same(expected));
  EXPECT_EQ(shared->stats().kv_blocks_cached, 0);
  const EvictedAnswer computed = next(2, plain);
  EXPECT_EQ(computed.timings.cached_tokens, 0);
  const int64_t cached = shared->stats().kv_blocks_cached;
  EXPECT_GT(cached, 0);
  const EvictedAnswer second = next(3, evicting_one);
  EXPECT_TRUE(second.same(expected));
  EXPECT_EQ(second.timings.cached_tokens, 0);
  EXPECT_EQ(shared->stats().kv_blocks_cached, cached);
  const EvictedAnswer found = next(4, plain);
  EXPECT_EQ(found.timings.cached_tokens, 44);
  EXPECT_TRUE(found.same(computed));
}

TEST_P(EvictorsCombined, RecordedPlansReplay) {
  EngineOptions o = evicting(options(1, 40, 4));
  o.kv_tokens = 160;
  o.policy = "fcfs:reserve=prompt";
  o.drafter = "ngram:min=1";
  const auto all = requests();
  std::vector<std::string> plans;
  std::vector<TokenId> recorded, replayed;
  std::vector<TokenEvent> events;
  const auto show = [&](std::vector<TokenId>& tokens) {
    for (const TokenEvent& event : events) tokens.push_back(event.token);
    events.clear();
  };
  auto first = core(o), second = core(o);
  for (size_t i = 0; i < all.size(); ++i)
    for (EngineCore* one : {first.get(), second.get()}) ASSERT_TRUE(one->add(i + 1, all[i]).ok());
  while (!first->idle()) {
    plans.push_back(first->step(events).to_string());
    show(recorded);
  }
  for (const std::string& text : plans) {
    auto plan = StepPlan::parse(text);
    ASSERT_TRUE(plan.ok()) << text;
    ASSERT_TRUE(second->replay(*plan, events).ok()) << text;
    show(replayed);
  }
  EXPECT_EQ(replayed, recorded);
  EXPECT_EQ(second->stats().evicted_tokens, first->stats().evicted_tokens);
}

INSTANTIATE_TEST_SUITE_P(
    Members, EvictorsCombined,
    ::testing::Values(CombinedCase{"streamingllm:sinks=3,window=17,slack=6"},
                      CombinedCase{"streamingllm:sinks=3,window=17,slack=9,prompt=evicted"},
                      CombinedCase{"h2o:budget=20,slack=5,positions=cache"},
                      CombinedCase{"h2o:budget=20,recent=0.5,slack=6"},
                      CombinedCase{"h2o:budget=20,recent=0.25,slack=9,prompt=evicted"},
                      CombinedCase{"tova:budget=20,slack=6"}, CombinedCase{"h2o:budget=20,slack=6,scope=head"},
                      CombinedCase{"key_norm:budget=20,recent=5,slack=6"},
                      CombinedCase{"key_norm:budget=20,slack=9,scope=stream,prompt=evicted", "gemma3"},
                      CombinedCase{"snapkv:budget=20,window=8,kernel=3,slack=9,prompt=evicted"},
                      CombinedCase{"scissorhands:budget=20,recent=5,history=10,slack=6"},
                      CombinedCase{"streamingllm:sinks=3,window=17,slack=6", "gemma2"},
                      CombinedCase{"h2o:budget=20,recent=0.25,slack=9,prompt=evicted", "gemma3"}),
    [](const auto& one) {
      std::string name = std::string(one.param.model) + "_" + one.param.evictor;
      std::ranges::replace_if(
          name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return name;
    });

}  // namespace
}  // namespace millrace
