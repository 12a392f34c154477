// Trains a lab model on LabMixture or on StoryRows, with a curriculum, learning rates, checkpoints, and held-out
// accuracy by task. A run that is stopped at any time and resumed computes the same weights as an uninterrupted one.
//
//   out/vocabulary.txt   the learned pieces       out/loss.csv       mean losses, every few updates
//   out/checkpoint.bin   to resume from           out/accuracy.csv   held-out accuracy by task and length
//
// Rates are constant after the warm-up, and fall linearly to zero over decay_tokens tokens from decay_from on. So a run
// can have any length and can be finished from any checkpoint (Hu et al., 2024, "MiniCPM"). The maximum prompt length
// doubles every `length_doubling` tokens.
#pragma once

#include <string>

#include "base/result.h"
#include "learn/lab_optimizer.h"
#include "text/tokenizer.h"

namespace millrace {

struct LabTrainOptions {
  std::string out;
  std::string stories;        // a folder of stories (story_corpus.h); empty: none
  bool only_stories = false;  // true: trains on rows of stories (story_rows.h), without exercises
  std::string vocabulary;     // a vocabulary.txt to use instead of learning one
  std::string start;          // a checkpoint of the same model with the initial weights
  std::string from;           // or a GGUF file of an exported lab model, whose weights, spec and vocabulary are used
  ArchSpec spec;              // spec of the model; must be trainable()
  bool exact = false;         // true: products have F32 factors instead of bfloat16 ones
  LabRates rates;
  int64_t tokens = 100'000'000;  // tokens of the whole run
  int64_t batch_tokens = 8192;
  // Maximum prompt lengths in characters, at first and at last, and the tokens in which the maximum doubles.
  int64_t first_length = 400, last_length = 9000, length_doubling = 2'500'000;
  int64_t decay_from = 0, decay_tokens = 0;  // in tokens of the run; 0: no decay
  int64_t warmup = 100;                      // warm-up, in updates
  int64_t log_every = 10, evaluate_every = 200;
  int64_t items = 24;  // number of items for each task and length in an evaluation
  double save_seconds = 90;
  double stop_after_minutes = 0;  // 0: stops only at the end
  int threads = 2;
  uint64_t seed = 1;
  bool resume = false;
};

// `name`: "lab", "lab-draft", "lab-relu", "lab-mha", "lab-experts" or "stories-long". Errors: user.
Result<ArchSpec> lab_spec(const std::string& name);
// Returns true if the model with this name is trained on rows of stories only, without exercises.
bool lab_only_stories(const std::string& name);

struct LabTrainReport {
  int64_t steps = 0, tokens = 0;
  double loss = 0, elapsed_s = 0;
};

// Errors: user (options, files), corrupt (checkpoint).
Result<LabTrainReport> train_lab(const LabTrainOptions& options);

// Loads the model of a checkpoint.
Result<LabModel> load_lab_checkpoint(const std::string& path);

// A lab model that was read from its GGUF file, in any number format. Errors of import_lab_gguf(): user (not a lab
// model), corrupt.
struct LabImport {
  LabModel model;
  TokenizerSpec spec;
};
Result<LabImport> import_lab_gguf(const std::string& path);

// Writes a model as a GGUF file with vocabulary and chat template. Matrices are in `format`, norms in F32. Errors:
// user, corrupt.
Result<void> export_lab_gguf(const LabModel& model, const TokenizerSpec& spec, const std::string& name,
                             const std::string& format, const std::string& path);

}  // namespace millrace
