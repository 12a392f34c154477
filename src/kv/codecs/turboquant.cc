// TurboQuant (Zandieh et al., 2025, "TurboQuant: Online Vector Quantization with Near-optimal Distortion Rate"), the
// variant for the mean squared error: a vector is rotated at random, so that each coordinate over the vector's norm has
// nearly the normal distribution of variance 1 / head_dim, whatever the vector was. Each is rounded to the codebook
// that is optimal for that distribution (Lloyd-Max); norm and codes are stored. Nothing is fitted to data.
//
// The rotation is two Hadamard matrices, each behind random signs, not an orthogonal matrix of random numbers, which
// costs head_dim^2 products a vector. Codebooks are those of the normal distribution, the paper's limit for long
// vectors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kv/codecs/factories.h"
#include "kv/codecs/head_rotation.h"
#include "kv/codecs/level_codec.h"
#include "kv/codecs/normal_codes.h"
#include "tensor/half.h"

namespace millrace {
namespace {

class TurboQuant final : public LevelCodec {
 public:
  TurboQuant(int bits, int64_t residual)
      : LevelCodec(LevelShape{.bits = bits, .codes = normal_codes(bits).data()}), residual_(residual) {}
  std::string text() const override { return fmt::format("turboquant:bits={},residual={}", shape().bits, residual_); }
  int64_t residual() const override { return residual_; }
  bool rotates() const override { return true; }
  void rotate(float* head, int64_t head_dim) const override { rotate_head_at_random(head, head_dim); }
  void rotate_back(float* head, int64_t head_dim) const override { rotate_head_back(head, head_dim); }

 protected:
  // The scale is the norm over the root of head_dim, or as much of it as keeps the largest code finite.
  void fit(KvPart part, const float* values, int64_t n, FittedGroup& out) const override {
    const auto top = static_cast<double>(shape().codes[(1 << shape().bits) - 1]);
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(values[i]) * values[i];
    const double most = 65000 / top;
    out.zero = 0;
    out.scale = f32_to_f16(static_cast<float>(std::min(std::sqrt(squares / static_cast<double>(n)), most)));
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
