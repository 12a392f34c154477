// CompareConfig: a configuration that is ready to run: its model with the options of its engine and of sampling, or
// another engine.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "compare/external_engine.h"
#include "compare/spec.h"
#include "kv/pool.h"
#include "millrace/engine.h"

namespace millrace {

struct CompareConfig {
  CompareSpec spec;
  std::shared_ptr<const LanguageModel> model;      // null: of another engine
  std::shared_ptr<const ExternalEngine> external;  // null: millrace
  EngineOptions engine;
  int64_t draft_weight_bytes = 0;     // bytes of the drafter's model; 0: it has none
  std::vector<KvLayer> draft_layers;  // ... its part of the KV pool
  bool drafts_with_model = false;     // each draft is a pass of the whole model, as with the drafter `pass`
  SamplingOptions sampling;           // greedy, unless the configuration has samplers
  nlohmann::ordered_json applied = nlohmann::ordered_json::array();
};

// Loads a model for a configuration; may return one that is loaded already.
using CompareLoader =
    std::function<Result<std::shared_ptr<const LanguageModel>>(const CompareSpec& spec, const LoadOptions& options)>;

// `engine`: the options that all configurations start from. Errors: the loader's; those of the drafter's model; user
// (choices that do not go together).
Result<CompareConfig> make_compare_config(const CompareSpec& spec, const EngineOptions& engine,
                                          const CompareLoader& load);

// The longest stream of the configuration; 0: another engine, whose limit is not known.
int64_t compare_context(const CompareConfig& config);

// The options of such an engine, without the size of its KV pool.
EngineOptions compare_engine_options(const CompareConfig& config, int64_t streams, int64_t longest);

// Creates an engine of the configuration with at most `streams` streams of `longest` tokens, each of which stores
// `stored` of them at once (0: all). Errors: Engine::create()'s.
Result<std::unique_ptr<Engine>> make_compare_engine(const CompareConfig& config, int64_t streams, int64_t longest,
                                                    int64_t stored = 0);

}  // namespace millrace
