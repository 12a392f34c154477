// Row codecs in vectors, bit-identical to the formats' own codecs. Include after row_decode.h.
#pragma once

#include <cstring>

#include "kernels/ops.h"

namespace millrace {
namespace {

constexpr float kLargestF16 = 65504.0f;
constexpr float kLargestBf16 = 0x1.FEp127f;
constexpr float kLargestF32 = 0x1.FFFFFEp127f;
constexpr uint32_t kNanBits = 0x7fc00000;
constexpr float kLargestInBlock = 0x1p30f;  // limit to which the block formats clamp their input

// Returns x clamped to +-limit, with each NaN replaced by 0.
inline Simd::F clean(Simd::F x, float limit) {
  return Simd::min(Simd::set(limit), Simd::max(Simd::set(-limit), Simd::zero_nan(x)));
}

inline void encode_f32(const float* source, uint8_t* destination, int64_t n) noexcept {
  auto* out = reinterpret_cast<float*>(destination);
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(out + i, clean(Simd::load(source + i), kLargestF32));
  if (i < n) Simd::store_n(out + i, clean(Simd::load_n(source + i, n - i), kLargestF32), n - i);
}

template <void (*kStore)(uint8_t*, Simd::F)>
void encode_16_bit(const float* source, uint8_t* destination, int64_t n, float limit) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) kStore(destination + i * 2, clean(Simd::load(source + i), limit));
  if (i < n) {
    uint8_t rest[2 * Simd::kLanes];
    kStore(rest, clean(Simd::load_n(source + i, n - i), limit));
    std::memcpy(destination + i * 2, rest, static_cast<size_t>(n - i) * 2);
  }
}

inline void encode_f16(const float* source, uint8_t* destination, int64_t n) noexcept {
  encode_16_bit<Simd::store_f16>(source, destination, n, kLargestF16);
}

inline void encode_bf16(const float* source, uint8_t* destination, int64_t n) noexcept {
  encode_16_bit<Simd::store_bf16>(source, destination, n, kLargestBf16);
}

// Encodes a block. The scale max|x| / 127 is stored as f16. Values are divided by the exact scale, or by the stored
// scale if its f16 is subnormal or clamped.
inline void encode_q8_block(const float* source, uint8_t* block) {
  constexpr int kCount = 32 / Simd::kLanes;
  Simd::F x[kCount];
  Simd::F top = Simd::zero();
  for (int c = 0; c < kCount; ++c) {
    x[c] = clean(Simd::load(source + c * Simd::kLanes), kLargestInBlock);
    top = Simd::max(top, Simd::abs(x[c]));
  }
  const float scale = Simd::largest(top) / 127.0f;
  const uint16_t bits = Simd::to_f16(scale < kLargestF16 ? scale : kLargestF16);
  const float stored = Simd::from_f16(bits);
  const float used = scale >= 0x1p-14f && scale <= kLargestF16 ? scale : stored;
  const Simd::F inverse = Simd::set(used != 0 ? 1.0f / used : 0.0f);
  std::memcpy(block, &bits, sizeof(bits));
  for (int c = 0; c < kCount; ++c) {
    const Simd::F q = Simd::mul(x[c], inverse);
    Simd::store_i8(block + 2 + c * Simd::kLanes, Simd::min(Simd::set(127.0f), Simd::max(Simd::set(-127.0f), q)));
  }
}

inline void encode_q8(const float* source, uint8_t* destination, int64_t n) noexcept {
  for (int64_t i = 0; i + 32 <= n; i += 32) encode_q8_block(source + i, destination + i / 32 * 34);
}

inline void decode_f32(const uint8_t* source, float* destination, int64_t n) noexcept {
  std::memcpy(destination, source, static_cast<size_t>(n) * sizeof(float));
}

// Converts f16 to f32. Vectors with a NaN are converted without the processor's instruction, which changes signalling
// NaNs to quiet ones.
inline Simd::F widen_f16(const uint8_t* source) {
  const Simd::F v = Simd::load_f16(source);
  if (!Simd::any_nan(v)) return v;
  float values[Simd::kLanes];
  Simd::store(values, v);
  for (int i = 0; i < Simd::kLanes; ++i) {
    const uint32_t half = source[2 * i] | static_cast<uint32_t>(source[2 * i + 1]) << 8;
    if ((half & 0x7c00u) != 0x7c00u) continue;
    const uint32_t bits = (half & 0x8000u) << 16 | 0x7f800000u | (half & 0x3ffu) << 13;
    std::memcpy(values + i, &bits, sizeof(bits));
  }
  return Simd::load(values);
}

template <Simd::F (*kLoad)(const uint8_t*)>
void decode_exactly(const uint8_t* source, float* destination, int64_t n) noexcept {
  int64_t i = 0;
  for (; i + Simd::kLanes <= n; i += Simd::kLanes) Simd::store(destination + i, kLoad(source + i * 2));
  if (i < n) {
    uint8_t rest[2 * Simd::kLanes] = {};
    std::memcpy(rest, source + i * 2, static_cast<size_t>(n - i) * 2);
    Simd::store_n(destination + i, kLoad(rest), n - i);
  }
}

template <typename Kv>
void decode_blocks(const uint8_t* source, float* destination, int64_t n) noexcept {
  Kv::decode(source, destination, n / 32 * 32);
}

inline void decode_f8(const uint8_t* source, float* destination, int64_t n) noexcept {
  const int64_t whole = n / Simd::kLanes * Simd::kLanes;
  KvF8::decode(source, destination, whole);
  if (whole < n) {
    float rest[Simd::kLanes];
    KvF8::decode(source + whole, rest, n - whole);
    std::memcpy(destination + whole, rest, static_cast<size_t>(n - whole) * sizeof(float));
  }
  bool any_nan = false;
  for (int64_t i = 0; i < n; ++i) any_nan |= (source[i] & 0x7f) == 0x7f;
  for (int64_t i = 0; any_nan && i < n; ++i)
    if ((source[i] & 0x7f) == 0x7f) std::memcpy(destination + i, &kNanBits, sizeof kNanBits);
}

inline void add_row_codecs(KernelTable& table) {
  set_codec_named(table, "f32", encode_f32, decode_f32);
  set_codec_named(table, "f16", encode_f16, decode_exactly<widen_f16>);
  set_codec_named(table, "bf16", encode_bf16, decode_exactly<Simd::load_bf16>);
  set_codec_named(table, "q8_0", encode_q8, decode_blocks<KvQ8>);
  set_codec_named(table, "q4_0", nullptr, decode_blocks<KvQ40>);
  set_codec_named(table, "q4_1", nullptr, decode_blocks<KvQ41>);
  set_codec_named(table, "q5_0", nullptr, decode_blocks<KvQ50>);
  set_codec_named(table, "f8_e4m3", nullptr, decode_f8);
}

}  // namespace
}  // namespace millrace
