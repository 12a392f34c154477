// The tensors of a model as conversion sees them: each a matrix of rows under its canonical (GGUF) name, experts one by
// one, wherever and however the input stores it; and the same tensors as an output wants them, produced one at a time.
// Immutable once listed; producing is thread-compatible.
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
  // How rows of queries and keys move when the other file kind turns other pairs of each head (RopeStyle).
  enum class Pairs : uint8_t { keep, to_interleaved, to_half };

  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  bool is_vector = false;                            // one-dimensional; stored as one row, or as rows of one value
  const ModelFiles* files = nullptr;                 // with `stored`
  const StoredTensor* stored = nullptr;              // rows [first_row, first_row + rows) of it ...
  const Llama2cTensor* grouped = nullptr;            // ... or a llama2.c tensor ...
  std::shared_ptr<const std::vector<float>> values;  // ... or values made here
  int64_t first_row = 0;
  bool transposed = false;  // the file holds [cols, rows]
  Pairs pairs = Pairs::keep;
  int64_t head_dim = 0;  // with `pairs`
  int64_t rotated = 0;
  float offset = 0.0f;  // added to every value

  // The stored format when the tensor's bytes are rows of it, null when values have to be computed.
  const Format* plain_format() const;
  // Rows [begin, begin + count) as floats into `out` [count, cols].
  void read_rows(int64_t begin, int64_t count, float* out) const;
  // Errors: corrupt (a NaN or infinite scale or value).
  Result<void> check_finite() const;
  int64_t source_row(int64_t row) const;  // where a row of the output comes from
};

// A tensor as the output stores it: its parts one after the other, rows in `format`.
struct OutputTensor {
  std::string name;
  const Format* format = nullptr;
  std::vector<int64_t> dims;  // outermost first
  bool transpose = false;     // the output holds [cols, rows] (one part only)
  std::vector<SourceTensor> parts;

  int64_t bytes() const;
  // Fills `destination` with bytes() bytes, rows in parallel. Errors: corrupt, unsupported (a value that does not fit).
  Result<void> produce(uint8_t* destination, ThreadPool& pool) const;
  Result<void> check_overflow(const uint8_t* encoded) const;
};

// Lists every tensor that the spec's model needs, in the order of the forward pass. `target` is the spec as the output
// will read it: its rope style and norm offset decide what moves. Errors: corrupt (missing, wrong shape), unsupported.
Result<std::vector<SourceTensor>> list_tensors(const ModelFiles& files, const Arch& arch, const ArchSpec& spec,
                                               const ArchSpec& target);
Result<std::vector<SourceTensor>> list_tensors(const Llama2cCheckpoint& checkpoint, const ArchSpec& spec,
                                               const ArchSpec& target);

}  // namespace millrace
