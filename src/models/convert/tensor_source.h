// A model's tensors as conversion sees them: each a matrix of rows under its canonical (GGUF) name, with experts listed
// individually, however the input stores them; and the tensors of an output, produced one at a time. Immutable once
// listed; producing is thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "loader/llama2c.h"
#include "loader/model_files.h"
#include "models/arch.h"

namespace millrace {

struct SourceTensor {
  // How rows of queries and keys are permuted if the other file kind rotates different pairs of each head (RopeStyle).
  enum class Pairs : uint8_t { keep, to_interleaved, to_half };
  // A function of every value: the decays of states are stored as A in GGUF files, and as log(-A) in folders.
  enum class Map : uint8_t { keep, negative_exp, log_of_negative };

  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  bool is_vector = false;                            // one-dimensional; stored as one row, or as rows of one value
  const ModelFiles* files = nullptr;                 // with `stored`
  const StoredTensor* stored = nullptr;              // rows [first_row, first_row + rows) of it ...
  const Llama2cTensor* grouped = nullptr;            // ... or a llama2.c tensor ...
  std::shared_ptr<const std::vector<float>> values;  // ... or computed values
  int64_t first_row = 0;
  bool transposed = false;  // the file holds [cols, rows]; `first_row` then counts lines of the file, which are columns
  Pairs pairs = Pairs::keep;
  int64_t head_dim = 0;  // with `pairs`
  int64_t rotated = 0;
  // Source row of each row, and source column of each column, if the output has another order; null: as they are.
  std::shared_ptr<const std::vector<int64_t>> row_order, col_order;
  float offset = 0.0f;  // added to every value
  Map map = Map::keep;
  // Factor of each row, or one factor of all rows; null: none. Not with `transposed`.
  std::shared_ptr<const std::vector<double>> factors;
  std::vector<int64_t> dims;  // shape in the output, outermost first; empty: [rows, cols], or [values] of a vector

  // The stored format if the tensor's bytes are rows of it; null if values must be computed.
  const Format* plain_format() const;
  // Returns the format of the blocks, without the scale of the whole matrix that the input may have in addition.
  const Format* block_format() const;
  // Returns the scale of the whole matrix (of a stack, the scale of a row's expert), 1 without one.
  float matrix_scale(int64_t row) const;
  // Rows [begin, begin + count) as floats into `out` [count, cols].
  void read_rows(int64_t begin, int64_t count, float* out) const;
  // Errors: corrupt (a NaN or infinite scale or value, or one that has no logarithm).
  Result<void> check_finite() const;
  int64_t source_row(int64_t row) const;  // source row of an output row

 private:
  // Returns true if the output's values, or their columns, are not those of the source.
  bool changes_values() const { return offset != 0.0f || col_order || map != Map::keep || factors; }
  double factor_of(int64_t row) const;
};

// A tensor in the output's layout: its parts in order, rows in `format`.
struct OutputTensor {
  std::string name;
  const Format* format = nullptr;
  std::vector<int64_t> dims;  // outermost first
  bool transpose = false;     // the output holds [cols, rows] (one part only)
  std::vector<SourceTensor> parts;
  std::vector<float> weights;  // [experts, cols], of squared errors in rounding; empty: all alike
  std::vector<float> scales;   // [experts], by which rows are divided (matrix_scales.h); empty: 1

  int64_t bytes() const;
  int64_t experts() const { return dims.size() > 2 ? dims.front() : 1; }
  // Fills `destination` with bytes() bytes, rows in parallel. Errors: corrupt, unsupported (a value that does not fit).
  Result<void> produce(uint8_t* destination, ThreadPool& pool) const;
  Result<void> check_overflow(const uint8_t* encoded) const;

 private:
  // Scale of the `index`-th row of all parts.
  float scale_of(int64_t index) const;
  // Returns true if the blocks of a part are copied unchanged; `before`: number of rows in earlier parts.
  bool copies(const SourceTensor& part, int64_t before) const;
  // One row, the `index`-th of all parts.
  void encode_row(int64_t index, const float* values, int64_t cols, uint8_t* destination) const;
};

// Lists every tensor that the spec's model needs, in forward-pass order. `target` is the spec as the output will be
// read: its rope style and norm offset determine the permutations. Errors: corrupt (missing, wrong shape), unsupported.
Result<std::vector<SourceTensor>> list_tensors(const ModelFiles& files, const Arch& arch, const ArchSpec& spec,
                                               const ArchSpec& target);
Result<std::vector<SourceTensor>> list_tensors(const Llama2cCheckpoint& checkpoint, const ArchSpec& spec,
                                               const ArchSpec& target);

}  // namespace millrace
