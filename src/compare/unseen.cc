#include "compare/unseen.h"

#include <fmt/format.h>

#include <algorithm>

#include "kv/token_evictor.h"
#include "techniques/families.h"

namespace millrace {
namespace {

bool is_lossy(const TechniqueUse& use) {
  static const std::vector<TechniqueInfo> infos = all_techniques();
  return std::ranges::any_of(infos, [&](const TechniqueInfo& info) {
    return info.family == use.family && info.name == use.name && info.loss == Loss::lossy;
  });
}

// Whether the evictor drops no token of a prompt before the prompt is complete. Gates drop tokens for the queries of
// the prompt too, whatever becomes of the memory.
bool leaves_prompts_whole(const std::string& evictor) {
  const auto rule = make_eviction_rule(evictor);
  return rule.ok() && *rule && (*rule)->whole_prompt && !(*rule)->evictor->gated();
}

std::string reason(const SuiteSight& sight, const CompareConfig& config, const TechniqueUse& use) {
  if (use.family == "acceptance" && !sight.generates)
    return "text is scored and nothing is drafted; measure it with lab or exact and a temperature";
  if (use.family == "acceptance" && config.sampling.temperature == 0)
    return "answers are greedy, where it accepts the same tokens as exact; choose a temperature by sampler=temperature";
  if (use.family == "sampler" && use.name != "greedy" && !sight.generates)
    return "text is scored and no token is sampled; measure it with lab or exact";
  if (use.family == "evictor" && !sight.drops_tokens && leaves_prompts_whole(config.engine.evictor))
    return "it leaves prompts whole, and only prompts are read; choose its option prompt=evicted, or measure it with "
           "lab or needle";
  if (use.family == "context" && !sight.documents)
    return "prompts have no documents; measure it with documents or a task of lab that has them";
  if (use.family == "program" && !sight.prompts) return "no program answers it; measure it with lab or exact";
  if (use.family == "prompt" && !sight.prompts) return "its prompts are not compressed; measure it with lab or exact";
  return "";
}

}  // namespace

std::string unseen_of(const SuiteSight& sight, const CompareConfig& config) {
  std::string out;
  if (!sight.quality || !config.model) return out;
  for (const TechniqueUse& use : config.spec.uses) {
    if (!is_lossy(use)) continue;
    if (const std::string why = reason(sight, config, use); !why.empty())
      out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", use.text(), why);
  }
  return out;
}

}  // namespace millrace
