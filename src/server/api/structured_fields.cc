#include "server/api/structured_fields.h"

#include <fmt/format.h>

#include "base/json_text.h"
#include "text/grammar/schema.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;
using ConstraintKind = Constraint::Kind;

Wrong set_constraint(GenerationRequest& params, const std::string& field, Constraint constraint) {
  if (!params.constraint_field.empty())
    return ApiError::bad(field,
                         fmt::format("cannot be combined with {}: an output has one format", params.constraint_field));
  params.constraint_field = field;
  params.request.constraint = std::move(constraint);
  return std::nullopt;
}

Constraint made(ConstraintKind kind, std::string text) {
  Constraint constraint;
  constraint.kind = kind;
  constraint.text = std::move(text);
  return constraint;
}

bool is_off(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

// `schema` is an object, or a string that holds one. {} allows any JSON.
Wrong set_schema(GenerationRequest& params, const std::string& field, const Json& schema, bool strict = false) {
  if (schema.is_string()) {
    Json parsed = strict ? parse_json(schema.get_ref<const std::string&>()) : Json();
    if (parsed.is_object()) return set_schema(params, field, parsed, strict);
    return set_constraint(params, field, made(ConstraintKind::json_schema, schema.get<std::string>()));
  }
  if (!schema.is_object() && !schema.is_boolean()) return ApiError::bad(field, "must be a JSON Schema");
  if (strict && schema.is_object()) {
    Json marked = schema;
    marked[kStrictSchema] = true;
    return set_constraint(params, field, made(ConstraintKind::json_schema, to_text(marked)));
  }
  return set_constraint(params, field, made(ConstraintKind::json_schema, to_text(schema)));
}

Wrong set_choice(GenerationRequest& params, const std::string& field, const Json& choices) {
  if (!choices.is_array()) return ApiError::bad(field, "must be an array of strings");
  Constraint constraint;
  constraint.kind = ConstraintKind::choice;
  for (const Json& choice : choices) {
    if (!choice.is_string()) return ApiError::bad(field, "must be an array of strings");
    constraint.choices.push_back(choice.get<std::string>());
  }
  return set_constraint(params, field, std::move(constraint));
}

Wrong set_text(GenerationRequest& params, const std::string& field, const Json& value, ConstraintKind kind) {
  if (!value.is_string()) return ApiError::bad(field, "must be a string");
  return set_constraint(params, field, made(kind, value.get<std::string>()));
}

// One of vLLM's constraint kinds; `name` is without "guided_".
Wrong set_guided(GenerationRequest& params, const std::string& field, const std::string& name, const Json& value) {
  if (is_off(value)) return std::nullopt;
  if (name == "json") return set_schema(params, field, value);
  if (name == "choice") return set_choice(params, field, value);
  if (name == "regex") return set_text(params, field, value, ConstraintKind::regex);
  if (name == "grammar") return set_text(params, field, value, ConstraintKind::grammar);
  if (name == "structural_tag")
    return set_constraint(
        params, field, made(ConstraintKind::structure, value.is_string() ? value.get<std::string>() : to_text(value)));
  if (name == "json_object" && value.is_boolean())
    return value.get<bool>() ? set_constraint(params, field, made(ConstraintKind::json_object, "")) : std::nullopt;
  return std::nullopt;
}

Field guided_field(const std::string& name, unsigned types, const char* help) {
  Field field{"guided_" + name, types, "none", help};
  field.set = [name](const Json& value, GenerationRequest& params) {
    return set_guided(params, "guided_" + name, name, value);
  };
  return field;
}

}  // namespace

