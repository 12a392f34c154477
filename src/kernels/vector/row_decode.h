// Vector readers of the KV formats. Include after a simd_*.h. A row consists of whole blocks; the last block is padded.
// Each reader has these functions, which return the same exact values:
//
//   decode(row, out, n)          the first n values; reads no byte outside the row, writes up to the next 32
//   load(row, d)                 one vector from value d on, d a multiple of the lanes; all inside the row
//   transpose(rows, n, out, s)   kLanes rows side by side: out[d * s + r] = value d of row r, d < n, where n is
//                                a multiple of kTransposed
//   kCheap                       where a vector costs no more than one conversion
//   transpose_tile(rows, n, out) the same of kTransposedRows rows, where an instruction set has a way of its own
#pragma once

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

constexpr int64_t kTransposedRows = 32;

// Defined if an instruction set has another decoder for blocks of KvNibbles (nibble_blocks_avx2.h).
struct NibbleBlocks;
template <typename R>
constexpr bool kHasNibbleBlocks = requires {
  sizeof(R);
};

// Any format, read by the decoders of the call (AttentionArgs).
struct KvAny {
  static constexpr const char* kName = "any";
  static constexpr bool kByCall = true;
};

struct KvF32 {
  static constexpr bool kByCall = false, kCheap = true;
  static constexpr const char* kName = "f32";
  static constexpr int64_t kTransposed = 4;
  static void decode(const uint8_t* row, float* out, int64_t n) {
    std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
  }
  static Simd::F load(const uint8_t* row, int64_t d) { return Simd::load(reinterpret_cast<const float*>(row) + d); }
  static void transpose(const uint8_t* const* rows, int64_t n, float* out, int64_t stride) {
    for (int64_t d = 0; d < n; d += 4) {
      Simd::F word[4];
      Simd::transpose_words(rows, d * 4, word);
      for (int c = 0; c < 4; ++c) Simd::store(out + (d + c) * stride, word[c]);
    }
  }
};

// 16-bit formats: a 32-bit word holds two values.
template <Simd::F (*kLoad)(const uint8_t*), Simd::F (*kPart)(Simd::F, int)>
struct Kv16Bit {
  static constexpr bool kByCall = false, kCheap = true;
  static constexpr int64_t kTransposed = 8;
  static void decode(const uint8_t* row, float* out, int64_t n) {
    int64_t i = 0;
    for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(out + i, kLoad(row + i * 2));
    if (i < n) {
      uint8_t rest[2 * Simd::kLanes] = {};
      std::memcpy(rest, row + i * 2, static_cast<size_t>(n - i) * 2);
      Simd::store(out + i, kLoad(rest));
    }
  }
  static Simd::F load(const uint8_t* row, int64_t d) { return kLoad(row + d * 2); }
  static void transpose(const uint8_t* const* rows, int64_t n, float* out, int64_t stride) {
    for (int64_t d = 0; d < n; d += 8) {
      Simd::F word[4];
      Simd::transpose_words(rows, d * 2, word);
      for (int c = 0; c < 4; ++c) {
        Simd::store(out + (d + 2 * c) * stride, kPart(word[c], 0));
        Simd::store(out + (d + 2 * c + 1) * stride, kPart(word[c], 1));
      }
    }
  }
};

struct KvF16 : Kv16Bit<Simd::load_f16, Simd::f16_part> {
  static constexpr const char* kName = "f16";
};

struct KvBf16 : Kv16Bit<Simd::load_bf16, Simd::bf16_part> {
  static constexpr const char* kName = "bf16";
};

// Blocks of 32 values in 34 bytes: f16 scale, then 32 int8.
struct KvQ8 {
  static constexpr bool kByCall = false;
  static constexpr const char* kName = "q8_0";
  static constexpr int64_t kTransposed = 32;
  static void decode(const uint8_t* row, float* out, int64_t n) {  // the last block whole
    for (int64_t i = 0; i < n; i += 32, row += 34) {
      const Simd::F scale = Simd::set(Simd::f16(row));
      for (int64_t j = 0; j < 32; j += Simd::kLanes) {
        Simd::store(out + i + j, Simd::mul(scale, Simd::load_i8(row + 2 + j)));
      }
    }
  }
  static Simd::F load(const uint8_t* row, int64_t d) {
    const uint8_t* block = row + d / 32 * 34;
    return Simd::mul(Simd::set(Simd::f16(block)), Simd::load_i8(block + 2 + d % 32));
  }
  static void transpose(const uint8_t* const* rows, int64_t n, float* out, int64_t stride) {
    for (int64_t d = 0; d < n; d += 32) {
      const int64_t at = d / 32 * 34;
      uint8_t halves[2 * Simd::kLanes];
      for (int r = 0; r < Simd::kLanes; ++r) std::memcpy(halves + 2 * r, rows[r] + at, 2);
      const Simd::F scale = Simd::load_f16(halves);
      for (int64_t j = 0; j < 32; j += 16) {
        Simd::F word[4];
        Simd::transpose_words(rows, at + 2 + j, word);
        for (int c = 0; c < 16; ++c) {
          Simd::store(out + (d + j + c) * stride, Simd::mul(scale, Simd::i8_part(word[c / 4], c % 4)));
        }
      }
    }
  }
};

// Blocks of 32 values with an f16 scale, and a minimum if kMinimum. The nibbles are in 16 bytes: byte j has value j in
// its low half and value j + 16 in its high half. With kFifth, the four bytes before these have one more bit of each
// value. If there is no minimum, the centre kCentre is subtracted from levels.
template <bool kMinimum, bool kFifth>
struct KvNibbles {
  static constexpr bool kByCall = false, kHasMinimum = kMinimum, kHasFifth = kFifth;
  static constexpr int64_t kTransposed = 32;
  static constexpr int64_t kFifthAt = kMinimum ? 4 : 2, kLevelsAt = kFifthAt + (kFifth ? 4 : 0);
  static constexpr int64_t kBytes = kLevelsAt + 16;
  static constexpr float kCentre = kFifth ? 16.0f : 8.0f;

