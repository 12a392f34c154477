// The JSON form of programs, its errors, and the limits that are checked before a program runs.
#include "program/program_reader.h"

#include <gtest/gtest.h>

#include "base/json_text.h"
#include "program/program_test.h"

namespace millrace {
namespace {

using namespace testing;

Result<Program> read_text(const std::string& text) { return read_program(parse_json(text)); }

// The error of reading or checking a program with these steps; "": none.
std::string wrong_steps(const std::string& steps, const std::string& more = "") {
  const auto program = read_text("{\"steps\": " + steps + more + "}");
  if (!program.ok()) return program.error().message;
  const auto size = check_program(*program, {});
  return size.ok() ? "" : size.error().message;
}

TEST(ProgramReader, ReadsEveryKindOfStep) {
  const auto program = read_text(R"({
    "variables": {"topic": "rain"}, "seed": 7, "output": "{best}",
    "messages": [{"role": "system", "content": "Be brief about {topic}."}, {"role": "user", "content": "Go."}],
    "steps": [
      {"text": "Well, "},
      {"gen": "draft", "max_tokens": 9, "stop": "\n", "temperature": 0, "top_p": 0.5, "min_p": 0.1, "top_k": 3, "seed": 5,
       "regex": "[a-z]+", "model": "small", "score": true, "append": false},
      {"set": "twice", "value": "{draft}{draft}"},
      {"if": "twice", "is": "xx", "steps": [{"text": "!"}]},
      {"if": "draft", "below": 0.25, "steps": [{"gen": "draft", "json_schema": {"type": "object"}}]},
      {"select": "mood", "choices": ["good", "bad"]},
      {"user": "More."},
      {"fork": "two", "branches": [[{"gen": "a", "score": true}], [{"text": "x"}, {"gen": "a", "score": true}]]},
      {"fork": "many", "count": 3, "steps": [{"gen": "b", "json": true}]},
      {"fork": "lines", "each": "draft", "as": "point", "numbered": true, "most": 5,
       "steps": [{"text": "{point}"}, {"gen": "c", "choices": ["p", "q"]}]},
      {"join": "lines", "text": "{point}={c}", "separator": ", ", "append": false},
      {"vote": "vote", "fork": "many", "of": "b", "after": "is "},
      {"best": "best", "fork": "two", "of": "a"}
    ]})");
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_EQ(program->steps.size(), 13u);
  EXPECT_EQ(program->seed, 7u);
  EXPECT_TRUE(has_messages(*program));
  const auto& gen = std::get<GenStep>(program->steps[1].what);
  EXPECT_EQ(gen.settings.max_tokens, 9);
  EXPECT_EQ(gen.settings.stop, std::vector<std::string>{"\n"});
  EXPECT_EQ(*gen.settings.top_k, 3);
  EXPECT_EQ(*gen.settings.seed, 5u);
  EXPECT_EQ(gen.settings.constraint.kind, Constraint::Kind::regex);
  EXPECT_TRUE(gen.score);
  EXPECT_FALSE(gen.append);
  const auto& lines = std::get<ForkStep>(program->steps[9].what);
  EXPECT_EQ(lines.most, 5);
  EXPECT_TRUE(lines.numbered);
  const auto size = check_program(*program, {});
  ASSERT_TRUE(size.ok()) << size.error().message;
  EXPECT_EQ(size->requests, 1 + 1 + 2 + 2 + 3 + 5);
  EXPECT_EQ(size->tokens, 9 + 128 + 2 * 5 + 2 * 128 + 3 * 128 + 5 * 128);
}

TEST(ProgramReader, ErrorsNameThePlace) {
  EXPECT_EQ(read_program(parse_json("[1]")).error().message, ": must be an object");
  EXPECT_EQ(wrong_steps("3"), "steps: must be a list of steps");
  EXPECT_EQ(wrong_steps("[]"), "steps: a program needs at least one");
  EXPECT_EQ(wrong_steps("[{\"text\": \"x\"}]", ", \"step\": 1"),
            "step: is not a key of this object; see docs/programs.md");
  EXPECT_EQ(wrong_steps("[{\"text\": 1}]"), "steps[0].text: must be a string");
  EXPECT_EQ(wrong_steps("[{\"words\": 1}]"),
            "steps[0]: has none of the keys text, user, system, set, gen, select, fork, join, vote, best, if");
  EXPECT_EQ(wrong_steps(R"([{"gen": "a", "max_tokens": 0}])"),
            "steps[0].max_tokens: must be a number from 1 to 262144");
  EXPECT_EQ(wrong_steps(R"([{"gen": "a", "max_tokens": 1.5}])"),
            "steps[0].max_tokens: must be a whole number from 1 to 262144");
  EXPECT_EQ(wrong_steps(R"([{"gen": "a", "temperatur": 0}])"),
            "steps[0].temperatur: is not a key of this object; see docs/programs.md");
  EXPECT_EQ(wrong_steps(R"([{"gen": "a", "regex": "a", "json": true}])"),
            "steps[0].json: cannot be combined with regex");
  EXPECT_EQ(wrong_steps(R"([{"fork": "f", "steps": []}])"),
            "steps[0].fork: needs exactly one of branches, count and each");
  EXPECT_EQ(wrong_steps(R"([{"fork": "f", "branches": [[{"text": "a"}], [{"gen": 1}]]}])"),
            "steps[0].branches[1][0].gen: must be a string");
  EXPECT_EQ(wrong_steps(R"([{"if": "a", "steps": []}])"), "steps[0].if: needs exactly one of below and is");
}

TEST(ProgramReader, NamesMustBeSetBeforeTheyAreRead) {
  EXPECT_EQ(wrong_steps(R"([{"text": "{a}"}])"), "steps[0]: {a}: is not set before this step");
  EXPECT_EQ(wrong_steps(R"([{"text": "{"}])"),
            "steps[0]: '{' at byte 0 is not around the name of a variable; write '{{' for a brace");
  EXPECT_EQ(wrong_steps(R"([{"gen": "9a"}])"), "steps[0]: '9a' is not a name; write 1 to 64 letters, digits and '_'");
  EXPECT_EQ(wrong_steps(R"([{"gen": "index"}])"),
            "steps[0]: 'index' is the name of a branch's own number; choose another");
  EXPECT_EQ(wrong_steps(R"([{"join": "f"}])"), "steps[0]: 'f' is not a fork before this step");
  // After a join, the variables of a branch are known only in the text of the join.
  const std::string fork = R"({"fork": "f", "count": 2, "steps": [{"gen": "a"}]})";
  EXPECT_EQ(wrong_steps("[" + fork + R"(, {"join": "f", "text": "{index} {a}"}, {"text": "{f}"}])"), "");
  EXPECT_EQ(wrong_steps("[" + fork + R"(, {"join": "f"}, {"text": "{a}"}])"),
            "steps[2]: {a}: is not set before this step");
  EXPECT_EQ(wrong_steps("[" + fork + R"(, {"text": "{f}"}])"), "steps[1]: {f}: is not set before this step");
  EXPECT_EQ(wrong_steps("[" + fork + R"(, {"join": "f"}, {"join": "f"}])"), "steps[2]: 'f' has been joined before");
  EXPECT_EQ(wrong_steps("[" + fork + R"(, {"best": "b", "fork": "f", "of": "a"}])"),
            "steps[1]: of: 'a' is not a gen with \"score\": true in every branch of 'f'");
  EXPECT_EQ(
      wrong_steps(
          R"([{"fork": "f", "branches": [[{"gen": "a"}], [{"gen": "b"}]]}, {"vote": "v", "fork": "f", "of": "a"}])"),
      "steps[1]: of: 'a' is not set in every branch of 'f'");
  EXPECT_EQ(wrong_steps(R"([{"gen": "a"}, {"if": "a", "below": 1, "steps": [{"text": "x"}]}])"),
            "steps[1]: if: 'a' is not a gen with \"score\": true before this step");
  EXPECT_EQ(wrong_steps(
                R"([{"gen": "a", "score": true}, {"if": "a", "below": 1, "steps": [{"gen": "b"}]}, {"text": "{b}"}])"),
            "steps[2]: {b}: is not set before this step");
  EXPECT_EQ(wrong_steps(R"([{"text": "x"}, {"user": "y"}])"),
            "steps[1]: a message, in a program that begins with text; begin with a message");
}

TEST(ProgramReader, LimitsHoldBeforeTheRun) {
  EXPECT_EQ(wrong_steps(R"([{"fork": "f", "count": 257, "steps": [{"text": "x"}]}])"),
            "steps[0].count: must be a number from 1 to 256");
  const auto nested = [](int deep) {
    std::string steps = R"([{"text": "x"}])";
    for (int i = 0; i < deep; ++i)
      steps = R"([{"fork": "f)" + std::to_string(i) + R"(", "count": 1, "steps": )" + steps + "}]";
    return steps;
  };
  EXPECT_EQ(wrong_steps(nested(4)), "");
  EXPECT_NE(wrong_steps(nested(5)).find("more than 4 forks inside of each other"), std::string::npos);
  EXPECT_NE(wrong_steps(nested(40)).find("more than 16 lists inside of each other"), std::string::npos);
  EXPECT_EQ(
      wrong_steps(R"([{"fork": "f", "count": 40, "steps": [{"fork": "g", "count": 40, "steps": [{"gen": "a"}]}]}])"),
      "steps[0].branches[0][0].branches[0][0]: the program may send more than 1024 generations");
  EXPECT_EQ(wrong_steps(R"([{"fork": "f", "count": 9, "steps": [{"gen": "a", "max_tokens": 30000}]}])"),
            "steps[0].branches[0][0]: the program may generate more than 262144 tokens; lower max_tokens");
}

// The fork in the `if` would replace the one that the vote was checked with.
TEST(ProgramChecker, AForkInAnIfHasANameOfItsOwn) {
  const std::string fork = R"({"fork": "f", "count": 2, "steps": [{"set": "a", "value": "1"}]})";
  const std::string other = R"({"fork": "NAME", "count": 2, "steps": [{"set": "b", "value": "2"}]})";
  for (const std::string name : {"f", "g"}) {
    std::string inner = other;
    inner.replace(inner.find("NAME"), 4, name);
    const auto program =
        read_text(R"({"variables": {"x": "y"}, "steps": [)" + fork + R"(, {"if": "x", "is": "y", "steps": [)" + inner +
                  R"(]}, {"vote": "v", "fork": "f", "of": "a"}]})");
    ASSERT_TRUE(program.ok()) << program.error().message;
    const auto size = check_program(*program, {});
    EXPECT_EQ(size.ok(), name == "g");
    if (!size.ok())
      EXPECT_NE(size.error().message.find("fork 'f' has been begun before the if"), std::string::npos)
          << size.error().message;
  }
}

// Small programs that would execute for minutes.
TEST(ProgramChecker, BranchesAndStepsOfAllForksAreBounded) {
  std::string wide = R"({"set": "a", "value": "1"})";
  for (int i = 0; i < 3; ++i)
    wide = R"({"fork": "f)" + std::to_string(i) + R"(", "count": 64, "steps": [)" + wide + "]}";
  const auto forks = check_program(*read_text(R"({"steps": [)" + wide + "]}"), {});
  ASSERT_FALSE(forks.ok());
  EXPECT_NE(forks.error().message.find("more than 4096 branches"), std::string::npos) << forks.error().message;
  std::string steps;
  for (int i = 0; i < 400; ++i) steps += std::string(i > 0 ? "," : "") + R"({"set": "a", "value": "1"})";
  const auto many =
      check_program(*read_text(R"({"steps": [{"fork": "f", "count": 256, "steps": [)" + steps + "]}]}"), {});
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().message.find("execute more than 65536 steps"), std::string::npos) << many.error().message;
}

}  // namespace
}  // namespace millrace
