// ShapeTable: for each shape of a matrix, the way in which products are computed for a number of tokens, as measured on
// this machine (Hong et al., 2023, "FlashDecoding++", heuristic dataflow). All ways give the same bits.
//
//   tokens   1 ... gemv_to | gemv_to + 1 ... tiles_from - 1 | tiles_from ...
//            each alone    | together, by vectors           | in tiles, where the kernel has them
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/result.h"
#include "tensor/weight.h"

namespace millrace {

class ShapeTable {
 public:
  struct Row {
    const Format* format = nullptr;
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t tiles_from = 0;  // kNever: tiles were never faster, or the kernel has none
    int64_t gemv_to = 0;     // 0: tokens are never multiplied separately
  };
  static constexpr int64_t kNever = int64_t{1} << 40;

  ShapeTable() = default;
  explicit ShapeTable(std::vector<Row> rows) : rows_(std::move(rows)) {}
  // Reads the key "kernel_shapes" of a file from `millrace bench --calibrate`. Errors: user (the key is missing, a
  // format or size is invalid, or the instruction set is not `isa`).
  static Result<ShapeTable> parse(std::string_view text, const std::string& source, Isa isa);

  std::span<const Row> rows() const { return rows_; }
  // Returns tiles_from of the weight's row; 0: no row, or the matrix has a codebook.
  int64_t tiles_from(const Weight& weight) const;
  // Returns the larger one of the row's gemv_to and the value of set_gemv().
  int64_t gemv_to(const Weight& weight) const;
  // Sets the minimum of gemv_to for all matrices.
  void set_gemv(int64_t tokens) { gemv_to_ = tokens; }
  int64_t gemv_to_all() const { return gemv_to_; }

 private:
  const Row* find(const Weight& weight) const;

  std::vector<Row> rows_;
  int64_t gemv_to_ = 0;
};

// {"isa": ..., "rows": [{"format", "rows", "cols", "tiles_from", "gemv_to"}]}, for the key "kernel_shapes"; kNever is
// null.
std::string shapes_json(const ShapeTable& table, Isa isa);

}  // namespace millrace
