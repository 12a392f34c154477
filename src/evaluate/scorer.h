// Scorer: computes the logits that a model assigns to each token of a text. Windows of the text run through a
// ModelRunner, several per batch. The logits for every scored token are passed to a sink in text order. Not
// thread-safe.
//
//   window of 8, scored from 4      t0 t1 t2 t3 t4 t5 t6 t7      row j has the logits that predict token j + 1, so
//   rows                                     r3 r4 r5 r6         the last token is never an input
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/window_groups.h"
#include "models/eviction_observer.h"
#include "models/model_runner.h"
#include "run/language_model.h"

namespace millrace {

// A window: tokens [begin, begin + count) of the text, as one stream. Tokens from index first_scored (>= 1) of the
// window on are scored.
struct ScoreWindow {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t first_scored = 1;

  int64_t scored() const { return count - first_scored; }
  bool operator==(const ScoreWindow&) const = default;
};

// Splits the text into whole chunks of `context` tokens and drops the remaining tokens. The second half of each chunk
// is scored, without token context / 2 itself, as in llama.cpp's perplexity, so that figures are comparable.
std::vector<ScoreWindow> chunk_windows(int64_t tokens, int64_t context);
// Checks that a text has at least one whole window. Errors: user.
Result<void> check_text_length(int64_t tokens, int64_t context);
// Returns windows of `context` tokens that begin every `stride` tokens. The last `stride` tokens of each window are
// scored, at most context - 1.
std::vector<ScoreWindow> strided_windows(int64_t tokens, int64_t context, int64_t stride);
// Returns windows that score every token of the text once, except the first token. Windows overlap by half of
// `context`. The first window is scored whole, and of each further window the second half. The last window ends at the
// text's end.
std::vector<ScoreWindow> document_windows(int64_t tokens, int64_t context);

struct ScorerOptions {
  int threads = 0;             // 0: all cores
  int64_t context = 512;       // maximum window length
  int64_t batch_tokens = 512;  // per forward pass
  std::string kv_format = "f16";
  // Replaces the codec of kv_format, which is then the format of the raw rows; null: kv_format is used.
  std::shared_ptr<const KvCodec> kv_codec;
  // Token evictor NAME[:key=value,...]; "": none. It evicts from each window's first token on, for any value of its
  // option `prompt`. Windows then run one after the other, in batches of at most its slack.
  std::string evictor;
  std::vector<std::string> kernels;  // see EngineOptions::kernels
  // Threads of another model's runner to run on; null: the model's own threads (SharedThreads).
  std::shared_ptr<ThreadPool> pool;
};

struct ScoredRow {
  TokenId target = 0;             // the actual token
  const float* logits = nullptr;  // [vocab], valid during the call
};

class Scorer {
 public:
  // Errors: user (options), resource.
  static Result<std::unique_ptr<Scorer>> create(std::shared_ptr<const LanguageModel> model,
                                                const ScorerOptions& options);

  // If the sink returns an error, run() stops and returns it.
  using Sink = std::function<Result<void>(std::span<const ScoredRow> rows)>;

  // Runs the windows and passes their scored rows to `sink`. `window_start`: replaces each window's first token if not
  // negative; usually BOS, as in llama.cpp. Errors: user (a token outside the vocabulary, a window longer than the
  // context), or the sink's.
  Result<void> run(std::span<const TokenId> tokens, std::span<const ScoreWindow> windows, TokenId window_start,
                   const Sink& sink);

  ThreadPool& pool() { return runner_->threads(); }
  ModelRunner& runner() { return *runner_; }
  int64_t vocab() const { return model_->info().vocab; }
  int64_t kv_bytes_per_token() const { return runner_->kv().layout().bytes_per_token(); }
  // Returns further bytes of one window: the raw rows of the newest tokens that a KV codec keeps.
  int64_t kv_tail_bytes() const {
    const KvLayout& layout = runner_->kv().layout();
    return layout.encodes() ? layout.state_bytes() : 0;
  }
  // Returns the maximum number of tokens that one window stores in layers without an attention window, on average over
  // layers if these have separate budgets. If gates choose the tokens, returns the maximum over the windows so far.
  int64_t stored_tokens() const {
    return most_kept_ > 0 ? most_kept_ : kv_demand(rule_.get(), longest_, longest_, tables_);
  }
  // Returns counters over all windows so far; null: the KV format has no residuals.
  const ResidualReads* residual_reads() const {
    const KvPool& kv = runner_->kv();
    return kv.layout().has_residuals() ? &kv.residual_reads() : nullptr;
  }
  int64_t stored_bytes() const { return held_bytes(runner_->kv().layout(), stored_tokens(), longest_); }

 private:
  struct Cursor;
  Scorer() = default;
  void begin(int64_t slot, int64_t position);
  void fill_batch(std::span<const TokenId> tokens, std::span<const ScoreWindow> windows, TokenId window_start,
                  Cursor& cursor);
  void forward();
  void evict(const Cursor& cursor);
  Result<void> take_blocks();

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::vector<BlockId>> blocks_;  // blocks of all windows, by group of layers
  int64_t slots_ = 0;                         // number of windows whose keys and values are stored at once
  int64_t longest_ = 0;
  int64_t tables_ = 1;                        // tables of a window: one for each layer with its own blocks
  std::shared_ptr<const EvictionRule> rule_;  // null: no evictor
  std::unique_ptr<EvictionObserver> observer_;
  std::unique_ptr<TokenEviction> eviction_;  // eviction of the current window
  int64_t most_kept_ = 0;                    // if gates choose the tokens: maximum of stored tokens so far
  std::vector<ScoredRow> rows_;
};

}  // namespace millrace
