// Finishes a training run: exports the best weights as a GGUF file, and writes a picture of the loss curve and a short
// report (held-out bits per byte, sample stories).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "train/trainer.h"

namespace millrace {

struct FinishOptions {
  TrainOptions run;  // the run whose `out` folder holds best.pt, vocabulary.txt and loss.csv
  std::string name;  // general.name in the GGUF file, which is out/NAME.gguf
  int samples = 3;
  double temperature = 0.8;
};

struct FinishReport {
  std::string gguf;
  int64_t parameters = 0;
  double bits_per_byte = 0;  // over all held-out stories, each scored separately
  double nats_per_token = 0;
  std::vector<std::string> stories;
};

// Errors: user (`out` has no trained weights yet), corrupt (the weights have another shape).
Result<FinishReport> finish_stories(const FinishOptions& options);

}  // namespace millrace
