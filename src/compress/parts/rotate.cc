// Rotated blocks (Ashkboos et al., 2024, "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs"): the matrix is stored
// as W H and multiplies H x, with an orthogonal Hadamard matrix H for each block of columns. Large weights and large
// inputs are spread over their block, so that plain rounding loses less, of inputs too if `inputs` says so. The paper
// rotates the whole width, mostly folded into the matrices before; here inputs are rotated at run time.
#include <fmt/format.h>

#include <bit>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"

namespace millrace {
namespace {

class Rotate final : public Pass {
 public:
  Rotate(int64_t block, InputFormat inputs, std::string format)
      : block_(block), inputs_(inputs), format_(std::move(format)) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return format_; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = cannot_rotate(matrix); !why.empty()) return preview_left(std::move(why));
    matrix.parts.input.hadamard = 2;
    if (matrix.id.layer >= 0) matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    return PassPreview{"rotated", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& pool) override {
    if (std::string why = cannot_rotate(matrix); !why.empty()) return PassRow{"left", std::move(why), {}};
    int64_t block = block_;
    while (matrix.cols % block != 0) block /= 2;
    matrix.parts.input.hadamard = block;
    if (matrix.id.layer >= 0) matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    store_rows(matrix, pool);
    return PassRow{"rotated", "", {{"block", static_cast<double>(block)}}};
  }

 private:
  // Why the matrix is left alone; empty: it is not.
  static std::string cannot_rotate(const PassMatrix& matrix) {
    if (!matrix.no_parts.empty()) return std::string(matrix.no_parts);
    if (!matrix.parts.input.empty()) return "its inputs are changed already";
    if (!matrix.kept.empty()) return "it is pruned, and a rotation would fill its zeros";
    return matrix.cols % 2 == 0 ? "" : fmt::format("{} columns are an odd number", matrix.cols);
  }

  int64_t block_;
  InputFormat inputs_;
  std::string format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_rotate_pass(const OptionValues& options) {
  const int64_t block = options.integer("block");
  if (!std::has_single_bit(static_cast<uint64_t>(block)))
    return Error::user(fmt::format("block {}: must be a power of two", block));
  const std::string& name = options.text("format");
  if (!name.empty()) MILLRACE_TRY_VOID(stored_format(options));
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  return std::unique_ptr<Pass>(std::make_unique<Rotate>(block, inputs, name));
}

}  // namespace millrace
