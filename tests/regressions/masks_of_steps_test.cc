// The mask of an ambiguous grammar was computed within a step, however long it took: with 131,072 tokens all other
// streams waited 220 to 1,150 ms for it. The tests of ambiguity looked at how a stream ends, not at what its mates wait
// for. Now a stream whose mask needs more than the work of a step sits out steps; here every mask does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/engine_core.h"
#include "millrace/engine.h"
#include "sampling/mask_units.h"
#include "test_paths.h"

namespace millrace {
namespace {

struct Bounded {  // sets the work of steps for engines created while it lives
  explicit Bounded(MaskUnits units) : before(mask_units()) { mask_units() = units; }
  ~Bounded() { mask_units() = before; }
  MaskUnits before;
};

constexpr MaskUnits kNoWork{.own = 1, .step = 0};
constexpr MaskUnits kAllWork{.own = INT64_MAX / 8, .step = INT64_MAX / 8};

Constraint held_to(Constraint::Kind kind, std::string text) {
  Constraint constraint;
  constraint.kind = kind;
  constraint.text = std::move(text);
  return constraint;
}

// A bound ends it after some letters.
std::string multiplying() {
  std::string text = "root ::=", ways = "s ::= \"a\"";
  for (int i = 0; i < 50; ++i) text += " s";
  text += " \"!\"\n";
  for (int r = 0; r < 20; ++r) {
    ways += fmt::format(" | t{}", r);
    text += fmt::format("t{} ::= \"a\" s u{} | \"a\" s s\nu{} ::= \"a\" u{} \"a\" | \"a\"\n", r, r, r, r);
  }
  return text + ways + "\n";
}

struct HeldAnswer {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::string> texts;
  std::vector<FinishReason> reasons;
  std::string error;
  bool operator==(const HeldAnswer&) const = default;
};

Request held_request(Constraint constraint, uint64_t seed, int64_t n = 1) {
  Request request;
  request.prompt = {1, 2, 3, 4, 5};
  request.max_tokens = 40;
  request.constraint = std::move(constraint);
  request.sampling.seed = seed;
  request.sampling.temperature = 1.5F;
  request.n = n;
  return request;
}

std::vector<Request> mixed_requests() {
  std::vector<Request> out;
  out.push_back(held_request({}, 1, 2));
  out.back().ignore_eos = true;
  out.push_back(held_request(held_to(Constraint::Kind::regex, "[a-f]{3}-[0-9]{2}"), 2, 2));
  out.push_back(held_request(held_to(Constraint::Kind::json_schema,
                                     R"({"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":9},
                                   "b":{"type":"string","maxLength":5}},"required":["a","b"]})"),
                             3));
  out.push_back(held_request(held_to(Constraint::Kind::grammar, multiplying()), 4));
  out.push_back(held_request(held_to(Constraint::Kind::grammar,
                                     "root ::= x*\nx ::= y | z | y z\ny ::= [a-z ]+\n"
                                     "z ::= [a-z ]+ | [a-z] z"),
                             5));
  out.push_back(held_request(held_to(Constraint::Kind::choice, ""), 6));
  out.back().constraint.choices = {"yes", "no", "maybe"};
  out.push_back(held_request(held_to(Constraint::Kind::regex, "[a-z]{30}"), 7));  // its length ends it
  out.back().max_tokens = 3;
  out.push_back(held_request(held_to(Constraint::Kind::regex, "[a-z]"), 8));  // length and grammar end it at once
  out.back().max_tokens = 1;
  return out;
}

class MasksOfSteps : public ::testing::Test {
 protected:
  std::vector<HeldAnswer> run(MaskUnits units, const std::string& drafter, int threads) {
    const Bounded bounded(units);
    EngineOptions options;
    options.threads = threads;
    options.max_streams = 10;
    options.drafter = drafter;
    auto engine = Engine::create(model_, options).value();
    std::vector<std::unique_ptr<Stream>> streams;
    for (const Request& request : mixed_requests()) streams.push_back(engine->submit(request).value());
    std::vector<HeldAnswer> out(streams.size());
    for (size_t i = 0; i < streams.size(); ++i) {
      while (auto event = streams[i]->next()) {
        HeldAnswer& answer = out[i];
        const auto at = static_cast<size_t>(event->answer);
        answer.tokens.resize(std::max(answer.tokens.size(), at + 1));
        answer.texts.resize(answer.tokens.size());
        answer.reasons.resize(answer.tokens.size());
        if (event->token >= 0 && event->finish != FinishReason::error) answer.tokens[at].push_back(event->token);
        answer.texts[at] += event->text;
        if (event->finish != FinishReason::none) answer.reasons[at] = event->finish;
        answer.error += event->error.message;
      }
    }
    return out;
  }
  std::shared_ptr<const LanguageModel> model_ =
      LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama/model.gguf",
                          {.threads = 2, .context = 128})
          .value();
};

