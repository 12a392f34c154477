// Scorer: the probability that a model assigns to a text, token by token. Windows of a text run through a ModelRunner,
// several per batch, and every scored token's logits are passed to a sink in text order. Not thread-safe.
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

// Tokens [begin, begin + count) of the text as one stream; tokens from index first_scored (>= 1) on are scored.
struct ScoreWindow {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t first_scored = 1;

  int64_t scored() const { return count - first_scored; }
  bool operator==(const ScoreWindow&) const = default;
};

// Splits the text into whole chunks of `context` tokens and drops the rest; the second half of each is scored, as in
// llama.cpp's perplexity, so that figures are comparable. Token context/2 itself is not scored.
std::vector<ScoreWindow> chunk_windows(int64_t tokens, int64_t context);
// Checks that a text has a whole window. Errors: user.
Result<void> check_text_length(int64_t tokens, int64_t context);
// A window of `context` tokens starts every `stride` tokens; the last `stride` of each are scored (at most context -
// 1).
std::vector<ScoreWindow> strided_windows(int64_t tokens, int64_t context, int64_t stride);
// Every token except the first is scored once: the first window whole, then the second half of windows that overlap by
// half a context; the last one ends at the text's end.
std::vector<ScoreWindow> document_windows(int64_t tokens, int64_t context);

struct ScorerOptions {
  int threads = 0;             // 0: all cores
  int64_t context = 512;       // maximum window length
  int64_t batch_tokens = 512;  // per forward pass
  std::string kv_format = "f16";
  std::shared_ptr<const KvCodec> kv_codec;  // in place of that of kv_format, whose rows are the raw ones; null: none
  // Token evictor NAME[:key=value,...]; "": none. It drops tokens from each window's first token on, even if its prompt
  // option says otherwise. Windows then run one after the other, in batches of at most its slack.
  std::string evictor;
  std::vector<std::string> kernels;  // as in EngineOptions
  // Runs on these threads, of another model's runner; null: on the model's own (SharedThreads).
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

  // Return an error to stop; run() then returns it.
  using Sink = std::function<Result<void>(std::span<const ScoredRow> rows)>;

  // `window_start`, if not negative, replaces each window's first token (BOS), as in llama.cpp.
  // Errors: user (a token outside the vocabulary, a window longer than the context), or the sink's.
  Result<void> run(std::span<const TokenId> tokens, std::span<const ScoreWindow> windows, TokenId window_start,
                   const Sink& sink);

  ThreadPool& pool() { return runner_->threads(); }
  ModelRunner& runner() { return *runner_; }
  int64_t vocab() const { return model_->info().vocab; }
  int64_t kv_bytes_per_token() const { return runner_->kv().layout().bytes_per_token(); }
  // Bytes of one window in addition: the raw rows that a KV codec keeps of the newest tokens.
  int64_t kv_tail_bytes() const {
    const KvLayout& layout = runner_->kv().layout();
    return layout.encodes() ? layout.state_bytes() : 0;
  }
  // Maximum number of tokens that one window stores in layers that see all, on average over layers with their own
  // budgets. Where gates choose: the maximum that the windows so far have stored.
  int64_t stored_tokens() const {
    return most_kept_ > 0 ? most_kept_ : kv_demand(rule_.get(), longest_, longest_, tables_);
  }
  // Counters of all windows so far; null: the KV format has no residuals.
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
  std::vector<std::vector<BlockId>> blocks_;  // by group of layers, of all windows
  int64_t slots_ = 0;                         // windows whose keys and values are stored at once
  int64_t longest_ = 0;
  int64_t tables_ = 1;                        // tables of a window: one for each layer with its own blocks
  std::shared_ptr<const EvictionRule> rule_;  // null: no evictor
  std::unique_ptr<EvictionObserver> observer_;
  std::unique_ptr<TokenEviction> eviction_;  // eviction of the current window
  int64_t most_kept_ = 0;                    // tokens, where gates choose
  std::vector<ScoredRow> rows_;
};

}  // namespace millrace
