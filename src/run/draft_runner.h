// DraftRunner: the second model of an engine's drafter (speculate/draft_model.h). Its layers are the last layers of the
// engine's KV pool: one block table, one prefix index and one tier serve both models. Engine thread only, except
// load().
//
//   pool   [ layers of the engine's model | layers of the draft model ]     of every block
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model_runner.h"
#include "run/language_model.h"
#include "sampling/row.h"
#include "speculate/draft_model.h"

namespace millrace {

class DraftRunner final : public DraftModel {
 public:
  // Loads the draft model for streams of up to `context` tokens, in the memory accounts of `target`. "": the one in the
  // binary with the same vocabulary. Errors: those of LanguageModel::load; user (another vocabulary), unsupported
  // (recurrent layers).
  static Result<std::shared_ptr<const LanguageModel>> load(const LanguageModel& target, const std::string& given,
                                                           int threads, int64_t context);

  // Of the engine's passes, for `streams` streams.
  struct Sizes {
    int64_t tokens = 0;
    int64_t context = 0;
    int64_t streams = 0;
    int64_t rows = 1;  // Drafter::model_rows()
  };
  // What create() takes besides the KV pool.
  static int64_t memory(const LanguageModel& draft, const Sizes& sizes, int threads, const KvLayout& layout);
  // `pool` outlives the runner; the draft model's layers begin at `first_layer`. Errors: resource.
  static Result<std::unique_ptr<DraftRunner>> create(std::shared_ptr<const LanguageModel> draft, KvPool& pool,
                                                     int64_t first_layer, std::shared_ptr<ThreadPool> threads,
                                                     const Sizes& sizes);

  void run(std::span<DraftRun> runs) override;

  // Sets what `run` asks for from the logits [vocab] behind its last token, which it changes.
  static void draw(DraftRun& run, std::span<float> logits, SamplingRow& scratch);

  ModelRunner& runner() { return *runner_; }
  const LanguageModel& model() const { return *model_; }
  int64_t scratch_bytes() const { return runner_->context().bytes(); }

 private:
  DraftRunner() = default;

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<SamplingRow> scratch_;  // [worker]
  struct Drawing {
    DraftRun* run;
    int64_t row;  // of logits, its first one
  };
  void draw_all(const Drawing& drawing, SamplingRow& scratch);
  std::vector<Drawing> drawing_;
};

}  // namespace millrace