TEST_F(MasksOfSteps, AnswersAreTheSameWhereTheyAreHandedOver) {
  const std::vector<HeldAnswer> within = run(kAllWork, "", 1);
  EXPECT_EQ(within[0].reasons, (std::vector{FinishReason::length, FinishReason::length}));
  EXPECT_EQ(within[1].reasons, (std::vector{FinishReason::stop, FinishReason::stop}));
  EXPECT_EQ(within[2].reasons.at(0), FinishReason::stop);
  EXPECT_EQ(within[3].reasons.at(0), FinishReason::error);
  EXPECT_NE(within[3].error.find("ambiguous"), std::string::npos) << within[3].error;
  EXPECT_EQ(within[6].reasons.at(0), FinishReason::length);
  EXPECT_EQ(within[7].reasons.at(0), FinishReason::stop);
  for (const int threads : {1, 2}) {
    EXPECT_EQ(run(kNoWork, "", threads), within) << threads;
    EXPECT_EQ(run(MaskUnits(), "", threads), within) << threads;
  }
}

TEST_F(MasksOfSteps, DraftsEndWhereAMaskIsMissing) {
  const std::vector<HeldAnswer> within = run(kAllWork, "ngram", 1);
  for (const int threads : {1, 2}) EXPECT_EQ(run(kNoWork, "ngram", threads), within) << threads;
  EXPECT_EQ(run(kAllWork, "", 1), within);
}

// A stream that waits for its mask holds up no other: while it does, the others' tokens are made.
TEST_F(MasksOfSteps, MatesGoOnMeanwhile) {
  const Bounded bounded(kNoWork);
  EngineOptions options;
  options.threads = 1;
  options.max_streams = 4;
  auto core = EngineCore::create(model_, options).value();
  Request free = held_request({}, 1);
  free.ignore_eos = true;
  ASSERT_TRUE(core->add(1, free).ok());
  ASSERT_TRUE(core->add(2, held_request(held_to(Constraint::Kind::regex, "[a-z]{30}"), 2)).ok());
  std::vector<TokenEvent> events;
  int64_t sat_out = 0, shown = 0, steps = 0;
  for (; !core->idle() && steps < 100'000; ++steps) {
    const StepPlan plan = core->step(events);
    const bool mate = std::ranges::find(plan.chunks, RequestId{1}, &PlannedChunk::request) != plan.chunks.end();
    const bool held = std::ranges::find(plan.chunks, RequestId{2}, &PlannedChunk::request) == plan.chunks.end();
    sat_out += mate && held;
    const int64_t waiting = core->stats().waiting_for_masks;
    EXPECT_LE(waiting, held ? 1 : 0);
    shown += waiting;
  }
  EXPECT_GT(shown, 0);
  EXPECT_TRUE(core->idle());
  EXPECT_GT(sat_out, 0);
  EXPECT_EQ(std::ranges::count_if(events, [](const TokenEvent& event) { return event.last; }), 2);
}

TEST_F(MasksOfSteps, AStreamMayEndWhileItsMaskIsComputed) {
  const Bounded bounded(kNoWork);
  EngineOptions options;
  options.threads = 1;
  options.max_streams = 4;
  auto core = EngineCore::create(model_, options).value();
  std::vector<TokenEvent> events;
  for (RequestId id = 1; id < 30; ++id) {
    ASSERT_TRUE(core->add(id, held_request(held_to(Constraint::Kind::grammar, multiplying()), id)).ok());
    for (RequestId step = 0; step < id % 4; ++step) core->step(events);
    core->cancel(id);
  }
  for (int steps = 0; !core->idle() && steps < 100'000; ++steps) core->step(events);
  EXPECT_TRUE(core->idle());
  EXPECT_TRUE(core->check_blocks().ok());
}

}  // namespace
}  // namespace millrace