  static Simd::F value(Simd::F level, Simd::F scale, Simd::F minimum) {
    if constexpr (kMinimum) return Simd::fma(level, scale, minimum);
    return Simd::mul(Simd::sub(level, Simd::set(kCentre)), scale);
  }
  static Simd::F minimum_of(const uint8_t* block) { return kMinimum ? Simd::set(Simd::f16(block + 2)) : Simd::zero(); }
  static Simd::F levels(const uint8_t* block, int64_t first) {
    const Simd::F low = Simd::load_nibbles(block + kLevelsAt + first % 16, first >= 16 ? 4 : 0);
    if constexpr (!kFifth) return low;
    uint32_t fifth;
    std::memcpy(&fifth, block + kFifthAt, 4);
    return Simd::fma(Simd::spread_bits(fifth, static_cast<int>(first)), Simd::set(16.0f), low);
  }
  template <typename R = NibbleBlocks>
  static void decode(const uint8_t* row, float* out, int64_t n) {  // the last block whole
    for (int64_t i = 0; i < n; i += 32, row += kBytes) {
      if constexpr (kHasNibbleBlocks<R>) {
        R::template decode<KvNibbles>(row, out + i);
        continue;
      }
      const Simd::F scale = Simd::set(Simd::f16(row)), minimum = minimum_of(row);
      for (int64_t j = 0; j < 32; j += Simd::kLanes) Simd::store(out + i + j, value(levels(row, j), scale, minimum));
    }
  }
  static Simd::F load(const uint8_t* row, int64_t d) {
    const uint8_t* block = row + d / 32 * kBytes;
    return value(levels(block, d % 32), Simd::set(Simd::f16(block)), minimum_of(block));
  }
  static void transpose(const uint8_t* const* rows, int64_t n, float* out, int64_t stride) {
    for (int64_t d = 0; d < n; d += 32) {
      const int64_t at = d / 32 * kBytes;
      uint8_t scales[2 * Simd::kLanes], minima[2 * Simd::kLanes];
      uint32_t fifths[Simd::kLanes];
      for (int r = 0; r < Simd::kLanes; ++r) {
        std::memcpy(scales + 2 * r, rows[r] + at, 2);
        if constexpr (kMinimum) std::memcpy(minima + 2 * r, rows[r] + at + 2, 2);
        if constexpr (kFifth) std::memcpy(fifths + r, rows[r] + at + kFifthAt, 4);
      }
      const Simd::F scale = Simd::load_f16(scales);
      const Simd::F minimum = kMinimum ? Simd::load_f16(minima) : Simd::mul(scale, Simd::set(-kCentre));
      const Simd::F fifth = kFifth ? Simd::load(reinterpret_cast<const float*>(fifths)) : Simd::zero();
      Simd::F word[4];
      Simd::transpose_words(rows, at + kLevelsAt, word);
#pragma GCC unroll 32
      for (int j = 0; j < 32; ++j) {
        Simd::F level = Simd::bits_at<4>(word[j % 16 / 4], j % 4 * 8 + j / 16 * 4);
        if constexpr (kFifth) level = Simd::fma(Simd::bits_at<1>(fifth, j), Simd::set(16.0f), level);
        // Exact: a difference is also rounded once.
        Simd::store(out + (d + j) * stride, Simd::fma(level, scale, minimum));
      }
    }
  }
  template <typename R = NibbleBlocks>
  requires kHasNibbleBlocks<R>
  static void transpose_tile(const uint8_t* const* rows, int64_t n, float* out) {
    for (int64_t d = 0; d < n; d += 32)
      R::template transpose<KvNibbles>(rows, d / 32 * kBytes, out + d * kTransposedRows);
  }
};

struct KvQ40 : KvNibbles<false, false> {
  static constexpr const char* kName = "q4_0";
};
struct KvQ41 : KvNibbles<true, false> {
  static constexpr const char* kName = "q4_1";
};
struct KvQ50 : KvNibbles<false, true> {
  static constexpr const char* kName = "q5_0";
};

// Finite 8-bit floats with 4 exponent bits.
struct KvF8 {
  static constexpr bool kByCall = false;
  static constexpr const char* kName = "f8_e4m3";
  static constexpr int64_t kTransposed = 16;
  static Simd::F load(const uint8_t* row, int64_t d) { return Simd::mul(Simd::set(256.0f), Simd::load_f8(row + d)); }
  static void decode(const uint8_t* row, float* out, int64_t n) {
    int64_t i = 0;
    for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(out + i, load(row, i));
    if (i < n) {
      uint8_t rest[Simd::kLanes] = {};
      std::memcpy(rest, row + i, static_cast<size_t>(n - i));
      Simd::store(out + i, load(rest, 0));
    }
  }
  static void transpose(const uint8_t* const* rows, int64_t n, float* out, int64_t stride) {
    for (int64_t d = 0; d < n; d += 16) {
      Simd::F word[4];
      Simd::transpose_words(rows, d, word);
#pragma GCC unroll 16
      for (int c = 0; c < 16; ++c) {
        const Simd::F halves = Simd::f8_halves(word[c / 4], c % 2 != 0);
        Simd::store(out + (d + c) * stride, Simd::mul(Simd::set(256.0f), Simd::f16_part(halves, c % 4 / 2)));
      }
    }
  }
};

}  // namespace
}  // namespace millrace
