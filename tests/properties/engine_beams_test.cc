// Beam search through the engine against a plain implementation that keeps whole token lists and recomputes each of
// them at every step: the same answers with the same scores, to the last bit, alone and in a batch.
#include <cmath>
#include <functional>

#include "engine/beam_search.h"
#include "model_runner.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"
#include "sampling/logprobs.h"

namespace millrace {
namespace {

using namespace testing;

struct Answer {
  std::vector<TokenId> tokens;
  double score = 0;
  bool ended = false;
  bool operator==(const Answer&) const = default;
};

// Hugging Face's beam search, step by step, over logits of whole lists.
class PlainSearch {
 public:
  using Next = std::function<std::vector<float>(const std::vector<TokenId>& answer)>;  // log-probabilities of the whole
                                                                                       // vocabulary
  PlainSearch(Next next, const Request& request, std::vector<TokenId> ends)
      : next_(std::move(next)), request_(request), ends_(std::move(ends)) {}

  std::vector<Answer> run() {
    struct Beam {
      std::vector<TokenId> tokens;
      double sum = 0;
    };
    const auto width = static_cast<size_t>(request_.beams);
    std::vector<Beam> beams(1);
    for (int64_t length = 1; length <= request_.max_tokens; ++length) {
      std::vector<std::pair<double, Beam>> all;  // in order of (beam, token)
      for (const Beam& beam : beams) {
        const auto logprobs = next_(beam.tokens);
        for (size_t token = 0; token < logprobs.size(); ++token) {
          if (length <= request_.min_tokens && is_end(static_cast<TokenId>(token))) continue;
          Beam longer = beam;
          longer.tokens.push_back(static_cast<TokenId>(token));
          longer.sum += static_cast<double>(logprobs[token]);
          all.emplace_back(longer.sum, std::move(longer));
        }
      }
      std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.first > b.first; });
      std::vector<Beam> survivors;
      const size_t looked_at = std::min(all.size(), std::max<size_t>(2, 1 + ends_.size()) * width);
      for (size_t rank = 0; rank < looked_at && survivors.size() < width; ++rank) {
        const Beam& beam = all[rank].second;
        if (!is_end(beam.tokens.back()))
          survivors.push_back(beam);
        else if (rank < width)
          finish({beam.tokens, score(beam.sum, length), true});
      }
      beams = survivors;
      if (beams.empty() || done(all[0].first, length)) return sorted();
    }
    for (const Beam& beam : beams) finish({beam.tokens, score(beam.sum, request_.max_tokens), false});
    return sorted();
  }

 private:
  bool is_end(TokenId token) const { return !request_.ignore_eos && std::ranges::find(ends_, token) != ends_.end(); }
  double score(double sum, int64_t length) const {
    return sum / std::pow(static_cast<double>(length), request_.length_penalty);
  }
  double worst() const { return std::ranges::min_element(finished_, {}, &Answer::score)->score; }
  void finish(const Answer& answer) {
    if (static_cast<int64_t>(finished_.size()) == request_.beams) {
      if (answer.score <= worst()) return;
      finished_.erase(std::ranges::min_element(finished_, {}, &Answer::score));
    }
    finished_.push_back(answer);
  }
  bool done(double best_sum, int64_t length) const {
    if (static_cast<int64_t>(finished_.size()) < request_.beams) return false;
    if (request_.early_stopping == EarlyStopping::yes) return true;
    const bool never = request_.early_stopping == EarlyStopping::never && request_.length_penalty > 0;
    return worst() >= score(best_sum, never ? request_.max_tokens : length);
  }
  std::vector<Answer> sorted() {
    std::ranges::stable_sort(finished_, [](const Answer& a, const Answer& b) { return a.score > b.score; });
    finished_.resize(std::min<size_t>(finished_.size(), static_cast<size_t>(request_.n)));
    return finished_;
  }

  Next next_;
  const Request& request_;
  std::vector<TokenId> ends_;
  std::vector<Answer> finished_;
};

std::vector<TokenLogprob> likeliest(const std::vector<float>& logprobs, int64_t count) {
  std::vector<TokenLogprob> out;
  for (size_t i = 0; i < logprobs.size(); ++i) out.push_back({static_cast<TokenId>(i), logprobs[i]});
  std::ranges::stable_sort(out, [](const auto& a, const auto& b) { return a.logprob > b.logprob; });
  out.resize(std::min(out.size(), static_cast<size_t>(count)));
  return out;
}

// Made-up log-probabilities of `vocab` tokens, a pure function of the answer so far; coarse, so that sums tie
// sometimes.
std::vector<float> made_up(uint64_t seed, const std::vector<TokenId>& answer, size_t vocab) {
  uint64_t stream = 1;
  for (TokenId token : answer) stream = stream * 31 + static_cast<uint64_t>(token) + 1;
  std::vector<float> out(vocab);
  for (size_t i = 0; i < vocab; ++i) out[i] = -std::floor(static_cast<float>(philox_uniform(seed, stream, i)) * 24) / 4;
  return out;
}

