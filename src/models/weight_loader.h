// WeightLoader: finds tensors by canonical name in either file kind, checks shapes, and returns Weights.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/format.h"
#include "loader/model_files.h"
#include "models/arch.h"
#include "models/weight_parts_loader.h"
#include "tensor/weight.h"

namespace millrace {

// A tensor that a model asks for.
struct TensorRequest {
  std::string canonical;
  const StoredTensor* stored = nullptr;  // null: the file lacks it
  int64_t rows = 0, cols = 0;            // shape that the model needs, as the file would store it
};

class WeightLoader {
 public:
  // `requests`: if not null, nothing is loaded: each tensor that is asked for is appended, missing ones and those of
  // another shape too, and zeros are returned. The configuration alone then states the sizes. So vectors and tables of
  // more than kMaxListedValues values, and more than kMaxRequests requests, are errors.
  WeightLoader(const ModelFiles& files, const Arch& arch, std::vector<TensorRequest>* requests = nullptr);
  // Tensors of a Hugging Face folder whose names would begin with `from` begin with `to` instead.
  void replace_prefix(std::string from, std::string to) { renamed_ = {std::move(from), std::move(to)}; }

  // The stored tensor, null if absent; of a factored matrix its .low_rank_b. `transposed` (may be null) is set if the
  // file stores [in, out].
  const StoredTensor* find(std::string_view canonical, bool* transposed = nullptr) const;

  // A [rows, cols] matrix; the optional forms return an absent Weight (rows == 0) or an empty vector.
  // A matrix comes with its parts (weight_parts_loader.h).
  // Errors: corrupt (missing, wrong shape, NaN), unsupported (a type without Format, by its name).
  Result<Weight> matrix(std::string_view canonical, int64_t rows, int64_t cols);
  Result<Weight> optional_matrix(std::string_view canonical, int64_t rows, int64_t cols);
  // Rows [begin, begin + rows) of a [total_rows, cols] matrix.
  Result<Weight> rows_of(std::string_view canonical, int64_t total_rows, int64_t begin, int64_t rows, int64_t cols);
  // The transpose of rows [begin, begin + count) of a [total_rows, cols] matrix: a [cols, count] matrix. Stored in
  // blocks of values, it becomes f16. Errors: also unsupported (with scales or parts).
  Result<Weight> transpose_of(std::string_view canonical, int64_t total_rows, int64_t begin, int64_t count,
                              int64_t cols);
  Result<std::vector<float>> vector(std::string_view canonical, int64_t n);
  Result<std::vector<float>> optional_vector(std::string_view canonical, int64_t n);
  // The values of a [rows, cols] matrix that is no Weight.
  Result<std::vector<float>> table(std::string_view canonical, int64_t rows, int64_t cols);

 private:
  std::string folder_name(std::string_view canonical) const;
  Result<void> note(std::string_view canonical, int64_t rows, int64_t cols);
  // As note(), of values that the caller allocates.
  Result<void> note_values(std::string_view canonical, int64_t rows, int64_t cols);
  Result<const StoredTensor*> require(std::string_view canonical, bool* transposed) const;
  Result<Weight> transposed_rows(const StoredTensor& stored, int64_t total_rows, int64_t begin, int64_t rows,
                                 int64_t cols);
  Result<Weight> codebook_rows(const StoredTensor& stored, const PartRows& at, std::shared_ptr<Codebook> codebook);
  const ModelFiles& files_;
  const Arch& arch_;
  std::vector<TensorRequest>* requests_;
  bool has_parts_;                               // some matrix of the file has weight parts
  std::pair<std::string, std::string> renamed_;  // prefixes
};

}  // namespace millrace
