// Parsers of calls, each on whole answers, split at every byte, and byte by byte; and that what a structure allows, its
// parser reads.
#include <gtest/gtest.h>

#include <filesystem>

#include "shared_data.h"
#include "text/grammar/grammar_test.h"
#include "text/tools/dialects.h"
#include "text/tools/reasoning.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

const Tool kWeather = {"weather", "of a place", Json::parse(R"({"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"], "additionalProperties": false})")};
const Tool kClock = {"clock", "", Json::parse(R"({"type": "object", "properties": {}, "additionalProperties": false})")};
const std::vector<Tool> kTools = {kWeather, kClock};

// "text|name(arguments)|..."
std::string shown(const AnswerPieces& pieces) {
  std::string out;
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind == Kind::text) out += piece.text;
    if (piece.kind == Kind::reasoning) out += "{" + piece.text + "}";
    if (piece.kind == Kind::call) out += "|" + piece.text + "(";
    if (piece.kind == Kind::arguments) out += piece.text;
    if (piece.kind == Kind::call_end) out += ")|";
  }
  return out;
}

AnswerPieces parsed(const ToolDialect& dialect, std::initializer_list<std::string_view> parts) {
  auto parser = dialect.parser(kTools);
  AnswerPieces out;
  for (std::string_view part : parts) {
    AnswerPieces some;  // as events come
    parser->push(part, some);
    for (const AnswerPiece& piece : some) add_piece(out, piece.kind, piece.text);
  }
  parser->finish(out);
  return out;
}

void expect_reads(const ToolDialect& dialect, const std::string& text, const std::string& expected) {
  EXPECT_EQ(shown(parsed(dialect, {text})), expected) << dialect.name << ": " << text;
  for (size_t at = 1; at < text.size(); ++at)
    EXPECT_EQ(shown(parsed(dialect, {std::string_view(text).substr(0, at), std::string_view(text).substr(at)})), expected) << dialect.name << " at " << at << ": " << text;
  auto parser = dialect.parser(kTools);
  AnswerPieces out;
  for (char c : text) parser->push(std::string_view(&c, 1), out);
  parser->finish(out);
  EXPECT_EQ(shown(out), expected) << dialect.name << " by bytes: " << text;
}

