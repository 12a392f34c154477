// Pass: one step of a compression. It changes a matrix, using what the calibration measured of the matrix's input rows.
// A quantizer chooses the levels of its format, a pruner sets weights to zero, a factorizer replaces the matrix by a
// low-rank pair. Each pass is one file under quantizers/, pruners/, factorizers/ or parts/ and one entry in builtin.cc.
// A pass belongs to one pipeline and is called only on its thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/registry.h"
#include "base/thread_pool.h"
#include "compress/calibration/second_moments.h"
#include "formats/format.h"
#include "models/linear_id.h"
#include "tensor/codebook.h"
#include "tensor/weight_parts.h"

namespace millrace {

// Statistics of a matrix's input rows that a calibration can measure; bits of Pass::needs().
enum StatisticBits : uint32_t {
  kNoStatistics = 0,
  kInputNorms = 1,        // LinearStatistics::squares
  kSecondMoments = 2,     // LinearStatistics::moments
  kInputRanges = 4,       // LinearStatistics::least, most
  kInputSamples = 8,      // LinearStatistics::samples
  kInputSums = 16,        // LinearStatistics::sums
  kForwardPasses = 32,    // a structural pass measures by itself
  kInputMagnitudes = 64,  // LinearStatistics::magnitudes
};

struct LinearStatistics {
  LinearId id;                     // id of the first matrix that reads these rows
  int64_t rows = 0;                // measured
  std::vector<double> squares;     // [cols], sum of the squares of each input
  SecondMoments moments;           // no columns if not needed
  std::vector<double> sums;        // [cols], of each input; empty if not needed
  std::vector<double> magnitudes;  // [cols], sum of each input's magnitude; empty if not needed
  std::vector<float> least, most;  // [cols], of each input; empty if not needed
  // [n, cols], evenly spaced input rows: all, or half to all of kMaxSamples.
  static constexpr int64_t kMaxSamples = 128;
  std::vector<float> samples;
  int64_t sample_step = 1;  // rows from one sample to the next

  // The largest magnitude of an input; needs kInputRanges.
  float largest(size_t col) const { return std::max(std::fabs(least[col]), std::fabs(most[col])); }
};

// Parts stored in addition to the matrix (tensor/weight_parts.h).
struct PassParts {
  InputChange input;
  OutputChange output;
  int64_t rank = 0;
  std::vector<float> low_rank_a, low_rank_b;  // [rank, cols], [rows, rank], rounded to low_rank_format
  const Format* low_rank_format = nullptr;    // null: f16
  bool factored = false;                      // the pair is stored in place of the matrix
  SparseMatrix sparse;
  std::vector<int32_t> columns;  // ascending; inputs that multiply column_weights
  const Format* column_format = nullptr;
  std::vector<float> column_weights;  // [rows, columns], as they are once stored
  std::vector<float> bias;            // [rows]

  bool empty() const {
    return input.empty() && output.empty() && rank == 0 && sparse.empty() && columns.empty() && bias.empty();
  }
};

// A matrix with the parts that passes fill.
struct PassMatrix {
  std::string name;  // "blk.3.attn_q.weight"
  LinearId id;
  int64_t rows = 0, cols = 0;
  std::vector<float> values;       // [rows, cols]
  std::vector<uint8_t> kept;       // [rows, cols], 0: pruned, zero in the output for any `values`; empty: all are kept
  const Format* format = nullptr;  // format of the output
  std::vector<uint8_t> encoded;    // rows in `format` whose levels a pass chose; empty: `values` are rounded
  Codebook codebook;               // with bits: `encoded` are rows of its indices, in place of `format`
  PassParts parts;                 // `values` are then those of the stored matrix: columns by `parts.input`, rows
                                   // by `parts.output`
  std::string_view no_parts;       // why the matrix cannot have parts; empty: it can

