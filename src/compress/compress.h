// Compresses a stored model. Passes change its matrices, using statistics of the matrices' inputs, which are measured
// by running the model over a calibration text. The output is an ordinary GGUF file.
//
//   text -> windows -> layers 0 .. n of the input model -> statistics of the matrices of a range of layers
//   tensor -> values -> pass -> pass -> rows in the output's format -> GGUF file
//
// Statistics are those of the unchanged model. Layers are measured in ranges, each as long as the memory budget allows.
// A range begins with the residual streams at the end of the range before it. If the model, its output and one layer's
// statistics exceed the budget, weights are read layer by layer from a file, and finished tensors and residual streams
// are kept in files until the output is written.
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
  std::string input;                // GGUF file or Hugging Face folder
  std::string output;               // a name that ends in .gguf
  std::vector<std::string> passes;  // NAME[:key=value,...], in the order in which they run
  CalibrationOptions calibration;   // an empty name: no calibration
  std::vector<std::string> keep;    // PATTERN=FORMAT (keep_rules.h)
  std::string table = "q8_0";       // format of a tied embedding table (table_format.h)
  double target_bits = 0;           // average bits of all matrices, reached with the pass llm_mq; 0: no target
  bool dry_run = false;             // true: computes only the report
  bool resume = false;              // true: reuses the blocks that a stopped run finished (run_state.h)
  std::string observe;              // output file of observe_model() (observe.h)
  int threads = 0;                  // 0: all cores
  int64_t memory = 0;               // budget in bytes for everything; 0: none
  bool force = false;               // true: replaces an existing output
  // Receives the finished fraction and the current work; may be null.
  std::function<void(double, const std::string&)> progress;
  std::function<bool()> cancelled;  // called after each block; returns true to end the run; may be null
};

// Result for one matrix.
struct CompressedMatrix {
  std::string name;  // name of the tensor, with "[3]" for expert 3 of a stack
  int64_t rows = 0, cols = 0;
  std::string format;
  int64_t bytes = 0;       // bytes of the stored matrix with its parts
  bool estimated = false;  // true: in a dry run, `bytes` is an estimate, because it depends on the weights
  int64_t calibration_rows = 0, held_out_rows = 0;
  double zeros = 0;  // fraction of the stored weights that decode to zero
  // Squared change of the outputs divided by the squared outputs, on the calibration text: for the stored matrix, and
  // for plain rounding to the same format. Negative without second moments; the second figure also with a codebook.
  double output_error = -1;
  double rounded_output_error = -1;
  // These two errors on the part of the text that is held out from the passes; negative without such a part.
  double held_out_error = -1;
  double rounded_held_out_error = -1;
  // Output error with inputs taken as uncorrelated: the sum of (change of a weight * norm of its input)^2, divided by
  // the same sum for the original weights.
  double weighted_error = 0;
  std::vector<std::pair<std::string, PassRow>> passes;  // NAME[:key=value,...]
};

// The bytes of the embedding table in the output of a compression.
struct TableCost {
  std::string name;  // name of the tensor; empty: the output has no such tensor
  std::string format;
  int64_t bytes = 0;
  bool tied = false;           // the table is also the output head
  std::string rounded_format;  // format that the passes would have used, if --table replaced it; otherwise empty
  int64_t rounded_bytes = 0;   // bytes of the table in rounded_format
};

struct CompressReport {
  std::string input, output, architecture;
  std::string calibration_name, calibration_hash;
  int64_t calibration_tokens = 0, calibration_windows = 0, calibration_context = 0;
  int64_t held_out_tokens = 0, held_out_windows = 0;
  int64_t ranges = 0;                         // number of ranges of layers that were measured
  int64_t resumed_blocks = 0;                 // number of blocks reused from a stopped run
  int64_t weights = 0;                        // number of values in all tensors
  int64_t input_bytes = 0, output_bytes = 0;  // bytes of tensors
  bool dry_run = false;                       // true: nothing was written
  std::vector<std::string> passes, keep;
  TableCost table;
  std::vector<CompressedMatrix> matrices;
  std::vector<std::pair<std::string, PassRow>> structure;  // results of a structural pass by part, "blk.3" ...
  std::vector<std::string> notes;
  std::vector<std::string> idle;  // for each pass that changed no matrix: its name and the reason
  std::vector<MemoryAccount> memory;

  double bits_per_weight() const {
    return weights > 0 ? 8 * static_cast<double>(output_bytes) / static_cast<double>(weights) : 0;
  }
  // Returns the fraction of the output's bytes that the embedding table takes.
  double table_share() const {
    return output_bytes > 0 ? static_cast<double>(table.bytes) / static_cast<double>(output_bytes) : 0;
  }
  bool estimated() const {
    for (const CompressedMatrix& one : matrices)
      if (one.estimated) return true;
    return false;
  }
};

// Runs a compression. If it fails, leaves no files, except the finished blocks with `resume`. Errors: user (invalid
// names, options or text), corrupt (the input), unsupported (the architecture or the kind of file), resource (memory,
// with a list of all accounts; or disk), cancelled.
Result<CompressReport> compress_model(const CompressOptions& options);

}  // namespace millrace
