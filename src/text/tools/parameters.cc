// Shared by dialects that write each parameter in its own tags, strings verbatim and everything else as JSON.
#include <algorithm>
#include <initializer_list>

#include "base/json_text.h"
#include "text/grammar/schema.h"
#include "text/tools/dialects.h"

namespace millrace {

using Json = nlohmann::ordered_json;

namespace {

const Json* properties_of(const Tool& tool) {
  if (!tool.parameters.is_object() || !tool.parameters.contains("properties")) return nullptr;
  const Json& properties = tool.parameters["properties"];
  return properties.is_object() ? &properties : nullptr;
}

const Json* schema_of(const Tool& tool, const std::string& key) {
  const Json* properties = properties_of(tool);
  return properties && properties->contains(key) ? &(*properties)[key] : nullptr;
}

// Whether values are strings, which are written without quotes.
bool is_string(const Json* schema) {
  if (!schema || !schema->is_object()) return false;
  if (schema->contains("type")) return (*schema)["type"] == "string";
  if (!schema->contains("enum") || !(*schema)["enum"].is_array()) return false;
  for (const Json& value : (*schema)["enum"])
    if (!value.is_string()) return false;
  return true;
}

// One entry of a `fields` structure (text/grammar/structure_fields.h).
Json field_of(const Tool& tool, const std::string& key, const Json& schema, const ParameterTags& tags) {
  Json field = {{"open", std::string(tags.open) + key + std::string(tags.open_end)}};
  if (!tags.head.is_null()) field["head"] = tags.head;
  if (!is_string(&schema)) {
    field["content"] = json_value(tool, schema);
    field["tail"] = tags.line;
    return field;
  }
  if (schema.contains("enum") || schema.contains("const")) {
    Json ways = Json::array();
    for (const Json& value : schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"])
      if (value.is_string()) ways.push_back(literal_text(value.get_ref<const std::string&>()));
    field["content"] = {{"type", "or"}, {"elements", std::move(ways)}};
    field["tail"] = tags.line;
  }
  name_weakened(tool, schema, "/properties/" + key,
                {"pattern", "format", "minLength", "maxLength", "$ref", "allOf", "anyOf", "oneOf", "not", "if"}, field);
  return field;
}

// "key": value, as JSON.
std::string parameter_text(const Tool* tool, const std::string& key, const std::string& value) {
  Json json = value;
  if (!tool || !is_string(schema_of(*tool, key))) {
    Json parsed = parse_json(value);
    if (!parsed.is_discarded()) json = std::move(parsed);
  }
  const auto text = [](const Json& one) { return one.dump(-1, ' ', false, Json::error_handler_t::replace); };
  return text(Json(key)) + ": " + text(json);
}

}  // namespace

void name_weakened(const Tool& tool, const Json& schema, const std::string& place,
                   std::initializer_list<const char*> keywords, Json& part) {
  if (!schema.is_object()) return;
  for (const char* key : keywords)
    if (schema.contains(key))
      part["weakened"].push_back("tool '" + tool.name + "': " + place + "/" + key +
                                 " is not enforced in the parameter format of this model");
  if (part.contains("weakened")) part["strict"] = tool.parameters.contains(kStrictSchema);
}

Json json_value(const Tool& tool, const Json& schema) {
  Json out = schema;
  if (out.is_object() && tool.parameters.contains(kStrictSchema)) out[kStrictSchema] = tool.parameters[kStrictSchema];
  return {{"type", "json_schema"}, {"json_schema", std::move(out)}};
}

Json definitions_of(const Tool& tool) {
  Json out = Json::object();
  for (const char* key : {"$defs", "definitions"})
    if (tool.parameters.contains(key)) out[key] = tool.parameters[key];
  return out;
}

Json literal_text(std::string_view text) { return {{"type", "const_string"}, {"value", text}}; }
Json sequence_of(std::vector<Json> parts) {
  Json elements = Json::array();
  for (Json& part : parts) elements.push_back(std::move(part));
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

void ParameterCall::begin(std::string_view name, AnswerPieces& out) {
  out.push_back({AnswerPiece::Kind::call, std::string(name)});
  const auto found = std::ranges::find(tools_, name, &Tool::name);
  tool_ = found == tools_.end() ? nullptr : &*found;
  keys_.clear();
}

void ParameterCall::add(const std::string& key, const std::string& value, AnswerPieces& out) {
  add_piece(out, AnswerPiece::Kind::arguments, (keys_.empty() ? "{" : ", ") + parameter_text(tool_, key, value));
  keys_.push_back(key);
}

void ParameterCall::end(AnswerPieces& out) {
  add_piece(out, AnswerPiece::Kind::arguments, keys_.empty() ? "{}" : "}");
  out.push_back({AnswerPiece::Kind::call_end, ""});
}

bool ParameterCall::may_follow(std::string_view current, std::string_view key) const {
  const Json* properties = tool_ ? properties_of(*tool_) : nullptr;
  if (!properties || properties->empty()) return true;
  return key != current && properties->contains(key) && std::ranges::find(keys_, key) == keys_.end();
}

bool ParameterValue::push(char c, const ParameterCall& call) {
  text_ += c;
  if (candidate_ == std::string::npos) {
    if (text_.ends_with(tags_.close)) candidate_ = text_.size();
    return false;
  }
  Verdict known = verdict(call);
  while (known == Verdict::content) {  // another closing tag may have come since
    const size_t next = text_.find(tags_.close, candidate_);
    candidate_ = next == std::string::npos ? next : next + tags_.close.size();
    if (candidate_ == std::string::npos) return false;
    known = verdict(call);
  }
  return known == Verdict::ends;
}

bool ParameterValue::finish() {
  if (candidate_ != std::string::npos) return true;
  const size_t last = text_.rfind(tags_.close);
  if (last == std::string::npos) return false;
  candidate_ = last + tags_.close.size();
  return true;
}

ParameterValue::Verdict ParameterValue::next_parameter(std::string_view rest, const ParameterCall& call) const {
  if (rest.size() < tags_.open.size()) return tags_.open.starts_with(rest) ? Verdict::wait : Verdict::content;
  if (!rest.starts_with(tags_.open)) return Verdict::content;
  const std::string_view key = rest.substr(tags_.open.size());
  const size_t end = key.find(tags_.open_end);
  if (end == std::string_view::npos) return key.size() < kLongestToolName ? Verdict::wait : Verdict::content;
  return call.may_follow(key_, key.substr(0, end)) ? Verdict::ends : Verdict::content;
}

ParameterValue::Verdict ParameterValue::call_end(std::string_view rest) const {
  for (const std::string_view tag : tags_.end) {
    while (!rest.empty() && is_json_space(rest.front())) rest.remove_prefix(1);
    if (rest.size() < tag.size()) return tag.starts_with(rest) ? Verdict::wait : Verdict::content;
    if (!rest.starts_with(tag)) return Verdict::content;
    rest.remove_prefix(tag.size());
  }
  return Verdict::ends;
}

ParameterValue::Verdict ParameterValue::verdict(const ParameterCall& call) const {
  constexpr size_t kMaxSpace = 64;  // bytes between two tags
  std::string_view rest = std::string_view(text_).substr(candidate_);
  if (rest.size() > 2 * kLongestToolName) return Verdict::content;
  const size_t space = std::min(rest.find_first_not_of(" \n\r\t"), rest.size());
  if (space > kMaxSpace) return Verdict::content;
  rest.remove_prefix(space);
  const Verdict parameter = next_parameter(rest, call);
  return parameter == Verdict::content ? call_end(rest) : parameter;
}

Json parameters_structure(const Tool& tool, const ParameterTags& tags) {
  const Json none = Json::object();
  const Json* declared = properties_of(tool);
  Json fields = Json::array();
  for (const auto& [key, schema] : (declared ? *declared : none).items()) {
    Json field = field_of(tool, key, schema, tags);
    bool required = false;
    if (tool.parameters.contains("required") && tool.parameters["required"].is_array())
      for (const Json& one : tool.parameters["required"]) required |= one == key;
    field["required"] = required;
    fields.push_back(std::move(field));
  }
  Json between = Json::array();
  for (const char* text : tags.between) between.push_back(text);
  Json all = {{"type", "fields"}, {"close", tags.close},         {"between", std::move(between)},
              {"end", tags.end},  {"fields", std::move(fields)}, {"definitions", definitions_of(tool)}};
  name_weakened(tool, tool.parameters, "", kObjectKeywords, all);
  return all;
}

}  // namespace millrace
