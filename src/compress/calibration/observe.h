// Importance matrices from a calibration text (loader/importance_file.h): the sums of the squares of the inputs of
// every matrix that `compress` could change. One run over the text.
#pragma once

#include "compress/compress.h"

namespace millrace {

struct ObserveReport {
  int64_t matrices = 0, tokens = 0, windows = 0, context = 0;
};

// Observes options.input with options.calibration, and writes the file options.observe. Errors: as compress_model();
// user (no text, a file that exists).
Result<ObserveReport> observe_model(const CompressOptions& options);

}  // namespace millrace
