// Trains the story model on a folder of texts: learns a vocabulary, forms batches, follows a schedule of learning
// rates, and writes checkpoints and a loss curve.
//
//   out/vocabulary.txt   the learned pieces      out/loss.csv        one line per evaluation
//   out/checkpoint.pt    to resume from          out/best.pt         weights of the best held-out loss
//
// Progress is step/steps or, if `minutes` is set and it is larger, elapsed/minutes. So a run on a busy machine ends in
// time, with its learning rate fully decayed. The last `long_share` of a run, and every `long_every`-th step before it,
// use windows of the full context. Only one run at a time is allowed in a process, because libtorch's random state is
// global.
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
  // A vocabulary.txt to use instead of learning one, for example so that a draft model shares the main model's; "":
  // learns one.
  std::string vocabulary;
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
  int64_t train_tokens = 0;   // trained tokens, including repetitions
  int64_t corpus_tokens = 0;  // tokens of one epoch
  double held_out_loss = 0;   // loss of the best checkpoint, in nats a token
  double elapsed_s = 0;
};

// Model configuration by name: "main" or "draft".
Result<StoryModelConfig> story_model_config(const std::string& size);

// Errors: user (data, options), corrupt (checkpoint), resource.
Result<TrainReport> train_stories(const TrainOptions& options);

// Write and read a vocabulary file, with one line for each token from id 259 on. No piece contains a newline.
Result<void> write_vocabulary(const std::string& path, const TokenizerSpec& spec);
Result<TokenizerSpec> read_vocabulary(const std::string& path);

// Loads weights from a file like best.pt.
Result<void> load_weights(StoryModel& model, const std::string& path);

}  // namespace millrace
