// OliVe (Guo et al., 2023, "OliVe: Accelerating Large Language Models via Hardware-friendly Outlier-Victim OlivePair
// Quantization"): an outlier matters more than the weight beside it. Two neighbours share 8 bits: either both are int4,
// or one is an outlier in a 4-bit float with a larger range ("abfloat") and the other, the victim, becomes zero.
//
//   normal     -7 .. 7 of each             15 x 15 pairs
//   outlier    +-{12, 16, 24, 32, 48, 64, 96} beside 0, on either side      2 x 14 pairs
//
// All values are times the scale of their row. The 253 pairs are the entries of one codebook of pairs; scales of rows
// are applied to the outputs. A row's scale is the one of a grid around three standard deviations with the smallest
// squared error. The paper rounds inputs in pairs, too; here they are rounded as `inputs` says.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "compress/factories.h"
#include "compress/output/preview.h"
#include "compress/pass_options.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int kPairLevels = 15, kMaxLevel = 7;
constexpr std::array<float, 7> kOutliers = {12, 16, 24, 32, 48, 64, 96};
constexpr uint32_t kFirstOutlier = kPairLevels * kPairLevels;
constexpr int kScalesTried = 30;  // scales tried

struct OlivePair {
  uint32_t index = 0;
  float first = 0, second = 0;  // in units of the scale
};

int pair_level(float x) { return static_cast<int>(std::clamp(std::nearbyint(x), float{-kMaxLevel}, float{kMaxLevel})); }

OlivePair normal_pair(float first, float second) {
  const int a = pair_level(first), b = pair_level(second);
  return {static_cast<uint32_t>((a + kMaxLevel) * kPairLevels + b + kMaxLevel), static_cast<float>(a),
          static_cast<float>(b)};
}

// The outlier and its number among the 14: of each magnitude, plus and minus.
std::pair<float, uint32_t> outlier_of(float x) {
  const auto nearer = [&](float a, float b) { return std::fabs(std::fabs(x) - a) < std::fabs(std::fabs(x) - b); };
  const auto* const found = std::ranges::min_element(kOutliers, nearer);
  const auto at = static_cast<uint32_t>(found - kOutliers.begin());
  return x < 0 ? std::pair(-*found, 2 * at + 1) : std::pair(*found, 2 * at);
}

double pair_error(const OlivePair& pair, float first, float second) {
  return std::pow(double{pair.first} - first, 2) + std::pow(double{pair.second} - second, 2);
}

// The nearest of all; both numbers in units of the scale.
OlivePair nearest_pair(float first, float second) {
  OlivePair best = normal_pair(first, second);
  if (std::max(std::fabs(first), std::fabs(second)) <= kMaxLevel) return best;
  const auto [a, at_a] = outlier_of(first);
  const auto [b, at_b] = outlier_of(second);
  for (const OlivePair& other : {OlivePair{kFirstOutlier + at_a, a, 0}, OlivePair{kFirstOutlier + 14 + at_b, 0, b}})
    if (pair_error(other, first, second) < pair_error(best, first, second)) best = other;
  return best;
}

class Olive final : public Pass {
 public:
  Olive(InputFormat inputs, const Format* format) : inputs_(inputs), format_(format) {}

  uint32_t needs() const override { return kNoStatistics; }
  std::string format() const override { return format_ ? std::string(format_->name) : ""; }
  bool fixes_levels() const override { return true; }
  Result<PassPreview> preview(PassMatrix& matrix) const override {
    if (std::string why = keeps_its_inputs(matrix); !why.empty()) return preview_left(std::move(why));
    if (matrix.cols % 2 != 0) return preview_left(fmt::format("{} columns are an odd number", matrix.cols));
    matrix.codebook.bits = 8;
    matrix.codebook.dim = 2;
    matrix.codebook.rows_per_table = matrix.rows;
    matrix.codebook.cols_per_table = matrix.cols;
    matrix.codebook.entries.resize(512);
    matrix.parts.output.scale.assign(static_cast<size_t>(matrix.rows), 1);
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    return PassPreview{"quantized", "", false};
  }

