#include "compress/rounding/level_scales.h"

#include <algorithm>
#include <cmath>

#include "formats/block.h"
#include "formats/k_scales.h"
#include "formats/ternary.h"

namespace millrace {
namespace {

void store_d(const LevelScales& scales, uint8_t* block) { store_u16(block, f32_to_f16(scales.d)); }

void store_tq1_0(const LevelScales& scales, uint8_t* block) { store_u16(block + kTq1ScaleAt, f32_to_f16(scales.d)); }

void store_tq2_0(const LevelScales& scales, uint8_t* block) { store_u16(block + kTq2ScaleAt, f32_to_f16(scales.d)); }

void store_d_and_minimum(const LevelScales& scales, uint8_t* block) {
  store_d(scales, block);
  store_u16(block + 2, f32_to_f16(-scales.dmin));
}

void store_exponent(const LevelScales& scales, uint8_t* block) {
  block[0] = static_cast<uint8_t>(scales.d > 0 ? std::ilogb(scales.d) + 127 : 0);
}

void store_q2_k(const LevelScales& scales, uint8_t* block) {
  for (int g = 0; g < 16; ++g) block[g] = static_cast<uint8_t>(scales.scale[g] | scales.minimum[g] << 4);
  store_u16(block + 80, f32_to_f16(scales.d));
  store_u16(block + 82, f32_to_f16(scales.dmin));
}

void store_q4_k(const LevelScales& scales, uint8_t* block) {
  KScaleMin packed;
  for (int g = 0; g < 8; ++g) {
    packed.scale[g] = static_cast<uint8_t>(scales.scale[g]);
    packed.minimum[g] = static_cast<uint8_t>(scales.minimum[g]);
  }
  store_d(scales, block);
  store_u16(block + 2, f32_to_f16(scales.dmin));
  pack_k_scale_min(packed, block + 4);
}

void store_q3_k(const LevelScales& scales, uint8_t* block) {
  uint8_t packed[16];
  for (int g = 0; g < 16; ++g) packed[g] = static_cast<uint8_t>(scales.scale[g] + 32);
  pack_q3_k_scales(packed, block + 96);
  store_u16(block + 108, f32_to_f16(scales.d));
}

void store_q6_k(const LevelScales& scales, uint8_t* block) {
  for (int g = 0; g < 16; ++g) block[192 + g] = static_cast<uint8_t>(scales.scale[g]);
  store_u16(block + 208, f32_to_f16(scales.d));
}

void store_iq4_xs(const LevelScales& scales, uint8_t* block) {
  store_d(scales, block);
  uint32_t high = 0;
  std::fill_n(block + 4, 4, uint8_t{0});
  for (int g = 0; g < 8; ++g) {
    const auto stored = static_cast<uint32_t>(scales.scale[g] + 32);
    block[4 + g / 2] |= static_cast<uint8_t>((stored & 0xf) << (g % 2 * 4));
    high |= stored >> 4 << (2 * g);
  }
  store_u16(block + 2, static_cast<uint16_t>(high));
}

constexpr ScaleLayout kLayouts[] = {
    {.format = "q8_0", .store = store_d},
    {.format = "q4_0", .store = store_d},
    {.format = "q5_0", .store = store_d},
    {.format = "iq4_nl", .store = store_d},
    {.format = "q1_0", .store = store_d},
    {.format = "q2_0", .store = store_d},
    {.format = "nf4", .store = store_d},
    {.format = "fp4", .store = store_d},
    {.format = "tq1_0", .store = store_tq1_0},
    {.format = "tq2_0", .store = store_tq2_0},
    {.format = "q4_1", .most_minimum = 1, .free_minimum = true, .store = store_d_and_minimum},
    {.format = "q5_1", .most_minimum = 1, .free_minimum = true, .store = store_d_and_minimum},
    {.format = "q2_g64", .most_minimum = 1, .free_minimum = true, .store = store_d_and_minimum},
    {.format = "q2_g128", .most_minimum = 1, .free_minimum = true, .store = store_d_and_minimum},
    {.format = "q3_g64", .most_minimum = 1, .free_minimum = true, .store = store_d_and_minimum},
    {.format = "q3_g128", .most_minimum = 1, .free_minimum = true, .store = store_d_and_minimum},
    {.format = "q2_k", .groups = 16, .least_scale = 0, .most_scale = 15, .most_minimum = 15, .store = store_q2_k},
    {.format = "q4_k", .groups = 8, .least_scale = 0, .most_scale = 63, .most_minimum = 63, .store = store_q4_k},
    {.format = "q5_k", .groups = 8, .least_scale = 0, .most_scale = 63, .most_minimum = 63, .store = store_q4_k},
    {.format = "q3_k", .groups = 16, .least_scale = -32, .most_scale = 31, .store = store_q3_k},
    {.format = "q6_k", .groups = 16, .least_scale = -128, .most_scale = 127, .store = store_q6_k},
    {.format = "iq4_xs", .groups = 8, .least_scale = -32, .most_scale = 31, .store = store_iq4_xs},
    {.format = "mxfp4", .power_of_two = true, .store = store_exponent},
};

}  // namespace

const ScaleLayout* find_scale_layout(const Format& format) {
  const auto* found = std::ranges::find(kLayouts, format.name, &ScaleLayout::format);
  return found == std::end(kLayouts) ? nullptr : found;
}

std::vector<float> level_units(const Format& format, const ScaleLayout& layout) {
  std::vector<uint8_t> block(static_cast<size_t>(format.block_bytes));
  std::vector<float> values(static_cast<size_t>(format.block_values)), units;
  LevelScales one{.d = 1};
  std::ranges::fill(one.scale, 1);
  layout.store(one, block.data());
  for (int level = 0; level < format.levels; ++level) {
    format.set_level(block.data(), 0, level);
    format.decode(block.data(), values.data(), format.block_values);
    units.push_back(values[0]);
  }
  return units;
}

float storable_scale(const ScaleLayout& layout, double d) {
  if (!std::isfinite(d)) return 0;
  if (!layout.power_of_two) return f16_to_f32(f32_to_f16(clamp_finite(static_cast<float>(d), kLargestF16)));
  if (!(d > 0)) return 0;
  const double exponent = std::clamp(std::round(std::log2(d)), -126.0, 124.0);
  return std::ldexp(1.0f, static_cast<int>(exponent));
}

}  // namespace millrace
