#include "prompt/prompt_report.h"

#include <fmt/format.h>

#include "base/options_json.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

Json effect_options(const PromptEffect& effect) {
  const auto* entry = prompt_compressors().find(effect.name);
  if (!entry) return Json::object();
  const auto values = parse_options(effect.options, entry->info.options);
  return values.ok() ? options_json(entry->info.options, *values) : Json::object();
}

}  // namespace

void add_effects(std::vector<PromptEffect>& sum, std::span<const PromptEffect> more) {
  for (size_t i = 0; i < more.size(); ++i) {
    if (i == sum.size()) {
      sum.push_back(more[i]);
      continue;
    }
    sum[i].tokens_before += more[i].tokens_before;
    sum[i].tokens_after += more[i].tokens_after;
    sum[i].seconds += more[i].seconds;
  }
}

Json applied_prompts(std::span<const PromptEffect> effects) {
  Json out = Json::array();
  for (const PromptEffect& effect : effects)
    out.push_back({{"family", "prompt"},
                   {"name", effect.name},
                   {"options", effect_options(effect)},
                   {"effect", fmt::format("{} of {} prompt tokens remain", effect.tokens_after, effect.tokens_before)},
                   {"tokens_before", effect.tokens_before},
                   {"tokens_after", effect.tokens_after},
                   {"seconds", effect.seconds}});
  return out;
}

Json prompt_json(std::span<const PromptEffect> effects) {
  PromptEffect all;
  for (const PromptEffect& effect : effects) {
    all.name += (all.name.empty() ? "" : ", ") + effect.name;
    all.seconds += effect.seconds;
  }
  if (!effects.empty()) {
    all.tokens_before = effects.front().tokens_before;
    all.tokens_after = effects.back().tokens_after;
  }
  return {{"name", all.name},
          {"tokens_before", all.tokens_before},
          {"tokens_after", all.tokens_after},
          {"ratio", all.ratio()},
          {"seconds", all.seconds},
          {"passes", applied_prompts(effects)}};
}

}  // namespace millrace
