#include "run/embedded_model.h"

#include <algorithm>

namespace millrace {

const EmbeddedModel* find_embedded_model(std::string_view name) {
  const auto all = embedded_models();
  const std::string_view wanted = name.empty() ? kDefaultModel : name;
  constexpr std::string_view kPrefix = "millrace-";
  auto found = std::ranges::find_if(all, [&](const auto& model) {
    return model.short_name == wanted || model.name == wanted ||
           (wanted.starts_with(kPrefix) && wanted.substr(kPrefix.size()) == model.short_name);
  });
  if (found == all.end() && name.empty())
    found = std::ranges::find_if(all, [](const auto& model) { return !model.short_name.ends_with("-draft"); });
  return found == all.end() ? nullptr : &*found;
}

std::string embedded_model_names() {
  std::string names;
  for (const EmbeddedModel& model : embedded_models())
    names += (names.empty() ? "" : ", ") + std::string(model.short_name);
  return names;
}

}  // namespace millrace