// A small vocabulary with end tokens, so that answers end at every length, more of them end than there are beams, or
// all beams end.
TEST(BeamSearch, EqualsThePlainSearch) {
  int64_t ended = 0, open = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    auto draw = [&, i = uint64_t{0}](uint64_t n) mutable {
      return static_cast<int64_t>(philox4x32(seed, 77, i++)[0] % n);
    };
    Request r;
    r.beams = 1 + draw(5);
    r.n = 1 + draw(static_cast<uint64_t>(r.beams));
    r.max_tokens = 1 + draw(9);
    r.min_tokens = draw(4);
    r.length_penalty = static_cast<double>(draw(9) - 4) / 2;
    r.early_stopping = static_cast<EarlyStopping>(draw(3));
    const auto vocab = static_cast<size_t>(2 + draw(12));
    std::vector<TokenId> ends;
    for (int64_t i = draw(3); i-- > 0;) ends.push_back(static_cast<TokenId>(i));
    const auto expected = PlainSearch([&](const auto& answer) { return made_up(seed, answer, vocab); }, r, ends).run();

    BeamSearch search({r.beams, r.length_penalty, r.early_stopping, r.max_tokens, r.min_tokens, ends});
    std::vector<std::vector<TokenId>> live(1);
    while (!live.empty() && static_cast<int64_t>(live[0].size()) < r.max_tokens) {
      std::vector<std::vector<TokenLogprob>> candidates;
      for (const auto& answer : live)
        candidates.push_back(likeliest(made_up(seed, answer, vocab), search.candidates_wanted()));
      std::vector<std::vector<TokenId>> longer;
      for (const auto& next : search.advance(candidates)) {
        longer.push_back(live[static_cast<size_t>(next.from)]);
        longer.back().push_back(next.token);
      }
      live = std::move(longer);
    }
    std::vector<Answer> answers;
    for (const BeamAnswer& one : search.best(r.n)) {
      answers.push_back({{}, one.score, one.ended});
      for (const BeamToken& token : one.tokens) answers.back().tokens.push_back(token.chosen.token);
      (one.ended ? ended : open) += 1;
    }
    ASSERT_EQ(answers, expected) << seed;
  }
  EXPECT_GT(ended, 1000);
  EXPECT_GT(open, 1000);
}

// Steps until the core is idle; answers by request.
std::map<RequestId, std::vector<Answer>> answers_of(EngineCore& core) {
  std::map<RequestId, std::vector<Answer>> out;
  std::vector<TokenEvent> events;
  while (!core.idle()) {
    events.clear();
    core.step(events);
    const auto blocks = core.check_blocks();
    EXPECT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
    for (const auto& event : events) {
      auto& answers = out[event.request];
      if (event.answer >= static_cast<int64_t>(answers.size())) answers.resize(static_cast<size_t>(event.answer) + 1);
      Answer& answer = answers[static_cast<size_t>(event.answer)];
      if (event.token >= 0) answer.tokens.push_back(event.token);
      if (event.finish == FinishReason::none) continue;
      EXPECT_NE(event.finish, FinishReason::error);
      answer.score = event.score;
      answer.ended = event.finish == FinishReason::stop;
    }
  }
  return out;
}

class EngineBeams : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = golden_model("smollm3");
    model_ = load_for(path, Isa::ref);
    WithIsa scope(Isa::ref);
    auto runner = TestRunner::load(path, {.threads = 1, .context = 128, .kv_format = "f16"});
    ASSERT_TRUE(model_ && runner.ok());
    runner_ = std::move(*runner);
    ends_ = model_->parts().tokenizer->spec().eog;
  }
  // The model's own log-probabilities, of the whole list from its start.
  PlainSearch::Next next(const Request& request) {
    return [this, &request](const std::vector<TokenId>& answer) {
      std::vector<TokenId> tokens = request.prompt;
      tokens.insert(tokens.end(), answer.begin(), answer.end());
      const auto vocab = static_cast<size_t>(model_->info().vocab);
      const std::vector<float> rows = runner_->logits(tokens);
      std::vector<float> out(vocab);
      for (const auto& one : compute_logprobs(std::span(rows).last(vocab), -1, static_cast<int64_t>(vocab)).top)
        out[static_cast<size_t>(one.token)] = one.logprob;
      return out;
    };
  }

  Request beam_request(int64_t seed, int64_t prompt, int64_t max_tokens, int64_t beams, int64_t n) const {
    Request r = make_request(seed, prompt, max_tokens, model_->info().vocab);
    r.ignore_eos = false;
    r.beams = beams;
    r.n = n;
    return r;
  }

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<TestRunner> runner_;
  std::vector<TokenId> ends_;
};

TEST_F(EngineBeams, EqualThoseOfAPlainSearch) {
  ASSERT_FALSE(ends_.empty());
  int64_t ended = 0, open = 0;
  for (int64_t seed = 0; seed < 12; ++seed) {
    Request r = beam_request(seed, 1 + 5 * seed % 23, 4 + seed % 9, 1 + seed % 4 + 1, 1 + seed % 2);
    r.length_penalty = seed % 3 == 0 ? 1.0 : seed % 3 == 1 ? 0.0 : -1.5;
    r.early_stopping = static_cast<EarlyStopping>(seed / 2 % 3);
    r.min_tokens = seed % 4;
    const auto expected = PlainSearch(next(r), r, ends_).run();
    EngineOptions o = options(1, 512, 4);
    o.prefix_cache = seed % 2;
    auto core = make_core(model_, o);
    ASSERT_TRUE(core->add(1, r).ok());
    const auto answers = answers_of(*core)[1];
    EXPECT_EQ(answers, expected) << seed;
    for (const auto& answer : answers) (answer.ended ? ended : open) += 1;
    if (!o.prefix_cache) {
      EXPECT_EQ(core->kv().free_blocks(), core->kv().total_blocks());
    }
  }
  EXPECT_GT(open, 0);
}

TEST_F(EngineBeams, DoNotDependOnBatchMates) {
  const int64_t vocab = model_->info().vocab;
  std::map<RequestId, std::vector<Answer>> expected;
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i) {
    Request r = i % 3 == 2 ? make_request(i, 20, 12, vocab) : beam_request(i, 9 + 7 * i, 10, 2 + i % 3, 2);
    requests.push_back(r);
    auto alone = make_core(model_, options());
    ASSERT_TRUE(alone->add(1, r).ok());
    expected[static_cast<RequestId>(i + 1)] = answers_of(*alone)[1];
  }
  for (const char* policy : {"fcfs", "skip_join_mlfq", "priority", "orca:room=oracle"}) {
    for (int64_t kv_tokens : {300, 4096}) {
      EngineOptions o = options(1, 17, 4);
      o.kv_tokens = kv_tokens;
      o.max_streams = 5;
      o.resident_streams = 7;
      o.kv_tier = memory_tier(100);
      o.policy = policy;
      auto core = make_core(model_, o);
      for (size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
      EXPECT_EQ(answers_of(*core), expected) << policy << " " << kv_tokens;
    }
  }
}

TEST_F(EngineBeams, ShareTheirCommonBlocks) {
  EngineOptions o = options(1, 512, 8);
  o.prefix_cache = false;
  auto core = make_core(model_, o);
  Request r = beam_request(3, 64, 8, 4, 1);
  r.ignore_eos = true;
  ASSERT_TRUE(core->add(1, r).ok());
  std::vector<TokenEvent> events;
  int64_t most = 0;
  while (!core->idle()) {
    core->step(events);
    most = std::max(most, core->kv().total_blocks() - core->kv().free_blocks());
  }
  EXPECT_EQ(core->stats().prompt_tokens, 64);
  EXPECT_LE(most, 64 / 8 + 4);
}

TEST_F(EngineBeams, EndWithTheBestSoFarWhenCancelledAndFreeEverything) {
  ManualClock clock;
  EngineOptions o = options(1, 512, 8);
  o.prefix_cache = false;
  auto core = EngineCore::create(model_, o, &clock);
  ASSERT_TRUE(core.ok());
  Request r = beam_request(3, 20, 50, 3, 2);
  r.ignore_eos = true;
  r.time_limit_seconds = 1;
  std::vector<TokenEvent> events;
  for (RequestId id : {1, 2, 3}) ASSERT_TRUE((*core)->add(id, r).ok());  // 8 streams: the third one waits
  for (int i = 0; i < 5; ++i) (*core)->step(events);
  EXPECT_TRUE(events.empty());
  (*core)->cancel(1);
  (*core)->step(events);
  ASSERT_EQ(events.size(), 10u);  // 2 answers of 5 tokens
  EXPECT_EQ(events[4].finish, FinishReason::cancelled);
  EXPECT_GE(events[4].score, events[9].score);
  EXPECT_TRUE(events[9].last);
  clock.advance_ns(1'000'000'000);
  events.clear();
  (*core)->step(events);
  EXPECT_EQ(std::ranges::count_if(events, [](const auto& e) { return e.last && e.finish == FinishReason::time_limit; }),
            2);
  EXPECT_TRUE((*core)->idle());
  EXPECT_EQ((*core)->kv().free_blocks(), (*core)->kv().total_blocks());
  EXPECT_TRUE((*core)->check_blocks().ok());
}

TEST_F(EngineBeams, AreRefusedWhereTheyCannotRun) {
  EngineOptions o = options(1, 512, 8);
  o.kv_tokens = 160;
  o.max_streams = 4;
  auto core = make_core(model_, o);
  auto message = [&](const Request& r) { return core->check(r).ok() ? std::string() : core->check(r).error().message; };
  EXPECT_EQ(message(beam_request(1, 20, 20, 4, 1)), "");
  EXPECT_NE(message(beam_request(1, 20, 21, 4, 1)), "");  // 4 x 6 blocks
  EXPECT_NE(message(beam_request(1, 4, 4, 5, 1)), "");
  EXPECT_NE(message(beam_request(1, 4, 4, 2, 3)), "");
  Request r = beam_request(1, 4, 4, 2, 1);
  r.best_of = 2;
  EXPECT_NE(message(r), "");
  r.best_of = 0;
  r.sampling.repetition_penalty = 1.1;
  EXPECT_NE(message(r).find("beams"), std::string::npos);
}

}  // namespace
}  // namespace millrace
