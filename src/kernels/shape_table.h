// ShapeTable: from how many tokens on products of a shape are faster in tiles than as vector products, as measured on
// the machine that uses it (Hong et al., 2023, "FlashDecoding++", heuristic dataflow). Kernels with both ways have a
// number of their own for every shape; both ways give the same bits.
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
    int64_t tiles_from = 0;  // tokens; kNever: tiles are not faster at any measured number
  };
  static constexpr int64_t kNever = int64_t{1} << 40;

  ShapeTable() = default;
  explicit ShapeTable(std::vector<Row> rows) : rows_(std::move(rows)) {}
  // The key "kernel_shapes" of what `millrace bench --calibrate` writes. Errors (user): no such key, a format or size
  // that cannot be, another instruction set than `isa`.
  static Result<ShapeTable> parse(std::string_view text, const std::string& source, Isa isa);

  std::span<const Row> rows() const { return rows_; }
  // 0: no row; of a matrix with a codebook always.
  int64_t tiles_from(const Weight& weight) const;

 private:
  std::vector<Row> rows_;
};

// {"isa": ..., "rows": [{"format", "rows", "cols", "tiles_from"}]}, for the key "kernel_shapes"; kNever is null.
std::string shapes_json(const ShapeTable& table, Isa isa);

}  // namespace millrace
