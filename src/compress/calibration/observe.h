// Computes importance matrices from a calibration text (loader/importance_file.h). For every matrix that `compress`
// could change, they hold the sum of the squares of each input. The model runs over the text once.
#pragma once

#include "compress/compress.h"

namespace millrace {

struct ObserveReport {
  int64_t matrices = 0, tokens = 0, windows = 0, context = 0;
};

// Runs the model options.input over the text options.calibration, and writes the importance matrices to the file
// options.observe. Errors: those of compress_model(); user (no calibration text; the output file exists already).
Result<ObserveReport> observe_model(const CompressOptions& options);

}  // namespace millrace
