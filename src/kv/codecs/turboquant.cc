// TurboQuant (Zandieh et al., 2025, "TurboQuant: Online Vector Quantization with Near-optimal Distortion Rate"), the
// variant for the mean squared error: a vector is rotated at random, so that each coordinate over the vector's norm has
// nearly the normal distribution of variance 1 / head_dim, whatever the vector was. Each is rounded to the codebook
// that is optimal for that distribution (Lloyd-Max); norm and codes are stored. Nothing is fitted to data.
//
// The rotation is two Hadamard matrices, each behind random signs, not an orthogonal matrix of random numbers, which
// costs head_dim^2 products a vector. Codebooks are those of the normal distribution, the paper's limit for long
// vectors, rounded to whole numbers of a step, so that attention may multiply them as bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kv/codecs/factories.h"
#include "kv/codecs/head_rotation.h"
#include "kv/codecs/level_codec.h"
#include "kv/codecs/normal_codes.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// In eight lanes, which compilers make vectors of.
double sum_of_squares(const float* values, int64_t n) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      const double x = static_cast<double>(values[i + static_cast<int64_t>(j)]);
      sums[j] += x * x;
    }
  }
  for (; i < n; ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

class TurboQuant final : public LevelCodec {
 public:
  TurboQuant(int bits, int64_t residual)
      : LevelCodec(LevelShape{.bits = bits, .codes = whole_codes(bits).codes.data()}), residual_(residual) {}
  std::string text() const override { return fmt::format("turboquant:bits={},residual={}", shape().bits, residual_); }
  int64_t residual() const override { return residual_; }
  bool rotates() const override { return true; }
  void rotate(float* head, int64_t head_dim) const override { rotate_head_at_random(head, head_dim); }
  void rotate_back(float* head, int64_t head_dim) const override { rotate_head_back(head, head_dim); }

 protected:
  // The scale is a step of the norm over the root of head_dim, or as much of it as keeps the largest code finite.
  void fit(KvPart part, const float* values, int64_t n, FittedGroup& out) const override {
    const auto top = static_cast<double>(shape().codes[(1 << shape().bits) - 1]);
    const double step = std::sqrt(sum_of_squares(values, n) / static_cast<double>(n)) *
                        static_cast<double>(whole_codes(shape().bits).step);
    out.zero = 0;
    out.scale = f32_to_f16(static_cast<float>(std::min(step, 65000 / top)));
    fit_codes(part, values, n, out);
  }

 private:
  int64_t residual_;
};

}  // namespace

Result<std::shared_ptr<const KvCodec>> make_turboquant(const OptionValues& options) {
  return std::shared_ptr<const KvCodec>(
      std::make_shared<TurboQuant>(static_cast<int>(options.integer("bits")), options.integer("residual")));
}

}  // namespace millrace
