// Constrained streams through the engine: every answer satisfies its constraint, and neither batch mates nor the step
// size change it.
#include <gtest/gtest.h>

#include <regex>

#include "base/ordered_json.h"
#include "millrace/engine.h"
#include "test_paths.h"

namespace millrace {
namespace {

Constraint of_kind(Constraint::Kind kind, std::string text, std::string trigger = "") {
  Constraint constraint;
  constraint.kind = kind;
  constraint.text = std::move(text);
  constraint.trigger = std::move(trigger);
  return constraint;
}

Request constrained(Constraint constraint, uint64_t seed, int64_t n) {
  Request request;
  request.prompt = {1, 2, 3, 4, 5};
  request.max_tokens = 100;
  request.constraint = std::move(constraint);
  request.sampling.seed = seed;
  request.sampling.top_k = 0;
  request.sampling.top_p = 1;
  request.sampling.min_p = 0;
  request.sampling.temperature = 1.5;
  request.n = n;
  return request;
}

struct Answers {
  std::vector<std::string> texts;
  std::vector<FinishReason> reasons;
  bool operator==(const Answers&) const = default;
};

Answers collect(Stream& stream, int64_t n) {
  Answers out;
  out.texts.resize(static_cast<size_t>(n));
  out.reasons.resize(static_cast<size_t>(n));
  while (auto event = stream.next()) {
    const auto answer = static_cast<size_t>(event->answer);
    out.texts[answer] += event->text;
    if (event->finish != FinishReason::none) out.reasons[answer] = event->finish;
  }
  return out;
}

class ConstrainedEngine : public ::testing::Test {
 protected:
  std::shared_ptr<const LanguageModel> model_ =
      LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama/model.gguf",
                          {.threads = 1, .context = 128})
          .value();
  std::unique_ptr<Engine> make(int64_t streams, int64_t batch_tokens) {
    EngineOptions options;
    options.threads = 1;
    options.max_streams = streams;
    options.batch_tokens = batch_tokens;
    return Engine::create(model_, options).value();
  }
};

const char* kSchema =
    R"({"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":9},"b":{"type":"string","maxLength":5}},"required":["a","b"],"additionalProperties":false})";

TEST_F(ConstrainedEngine, AnswersSatisfyTheirConstraintWithAnyBatchMates) {
  const Request schema = constrained(of_kind(Constraint::Kind::json_schema, kSchema), 11, 3);
  const Request regex = constrained(of_kind(Constraint::Kind::regex, "[a-f]{3}-[0-9]{2}"), 12, 2);
  auto alone = make(1, 512);
  const Answers first = collect(**alone->submit(schema), 3), second = collect(**alone->submit(regex), 2);
  for (const std::string& text : first.texts) {
    const auto value = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_TRUE(value["a"].is_number_integer() && value["b"].is_string() && value.size() == 2) << text;
  }
  for (const std::string& text : second.texts)
    EXPECT_TRUE(std::regex_match(text, std::regex("[a-f]{3}-[0-9]{2}"))) << text;
  for (FinishReason reason : first.reasons) EXPECT_EQ(reason, FinishReason::stop);
  for (const auto& [streams, tokens] : {std::pair<int64_t, int64_t>{8, 512}, {4, 3}}) {
    auto together = make(streams, tokens);
    auto free = together->submit(constrained({}, 5, 2)).value();
    auto one = together->submit(schema).value();
    auto two = together->submit(regex).value();
    EXPECT_EQ(collect(*one, 3), first);
    EXPECT_EQ(collect(*two, 2), second);
    collect(*free, 2);
  }
}

TEST_F(ConstrainedEngine, UnsatisfiableConstraintsAreRefusedAtSubmission) {
  auto engine = make(1, 512);
  const auto refused = engine->submit(constrained(of_kind(Constraint::Kind::regex, "(a"), 1, 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
  const auto unsupported = engine->submit(
      constrained(of_kind(Constraint::Kind::json_schema, R"({"$ref":"https://example.com/s.json"})"), 1, 1));
  ASSERT_FALSE(unsupported.ok());
  EXPECT_EQ(unsupported.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace
