// Shared by dialects that write the arguments of a call one after the other, separated.
#include <algorithm>

#include "text/tools/dialects.h"

namespace millrace {

using Json = nlohmann::ordered_json;

Json listed_properties(const Json& schema, const ListedProperties& form) {
  const bool declared = schema.is_object() && schema.contains("properties") && schema["properties"].is_object();
  const Json none = Json::object();
  std::vector<Json> items;
  for (const auto& [key, value] : (declared ? schema["properties"] : none).items()) {
    bool required = false;
    if (schema.contains("required") && schema["required"].is_array())
      for (const Json& name : schema["required"]) required |= name == key;
    items.push_back({{"key", key}, {"content", form.value(key, value)}, {"required", required}});
  }
  if (form.sorted)
    std::ranges::stable_sort(items, {}, [](const Json& item) { return item["key"].get_ref<const std::string&>(); });
  for (Json& item : items) item["key"].get_ref<std::string&>() += form.key_end;
  Json out = {{"type", "listed"}, {"separator", form.separator}, {"open", form.open}, {"close", form.close}};
  out["items"] = Json::array();
  for (Json& item : items) out["items"].push_back(std::move(item));
  return out;
}

}  // namespace millrace
