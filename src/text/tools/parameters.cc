// Shared by dialects that write each parameter in its own tags, strings verbatim and everything else as JSON.
#include <algorithm>
#include <initializer_list>

#include "base/json_text.h"
#include "text/grammar/schema.h"
#include "text/tools/dialects.h"

namespace millrace {

using Json = nlohmann::ordered_json;

namespace {

const Json* schema_of(const Tool& tool, const std::string& key) {
  if (!tool.parameters.is_object() || !tool.parameters.contains("properties")) return nullptr;
  const Json& properties = tool.parameters["properties"];
  return properties.is_object() && properties.contains(key) ? &properties[key] : nullptr;
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

// Notes the schema keywords that are not enforced on a part that is not written as JSON.
void name_weakened(const Tool& tool, const Json& schema, const std::string& place,
                   std::initializer_list<const char*> keywords, Json& part) {
  if (!schema.is_object()) return;
  for (const char* key : keywords)
    if (schema.contains(key))
      part["weakened"].push_back("tool '" + tool.name + "': " + place + "/" + key +
                                 " is not enforced in the parameter format of this model");
  if (part.contains("weakened")) part["strict"] = tool.parameters.contains(kStrictSchema);
}

// A value and its end tag.
Json value_structure(const Tool& tool, const std::string& key, const Json& schema, const ParameterTags& tags) {
  const Json end = sequence_of({literal_text(std::string(tags.line) + std::string(tags.close)), tags.tail});
  if (!is_string(&schema)) {
    Json with_definitions = schema;
    for (const char* kept : {"$defs", "definitions", kStrictSchema})
      if (with_definitions.is_object() && tool.parameters.contains(kept))
        with_definitions[kept] = tool.parameters[kept];
    return sequence_of({Json{{"type", "json_schema"}, {"json_schema", std::move(with_definitions)}}, end});
  }
  Json part;
  if (schema.contains("enum") || schema.contains("const")) {
    Json ways = Json::array();
    for (const Json& value : schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"])
      if (value.is_string()) ways.push_back(sequence_of({literal_text(value.get_ref<const std::string&>()), end}));
    part = {{"type", "or"}, {"elements", std::move(ways)}};
  } else {
    part = sequence_of({Json{{"type", "text_until"}, {"end", tags.close}}, tags.tail});
  }
  name_weakened(tool, schema, "/properties/" + key,
                {"pattern", "format", "minLength", "maxLength", "$ref", "allOf", "anyOf", "oneOf", "not", "if"}, part);
  return part;
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
  parameters_ = 0;
}

void ParameterCall::add(const std::string& key, const std::string& value, AnswerPieces& out) {
  add_piece(out, AnswerPiece::Kind::arguments, (parameters_++ == 0 ? "{" : ", ") + parameter_text(tool_, key, value));
}

void ParameterCall::end(AnswerPieces& out) {
  add_piece(out, AnswerPiece::Kind::arguments, parameters_ == 0 ? "{}" : "}");
  out.push_back({AnswerPiece::Kind::call_end, ""});
}

Json parameters_structure(const Tool& tool, const ParameterTags& tags) {
  Json parts = Json::array();
  const Json none = Json::object();
  const Json& properties =
      tool.parameters.is_object() && tool.parameters.contains("properties") && tool.parameters["properties"].is_object()
          ? tool.parameters["properties"]
          : none;
  for (const auto& [key, schema] : properties.items()) {
    Json part =
        sequence_of({literal_text(std::string(tags.open) + key), tags.head, value_structure(tool, key, schema, tags)});
    bool required = false;
    if (tool.parameters.contains("required") && tool.parameters["required"].is_array())
      for (const Json& one : tool.parameters["required"]) required |= one == key;
    parts.push_back(required ? std::move(part) : Json{{"type", "optional"}, {"content", std::move(part)}});
  }
  Json all = parts.empty() ? literal_text("") : Json{{"type", "sequence"}, {"elements", std::move(parts)}};
  name_weakened(tool, tool.parameters, "",
                {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "propertyNames", "minProperties",
                 "maxProperties", "dependentRequired", "dependentSchemas", "dependencies"},
                all);
  return all;
}

}  // namespace millrace
