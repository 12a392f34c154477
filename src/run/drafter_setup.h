// DrafterSetup: loads the model of an engine's drafter and sizes it. Without a drafter, or with one that has no model,
// there is nothing to load.
//
//   check()    compares the drafter's files with the model   load()    loads the model, adds its layers to the KV
//   layout memory()   counts the working memory                     start()   starts it over the engine's runner
#pragma once

#include <memory>

#include "models/model_runner.h"
#include "run/draft_models/loader.h"
#include "run/engine_plan.h"

namespace millrace {

class DrafterSetup {
 public:
  // All outlive the object.
  DrafterSetup(const LanguageModel& model, const EnginePlan& plan, std::shared_ptr<ThreadPool> threads)
      : model_(model), plan_(plan), threads_(std::move(threads)) {}

  // Errors: user, corrupt (the drafter does not go with the model).
  Result<void> check() const;
  // Adds the layers of the drafter's model to `layout`, behind those of the engine's model, for streams of up to
  // `context` tokens. Errors: those of load_draft_model().
  Result<void> load(KvLayout& layout, int64_t context);
  // Layers of a whole draft model, after load(); empty: the drafter has none.
  std::vector<KvLayer> whole_model_layers() const;
  // Bytes that start() takes besides the KV pool, for passes with these limits.
  int64_t memory(const ForwardLimits& limits, const KvLayout& layout);
  // After memory(). `runner` outlives the result, which is null if the drafter has no model. Errors: resource.
  Result<std::unique_ptr<LoadedDraftModel>> start(ModelRunner& runner);

 private:
  const LanguageModel& model_;
  const EnginePlan& plan_;
  std::shared_ptr<ThreadPool> threads_;
  int64_t own_layers_ = 0;
  std::unique_ptr<LoadedDraftModel> loaded_;  // null: the drafter has no model
  LoadedDraftModel::Sizes sizes_;
};

}  // namespace millrace
