#include "server/api/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "loader/json_check.h"
#include "sampling/schema.h"

namespace millrace {
namespace {

constexpr size_t kMaxBodyDepth = 64;
constexpr size_t kMaxKeys = 4096;
constexpr size_t kMaxShownKey = 64;  // bytes of an unknown key that a message repeats
constexpr double kMaxTokenId = 2147483647;

bool is_whole(const Json& value) {
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return std::abs(number) < 9e15 && number == std::floor(number);
}

bool is_token(const Json& value) {
  return value.is_number_integer() && value.get<double>() >= 0 && value.get<double>() <= kMaxTokenId;
}

template <typename Is>
bool all(const Json& list, Is is) {
  return list.is_array() && std::all_of(list.begin(), list.end(), is);
}

bool has_type(const Json& value, unsigned types) {
  if (types & kJsonBoolean && value.is_boolean()) return true;
  if (types & kJsonInteger && is_whole(value)) return true;
  if (types & kJsonNumber && value.is_number()) return true;
  if (types & kJsonText && value.is_string()) return true;
  if (types & kJsonObject && value.is_object()) return true;
  if (types & kJsonList && value.is_array()) return true;
  if (types & kJsonTexts && all(value, [](const Json& item) { return item.is_string(); })) return true;
  if (types & kJsonTokens && all(value, is_token)) return true;
  return types & kJsonTokenLists && all(value, [](const Json& item) { return all(item, is_token); });
}

const char* name_of(const Json& value) {
  if (value.is_number_float()) return "a number with a fraction";
  if (value.is_number()) return "a number";
  if (value.is_boolean()) return "a boolean";
  if (value.is_string()) return "a string";
  if (value.is_array()) return "an array";
  return value.is_null() ? "null" : "an object";
}

std::optional<ApiError> check_keys(const Field& object, const std::string& name, const Json& value) {
  for (const auto& [key, ignored] : value.items()) {
    if (std::ranges::find(object.fields, key, &Field::name) != object.fields.end()) continue;
    std::string known;
    for (const Field& field : object.fields) known += (known.empty() ? "" : ", ") + field.name;
    return ApiError::bad(fmt::format("{}.{}", name, key.substr(0, kMaxShownKey)),
                         fmt::format("is not a field of {}; its fields are {}", name, known));
  }
  return std::nullopt;
}

std::optional<ApiError> check_field(const Field& field, const std::string& name, Json& value,
                                    GenerationRequest& params) {
  if (field.harmless) {
    if (field.harmless(value)) return std::nullopt;
    const std::string instead = field.help.empty() ? "leave it out" : field.help;
    return ApiError::unsupported(name, "is not supported by this server; " + instead);
  }
  if (!has_type(value, field.types))
    return ApiError::bad(name, fmt::format("must be {}, got {}", type_names(field.types), name_of(value)));
  if (value.is_number()) {
    const double number = value.get<double>();
    if (!(number >= field.min && number <= field.max))
      return ApiError::bad(name, fmt::format("must be between {} and {}, got {}", field.min, field.max, number));
    if (value.is_number_float() && !(field.types & kJsonNumber)) value = static_cast<int64_t>(number);
  }
  if ((value.is_array() || value.is_object()) && value.size() > field.most) {
    return ApiError::bad(name, fmt::format("at most {} items, got {}", field.most, value.size()));
  }
  if (value.is_string() && !field.choices.empty()) {
    const auto& text = value.get_ref<const std::string&>();
    std::string known;
    for (const std::string& choice : field.choices) {
      if (choice == text) {
        known.clear();
        break;
      }
      known += (known.empty() ? "" : ", ") + choice;
    }
    if (!known.empty()) return ApiError::bad(name, fmt::format("must be one of {}", known));
  }
  if (value.is_object() && field.closed)
    if (auto wrong = check_keys(field, name, value)) return wrong;
  if (value.is_object() && !field.fields.empty())
    if (auto wrong = read_fields(field.fields, value, params, name + ".")) return wrong;
  if (value.is_array() && !field.items.empty())
    for (size_t i = 0; i < value.size(); ++i)
      if (value[i].is_object())
        if (auto wrong = read_fields(field.items, value[i], params, fmt::format("{}[{}].", name, i))) return wrong;
  if (!field.set) return std::nullopt;
  auto wrong = field.set(value, params);
  if (wrong && wrong->field.empty()) wrong->field = name;
  return wrong;
}

}  // namespace

std::string type_names(unsigned types) {
  static const std::pair<unsigned, const char*> names[] = {{kJsonBoolean, "boolean"},
                                                           {kJsonInteger, "integer"},
                                                           {kJsonNumber, "number"},
                                                           {kJsonText, "string"},
                                                           {kJsonTexts, "array of strings"},
                                                           {kJsonTokens, "array of token ids"},
                                                           {kJsonTokenLists, "array of arrays of token ids"},
                                                           {kJsonObject, "object"},
                                                           {kJsonList, "array"}};
  std::string out;
  for (const auto& [type, name] : names)
    if (types & type) out += (out.empty() ? "" : " or ") + std::string(name);
  return out;
}

std::optional<ApiError> read_fields(const std::vector<Field>& fields, Json& body, GenerationRequest& params,
                                    const std::string& where) {
  for (const Field& field : fields) {
    auto found = body.find(field.name);
    if (found != body.end() && found->is_null()) {
      body.erase(field.name);
      found = body.end();
    }
    if (found == body.end()) {
      if (field.required && !(!field.unless.empty() && body.contains(field.unless)))
        return ApiError::bad(where + field.name, "is missing");
      continue;
    }
    if (auto wrong = check_field(field, where + field.name, *found, params)) return wrong;
  }
  return std::nullopt;
}

std::optional<ApiError> parse_body(const std::string& bytes, Json* body) {
  const JsonLimits limits{.bytes = bytes.size(), .depth = kMaxBodyDepth, .keys = kMaxKeys};
  auto parsed = parse_json_object(bytes, "request body", limits);
  if (!parsed.ok()) return ApiError{ApiErrorKind::bad_request, parsed.error().message, ""};
  *body = std::move(*parsed);
  return std::nullopt;
}

Field sampling_field(const std::string& name, const std::string& option) {
  for (const OptionSpec& spec : sampling_schema()) {
    if (spec.name != option) continue;
    Field field{name, spec.type == OptionSpec::Type::integer ? kJsonInteger : kJsonNumber, "server default", spec.help};
    field.min = spec.min;
    field.max = spec.max;
    field.set = [option](const Json& value, GenerationRequest& params) -> std::optional<ApiError> {
      auto set = set_sampling_option(params.request.sampling, option, value.dump());
      if (!set.ok()) return ApiError{ApiErrorKind::bad_request, set.error().message, ""};
      return std::nullopt;
    };
    return field;
  }
  return {name, 0, "", "no such sampling option"};
}

Field unsupported_field(const std::string& name, bool (*harmless)(const Json&)) {
  Field field{name};
  field.harmless = harmless;
  return field;
}

Field ignored_field(const std::string& name, unsigned types, const std::string& why) {
  Field field{name, types, "", "ignored: " + why};
  field.no_effect = why;
  return field;
}

Field object_field(const std::string& name, const std::string& help, std::vector<Field> fields) {
  Field field{name, kJsonObject, "{}", help};
  field.fields = std::move(fields);
  return field;
}

std::vector<Field> joined(std::initializer_list<std::vector<Field>> parts) {
  std::vector<Field> all_fields;
  for (const auto& part : parts) all_fields.insert(all_fields.end(), part.begin(), part.end());
  return all_fields;
}

}  // namespace millrace
