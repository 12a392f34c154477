#include "base/options_json.h"

namespace millrace {

nlohmann::ordered_json option_json(const OptionSpec& spec, const OptionValues& values) {
  switch (spec.type) {
    case OptionSpec::Type::integer: return values.integer(spec.name);
    case OptionSpec::Type::number: return values.number(spec.name);
    case OptionSpec::Type::boolean: return values.boolean(spec.name);
    case OptionSpec::Type::text: return values.text(spec.name);
  }
  return nullptr;
}

nlohmann::ordered_json options_json(const std::vector<OptionSpec>& schema, const OptionValues& values) {
  auto out = nlohmann::ordered_json::object();
  for (const OptionSpec& spec : schema) out[spec.name] = option_json(spec, values);
  return out;
}

}  // namespace millrace
