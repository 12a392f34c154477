#include "formats/weighted_rounding.h"

#include <algorithm>

#include "formats/block.h"
#include "formats/iq4_codebook.h"
#include "formats/scale_fit.h"

namespace millrace {
namespace {

constexpr int kMaxValues = 256;  // of a block
constexpr int kMaxBytes = 256;
constexpr int kSimpleValues = 32;

// value = d * (level - 2^(bits - 1)), d in F16 at the block's start.
template <int kLevels>
void encode_symmetric(const Format& format, const float* x, const float* weights, uint8_t* block) {
  constexpr int kHalf = kLevels / 2;
  const auto round = [](float value) { return static_cast<float>(round_clamped(value, -kHalf, kHalf - 1)); };
  const F16Scale d = make_f16_scale(fit_scale(x, kSimpleValues, -kHalf, 9, round, weights));
  store_u16(block, d.bits);
  const float inverse = d.stored != 0 ? 1.0f / d.stored : 0.0f;
  for (int j = 0; j < kSimpleValues; ++j)
    format.set_level(block, j, round_clamped(x[j] * inverse, -kHalf, kHalf - 1) + kHalf);
}

// value = d * level + m, both in F16 at the block's start.
void encode_affine(const Format& format, const float* x, const float* weights, uint8_t* block) {
  const int n = format.block_values, most = format.levels - 1;
  const AffineScale fit = fit_affine(x, n, most, weights);
  const F16Scale d = make_f16_scale(fit.scale), m = make_f16_scale(-fit.minimum);
  store_u16(block, d.bits);
  store_u16(block + 2, m.bits);
  const float inverse = d.stored != 0 ? 1.0f / d.stored : 0.0f;
  for (int j = 0; j < n; ++j) format.set_level(block, j, round_clamped((x[j] - m.stored) * inverse, 0, most));
}

void encode_iq4_nl(const Format& format, const float* x, const float* weights, uint8_t* block) {
  const F16Scale d = make_f16_scale(iq4_fit_scale(x, kSimpleValues, weights));
  store_u16(block, d.bits);
  const float inverse = d.stored != 0 ? 1.0f / d.stored : 0.0f;
  for (int j = 0; j < kSimpleValues; ++j) format.set_level(block, j, iq4_nearest(x[j] * inverse));
}

template <void (*kEncode)(const float*, const float*, uint8_t*)>
void encode_wide(const Format& /*format*/, const float* x, const float* weights, uint8_t* block) {
  kEncode(x, weights, block);
}

struct BlockEncoder {
  std::string_view format;
  void (*encode)(const Format& format, const float* x, const float* weights, uint8_t* block);
};

constexpr BlockEncoder kEncoders[] = {
    {"q4_0", encode_symmetric<16>},
    {"q4_1", encode_affine},
    {"q5_0", encode_symmetric<32>},
    {"q5_1", encode_affine},
    {"q2_g64", encode_affine},
    {"q2_g128", encode_affine},
    {"q3_g64", encode_affine},
    {"q3_g128", encode_affine},
    {"iq4_nl", encode_iq4_nl},
    {"iq4_xs", encode_wide<encode_iq4_xs_block>},
    {"q2_k", encode_wide<encode_q2_k_block>},
    {"q3_k", encode_wide<encode_q3_k_block>},
    {"q4_k", encode_wide<encode_q4_k_block>},
    {"q5_k", encode_wide<encode_q5_k_block>},
    {"q6_k", encode_wide<encode_q6_k_block>},
};

const BlockEncoder* find_encoder(const Format& format) {
  const auto* found = std::ranges::find(kEncoders, format.name, &BlockEncoder::format);
  return found == std::end(kEncoders) ? nullptr : found;
}

double weighted_error(const Format& format, const float* x, const float* weights, const uint8_t* block) {
  float rounded[kMaxValues];
  format.decode(block, rounded, format.block_values);
  double sum = 0;
  for (int j = 0; j < format.block_values; ++j) {
    const double difference = double{rounded[j]} - x[j];
    sum += weights[j] * difference * difference;
  }
  return sum;
}

}  // namespace

bool rounds_by_weights(const Format& format) { return find_encoder(format) != nullptr; }

void encode_weighted(const Format& format, const float* source, const float* weights, uint8_t* destination, int64_t n) {
  const BlockEncoder& encoder = *find_encoder(format);
  float clean[kMaxValues];
  uint8_t block[kMaxBytes] = {};
  for (int64_t i = 0; i + format.block_values <= n; i += format.block_values, destination += format.block_bytes) {
    for (int j = 0; j < format.block_values; ++j) clean[j] = clamp_finite(source[i + j], kLargestBlockValue);
    format.encode(clean, destination, format.block_values);
    encoder.encode(format, clean, weights + i, block);
    if (weighted_error(format, clean, weights + i, block) < weighted_error(format, clean, weights + i, destination))
      std::copy_n(block, format.block_bytes, destination);
  }
}

}  // namespace millrace
