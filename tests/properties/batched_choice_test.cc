// The rows of a step are sampled on all threads, the streams in parallel: the events, their bits and their order are
// those of one thread, with shared grammars, penalties, log-probabilities, drafts, and streams that end or fail.
#include <fmt/format.h>

#include <bit>

#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

std::string shown_event(const TokenEvent& event) {
  std::string text = fmt::format("{}/{} {} '{}' {} '{}' {} {:x} {} {}", event.request, event.answer, event.token,
                                 event.text, finish_reason_name(event.finish), event.stopped_by, event.end_token,
                                 std::bit_cast<uint32_t>(event.logprob.logprob), event.last, event.error.message);
  for (const TokenLogprob& p : event.top_logprobs)
    text += fmt::format(" {}:{:x}", p.token, std::bit_cast<uint32_t>(p.logprob));
  return text;
}

Request choice_request(uint64_t i, int64_t vocab) {
  Request r = make_request(static_cast<int64_t>(i), 3 + static_cast<int64_t>(i * 7 % 20), 30, vocab);
  r.sampling.logprobs = static_cast<int64_t>(i % 4) - 1;
  switch (i % 8) {
    case 0: r.sampling.repetition_penalty = 1.3; break;
    case 1: r.sampling.top_k = 12, r.sampling.top_p = 0.9; break;
    case 2: r.n = 2, r.best_of = 3; break;
    case 3: r.sampling.dry_multiplier = 0.8, r.ignore_eos = false; break;
    case 4: r.stop = {"e", "th", "qu"}; break;
    case 5:  // one grammar of several streams, whose masks they share
      r.constraint.kind = Constraint::Kind::json_schema;
      r.constraint.text =
          R"({"type":"array","items":{"enum":["ab","cd",1,null,{"x":[true]}]},"minItems":3,"maxItems":9})";
      r.sampling.temperature = 1.4;
      break;
    case 6: r.sampling.mirostat = 2; break;
    default:  // fails at its first token
      r.sampling.allowed_tokens = {3};
      r.sampling.banned_tokens = {3};
  }
  return r;
}

// Every event of 24 requests, in order, with the step that emitted it.
std::vector<std::string> events_of(const std::shared_ptr<const LanguageModel>& model, int threads,
                                   const std::string& drafter) {
  EngineOptions o = options(threads, 128, 8);
  o.max_streams = 12;
  o.drafter = drafter;
  auto core = make_core(model, o);
  if (!core) return {};
  for (uint64_t i = 0; i < 24; ++i) EXPECT_TRUE(core->add(i + 1, choice_request(i, model->info().vocab)).ok());
  std::vector<std::string> shown;
  std::vector<TokenEvent> events;
  for (int64_t step = 0; !core->idle(); ++step) {
    events.clear();
    core->step(events);
    for (const TokenEvent& event : events) shown.push_back(fmt::format("{}: {}", step, shown_event(event)));
  }
  return shown;
}

class BatchedChoice : public ::testing::TestWithParam<std::string> {};

TEST_P(BatchedChoice, EventsAndTheirOrderAreThoseOfOneThread) {
  const auto model = load_for(golden_model(GetParam()), *select_isa());
  ASSERT_TRUE(model);
  for (const char* drafter : {"", "ngram:min=1,k=5"}) {
    const auto expected = events_of(model, 1, drafter);
    EXPECT_GT(expected.size(), 300u);
    for (const char* end : {"stop", "length", "error"})
      EXPECT_TRUE(std::ranges::any_of(expected, [&](const std::string& line) {
        return line.find(fmt::format("' {} '", end)) != std::string::npos;
      })) << end;
    for (int threads : {2, 5}) EXPECT_EQ(events_of(model, threads, drafter), expected) << drafter << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BatchedChoice, ::testing::Values("llama", "qwen3moe"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
