// MXFP4: 32 values of 4-bit float (E2M1) with one power-of-two scale (E8M0). OCP, 2023, "Microscaling Formats (MX)
// Specification". value = 2^(e - 127) * fp4. Frozen, on disk:
//
//   byte 0   1                             17
//        | e | q16|q0  q17|q1 ... q31|q15  |      each byte holds value j low and value j + 16 high
//
//   fp4: e2m1.h. e = 255 is NaN.
#include <cfloat>
#include <limits>

#include "formats/block.h"
#include "formats/e2m1.h"
#include "formats/format.h"

namespace millrace {
namespace {

constexpr int kValues = 32;
constexpr int kBytes = 17;
constexpr int kNan = 255;
constexpr float kLargestMxfp4 = 0x1.8p127f;  // the largest one that rounding does not take beyond f32

void decode(const uint8_t* source, float* destination, int64_t n) {
  decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
    float scale = block[0] == kNan ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, block[0] - 127);
    for (int j = 0; j < kValues / 2; ++j) {
      out[j] = scale * e2m1_value(block[1 + j] & 0xf);
      out[j + kValues / 2] = scale * e2m1_value(block[1 + j] >> 4);
    }
  });
}

double squared_error(const float* x, int exponent) {
  float inverse = std::ldexp(1.0f, 127 - exponent);
  double sum = 0;
  for (int j = 0; j < kValues; ++j) {
    float scaled = x[j] * inverse;
    double difference = scaled - e2m1_value(nearest_e2m1(scaled));
    sum += difference * difference;
  }
  return std::ldexp(sum, 2 * (exponent - 127));
}

// The specification's exponent maps the largest value to [4, 8); above 6 it saturates, and the next exponent may fit
// the block better.
int choose_exponent(const float* x) {
  float largest = std::fabs(largest_signed(x, kValues));
  if (largest == 0) return 0;
  int exponent = std::max(std::ilogb(largest) - 2 + 127, 0);
  return squared_error(x, exponent + 1) < squared_error(x, exponent) ? exponent + 1 : exponent;
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  auto block_encode = [](const float* x, uint8_t* block) {
    int exponent = choose_exponent(x);
    float inverse = std::ldexp(1.0f, 127 - exponent);
    block[0] = static_cast<uint8_t>(exponent);
    for (int j = 0; j < kValues / 2; ++j) {
      int low = nearest_e2m1(x[j] * inverse);
      int high = nearest_e2m1(x[j + kValues / 2] * inverse);
      block[1 + j] = static_cast<uint8_t>(low | high << 4);
    }
  };
  encode_blocks<kValues, kBytes>(source, destination, n, block_encode, kLargestMxfp4);
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return block[0] == kNan; });
}

void set_level(uint8_t* block, int value, int level) { put_nibble(block + 1, value, level); }

}  // namespace

extern const Format kMxfp4 = {
    .name = "mxfp4",
    .summary = "4-bit float (E2M1), one power-of-two scale for 32",
    .paper = "Rouhani et al., 2023, Microscaling Data Formats for Deep Learning",
    .gguf_type = 39,
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
