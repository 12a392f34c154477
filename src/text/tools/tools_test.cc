// Parsers of tool calls, each on whole answers, split at every byte, and byte by byte. Also: a parser reads everything
// that the structure of its dialect allows.
#include <gtest/gtest.h>

#include <filesystem>

#include "shared_data.h"
#include "text/grammar/grammar_test.h"
#include "text/template/chat_messages.h"
#include "text/template/chat_template.h"
#include "text/tools/dialects.h"
#include "text/tools/reasoning.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

const Tool kWeather = {
    "weather", "of a place",
    Json::parse(
        R"({"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}, "required": ["place"], "additionalProperties": false})")};
const Tool kClock = {"clock", "",
                     Json::parse(R"({"type": "object", "properties": {}, "additionalProperties": false})")};
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
    AnswerPieces some;  // incrementally
    parser->push(part, some);
    for (const AnswerPiece& piece : some) add_piece(out, piece.kind, piece.text);
  }
  parser->finish(out);
  return out;
}

void expect_reads(const ToolDialect& dialect, const std::string& text, const std::string& expected) {
  EXPECT_EQ(shown(parsed(dialect, {text})), expected) << dialect.name << ": " << text;
  for (size_t at = 1; at < text.size(); ++at)
    EXPECT_EQ(shown(parsed(dialect, {std::string_view(text).substr(0, at), std::string_view(text).substr(at)})),
              expected)
        << dialect.name << " at " << at << ": " << text;
  auto parser = dialect.parser(kTools);
  AnswerPieces out;
  for (char c : text) parser->push(std::string_view(&c, 1), out);
  parser->finish(out);
  EXPECT_EQ(shown(out), expected) << dialect.name << " by bytes: " << text;
}

