// Tool calls of Kimi K2, MiniMax M2, Gemma 4, LFM2, Granite and Nemotron: parsed whole, split at every byte and byte by
// byte; texts that only look like calls, or are cut off; structures; detection; earlier calls.
#include <gtest/gtest.h>

#include "shared_data.h"
#include "text/grammar/grammar_test.h"
#include "text/template/chat_messages.h"
#include "text/template/chat_template.h"
#include "text/tools/dialects.h"
#include "text/tools/literal_arguments.h"
#include "text/tools/reasoning.h"

namespace millrace {
namespace {

using CallJson = nlohmann::ordered_json;

const std::vector<Tool> kManyTyped = {
    {"weather", "of a place", CallJson::parse(R"({"type": "object", "properties": {"place": {"type": "string"},
        "days": {"type": "integer"}}, "required": ["place"], "additionalProperties": false})")},
    {"clock", "", CallJson::parse(R"({"type": "object", "properties": {}, "additionalProperties": false})")},
    {"mixed", "", CallJson::parse(R"({"type": "object", "properties": {"unit": {"enum": ["a", "b"]},
        "exact": {"type": "boolean"}, "ratio": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "deep": {"type": "object", "properties": {"x": {"type": ["integer", "null"]}}, "required": ["x"]}}})")}};

// "text|name(arguments)|"
std::string calls_shown(const AnswerPieces& pieces) {
  std::string out;
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind == AnswerPiece::Kind::call) out += "|" + piece.text + "(";
    if (piece.kind == AnswerPiece::Kind::text || piece.kind == AnswerPiece::Kind::arguments) out += piece.text;
    if (piece.kind == AnswerPiece::Kind::call_end) out += ")|";
  }
  return out;
}

std::string calls_read(const ToolDialect& dialect, std::initializer_list<std::string_view> parts) {
  const auto parser = dialect.parser(kManyTyped);
  AnswerPieces out;
  for (const std::string_view part : parts) parser->push(part, out);
  parser->finish(out);
  return calls_shown(out);
}

void expect_calls(const ToolDialect& dialect, const std::string& text, const std::string& expected) {
  const std::string_view view = text;
  for (size_t at = 0; at < text.size(); ++at)
    EXPECT_EQ(calls_read(dialect, {view.substr(0, at), view.substr(at)}), expected) << dialect.name << " at " << at;
  const auto parser = dialect.parser(kManyTyped);
  AnswerPieces out;
  for (size_t i = 0; i < text.size(); ++i) parser->push(view.substr(i, 1), out);
  parser->finish(out);
  EXPECT_EQ(calls_shown(out), expected) << dialect.name << " by bytes: " << text;
}

void expect_no_call(const ToolDialect& dialect, const std::string& text) { expect_calls(dialect, text, text); }

TEST(MoreToolDialects, Kimi) {
  const ToolDialect& d = kKimiTools;
  const std::string begin = "<|tool_calls_section_begin|>", end = "<|tool_calls_section_end|>",
                    call = "<|tool_call_begin|>", arguments = "<|tool_call_argument_begin|>",
                    call_end = "<|tool_call_end|>";
  expect_calls(d,
               "Hm. " + begin + call + "functions.weather:0" + arguments + "{\"place\": \"a}<|tool_call_end|>\"}" +
                   call_end + call + "functions.clock:12" + arguments + " {}" + call_end + end + " behind",
               "Hm.|weather({\"place\": \"a}<|tool_call_end|>\"})||clock({})|behind");
  expect_calls(d, begin + "\n" + call + " a.b " + arguments + "{}" + call_end + "\n" + end, "|a.b({})|");
  expect_calls(d, begin + call + "functions.f:g:1" + arguments + "{}", "|f:g({})|");  // no end
  expect_calls(d, begin + call + "functions.weather:0" + arguments + "{\"place\": ", "|weather({\"place\": )|");
  expect_calls(d, begin + call + "f" + arguments + "{}" + call_end + "then text", "|f({})|then text");
  expect_calls(d,
               "<|tool_call_section_begin|>" + call + "clock:0" + arguments + "{}" + call_end +
                   "<|tool_call_section_end|>" + call + "clock:1" + arguments + "{}" + call_end + "behind",
               "|clock({})||clock({})|behind");
  const std::string clock = begin + call + "clock:0" + arguments + "{}" + call_end;
  for (const std::string& cut : {std::string("<|tool_calls_sec"), call + "functions.weath", call + "two words"})
    expect_calls(d, clock + "\n" + cut, "|clock({})|" + cut);
  expect_no_call(d, begin + "and no call");
  expect_no_call(d, begin + end);
  expect_no_call(d, call_end + " alone");
  expect_no_call(d, begin + call + "functions.weather:0" + arguments + "[1]");
  expect_no_call(d, begin + call + "two words" + arguments + "{}");
  expect_no_call(d, begin + call + "functions.weath");
  expect_no_call(d, "<|tool_calls_section");
  expect_no_call(d, call + "functions.weather:0");
}