  bool has_codebook() const { return codebook.bits > 0; }
  // Row `row` of `encoded`.
  void decode_row(int64_t row, float* out) const {
    if (has_codebook())
      decode_codebook(codebook, encoded.data() + row * codebook.row_bytes(cols), row, 0, cols, out);
    else
      format->decode(encoded.data() + row * format->row_bytes(cols), out, cols);
  }
  bool pruned(int64_t row, int64_t col) const { return !kept.empty() && !kept[static_cast<size_t>(row * cols + col)]; }
};

// Result of a pass for one matrix: "quantized", "pruned", or "left" with the reason; and figures for the report.
struct PassRow {
  std::string action;
  std::string why;
  std::vector<std::pair<std::string, double>> figures;
};

// Expected result of a pass, as far as sizes tell.
struct PassPreview {
  std::string action, why;
  bool estimate = false;  // the matrix's size depends on its weights or on the text
};

// The formats that one tensor of the output may have, each with its bytes and cost.
struct FormatCosts {
  struct Candidate {
    const Format* format = nullptr;
    int64_t bytes = 0;
    double cost = 0;
  };
  std::string tensor;
  int64_t weights = 0;
  std::vector<Candidate> candidates;  // at least one
};

class StructuralPass;  // compress/structural_pass.h

class Pass {
 public:
  virtual ~Pass() = default;

  virtual uint32_t needs() const = 0;  // StatisticBits
  // The output format of all matrices, as `millrace convert --format` applies it; "": unchanged. Only of a pipeline's
  // last pass.
  virtual std::string format() const { return ""; }
  // Formats of which the pass chooses one for each tensor, after looking at all matrices and before it changes any;
  // empty: all have format(). If the rows of a tensor do not fit a format, it is assigned the replacement that
  // `millrace convert` chooses.
  virtual std::vector<const Format*> choices() const { return {}; }
  // Cost of a matrix in `matrix.format`; a stack of experts costs the sum.
  virtual double format_cost(const PassMatrix& /*matrix*/, const LinearStatistics& /*statistics*/,
                             ThreadPool& /*pool*/) {
    return 0;
  }
  // An index into the candidates of each tensor. Errors: user.
  virtual Result<std::vector<size_t>> choose_formats(const std::vector<FormatCosts>& tensors) {
    return std::vector<size_t>(tensors.size());
  }
  // Returns true if the pass chooses the levels of the matrices.
  virtual bool fixes_levels() const { return !format().empty(); }
  // Returns true if the pass chooses levels in any format that a matrix has, and adds nothing to it. Such a pass may
  // change a matrix whose format is fixed (keep_rules.h); all others leave it alone.
  virtual bool rounds_to_any_format() const { return false; }
  // Returns true if the pass adds parts and leaves the levels alone; it may then follow the pass that chose them.
  virtual bool corrects() const { return false; }
  // Returns true if the pass changes the order of the inputs, so that statistics no longer fit: only the last pass may.
  virtual bool orders_inputs() const { return false; }
  // Memory while it works on a matrix, in addition to the matrix and its statistics.
  virtual int64_t working_bytes(int64_t /*rows*/, int64_t /*cols*/) const { return 0; }
  // Not null: it makes a smaller model, and is the only pass.
  virtual StructuralPass* structural() { return nullptr; }
  // How often all matrices are shown to survey() before the first is compressed: of passes that divide something among
  // layers.
  virtual int surveys() const { return 0; }
  // A matrix of the input model, before all passes, in the order in which they are compressed.
  virtual void survey(int /*time*/, const PassMatrix& /*matrix*/, const LinearStatistics& /*statistics*/,
                      ThreadPool& /*pool*/) {}
  // Previews apply() for a matrix that has sizes, a format and parts, but no values. It fills the codebook and the
  // parts with any numbers, as many as apply() would store (compress/output/preview.h). Errors: user, as those of
  // apply().
  virtual Result<PassPreview> preview(PassMatrix& /*matrix*/) const {
    return PassPreview{fixes_levels() ? "quantized" : "changed", "", false};
  }
  // `statistics` has at least one row. Errors: resource, user (a matrix that the options cannot have).
  virtual Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) = 0;
};

using PassFactory = Result<std::unique_ptr<Pass>> (*)(const OptionValues& options);
const Registry<PassFactory>& passes();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<Pass>> make_pass(std::string_view text);

}  // namespace millrace
