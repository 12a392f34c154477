// Splits stored blocks of each quantized format into levels and scales (see quant_shape.h). Byte layouts are those of
// GGUF files, frozen.
#include "kernels/quant_shape.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "formats/affine_group.h"
#include "formats/code_tables.h"
#include "formats/e4m3.h"
#include "formats/e8p_residual.h"
#include "formats/format.h"
#include "formats/four_of_eight.h"
#include "formats/iq4_codebook.h"
#include "formats/iq_block.h"
#include "formats/ternary.h"
#include "tensor/weight.h"

namespace millrace {
namespace {

uint16_t load16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

// 16 bytes: low nibbles are values 0..15, high nibbles 16..31.
void split_nibbles(const uint8_t* bytes, uint8_t* level) {
  for (int i = 0; i < 16; ++i) {
    level[i] = bytes[i] & 15;
    level[i + 16] = bytes[i] >> 4;
  }
}

// Adds bit i of a little-endian 32-bit word to value i as bit 4.
void add_fifth_bits(const uint8_t* word, uint8_t* level) {
  for (int i = 0; i < 32; ++i) level[i] = static_cast<uint8_t>(level[i] | ((word[i / 8] >> (i % 8)) & 1) << 4);
}

void split_q8_0(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  for (int i = 0; i < 32; ++i) out.level[i] = b[2 + i] ^ 0x80;
}

void split_q4_0(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  split_nibbles(b + 2, out.level);
}

void split_q4_1(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  out.min = load16(b + 2) ^ 0x8000;
  split_nibbles(b + 4, out.level);
}

void split_q5_0(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  split_nibbles(b + 6, out.level);
  add_fifth_bits(b + 2, out.level);
}

void split_q5_1(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  out.min = load16(b + 2) ^ 0x8000;
  split_nibbles(b + 8, out.level);
  add_fifth_bits(b + 4, out.level);
}

void split_mxfp4(const uint8_t* b, QuantBlock& out) {
  out.d = b[0];
  split_nibbles(b + 1, out.level);
}

// NaN becomes one of f16, and the sign is dropped.
void split_nvfp4_scales(const uint8_t* b, QuantBlock& out) {
  for (int i = 0; i < 4; ++i) out.scale[i] = static_cast<int8_t>(e4m3_is_nan(b[i]) ? 0xff : b[i] & 0x7f);
}

// Runs of 16 values in 8 bytes.
void split_nvfp4(const uint8_t* b, QuantBlock& out) {
  split_nvfp4_scales(b, out);
  for (int i = 0; i < 64; ++i) out.level[i] = b[4 + i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15;
}

void split_q1_0(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  for (int i = 0; i < 128; ++i) out.level[i] = b[2 + i / 8] >> (i % 8) & 1;
}

void split_q2_0(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  for (int i = 0; i < 64; ++i) out.level[i] = b[2 + i / 4] >> (i % 4 * 2) & 3;
}

// Levels of 2 bits, and of 3 with their highest in bytes behind the others.
template <int kBits, int kValues>
void split_affine_group(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  out.min = load16(b + 2) ^ 0x8000;
  for (int i = 0; i < kValues; ++i) out.level[i] = static_cast<uint8_t>(AffineGroup<kBits, kValues>::level(b, i));
}

template <int kBits>
void split_four_of_eight(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  for (int i = 0; i < 32; ++i)
    out.level[i] = static_cast<uint8_t>(FourOfEight<kBits>::level(b, i) + (1 << (kBits - 1)));
}

// scales[16] (minimum << 4 | scale), 64 bytes of 2-bit levels, d, dmin.
void split_q2_k_scales(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b + 80);
  out.min = load16(b + 82);
  for (int i = 0; i < 16; ++i) {
    out.scale[i] = static_cast<int8_t>(b[i] & 15);
    out.minimum[i] = b[i] >> 4;
  }
}

void split_q2_k(const uint8_t* b, QuantBlock& out) {
  split_q2_k_scales(b, out);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* q = b + 16 + g / 4 * 32;
    for (int i = 0; i < 32; ++i) out.level[g * 32 + i] = (q[i] >> (g % 4 * 2)) & 3;
  }
}

// 32 bytes of high bits, 64 bytes of 2-bit levels, 12 bytes of 6-bit scales, d.
void split_q3_k_scales(const uint8_t* b, QuantBlock& out) {
  const uint8_t* scales = b + 96;
  out.d = load16(b + 108);
  for (int i = 0; i < 16; ++i) {
    int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
    int high = (scales[8 + i % 4] >> (i / 4 * 2)) & 3;
    out.scale[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

void split_q3_k(const uint8_t* b, QuantBlock& out) {
  split_q3_k_scales(b, out);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* q = b + 32 + g / 4 * 32;
    for (int i = 0; i < 32; ++i) {
      out.level[g * 32 + i] = static_cast<uint8_t>(((q[i] >> (g % 4 * 2)) & 3) | ((b[i] >> g) & 1) << 2);
    }
  }
}

// The 12 bytes that hold eight 6-bit scales and eight 6-bit minimums in Q4_K and Q5_K.
void split_six_bit_scales(const uint8_t* s, QuantBlock& out) {
  for (int i = 0; i < 4; ++i) {
    out.scale[i] = static_cast<int8_t>(s[i] & 63);
    out.minimum[i] = s[i + 4] & 63;
    out.scale[i + 4] = static_cast<int8_t>((s[i + 8] & 15) | (s[i] >> 6) << 4);
    out.minimum[i + 4] = static_cast<uint8_t>((s[i + 8] >> 4) | (s[i + 4] >> 6) << 4);
  }
}

// Four runs of 32 bytes; low nibbles of a run are one group, high nibbles the next.
void split_nibble_runs(const uint8_t* q, uint8_t* level) {
  for (int run = 0; run < 4; ++run) {
    for (int i = 0; i < 32; ++i) {
      level[run * 64 + i] = q[run * 32 + i] & 15;
      level[run * 64 + 32 + i] = q[run * 32 + i] >> 4;
    }
  }
}

void split_q45_k_scales(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  out.min = load16(b + 2);
  split_six_bit_scales(b + 4, out);
}

void split_q4_k(const uint8_t* b, QuantBlock& out) {
  split_q45_k_scales(b, out);
  split_nibble_runs(b + 16, out.level);
}

void split_q5_k(const uint8_t* b, QuantBlock& out) {
  split_q45_k_scales(b, out);
  split_nibble_runs(b + 48, out.level);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      out.level[g * 32 + i] = static_cast<uint8_t>(out.level[g * 32 + i] | ((b[16 + i] >> g) & 1) << 4);
    }
  }
}

// 128 bytes of low nibbles, 64 of 2-bit high parts, 16 int8 scales, d. Each half of 128 values uses 64 low bytes
// (two groups in the low nibbles, two in the high ones) and 32 high bytes.
void split_q6_k_scales(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b + 208);
  std::memcpy(out.scale, b + 192, 16);
}

