// LQER (Zhang et al., 2024, "LQER: Low-Rank Quantization Error Reconstruction for LLMs"): what rounding took from a
// matrix, E, is put back in part by a low-rank pair: y = W' x + B (A x), the best one for the inputs' norms, as in the
// paper, or for all of their second moments.
#include <fmt/format.h>

#include <algorithm>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/rounding/low_rank_error.h"

namespace millrace {
namespace {

class Lqer final : public Pass {
 public:
  Lqer(int64_t rank, bool moments, std::string format) : rank_(rank), moments_(moments), format_(std::move(format)) {}

  uint32_t needs() const override { return moments_ ? kSecondMoments : kInputNorms; }
  std::string format() const override { return format_; }
  bool corrects() const override { return true; }
  int64_t working_bytes(int64_t rows, int64_t cols) const override { return low_rank_bytes(rows, cols, rank_); }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (!matrix.no_parts.empty()) return preview_left(std::string(matrix.no_parts));
    if (matrix.parts.rank > 0) return preview_left("it has a low-rank pair already");
    preview_pair(matrix, std::min({rank_, matrix.rows, matrix.cols}), nullptr);
    return PassPreview{"corrected", "", matrix.format->levels == 0};  // unless nothing is lost
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& statistics, ThreadPool& pool) override {
    if (!matrix.no_parts.empty()) return PassRow{"left", std::string(matrix.no_parts), {}};
    if (matrix.parts.rank > 0) return PassRow{"left", "it has a low-rank pair already", {}};
    round_plainly(matrix, pool);
    const std::vector<float> error = rounding_error(matrix, pool);
    if (std::ranges::all_of(error, [](float e) { return e == 0; }))
      return PassRow{"left", fmt::format("it loses nothing in {}", matrix.format->name), {}};
    const int64_t rank = std::min({rank_, matrix.rows, matrix.cols});
    add_low_rank_pair(matrix, error, rank, statistics, moments_, pool);
    return PassRow{"corrected", "", {{"rank", static_cast<double>(rank)}}};
  }

 private:
  int64_t rank_;
  bool moments_;
  std::string format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_lqer_pass(const OptionValues& options) {
  const std::string& inputs = options.text("inputs");
  if (inputs != "norms" && inputs != "moments")
    return Error::user(fmt::format("inputs '{}': must be norms or moments", inputs));
  const std::string& name = options.text("format");
  const Format* format = find_format(name);
  if (!name.empty() && (!format || format->gguf_type < 0))
    return Error::user(fmt::format("format '{}': must be a format that GGUF files can have, such as q4_0", name));
  return std::unique_ptr<Pass>(std::make_unique<Lqer>(options.integer("rank"), inputs == "moments", name));
}

}  // namespace millrace
