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
#include "sampling/chain.h"
#include "sampling/row.h"
#include "speculate/draft_model.h"
#include "speculate/draft_odds.h"
#include "tensor/aligned_buffer.h"

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
    int64_t rows = 1;     // Drafter::model_rows()
    int64_t longest = 0;  // tokens of a draft
    // Drafted tokens in one step whose odds are kept (ExecutorStream::odds), for acceptance rules that need them: then
    // they are drawn with random numbers of their own. 0: none.
    int64_t odds = 0;
  };
  // What create() takes besides the KV pool.
  static int64_t memory(const LanguageModel& draft, const Sizes& sizes, int threads, const KvLayout& layout);
  // `pool` outlives the runner; the draft model's layers begin at `first_layer`. Errors: resource.
  static Result<std::unique_ptr<DraftRunner>> create(std::shared_ptr<const LanguageModel> draft, KvPool& pool,
                                                     int64_t first_layer, std::shared_ptr<ThreadPool> threads,
                                                     const Sizes& sizes);

  void run(std::span<DraftRun> runs) override;

  ModelRunner& runner() { return *runner_; }
  const LanguageModel& model() const { return *model_; }
  int64_t scratch_bytes() const { return runner_->context().bytes(); }

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

  DraftRunner() = default;
  void add(DraftRun& run);
  void add_draw(DraftRun& run, int64_t row);
  void draw_run(const Draw& draw, SamplingRow& scratch);
  void draw_picks(const Draw& draw, SamplingRow& scratch);
  Result<void> draw_row(const Draw& draw, int64_t index, SamplerChain& chain, SamplingRow& scratch);
  static TokenId& token(const Draw& draw, int64_t index);
  DraftOdds& odds(const Draw& draw, int64_t index);

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<SamplingRow> scratch_;  // [worker]
  std::vector<Draw> drawing_;         // of the pass
  // Of the step's drafted tokens, where their odds are kept.
  int64_t longest_ = 0;
  std::vector<DraftOdds> odds_;     // [stream, longest_]
  AlignedBuffer kept_;              // [row, vocab] logits
  int64_t kept_rows_ = 0;           // at most
  int64_t streams_ = 0, rows_ = 0;  // used so far
};

}  // namespace millrace
