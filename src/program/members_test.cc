// Members of the family program: the programs that they write, executed with a scripted generator.
#include <gtest/gtest.h>

#include <cmath>

#include "program/member.h"
#include "program/program_test.h"

namespace millrace {
namespace {

using namespace testing;

ProgramQuestion question_of(std::string text) {
  ProgramQuestion out;
  out.messages = {{"system", "Be {kind}."}, {"user", std::move(text)}};
  out.seed = 40;
  return out;
}

Result<ProgramResult> answer_with(const std::string& member, const std::string& question, ScriptedGenerator& model) {
  const auto made = make_program_member(member);
  if (!made.ok()) return made.error();
  return run_scripted((*made)->program(question_of(question)), model);
}

TEST(ProgramMembers, EveryMemberAnswersAQuestionWithBraces) {
  for (const auto& entry : program_members().entries()) {
    ScriptedGenerator model([](const GenerationAsk& ask) {
      EXPECT_EQ(ask.messages.at(0).content, "Be {kind}.");
      EXPECT_NE(ask.messages.back().content.find("What is {x}?"), std::string::npos);
      return outcome(ask.settings.constraint.choices.empty() ? "An answer." : ask.settings.constraint.choices[0], {-1});
    });
    const std::string options = entry.info.name == "model_cascade" ? ":models=b,thresholds=0.9" : "";
    const auto result = answer_with(entry.info.name + options, "What is {x}?", model);
    ASSERT_TRUE(result.ok()) << entry.info.name << ": " << result.error().message;
    EXPECT_NE(result->text.find("An answer."), std::string::npos) << entry.info.name;
    for (const GenerationAsk& ask : model.asks) EXPECT_GE(*ask.settings.seed, 40u);
  }
}

TEST(ProgramMembers, BestOfKeepsTheLikeliest) {
  ScriptedGenerator model([](const GenerationAsk& ask) {
    const auto seed = static_cast<int>(*ask.settings.seed);
    return outcome(std::to_string(seed), {seed == 43 ? -0.5F : -1.0F, -1.0F});
  });
  const auto result = answer_with("best_of:n=6,temperature=0.7", "Q", model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "43");
  EXPECT_EQ(model.asks.size(), 6u);
  EXPECT_EQ(*model.asks[0].settings.temperature, 0.7);
}

TEST(ProgramMembers, SelfConsistencyKeepsTheMajority) {
  ScriptedGenerator model([](const GenerationAsk& ask) {
    const auto seed = *ask.settings.seed;
    return outcome("way " + std::to_string(seed) + ". The answer is " + (seed % 2 == 0 ? "7." : "8."));
  });
  const auto result = answer_with("self_consistency:n=3", "Q", model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "way 40. The answer is 7.");
}

TEST(ProgramMembers, ASkeletonWritesItsPointsAtTheSameTime) {
  ScriptedGenerator model([](const GenerationAsk& ask) {
    if (ask.text.empty()) return outcome("Points:\n1. bell\n2. cup\n");
    if (ask.text == "Points:\n1. bell\n2. cup\nDetails:\n1. The bell") return outcome(" is red.");
    if (ask.text == "Points:\n1. bell\n2. cup\nDetails:\n2. The cup") return outcome(" is small.");
    return outcome("?");
  });
  const auto result = answer_with("skeleton:form=headings", "List the bell and the cup.", model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "Points:\n1. bell\n2. cup\nDetails:\n1. The bell is red.\n2. The cup is small.");
  EXPECT_EQ(model.most_open, 2u);
  EXPECT_EQ(model.asks[0].settings.stop, std::vector<std::string>{"Details:\n"});
}

TEST(ProgramMembers, ASkeletonByPromptsAsksForOnePointAtATime) {
  ScriptedGenerator model([](const GenerationAsk& ask) {
    if (ask.text == "1.") return outcome(" Smoke\n2. Hive\n");
    return outcome(ask.text.starts_with("1.") ? ": calms them." : ": is their home.");
  });
  const auto result = answer_with("skeleton:point_tokens=50", "How?", model);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->text, "1. Smoke: calms them.\n2. Hive: is their home.");
  ASSERT_EQ(model.asks.size(), 3u);
  EXPECT_NE(model.asks[2].messages.back().content.find("1. Smoke\n2. Hive"), std::string::npos);
  EXPECT_NE(model.asks[2].messages.back().content.find("point 2"), std::string::npos);
  EXPECT_EQ(model.asks[2].settings.max_tokens, 50);
}

TEST(ProgramMembers, TheRouterAnswersOtherQuestionsPlainly) {
  for (const bool list : {true, false}) {
    ScriptedGenerator model([&](const GenerationAsk& ask) {
      if (ask.settings.stop == std::vector<std::string>{"\n"} && ask.text.empty())
        return outcome(list ? " Points:" : "Hello");
      if (ask.settings.stop == std::vector<std::string>{"Details:\n"}) return outcome("Points:\n1. bell\n");
      return outcome(list ? " is red." : "Hello there");
    });
    const auto result = answer_with("skeleton_router:form=headings", "Q", model);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->text, list ? "Points:\n1. bell\nDetails:\n1. The bell is red." : "Hello there");
  }
  for (const bool list : {true, false}) {
    ScriptedGenerator model([&](const GenerationAsk& ask) {
      if (!ask.settings.constraint.choices.empty()) {
        const std::string& choice = ask.settings.constraint.choices[0];
        return outcome(choice, {(choice == "yes") == list ? -0.1F : -2.0F});
      }
      return outcome(ask.text == "1." ? " Point" : ask.text.empty() ? "Plain." : ": text");
    });
    const auto result = answer_with("skeleton_router", "Q", model);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->text, list ? "1. Point: text" : "Plain.");
  }
}

