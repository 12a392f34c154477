// DraftRunner: a whole second model as the model of an engine's drafter (loaded_draft_model.h). Engine thread only,
// except load().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model_runner.h"
#include "run/language_model.h"
#include "run/loaded_draft_model.h"
#include "sampling/chain.h"
#include "sampling/row.h"
#include "speculate/draft_odds.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

class DraftRunner final : public LoadedDraftModel {
 public:
  // Loads the draft model for streams of up to `context` tokens, in the memory accounts of `target`. "": the one in the
  // binary with the same vocabulary. Errors: those of LanguageModel::load; user (another vocabulary), unsupported
  // (recurrent layers).
  static Result<std::shared_ptr<const LanguageModel>> load(const LanguageModel& target, const std::string& given,
                                                           int threads, int64_t context);

  DraftRunner(std::shared_ptr<const LanguageModel> model, std::shared_ptr<ThreadPool> threads)
      : model_(std::move(model)), threads_(std::move(threads)) {}

  std::vector<KvLayer> layers() const override { return model_->parts().model->kv_layers(); }
  int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const override;
  Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) override;
  Result<std::string> identity() override;
  int64_t weight_bytes() const override { return model_->info().weight_bytes; }
  int64_t scratch_bytes() const override { return runner_->context().bytes(); }
  void run(std::span<DraftRun> runs) override;

 private:
  // What one run draws: drafted tokens from `node` on, `count` from its only row of logits, or one from each row. With
  // picks only `row` counts, their first one.
  struct Draw {
    DraftRun* run = nullptr;
    int64_t node = 0;
    int64_t row = 0;
    int64_t rows = 1;
    int64_t count = 1;
    float* kept = nullptr;  // where the rows' odds are kept; null: nowhere
  };

  void add(DraftRun& run);
  void add_draw(DraftRun& run, int64_t row);
  void draw_run(const Draw& draw, SamplingRow& scratch);
  void draw_picks(const Draw& draw, SamplingRow& scratch);
  Result<void> draw_row(const Draw& draw, int64_t index, SamplerChain& chain, SamplingRow& scratch);
  static TokenId& token(const Draw& draw, int64_t index);
  DraftOdds& odds(const Draw& draw, int64_t index);

  std::shared_ptr<const LanguageModel> model_;
  std::shared_ptr<ThreadPool> threads_;
  std::unique_ptr<ModelRunner> runner_;  // over the engine's pool
  std::vector<SamplingRow> scratch_;     // [worker]
  std::vector<Draw> drawing_;            // of the pass
  // Of the step's drafted tokens, where their odds are kept.
  int64_t longest_ = 0;
  std::vector<DraftOdds> odds_;     // [stream, longest_]
  AlignedBuffer kept_;              // [row, vocab] logits
  int64_t kept_rows_ = 0;           // at most
  int64_t streams_ = 0, rows_ = 0;  // used so far
};

}  // namespace millrace
