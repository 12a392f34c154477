// Programs step by step, with a generator that is a function of its prompt.
#include "program/run.h"

#include <gtest/gtest.h>

#include <cmath>

#include "program/builder.h"
#include "program/program_test.h"

namespace millrace {
namespace {

using namespace testing;

// Answers "<bytes of the prompt>" and is less sure of longer prompts.
Result<GenerationOutcome> by_length(const GenerationAsk& ask) {
  const auto length = static_cast<float>(ask.text.size());
  return outcome("<" + std::to_string(ask.text.size()) + ">", {-length, -length});
}

TEST(ProgramRun, TextsAndGenerationsFollowEachOther) {
  ScriptedGenerator model(by_length);
  ProgramBuilder build;
  build.variable("who", "Ann").text("Hi {who}").gen("first").text("; {first} {{x}}").gen("second");
  const auto result = run_scripted(build.take(), model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "Hi Ann<6>; <6> {x}<18>");
  EXPECT_EQ(result->variables.find("second")->second, "<18>");
  ASSERT_EQ(model.asks.size(), 2u);
  EXPECT_EQ(model.asks[1].text, "Hi Ann<6>; <6> {x}");
  EXPECT_EQ(result->usage.requests, 2);
  EXPECT_EQ(result->usage.prompt_tokens, 20);
  EXPECT_EQ(result->usage.cached_tokens, 8);
  EXPECT_EQ(result->usage.generated_tokens, 6);
}

TEST(ProgramRun, ValuesOfTheCallReplaceThoseOfTheProgram) {
  ScriptedGenerator model(by_length);
  ProgramBuilder build;
  build.variable("who", "Ann").text("{who}");
  // A value is not searched for names.
  EXPECT_EQ(run_scripted(build.take(), model, {{"who", "{who}"}})->text, "{who}");
  ProgramBuilder other;
  other.text("x");
  EXPECT_EQ(run_scripted(other.take(), model, {{"whom", "Bob"}}).error().message,
            "variable whom: the program has no such variable");
}

TEST(ProgramRun, MessagesBecomeAConversation) {
  ScriptedGenerator model([](const GenerationAsk& ask) { return outcome(ask.text + "!"); });
  ProgramBuilder build;
  build.system("Be kind.").user("One?").text("So: ").gen("a").user("Two, after {a}?").gen("b");
  const auto result = run_scripted(build.take(), model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(model.asks.size(), 2u);
  EXPECT_EQ(model.asks[0].messages.size(), 2u);
  EXPECT_EQ(model.asks[0].text, "So: ");
  ASSERT_EQ(model.asks[1].messages.size(), 4u);
  EXPECT_EQ(model.asks[1].messages[2].role, "assistant");
  EXPECT_EQ(model.asks[1].messages[2].content, "So: So: !");
  EXPECT_EQ(model.asks[1].messages[3].content, "Two, after So: !?");
  EXPECT_EQ(model.asks[1].text, "");
  EXPECT_EQ(result->text, "!");
}

// The branches' texts, seeds and results are the same in any order of their answers, and for any number at once.
TEST(ProgramRun, ForksDoNotDependOnTheOrderOfAnswers) {
  const auto program = [] {
    ProgramBuilder build;
    build.seed(100).text("Q").fork("parts", 3, [](ProgramBuilder& branch) {
      branch.text(" {index} of {count}").gen("word").fork("twice", 2, [](ProgramBuilder& inner) {
        inner.text("+{index}").gen("more");
      });
      branch.join("twice", "{more}", "&");
    });
    build.text(" A:").join("parts", "", " | ");
    return build.take();
  };
  std::vector<std::string> texts;
  for (const bool newest_first : {false, true}) {
    for (const int64_t at_once : {1, 2, 16}) {
      ScriptedGenerator model([](const GenerationAsk& ask) {
        return outcome("<" + std::to_string(ask.text.size()) + " s" + std::to_string(*ask.settings.seed) + ">");
      });
      const auto result = run_scripted(program(), model, {}, at_once, newest_first);
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_LE(model.most_open, static_cast<size_t>(at_once));
      EXPECT_EQ(result->usage.requests, 9);
      EXPECT_EQ(result->usage.branches, 10);
      texts.push_back(result->text);
    }
  }
  EXPECT_EQ(
      texts[0],
      "Q A: 1 of 3<8 s100><18 s100>&<18 s1124> |  2 of 3<8 s101><18 s101>&<18 s1125> |  3 of 3<8 s102><18 s102>&<18 "
      "s1126>");
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

// Branches of one fork follow each other, so that their common text is still cached.
TEST(ProgramRun, WaitingBranchesOfOneForkComeTogether) {
  ProgramBuilder build;
  build.fork("outer", 2, [](ProgramBuilder& branch) {
    branch.fork("inner", 3, [](ProgramBuilder& inner) { inner.text("x").gen("a").text("y").gen("b"); });
    branch.join("inner");
  });
  build.join("outer");
  ScriptedGenerator model([](const GenerationAsk&) { return outcome("."); });
  std::vector<std::string> order;
  Result<ProgramResult> result = Error::internal("not ended");
  auto run = ProgramRun::start(
      build.take(), {}, model,
      {.at_once = 1, .limits = {}, .on_step = [&](const StepReport& step) { order.push_back(step.branch); }},
      [&](Result<ProgramResult> out) { result = std::move(out); });
  ASSERT_TRUE(run.ok());
  model.finish_all();
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(order.size(), 12u);
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(order[i].starts_with("outer.1/")) << i << " " << order[i];
}

TEST(ProgramRun, AForkOfLinesHasABranchForEach) {
  ScriptedGenerator model([](const GenerationAsk& ask) {
    return outcome(ask.text.ends_with("List:\n") ? "1. red\n\nno point\n2. blue \n3. green\n" : "ok");
  });
  ProgramBuilder build;
  build.text("List:\n").gen("points").fork_each(
      "about", "points", "colour", [](ProgramBuilder& branch) { branch.text("{colour}: ").gen("said"); }, true, 2);
  build.join("about", "{index}. {colour} {said}");
  build.output("{about}");
  EXPECT_EQ(run_scripted(build.take(), model)->text, "1. red ok\n2. blue ok");
}

TEST(ProgramRun, AForkWithoutLinesIsEmpty) {
  ScriptedGenerator model([](const GenerationAsk&) { return outcome("no list"); });
  ProgramBuilder build;
  build.text("x").gen("points").fork_each(
      "about", "points", "line", [](ProgramBuilder& branch) { branch.gen("said"); }, true);
  build.join("about");
  const auto result = run_scripted(build.take(), model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "xno list");
  EXPECT_EQ(result->usage.requests, 1);
}

// The choice with the highest mean log-probability of its tokens, not of their sum.
TEST(ProgramRun, SelectTakesTheLikeliestChoice) {
  ScriptedGenerator model([](const GenerationAsk& ask) -> Result<GenerationOutcome> {
    EXPECT_EQ(ask.settings.constraint.kind, Constraint::Kind::choice);
    EXPECT_EQ(*ask.settings.temperature, 0);
    EXPECT_TRUE(ask.score);
    const std::string& choice = ask.settings.constraint.choices.at(0);
    if (choice == "a") return outcome(choice, {-1.0F});
    return outcome(choice, {-0.5F, -0.75F, -0.5F});
  });
  ProgramBuilder build;
  build.text("Say ").select("word", {"a", "bcd"});
  const auto result = run_scripted(build.take(), model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "Say bcd");
  ASSERT_EQ(result->steps.size(), 1u);
  EXPECT_DOUBLE_EQ(result->steps[0].scores[0], -1);
  EXPECT_NEAR(result->steps[0].scores[1], -1.75 / 3, 1e-12);
}

TEST(ProgramRun, VotesCountEqualParts) {
  ScriptedGenerator model([](const GenerationAsk& ask) {
    static const char* kAnswers[] = {"so it is 7.", "The answer is 8.", "The answer is 9.", "2+7: The answer is 9 ",
                                     "The answer is 8.\nThe answer is 1"};
    return outcome(kAnswers[*ask.settings.seed]);
  });
  const auto program = [](const std::string& after) {
    ProgramBuilder build;
    build.text("Q").fork("samples", 5, [](ProgramBuilder& branch) { branch.gen("a"); });
    build.vote("answer", "samples", "a", after).output("{answer}");
    return build.take();
  };
  EXPECT_EQ(run_scripted(program("The answer is "), model)->text, "9");
  EXPECT_EQ(run_scripted(program(""), model)->text, "so it is 7.");  // all differ: the first
  EXPECT_EQ(run_scripted(program("=>"), model)->text, "");           // none has one
}

TEST(ProgramRun, AVoteKeepsTheFirstWholeAnswer) {
  ScriptedGenerator model([](const GenerationAsk& ask) {
    static const char* kAnswers[] = {"x: 1", "ways a: 2", "no result", "ways b: 2"};
    return outcome(kAnswers[*ask.settings.seed]);
  });
  ProgramBuilder build;
  build.text("Q").fork("samples", 4, [](ProgramBuilder& branch) { branch.gen("a"); });
  build.vote_as({.name = "v", .fork = "samples", .of = "a", .after = ": ", .whole = true}).output("{v}");
  EXPECT_EQ(run_scripted(build.take(), model)->text, "ways a: 2");
}

TEST(ProgramRun, IfComparesAVariable) {
  for (const std::string mood : {"good", "bad"}) {
    ScriptedGenerator model([&](const GenerationAsk&) { return outcome(mood); });
    ProgramBuilder build;
    build.text("Q").gen("mood").if_is("mood", "good", [](ProgramBuilder& then) { then.text("!"); });
    build.set("twice", "{mood}-{mood}").output("{twice}");
    const auto result = run_scripted(build.take(), model);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->text, mood + "-" + mood);
    ProgramBuilder again;
    again.text("Q").gen("mood").if_is("mood", "good", [](ProgramBuilder& then) { then.text("!"); });
    EXPECT_EQ(run_scripted(again.take(), model)->text, mood == "good" ? "Qgood!" : "Qbad");
  }
}

TEST(ProgramRun, TheBestHasTheHighestMeanLogProbability) {
  ScriptedGenerator model([](const GenerationAsk& ask) -> Result<GenerationOutcome> {
    if (*ask.settings.seed == 0) return outcome("none", {});
    return outcome("s" + std::to_string(*ask.settings.seed), {-3.0F + static_cast<float>(*ask.settings.seed % 3), -1});
  });
  ProgramBuilder build;
  GenStep step;
  step.name = "a";
  step.score = true;
  build.text("Q").fork("samples", 5, [&](ProgramBuilder& branch) { branch.gen(step); });
  build.best("best", "samples", "a").output("{best}");
  EXPECT_EQ(run_scripted(build.take(), model)->text, "s2");
}

TEST(ProgramRun, IfRunsBelowTheConfidence) {
  for (const bool sure : {true, false}) {
    ScriptedGenerator model([&](const GenerationAsk& ask) {
      return ask.settings.model.empty() ? outcome("small", {sure ? std::log(0.75F) : std::log(0.25F)})
                                        : outcome("large");
    });
    GenStep small;
    small.name = "answer";
    small.score = true;
    small.append = false;
    ProgramBuilder build;
    build.user("Q").gen(small).if_below("answer", 0.5, [](ProgramBuilder& then) {
      GenStep large;
      large.name = "answer";
      large.settings.model = "large";
      large.append = false;
      then.gen(large);
    });
    build.text("{answer}");
    const auto result = run_scripted(build.take(), model);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->text, sure ? "small" : "large");
    EXPECT_EQ(model.asks.back().text, "");  // the first answer is not a part of the second one's prompt
  }
}

TEST(ProgramRun, AnErrorNamesItsStepAndEndsTheOthers) {
  ScriptedGenerator model([](const GenerationAsk& ask) -> Result<GenerationOutcome> {
    if (ask.text == "2") return Error::resource("queue: is full");
    return outcome("ok");
  });
  ProgramBuilder build;
  build.fork("parts", 3, [](ProgramBuilder& branch) { branch.text("{index}").gen("a").gen("b"); });
  build.join("parts");
  const auto result = run_scripted(build.take(), model);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "parts.2: gen a: queue: is full");
  EXPECT_EQ(result.error().kind, ErrorKind::resource);
  EXPECT_EQ(model.open(), 0u);
}

TEST(ProgramRun, ACancelledRunAsksNothingMore) {
  ScriptedGenerator model([](const GenerationAsk&) { return outcome("ok"); });
  ProgramBuilder build;
  build.fork("parts", 8, [](ProgramBuilder& branch) { branch.text("x").gen("a"); });
  build.join("parts");
  bool ended = false;
  auto run = ProgramRun::start(build.take(), {}, model, {.at_once = 2, .limits = {}, .on_step = {}},
                               [&](const Result<ProgramResult>&) { ended = true; });
  ASSERT_TRUE(run.ok());
  (*run)->cancel();
  model.finish_all();
  EXPECT_FALSE(ended);
  EXPECT_EQ(model.asks.size(), 2u);
}

TEST(ProgramRun, GrowingTextsAreRefused) {
  ScriptedGenerator model([](const GenerationAsk&) { return outcome(std::string(300, 'x')); });
  ProgramBuilder build;
  build.text("Q").gen("a").text("{a}{a}{a}");
  Result<ProgramResult> result = Error::internal("not ended");
  ProgramRun::Options options;
  options.limits.text_bytes = 1000;
  auto run =
      ProgramRun::start(build.take(), {}, model, options, [&](Result<ProgramResult> out) { result = std::move(out); });
  ASSERT_TRUE(run.ok());
  model.finish_all();
  EXPECT_EQ(result.error().message, "the text has more than 1000 bytes");
  ProgramBuilder wide;
  wide.text(std::string(600, 'x')).fork("parts", 8, [](ProgramBuilder& branch) { branch.gen("a"); });
  options.limits.copied_bytes = 5000;
  run = ProgramRun::start(wide.take(), {}, model, options, [&](Result<ProgramResult> out) { result = std::move(out); });
  ASSERT_TRUE(run.ok());
  model.finish_all();
  EXPECT_EQ(result.error().message.substr(result.error().message.find("the program")),
            "the program's branches and prompts have more than 5000 bytes together");
}

// A text of many names is refused before it exists, and so are its relatives.
TEST(ProgramRun, TextsAreRefusedBeforeTheyAreMade) {
  ScriptedGenerator model(by_length);
  const std::string long_value(1 << 20, 'x');
  for (const std::string step : {"text", "join", "output", "set"}) {
    std::string names;
    for (int i = 0; i < 20000; ++i) names += "{x}";
    ProgramBuilder build;
    build.variable("x", long_value);
    if (step == "text") build.text(names);
    if (step == "set") build.set("y", names);
    if (step == "join")
      build.fork("f", 200, [](ProgramBuilder& branch) { branch.set("y", "1"); }).join("f", "{x}", " ");
    Program program = build.take();
    if (step == "output") program.output = names;
    if (program.steps.empty()) program.steps.push_back({TextStep{"a"}});
    const auto result = run_scripted(std::move(program), model);
    EXPECT_FALSE(result.ok()) << step;
    if (!result.ok()) EXPECT_NE(result.error().message.find("bytes"), std::string::npos) << result.error().message;
  }
}

}  // namespace
}  // namespace millrace
