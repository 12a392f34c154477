// Drafted tokens change the number of steps and nothing else: every event of every stream is the one of plain decoding,
// whatever the drafter, the sampling, the constraint, the memory, and the streams beside it.
#include <fmt/format.h>

#include <array>
#include <bit>

#include "properties/stream_bits.h"
#include "run/cpu_executor.h"

namespace millrace {
namespace {

using namespace testing;

// What a stream emitted, event by event; log-probabilities as bits.
using Emitted = std::map<std::pair<RequestId, int64_t>, std::vector<std::string>>;

std::string written(const TokenLogprob& p) {
  return fmt::format("{}:{:x}", p.token, std::bit_cast<uint32_t>(p.logprob));
}

std::string written(const TokenEvent& event) {
  std::string text = fmt::format("{} '{}' {} {} '{}' {} {:x}", event.token, event.text, written(event.logprob),
                                 finish_reason_name(event.finish), event.stopped_by, event.end_token,
                                 std::bit_cast<uint64_t>(event.score));
  for (const TokenLogprob& p : event.top_logprobs) text += " " + written(p);
  return text;
}

// The answers that plain decoding gave, by stream and in full: what a scripted drafter knows.
using Truth = std::map<RequestId, std::vector<TokenId>>;

// Drafts the truth with a mistake in each token at this rate.
class Scripted final : public Drafter {
 public:
  Scripted(const Truth& truth, int64_t longest, double wrong) : truth_(truth), longest_(longest), wrong_(wrong) {}
  int64_t longest() const override { return longest_; }
  void propose(const Sequence& stream, int64_t most, std::vector<TokenId>& out) override {
    const auto known = truth_.find(stream.id);
    if (known == truth_.end()) return;
    const auto& answer = known->second;
    for (int64_t i = 0; i < most; ++i) {
      const auto at = static_cast<size_t>(stream.generated() + i);
      const TokenId token = at < answer.size() ? answer[at] : 1;
      const bool mistake = philox_uniform(stream.id, 77, at + 1000 * static_cast<size_t>(i)) < wrong_;
      out.push_back(mistake ? token ^ 1 : token);
    }
  }

 private:
  const Truth& truth_;
  int64_t longest_;
  double wrong_;
};

std::unique_ptr<EngineCore> core_with(std::shared_ptr<const LanguageModel> model, const EngineOptions& o,
                                      std::unique_ptr<Drafter> drafter = nullptr) {
  auto executor = CpuExecutor::create(std::move(model), o);
  EXPECT_TRUE(executor.ok()) << (executor.ok() ? "" : executor.error().message);
  if (!executor.ok()) return nullptr;
  auto core = EngineCore::create(std::move(*executor), o, nullptr, nullptr, std::move(drafter));
  EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
  return core.ok() ? std::move(*core) : nullptr;
}

struct DraftOutcome {
  Emitted emitted;
  Truth truth;
  EngineStats stats;
  int64_t steps = 0;
};

// Adds a request every `apart` steps and runs until all have ended.
DraftOutcome run_requests(EngineCore& core, const std::vector<Request>& requests, int64_t apart) {
  DraftOutcome run;
  std::vector<TokenEvent> events;
  for (size_t next = 0; next < requests.size() || !core.idle(); ++run.steps) {
    while (next < requests.size() && static_cast<int64_t>(next) * apart <= run.steps) {
      const auto added = core.add(static_cast<RequestId>(next + 1), requests[next]);
      EXPECT_TRUE(added.ok()) << (added.ok() ? "" : added.error().message);
      ++next;
    }
    events.clear();
    core.step(events);
    for (const TokenEvent& event : events) {
      EXPECT_NE(event.finish, FinishReason::error) << event.error.message;
      run.emitted[{event.request, event.answer}].push_back(written(event));
      if (event.token >= 0) run.truth[answer_stream(event.request, event.answer)].push_back(event.token);
      if (event.finish == FinishReason::none) continue;
      const RequestTimings& t = event.timings;
      EXPECT_GE(t.drafted_tokens, t.accepted_tokens);
      if (requests[event.request - 1].beams == 1) {
        EXPECT_EQ(t.generated_tokens, t.target_passes + t.accepted_tokens);
      }
    }
    const auto blocks = core.check_blocks();
    EXPECT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
  }
  run.stats = core.stats();
  EXPECT_GE(run.stats.drafted_tokens, run.stats.accepted_tokens);
  return run;
}

const char* kDraftSchema =
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","maxLength":12}},"required":["a","b"],"additionalProperties":false})";

// Requests of every kind, the `round`-th of them.
std::vector<Request> mixed_requests(uint64_t round, int64_t vocab) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 9; ++i) {
    const auto draw = [&](uint64_t what) { return philox_uniform(round, what, i); };
    Request r = make_request(static_cast<int64_t>(100 * round + i), 1 + static_cast<int64_t>(draw(1) * 40),
                             1 + static_cast<int64_t>(draw(2) * 50), vocab);
    if (draw(3) < 0.5) {  // the prompt repeats itself
      const std::vector<TokenId> once(r.prompt.begin(), r.prompt.begin() + static_cast<ptrdiff_t>(r.prompt.size() / 2));
      r.prompt.insert(r.prompt.end(), once.begin(), once.end());
    }
    SamplingOptions& s = r.sampling;
    s.temperature = std::array{0.0, 0.7, 1.5}[static_cast<size_t>(draw(4) * 3)];
    s.top_k = draw(5) < 0.5 ? 0 : 1 + static_cast<int64_t>(draw(6) * 20);
    s.top_p = draw(7) < 0.5 ? 1 : 0.3 + 0.7 * draw(8);
    s.logprobs = draw(9) < 0.3 ? -1 : static_cast<int64_t>(draw(9) * 5);
    if (draw(10) < 0.3) s.repetition_penalty = 1.3;
    if (draw(11) < 0.3) s.frequency_penalty = 0.4, s.presence_penalty = 0.2, s.penalty_window = 9;
    if (draw(12) < 0.2) s.dry_multiplier = 0.8;
    if (draw(13) < 0.2) s.mirostat = 2;
    if (draw(14) < 0.2) s.xtc_probability = 0.5, s.xtc_threshold = 0.05;
    if (draw(15) < 0.2) r.stop_tokens = {static_cast<TokenId>(draw(16) * static_cast<double>(vocab))};
    if (draw(17) < 0.2) r.n = 3;
    if (draw(18) < 0.2) r.best_of = r.n + 1;
    r.ignore_eos = draw(19) < 0.5;
    if (i == 7) r.stop = {"e", "th", "qu"};
    if (i == 8) {
      r.constraint.kind = Constraint::Kind::json_schema;
      r.constraint.text = kDraftSchema;
      r.max_tokens = 60;
    }
    requests.push_back(std::move(r));
  }
  Request beams = make_request(static_cast<int64_t>(round), 12, 10, vocab);
  beams.beams = beams.n = 2;
  beams.sampling = {.temperature = 0, .logprobs = 1};
  requests.push_back(std::move(beams));
  return requests;
}

class EngineDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const LanguageModel> model_ = load_for(golden_model(GetParam()), detect_isa());
};

// Ways to run the same requests.
std::vector<std::pair<std::string, EngineOptions>> settings() {
  std::vector<std::pair<std::string, EngineOptions>> all;
  all.emplace_back("plenty", options());
  EngineOptions short_of_memory = options(2, 40, 8);  // preempts
  short_of_memory.kv_tokens = 160;
  short_of_memory.policy = "fcfs:reserve=prompt";
  all.emplace_back("short of memory", short_of_memory);
  EngineOptions swaps = short_of_memory;
  swaps.swap_tokens = 400;
  swaps.policy = "priority";
  all.emplace_back("swaps", swaps);
  EngineOptions ranges = options(1, 24, 16);
  ranges.kv_pool = "virtual";
  ranges.policy = "skip_join_mlfq";
  all.emplace_back("virtual ranges", ranges);
  EngineOptions tiny = options(1, 8, 4);  // steps with hardly a token to spare
  tiny.prefix_cache = false;
  tiny.kv_format = "bf16";
  all.emplace_back("small steps", tiny);
  return all;
}

TEST_P(EngineDrafts, EventsAreThoseOfPlainDecoding) {
  ASSERT_TRUE(model_);
  int64_t accepted = 0, preempted = 0;
  for (uint64_t round = 1; round <= 3; ++round) {
    const auto requests = mixed_requests(round, model_->info().vocab);
    for (const auto& [name, o] : settings()) {
      const DraftOutcome plain = run_requests(*core_with(model_, o), requests, 1);
      EngineOptions drafting = o;
      drafting.drafter = "ngram:n=3,min=1,k=5";
      for (const double wrong : {-1.0, 0.3}) {  // ngram, then a drafter that is mostly right
        SCOPED_TRACE(fmt::format("round {}, {}, wrong {}", round, name, wrong));
        auto core =
            core_with(model_, drafting, wrong < 0 ? nullptr : std::make_unique<Scripted>(plain.truth, 5, wrong));
        const DraftOutcome drafted = run_requests(*core, requests, 1);
        EXPECT_EQ(drafted.emitted, plain.emitted);
        EXPECT_GT(drafted.stats.drafted_tokens, 0);
        accepted += drafted.stats.accepted_tokens;
        preempted += drafted.stats.preemptions;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(preempted, 10);
}

// The rows of a draft are the bits that single steps give, and a draft commits as many tokens as are right.
TEST_P(EngineDrafts, RowsOfADraftAreThoseOfSingleSteps) {
  ASSERT_TRUE(model_);
  const int64_t vocab = model_->info().vocab;
  Request request = make_request(2, 37, 43, vocab);
  auto plain_core = make_core(model_, options());
  ASSERT_TRUE(plain_core->add(1, request).ok());
  const Shown plain = run_all(*plain_core, vocab)[1];
  const Truth truth{{1, plain.tokens}};
  EngineOptions o = options();
  o.drafter = "ngram:k=6";
  auto core = core_with(model_, o, std::make_unique<Scripted>(truth, 6, 0));
  ASSERT_TRUE(core->add(1, request).ok());
  std::vector<std::vector<float>> rows;
  std::vector<TokenEvent> events;
  for (int64_t steps = 0; !core->idle(); ++steps) {
    events.clear();
    const StepPlan& plan = core->step(events);
    ASSERT_EQ(plan.chunks.size(), 1u);
    const int64_t outputs = plan.chunks.front().outputs();
    EXPECT_EQ(outputs, steps == 0 ? 1 : 7);  // 43 tokens = 1 + 6 x 7
    ASSERT_EQ(std::ssize(events), outputs);
    for (int64_t i = 0; i < outputs; ++i)
      rows.emplace_back(core->last_logits() + i * vocab, core->last_logits() + (i + 1) * vocab);
  }
  ASSERT_EQ(rows.size(), plain.logits.size());
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(std::memcmp(rows[i].data(), plain.logits[i].data(), rows[i].size() * sizeof(float)), 0) << i;
  EXPECT_EQ(core->stats().drafted_tokens, 36);
  EXPECT_EQ(core->stats().accepted_tokens, 36);
}

TEST_P(EngineDrafts, AWrongDraftCommitsOneTokenAStep) {
  ASSERT_TRUE(model_);
  const int64_t vocab = model_->info().vocab;
  std::vector<Request> requests = {make_request(2, 20, 30, vocab), make_request(3, 7, 30, vocab)};
  const DraftOutcome plain = run_requests(*make_core(model_, options()), requests, 0);
  EngineOptions o = options();
  o.drafter = "ngram:k=4";
  const DraftOutcome wrong =
      run_requests(*core_with(model_, o, std::make_unique<Scripted>(plain.truth, 4, 2)), requests, 0);
  EXPECT_EQ(wrong.emitted, plain.emitted);
  EXPECT_EQ(wrong.steps, plain.steps);
  EXPECT_EQ(wrong.stats.accepted_tokens, 0);
  EXPECT_EQ(wrong.stats.drafted_tokens, 2 * (25 * 4 + 3 + 2 + 1));  // no draft is longer than what the answer needs
}

// Blocks that streams leave in the prefix index hold kept tokens only: a second round that finds them is the plain one.
TEST_P(EngineDrafts, ThePrefixIndexGetsNoRejectedToken) {
  ASSERT_TRUE(model_);
  const int64_t vocab = model_->info().vocab;
  std::vector<Request> first, second;
  for (int64_t i = 0; i < 4; ++i) first.push_back(make_request(i, 11 + i, 50, vocab));
  EngineOptions o = options(1, 512, 4);
  auto plain_core = make_core(model_, o);
  const DraftOutcome plain = run_requests(*plain_core, first, 1);
  for (size_t i = 0; i < first.size(); ++i) {
    Request r = first[i];
    const auto& answer = plain.truth.at(static_cast<RequestId>(i + 1));
    r.prompt.insert(r.prompt.end(), answer.begin(), answer.end());
    r.max_tokens = 20;
    second.push_back(std::move(r));
  }
  o.prefix_cache = false;
  const DraftOutcome expected = run_requests(*make_core(model_, o), second, 1);
  o.prefix_cache = true;
  o.drafter = "ngram:k=6";
  auto core = core_with(model_, o, std::make_unique<Scripted>(plain.truth, 6, 0.4));
  EXPECT_EQ(run_requests(*core, first, 1).emitted, plain.emitted);
  const int64_t before = core->stats().cached_tokens;
  EXPECT_EQ(run_requests(*core, second, 1).emitted, expected.emitted);
  EXPECT_GE(core->stats().cached_tokens - before, 4 * 50);
}

TEST_P(EngineDrafts, RecordedPlansReplay) {
  ASSERT_TRUE(model_);
  const auto requests = mixed_requests(5, model_->info().vocab);
  EngineOptions o = options(1, 40, 8);
  o.drafter = "ngram:min=1";
  std::vector<std::string> plans;
  Emitted recorded, replayed;
  std::vector<TokenEvent> events;
  const auto show = [&](Emitted& emitted) {
    for (const TokenEvent& event : events) emitted[{event.request, event.answer}].push_back(written(event));
    events.clear();
  };
  auto first = make_core(model_, o), second = make_core(model_, o);
  for (size_t i = 0; i < requests.size(); ++i)
    for (EngineCore* core : {first.get(), second.get()}) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
  bool drafts = false;
  while (!first->idle()) {
    plans.push_back(first->step(events).to_string());
    drafts |= plans.back().find("]*4") != std::string::npos;
    show(recorded);
  }
  EXPECT_TRUE(drafts);
  for (const std::string& text : plans) {
    auto plan = StepPlan::parse(text);
    ASSERT_TRUE(plan.ok()) << text;
    ASSERT_TRUE(second->replay(*plan, events).ok()) << text;
    show(replayed);
  }
  EXPECT_EQ(replayed, recorded);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineDrafts, ::testing::Values("llama", "gemma3", "qwen3moe"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
