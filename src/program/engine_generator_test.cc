// Programs on an engine: the result is that of the same steps sent as separate requests, and branches share prefixes.
#include "program/engine_generator.h"

#include <gtest/gtest.h>

#include "base/json_text.h"
#include "program/builder.h"
#include "program/program_json.h"
#include "program/program_reader.h"

namespace millrace {
namespace {

struct StoryEngine {
  std::shared_ptr<const LanguageModel> model;
  std::unique_ptr<Engine> engine;

  explicit StoryEngine(int64_t streams = 16) {
    auto loaded = LanguageModel::load("stories", {.threads = 1});
    EXPECT_TRUE(loaded.ok());
    model = *loaded;
    EngineOptions options;
    options.threads = 1;
    options.max_streams = streams;
    auto made = Engine::create(model, options);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    engine = std::move(*made);
  }
  ProgramModel named(const std::string& name = "") const {
    return {.name = name, .model = model, .engine = engine.get(), .sampling = {}};
  }
};

const StoryEngine& story_engine() {
  static const StoryEngine engine;
  return engine;
}

Result<ProgramResult> run_on(const StoryEngine& engine, Program program, int64_t at_once = 16) {
  EngineGenerator generator({engine.named()});
  return run_program(std::move(program), {}, generator, {.at_once = at_once, .limits = {}, .on_step = {}});
}

Program sixteen_branches() {
  ProgramBuilder build;
  std::string begin = "Once upon a time there was a small house by the river.";
  for (int i = 0; i < 6; ++i) begin += " The cat and the dog lived there with a kind old woman.";
  build.seed(3).text(begin).gen("opening", {.max_tokens = 12}).fork("ways", 16, [](ProgramBuilder& branch) {
    branch.text(" Then").gen("way", {.max_tokens = 8});
  });
  build.join("ways");
  return build.take();
}

// Sends a generation as a request of its own, to another engine.
std::string alone(const StoryEngine& engine, const GenerationAsk& ask) {
  const auto request = request_of(ask, engine.named());
  EXPECT_TRUE(request.ok());
  auto stream = engine.engine->submit(*request);
  EXPECT_TRUE(stream.ok()) << (stream.ok() ? "" : stream.error().message);
  std::string text;
  while (auto event = (*stream)->next()) text += event->text;
  return text;
}

TEST(EngineGenerator, ResultsAreThoseOfSeparateRequests) {
  const Program program = sixteen_branches();
  const auto together = run_on(story_engine(), program);
  ASSERT_TRUE(together.ok()) << together.error().message;
  ASSERT_EQ(together->steps.size(), 17u);
  const StoryEngine other(1);
  const std::string begin = std::get<TextStep>(program.steps[0].what).text;
  std::string opening;
  std::vector<std::string> distinct;
  for (const StepReport& step : together->steps) {
    GenerationAsk ask;
    ask.text = step.name == "opening" ? begin : begin + opening + " Then";
    ask.settings.max_tokens = step.name == "opening" ? 12 : 8;
    ask.settings.seed = step.seed;
    EXPECT_EQ(step.text, alone(other, ask)) << step.branch;
    if (step.name == "opening")
      opening = step.text;
    else
      distinct.push_back(step.text);
  }
  std::ranges::sort(distinct);
  EXPECT_GT(std::unique(distinct.begin(), distinct.end()) - distinct.begin(), 4);  // seeds differ
  const auto one_by_one = run_on(other, program, 1);
  ASSERT_TRUE(one_by_one.ok());
  EXPECT_EQ(one_by_one->text, together->text);
  EXPECT_EQ(one_by_one->usage.at_once, 1);
  EXPECT_EQ(together->usage.at_once, 16);
}

// The prefix cache has nearly all prompt tokens of the branches of a program with 16 branches.
TEST(EngineGenerator, BranchesShareTheirPrefix) {
  const StoryEngine fresh;
  const auto result = run_on(fresh, sixteen_branches());
  ASSERT_TRUE(result.ok()) << result.error().message;
  int64_t prompt = 0, cached = 0;
  for (const StepReport& step : result->steps) {
    if (step.name != "way") continue;
    prompt += step.prompt_tokens;
    cached += step.cached_tokens;
  }
  EXPECT_GT(static_cast<double>(cached), 0.8 * static_cast<double>(prompt)) << cached << " of " << prompt;
}

TEST(EngineGenerator, SelectReadsTheModelsOwnLogProbabilities) {
  const auto program = read_program(parse_json(R"({"steps": [
    {"text": "Once upon a"}, {"select": "next", "choices": [" xylophone", " time", " but"]}]})"));
  ASSERT_TRUE(program.ok()) << program.error().message;
  const auto result = run_on(story_engine(), *program);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "Once upon a time");
  ASSERT_EQ(result->steps[0].scores.size(), 3u);
  // The log-probability of " time" is that of the unconstrained likeliest answer.
  GenerationAsk ask;
  ask.text = "Once upon a";
  ask.settings.max_tokens = 1;
  ask.settings.temperature = 0;
  ask.score = true;
  auto stream = story_engine().engine->submit(*request_of(ask, story_engine().named()));
  ASSERT_TRUE(stream.ok());
  const auto first = (*stream)->next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->text, " time");
  EXPECT_NEAR(result->steps[0].scores[1], static_cast<double>(first->logprob.logprob), 1e-5);
}

TEST(EngineGenerator, ConstraintsHoldAndErrorsAreNamed) {
  const auto program = read_program(parse_json(R"({"steps": [
    {"text": "Call me at "}, {"gen": "number", "regex": "[0-9]{3}-[0-9]{4}", "max_tokens": 16},
    {"text": " "}, {"gen": "person", "json_schema": {"type": "object", "properties": {"age": {"type": "integer",
     "minimum": 1, "maximum": 99}}, "required": ["age"], "additionalProperties": false}, "max_tokens": 40}]})"));
  ASSERT_TRUE(program.ok()) << program.error().message;
  const auto result = run_on(story_engine(), *program);
  ASSERT_TRUE(result.ok()) << result.error().message;
  const std::string number = result->variables.find("number")->second;
  EXPECT_EQ(number.size(), 8u) << number;
  EXPECT_EQ(number.find('-'), 3u);
  const auto person = parse_json(result->variables.find("person")->second);
  ASSERT_TRUE(person.is_object());
  EXPECT_TRUE(person["age"].is_number_integer());
  EXPECT_EQ(program_json(*result, 0.5)["usage"]["requests"], 2);

  for (const auto& [steps, message] :
       std::vector<std::pair<std::string, std::string>>{{R"([{"text": "x"}, {"gen": "a", "regex": "("}])", "gen a: "},
                                                        {R"([{"text": "x"}, {"gen": "a", "model": "large"}])",
                                                         "gen a: model 'large': is not a model of this run"}}) {
    const auto bad = run_on(story_engine(), *read_program(parse_json("{\"steps\": " + steps + "}")));
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.error().kind, ErrorKind::user);
    EXPECT_TRUE(bad.error().message.starts_with(message)) << bad.error().message;
  }
}

TEST(EngineGenerator, AStoppedRunCancelsItsGenerations) {
  const StoryEngine engine;
  EngineGenerator generator({engine.named()});
  ProgramBuilder build;
  build.text("Once upon a time").fork("many", 16, [](ProgramBuilder& branch) { branch.gen("a", {.max_tokens = 200}); });
  build.join("many");
  const auto result = run_program(build.take(), {}, generator, {}, [] { return false; });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::cancelled);
}

}  // namespace
}  // namespace millrace
