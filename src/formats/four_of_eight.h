// N:M sparse weights. Four of each eight adjacent weights in a row are stored, the others are zero. So rows pruned
// with pattern=4:8, or with its special case 2:4, lose no weight. A block has 32 values. Its layout on disk is frozen:
//
//   byte 0    2            6
//        | d  | kept       | 16 values of 8 bits, or of 4 bits in 8 bytes |      d: f16
//
//   kept: bit i is 1 if column i is stored. Columns 8g .. 8g + 7 share stored values 4g .. 4g + 3. The kept columns
//   among the first four have values from 4g on, ascending. Those among the last four have values up to 4g + 3,
//   ascending. Encoding sets exactly four bits of each eight. A mask with another number of bits can be decoded, too.
//
//   value = d * q, with q in two's complement. With 4 bits, byte k has value k in its low half and value k + 8 in its
//   high half.
//
// The pattern is from Mishra et al., 2021, "Accelerating Sparse Deep Neural Networks". Pure functions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "formats/block.h"
#include "formats/format.h"
#include "formats/scale_fit.h"

namespace millrace {

inline constexpr int kGgufQ8Of8 = 0x4d520008;  // an id that only millrace uses, like kGgufE8p
inline constexpr int kGgufQ4Of8 = 0x4d520009;

// Returns true if the format stores only four of eight values.
inline bool is_four_of_eight(const Format& format) { return format.name.ends_with("_4of8"); }

template <int kBits>
struct FourOfEight {
  static_assert(kBits == 4 || kBits == 8);
  static constexpr int kValues = 32, kStored = 16;
  static constexpr int kValuesAt = 6;
  static constexpr int kBytes = kValuesAt + kStored * kBits / 8;
  static constexpr int kMax = (1 << (kBits - 1)) - 1;

  // Returns stored value i.
  static int stored(const uint8_t* block, int i) {
    if constexpr (kBits == 8) return static_cast<int8_t>(block[kValuesAt + i]);
    const int nibble = block[kValuesAt + i % 8] >> (i / 8 * 4) & 15;
    return (nibble ^ 8) - 8;
  }

  static void store(uint8_t* block, int i, int value) {
    if constexpr (kBits == 8)
      block[kValuesAt + i] = static_cast<uint8_t>(value);
    else
      put_bits(block[kValuesAt + i % 8], i / 8 * 4, 4, value);
  }

  // Returns the level of column i; 0 if it is not stored.
  static int level(const uint8_t* block, int i) {
    const unsigned four = block[2 + i / 8] >> (i % 8 / 4 * 4) & 15u, own = 1u << i % 4;
    if ((four & own) == 0) return 0;
    const bool first = i % 8 < 4;
    const int others = std::popcount(first ? four & (own - 1) : four & ~(2 * own - 1));
    return stored(block, i / 8 * 4 + (first ? others : 3 - others));
  }

  static void decode(const uint8_t* source, float* destination, int64_t n) {
    decode_blocks<kValues, kBytes>(source, destination, n, [](const uint8_t* block, float* out) {
      const float d = load_f16(block);
      for (int i = 0; i < kValues; ++i) out[i] = d * static_cast<float>(level(block, i));
    });
  }

  // Returns the mask of the four columns of eight with the largest magnitudes; among equal ones, the first.
  static uint8_t largest_four(const float* x) {
    uint8_t kept = 0;
    for (int n = 0; n < 4; ++n) {
      int best = -1;
      for (int i = 0; i < 8; ++i)
        if ((kept >> i & 1) == 0 && (best < 0 || std::fabs(x[i]) > std::fabs(x[best]))) best = i;
      kept = static_cast<uint8_t>(kept | 1 << best);
    }
    return kept;
  }

  static void encode(const float* source, uint8_t* destination, int64_t n) {
    encode_blocks<kValues, kBytes>(source, destination, n, [](const float* x, uint8_t* block) {
      float kept[kStored];
      int count = 0;
      for (int group = 0; group < kValues / 8; ++group) {
        const uint8_t mask = block[2 + group] = largest_four(x + group * 8);
        for (int i = 0; i < 8; ++i)
          if (mask >> i & 1) kept[count++] = x[group * 8 + i];
      }
      const F16Scale d = make_f16_scale(scale_of(kept));
      const float inverse = kBits == 8 ? d.inverse : d.stored != 0 ? 1.0f / d.stored : 0.0f;
      store_u16(block, d.bits);
      for (int i = 0; i < kStored; ++i)
        store(block, i, round_clamped(kept[i] * inverse, kBits == 8 ? -kMax : -kMax - 1, kMax));
    });
  }

  static int64_t find_non_finite(const uint8_t* source, int64_t n) {
    return find_block<kValues, kBytes>(source, n, [](const uint8_t* block) { return !f16_is_finite(block); });
  }

 private:
  // With 8 bits, the scale covers the range, as in Q8_0. With 4 bits, a search reduces the error.
  static float scale_of(const float* kept) {
    if constexpr (kBits == 8) return std::fabs(largest_signed(kept, kStored)) / kMax;
    const auto round = [](float value) { return static_cast<float>(round_clamped(value, -kMax - 1, kMax)); };
    return fit_scale(kept, kStored, -kMax - 1, 9, round);
  }
};

}  // namespace millrace