  Result<PassRow> apply(PassMatrix& matrix, const LinearStatistics& /*statistics*/, ThreadPool& pool) override {
    if (const std::string why = keeps_its_inputs(matrix); !why.empty()) return PassRow{"left", why, {}};
    if (matrix.cols % 2 != 0) return PassRow{"left", fmt::format("{} columns are an odd number", matrix.cols), {}};
    set_codebook(matrix);
    std::vector<float>& scales = matrix.parts.output.scale;
    scales.assign(static_cast<size_t>(matrix.rows), 1);
    std::vector<double> outliers(static_cast<size_t>(matrix.rows));
    pool.parallel_for(matrix.rows, [&](int64_t r, int) {
      uint8_t* indices = matrix.encoded.data() + r * matrix.codebook.row_bytes(matrix.cols);
      float* w = matrix.values.data() + r * matrix.cols;
      const float scale = scales[static_cast<size_t>(r)] = best_scale(w, matrix.cols);
      for (int64_t c = 0; c < matrix.cols; ++c) w[c] /= scale;  // the stored matrix
      for (int64_t c = 0; c < matrix.cols; c += 2) {
        const OlivePair pair = nearest_pair(w[c], w[c + 1]);
        set_codebook_index(matrix.codebook, indices, c / 2, pair.index);
        outliers[static_cast<size_t>(r)] += pair.index >= kFirstOutlier;
      }
    });
    matrix.parts.input.rounding = inputs_.rounding(matrix.cols);
    double count = 0;
    for (double own : outliers) count += own;
    return PassRow{"quantized", "", {{"outliers", count}}};
  }

 private:
  // Returns the scale of a row with the least squared error; 1 for a row of zeros.
  static float best_scale(const float* w, int64_t cols) {
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) squares += double{w[c]} * w[c];
    const double deviation = std::sqrt(squares / static_cast<double>(cols));
    float best = 1;
    double least = INFINITY;
    for (int k = 1; k <= kScalesTried; ++k) {
      const auto scale = static_cast<float>(3 * deviation / kMaxLevel * 2 * k / kScalesTried);
      if (!(scale > 0)) break;
      double error = 0;
      for (int64_t c = 0; c < cols; c += 2)
        error += pair_error(nearest_pair(w[c] / scale, w[c + 1] / scale), w[c] / scale, w[c + 1] / scale);
      error *= double{scale} * scale;
      if (error >= least) continue;
      least = error;
      best = scale;
    }
    return best;
  }

  // The entries are in units of a row's scale: whole numbers, which F16 holds exactly.
  static void set_codebook(PassMatrix& matrix) {
    Codebook& book = matrix.codebook;
    book.bits = 8;
    book.dim = 2;
    book.rows_per_table = matrix.rows;
    book.cols_per_table = matrix.cols;
    std::vector<float> entries(512);
    for (int a = -kMaxLevel; a <= kMaxLevel; ++a)
      for (int b = -kMaxLevel; b <= kMaxLevel; ++b) {
        const OlivePair pair = normal_pair(static_cast<float>(a), static_cast<float>(b));
        entries[2 * pair.index] = pair.first;
        entries[2 * pair.index + 1] = pair.second;
      }
    for (float magnitude : kOutliers)
      for (float x : {magnitude, -magnitude}) {
        const uint32_t at = kFirstOutlier + outlier_of(x).second;
        entries[2 * at] = x;
        entries[2 * (at + 14) + 1] = x;
      }
    for (float x : entries) book.entries.push_back(f32_to_f16(x));
    matrix.encoded.assign(static_cast<size_t>(matrix.rows * book.row_bytes(matrix.cols)), 0);
  }

  InputFormat inputs_;
  const Format* format_;
};

}  // namespace

Result<std::unique_ptr<Pass>> make_olive_pass(const OptionValues& options) {
  MILLRACE_TRY(const InputFormat inputs, input_format(options));
  MILLRACE_TRY(const Format* format, stored_format(options));
  return std::unique_ptr<Pass>(std::make_unique<Olive>(inputs, format));
}

}  // namespace millrace
