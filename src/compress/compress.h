// Compression of a stored model: passes change its matrices, given what a calibration text's forward passes measured of
// their inputs, and the output is an ordinary GGUF file.
//
//   text -> windows -> layers 0 .. n of the input model -> statistics of the matrices of a range of layers
//   tensor -> values -> pass -> pass -> rows in the output's format -> GGUF file
//
// Statistics are those of the unchanged model. Layers are measured in ranges, as many at a time as the memory budget
// allows: a range runs the text through all layers up to its last.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_accounts.h"
#include "compress/calibration.h"
#include "compress/pass.h"

namespace millrace {

struct CompressOptions {
  std::string input;                                         // GGUF file or Hugging Face folder
  std::string output;                                        // a name that ends in .gguf
  std::vector<std::string> passes;                           // NAME[:key=value,...], in the order in which they run
  CalibrationOptions calibration;                            // with an empty name: none
  int threads = 0;                                           // 0: all cores
  int64_t memory = 0;                                        // budget for everything; 0: none
  bool force = false;                                        // replace an existing output
  std::function<void(double, const std::string&)> progress;  // fraction, and what is being done; may be null
};

// What became of one matrix.
struct CompressedMatrix {
  std::string name;  // of the tensor, with "[3]" for expert 3 of a stack
  int64_t rows = 0, cols = 0;
  std::string format;
  int64_t calibration_rows = 0;
  double zeros = 0;  // fraction of the stored weights that decode to zero
  // The squared change of the outputs over the squared outputs, on the calibration text: of the stored matrix, and of
  // plain rounding to the same format. Only with second moments, the latter not with a codebook; otherwise negative.
  double output_error = -1;
  double rounded_output_error = -1;
  // The same without the correlations between inputs: sum of (change * norm of its input)^2.
  double weighted_error = 0;
  std::vector<std::pair<std::string, PassRow>> passes;  // NAME[:key=value,...]
};

struct CompressReport {
  std::string input, output, architecture;
  std::string calibration_name, calibration_hash;
  int64_t calibration_tokens = 0, calibration_windows = 0, calibration_context = 0;
  int64_t ranges = 0;                         // of layers: runs over the text
  int64_t input_bytes = 0, output_bytes = 0;  // of tensors
  std::vector<std::string> passes;
  std::vector<CompressedMatrix> matrices;
  std::vector<std::string> notes;
  std::vector<MemoryAccount> memory;
};

// Errors: user (names, options, the text), corrupt (the input), unsupported (an architecture, a file kind), resource
// (memory: with all accounts; disk). On failure nothing is left behind.
Result<CompressReport> compress_model(const CompressOptions& options);

}  // namespace millrace
