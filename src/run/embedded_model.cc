#include "run/embedded_model.h"

#include <algorithm>

namespace millrace {

const EmbeddedModel* find_embedded_model(std::string_view name) {
  if (name.empty()) name = kDefaultModel;
  const auto all = embedded_models();
  const auto found =
      std::ranges::find_if(all, [&](const auto& model) { return model.short_name == name || model.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string embedded_model_names() {
  std::string names;
  for (const EmbeddedModel& model : embedded_models())
    names += (names.empty() ? "" : ", ") + std::string(model.short_name);
  return names;
}

}  // namespace millrace