TEST(MoreToolDialects, Minimax) {
  const ToolDialect& d = kMinimaxTools;
  const std::string begin = "<minimax:tool_call>\n", end = "</minimax:tool_call>";
  const std::string weather =
      "<invoke name=\"weather\">\n<parameter name=\"place\">12 \"a\"\n</parameter>\n"
      "<parameter name=\"days\">3</parameter>\n</invoke>\n";
  expect_calls(d, "Hm.\n" + begin + weather + "<invoke name=\"clock\">\n</invoke>\n" + end + "\nbehind",
               "Hm.|weather({\"place\": \"12 \\\"a\\\"\\n\", \"days\": 3})||clock({})|behind");
  expect_calls(d,
               begin +
                   "<invoke name=\"mixed\"><parameter name=\"tags\">[\"x\"]</parameter><parameter "
                   "name=\"exact\">true</parameter><parameter name=\"ratio\">1.5</parameter><parameter "
                   "name=\"deep\">{\"x\": null}</parameter></invoke>" +
                   end,
               "|mixed({\"tags\": [\"x\"], \"exact\": true, \"ratio\": 1.5, \"deep\": {\"x\":null}})|");
  expect_calls(d, begin + "<invoke name=\"other\"><parameter name=\"a\">[1]</parameter></invoke>",
               "|other({\"a\": [1]})|");
  const std::string value = "x</parameter>\n<parameter name=\"other\">y</invoke</minimax:tool_call>";
  expect_calls(d,
               begin + "<invoke name=\"weather\"><parameter name=\"place\">" + value + "</parameter>\n</invoke>" + end,
               "|weather({\"place\": " + CallJson(value).dump() + "})|");
  expect_calls(d, begin + "<invoke name=\"weather\">\n<parameter name=\"place\">half", "|weather({})|");
  expect_calls(d, begin + "<invoke name=\"clock\">no parameter", "|clock({})|no parameter");
  expect_calls(d, begin + "<invoke name=\"clock\">\n</invoke>\n<invoke nam", "|clock({})|<invoke nam");
  expect_no_call(d, begin + "{\"name\": 1}" + end);
  expect_no_call(d, begin + end);
  expect_no_call(d, "<minimax:tool_call>\n<invoke name=\"wea");
  expect_no_call(d, "an <invoke name=\"weather\"></invoke> alone");
}

