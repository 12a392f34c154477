// Trains the story model from a folder of texts: vocabulary, batches, schedule, checkpoints, loss curve.
//
//   out/vocabulary.txt   the learned pieces      out/loss.csv        one line per evaluation
//   out/checkpoint.pt    to resume from          out/best.pt         weights of the best held-out loss
//
// Progress is the larger of step/steps and, if `minutes` is set, elapsed/minutes: a run on a busy machine ends in time,
// with its learning rate fully decayed. The last `long_share` of it, and every `long_every`-th step before, uses
// windows of the full context. Thread-safety: one run at a time per process (libtorch's random state is global).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "learn/story_corpus.h"
#include "text/tokenizer.h"
#include "train/story_model.h"
#include "train/story_optimizer.h"

namespace millrace {

struct TrainOptions {
  std::string data, out;
  std::string vocabulary;  // a vocabulary.txt to use instead of learning one (the draft model shares the main one's)
  StoryModelConfig model;
  StoryOptimizerConfig optimizer;
  int64_t steps = 3200;
  double minutes = 0;  // 0: no limit
  int64_t batch_tokens = 4096;
  int64_t window = 256;
  double long_share = 0.08;
  int64_t long_every = 12;
  int64_t warmup = 60;
  int64_t evaluate_every = 100;
  int64_t save_every = 20;  // steps between checkpoints; evaluations also save
  int threads = 1;
  uint64_t seed = 1;
  bool resume = false;
};

struct TrainReport {
  int64_t steps = 0;
  int64_t train_tokens = 0;   // including repetitions
  int64_t corpus_tokens = 0;  // per epoch
  double held_out_loss = 0;   // nats per token, of the best checkpoint
  double elapsed_s = 0;
};

// Model configuration by name: "main" or "draft".
Result<StoryModelConfig> story_model_config(const std::string& size);

// Errors: user (data, options), corrupt (checkpoint), resource.
Result<TrainReport> train_stories(const TrainOptions& options);

// Vocabulary file: one line per token from id 259 on. Newlines never occur inside a piece.
Result<void> write_vocabulary(const std::string& path, const TokenizerSpec& spec);
Result<TokenizerSpec> read_vocabulary(const std::string& path);

// Loads weights as written to best.pt.
Result<void> load_weights(StoryModel& model, const std::string& path);

}  // namespace millrace
