// TensorWork: a tensor of the output that passes may change, and the statistics it needs. MatrixWork: one matrix while
// the passes run over it. Not thread-safe.
#pragma once

#include <vector>

#include "compress/compress.h"
#include "compress/linear_places.h"
#include "models/convert/conversion.h"

namespace millrace {

// One tensor of the plan: a matrix, or a stack of one matrix for each expert.
struct TensorWork {
  size_t tensor = 0;  // index into ConversionPlan::tensors
  LinearPlace place;
  int64_t layer = 0;  // index of the layer; for the head, the number of layers
  int64_t experts = 1;
  int64_t rows = 0, cols = 0;  // size of one matrix

  // Returns the ids of the statistics of its matrices, in the order of the stack.
  std::vector<LinearId> ids() const;
  int64_t statistics_bytes(uint32_t needs) const;  // for one matrix
  // Bytes of a MatrixWork whose stored rows have row_bytes.
  int64_t working_bytes(uint32_t needs, int64_t row_bytes) const;
  void reserve(const LinearId& id, uint32_t needs, StatisticsMap& statistics) const;
};

// Returns the tensors that passes may change, sorted by layer, then in the order of the plan. Errors: corrupt (a stack
// with a wrong number of experts).
Result<std::vector<TensorWork>> plan_works(const ConversionPlan& plan, const ArchSpec& spec);

class MatrixWork {
 public:
  // Returns the matrix of `tensor` whose statistics are `id`, without values.
  static PassMatrix shell(const OutputTensor& tensor, const TensorWork& work, const LinearId& id);
  // Returns the name of the format in which the matrix is stored, for the report.
  static std::string format_name(const PassMatrix& matrix);
  // Reads the matrix of `tensor` whose statistics are `id`. Errors: corrupt.
  static Result<MatrixWork> read(const OutputTensor& tensor, const TensorWork& work, const LinearId& id,
                                 ThreadPool& pool);

  PassMatrix& matrix() { return matrix_; }
  CompressedMatrix& report() { return report_; }
  // Called after the passes: encodes the matrix and measures its change. `held_out`: statistics of rows that no pass
  // saw; null: none. Errors: resource.
  Result<void> finish(const LinearStatistics& statistics, const LinearStatistics* held_out, const KernelTable& table,
                      ThreadPool& pool);
  const std::vector<uint8_t>& stored() const { return matrix_.encoded; }

 private:
  std::vector<uint8_t> rounded(const std::vector<float>& values, ThreadPool& pool) const;
  std::vector<float> decoded(const std::vector<uint8_t>& rows, ThreadPool& pool) const;
  // Sums of squared outputs: on the calibration rows, and on the held-out rows.
  struct Outputs {
    double seen = 0, held_out = 0;
  };
  Result<Outputs> squared_outputs(const std::vector<float>& rows, const KernelTable& table, ThreadPool& pool) const;
  Result<Outputs> output_errors(std::vector<float> change, const std::vector<float>& bias, const Outputs& all,
                                const KernelTable& table, ThreadPool& pool) const;

  PassMatrix matrix_;
  const LinearStatistics *seen_ = nullptr, *held_out_ = nullptr;  // set in finish() if they have moments
  std::vector<float> original_;
  CompressedMatrix report_;
};

}  // namespace millrace
