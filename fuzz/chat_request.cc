// Fuzzes chat requests built from the input's bytes: well-formed, with odd content. Each becomes a prompt with a
// constraint that compiles or is refused, or an error that names a field.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/api/endpoint.h"
#include "text/grammar/constraint.h"

namespace {

using namespace millrace;

// Reads the input as a sequence of choices.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  size_t below(size_t n) { return byte() % n; }
  std::string text() {
    static const char* const words[] = {"",       "a",        "<think>", "</think>", "<tool_call>", "[TOOL_CALLS]",
                                        "f",      "\xC3\xA9", "\"",      "{}",       "user",        "object",
                                        "string", "#/$defs/a"};
    const size_t which = below(std::size(words) + 2);
    if (which < std::size(words)) return words[which];
    std::string out;
    for (size_t i = below(8); i > 0; --i) out += static_cast<char>(byte());
    return out;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

Json schema(Choices& c, int depth) {
  static const char* const types[] = {"object", "array", "string", "integer", "number", "boolean", "null", "other"};
  Json out = Json::object();
  out["type"] = types[c.below(std::size(types))];
  for (size_t i = c.below(4); i > 0 && depth < 4; --i) {
    switch (c.below(7)) {
      case 0: out["properties"][c.text()] = schema(c, depth + 1); break;
      case 1: out["items"] = schema(c, depth + 1); break;
      case 2: out["anyOf"].push_back(schema(c, depth + 1)); break;
      case 3: out["$ref"] = c.text(); break;
      case 4: out["enum"].push_back(c.text()); break;
      case 5: out["required"].push_back(c.text()); break;
      case 6: out["maxLength"] = c.byte(); break;
    }
  }
  return out;
}

Json anything(Choices& c) {
  switch (c.below(6)) {
    case 0: return c.text();
    case 1: return c.byte();
    case 2: return nullptr;
    case 3: return Json::array({c.text()});
    case 4: return schema(c, 2);
    default: return c.byte() % 2 == 0;
  }
}

Json message(Choices& c) {
  static const char* const roles[] = {"user", "assistant", "system", "tool", "developer", "other"};
  Json out = {{"role", roles[c.below(std::size(roles))]}, {"content", c.text()}};
  switch (c.below(5)) {
    case 0:
      out["tool_calls"] = Json::array({Json{
          {"id", c.text()}, {"type", "function"}, {"function", {{"name", c.text()}, {"arguments", anything(c)}}}}});
      break;
    case 1: out["content"] = Json::array({Json{{"type", "text"}, {"text", c.text()}}, anything(c)}); break;
    case 2: out[c.below(2) ? "reasoning_content" : "tool_calls"] = anything(c); break;
    default: break;
  }
  return out;
}

Json tool(Choices& c) {
  Json function = {{"name", c.text()}, {"parameters", schema(c, 0)}};
  if (c.below(8) == 0) function["parameters"] = anything(c);
  return {{"type", "function"}, {"function", std::move(function)}};
}

Json request(Choices& c) {
  Json out = {{"messages", Json::array()}};
  for (size_t i = 1 + c.below(3); i > 0; --i) out["messages"].push_back(message(c));
  for (size_t i = c.below(5); i > 0; --i) {
    switch (c.below(9)) {
      case 0: out["tools"].push_back(tool(c)); break;
      case 1:
        out["tool_choice"] =
            c.below(2) ? Json("required") : Json{{"type", "function"}, {"function", {{"name", c.text()}}}};
        break;
      case 2: out["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", schema(c, 0)}}}}; break;
      case 3: out["structured_outputs"] = {{c.below(2) ? "regex" : "grammar", c.text()}}; break;
      case 4:
        out["structured_outputs"] = {
            {"structural_tag",
             {{"type", "triggered_tags"},
              {"triggers", {c.text(), c.text()}},
              {"tags",
               Json::array({Json{{"begin", c.text()}, {"content", {{"type", "any_text"}}}, {"end", c.text()}}})}}}};
        break;
      case 5: out["continue_final_message"] = true; break;
      case 6: out["reasoning_effort"] = "low"; break;
      case 7: out[c.text()] = anything(c); break;
      case 8: out["parallel_tool_calls"] = c.below(2) == 0; break;
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  std::string rest;
  bool wrong_method = false;
  static const Endpoint& endpoint = *find_endpoint("POST", "/v1/chat/completions", &rest, &wrong_method);
  Choices choices(data + 1, size - 1);
  Json body = request(choices);
  GenerationRequest ask;
  auto wrong = read_fields(endpoint.fields, body, ask);
  if (!wrong) wrong = endpoint.prepare(body, ask);
  if (wrong) {
    if (wrong->message.empty() || endpoint.dialect->refuse(*wrong).status == 500) std::abort();
    return 0;
  }
  const auto dialects = tool_dialects().members();
  Constraint constraint = ask.request.constraint;
  if (ask.tools.any()) {
    constraint = {};
    constraint.kind = Constraint::Kind::structure;
    const ToolDialect& dialect = *dialects[data[0] % dialects.size()];
    const ToolChoice wish = {ask.tools.choice == RequestedTools::Choice::required, ask.tools.parallel};
    constraint.text =
        to_text(behind_reasoning(dialect.structure(ask.tools.tools, wish), reasoning_marks()[0],
                                 static_cast<ReasoningPlace>(data[0] / 16 % 3), {&dialect, ask.tools.tools, wish}));
  }
  if (constraint.kind == Constraint::Kind::none) return 0;
  GrammarLimits limits;
  limits.total_states = limits.dfa_states = 5000;
  limits.nfa_states = 20'000;
  if (auto grammar = compile_constraint(constraint, limits); !grammar.ok() && grammar.error().message.empty())
    std::abort();
  describe_calls(ask.messages);
  return 0;
}