TEST(MoreToolDialects, Gemma) {
  const ToolDialect& d = kGemmaTools;
  const std::string q = "<|\"|>";
  expect_calls(d, "Hm.\n<|tool_call>call:weather{days:2,place:" + q + "a\"},\\ {b" + q + "}<tool_call|>behind",
               "Hm.|weather({\"days\": 2, \"place\": \"a\\\"},\\\\ {b\"})|behind");
  expect_calls(d, "<|tool_call>call:clock{}<tool_call|><|tool_call>call:clock{}<tool_call|>", "|clock({})||clock({})|");
  expect_calls(d,
               "<|tool_call>call:mixed{deep:{x:null," + q + "y z" + q + ":-1.5e3},exact:true,tags:[" + q + "1" + q +
                   ", " + q + q + "],unit: plain text ,}<tool_call|>",
               "|mixed({\"deep\": {\"x\": null, \"y z\": -1.5e3}, \"exact\": true, \"tags\": [\"1\", \"\"], "
               "\"unit\": \"plain text\"})|");
  expect_calls(d, "<|tool_call>call:f{a:\"with \\\"quotes\\\"\",b:<}",
               "|f({\"a\": \"with \\\"quotes\\\"\", \"b\": \"<\"})|");
  expect_calls(d, "<|tool_call>call:f{a:['b','c d'],e:no first quote" + q + ",g:{\"h\": \"i\"}}<tool_call|>",
               "|f({\"a\": [\"b\", \"c d\"], \"e\": \"no first quote\", \"g\": {\"h\": \"i\"}})|");
  expect_calls(d, "<|tool_call>call:f(a=" + q + "b" + q + ", c=1)<tool_call|><|tool_call>:g{}<tool_call|>",
               "|f({\"a\": \"b\", \"c\": 1})||g({})|");
  expect_calls(d, "<|tool_call>call:f{a:" + q + "cut of", "|f({\"a\": \"cut of)|");
  expect_calls(d, "<|tool_call>call:f{no value} text", "|f({)|} text");
  expect_no_call(d, "<|tool_call>weather{}");
  expect_no_call(d, "<|tool_call>call:{}");
  expect_no_call(d, "<|tool_call>call:two words{}");
  expect_no_call(d, "<|tool_call>call:weath");
  expect_no_call(d, "<|tool_cal");
  expect_no_call(d, "call:weather{} without its mark");
}

TEST(MoreToolDialects, Lfm) {
  const ToolDialect& d = kLfmTools;
  const std::string begin = "<|tool_call_start|>", end = "<|tool_call_end|>";
  expect_calls(d, "Hm. " + begin + "[weather(place='it's \"so\"', days=3), clock()]" + end + " behind",
               "Hm.|weather({\"place\": \"it's \\\"so\\\"\", \"days\": 3})||clock({})|behind");
  expect_calls(
      d, begin + "[mixed(exact=True, ratio=-1.5, tags=['a', \"b\\n\"], deep={\"x\": None, 'y': (1, 2)}, unit=a)]" + end,
      "|mixed({\"exact\": true, \"ratio\": -1.5, \"tags\": [\"a\", \"b\\n\"], \"deep\": {\"x\": null, \"y\": "
      "[1, 2]}, \"unit\": \"a\"})|");
  expect_calls(d, begin + "clock()" + end, "|clock({})|");
  expect_calls(d, begin + "[f(a='\\'\\x41\\u00e9\\q')]", "|f({\"a\": \"'\\u0041\\u00e9\\\\q\"})|");
  expect_calls(d, begin + "[weather(place='cut", "|weather({\"place\": \"cut)|");
  expect_calls(d, begin + "[clock()] and text", "|clock({})|and text");
  expect_calls(d, begin + "[weather('positional')]", "|weather({\"positional\")|)]");
  expect_no_call(d, begin + "[{\"name\": \"weather\"}]" + end);
  expect_no_call(d, begin + "[]" + end);
  expect_no_call(d, begin + "[two words()]" + end);
  expect_no_call(d, begin + "[weath");
  expect_no_call(d, "[weather(place='x')] without its mark");
  expect_no_call(d, "<|tool_call_st");
}

TEST(MoreToolDialects, JsonLists) {
  const std::pair<const ToolDialect*, std::pair<const char*, const char*>> cases[] = {
      {&kGraniteTools, {"<|tool_call|>", ""}}, {&kNemotronTools, {"<TOOLCALL>", "</TOOLCALL>"}}};
  for (const auto& [d, marks] : cases) {
    const std::string begin = marks.first, end = marks.second;
    expect_calls(*d,
                 "Hm. " + begin +
                     "[{\"name\": \"weather\", \"arguments\": {\"place\": \"]}\", \"days\": 2}}, "
                     "{\"name\": \"clock\"}]" +
                     end + " behind",
                 "Hm.|weather({\"place\": \"]}\", \"days\": 2})||clock({})|behind");
    expect_calls(*d, begin + " [ {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1]}\"} ]\n" + end,
                 "|f({\"a\": [1]})|");
    expect_calls(*d, begin + "[{\"name\": \"f\", \"arguments\": {\"a\": ", "|f({\"a\": )|");
    expect_calls(*d, begin + "[{\"name\": \"f\", \"arguments\": {}}, not json]", "|f({})|not json]");
    expect_no_call(*d, begin + "[1]" + end);
    expect_no_call(*d, begin + "{\"name\": \"f\"}" + end);
    expect_no_call(*d, begin + "[]" + end);
    expect_no_call(*d, begin + "[{\"nam");
    expect_no_call(*d, begin + "[{\"no\": 1}]" + end);
    expect_no_call(*d, begin.substr(0, begin.size() - 1));
  }
  expect_calls(kNemotronTools, "<TOOLCALL>[{\"name\": \"f\"}]</TOOL", "|f({})|</TOOL");
}

