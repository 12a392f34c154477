// Shared by dialects that write the arguments of a call one after the other, separated.
#include <algorithm>

#include "text/tools/dialects.h"

namespace millrace {

using Json = nlohmann::ordered_json;

namespace {

struct ListedProperty {
  std::string key;
  Json part;
  bool required = false;
};

std::vector<ListedProperty> properties_in_order(const Json& schema, const ListedProperties& form) {
  std::vector<ListedProperty> out;
  if (!schema.is_object() || !schema.contains("properties") || !schema["properties"].is_object()) return out;
  for (const auto& [key, value] : schema["properties"].items()) {
    ListedProperty& one = out.emplace_back();
    one.key = key;
    one.part = form.part(key, value);
    if (schema.contains("required") && schema["required"].is_array())
      for (const Json& name : schema["required"]) one.required |= name == key;
  }
  if (form.sorted) std::ranges::stable_sort(out, {}, &ListedProperty::key);
  return out;
}

}  // namespace

// One way for each property that may be the first one: all before it are left out.
Json listed_properties(const Json& schema, const ListedProperties& form) {
  const std::vector<ListedProperty> properties = properties_in_order(schema, form);
  if (properties.empty()) return literal_text("");
  std::vector<Json> later;  // each with the separator
  for (const ListedProperty& one : properties) {
    Json part = sequence_of({literal_text(form.separator), one.part});
    if (!one.required) part = {{"type", "optional"}, {"content", std::move(part)}};
    part["shared"] = true;
    later.push_back(std::move(part));
  }
  Json ways = Json::array();
  bool required = false;
  for (size_t first = 0; first < properties.size() && !required; ++first) {
    Json way = sequence_of({properties[first].part});
    for (size_t i = first + 1; i < properties.size(); ++i) way["elements"].push_back(later[i]);
    ways.push_back(std::move(way));
    required = properties[first].required;
  }
  Json any = ways.size() == 1 ? std::move(ways[0]) : Json{{"type", "or"}, {"elements", std::move(ways)}};
  return required ? any : Json{{"type", "optional"}, {"content", std::move(any)}};
}

}  // namespace millrace
