#include "formats/k_affine.h"

namespace millrace {

KAffineBlock fit_k_affine(const float* x, int sub_blocks, int levels, int scale_levels, const float* weights) {
  KAffineBlock out;
  const int sub_values = 256 / sub_blocks;
  AffineScale fits[16];
  float largest_scale = 0;
  float largest_minimum = 0;
  for (int b = 0; b < sub_blocks; ++b) {
    fits[b] = fit_affine(x + b * sub_values, sub_values, levels, weights ? weights + b * sub_values : nullptr);
    largest_scale = std::max(largest_scale, fits[b].scale);
    largest_minimum = std::max(largest_minimum, fits[b].minimum);
  }
  F16Scale d = make_f16_scale(largest_scale / static_cast<float>(scale_levels));
  F16Scale dmin = make_f16_scale(largest_minimum / static_cast<float>(scale_levels));
  out.d = d.bits;
  out.dmin = dmin.bits;
  for (int b = 0; b < sub_blocks; ++b) {
    out.scale[b] = static_cast<uint8_t>(round_clamped(fits[b].scale * d.inverse, 0, scale_levels));
    out.minimum[b] = static_cast<uint8_t>(round_clamped(fits[b].minimum * dmin.inverse, 0, scale_levels));
    float scale = d.stored * static_cast<float>(out.scale[b]);
    float minimum = dmin.stored * static_cast<float>(out.minimum[b]);
    float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    for (int j = b * sub_values; j < (b + 1) * sub_values; ++j) {
      out.q[j] = static_cast<uint8_t>(round_clamped((x[j] + minimum) * inverse, 0, levels));
    }
  }
  return out;
}

}  // namespace millrace