void split_q6_k(const uint8_t* b, QuantBlock& out) {
  split_q6_k_scales(b, out);
  for (int g = 0; g < 8; ++g) {
    const uint8_t* low = b + g / 4 * 64 + g % 2 * 32;
    const uint8_t* high = b + 128 + g / 4 * 32;
    int low_shift = g % 4 / 2 * 4;
    for (int i = 0; i < 32; ++i) {
      out.level[g * 32 + i] = static_cast<uint8_t>(((low[i] >> low_shift) & 15) | ((high[i] >> (g % 4 * 2)) & 3) << 4);
    }
  }
}

// d, 16 bits of high scale parts, 4 bytes of low scale nibbles, 128 bytes of codes.
void split_iq4_xs_scales(const uint8_t* b, QuantBlock& out) {
  out.d = load16(b);
  uint16_t high = load16(b + 2);
  for (int g = 0; g < 8; ++g) {
    int low = (b[4 + g / 2] >> (g % 2 * 4)) & 15;
    out.scale[g] = static_cast<int8_t>((low | ((high >> (2 * g)) & 3) << 4) - 32);
  }
}

void split_iq4_xs(const uint8_t* b, QuantBlock& out) {
  split_iq4_xs_scales(b, out);
  for (int g = 0; g < 8; ++g) split_nibbles(b + 8 + g * 16, out.level + g * 32);
}

// Ternary values in the shape of Q2_K: d * level - d.
template <void (*unpack)(const uint8_t*, uint8_t*), int kScaleAt>
void split_ternary(const uint8_t* b, QuantBlock& out) {
  unpack(b, out.level);
  out.d = out.min = load16(b + kScaleAt);
  std::fill_n(out.scale, 16, int8_t{1});
  std::fill_n(out.minimum, 16, uint8_t{1});
}

template <void (*unpack)(const uint8_t*, IqBlock&)>
void split_iq(const uint8_t* b, QuantBlock& out) {
  IqBlock block;
  unpack(b, block);
  std::memcpy(out.level, block.code, sizeof block.code);
  std::memcpy(out.scale, block.scale, sizeof block.scale);
  out.d = block.d;
}

void split_e8p(const uint8_t* b, QuantBlock& out) {
  unpack_e8p(b, out.level);
  out.d = load16(b);
}

// Levels of whole numbers under one scale, in the shape of Q6_K.
void split_e8p_3(const uint8_t* b, QuantBlock& out) {
  for (int p = 0; p < kE8pPoints; ++p) {
    int8_t levels[kE8pValues];
    e8p_3_levels(load_e8p_3(b, p), levels);
    for (int i = 0; i < kE8pValues; ++i) out.level[p * kE8pValues + i] = static_cast<uint8_t>(levels[i] + 32);
  }
  out.d = load16(b);
  std::fill_n(out.scale, 16, int8_t{1});
}

// The same in the shape of Q8_0.
void split_e8p_4(const uint8_t* b, QuantBlock& out) {
  for (int p = 0; p < kE8pPoints; ++p) {
    int8_t levels[kE8pValues];
    e8p_4_levels(load_e8p_4(b, p), levels);
    for (int i = 0; i < kE8pValues; ++i) out.level[p * kE8pValues + i] = static_cast<uint8_t>(levels[i] + 128);
  }
  out.d = load16(b);
}

