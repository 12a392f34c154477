// Q1_0: 128 signs with one scale. value = d * (2 q - 1). Frozen, on disk:
//
//   byte 0    2                 18
//        | d  | bits, 8 a byte  |      d: f16; value i is bit i % 8 of byte i / 8
#include "formats/block.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int kValues = 128;
constexpr int kBytes = 18;

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    const float d = load_f16(block);
    for (int i = 0; i < kValues; ++i) out[i] = block[2 + i / 8] >> (i % 8) & 1 ? d : -d;
  });
}

void set_level(uint8_t* block, int value, int level) { put_bits(block[2 + value / 8], value % 8, 1, level); }

// The scale of least squared error is the mean magnitude (Rastegari et al., 2016).
void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    double sum = 0;
    for (int i = 0; i < kValues; ++i) sum += std::fabs(x[i]);
    store_u16(block, make_f16_scale(static_cast<float>(sum / kValues)).bits);
    for (int i = 0; i < kValues; ++i) set_level(block, i, x[i] >= 0);
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
}

}  // namespace

extern const Format kQ1_0 = {
    .name = "q1_0",
    .summary = "signs, one scale for 128",
    .paper = "Rastegari et al., 2016, XNOR-Net: ImageNet Classification Using Binary Convolutional Neural Networks",
    .gguf_type = 41,
    .safetensors = "",
    .block_values = kValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 2,
    .set_level = set_level,
};

}  // namespace millrace
