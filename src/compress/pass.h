// Pass: one step of a compression. It changes a matrix, using statistics of the matrix's input rows that the
// calibration measured. A quantizer chooses the levels of its format, a pruner sets weights to zero, a factorizer
// replaces the matrix by a low-rank pair. Each pass is one file under quantizers/, pruners/, factorizers/ or parts/ and
// one entry in builtin.cc. A pass belongs to one pipeline and is called only on its thread.
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
  kForwardPasses = 32,    // none of these: a structural pass runs the model itself
  kInputMagnitudes = 64,  // LinearStatistics::magnitudes
};

struct LinearStatistics {
  LinearId id;                     // id of the first matrix that reads these rows
  int64_t rows = 0;                // number of measured rows
  std::vector<double> squares;     // [cols], sum of the squares of each input
  SecondMoments moments;           // no columns if not needed
  std::vector<double> sums;        // [cols], sum of each input; empty if not needed
  std::vector<double> magnitudes;  // [cols], sum of each input's magnitude; empty if not needed
  std::vector<float> least, most;  // [cols], minimum and maximum of each input; empty if not needed
  // [n, cols], evenly spaced input rows. If there are more than kMaxSamples rows, n is between kMaxSamples / 2 and
  // kMaxSamples; otherwise, all rows are samples.
  static constexpr int64_t kMaxSamples = 128;
  std::vector<float> samples;
  int64_t sample_step = 1;  // distance of the samples in rows

  // Returns the largest magnitude of input `col`; needs kInputRanges.
  float largest(size_t col) const { return std::max(std::fabs(least[col]), std::fabs(most[col])); }
};

// Parts stored in addition to the matrix (tensor/weight_parts.h).
struct PassParts {
  InputChange input;
  OutputChange output;
  int64_t rank = 0;
  std::vector<float> low_rank_a, low_rank_b;  // [rank, cols], [rows, rank], rounded to low_rank_format
  const Format* low_rank_format = nullptr;    // null: f16
  bool factored = false;                      // true: the pair is stored in place of the matrix
  SparseMatrix sparse;
  std::vector<int32_t> columns;  // ascending; inputs that multiply column_weights
  const Format* column_format = nullptr;
  std::vector<float> column_weights;  // [rows, columns], rounded to column_format
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
  std::vector<float> values;  // [rows, cols]
  // [rows, cols], 0: pruned, so the output has a zero for any entry of `values`; empty: nothing is pruned.
  std::vector<uint8_t> kept;
  const Format* format = nullptr;  // format of the output
  std::vector<uint8_t> encoded;  // rows in `format` whose levels a pass chose; empty: the output has `values`, rounded
  Codebook codebook;             // if it has bits, rows of `encoded` are indices into it, not in `format`
  // If not empty, `values` are those of the stored matrix: with columns changed for `parts.input` and rows for
  // `parts.output`.
  PassParts parts;
  std::string_view no_parts;  // why the matrix cannot have parts; empty: it can

  bool has_codebook() const { return codebook.bits > 0; }
  // Decodes row `row` of `encoded`.
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

// Expected result of a pass, derived from sizes alone.
struct PassPreview {
  std::string action, why;
  bool estimate = false;  // true: the stored size depends on the matrix's weights or on the text
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
  // Returns the output format of all matrices, as in `millrace convert --format`; "": unchanged. Only a pipeline's last
  // pass may have one.
  virtual std::string format() const { return ""; }
  // Returns the formats from which the pass chooses one for each tensor; empty: all tensors have format(). The choice
  // is made after the costs of all matrices are known and before any is changed. If the rows of a tensor do not fit a
  // format, the replacement that `millrace convert` chooses is used.
  virtual std::vector<const Format*> choices() const { return {}; }
  // Returns the cost of storing a matrix in `matrix.format`. The cost of a stack of experts is the sum over its
  // matrices.
  virtual double format_cost(const PassMatrix& /*matrix*/, const LinearStatistics& /*statistics*/,
                             ThreadPool& /*pool*/) {
    return 0;
  }
  // Returns for each tensor the index of the chosen candidate. Errors: user.
  virtual Result<std::vector<size_t>> choose_formats(const std::vector<FormatCosts>& tensors) {
    return std::vector<size_t>(tensors.size());
  }
  // Returns true if the pass chooses the levels of the matrices.
  virtual bool fixes_levels() const { return !format().empty(); }
  // Returns true if the pass can choose levels in every format and adds no parts. Such a pass may change a matrix whose
  // format is fixed (keep_rules.h).
  virtual bool rounds_to_any_format() const { return false; }
  // Returns true if the pass adds parts and does not change levels. Such a pass may follow the pass that chose the
  // levels.
  virtual bool corrects() const { return false; }
  // Returns true if the pass changes the order of the inputs. The statistics are then invalid, so only the last pass
  // may do so.
  virtual bool orders_inputs() const { return false; }
  // Returns the bytes that apply() needs for a matrix, in addition to the matrix and its statistics.
  virtual int64_t working_bytes(int64_t /*rows*/, int64_t /*cols*/) const { return 0; }
  // Returns the pass as a StructuralPass if it makes a smaller model. Such a pass must be the only one. Null: it
  // changes matrices.
  virtual StructuralPass* structural() { return nullptr; }
  // Returns how many times all matrices are passed to survey() before the first is compressed. For passes that divide a
  // budget among the layers.
  virtual int surveys() const { return 0; }
  // Called for each matrix of the input model, unchanged, in the order in which matrices are compressed. `time`: index
  // of the survey, from 0 on.
  virtual void survey(int /*time*/, const PassMatrix& /*matrix*/, const LinearStatistics& /*statistics*/,
                      ThreadPool& /*pool*/) {}
  // Previews apply() for a matrix that has sizes, a format and parts, but no values. Fills the codebook and the parts
  // with arbitrary numbers, in the sizes that apply() would store (compress/output/preview.h). Errors: user, as in
  // apply().
  virtual Result<PassPreview> preview(PassMatrix& /*matrix*/) const {
    return PassPreview{fixes_levels() ? "quantized" : "changed", "", false};
  }
  // Changes the matrix. `statistics`: at least one row. Errors: resource, user (the options do not fit the matrix).
  virtual Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) = 0;
};

using PassFactory = Result<std::unique_ptr<Pass>> (*)(const OptionValues& options);
const Registry<PassFactory>& passes();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<Pass>> make_pass(std::string_view text);

}  // namespace millrace