TEST(ToolDialects, Hermes) {
  const ToolDialect& d = kHermesTools;
  expect_reads(d, "Just text, <tool or <tool_calls> and so on.\n", "Just text, <tool or <tool_calls> and so on.\n");
  expect_reads(
      d, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"a}\\\"b\", \"days\": 2}}\n</tool_call>",
      "|weather({\"place\": \"a}\\\"b\", \"days\": 2})|");
  expect_reads(d,
               "Let me see.\n\n<tool_call>{\"arguments\": {\"x\": [1, {}]}, \"name\": "
               "\"f\"}</tool_call>\n<tool_call>\n{\"name\": \"clock\"}\n</tool_call>\n",
               "Let me see.|f({\"x\": [1, {}]})||clock({})|");
  expect_reads(d, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\", \"id\": 7}</tool_call>behind",
               "|f({\"a\": 1})|behind");
  expect_reads(d, "<tool_call>not json</tool_call>", "<tool_call>not json</tool_call>");
  expect_reads(d, "<tool_call>{\"nam", "<tool_call>{\"nam");
  expect_reads(d, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", "|f({\"a\": )|");
  expect_reads(d, "<tool_call>{\"name\": \"f\", \"arguments\": {}}<tool_call>{\"name\": \"g\", \"arguments\": {}}",
               "|f({})||g({})|");
}

TEST(ToolDialects, Llama) {
  const ToolDialect& d = kLlamaTools;
  expect_reads(d, "Plain {\"name\": \"f\"}", "Plain {\"name\": \"f\"}");
  expect_reads(d, "{\"name\": \"weather\", \"parameters\": {\"place\": \"x\"}}", "|weather({\"place\": \"x\"})|");
  expect_reads(d, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"a\": 1}}",
               "|f({})||g({\"a\": 1})|");
  expect_reads(d, " <|python", " <|python");
  expect_reads(d, "{\"no\": 1}", "{\"no\": 1}");
  expect_reads(d, "{ 1", "{ 1");
}

TEST(ToolDialects, Mistral) {
  for (const ToolDialect* d : {&kMistralTools, &kMistralArgsTools}) {
    expect_reads(*d, "text [TOOL", "text [TOOL");
    expect_reads(*d,
                 "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}, {\"name\": \"g\", "
                 "\"arguments\": {}}]",
                 "|f({\"a\": 1})||g({})|");
    expect_reads(*d, "So:[TOOL_CALLS]f[ARGS]{\"a\": \"}\"}[TOOL_CALLS]g[CALL_ID]123[ARGS]{}",
                 "So:|f({\"a\": \"}\"})||g({})|");
    expect_reads(*d, "[TOOL_CALLS]f{\"a\": 1}", "|f({\"a\": 1})|");
    expect_reads(*d, "[TOOL_CALLS]not a call", "[TOOL_CALLS]not a call");
    expect_reads(*d, "[TOOL_CALLS][1]", "[TOOL_CALLS][1]");
  }
}

TEST(ToolDialects, QwenXml) {
  const ToolDialect& d = kQwenXmlTools;
  expect_reads(d,
               "Hm.\n<tool_call>\n<function=weather>\n<parameter=place>\n12 "
               "\"a\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n",
               "Hm.|weather({\"place\": \"12 \\\"a\\\"\", \"days\": 3})|");
  expect_reads(d,
               "<tool_call>\n<function=clock>\n</function>\n</"
               "tool_call>\n<tool_call>\n<function=other>\n<parameter=a>\n[1]\n</parameter>\n</function>\n</tool_call>",
               "|clock({})||other({\"a\": [1]})|");
  expect_reads(d, "<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>");
  expect_reads(d, "<tool_call>\n<function=weather>\n<parameter=place>\nhalf", "|weather({})|");
}

TEST(ToolDialects, Glm) {
  const ToolDialect& d = kGlmTools;
  expect_reads(d,
               "Hm.\n<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>12 "
               "\"a\"\n</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n",
               "Hm.|weather({\"place\": \"12 \\\"a\\\"\\n\", \"days\": 3})|");
  expect_reads(
      d, "<tool_call>weather<arg_key>place</arg_key><arg_value>x</arg_value></tool_call><tool_call>clock</tool_call>",
      "|weather({\"place\": \"x\"})||clock({})|");
  expect_reads(d,
               "<tool_call>\nclock\n</tool_call>\n<tool_call>other<arg_key>a</arg_key><arg_value>[1]</arg_value></"
               "tool_call>behind",
               "|clock({})||other({\"a\": [1]})|behind");
  expect_reads(d, "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"name\": 1}</tool_call>");
  expect_reads(d, "<tool_call> </tool_call>", "<tool_call> </tool_call>");
  expect_reads(d, "<tool_call>two words\n", "<tool_call>two words\n");
  expect_reads(d, "<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>half", "|weather({})|");
  expect_reads(d, "<tool_call>weather\nand <so> on", "|weather({})|and <so> on");
  expect_reads(d, "<tool_call>weather<arg_key>a</arg_key>1<arg_value>", "|weather({})|1<arg_value>");
  expect_reads(d, "<tool_call>unfinis", "<tool_call>unfinis");
}

TEST(ToolDialects, Deepseek) {
  const std::string begin = "<｜tool▁calls▁begin｜>", end = "<｜tool▁calls▁end｜>", call = "<｜tool▁call▁begin｜>",
                    call_end = "<｜tool▁call▁end｜>", sep = "<｜tool▁sep｜>";
  for (const ToolDialect* d : {&kDeepseekTools, &kDeepseekNamedTools}) {
    expect_reads(*d,
                 "Hm.\n\n" + begin + call + "function" + sep + "weather\n```json\n{\"place\": \"`}\"}\n```" + call_end +
                     "\n" + call + "function" + sep + "clock\n```json\n{}\n```" + call_end + end,
                 "Hm.|weather({\"place\": \"`}\"})||clock({})|");
    expect_reads(*d,
                 begin + call + "weather" + sep + "{\"place\": \"x\"}" + call_end + call + "clock" + sep + "{}" +
                     call_end + end + "\nbehind",
                 "|weather({\"place\": \"x\"})||clock({})|behind");
    expect_reads(*d, begin + call + "function" + sep + "{}" + call_end + end, "|function({})|");
    expect_reads(*d, begin + "and no call", begin + "and no call");
    expect_reads(*d, begin + end + " none", begin + end + " none");
    expect_reads(*d, begin + call + "weather" + sep + "no arguments", begin + call + "weather" + sep + "no arguments");
    expect_reads(*d, begin + call + "weather" + sep + "{\"place\": ", "|weather({\"place\": )|");
    expect_reads(*d,
                 begin + call + "clock" + sep + "{}" + call_end + "then text " + begin + call + "clock" + sep + "{}",
                 "|clock({})|then text|clock({})|");
    expect_reads(*d, "<｜tool▁calls", "<｜tool▁calls");
  }
  const std::string text = kDeepseekNamedTools.description(kTools);
  EXPECT_NE(text.find("### weather\nDescription: of a place\n\nParameters: {\"type\""), std::string::npos) << text;
}

TEST(ToolDialects, Harmony) {
  const ToolDialect& d = kHarmonyTools;
  const std::string next = "<|end|><|start|>assistant";
  expect_reads(d,
               "<|channel|>analysis<|message|>Well, <|x." + next + "<|channel|>final<|message|>So <it> is.\n<|return|>",
               "{Well, <|x.}So <it> is.\n");
  expect_reads(d,
               "<|channel|>analysis<|message|>A" + next +
                   "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"place\": \"<|\"}<|call|>",
               "{A}|weather({\"place\": \"<|\"})|");
  expect_reads(d, " to=functions.clock<|channel|>commentary json<|message|>{}", "|clock({})|");
  expect_reads(d,
               "<|channel|>commentary<|message|>I look." + next +
                   "<|channel|>commentary to=functions.clock<|message|>" + next +
                   "<|channel|>commentary to=functions.weather<|message|>{\"place\": \"a\"}",
               "I look.|clock({})||weather({\"place\": \"a\"})|");
  expect_reads(d, "<|channel|>analysis<|message|>A<|start|>assistant<|channel|>final<|message|>B", "{A}B");
  expect_reads(d, "Text alone <|channel|>.", "Text alone <|channel|>.");
  expect_reads(d, "<|chan", "<|chan");
  expect_reads(d, "<|channel|>final<|message|>a" + next + "<|chan", "a");
  // Without tools there are no calls.
  auto parser = d.parser({});
  AnswerPieces out;
  parser->push("<|channel|>commentary to=functions.clock<|message|>{}<|call|>", out);
  parser->finish(out);
  EXPECT_EQ(shown(out), "{}");
}

// Thinking may precede the constrained part; the text is constrained after its header.
TEST(ToolDialects, HarmonyFramesFollowTheRequest) {
  const Json digit = {{"type", "regex"}, {"pattern", "[0-9]"}};
  const std::string thinking = "<|channel|>analysis<|message|>well<|end|><|start|>assistant",
                    said = "<|channel|>final<|message|>",
                    call = "<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{}";
  const auto matcher = [](const Json& structure) {
    return testing::TextMatcher(testing::make_constraint(Constraint::Kind::structure, structure.dump()));
  };
  auto text = matcher(kHarmonyTools.frames({}, {}, digit)),
       either = matcher(kHarmonyTools.frames(kTools, {}, {{"type", "any_text"}})),
       required = matcher(kHarmonyTools.frames(kTools, {true, true}, Json()));
  ASSERT_TRUE(text.ok() && either.ok() && required.ok())
      << text.error.message << either.error.message << required.error.message;
  EXPECT_TRUE(text.accepts(said + "1"));
  EXPECT_TRUE(text.accepts(thinking + said + "1"));
  EXPECT_FALSE(text.accepts("1"));
  EXPECT_FALSE(text.accepts(thinking + call));
  for (const std::string& before : {std::string(), thinking}) {
    EXPECT_TRUE(either.accepts(before + said + "hello"));
    EXPECT_TRUE(either.accepts(before + call));
    EXPECT_TRUE(required.accepts(before + call));
    EXPECT_FALSE(required.accepts(before + said + "hello"));
    EXPECT_FALSE(
        required.accepts(before + "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{}"));
  }
}

// A mark in the text of a message would end it for the parser, and the rest of the answer would be plain text.
TEST(ToolDialects, HarmonyMessagesBeforeTheLastHaveNoMarks) {
  const Json digit = {{"type", "regex"}, {"pattern", "[0-9]"}};
  const std::string end = "<|end|><|start|>assistant", said = "<|channel|>final<|message|>",
                    call = "<|channel|>commentary to=functions.clock <|constrain|>json<|message|>{}";
  const auto matcher = [](const Json& structure) {
    return testing::TextMatcher(testing::make_constraint(Constraint::Kind::structure, structure.dump()));
  };
  auto both = matcher(kHarmonyTools.frames(kTools, {}, digit)),
       required = matcher(kHarmonyTools.frames(kTools, {true, true}, Json()));
  ASSERT_TRUE(both.ok() && required.ok()) << both.error.message << required.error.message;
  for (const char* text : {"", "a < b", "<<", "a<"})
    EXPECT_TRUE(required.accepts("<|channel|>analysis<|message|>" + std::string(text) + end + call)) << text;
  for (const char* mark : {"<|start|>", "<|call|>", "<|return|>", "<|channel|>"})
    EXPECT_FALSE(required.accepts("<|channel|>analysis<|message|>a" + std::string(mark) + "b" + end + call)) << mark;
  // Commentary is shown as text, so none precedes text of a required form.
  const std::string looks = "<|channel|>commentary<|message|>I look." + end;
  EXPECT_TRUE(both.accepts(looks + call));
  EXPECT_TRUE(both.accepts(call));
  EXPECT_TRUE(both.accepts(said + "1"));
  EXPECT_FALSE(both.accepts(looks + said + "1"));
  auto free = matcher(kHarmonyTools.frames(kTools, {}, {{"type", "any_text"}}));
  ASSERT_TRUE(free.ok()) << free.error.message;
  EXPECT_TRUE(free.accepts(looks + said + "one"));
}

// A closing tag in a value is a part of it, unless a tag that may follow comes after it.
TEST(ToolDialects, ClosingTagsInValues) {
  const auto qwen = [](const std::string& value) {
    return "<tool_call>\n<function=weather>\n<parameter=place>\n" + value +
           "\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
  };
  const auto glm = [](const std::string& value) {
    return "<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>" + value +
           "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";
  };
  const std::string values[] = {"</parameter>",
                                "a</parameter>b",
                                "a\n</parameter>\nb",
                                "</parameter></parameter>\n</parameter>",
                                "<parameter=place>\nx\n</parameter>\n<parameter=place>",
                                "x\n</parameter>\n<parameter=other>\ny",
                                "x\n</parameter>\n</function>\ny",
                                "x</parameter>\n<parameter=",
                                "</function></tool_call>",
                                "</arg_value>",
                                "a</arg_value>b",
                                "a</arg_value>\n<arg_key>place</arg_key>\n<arg_value>b",
                                "a</arg_value>\n<arg_key>other</arg_key>\n<arg_value>b",
                                "</arg_value></arg_value>\n</arg_value>",
                                "</tool_call>",
                                "</think>"};
  for (const ToolDialect* d : {&kQwenXmlTools, &kGlmTools}) {
    testing::TextMatcher m(
        testing::make_constraint(Constraint::Kind::structure, d->structure(kTools, {true, true}).dump()));
    ASSERT_TRUE(m.ok()) << m.error.message;
    for (const std::string& value : values) {
      const std::string text = d == &kQwenXmlTools ? qwen(value) : glm(value);
      EXPECT_TRUE(m.accepts(text)) << text;
      expect_reads(*d, text, "|weather({\"place\": " + Json(value).dump() + ", \"days\": 3})|");
    }
  }
}

// The last closing tag ends the value of a call that was cut off.
TEST(ToolDialects, CallsThatWereCutOffInAParameter) {
  const std::string begin = "<tool_call>\n<function=weather>\n<parameter=place>\na\n</parameter>\n";
  for (const std::string rest :
       {"", "<param", "<parameter=days", "</func", "</function>", "</function>\n", "</tool_call>"})
    EXPECT_TRUE(shown(parsed(kQwenXmlTools, {begin + rest})).starts_with("|weather({\"place\": \"a\"})|")) << rest;
  const std::string glm = "<tool_call>weather<arg_key>place</arg_key><arg_value>a</arg_value>";
  for (const std::string rest : {"", "\n", "<arg_k", "</tool", "behind"})
    EXPECT_TRUE(shown(parsed(kGlmTools, {glm + rest})).starts_with("|weather({\"place\": \"a\"})|")) << rest;
}

// Parameters that may follow are few or many, required or not; each text that the structure allows is parsed whole.
TEST(ToolDialects, FieldsOfEveryCount) {
  for (const int count : {1, 2, 15, 16, 17, 40}) {
    for (const int required_each : {0, 1, 3}) {
      Json properties = Json::object(), required = Json::array();
      for (int i = 0; i < count; ++i) {
        properties["key" + std::to_string(i)] = {{"type", i % 4 == 3 ? "integer" : "string"}};
        if (required_each > 0 && i % required_each == 0) required.push_back("key" + std::to_string(i));
      }
      const Tool tool = {"f", "", {{"type", "object"}, {"properties", properties}, {"required", required}}};
      const std::vector<Tool> tools = {tool};
      testing::TextMatcher m(
          testing::make_constraint(Constraint::Kind::structure, kQwenXmlTools.structure(tools, {true, true}).dump()));
      ASSERT_TRUE(m.ok()) << count << m.error.message;
      for (const int step : {1, 2, 5}) {
        std::string text = "<tool_call>\n<function=f>\n";
        Json expected = Json::object();
        for (int i = 0; i < count; ++i) {
          const std::string key = "key" + std::to_string(i);
          if (i % step != 0 && std::find(required.begin(), required.end(), Json(key)) == required.end()) continue;
          const std::string value = i % 4 == 3 ? "7" : "x\n</parameter>\ny";
          text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
          expected[key] = i % 4 == 3 ? Json(7) : Json(value);
        }
        text += "</function>\n</tool_call>";
        EXPECT_TRUE(m.accepts(text)) << count << " " << required_each << "\n" << text;
        const auto parser = kQwenXmlTools.parser(tools);
        AnswerPieces out;
        parser->push(text, out);
        parser->finish(out);
        std::string arguments;
        for (const AnswerPiece& piece : out)
          if (piece.kind == Kind::arguments) arguments += piece.text;
        EXPECT_EQ(Json::parse(arguments), expected) << text;
      }
      EXPECT_EQ(m.accepts("<tool_call>\n<function=f>\n</function>\n</tool_call>"), required_each == 0);
    }
  }
}

// Allowed calls are parsed; malformed ones are not allowed.
TEST(ToolDialects, StructuresAllowWhatTheParsersAccept) {
  struct Case {
    const ToolDialect* dialect;
    const char* call;   // weather, with place "x" and days 2
    const char* wrong;  // a wrong type
  } cases[] = {
      {&kHermesTools,
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"x\", \"days\": 2}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": 1}}\n</tool_call>"},
      {&kLlamaTools, "{\"name\": \"weather\", \"parameters\": {\"place\": \"x\", \"days\": 2}}",
       "{\"name\": \"other\", \"parameters\": {}}"},
      {&kMistralTools, "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"place\": \"x\", \"days\": 2}}]",
       "[TOOL_CALLS]weather"},
      {&kMistralArgsTools, "[TOOL_CALLS]weather[ARGS]{\"place\": \"x\", \"days\": 2}", "[TOOL_CALLS]weather[ARGS]{}"},
      {&kQwenXmlTools,
       "<tool_call>\n<function=weather>\n<parameter=place>\nx\n</parameter>\n<parameter=days>\n2\n</parameter>\n</"
       "function>\n</tool_call>",
       "<tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>"},
      {&kGlmTools,
       "<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>x</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</"
       "arg_value>\n</tool_call>",
       "<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>x</arg_value>\n<arg_key>days</"
       "arg_key>\n<arg_value>two</arg_value>\n</tool_call>"},
      {&kGlmTools,
       "<tool_call>weather<arg_key>place</arg_key><arg_value>x</arg_value><arg_key>days</arg_key><arg_value>2</"
       "arg_value></tool_call>",
       "<tool_call>weather</tool_call>"},
      {&kDeepseekTools,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"place\": \"x\", "
       "\"days\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{}\n```<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>"},
      {&kDeepseekNamedTools,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"place\": \"x\", \"days\": "
       "2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>other<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}};
  for (const Case& c : cases) {
    for (const bool required : {false, true}) {
      testing::TextMatcher m(
          testing::make_constraint(Constraint::Kind::structure, c.dialect->structure(kTools, {required, true}).dump()));
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
  EXPECT_EQ(name("x <tool_call>f\n<arg_key>"), "glm");
  EXPECT_EQ(name("<｜tool▁call▁begin｜>f"), "deepseek_named");
  EXPECT_EQ(name("<｜tool▁call▁begin｜>function\n```json"), "deepseek");
  EXPECT_EQ(name("<|channel|>analysis <|call|>"), "harmony");
  EXPECT_EQ(name("ipython {\"name\": \"x\", \"parameters\": {}}"), "llama");
}

TEST(ToolDialects, DetectedInPublishedTemplates) {
  const std::pair<const char*, const char*> cases[] = {{"Qwen-Qwen2.5-7B-Instruct", "hermes"},
                                                       {"Qwen-Qwen3-0.6B", "hermes"},
                                                       {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
                                                       {"Qwen3-Coder", "qwen_xml"},
                                                       {"Qwen3.5-4B", "qwen_xml"},
                                                       {"meta-llama-Llama-3.1-8B-Instruct", "llama"},
                                                       {"meta-llama-Llama-3.3-70B-Instruct", "llama"},
                                                       {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
                                                       {"Mistral-Small-3.2-24B-Instruct-2506", "mistral_args"},
                                                       {"unsloth-mistral-Devstral-Small-2507", "mistral_args"},
                                                       {"GLM-4.6", "glm"},
                                                       {"GLM-4.7-Flash", "glm"},
                                                       {"GLM-5.2", "glm"},
                                                       {"poolside-Laguna-XS-2.1", "glm"},
                                                       {"llama-cpp-deepseek-r1", "deepseek"},
                                                       {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek"},
                                                       {"deepseek-ai-DeepSeek-V3.1", "deepseek_named"},
                                                       {"openai-gpt-oss-120b", "harmony"}};
  for (const auto& [name, dialect] : cases) {
    const std::string path = "chat-templates/templates/" + std::string(name) + ".jinja";
    MILLRACE_NEEDS_SHARED(path);
    EXPECT_EQ(std::string(tool_dialect_of(testing::read_file(testing::shared_data() / path)).name), dialect) << name;
  }
}

// Each template renders earlier calls in the form that its dialect parses.
TEST(ToolDialects, PublishedTemplatesRoundTrip) {
  for (const char* name : {"GLM-4.6", "GLM-4.7-Flash", "GLM-5.2", "llama-cpp-deepseek-r1", "deepseek-ai-DeepSeek-V3.1",
                           "openai-gpt-oss-120b", "Qwen3-Coder", "Qwen-Qwen3-0.6B"}) {
    const std::string path = "chat-templates/templates/" + std::string(name) + ".jinja";
    MILLRACE_NEEDS_SHARED(path);
    const std::string source = testing::read_file(testing::shared_data() / path);
    const auto chat_template = ChatTemplate::parse(source);
    ASSERT_TRUE(chat_template.ok()) << name << chat_template.error().message;
    const Json tools = Json::parse(
        R"([{"type": "function", "function": {"name": "weather", "description": "of a place", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}])");
    const auto context = chat_context(
        Json::parse(R"([{"role": "user", "content": "How is it?"}, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"place": "<x> & y"}}}]}])"),
        {.add_generation_prompt = false,
         .tools = source.find("| map(attribute='function') | tojson") == std::string::npos
                      ? &tools
                      : nullptr});  // Python cannot print it
    ASSERT_TRUE(context.ok()) << context.error().message;
    const auto text = chat_template->render(*context);
    ASSERT_TRUE(text.ok()) << name << text.error().message;
    const ToolDialect& dialect = tool_dialect_of(source);
    // After the start of the assistant's turn.
    const size_t user = text->rfind("How is it?") + std::string_view("How is it?").size();
    std::string turn = text->substr(user);
    for (const std::string_view begin :
         {"<|start|>assistant", "<｜Assistant｜>", "<|assistant|>", "<|im_start|>assistant\n"})
      if (const size_t at = turn.find(begin); at != std::string::npos) turn.erase(0, at + begin.size());
    const std::string read = shown(parsed(dialect, {turn}));
    EXPECT_NE(read.find("|weather({\"place\": \"<x> & y\"})|"), std::string::npos) << name << "\n"
                                                                                   << turn << "\n"
                                                                                   << read;
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

TEST(Reasoning, SplitAtAnyChunkBoundary) {
  const struct {
    ReasoningPlace place;
    const char* text;
    const char* expected;
  } cases[] = {{ReasoningPlace::begin, "\n<think>\nso, a </thin> b\n</think>\n\nanswer </think>",
                "{so, a </thin> b}answer </think>"},
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
    for (size_t at = 1; at < text.size(); ++at)
      EXPECT_EQ(split(c.place, {text.substr(0, at), text.substr(at)}), c.expected) << at;
  }
}

// Every dialect: what follows the start of a call, wherever thinking was, is the call.
TEST(Reasoning, ACallEndsIt) {
  const std::pair<const ToolDialect*, std::string> calls[] = {
      {&kHermesTools, "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>"},
      {&kLlamaTools, "<|python_tag|>{\"name\": \"clock\", \"parameters\": {}}"},
      {&kMistralTools, "[TOOL_CALLS] [{\"name\": \"clock\", \"arguments\": {}}]"},
      {&kMistralArgsTools, "[TOOL_CALLS]clock[ARGS]{}"},
      {&kQwenXmlTools, "<tool_call>\n<function=clock>\n</function>\n</tool_call>"},
      {&kGlmTools, "<tool_call>clock\n</tool_call>"},
      {&kDeepseekTools,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {&kDeepseekNamedTools,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}};
  const ReasoningMarks& marks = reasoning_marks()[0];
  for (const auto& [dialect, call] : calls) {
    for (const std::string& text : {"so, <tool or\n" + call, "so, <tool or\n</think>\n\n" + call}) {
      for (size_t stride = 1; stride < text.size(); stride += 1 + stride / 4) {
        ReasoningSplitter splitter(marks, ReasoningPlace::inside, dialect->start);
        const auto parser = dialect->parser(kTools);
        AnswerPieces out;
        for (size_t at = 0; at < text.size(); at += stride)
          parser->push(splitter.push(text.substr(at, stride), out), out);
        parser->push(splitter.finish(out), out);
        parser->finish(out);
        EXPECT_EQ(shown(out), "{so, <tool or}|clock({})|") << dialect->name << " by " << stride;
      }
      for (const bool required : {false, true}) {
        for (const bool parallel : {false, true}) {
          const ToolChoice wish = {required, parallel};
          const auto structure = [&](ReasoningPlace place) {
            return testing::TextMatcher(testing::make_constraint(
                Constraint::Kind::structure,
                behind_reasoning(dialect->structure(kTools, wish), marks, place, {dialect, kTools, wish}).dump()));
          };
          testing::TextMatcher inside = structure(ReasoningPlace::inside), begin = structure(ReasoningPlace::begin);
          ASSERT_TRUE(inside.ok() && begin.ok()) << dialect->name << inside.error.message << begin.error.message;
          // Llama's calls have no start where an answer consists of them.
          const bool bare = dialect == &kLlamaTools && required && text.find("</think>") != std::string::npos;
          EXPECT_EQ(inside.accepts(text), !bare) << dialect->name << required << parallel << text;
          EXPECT_EQ(begin.accepts("<think>" + text), !bare) << dialect->name << required << parallel << text;
          EXPECT_FALSE(inside.accepts("so")) << dialect->name;
          EXPECT_EQ(inside.accepts("so</think>text"), !required) << dialect->name;
          EXPECT_FALSE(inside.accepts("so " + std::string(dialect->start) + " text")) << dialect->name;
          if (dialect == &kHermesTools) {
            EXPECT_EQ(inside.accepts(text + "more"), !required && parallel);
          }
        }
      }
    }
  }
}

TEST(Reasoning, ALateClosingMarkerAfterACallIsDropped) {
  const std::string call = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"a\": \"</think>\"}}\n</tool_call>";
  const std::pair<std::string, std::string> cases[] = {
      {"so " + call + "\n</think>\n\nanswer </think>", "{so}|clock({\"a\": \"</think>\"})|answer </think>"},
      {"so " + call + "\nanswer </think>", "{so}|clock({\"a\": \"</think>\"})|answer </think>"},
      {"so " + call + "</thi", "{so}|clock({\"a\": \"</think>\"})|</thi"}};
  for (const auto& [text, expected] : cases) {
    for (size_t stride = 1; stride <= text.size(); ++stride) {
      ReasoningSplitter splitter(reasoning_marks()[0], ReasoningPlace::inside, "<tool_call>");
      LateCloseFilter late("</think>");
      const auto parser = kHermesTools.parser(kTools);
      AnswerPieces all;
      for (size_t at = 0; at < text.size(); at += stride) {
        AnswerPieces out;
        parser->push(splitter.push(text.substr(at, stride), out), out);
        if (at + stride >= text.size()) parser->finish(out);
        if (splitter.ended_by_call()) late.filter(out);
        if (at + stride >= text.size()) late.finish(out);
        for (const AnswerPiece& piece : out) add_piece(all, piece.kind, piece.text);
      }
      EXPECT_EQ(shown(all), expected) << stride;
    }
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
    testing::TextMatcher m(
        testing::make_constraint(Constraint::Kind::structure, behind_reasoning(digit, *marks, place).dump()));
    ASSERT_TRUE(m.ok()) << m.error.message;
    EXPECT_EQ(m.accepts("1"), place != ReasoningPlace::inside);
    EXPECT_EQ(m.accepts("well</think>\n\n1"), place == ReasoningPlace::inside);
    EXPECT_EQ(m.accepts("<think>well</think>1"), place != ReasoningPlace::behind);
    EXPECT_FALSE(m.accepts("<think>1"));
  }
}

}  // namespace
}  // namespace millrace
