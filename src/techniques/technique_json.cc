#include "techniques/technique_json.h"

namespace millrace {
namespace {

const char* type_name(OptionSpec::Type type) {
  switch (type) {
    case OptionSpec::Type::integer: return "integer";
    case OptionSpec::Type::number: return "number";
    case OptionSpec::Type::boolean: return "boolean";
    case OptionSpec::Type::text: return "text";
  }
  return "";
}

nlohmann::ordered_json options_json(const TechniqueInfo& info) {
  auto options = nlohmann::ordered_json::array();
  for (const auto& option : info.options) {
    options.push_back({{"name", option.name},
                       {"type", type_name(option.type)},
                       {"default", option.default_value},
                       {"help", option.help}});
    if (option.type == OptionSpec::Type::integer || option.type == OptionSpec::Type::number) {
      options.back()["min"] = option.min;
      options.back()["max"] = option.max;
    }
  }
  return options;
}

}  // namespace

nlohmann::ordered_json technique_json(const TechniqueInfo& info) {
  nlohmann::ordered_json paper, lossless;  // null where there is none
  if (!info.paper.empty())
    paper = {{"authors", info.paper.authors},
             {"title", info.paper.title},
             {"year", info.paper.year},
             {"text", info.paper.text}};
  if (info.loss != Loss::not_applicable) lossless = info.loss == Loss::lossless;
  return {{"family", info.family}, {"name", info.name},    {"summary", info.summary},
          {"paper", paper},        {"lossless", lossless}, {"options", options_json(info)}};
}

}  // namespace millrace