// Allowed calls are parsed; malformed ones, unknown tools and further calls where one is allowed are not allowed.
TEST(MoreToolDialects, StructuresAllowWhatTheParsersRead) {
  const std::string kimi = "<|tool_calls_section_begin|><|tool_call_begin|>functions.", q = "<|\"|>";
  struct StructureCase {
    const ToolDialect* dialect;
    std::string call, second, wrong, unknown;
  } cases[] = {
      {&kKimiTools,
       kimi + "weather:0<|tool_call_argument_begin|>{\"place\": \"x\", \"days\": 2}<|tool_call_end|>@"
              "<|tool_calls_section_end|>",
       "<|tool_call_begin|>functions.clock:1<|tool_call_argument_begin|>{}<|tool_call_end|>",
       kimi + "weather:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
       kimi + "other:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
      {&kMinimaxTools,
       "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"place\">x</parameter>\n<parameter "
       "name=\"days\">2</parameter>\n</invoke>@\n</minimax:tool_call>",
       "\n<invoke name=\"clock\">\n</invoke>",
       "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"days\">2</parameter>\n</invoke>\n"
       "</minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"other\">\n</invoke>\n</minimax:tool_call>"},
      {&kGemmaTools, "<|tool_call>call:weather{days:2,place:" + q + "x" + q + "}<tool_call|>@",
       "<|tool_call>call:clock{}<tool_call|>", "<|tool_call>call:weather{days:2}<tool_call|>",
       "<|tool_call>call:other{}<tool_call|>"},
      {&kLfmTools, "<|tool_call_start|>[weather(place=\"x\", days=2)@]<|tool_call_end|>", ", clock()",
       "<|tool_call_start|>[weather(days=2)]<|tool_call_end|>", "<|tool_call_start|>[other()]<|tool_call_end|>"},
      {&kGraniteTools, "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"place\": \"x\", \"days\": 2}}@]",
       ", {\"name\": \"clock\", \"arguments\": {}}", "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {}}]",
       "<|tool_call|>[{\"name\": \"other\", \"arguments\": {}}]"},
      {&kNemotronTools,
       "<TOOLCALL>[{\"name\": \"weather\", \"arguments\": {\"place\": \"x\", \"days\": 2}}@]</TOOLCALL>",
       ", {\"name\": \"clock\", \"arguments\": {}}",
       "<TOOLCALL>[{\"name\": \"weather\", \"arguments\": {}}]</TOOLCALL>",
       "<TOOLCALL>[{\"name\": \"other\", \"arguments\": {}}]</TOOLCALL>"}};
  for (const StructureCase& c : cases) {
    const size_t at = c.call.find('@');
    const std::string one = c.call.substr(0, at) + c.call.substr(at + 1),
                      two = c.call.substr(0, at) + c.second + c.call.substr(at + 1);
    for (const bool required : {false, true})
      for (const bool parallel : {false, true}) {
        const auto structure = c.dialect->structure(kManyTyped, {required, parallel});
        testing::TextMatcher m(testing::make_constraint(Constraint::Kind::structure, structure.dump()));
        ASSERT_TRUE(m.ok()) << c.dialect->name << m.error.message;
        EXPECT_TRUE(m.accepts(one)) << c.dialect->name << required << parallel;
        EXPECT_EQ(m.accepts(two), parallel) << c.dialect->name << required << two;
        EXPECT_FALSE(m.accepts(c.wrong)) << c.dialect->name << required;
        EXPECT_FALSE(m.accepts(c.unknown)) << c.dialect->name << required;
        EXPECT_EQ(m.accepts("just text"), !required) << c.dialect->name;
        EXPECT_EQ(m.accepts(""), !required) << c.dialect->name;
      }
    const std::string first = c.dialect == &kGemmaTools ? "|weather({\"days\": 2, \"place\": \"x\"})|"
                                                        : "|weather({\"place\": \"x\", \"days\": 2})|";
    expect_calls(*c.dialect, one, first);
    expect_calls(*c.dialect, two, first + "|clock({})|");
  }
}

// Every type of value: what the structure allows is read as JSON that the schema allows.
TEST(MoreToolDialects, ValuesOfEveryType) {
  const std::string q = "<|\"|>";
  const std::string read =
      "|mixed({\"deep\": {\"x\": null}, \"exact\": false, \"ratio\": 0.5, \"tags\": [\"a\", \"b\"], "
      "\"unit\": \"b\"})|";
  const std::string gemma = "<|tool_call>call:mixed{deep:{x:null},exact:false,ratio:0.5,tags:[" + q + "a" + q + "," +
                            q + "b" + q + "],unit:" + q + "b" + q + "}<tool_call|>";
  testing::TextMatcher by_gemma(
      testing::make_constraint(Constraint::Kind::structure, kGemmaTools.structure(kManyTyped, {true, true}).dump()));
  ASSERT_TRUE(by_gemma.ok()) << by_gemma.error.message;
  EXPECT_TRUE(by_gemma.accepts(gemma));
  EXPECT_TRUE(by_gemma.accepts("<|tool_call>call:mixed{}<tool_call|>"));
  EXPECT_TRUE(by_gemma.accepts("<|tool_call>call:mixed{ratio:1}<tool_call|>"));
  const std::string wrongs[] = {"unit:" + q + "c" + q, "exact:1", "tags:[1]", "deep:{}", "ratio:1,deep:{x:1}"};
  for (const std::string& wrong : wrongs)
    EXPECT_FALSE(by_gemma.accepts("<|tool_call>call:mixed{" + wrong + "}<tool_call|>")) << wrong;
  expect_calls(kGemmaTools, gemma, read);

  const std::string lfm =
      "<|tool_call_start|>[mixed(unit=\"b\", exact=false, ratio=0.5, tags=[\"a\", \"b\"], deep={\"x\": "
      "null})]<|tool_call_end|>";
  testing::TextMatcher by_lfm(
      testing::make_constraint(Constraint::Kind::structure, kLfmTools.structure(kManyTyped, {true, true}).dump()));
  ASSERT_TRUE(by_lfm.ok()) << by_lfm.error.message;
  EXPECT_TRUE(by_lfm.accepts(lfm));
  EXPECT_TRUE(by_lfm.accepts("<|tool_call_start|>[mixed(exact=true)]<|tool_call_end|>"));
  EXPECT_FALSE(by_lfm.accepts("<|tool_call_start|>[mixed(, exact=true)]<|tool_call_end|>"));
  EXPECT_FALSE(by_lfm.accepts("<|tool_call_start|>[mixed(exact=true, unit=\"a\")]<|tool_call_end|>"));
  expect_calls(kLfmTools, lfm,
               "|mixed({\"unit\": \"b\", \"exact\": false, \"ratio\": 0.5, \"tags\": [\"a\", \"b\"], \"deep\": {\"x\": "
               "null}})|");
}

// A keyword that the notation cannot enforce is named, and refused for a strict tool.
TEST(MoreToolDialects, WeakenedKeywordsAreNamed) {
  const std::vector<Tool> tools = {
      {"f", "", CallJson::parse(R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}})")}};
  const std::string structure = kGemmaTools.structure(tools, {true, true}).dump();
  EXPECT_NE(structure.find("tool 'f': /properties/a/maxLength is not enforced"), std::string::npos) << structure;
  for (const int items : {0, 1, 3}) {
    const std::vector<Tool> lists = {
        {"f", "", {{"type", "object"}, {"properties", {{"a", {{"type", "array"}, {"minItems", items}}}}}}}};
    const bool named = kGemmaTools.structure(lists, {true, true}).dump().find("a/minItems is") != std::string::npos;
    EXPECT_EQ(named, items == 3) << items;
  }
}

const std::pair<const ToolDialect*, std::pair<const char*, const char*>> kListing[] = {
    {&kGemmaTools, {"<|tool_call>call:f{", "}<tool_call|>"}},
    {&kLfmTools, {"<|tool_call_start|>[f(", ")]<|tool_call_end|>"}}};

// The structure of a tool is linear in its schema, in depth and in width.
TEST(MoreToolDialects, StructuresAreLinear) {
  CallJson deep = {{"type", "integer"}};
  for (int level = 0; level < 30; ++level)
    deep = {{"type", {"object", "object"}}, {"properties", {{"a", {{"type", "integer"}}}, {"b", std::move(deep)}}}};
  CallJson wide = {{"type", "object"}, {"properties", CallJson::object()}};
  for (int i = 0; i < 300; ++i)
    wide["properties"]["p" + std::to_string(i)] = {{"type", "array"}, {"items", {{"$ref", "#/$defs/one"}}}};
  wide["$defs"] = {{"one", {{"type", "integer"}, {"description", std::string(10'000, 'x')}}}};
  for (const auto& [d, marks] : kListing)
    for (const CallJson& schema : {deep, wide}) {
      const std::vector<Tool> tools = {{"f", "", schema}};
      EXPECT_LT(d->structure(tools, {true, true}).dump().size(), 400'000u) << d->name;
    }
}

TEST(MoreToolDialects, ManyOptionalProperties) {
  for (const size_t count : {size_t{90}, size_t{300}}) {
    CallJson schema = {{"type", "object"}, {"properties", CallJson::object()}};
    for (size_t i = 0; i < count; ++i) schema["properties"]["p" + std::to_string(i + 100)] = {{"type", "boolean"}};
    const std::vector<Tool> tools = {{"f", "", schema}};
    for (const auto& [d, marks] : kListing) {
      const auto structure = d->structure(tools, {true, true});
      testing::TextMatcher m(testing::make_constraint(Constraint::Kind::structure, structure.dump()));
      ASSERT_TRUE(m.ok()) << d->name << m.error.message;
      const bool gemma = d == &kGemmaTools;
      const std::string begin = marks.first, end = marks.second, is = gemma ? ":" : "=", between = gemma ? "," : ", ",
                        last = "p" + std::to_string(count + 99) + is + "true";
      EXPECT_TRUE(m.accepts(begin + end)) << d->name;
      EXPECT_TRUE(m.accepts(begin + last + end)) << d->name;
      EXPECT_TRUE(m.accepts(begin + "p100" + is + "true" + between + "p150" + is + "false" + between + last + end));
      EXPECT_FALSE(m.accepts(begin + last + between + "p100" + is + "true" + end)) << d->name;
      EXPECT_FALSE(m.accepts(begin + last + between + end)) << d->name;
    }
  }
}

TEST(MoreToolDialects, NestedObjects) {
  CallJson schema = {{"type", "integer"}};
  for (int level = 0; level < 8; ++level)
    schema = {{"type", "object"},
              {"properties", {{"a", {{"type", "integer"}}}, {"b", std::move(schema)}, {"c", {{"type", "boolean"}}}}},
              {"required", {"b"}}};
  const std::vector<Tool> tools = {{"f", "", schema}};
  for (const auto& [d, marks] : kListing) {
    const bool gemma = d == &kGemmaTools;
    const auto structure = d->structure(tools, {false, true});
    testing::TextMatcher m(testing::make_constraint(Constraint::Kind::structure, structure.dump()));
    ASSERT_TRUE(m.ok()) << d->name << m.error.message;
    std::string inner = "1";
    for (int level = 0; level < 7; ++level) inner = (gemma ? "{b:" : "{\"b\": ") + inner + "}";
    const std::string begin = marks.first + std::string(gemma ? "b:" : "b=");
    EXPECT_TRUE(m.accepts(begin + inner + marks.second)) << d->name;
    EXPECT_FALSE(m.accepts(begin + "1" + marks.second)) << d->name;
  }
}

TEST(MoreToolDialects, LiteralsEndOrAreWrong) {
  const auto read = [](LiteralArguments::Form form, std::string_view text) {
    LiteralArguments arguments(form);
    std::string json;
    auto state = LiteralArguments::State::more;
    for (size_t i = 0; i < text.size() && state == LiteralArguments::State::more; ++i)
      state = arguments.push(text[i], json);
    return std::pair(state, json);
  };
  const LiteralArguments::Form python = {'=', ')', ""};
  EXPECT_EQ(read(python, "a=1)"), std::pair(LiteralArguments::State::done, std::string("{\"a\": 1}")));
  EXPECT_EQ(read(python, "a=)"), std::pair(LiteralArguments::State::done, std::string("{\"a\": null}")));
  for (const char* wrong : {"a, b=1)", ",)", "=1)", "a=1]", "a=[1)", "a={1})"})
    EXPECT_NE(read(python, wrong).first, LiteralArguments::State::done) << wrong;
  const std::pair<const char*, const char*> escapes[] = {{"C:\\users", "C:\\users"},
                                                         {"\\xyz", "\\xyz"},
                                                         {"\\x4", "\\x4"},
                                                         {"\\u12", "\\u12"},
                                                         {"\\u123\\n", "\\u123\n"},
                                                         {"\\u00e9\\x41b",
                                                          "\u00e9"
                                                          "Ab"},
                                                         {"\\ud83d\\ude00.", "\U0001f600."},
                                                         {"\\ud83d", "\\ud83d"},
                                                         {"\\ud83d\\n", "\\ud83d\n"},
                                                         {"\\ude00\\'", "\\ude00'"}};
  for (const auto& [text, meant] : escapes) {
    const auto [state, json] = read(python, "a='" + std::string(text) + "')");
    EXPECT_EQ(state, LiteralArguments::State::done) << text;
    ASSERT_TRUE(CallJson::accept(json)) << text << " " << json;
    EXPECT_EQ(CallJson::parse(json)["a"], meant) << json;
  }
  EXPECT_EQ(read(python, "a='x' 'y')").second, "{\"a\": \"x' 'y\"}");  // no string ends where none can end
  EXPECT_EQ(read(python, "a=" + std::string(100, '[')).first, LiteralArguments::State::wrong);
  EXPECT_EQ(read(python, "a=" + std::string(5000, 'x')).first, LiteralArguments::State::wrong);
}

TEST(MoreToolDialects, DetectedInPublishedTemplates) {
  const std::pair<const char*, const char*> cases[] = {{"Kimi-K2-Instruct", "kimi"},
                                                       {"Kimi-K2-Thinking", "kimi"},
                                                       {"moonshotai-Kimi-K2", "kimi"},
                                                       {"MiniMax-M2", "minimax"},
                                                       {"google-gemma-4-31B-it", "gemma_call"},
                                                       {"google-gemma-4-31B-it-interleaved", "gemma_call"},
                                                       {"LFM2-8B-A1B", "lfm"},
                                                       {"LFM2.5-Instruct", "lfm"},
                                                       {"LFM2.5-8B-A1B", "lfm"},
                                                       {"ibm-granite-granite-3.3-2B-Instruct", "granite_list"},
                                                       {"ibm-granite-granite-4.0", "hermes"},
                                                       {"ibm-granite-granite-4.1", "hermes"},
                                                       {"NVIDIA-Nemotron-Nano-v2", "nemotron_list"},
                                                       {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen_xml"},
                                                       {"stepfun-ai-Step-3.5-Flash", "qwen_xml"},
                                                       {"StepFun3.5-Flash", "qwen_xml"},
                                                       {"GLM-4.6", "glm"}};
  for (const auto& [name, dialect] : cases) {
    const std::string path = "chat-templates/templates/" + std::string(name) + ".jinja";
    MILLRACE_NEEDS_SHARED(path);
    const std::string source = testing::read_file(testing::shared_data() / path);
    EXPECT_EQ(std::string(tool_dialect_of(source).name), dialect) << name;
    EXPECT_TRUE(tool_dialect_of(source).speaks(source)) << name;
  }
}

// Each template renders earlier calls, or the dialect writes them into the content, in the form that it parses.
TEST(MoreToolDialects, PublishedTemplatesRoundTrip) {
  for (const char* name :
       {"moonshotai-Kimi-K2", "MiniMax-M2", "google-gemma-4-31B-it", "LFM2-8B-A1B", "LFM2.5-Instruct", "LFM2.5-8B-A1B",
        "ibm-granite-granite-3.3-2B-Instruct", "ibm-granite-granite-4.0", "NVIDIA-Nemotron-Nano-v2",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "StepFun3.5-Flash"}) {
    const std::string path = "chat-templates/templates/" + std::string(name) + ".jinja";
    MILLRACE_NEEDS_SHARED(path);
    const std::string source = testing::read_file(testing::shared_data() / path);
    const ToolDialect& dialect = tool_dialect_of(source);
    const auto chat_template = ChatTemplate::parse(source);
    ASSERT_TRUE(chat_template.ok()) << name << chat_template.error().message;
    const CallJson tools = CallJson::parse(
        R"([{"type": "function", "function": {"name": "weather", "description": "of a place", "parameters":
          {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}])");
    CallJson messages =
        CallJson::parse(R"([{"role": "user", "content": "How is it?"}, {"role": "assistant", "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function":
          {"name": "weather", "arguments": {"place": "x & y"}}}]},
        {"role": "tool", "tool_call_id": "1", "content": "Fine."}])");
    if (dialect.call_writer && source.find("tool_calls") == std::string::npos)
      write_calls(dialect.call_writer, messages);
    const auto context = chat_context(messages, {.add_generation_prompt = false, .tools = &tools});
    ASSERT_TRUE(context.ok()) << context.error().message;
    const auto text = chat_template->render(*context);
    ASSERT_TRUE(text.ok()) << name << text.error().message;
    const std::string turn = text->substr(text->rfind("How is it?"));
    const std::string read = calls_read(dialect, {turn});
    const bool spaced = read.find("|weather({\"place\": \"x & y\"})|") != std::string::npos;
    const bool compact = read.find("|weather({\"place\":\"x & y\"})|") != std::string::npos;
    EXPECT_TRUE(spaced || compact) << name << "\n" << turn << "\n" << read;
  }
}

TEST(MoreToolDialects, WrittenCallsAreRead) {
  const CallJson calls = CallJson::parse(R"([{"name": "mixed", "arguments": {"unit": "it's\n", "exact": true,
      "deep": {"x": null}, "ratio": null, "tags": ["a"]}}, {"name": "clock", "arguments": {}}])");
  for (const ToolDialect* d : {&kLfmTools, &kGraniteTools}) {
    const auto parser = d->parser(kManyTyped);
    AnswerPieces out;
    parser->push(d->call_writer(calls), out);
    parser->finish(out);
    std::string arguments;
    for (const AnswerPiece& piece : out)
      if (piece.kind == AnswerPiece::Kind::arguments) arguments += piece.text;
    EXPECT_TRUE(calls_shown(out).ends_with("|clock({})|")) << calls_shown(out);
    EXPECT_EQ(CallJson::parse(arguments.substr(0, arguments.size() - 2)), calls[0]["arguments"]) << arguments;
  }
  EXPECT_EQ(kHermesTools.call_writer, nullptr);
}

// Gemma 4 thinks in a channel.
TEST(MoreToolDialects, GemmasReasoning) {
  const std::string source = "{{ '<|channel>thought\\n' }}{{ '<channel|>' }}";
  const ReasoningMarks* marks = reasoning_marks_of(source);
  ASSERT_TRUE(marks);
  EXPECT_EQ(std::string(marks->close), "<channel|>");
  EXPECT_EQ(reasoning_place("<|turn>model\n<|channel>thought\n<channel|>", *marks), ReasoningPlace::behind);
  ReasoningSplitter splitter(*marks, ReasoningPlace::begin, kGemmaTools.start);
  AnswerPieces out;
  std::string rest = splitter.push("<|channel>thought\nHm.\n<channel|>Fine.", out);
  rest += splitter.finish(out);
  EXPECT_EQ(rest, "Fine.");
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].text, "Hm.");
  for (const char* token : {"<|channel>", "<channel|>", "<|tool_call>", "<|\"|>"})
    EXPECT_TRUE(is_marker(token)) << token;
}

}  // namespace
}  // namespace millrace
