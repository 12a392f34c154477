#include "compare/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/options_json.h"
#include "program/member.h"
#include "run/drafting/models/loader.h"
#include "run/language_model.h"

namespace millrace {
namespace {

// The engine loads the model again; here it is asked for its sizes.
Result<void> measure_draft_model(CompareConfig& config) {
  if (config.engine.drafter.empty()) return {};
  MILLRACE_TRY(const auto drafter, make_drafter(config.engine.drafter));
  const DraftModelLoader* loader = draft_model_loader(drafter.get());
  if (!loader) return {};
  config.drafts_with_model = loader->whole_passes;
  const auto threads = config.model->parts().threads->get(config.engine.threads);
  MILLRACE_TRY(const auto loaded,
               load_draft_model(drafter->model->spec, {*config.model, threads, compare_context(config)}));
  config.draft_weight_bytes = loaded->weight_bytes();
  config.draft_layers = loaded->layers();
  return {};
}

// Loads the models that the configuration's program names.
Result<void> load_program_models(CompareConfig& config, const LoadOptions& loading, const CompareLoader& load) {
  MILLRACE_TRY(const auto member, make_program_member(config.program));
  for (const std::string& name : member->models()) {
    CompareSpec other = config.spec;
    other.model = name;
    MILLRACE_TRY(auto model, load(other, loading));
    config.program_models.emplace_back(name, std::move(model));
  }
  return {};
}

}  // namespace

Result<CompareConfig> make_compare_config(const CompareSpec& spec, const EngineOptions& engine,
                                          const CompareLoader& load) {
  CompareConfig config;
  config.spec = spec;
  config.engine = engine;
  LoadOptions loading;
  MILLRACE_TRY(auto applied, apply_uses(spec.uses, loading));
  MILLRACE_TRY(config.model, load(spec, loading));
  MILLRACE_TRY(const auto of_engine, apply_uses(spec.uses, config.engine));
  applied.insert(applied.end(), of_engine.begin(), of_engine.end());
  config.sampling.temperature = 0;
  MILLRACE_TRY(const auto of_sampling, apply_uses(spec.uses, config.sampling));
  applied.insert(applied.end(), of_sampling.begin(), of_sampling.end());
  config.prompt_passes = prompt_passes_of(spec.uses);
  for (const TechniqueUse& use : spec.uses)
    if (use.family == "prompt" && use.name != kNoTechnique)
      applied.push_back({use.family, use.name, options_json(use.options, use.values),
                         fmt::format("prompts are shortened by {}", use.written())});
  config.program = program_of(spec.uses);
  if (!config.program.empty()) MILLRACE_TRY_VOID(load_program_models(config, loading, load));
  for (const TechniqueUse& use : spec.uses)
    if (use.family == "program" && use.name != kNoTechnique)
      applied.push_back({use.family, use.name, options_json(use.options, use.values),
                         fmt::format("questions are answered by the program {}", use.written())});
  if (!config.program.empty() && !config.engine.document_context.empty() &&
      config.engine.document_context != kNoTechnique)
    return Error::user(fmt::format("program={}: its prompts have no documents of their own; leave out context={}",
                                   config.program, config.engine.document_context));
  if (!config.program.empty() && !config.prompt_passes.empty())
    return Error::user(fmt::format("program={}: its prompts are not compressed; leave out prompt={}", config.program,
                                   config.prompt_passes.front()));
  if (!config.prompt_passes.empty() && !config.engine.document_context.empty() &&
      config.engine.document_context != kNoTechnique)
    return Error::user(fmt::format("prompt={}: context={} computes documents separately; choose only one of them",
                                   config.prompt_passes.front(), config.engine.document_context));
  config.applied = applied_json(applied);
  MILLRACE_TRY_VOID(measure_draft_model(config));
  return config;
}

int64_t compare_context(const CompareConfig& config) {
  if (!config.model) return 0;
  const int64_t loaded = config.model->parts().model->context();
  return config.engine.context > 0 ? std::min(config.engine.context, loaded) : loaded;
}

EngineOptions compare_engine_options(const CompareConfig& config, int64_t streams, int64_t longest) {
  EngineOptions options = config.engine;
  options.max_streams = streams;
  options.context = std::min(longest, compare_context(config));
  return options;
}

Result<std::unique_ptr<Engine>> make_compare_engine(const CompareConfig& config, int64_t streams, int64_t longest,
                                                    int64_t stored) {
  constexpr int64_t kSpareBlocks = 4;  // a partly filled one, and drafts
  EngineOptions options = compare_engine_options(config, streams, longest);
  const int64_t tokens = stored > 0 ? std::min(stored, options.context) : options.context;
  const int64_t blocks = (tokens + options.block_tokens - 1) / options.block_tokens + kSpareBlocks;
  options.kv_tokens = streams * blocks * options.block_tokens;
  return Engine::create(config.model, options);
}

}  // namespace millrace
