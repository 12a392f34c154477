// CompareConfig: a configuration that is ready to run. It has a model with options for the engine and for sampling, or
// another engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ordered_json.h"
#include "compare/external_engine.h"
#include "compare/spec.h"
#include "kv/pool.h"
#include "millrace/engine.h"

namespace millrace {

struct CompareConfig {
  CompareSpec spec;
  std::shared_ptr<const LanguageModel> model;      // null: another engine is used
  std::shared_ptr<const ExternalEngine> external;  // null: millrace is used
  EngineOptions engine;
  int64_t draft_weight_bytes = 0;          // bytes of the drafter's model; 0: it has none
  std::vector<KvLayer> draft_layers;       // layers of the drafter's model in the KV pool
  bool drafts_with_model = false;          // true: each draft is a pass of the whole model, as with the drafter `pass`
  SamplingOptions sampling;                // greedy, unless the configuration has samplers
  std::vector<std::string> prompt_passes;  // prompt compressors (PromptPipeline::create)
  std::string program;                     // executed for each question (make_program_member); "": one generation
  std::vector<std::pair<std::string, std::shared_ptr<const LanguageModel>>> program_models;  // others, by name
  nlohmann::ordered_json applied = nlohmann::ordered_json::array();
};

// Loads the model of a configuration; may return a model that is already loaded.
using CompareLoader =
    std::function<Result<std::shared_ptr<const LanguageModel>>(const CompareSpec& spec, const LoadOptions& options)>;

// `engine`: options that the configuration's choices are added to. Errors: those of the loader and of the drafter's
// model; user (choices that cannot be combined).
Result<CompareConfig> make_compare_config(const CompareSpec& spec, const EngineOptions& engine,
                                          const CompareLoader& load);

// Returns the maximum tokens of a stream; 0: another engine, whose limit is not known.
int64_t compare_context(const CompareConfig& config);

// Returns the options of the engine that make_compare_engine() creates, without the size of its KV pool.
EngineOptions compare_engine_options(const CompareConfig& config, int64_t streams, int64_t longest);

// Creates an engine of the configuration. `streams`: maximum number of streams. `longest`: maximum tokens of a stream.
// `stored`: maximum stored tokens of a stream; 0: all. Errors: those of Engine::create().
Result<std::unique_ptr<Engine>> make_compare_engine(const CompareConfig& config, int64_t streams, int64_t longest,
                                                    int64_t stored = 0);

}  // namespace millrace
