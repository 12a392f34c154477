// IQ4_NL: 32 values, each an index into a codebook of 16, with one scale. value = d * codebook[q]. Frozen, on disk:
//
//   byte 0    2                             18
//        | d  | q16|q0  q17|q1 ... q31|q15  |      d: f16; each byte holds value j low and value j + 16 high
#include "formats/block.h"
#include "formats/format.h"
#include "formats/iq4_codebook.h"

namespace millrace {
namespace {

constexpr int kValues = 32;
constexpr int kBytes = 18;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    float d = load_f16(block);
    for (int j = 0; j < kValues / 2; ++j) {
      out[j] = d * static_cast<float>(kIq4Values[block[2 + j] & 0xf]);
      out[j + kValues / 2] = d * static_cast<float>(kIq4Values[block[2 + j] >> 4]);
    }
  });
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    F16Scale d = make_f16_scale(iq4_fit_scale(x, kValues));
    store_u16(block, d.bits);
    float inverse = d.stored != 0 ? 1.0f / d.stored : 0.0f;
    for (int j = 0; j < kValues / 2; ++j) {
      int low = iq4_nearest(x[j] * inverse);
      int high = iq4_nearest(x[j + kValues / 2] * inverse);
      block[2 + j] = static_cast<uint8_t>(low | high << 4);
    }
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
}

void set_level(uint8_t* block, int value, int level) { put_nibble(block + 2, value, level); }

}  // namespace

extern const Format kIq4Nl = {
    .name = "iq4_nl",
    .summary = "4 bits a value from a non-linear codebook, one scale for 32",
    .gguf_type = 20,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 16,
    .set_level = set_level,
};

}  // namespace millrace
