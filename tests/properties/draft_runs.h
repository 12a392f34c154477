// Runs requests of every kind with and without drafted tokens, and shows every event of every stream.
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <functional>

#include "properties/stream_bits.h"
#include "run/executors/cpu_executor.h"
#include "run/plan/kv_places.h"

namespace millrace::testing {

// The events of each stream; log-probabilities as bits.
using Emitted = std::map<std::pair<RequestId, int64_t>, std::vector<std::string>>;

inline std::string written(const TokenLogprob& p) {
  return fmt::format("{}:{:x}", p.token, std::bit_cast<uint32_t>(p.logprob));
}

inline std::string written(const TokenEvent& event) {
  std::string text = fmt::format("{} '{}' {} {} '{}' {} {:x}", event.token, event.text, written(event.logprob),
                                 finish_reason_name(event.finish), event.stopped_by, event.end_token,
                                 std::bit_cast<uint64_t>(event.score));
  for (const TokenLogprob& p : event.top_logprobs) text += " " + written(p);
  return text;
}

// The answers that plain decoding gave, by stream and in full: what a scripted drafter knows.
using Truth = std::map<RequestId, std::vector<TokenId>>;

// Drafts the truth with a mistake in each token at this rate.
class Scripted final : public TextDrafter {
 public:
  Scripted(const Truth& truth, double wrong) : truth_(truth), wrong_(wrong) {}
  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    const auto known = truth_.find(stream.id);
    if (known == truth_.end()) return;
    const auto& answer = known->second;
    for (int64_t i = 0; i < most; ++i) {
      const auto at = static_cast<size_t>(stream.generated() + i);
      const TokenId token = at < answer.size() ? answer[at] : 1;
      const bool mistake = philox_uniform(stream.id, 77, at + 1000 * static_cast<size_t>(i)) < wrong_;
      out.tokens.push_back(mistake ? token ^ 1 : token);
    }
  }

 private:
  const Truth& truth_;
  double wrong_;
};

inline std::unique_ptr<Drafter> scripted_drafter(const Truth& truth, int64_t longest, double wrong) {
  return text_drafter({.longest = longest}, std::make_unique<Scripted>(truth, wrong));
}

inline std::unique_ptr<EngineCore> core_with(std::shared_ptr<const LanguageModel> model, const EngineOptions& o,
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
inline DraftOutcome run_requests(EngineCore& core, const std::vector<Request>& requests, int64_t apart) {
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

inline const char* kDraftSchema =
    R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","maxLength":12}},"required":["a","b"],"additionalProperties":false})";

// Requests of every kind, the `round`-th of them.
inline std::vector<Request> mixed_requests(uint64_t round, int64_t vocab) {
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

// Ways to run the same requests.
inline std::vector<std::pair<std::string, EngineOptions>> settings() {
  std::vector<std::pair<std::string, EngineOptions>> all;
  all.emplace_back("plenty", options());
  EngineOptions short_of_memory = options(2, 40, 8);  // preempts
  short_of_memory.kv_tokens = 160;
  short_of_memory.policy = "fcfs:reserve=prompt";
  all.emplace_back("short of memory", short_of_memory);
  EngineOptions swaps = short_of_memory;
  swaps.kv_tier = memory_tier(400);
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

// Blocks that streams leave in the prefix index hold kept tokens only: a second round that finds them is the plain one.
// `make` returns a drafter that knows the first round's answers.
inline void expect_kept_prefixes(const std::shared_ptr<const LanguageModel>& model, const std::string& drafter,
                                 const std::function<std::unique_ptr<Drafter>(const Truth&)>& make) {
  std::vector<Request> first, second;
  for (int64_t i = 0; i < 4; ++i) first.push_back(make_request(i, 11 + i, 50, model->info().vocab));
  EngineOptions o = options(1, 512, 4);
  const DraftOutcome plain = run_requests(*make_core(model, o), first, 1);
  for (size_t i = 0; i < first.size(); ++i) {
    Request r = first[i];
    const auto& answer = plain.truth.at(static_cast<RequestId>(i + 1));
    r.prompt.insert(r.prompt.end(), answer.begin(), answer.end());
    r.max_tokens = 20;
    second.push_back(std::move(r));
  }
  o.prefix_cache = false;
  const DraftOutcome expected = run_requests(*make_core(model, o), second, 1);
  o.prefix_cache = true;
  o.drafter = drafter;
  auto core = core_with(model, o, make(plain.truth));
  EXPECT_EQ(run_requests(*core, first, 1).emitted, plain.emitted);
  const int64_t before = core->stats().cached_tokens;
  EXPECT_EQ(run_requests(*core, second, 1).emitted, expected.emitted);
  EXPECT_GE(core->stats().cached_tokens - before, 4 * 50);
}

}  // namespace millrace::testing