TEST(ToolDialects, Hermes) {
  const ToolDialect& d = kHermesTools;
  expect_reads(d, "Just text, <tool or <tool_calls> and so on.\n", "Just text, <tool or <tool_calls> and so on.\n");
  expect_reads(d, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"a}\\\"b\", \"days\": 2}}\n</tool_call>", "|weather({\"place\": \"a}\\\"b\", \"days\": 2})|");
  expect_reads(d, "Let me see.\n\n<tool_call>{\"arguments\": {\"x\": [1, {}]}, \"name\": \"f\"}</tool_call>\n<tool_call>\n{\"name\": \"clock\"}\n</tool_call>\n",
               "Let me see.|f({\"x\": [1, {}]})||clock({})|");
  expect_reads(d, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\", \"id\": 7}</tool_call>behind", "|f({\"a\": 1})|behind");
  expect_reads(d, "<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>");
  expect_reads(d, "<tool_call>{\"nam", "<tool_call>{\"nam");
  expect_reads(d, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", "|f({\"a\": )|");
  expect_reads(d, "<tool_call>{\"name\": \"f\", \"arguments\": {}}<tool_call>{\"name\": \"g\", \"arguments\": {}}", "|f({})||g({})|");
}

TEST(ToolDialects, Llama) {
  const ToolDialect& d = kLlamaTools;
  expect_reads(d, "Plain {\"name\": \"f\"}", "Plain {\"name\": \"f\"}");
  expect_reads(d, "{\"name\": \"weather\", \"parameters\": {\"place\": \"x\"}}", "|weather({\"place\": \"x\"})|");
  expect_reads(d, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"a\": 1}}", "|f({})||g({\"a\": 1})|");
  expect_reads(d, " <|python", " <|python");
  expect_reads(d, "{\"no\": 1}", "{\"no\": 1}");
  expect_reads(d, "{ 1", "{ 1");
}

TEST(ToolDialects, Mistral) {
  for (const ToolDialect* d : {&kMistralTools, &kMistralArgsTools}) {
    expect_reads(*d, "text [TOOL", "text [TOOL");
    expect_reads(*d, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}, {\"name\": \"g\", \"arguments\": {}}]", "|f({\"a\": 1})||g({})|");
    expect_reads(*d, "So:[TOOL_CALLS]f[ARGS]{\"a\": \"}\"}[TOOL_CALLS]g[CALL_ID]123[ARGS]{}", "So:|f({\"a\": \"}\"})||g({})|");
    expect_reads(*d, "[TOOL_CALLS]f{\"a\": 1}", "|f({\"a\": 1})|");
    expect_reads(*d, "[TOOL_CALLS]not a call", "[TOOL_CALLS]not a call");
    expect_reads(*d, "[TOOL_CALLS][1]", "[TOOL_CALLS][1]");
  }
}

TEST(ToolDialects, QwenXml) {
  const ToolDialect& d = kQwenXmlTools;
  expect_reads(d, "Hm.\n<tool_call>\n<function=weather>\n<parameter=place>\n12 \"a\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n",
               "Hm.|weather({\"place\": \"12 \\\"a\\\"\", \"days\": 3})|");
  expect_reads(d, "<tool_call>\n<function=clock>\n</function>\n</tool_call>\n<tool_call>\n<function=other>\n<parameter=a>\n[1]\n</parameter>\n</function>\n</tool_call>", "|clock({})||other({\"a\": [1]})|");
  expect_reads(d, "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>");
  expect_reads(d, "<tool_call>\n<function=weather>\n<parameter=place>\nhalf", "|weather({})|");
}

// What may be written, is read; what is written otherwise, may not be.
TEST(ToolDialects, StructuresAllowWhatTheParsersRead) {
  struct Case {
    const ToolDialect* dialect;
    const char* call;       // of weather, with place "x" and days 2
    const char* wrong;      // a wrong type
  } cases[] = {
      {&kHermesTools, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"x\", \"days\": 2}}\n</tool_call>", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": 1}}\n</tool_call>"},
      {&kLlamaTools, "{\"name\": \"weather\", \"parameters\": {\"place\": \"x\", \"days\": 2}}", "{\"name\": \"other\", \"parameters\": {}}"},
      {&kMistralTools, "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"place\": \"x\", \"days\": 2}}]", "[TOOL_CALLS]weather"},
      {&kMistralArgsTools, "[TOOL_CALLS]weather[ARGS]{\"place\": \"x\", \"days\": 2}", "[TOOL_CALLS]weather[ARGS]{}"},
      {&kQwenXmlTools, "<tool_call>\n<function=weather>\n<parameter=place>\nx\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
       "<tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"}};
  for (const Case& c : cases) {
    for (const bool required : {false, true}) {
      testing::TextMatcher m(testing::make_constraint(Constraint::Kind::structure, c.dialect->structure(kTools, {required, true}).dump()));
      ASSERT_TRUE(m.ok()) << c.dialect->name << m.error.message;
      EXPECT_TRUE(m.accepts(c.call)) << c.dialect->name << required;
      EXPECT_FALSE(m.accepts(c.wrong)) << c.dialect->name << required;
      EXPECT_EQ(m.accepts("just text"), !required) << c.dialect->name;
      EXPECT_EQ(m.accepts(""), !required) << c.dialect->name;
    }
    expect_reads(*c.dialect, c.call, "|weather({\"place\": \"x\", \"days\": 2})|");
  }
}

TEST(ToolDialects, ChosenByTheTemplate) {
  const auto name = [](std::string_view chat_template) { return std::string(tool_dialect_of(chat_template).name); };
  EXPECT_EQ(name("no tools"), described_tools().name);
  EXPECT_EQ(name("x <tool_call>\n<function=example>"), "qwen_xml");
  EXPECT_EQ(name("x <tool_call>{\"name\": 1, \"arguments\": 2}"), "hermes");
  EXPECT_EQ(name("[TOOL_CALLS] x"), "mistral");
  EXPECT_EQ(name("[TOOL_CALLS] x [ARGS]"), "mistral_args");
  EXPECT_EQ(name("ipython {\"name\": \"x\", \"parameters\": {}}"), "llama");
}

TEST(ToolDialects, OfPublishedTemplates) {
  const std::pair<const char*, const char*> cases[] = {
      {"Qwen-Qwen2.5-7B-Instruct", "hermes"}, {"Qwen-Qwen3-0.6B", "hermes"}, {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"}, {"Qwen3-Coder", "qwen_xml"}, {"Qwen3.5-4B", "qwen_xml"},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama"}, {"meta-llama-Llama-3.3-70B-Instruct", "llama"}, {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
      {"Mistral-Small-3.2-24B-Instruct-2506", "mistral_args"}, {"unsloth-mistral-Devstral-Small-2507", "mistral_args"}};
  for (const auto& [name, dialect] : cases) {
    const auto path = testing::shared_data() / "chat-templates" / "templates" / (std::string(name) + ".jinja");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs shared data file " << path << " (set MILLRACE_SHARED_DATA)";
    EXPECT_EQ(std::string(tool_dialect_of(testing::read_file(path)).name), dialect) << name;
  }
}

TEST(ToolDialects, DescribedInMessages) {
  const std::string text = describe_tools(kTools, {});
  EXPECT_NE(text.find("\"name\":\"weather\""), std::string::npos) << text;
  const Json said = describe_calls(Json::parse(R"([{"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "tool", "tool_call_id": "2", "content": "s"}])"));
  ASSERT_EQ(said.size(), 3u) << said;
  EXPECT_EQ(said[1]["content"], "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"x\":1}}\n</tool_call>");
  EXPECT_FALSE(said[1].contains("tool_calls"));
  EXPECT_EQ(said[2]["content"], "<tool_response>\nr\n</tool_response>\n<tool_response>\ns\n</tool_response>");
}

std::string split(ReasoningPlace place, std::initializer_list<std::string_view> parts) {
  ReasoningSplitter splitter(reasoning_marks()[0], place);
  AnswerPieces out;
  for (std::string_view part : parts) add_piece(out, Kind::text, splitter.push(part, out));
  add_piece(out, Kind::text, splitter.finish(out));
  return shown(out);
}

TEST(Reasoning, SplitWhereverTheTextIsCut) {
  const struct {
    ReasoningPlace place;
    const char* text;
    const char* expected;
  } cases[] = {{ReasoningPlace::begin, "\n<think>\nso, a </thin> b\n</think>\n\nanswer </think>", "{so, a </thin> b}answer </think>"},
               {ReasoningPlace::begin, "no <think>a</think>", "no <think>a</think>"},
               {ReasoningPlace::begin, "<thinker>", "<thinker>"},
               {ReasoningPlace::inside, "so\n\n </think>\nx", "{so}x"},
               {ReasoningPlace::inside, "so </th", "{so </th}"},
               {ReasoningPlace::begin, "<thi", "<thi"},
               {ReasoningPlace::behind, " <think>a</think>", " <think>a</think>"},
               {ReasoningPlace::begin, "<think>\n\n</think>\n\nx", "x"}};
  for (const auto& c : cases) {
    const std::string_view text = c.text;
    EXPECT_EQ(split(c.place, {text}), c.expected);
    for (size_t at = 1; at < text.size(); ++at) EXPECT_EQ(split(c.place, {text.substr(0, at), text.substr(at)}), c.expected) << at;
  }
}

TEST(Reasoning, PlaceAndMarksOfAPrompt) {
  const ReasoningMarks* marks = reasoning_marks_of("{{ content.split('</think>') }}");
  ASSERT_NE(marks, nullptr);
  EXPECT_EQ(reasoning_place("<|assistant|><think>\n", *marks), ReasoningPlace::inside);
  EXPECT_EQ(reasoning_place("<|assistant|><think>\n\n</think>\n\n", *marks), ReasoningPlace::behind);
  EXPECT_EQ(reasoning_place("<think>a</think>b<|assistant|>", *marks), ReasoningPlace::begin);
  EXPECT_EQ(reasoning_marks_of("plain"), nullptr);
  const Json digit = {{"type", "regex"}, {"pattern", "[0-9]"}};
  for (const ReasoningPlace place : {ReasoningPlace::begin, ReasoningPlace::inside, ReasoningPlace::behind}) {
    testing::TextMatcher m(testing::make_constraint(Constraint::Kind::structure, behind_reasoning(digit, *marks, place).dump()));
    ASSERT_TRUE(m.ok()) << m.error.message;
    EXPECT_EQ(m.accepts("1"), place != ReasoningPlace::inside);
    EXPECT_EQ(m.accepts("well</think>\n\n1"), place == ReasoningPlace::inside);
    EXPECT_EQ(m.accepts("<think>well</think>1"), place != ReasoningPlace::behind);
    EXPECT_FALSE(m.accepts("<think>1"));
  }
}

}  // namespace
}  // namespace millrace
