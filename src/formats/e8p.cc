// E8P: 256 values under one scale; eight of them are a point of a lattice (e8p_codebook.h), in 2 bits a value. Tseng et
// al., 2024. value = d * point. A matrix whose weights are near a normal distribution loses least in it, such as one
// that `--pass quip_sharp` has rotated. Frozen, on disk:
//
//   byte 0    2                         66
//        | d  | c0 | c1 | ... | c31 |        d: f16; codes: 16 bits, little-endian
#include "formats/e8p_block.h"
#include "formats/format.h"

namespace millrace {

void unpack_e8p(const uint8_t* block, uint8_t* levels) {
  for (int p = 0; p < kE8pPoints; ++p) {
    const uint16_t code = load_u16(block + 2 + 2 * p);
    const uint16_t digits = e8p_digits(code >> 8);
    const uint32_t signs = e8p_signs(code);
    for (int i = 0; i < kE8pValues; ++i)
      levels[kE8pValues * p + i] =
          static_cast<uint8_t>((digits >> (2 * i) & 3) | (signs >> i & 1) << 2 | (signs >> 8) << 3);
  }
}

double round_e8p(const float* x, float scale, uint16_t* codes) {
  const float inverse = scale != 0 ? 1 / scale : 0.0f;
  double error = 0;
  for (int p = 0; p < kE8pPoints; ++p) {
    float point[kE8pValues];
    for (int i = 0; i < kE8pValues; ++i) point[i] = x[kE8pValues * p + i] * inverse;
    const E8pChoice choice = nearest_e8p(point);
    codes[p] = choice.code;
    error += choice.error;
  }
  return error * scale * scale;
}

namespace {

// Scales that are tried, as parts of the root of the mean square: around 0.97, which is best for normally distributed
// weights, and those of fewer or more large ones.
constexpr float kScaleParts[] = {0.97f, 0.85f, 0.75f, 1.1f, 1.25f, 1.45f};

// The scale of least squared error for these points.
float fit_e8p_scale(const float* x, const uint16_t* codes) {
  double cross = 0, power = 0;
  for (int p = 0; p < kE8pPoints; ++p) {
    int8_t quarters[kE8pValues];
    e8p_values(codes[p], quarters);
    for (int i = 0; i < kE8pValues; ++i) {
      cross += double{x[kE8pValues * p + i]} * static_cast<double>(quarters[i]);
      power += static_cast<double>(quarters[i] * quarters[i]);
    }
  }
  return cross > 0 ? static_cast<float>(cross / (power * kE8pUnit)) : 0.0f;
}

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kE8pBlockValues, kE8pBlockBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    const float unit = load_f16(block) * kE8pUnit;
    for (int p = 0; p < kE8pPoints; ++p) {
      int8_t quarters[kE8pValues];
      e8p_values(load_u16(block + 2 + 2 * p), quarters);
      for (int i = 0; i < kE8pValues; ++i) out[kE8pValues * p + i] = unit * static_cast<float>(quarters[i]);
    }
  });
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kE8pBlockValues, kE8pBlockBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    double squares = 0;
    for (int i = 0; i < kE8pBlockValues; ++i) squares += double{x[i]} * x[i];
    const auto size = static_cast<float>(std::sqrt(squares / kE8pBlockValues));
    uint16_t codes[kE8pPoints] = {};
    float scale = 0;
    double best = INFINITY;
    for (float part : kScaleParts) {
      const double error = round_e8p(x, part * size, codes);
      if (!(error < best)) continue;
      best = error;
      scale = fit_e8p_scale(x, codes);
    }
    const F16Scale d = make_f16_scale(scale);
    round_e8p(x, d.stored, codes);
    store_e8p(d.bits, codes, block);
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kE8pBlockValues, kE8pBlockBytes>(source, n,
                                                     [](const uint8_t* block) { return !f16_is_finite(block); });
}

}  // namespace

extern const Format kE8p = {
    .name = "e8p",
    .summary = "2.06 bits a value: 8 are one of 65536 points of a lattice, one scale for 256",
    .paper = "Tseng et al., 2024, QuIP#: Even Better LLM Quantization with Hadamard Incoherence and Lattice Codebooks",
    .gguf_type = kGgufE8p,
    .safetensors = "",
    .block_values = kE8pBlockValues,
    .block_bytes = kE8pBlockBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
};

}  // namespace millrace
