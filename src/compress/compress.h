// Compression of a stored model: passes change its matrices, using statistics of their inputs that a calibration text's
// forward passes measured. The output is an ordinary GGUF file.
//
//   text -> windows -> layers 0 .. n of the input model -> statistics of the matrices of a range of layers
//   tensor -> values -> pass -> pass -> rows in the output's format -> GGUF file
//
// Statistics are those of the unchanged model. Layers are measured in ranges, as many at a time as the memory budget
// allows; a range continues with the residual streams that the one before it left. If the model, its output and one
// layer's statistics exceed the budget, weights are read layer by layer from a file. Finished tensors and residual
// streams are then in files until the output is written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_accounts.h"
#include "compress/calibration/calibration.h"
#include "compress/pass.h"

namespace millrace {

struct CompressOptions {
  std::string input;                                         // GGUF file or Hugging Face folder
  std::string output;                                        // a name that ends in .gguf
  std::vector<std::string> passes;                           // NAME[:key=value,...], in the order in which they run
  CalibrationOptions calibration;                            // with an empty name: none
  std::vector<std::string> keep;                             // PATTERN=FORMAT (keep_rules.h)
  std::string table = "q8_0";                                // format of a tied embedding table (table_format.h)
  double target_bits = 0;                                    // for all matrices, by the pass llm_mq; 0: none
  bool dry_run = false;                                      // true: only the report
  bool resume = false;                                       // with the blocks that a stopped run left (run_state.h)
  std::string observe;                                       // file of observe_model() (observe.h)
  int threads = 0;                                           // 0: all cores
  int64_t memory = 0;                                        // budget for everything; 0: none
  bool force = false;                                        // replace an existing output
  std::function<void(double, const std::string&)> progress;  // fraction, and the current work; may be null
  std::function<bool()> cancelled;                           // asked after each block: true ends the run; may be null
};

// Result for one matrix.
struct CompressedMatrix {
  std::string name;  // name of the tensor, with "[3]" for expert 3 of a stack
  int64_t rows = 0, cols = 0;
  std::string format;
  int64_t bytes = 0;       // with its parts
  bool estimated = false;  // in a dry run: the bytes depend on the weights
  int64_t calibration_rows = 0, held_out_rows = 0;
  double zeros = 0;  // fraction of the stored weights that decode to zero
  // The squared change of the outputs over the squared outputs, on the calibration text: of the stored matrix, and of
  // plain rounding to the same format. Only with second moments, the latter not with a codebook; otherwise negative.
  double output_error = -1;
  double rounded_output_error = -1;
  // Output error on the part of the text that the passes did not see; negative without one.
  double held_out_error = -1;
  double rounded_held_out_error = -1;
  // Output error without the correlations between inputs: sum of (change * norm of its input)^2.
  double weighted_error = 0;
  std::vector<std::pair<std::string, PassRow>> passes;  // NAME[:key=value,...]
};

// The bytes of the embedding table in the output of a compression.
struct TableCost {
  std::string name;  // name of the tensor; empty: the output has no such tensor
  std::string format;
  int64_t bytes = 0;
  bool tied = false;           // the table is also the output head
  std::string rounded_format;  // the passes' own format, if --table replaced it; otherwise empty
  int64_t rounded_bytes = 0;   // bytes of the table in rounded_format
};

struct CompressReport {
  std::string input, output, architecture;
  std::string calibration_name, calibration_hash;
  int64_t calibration_tokens = 0, calibration_windows = 0, calibration_context = 0;
  int64_t held_out_tokens = 0, held_out_windows = 0;
  int64_t ranges = 0;                         // ranges of layers, measured one after the other
  int64_t resumed_blocks = 0;                 // that a stopped run had done
  int64_t weights = 0;                        // values of all tensors
  int64_t input_bytes = 0, output_bytes = 0;  // bytes of tensors
  bool dry_run = false;                       // nothing was written
  std::vector<std::string> passes, keep;
  TableCost table;
  std::vector<CompressedMatrix> matrices;
  std::vector<std::pair<std::string, PassRow>> structure;  // for structural passes: results by part, "blk.3" ...
  std::vector<std::string> notes;
  std::vector<std::string> idle;  // for each pass that changed no matrix: its name and the reason
  std::vector<MemoryAccount> memory;

  double bits_per_weight() const {
    return weights > 0 ? 8 * static_cast<double>(output_bytes) / static_cast<double>(weights) : 0;
  }
  // The part of the output's bytes that the embedding table takes.
  double table_share() const {
    return output_bytes > 0 ? static_cast<double>(table.bytes) / static_cast<double>(output_bytes) : 0;
  }
  bool estimated() const {
    for (const CompressedMatrix& one : matrices)
      if (one.estimated) return true;
    return false;
  }
};

// Errors: user (names, options, the text), corrupt (the input), unsupported (an architecture, a file kind), resource
// (memory: with all accounts; disk), cancelled. On failure nothing is left behind, but with `resume` the finished
// blocks.
Result<CompressReport> compress_model(const CompressOptions& options);

}  // namespace millrace