TEST(ProgramMembers, ACascadeAsksTheNextModelBelowItsThreshold) {
  const auto models_asked = [](float logprob) {
    ScriptedGenerator model([&](const GenerationAsk& ask) {
      return outcome("by " + ask.settings.model, {ask.settings.model == "b" ? std::log(0.7F) : logprob});
    });
    const auto result = answer_with("model_cascade:models=b/c,thresholds=0.9/0.6", "Q", model);
    EXPECT_TRUE(result.ok());
    return result->text + " of " + std::to_string(model.asks.size());
  };
  EXPECT_EQ(models_asked(std::log(0.95F)), "by  of 1");
  EXPECT_EQ(models_asked(std::log(0.5F)), "by b of 2");
  ScriptedGenerator unsure([](const GenerationAsk& ask) { return outcome("by " + ask.settings.model, {-2}); });
  EXPECT_EQ(answer_with("model_cascade:models=b/c,thresholds=0.9/0.6", "Q", unsure)->text, "by c");
}

TEST(ProgramMembers, WrongOptionsAreNamed) {
  EXPECT_EQ(make_program_member("tree").error().message,
            "program: unknown 'tree'; available: best_of, self_consistency, skeleton, skeleton_router, model_cascade");
  EXPECT_EQ(make_program_member("skeleton:form=x").error().message,
            "program skeleton: form: expected prompts or headings, got 'x'");
  EXPECT_EQ(
      make_program_member("model_cascade").error().message,
      "program model_cascade: models: names 1 to 8 models, separated by '/', which are asked after the model of the "
      "request");
  EXPECT_EQ(make_program_member("model_cascade:models=a/b,thresholds=0.5").error().message,
            "program model_cascade: thresholds: needs one number for each name in models, separated by '/'");
  EXPECT_EQ(make_program_member("model_cascade:models=a,thresholds=x").error().message,
            "program model_cascade: thresholds: 'x' is not a number from 0 to 2");
}

}  // namespace
}  // namespace millrace
