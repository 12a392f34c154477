#include "program/program_json.h"

#include "base/ordered_json.h"

namespace millrace {

using Json = nlohmann::ordered_json;

Json step_json(const StepReport& step) {
  Json out = {{"kind", step.kind}, {"name", step.name}, {"branch", step.branch}, {"text", step.text}};
  if (!step.model.empty()) out["model"] = step.model;
  out["seed"] = step.seed;
  out["prompt_tokens"] = step.prompt_tokens;
  out["cached_tokens"] = step.cached_tokens;
  out["generated_tokens"] = step.generated_tokens;
  out["finish"] = step.finish;
  if (step.confidence >= 0) out["confidence"] = step.confidence;
  if (!step.scores.empty()) out["scores"] = step.scores;
  return out;
}

Json program_json(const ProgramResult& result, double seconds) {
  const ProgramUsage& usage = result.usage;
  Json variables = Json::object(), steps = Json::array();
  for (const auto& [name, value] : result.variables) variables[name] = value;
  for (const StepReport& step : result.steps) steps.push_back(step_json(step));
  return {{"text", result.text},
          {"variables", std::move(variables)},
          {"usage",
           {{"requests", usage.requests},
            {"branches", usage.branches},
            {"at_once", usage.at_once},
            {"prompt_tokens", usage.prompt_tokens},
            {"cached_tokens", usage.cached_tokens},
            {"generated_tokens", usage.generated_tokens}}},
          {"seconds", seconds},
          {"steps", std::move(steps)}};
}

}  // namespace millrace
