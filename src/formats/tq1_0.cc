// TQ1_0: 256 ternary values, five of them in a byte, with one scale. value = d * (q - 1). Frozen, on disk:
//
//   byte 0               32                48                52   54
//        | values 0..159 | values 160..239 | values 240..255 | d  |      d: f16
//
//   A byte is a fraction of 256 whose digits to the base 3 are five values, the first one highest: value n of byte j of
//   the three runs is value j + 32 n, j + 16 n or j + 4 n of the run. Bytes of the last run have four.
#include "formats/format.h"
#include "formats/ternary.h"

namespace millrace {
namespace {

constexpr int kBytes = kTq1ScaleAt + 2;

// Where a value's digit is.
struct Digit {
  int byte, place;
};
constexpr Digit digit_of(int value) {
  if (value < 160) return {value % 32, value / 32};
  if (value < 240) return {32 + value % 16, (value - 160) / 16};
  return {48 + value % 4, (value - 240) / 4};
}

constexpr int kPowers[5] = {81, 27, 9, 3, 1};

uint8_t digit(uint8_t byte, int place) {
  const auto rest = static_cast<uint8_t>(byte * (81 / kPowers[place]));
  return static_cast<uint8_t>(rest * 3 >> 8);
}

// The byte whose fraction is the least that has these digits.
uint8_t byte_of(int number) { return static_cast<uint8_t>((number * 256 + 242) / 243); }

void set_level(uint8_t* block, int value, int level) {
  const auto [at, place] = digit_of(value);
  int number = 0;
  for (int i = 0; i < 5; ++i) number += kPowers[i] * (i == place ? level : digit(block[at], i));
  block[at] = byte_of(number);
}

void encode(const float* source, uint8_t* destination, int64_t n) {
  encode_blocks<kTernaryValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
    uint8_t levels[kTernaryValues];
    store_u16(block + kTq1ScaleAt, fit_ternary(x, levels).bits);
    int numbers[kTq1ScaleAt] = {};
    for (int i = 0; i < kTernaryValues; ++i) {
      const auto [at, place] = digit_of(i);
      numbers[at] += kPowers[place] * levels[i];
    }
    for (int i = 0; i < kTq1ScaleAt; ++i) block[i] = byte_of(numbers[i]);
  });
}

int64_t find_non_finite(const uint8_t* source, int64_t n) {
  return find_block<kTernaryValues, kBytes>(source, n,
                                            [](const uint8_t* block) { return !f16_is_finite(block + kTq1ScaleAt); });
}

}  // namespace

void unpack_tq1_0(const uint8_t* block, uint8_t* levels) {
  for (int i = 0; i < kTernaryValues; ++i) {
    const auto [at, place] = digit_of(i);
    levels[i] = digit(block[at], place);
  }
}

extern const Format kTq1_0 = {
    .name = "tq1_0",
    .summary = "ternary values, five in a byte, one scale for 256",
    .gguf_type = 34,
    .safetensors = "",
    .block_values = kTernaryValues,
    .block_bytes = kBytes,
    .activation = Activation::q8_shift,
    .decode = decode_ternary<unpack_tq1_0, kTq1ScaleAt>,
    .encode = encode,
    .find_non_finite = find_non_finite,
    .levels = 3,
    .set_level = set_level,
};

}  // namespace millrace
