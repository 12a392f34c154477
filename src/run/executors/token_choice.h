// TokenChoice: turns rows of logits into the next tokens of streams: sampling, log-probabilities, text, and whether the
// stream ends. Streams share nothing that sampling changes, so choose_ahead() samples all of a step's rows on the
// thread pool: the streams in parallel, each stream's rows in order while its draft is right. choose() then gives the
// results out in the engine's order, and samples where there is none. Engine thread only.
//
//   worker 0   stream 1: row 0            stream 3: rows 4, 5            then, in order:  choose(1, 0) choose(2, 1) ...
//   worker 1   stream 2: rows 1, 2 (row 3 is behind a wrong token)
#pragma once

#include <atomic>
#include <exception>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "run/executors/token_chooser.h"
#include "sampling/row.h"
#include "speculate/acceptance.h"

namespace millrace {

class Tokenizer;

class TokenChoice {
 public:
  // `tokenizer` may be null: events have ids only. Both outlive the object. `outputs`: rows of the largest step.
  TokenChoice(const Tokenizer* tokenizer, int64_t vocab, ThreadPool& threads, int64_t outputs);

  // `logits`: the step's rows, [rows, vocab]; sampling modifies them. Allocates nothing once warm. `acceptance`
  // outlives the calls of choose() for this step.
  void choose_ahead(std::span<const ChoiceWork> work, const Acceptance& acceptance, float* logits);
  // See TokenChooser::may_choose().
  bool may_choose(StreamRef stream, int64_t row) const;
  // See TokenChooser::choose(). It throws the exception that sampling ahead met.
  Result<bool> choose(StreamRef stream, int64_t row, float* logits, TokenEvent& event);
  // Drops results that were not asked for.
  void forget();

 private:
  struct alignas(64) Scratch {  // one worker's
    SamplingRow row;
    std::vector<float> raw;
    std::vector<DraftedToken> drafted;
    std::vector<double> weights;
  };
  // The draft of a row's stream: its first row and its tokens.
  struct Start {
    int64_t row = 0;
    int64_t drafted = 0;
  };
  struct Chosen {
    const ExecutorStream* stream = nullptr;  // null: not sampled ahead
    Result<bool> ended = false;
    TokenEvent event;
    std::exception_ptr thrown;
  };
  struct Job {
    const ChoiceWork* work = nullptr;
    int64_t row = 0;  // its first one
  };

  void use(const Acceptance& acceptance);
  void choose_chunk(const Job& job, float* logits, Scratch& scratch);
  Result<bool> sample(StreamRef stream, int64_t position, int64_t row, float* logits, Scratch& scratch,
                      TokenEvent& event);
  void prepare_next(SamplerChain& sampler);
  Result<TokenId> choose_token(StreamRef stream, int64_t position, int64_t row, std::span<float> logits,
                               Scratch& scratch) const;

  const Tokenizer* tokenizer_;
  int64_t vocab_;
  ThreadPool& threads_;
  std::vector<Scratch> scratch_;  // [worker]
  std::vector<Chosen> chosen_;    // [row]
  std::vector<Job> jobs_;
  const Acceptance* rule_ = nullptr;  // null: tokens are those of plain sampling
  std::vector<Start> starts_;         // [row], where there is a rule
  int64_t rows_ = 0;                  // with results, at most
  std::atomic<int64_t> units_{0};     // units of work on masks that this step may still do
};

}  // namespace millrace
