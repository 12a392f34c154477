// ServedModel: one model with its engine and everything that requests to it need. Every request holds a reference, so
// that a replaced or unloaded model lives until its last stream has ended.
//
// Its destructor joins the threads of its engine and scorer, so it must not run on one of them; ModelRegistry ensures
// that.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/engine.h"
#include "server/generation/answer_memory.h"
#include "server/generation/embedding_worker.h"
#include "server/generation/prompt_scorer.h"
#include "server/generation/prompt_worker.h"
#include "server/generation/text_work.h"
#include "server/generation/wait_estimate.h"
#include "server/models/adapters.h"
#include "server/models/ranker.h"

namespace millrace {

struct ServedModel {
  std::vector<std::string> names;  // name and aliases; answers report the first
  std::shared_ptr<const LanguageModel> model;
  EngineOptions engine_options;  // that the engine was created with
  SamplingOptions sampling;      // defaults for requests
  std::unique_ptr<Engine> engine;
  int64_t context = 0;
  std::string system;                     // for conversations without a system message; "": none
  std::vector<std::string> stop_strings;  // for requests without their own
  int64_t max_tokens = -1;                // for requests of Ollama's API without num_predict
  std::shared_ptr<const Ranker> ranker;   // null: the model's own ranking head, if it has one
  mutable AdapterScales adapter_scales;
  std::unique_ptr<PromptScorer> scorer;
  std::unique_ptr<EmbeddingWorker> embeddings;
  std::shared_ptr<PromptWorker> prompts;
  TextMemory text_memory;  // for tokenizing prompts
  std::shared_ptr<AnswerMemory> answers = std::make_shared<AnswerMemory>();
  const std::shared_ptr<WaitEstimate> wait;

  ServedModel(std::vector<std::string> its_names, std::shared_ptr<const LanguageModel> its_model,
              std::unique_ptr<Engine> its_engine, const EngineOptions& options, const SamplingOptions& its_sampling,
              std::optional<Pooling> pooling, std::shared_ptr<PromptWorker> its_prompts)
      : names(std::move(its_names)),
        model(std::move(its_model)),
        engine_options(options),
        sampling(its_sampling),
        engine(std::move(its_engine)),
        context(engine->context()),
        scorer(std::make_unique<PromptScorer>(*engine, model->info().vocab)),
        embeddings(std::make_unique<EmbeddingWorker>(*model, *engine, engine_options.batch_tokens, pooling)),
        prompts(std::move(its_prompts)),
        wait(WaitEstimate::of_engine(engine_options.max_streams, engine_options.cost_model,
                                     engine_options.batch_tokens)) {
    prompts->use_engine(*engine);
  }
  ~ServedModel() { prompts->stop(); }

  const std::string& name() const { return names.front(); }

  // Stops the engine and with it every stream. Nothing may be submitted or cancelled any more.
  void stop() {
    scorer.reset();
    embeddings.reset();
    prompts->stop();
    engine.reset();
  }
};

}  // namespace millrace
