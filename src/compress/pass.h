// Pass: one step of a compression. It changes a matrix, given what the calibration measured of the matrix's input rows:
// a quantizer chooses the levels of its format, a pruner sets weights to zero. One file each under quantizers/ or
// pruners/ and one line in builtin.cc. A pass belongs to one pipeline and is called only on its thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/registry.h"
#include "base/thread_pool.h"
#include "compress/second_moments.h"
#include "formats/format.h"
#include "models/linear_id.h"
#include "tensor/codebook.h"
#include "tensor/weight_parts.h"

namespace millrace {

// What a calibration can measure of a matrix's input rows; bits of Pass::needs().
enum StatisticBits : uint32_t {
  kNoStatistics = 0,
  kInputNorms = 1,     // LinearStatistics::squares
  kSecondMoments = 2,  // LinearStatistics::moments
};

struct LinearStatistics {
  LinearId id;                  // of the first of the matrices that read these rows
  int64_t rows = 0;             // measured
  std::vector<double> squares;  // [cols], sum of the squares of each input
  SecondMoments moments;        // no columns if not needed
};

// What is stored beside the matrix (tensor/weight_parts.h).
struct PassParts {
  InputChange input;
  int64_t rank = 0;
  std::vector<float> low_rank_a, low_rank_b;  // [rank, cols], [rows, rank]
  SparseMatrix sparse;

  bool empty() const { return input.empty() && rank == 0 && sparse.empty(); }
};

// A matrix with the parts that passes fill.
struct PassMatrix {
  std::string name;  // "blk.3.attn_q.weight"
  LinearId id;
  int64_t rows = 0, cols = 0;
  std::vector<float> values;       // [rows, cols]
  std::vector<uint8_t> kept;       // [rows, cols], 0: pruned, zero in the output whatever `values` holds; empty: all
  const Format* format = nullptr;  // of the output
  std::vector<uint8_t> encoded;    // rows in `format` whose levels a pass chose; empty: `values` are rounded
  Codebook codebook;               // with bits: `encoded` are rows of its indices, in place of `format`
  PassParts parts;                 // `values` are then those of the stored matrix: columns by `parts.input`
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

// What a pass did to one matrix: "quantized", "pruned", or "left" with the reason; and figures for the report.
struct PassRow {
  std::string action;
  std::string why;
  std::vector<std::pair<std::string, double>> figures;
};

class Pass {
 public:
  virtual ~Pass() = default;

  virtual uint32_t needs() const = 0;  // StatisticBits
  // The output format of all matrices, as `millrace convert --format` applies it; "": unchanged. Only of a pipeline's
  // last pass.
  virtual std::string format() const { return ""; }
  // Whether it chooses the levels of the matrices.
  virtual bool fixes_levels() const { return !format().empty(); }
  // Whether it adds parts and leaves the levels alone: it may then follow the pass that chose them.
  virtual bool corrects() const { return false; }
  // Memory while it works on a matrix, in addition to the matrix and its statistics.
  virtual int64_t working_bytes(int64_t /*rows*/, int64_t /*cols*/) const { return 0; }
  // `statistics` has at least one row. Errors: resource.
  virtual Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) = 0;
};

using PassFactory = Result<std::unique_ptr<Pass>> (*)(const OptionValues& options);
const Registry<PassFactory>& passes();

// `text` is NAME[:key=value,...]. Errors (user): unknown name or option.
Result<std::unique_ptr<Pass>> make_pass(std::string_view text);

}  // namespace millrace
