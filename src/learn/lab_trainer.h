// Trains a lab model on LabMixture, or on StoryRows: curriculum, rates, checkpoints, held-out accuracy by task. A run
// stopped at any time and resumed computes the same weights as one that was not.
//
//   out/vocabulary.txt   the learned pieces       out/loss.csv       mean losses, every few updates
//   out/checkpoint.bin   to resume from           out/accuracy.csv   held-out accuracy by task and length
//
// Rates are constant after the warm-up and fall linearly to zero between two points, given in tokens, at the end: so a
// run can be of any length and be finished from any checkpoint (Hu et al., 2024, "MiniCPM"). Prompts are short at first
// and their greatest length doubles every `length_doubling` tokens. Thread-safety: a value.
#pragma once

#include <string>

#include "base/result.h"
#include "learn/lab_optimizer.h"
#include "text/tokenizer.h"

namespace millrace {

struct LabTrainOptions {
  std::string out;
  std::string stories;        // a folder of stories (story_corpus.h); empty: none
  bool only_stories = false;  // rows of them (story_rows.h) and no exercises
  std::string vocabulary;     // a vocabulary.txt to use in place of learning one
  std::string start;          // a checkpoint of the same model whose weights are the first ones
  std::string from;           // or a GGUF file that a lab model was exported to, with its spec and vocabulary
  ArchSpec spec;              // trainable
  bool exact = false;         // products of F32 factors, not of bfloat16 ones
  LabRates rates;
  int64_t tokens = 100'000'000;  // tokens of the whole run
  int64_t batch_tokens = 8192;
  // lengths of prompts, in characters; tokens
  int64_t first_length = 400, last_length = 9000, length_doubling = 2'500'000;
  int64_t decay_from = 0, decay_tokens = 0;  // 0: no decay
  int64_t warmup = 100;                      // updates
  int64_t log_every = 10, evaluate_every = 200;
  int64_t items = 24;  // items of each task and length in an evaluation
  double save_seconds = 90;
  double stop_after_minutes = 0;  // 0: only at the end
  int threads = 2;
  uint64_t seed = 1;
  bool resume = false;
};

// "lab", "lab-draft", "lab-relu", "lab-mha", "lab-experts" or "stories-long". Errors: user.
Result<ArchSpec> lab_spec(const std::string& name);
// Returns true if a model of that name is trained on rows of stories, and not on exercises.
bool lab_only_stories(const std::string& name);

struct LabTrainReport {
  int64_t steps = 0, tokens = 0;
  double loss = 0, elapsed_s = 0;
};

// Errors: user (options, files), corrupt (checkpoint).
Result<LabTrainReport> train_lab(const LabTrainOptions& options);

// The model of a checkpoint.
Result<LabModel> load_lab_checkpoint(const std::string& path);

// A lab model from its GGUF file, in any number format. Errors: user (another model), corrupt.
struct LabImport {
  LabModel model;
  TokenizerSpec spec;
};
Result<LabImport> import_lab_gguf(const std::string& path);

// Writes a model as GGUF with vocabulary and chat template: matrices in `format`, norms F32. Errors: user, corrupt.
Result<void> export_lab_gguf(const LabModel& model, const TokenizerSpec& spec, const std::string& name,
                             const std::string& format, const std::string& path);

}  // namespace millrace