constexpr QuantShape with_groups(QuantShape shape, int groups) {
  shape.groups = groups;
  return shape;
}

constexpr int kQ8 = 0, kQ2K = 5, kQ6K = 9, kIq4Nl = 10, kIq4Xs = 11, kIq2S = 13, kE8pShape = 17;
constexpr float kNvfp4Unit = 128;  // of e4m3_in_f16() times twice E2M1

// A format that the kernel of another one carries.
constexpr QuantSource carried(std::string_view format, int carrier, void (*split)(const uint8_t*, QuantBlock&),
                              const int8_t* codes = nullptr, float unit = 1) {
  return {format, kQuantShapes[carrier], split, nullptr, codes, unit, carrier};
}

constexpr QuantSource kSources[] = {
    {"q8_0", kQuantShapes[0], split_q8_0},
    {"q4_0", kQuantShapes[1], split_q4_0},
    {"q4_1", kQuantShapes[2], split_q4_1},
    {"q5_0", kQuantShapes[3], split_q5_0},
    {"q5_1", kQuantShapes[4], split_q5_1},
    {"q2_k", kQuantShapes[5], split_q2_k, split_q2_k_scales},
    {"q3_k", kQuantShapes[6], split_q3_k, split_q3_k_scales},
    {"q4_k", kQuantShapes[7], split_q4_k, split_q45_k_scales},
    {"q5_k", kQuantShapes[8], split_q5_k, split_q45_k_scales},
    {"q6_k", kQuantShapes[9], split_q6_k, split_q6_k_scales},
    {"iq4_nl", kQuantShapes[kIq4Nl], split_q4_0, nullptr, kIq4Values},
    {"iq4_xs", kQuantShapes[kIq4Xs], split_iq4_xs, split_iq4_xs_scales, kIq4Values},
    {"mxfp4", kQuantShapes[12], split_mxfp4},
    carried("iq2_s", kIq2S, split_iq<unpack_iq2_s>, kIq2Codes, kIq2Unit),
    {"nvfp4", kQuantShapes[14], split_nvfp4, split_nvfp4_scales, nullptr, kNvfp4Unit},
    {"q1_0", kQuantShapes[15], split_q1_0},
    {"q2_0", kQuantShapes[16], split_q2_0},
    carried("e8p", kE8pShape, split_e8p, kE8pCodes, kE8pUnit),
    {"q2_g64", kQuantShapes[18], split_affine_group<2, 64>},
    {"q2_g128", kQuantShapes[19], split_affine_group<2, 128>},
    {"q3_g64", kQuantShapes[20], split_affine_group<3, 64>},
    {"q3_g128", kQuantShapes[21], split_affine_group<3, 128>},
    {"q8_4of8", kQuantShapes[22], split_four_of_eight<8>},
    {"q4_4of8", kQuantShapes[23], split_four_of_eight<4>},
    carried("nf4", kIq4Nl, split_q4_0, kNf4Codes, kNf4Unit),
    carried("fp4", kIq4Nl, split_q4_0, kFp4Codes, kFp4Unit),
    carried("tq1_0", kQ2K, split_ternary<unpack_tq1_0, kTq1ScaleAt>),
    carried("tq2_0", kQ2K, split_ternary<unpack_tq2_0, kTq2ScaleAt>),
    carried("iq2_xxs", kIq2S, split_iq<unpack_iq2_xxs>, kIq2Codes, kIq2Unit),
    carried("iq2_xs", kIq2S, split_iq<unpack_iq2_xs>, kIq2Codes, kIq2Unit),
    carried("iq1_s", kIq2S, split_iq<unpack_iq1_s>, kIq1Codes, kIq1Unit),
    carried("iq1_m", kIq2S, split_iq<unpack_iq1_m>, kIq1Codes, kIq1Unit),
    carried("iq3_xxs", kIq4Xs, split_iq<unpack_iq3_xxs>, kIq3XxsCodes, kIq3XxsUnit),
    carried("iq3_s", kIq4Xs, split_iq<unpack_iq3_s>, kIq3SCodes, kIq3SUnit),
    carried("e8p_3", kQ6K, split_e8p_3),
    {"e8p_4", with_groups(kQuantShapes[kQ8], 8), split_e8p_4, nullptr, nullptr, 1, kQ8},
};
static_assert(std::size(kSources) == kQuantSourceCount + kCarriedCount);
static_assert(std::size(kQuantShapes) == kQuantSourceCount);

}  // namespace

const QuantSource* quant_source_at(int index) { return &kSources[index]; }

const Format* quant_format_at(int index) {
  const Format* format = find_format(kSources[index].format);
  const Activation kind = kSources[index].shape.exact_scales() ? Activation::q8 : Activation::q8_shift;
  return format != nullptr && format->activation == kind ? format : nullptr;
}

float matrix_scale(const BlockScales* scales) {
  return scales != nullptr && scales->values.size() == 1 ? scales->values.front() : 1.0f;
}

float e8m0_half_to_f32(uint8_t e) {
  if (e == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1u) << 23);
}

}  // namespace millrace