Wrong set_response_format(GenerationRequest& params, const Json& format, const std::string& where) {
  if (!format.contains("type") || !format["type"].is_string())
    return ApiError::bad(where + ".type", "must be text, json_object or json_schema");
  const auto& type = format["type"].get_ref<const std::string&>();
  if (type == "text") return std::nullopt;
  if (type == "structural_tag") return set_constraint(params, where, made(ConstraintKind::structure, to_text(format)));
  if (type != "json_object" && type != "json_schema")
    return ApiError::bad(
        where + ".type",
        fmt::format("must be text, json_object, json_schema or structural_tag, got '{}'", type.substr(0, 64)));
  const auto strict = [](const Json& from) { return from.contains("strict") && from["strict"] == true; };
  if (type == "json_schema" && format.contains("json_schema")) {
    const Json& named = format["json_schema"];
    const std::string inner = where + ".json_schema";
    if (!named.is_object()) return ApiError::bad(inner, "must be an object");
    if (named.contains("name") && !named["name"].is_string()) return ApiError::bad(inner + ".name", "must be a string");
    if (!named.contains("schema") || named["schema"].is_null()) return ApiError::bad(inner + ".schema", "is missing");
    return set_schema(params, inner + ".schema", named["schema"], strict(named) || strict(format));
  }
  if (format.contains("schema") && !format["schema"].is_null())
    return set_schema(params, where + ".schema", format["schema"], strict(format));
  if (type == "json_schema") return ApiError::bad(where + ".json_schema", "is missing");
  return set_constraint(params, where, made(ConstraintKind::json_object, ""));
}

Field response_format_field() {
  Field field{"response_format", kJsonObject, "{\"type\": \"text\"}",
              "output format: {\"type\": \"json_object\"}, {\"type\": \"json_schema\", \"json_schema\": {\"name\", "
              "\"schema\"}} or, flat, {\"type\", \"schema\"}; {\"type\": \"structural_tag\"} as in structured_outputs"};
  field.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    return value.empty() ? std::nullopt : set_response_format(params, value, "response_format");
  };
  return field;
}

std::vector<Field> guided_fields() {
  Field all{
      "structured_outputs", kJsonObject, "none",
      "one of json (a JSON Schema), regex, choice (strings), grammar (GBNF), json_object (true) and structural_tag"};
  all.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    for (const char* name : {"json", "regex", "choice", "grammar", "json_object", "structural_tag"})
      if (value.contains(name))
        if (auto wrong = set_guided(params, std::string("structured_outputs.") + name, name, value[name])) return wrong;
    return std::nullopt;
  };
  return {all, guided_field("json", kJsonObject | kJsonText, "older name of structured_outputs.json"),
          guided_field("regex", kJsonText, "older name of structured_outputs.regex"),
          guided_field("choice", kJsonTexts, "older name of structured_outputs.choice"),
          guided_field("grammar", kJsonText, "older name of structured_outputs.grammar")};
}

std::vector<Field> grammar_fields() {
  Field grammar{"grammar", kJsonText, "none", "GBNF grammar of the whole output, including thinking"};
  grammar.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (is_off(value)) return std::nullopt;
    params.constrains_thinking = true;
    return set_text(params, "grammar", value, ConstraintKind::grammar);
  };
  Field schema{"json_schema", kJsonObject | kJsonText, "none",
               "JSON Schema that the output must match; {}: any JSON object"};
  schema.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (is_off(value)) return std::nullopt;
    if (value.is_object() && value.empty())
      return set_constraint(params, "json_schema", made(ConstraintKind::json_object, ""));
    return set_schema(params, "json_schema", value);
  };
  return {grammar, schema};
}

Field ollama_format_field() {
  Field field{"format", kJsonText | kJsonObject, "none",
              "\"json\": any JSON object; or a JSON Schema that the output must match"};
  field.set = [](const Json& value, GenerationRequest& params) -> Wrong {
    if (is_off(value)) return std::nullopt;
    if (value == "json") return set_constraint(params, "format", made(ConstraintKind::json_object, ""));
    if (value.is_string()) return ApiError::bad("format", "must be \"json\" or a JSON Schema");
    return set_schema(params, "format", value);
  };
  return field;
}

}  // namespace millrace
