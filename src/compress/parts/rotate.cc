// Rotated blocks (Ashkboos et al., 2024, "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs"): the matrix is stored
// as W H and multiplies H x, with an orthogonal Hadamard matrix H for each block of columns. Large weights and large
// inputs are spread over their block, so that plain rounding loses less.
#include <fmt/format.h>

#include <bit>

#include "compress/factories.h"
#include "compress/matrix_parts.h"

namespace millrace {
namespace {

class Rotate final : public Pass {
 public:
  Rotate(int64_t block, std::string format) : block_(block), format_(std::move(format)) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return format_; }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& pool) override {
    if (!matrix.no_parts.empty()) return PassRow{"left", std::string(matrix.no_parts), {}};
    if (!matrix.kept.empty()) return PassRow{"left", "it is pruned, and a rotation would fill its zeros", {}};
    int64_t block = block_;
    while (matrix.cols % block != 0) block /= 2;
    if (block < 2) return PassRow{"left", fmt::format("{} columns are an odd number", matrix.cols), {}};
    matrix.parts.input.hadamard = block;
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      std::vector<float> scratch;
      store_row(matrix.parts.input, matrix.values.data() + r * matrix.cols, matrix.cols, scratch);
    });
    return PassRow{"rotated", "", {{"block", static_cast<double>(block)}}};
  }

 private:
  int64_t block_;
  std::string format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_rotate_pass(const OptionValues& options) {
  const int64_t block = options.integer("block");
  if (!std::has_single_bit(static_cast<uint64_t>(block)))
    return Error::user(fmt::format("block {}: must be a power of two", block));
  const std::string& name = options.text("format");
  const Format* format = find_format(name);
  if (!format || format->gguf_type < 0)
    return Error::user(fmt::format("format '{}': must be a format that GGUF files can have, such as q4_0", name));
  return std::unique_ptr<Pass>(std::make_unique<Rotate>(block, name));
}

}  // namespace millrace
